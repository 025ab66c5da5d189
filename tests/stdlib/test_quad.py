"""`quad`: against SciPy's QUADPACK and closed forms, with derivatives, in f32 and f64."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid, quad, simpson

from support.language import answer, codes
from support.library import Engine, Like, compared, stdlib

DRAWN = """fn drawn[T: float](c: T, a: T[2], b: T[2]) -> T[2] = with_key(key(5)) {
  let (value, error) = monte_carlo(|x| c * prod(x - a), a, b, 9)
  [value, error]
}
"""
IMPORTS = stdlib("quad") + DRAWN
RNG = np.random.default_rng(5)
K = np.float64(1.3)
Y, X = RNG.normal(size=7), np.sort(RNG.normal(size=7))
GAUSS_X, GAUSS_W = np.polynomial.legendre.leggauss(5)


def decay(k, a, b):
    return (jnp.exp(-k * a) - jnp.exp(-k * b)) / k


TABLE = [
    Like("gauss_legendre", "|k, a, b| gauss_legendre(|x| exp(-k * x), a, b)", decay, (K, np.float64(-0.5), np.float64(2))),
    Like("five points", "|k| gauss_legendre(|x| cos(k * x) / x, k, 9 * k, 5)", lambda k: 4 * k * jnp.sum(GAUSS_W * jnp.cos(k * (5 * k + 4 * k * GAUSS_X)) / (5 * k + 4 * k * GAUSS_X)), (K,)),
    Like("an array of integrals", "|k| gauss_legendre(|x| [x, k * x^2], k - k, k)", lambda k: jnp.stack([k**2 / 2, k**4 / 3]), (K,)),
    Like("gauss_kronrod", "|k, a, b| gauss_kronrod(|x| exp(-k * x), a, b).value", decay, (K, np.float64(-0.5), np.float64(2))),
    Like("gauss_kronrod where it bends", "|k| gauss_kronrod(|x| 1 / (k / 10 + x * x), -k, k, rtol = 1e-6).value", lambda k: 2 * jnp.sqrt(10 / k) * jnp.arctan(jnp.sqrt(10 * k)), (K,), loose=20),
    Like("gauss_kronrod_tail", "|k, a| gauss_kronrod_tail(|x| exp(-k * x), a, rtol = 1e-6).value", lambda k, a: jnp.exp(-k * a) / k, (K, np.float64(0.5)), loose=50),
    Like("tanh_sinh", "|k, b| tanh_sinh(|x| exp(-k * x), b - b, b)", lambda k, b: (1 - jnp.exp(-k * b)) / k, (K, np.float64(2)), loose=5),
    Like("gauss_hermite", "|k| gauss_hermite(|x| exp(k * x / 2), 12, k - k)", lambda k: jnp.exp(k * k / 8), (K,), loose=20),
    Like("monte_carlo, of the same draws", "|c, a, b| drawn(c, a, b) / drawn(c / c, a - a, ones_like(b))", lambda c, a, b: jnp.ones(2) * c * jnp.prod(b - a) ** 2, (K, X[:2], X[:2] + 2)),
    Like("simpson", "|y, h| simpson(y, h)", lambda y, h: h / 3 * (y[0] + 4 * y[1] + 2 * y[2] + 4 * y[3] + 2 * y[4] + 4 * y[5] + y[6]), (Y, K)),
    Like("cumulative_trapezoid", "cumulative_trapezoid", lambda y, x: jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.diff(x) * (y[1:] + y[:-1]) / 2)]), (Y, X)),
]  # fmt: skip
test_it_is_as_elsewhere = compared(TABLE, IMPORTS)


def test_samples_are_summed_as_scipy_does() -> None:
    ask = f"(simpson({Y.tolist()}, 0.5), cumulative_trapezoid({Y.tolist()}, {X.tolist()}))"
    whole, running = answer(ask, IMPORTS, Engine("interpret"))
    np.testing.assert_allclose(whole, simpson(Y, dx=0.5), rtol=1e-13)
    np.testing.assert_allclose(running, cumulative_trapezoid(Y, X, initial=0), rtol=1e-12)


HARD = {
    "sqrt(abs(x - 0.3))": lambda x: np.sqrt(abs(x - 0.3)),
    "log(x + 1e-9)": lambda x: np.log(x + 1e-9),
    "cos(50 * x) * exp(x)": lambda x: np.cos(50 * x) * np.exp(x),
    "1 / (1e-4 + (x - 0.7)^2)": lambda x: 1 / (1e-4 + (x - 0.7) ** 2),
}


def test_hard_integrals_as_quadpack_does_them() -> None:
    ask = ", ".join(f"gauss_kronrod(|x| {f}, 0.0, 1.0, rtol = 1e-9)" for f in HARD)
    *leaves, ends = answer(f"({ask}, tanh_sinh(|x| log(x) / sqrt(x), 0.0, 1.0))", IMPORTS, Engine("interpret"))
    for k, f in enumerate(HARD.values()):
        value, error, parts, converged = leaves[4 * k : 4 * k + 4]
        exact = quad(f, 0, 1, points=[0.3, 0.7], epsabs=1e-13, epsrel=1e-13, limit=500)[0]
        assert converged and int(parts) <= 50 and abs(value - exact) <= max(float(error), 1e-12)
        assert float(value) == pytest.approx(exact, rel=1e-8)
    assert float(ends) == pytest.approx(-4, rel=1e-6)


def test_a_drawn_integral_lies_within_its_error() -> None:
    value, error = answer("monte_carlo(|x| x[0]^2 + x[1], [0.0, -1.0], [2.0, 1.0], 2000)", IMPORTS, Engine("interpret"))
    exact = 16 / 3
    assert abs(value - exact) < 4 * error and error == pytest.approx(4 * np.sqrt((64 / 45 + 1 / 3) / 2000), rel=0.1)


@pytest.mark.parametrize(
    "wrong", ["gauss_kronrod(|x| x, 0.0, 1.0, rtol = -1.0)", "gauss_kronrod(|x| x, 0.0, 1.0, atol = nan)"]
)
def test_what_does_not_fit(wrong: str) -> None:
    assert [c for c, _ in codes(f"{IMPORTS}let y = {wrong}\n", Engine("interpret"))] == ["DL0901"]
