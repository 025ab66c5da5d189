"""`signal` and `image`: against SciPy and JAX, values and gradients, in f32 and f64."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.signal as js
import numpy as np
import pytest
import scipy.ndimage as nd
import scipy.signal as ss

from support.language import answer, codes
from support.library import Engine, Like, compared, stdlib

ANALYTIC = """fn both_parts[T: float](x: T[n]) -> T[2, n] where n > 0 {
  let z = analytic(f64(x))
  [T(real(z)), T(imag(z))]
}
"""
IMPORTS = stdlib("signal") + stdlib("image") + ANALYTIC
RNG = np.random.default_rng(8)
X, Y, PICTURE = RNG.normal(size=9), RNG.normal(size=4), RNG.normal(size=(5, 6))
ONE = np.float64(1)


def stencil(*kernels: Any) -> Any:
    """A filter of 3 by 3 weights, with the edge repeated."""

    def twin(x: Any) -> Any:
        wide = jnp.pad(x, 1, mode="edge")
        out = [
            sum(k[i][j] * wide[i : i + x.shape[0], j : j + x.shape[1]] for i in range(3) for j in range(3))
            for k in kernels
        ]
        return out[0] if len(out) == 1 else jnp.stack(out)

    return twin


def blur(x: Any) -> Any:
    w = jnp.exp(-(jnp.array([-1.0, 0, 1]) ** 2) / (2 * 0.7**2))
    return stencil(jnp.outer(w, w) / jnp.sum(w) ** 2)(x)


def filtered(b: Any, a: Any, x: Any) -> Any:
    """The recurrence, number by number."""
    y: list[Any] = []
    for i in range(len(x)):
        heard = sum(b[j] * x[i - j] for j in range(min(len(b), i + 1)))
        y.append((heard - sum(a[j] * y[i - j] for j in range(1, min(len(a), i + 1)))) / a[0])
    return jnp.stack(y)


def hilbert(x: Any) -> Any:
    """SciPy's analytic signal is linear: its matrix, column by column."""
    z = jnp.asarray(np.stack([ss.hilbert(e) for e in np.eye(len(x))], axis=1)) @ x
    return jnp.stack([z.real, z.imag])


LONG = RNG.normal(size=9)


def sampled(m: int) -> Any:
    """SciPy's resampling is linear: its matrix, column by column."""

    def twin(x: Any) -> Any:
        return jnp.asarray(np.stack([ss.resample(e, m) for e in np.eye(len(x))], axis=1)) @ x

    return twin


DOWN = np.outer([-0.5, 0, 0.5], [0.25, 0.5, 0.25])
TABLE = [
    Like("convolve", "convolve", jnp.convolve, (X, Y)),
    Like("fft_convolve", "fft_convolve", jnp.convolve, (X, Y)),
    Like("correlate", "correlate", lambda x, y: jnp.correlate(x, y, mode="full"), (X, Y)),
    Like("hann", "|t| hann(7, top = t)", lambda t: t * ss.get_window("hann", 7, fftbins=False), (ONE,)),
    Like("hamming", "|t| hamming(6, top = t)", lambda t: t * ss.get_window("hamming", 6, fftbins=False), (ONE,)),
    Like("blackman", "|t| blackman(7, top = t)", lambda t: t * ss.get_window("blackman", 7, fftbins=False), (ONE,)),
    Like("kaiser", "|b| kaiser(7, b)", lambda b: jnp.i0(b * jnp.sqrt(1 - (jnp.arange(7) / 3 - 1) ** 2 + 1e-300)) / jnp.i0(b), (8 * ONE,)),
    Like("kaiser of one point", "|b| kaiser(1, b)", lambda b: jnp.ones(1) + 0 * b, (8 * ONE,)),
    *(Like(f"resample {m} of {n}", f"|x| resample(x, {m})", sampled(m), (LONG[:n],)) for n, m in ((1, 4), (8, 4), (8, 5), (8, 8), (8, 12), (9, 1), (9, 4), (9, 12), (9, 13))),
    Like("spectrogram", "|x, w| spectrogram(x, w, 2)", lambda x, w: jnp.stack([jnp.abs(jnp.fft.rfft(x[i : i + 4] * w)) ** 2 for i in (0, 2, 4)]), (X, Y)),
    Like("smoothed", "|x| smoothed(x, 2, 3)", lambda x: jnp.convolve(x, jnp.asarray(ss.savgol_coeffs(5, 3)), mode="valid"), (X,)),
    Like("median_filter", "|x| median_filter(x, 5)", lambda x: jnp.median(jnp.stack([jnp.pad(x, 2, mode="symmetric")[k : k + 9] for k in range(5)]), axis=0), (X,)),
    Like("moving_average", "|x| moving_average(x, 3)", lambda x: jnp.convolve(x, jnp.ones(3) / 3, mode="valid"), (X,)),
    Like("power_spectrum", "power_spectrum", lambda x: jnp.abs(jnp.fft.rfft(x)) ** 2 / 9, (X,)),
    Like("frequencies", "|t| frequencies(9, t)", lambda t: jnp.fft.rfftfreq(9) / t, (np.float64(0.1),)),
    Like("recursive_filter", "recursive_filter", filtered, (Y[:3], np.array([2.0, -0.5, 0.25, 0.1]), X)),
    Like("recursive_filter of past inputs alone", "recursive_filter", filtered, (Y, np.array([0.5]), X)),
    Like("analytic", "both_parts", hilbert, (X,)),
    Like("analytic of an even number", "both_parts", hilbert, (X[:8],)),
    Like("detrend", "detrend", js.detrend, (X,)),
    Like("gaussian_kernel", "|s| gaussian_kernel(s, 2)", lambda s: jax.nn.softmax(-jnp.arange(-2.0, 3.0) ** 2 / (2 * s**2)), (ONE,)),
    Like("gaussian_blur", "|x| gaussian_blur(x, 0.7, 1)", blur, (PICTURE,)),
    Like("box_blur", "|x| box_blur(x, 1)", stencil(np.full((3, 3), 1 / 9)), (PICTURE,)),
    Like("sobel", "|x| { let (a, b) = sobel(x)\n  [a, b] }", stencil(DOWN, DOWN.T), (PICTURE,)),
    Like("laplacian", "laplacian", stencil(np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]])), (PICTURE,)),
    Like("resize", "|x| resize(x, 8, 3)", lambda x: jax.image.resize(x, (8, 3), "linear", antialias=False), (PICTURE,)),
    Like("grayscale", "grayscale", lambda x: x @ jnp.array([0.299, 0.587, 0.114]), (RNG.normal(size=(2, 3, 3)),)),
    Like("total_variation", "total_variation", lambda x: jnp.sum(jnp.abs(jnp.diff(x, axis=0))) + jnp.sum(jnp.abs(jnp.diff(x, axis=1))), (PICTURE,)),
    Like("peak_ratio", "|x, y| peak_ratio(x, y, top = 2.0)", lambda x, y: 10 * jnp.log10(4 / jnp.mean((x - y) ** 2)), (PICTURE, PICTURE[::-1].copy())),
]  # fmt: skip
test_it_is_as_elsewhere = compared(TABLE, IMPORTS, long=True)


def test_scipy_filters_alike() -> None:
    b, a = ss.butter(3, 0.3)
    ask = f"""(recursive_filter({b.tolist()}, {a.tolist()}, {X.tolist()}), gaussian_blur({PICTURE.tolist()}, 0.8, 3), laplacian({PICTURE.tolist()}),
      jacobian(|x| recursive_filter({b.tolist()}, {a.tolist()}, x))({X.tolist()}), hann(1), convolve([2.0], [3.0]), resize([[4.0]], 2, 2))"""
    filtered, blurred, bent, slope, one, single, grown = answer(ask, IMPORTS, Engine("interpret"))
    np.testing.assert_allclose(filtered, ss.lfilter(b, a, X), rtol=1e-12)
    np.testing.assert_allclose(slope, np.array([ss.lfilter(b, a, e) for e in np.eye(9)]).T, atol=1e-14)
    np.testing.assert_allclose(blurred, nd.gaussian_filter(PICTURE, 0.8, mode="nearest", radius=3), rtol=1e-12)
    np.testing.assert_allclose(bent, nd.laplace(PICTURE, mode="nearest"), rtol=1e-12, atol=1e-14)
    assert one == 1 and single == 6 and (grown == 4).all()


def test_medians_of_any_size() -> None:
    """Even sizes too, and those that are reflected several times."""
    sizes = (1, 2, 3, 4, 5, 8, 9, 20, 41)
    found = answer(f"({', '.join(f'median_filter({X.tolist()}, {k})' for k in sizes)})", IMPORTS, Engine("interpret"))
    for got, k in zip(found, sizes, strict=True):
        np.testing.assert_array_equal(got, nd.median_filter(X, k))


def test_the_analytic_signal() -> None:
    """SciPy's, of an odd and an even number of values; the derivative of its envelope is that of differences."""
    ask = f"""(analytic({X.tolist()}), analytic({Y.tolist()}), jvp(|x| abs(analytic(x)))({X.tolist()}, {X[::-1].tolist()}) |> |(_, d)| d,
      analytic([3.0]), median_filter([nan, 1.0, 2.0, 0.0], 3), median_filter(zeros(0), 3), kaiser(0, 1.0), smoothed([2.0], 0, 0))"""
    odd, even, slope, one, middle, none, nothing, same = answer(ask, IMPORTS, Engine("interpret"))
    np.testing.assert_allclose(odd, ss.hilbert(X), atol=1e-14)
    np.testing.assert_allclose(even, ss.hilbert(Y), atol=1e-14)
    apart = [np.abs(ss.hilbert(X + h * X[::-1])) for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(slope, (apart[0] - apart[1]) / 2e-6, rtol=1e-7, atol=1e-8)
    assert one == 3 and none.shape == nothing.shape == (0,) and same == 2
    assert np.isnan(middle[:2]).all() and middle[2:].tolist() == [1, 0]  # NaN comes through


@pytest.mark.parametrize(
    "wrong",
    [
        "kaiser(3, -1.0)",
        "kaiser(3, inf)",
        "recursive_filter([1.0], [0.0], [1.0])",
        "frequencies(4, 0.0)",
        "gaussian_kernel(0.0, 2)",
        "peak_ratio([[1.0]], [[1.0]], 0.0)",
    ],
)
def test_what_does_not_fit(wrong: str) -> None:
    assert [c for c, _ in codes(f"{IMPORTS}let y = {wrong}\n", Engine("interpret"))] == ["DL0901"]
