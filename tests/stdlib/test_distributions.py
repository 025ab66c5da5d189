"""`stats`: densities, distributions, moments and summaries against JAX and closed forms, and draws: values and gradients, in f32 and f64."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as jsp
import jax.scipy.stats as js
import numpy as np
import pytest
import scipy.stats as ss

from support.language import ran
from support.library import Engine, Like, compared, stdlib

Array = Any
LINE, HALF = np.array([-3.1, -0.4, 0.3, 1.7, 4.2]), np.array([0.2, 0.7, 1.9, 4.4, 9.0])
PART, COUNT = np.array([0.05, 0.3, 0.5, 0.77, 0.96]), np.array([0.0, 1.0, 2.0, 4.0, 7.0])


def beta_part(a: Array, b: Array, x: Array) -> Array:
    """The incomplete beta function by its series (DLMF 8.17.8), which has derivatives in a and b."""

    def series(a: Array, b: Array, x: Array) -> Array:
        k = jnp.arange(150)
        rising = lambda a: jsp.gammaln(a + k) - jsp.gammaln(a)
        terms = jnp.exp(rising(a + b) - rising(a + 1) + k * jnp.log(x)[..., None])
        return jnp.sum(terms, axis=-1) * jnp.exp(a * jnp.log(x) + b * jnp.log1p(-x) - jsp.betaln(a, b)) / a

    low = x < 0.6
    return jnp.where(low, series(a, b, jnp.where(low, x, 0.5)), 1 - series(b, a, jnp.where(low, 0.5, 1 - x)))


def student(x: Array, n: Array, m: Array, s: Array) -> Array:
    z = (x - m) / s
    return (1 + jnp.sign(z) * beta_part(0.5 + 0 * n, n / 2, z**2 / (n + z**2))) / 2


def up_to(x: Array, mass: Callable[[Array], Array]) -> Array:
    """The sum of the probabilities of 0 … x."""
    return jnp.sum(jnp.where(jnp.arange(12) <= x[:, None], jnp.exp(mass(jnp.arange(12.0))), 0), axis=1)


def failures(x: Array, p: Array) -> Array:
    return x * jnp.log1p(-p) + jnp.log(p)


# Variant: its parameters; places; the logarithm of its density and its distribution function; its mean and its variance.
DISTRIBUTIONS: dict[str, tuple[list[float], Array, Callable[..., Array], Callable[..., Array], Callable[..., Any]]] = {
    "Normal": ([0.4, 1.3], LINE, js.norm.logpdf, js.norm.cdf, lambda m, s: (m, s**2)),
    "LogNormal": ([0.4, 0.8], HALF, lambda x, m, s: js.norm.logpdf(jnp.log(x), m, s) - jnp.log(x), lambda x, m, s: js.norm.cdf(jnp.log(x), m, s), lambda m, s: (jnp.exp(m + s**2 / 2), (jnp.exp(s**2) - 1) * jnp.exp(2 * m + s**2))),
    "HalfNormal": ([1.3], HALF, lambda x, s: js.norm.logpdf(x, 0, s) + jnp.log(2), lambda x, s: jsp.erf(x / s / jnp.sqrt(2)), lambda s: (s * jnp.sqrt(2 / jnp.pi), s**2 * (1 - 2 / jnp.pi))),
    "StudentT": ([5.5, 0.4, 1.3], LINE, js.t.logpdf, student, lambda n, m, s: (m + 0 * n, s**2 * n / (n - 2))),
    "Cauchy": ([0.4, 1.3], LINE, js.cauchy.logpdf, js.cauchy.cdf, lambda m, s: (m * jnp.nan, s * jnp.nan)),
    "Laplace": ([0.4, 1.3], LINE, js.laplace.logpdf, js.laplace.cdf, lambda m, s: (m, 2 * s**2)),
    "Logistic": ([0.4, 1.3], LINE, js.logistic.logpdf, js.logistic.cdf, lambda m, s: (m, (jnp.pi * s) ** 2 / 3)),
    "Gumbel": ([0.4, 1.3], LINE, lambda x, m, s: (m - x) / s - jnp.exp((m - x) / s) - jnp.log(s), lambda x, m, s: jnp.exp(-jnp.exp((m - x) / s)), lambda m, s: (m + np.euler_gamma * s, (jnp.pi * s) ** 2 / 6)),
    "Uniform": ([-4.0, 6.5], LINE, lambda x, a, b: -jnp.log(b - a) + 0 * x, lambda x, a, b: (x - a) / (b - a), lambda a, b: ((a + b) / 2, (b - a) ** 2 / 12)),
    "Exponential": ([0.7], HALF, lambda x, r: jnp.log(r) - r * x, lambda x, r: 1 - jnp.exp(-r * x), lambda r: (1 / r, r**-2)),
    "Gamma": ([2.3, 0.7], HALF, lambda x, a, r: js.gamma.logpdf(x * r, a) + jnp.log(r), lambda x, a, r: jsp.gammainc(a, r * x), lambda a, r: (a / r, a / r**2)),
    "InverseGamma": ([3.3, 1.7], HALF, lambda x, a, s: js.gamma.logpdf(s / x, a) + jnp.log(s / x**2), lambda x, a, s: jsp.gammaincc(a, s / x), lambda a, s: (s / (a - 1), s**2 / (a - 1) ** 2 / (a - 2))),
    "ChiSquared": ([4.0], HALF, js.chi2.logpdf, js.chi2.cdf, lambda n: (n, 2 * n)),
    "Beta": ([2.3, 1.4], PART, js.beta.logpdf, lambda x, a, b: beta_part(a, b, x), lambda a, b: (a / (a + b), a * b / (a + b) ** 2 / (a + b + 1))),
    "Weibull": ([1.7, 2.2], HALF, lambda x, k, s: jnp.log(k / s) + (k - 1) * jnp.log(x / s) - (x / s) ** k, lambda x, k, s: 1 - jnp.exp(-((x / s) ** k)), lambda k, s: (s * jsp.gamma(1 + 1 / k), s**2 * (jsp.gamma(1 + 2 / k) - jsp.gamma(1 + 1 / k) ** 2))),
    "Pareto": ([5.3, 0.15], HALF, lambda x, k, m: jnp.log(k) + k * jnp.log(m) - (k + 1) * jnp.log(x), lambda x, k, m: 1 - (m / x) ** k, lambda k, m: (k * m / (k - 1), k * m**2 / (k - 1) ** 2 / (k - 2))),
    "Bernoulli": ([0.3], COUNT[:2], lambda x, p: jnp.where(x == 1, jnp.log(p), jnp.log(1 - p)), lambda x, p: jnp.where(x == 1, 1, 1 - p), lambda p: (p, p * (1 - p))),
    "Geometric": ([0.3], COUNT, failures, lambda x, p: up_to(x, lambda k: failures(k, p)), lambda p: ((1 - p) / p, (1 - p) / p**2)),
    "Binomial": ([9.0, 0.3], COUNT, js.binom.logpmf, lambda x, n, p: up_to(x, lambda k: jnp.where(k <= n, js.binom.logpmf(jnp.minimum(k, n), n, p), -jnp.inf)), lambda n, p: (n * p, n * p * (1 - p))),
    "NegativeBinomial": ([2.5, 0.4], COUNT, js.nbinom.logpmf, lambda x, n, p: up_to(x, lambda k: js.nbinom.logpmf(k, n, p)), lambda n, p: (n * (1 - p) / p, n * (1 - p) / p**2)),
    "Poisson": ([2.7], COUNT, js.poisson.logpmf, lambda x, r: up_to(x, lambda k: js.poisson.logpmf(k, r)), lambda r: (r, r)),
}  # fmt: skip
IMPORTS = stdlib("stats") + f"import stats ({', '.join(DISTRIBUTIONS)})\n"
COUNTS = ("Bernoulli", "Geometric", "Binomial", "NegativeBinomial", "Poisson")
NAMES = ("a", "b", "c")


def rows(name: str) -> list[Like]:
    """What there is of a distribution, as functions of its parameters, and of places that are no counts."""
    parameters, x, log, below, moments = DISTRIBUTIONS[name]
    given = [np.float64(p) for p in parameters]
    names = list(NAMES[: len(given)])
    d = f"{name}({', '.join(names)})"
    fixed = 1 if name == "Binomial" else 0  # its n has no derivative
    d, names, given = (
        (d.replace("(a", f"({parameters[0]}"), names[fixed:], given[fixed:]) if fixed else (d, names, given)
    )
    full: Callable[..., tuple[Any, ...]] = lambda *p: (*parameters[:fixed], *p)
    moved = f"|{', '.join(names)}| "
    found = [Like(f"mean_of and variance_of {name}", f"{moved}[mean_of({d}), variance_of({d})]", lambda *p: jnp.stack(moments(*full(*p))), tuple(given))]  # fmt: skip
    at = x.tolist() if name in COUNTS else "x"
    whole = f"concat(log_density({d}, {at}), density({d}, {at}), cdf({d}, {at}))"
    twin = lambda x, *p: jnp.concatenate([log(x, *p), jnp.exp(log(x, *p)), below(x, *p)])
    title = f"log_density, density and cdf of {name}"
    if name in COUNTS:
        found.append(Like(title, moved + whole, lambda *p: twin(jnp.asarray(x), *full(*p)), tuple(given)))
    else:
        found.append(Like(title, f"|x, {', '.join(names)}| {whole}", twin, (x, *given)))
    return found


RNG = np.random.default_rng(1)
X, ROWS, LOWER = RNG.normal(size=9), RNG.normal(size=(6, 3)), np.tril(RNG.uniform(0.5, 1.5, size=(3, 3)))
ONE = np.float64(0.3)


def off(x: Array) -> Array:
    return x - jnp.mean(x)


def gaps(x: Array, m: Array, s: Array) -> Array:
    p = js.norm.cdf(jnp.sort(x), m, s)
    return jnp.max(jnp.concatenate([p - jnp.arange(9) / 9, jnp.arange(1, 10) / 9 - p]))


TABLE = [row for name in DISTRIBUTIONS if name != "Cauchy" for row in rows(name)] + rows("Cauchy")[1:] + [
    Like("multivariate_normal_log_density", "multivariate_normal_log_density", lambda x, m, t: js.multivariate_normal.logpdf(x, m, jnp.tril(t) @ jnp.tril(t).T), (X[:3], X[3:6], LOWER)),
    Like("dirichlet_log_density", "dirichlet_log_density", lambda x, a: jnp.sum((a - 1) * jnp.log(x)) + jsp.gammaln(jnp.sum(a)) - jnp.sum(jsp.gammaln(a)), (np.array([0.2, 0.3, 0.5]), np.array([0.7, 2.0, 3.1]))),
    Like("quantile", "quantile", jnp.quantile, (X, ONE)),
    Like("median of nine", "median", jnp.median, (X,)),
    Like("median of eight", "median", jnp.median, (X[:8],)),
    Like("covariance", "covariance", lambda x: jnp.cov(x, rowvar=False), (ROWS,)),
    Like("correlation", "correlation", lambda x: jnp.corrcoef(x, rowvar=False), (ROWS,)),
    Like("skewness", "skewness", lambda x: jnp.mean(off(x) ** 3) / jnp.mean(off(x) ** 2) ** 1.5, (X,)),
    Like("kurtosis", "kurtosis", lambda x: jnp.mean(off(x) ** 4) / jnp.mean(off(x) ** 2) ** 2 - 3, (X,)),
    Like("autocorrelation", "|x| autocorrelation(x, 4)", lambda x: jnp.correlate(off(x), off(x), mode="full")[8:12] / jnp.sum(off(x) ** 2), (X,)),
    Like("ks_distance", "|x, m, s| ks_distance(x, Normal(m, s))", gaps, (X, ONE, ONE + 1)),
    Like("histogram", "|x| histogram(x, -1.0, 1.5, 4)", lambda x: jnp.histogram(x, 4, (-1, 1.5))[0].astype(int), (X,), exact=True),  # counts have no derivative
]  # fmt: skip
test_it_is_as_elsewhere = compared(TABLE, IMPORTS, long=True)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_cauchy_has_no_moments(dtype: str) -> None:
    source = f"{IMPORTS}let d = Cauchy({dtype}(0), 1.0)\nlet y = (mean_of(d), variance_of(d))\n"
    assert np.isnan([np.asarray(y) for y in ran(source, Engine("interpret"))[0]["y"].leaves or ()]).all()


# ---- Draws


@cache
def drawn(dtype: str) -> dict[str, list[Array]]:
    """Twelve numbers of each, with their derivatives in each parameter, forward and, of their sum, in reverse."""
    source = ["float f64\n" if dtype == "f64" else "", IMPORTS]
    for name, (parameters, *_) in DISTRIBUTIONS.items():
        f = "|d| with_key(key(3)) { draw(d, 12) }"
        d = f"{name}({', '.join([f'{dtype}({parameters[0]})', *map(str, parameters[1:])])})"
        source.append(
            f"let {name}_d = {d}\nlet {name}_x = ({f})({name}_d)\nlet {name}_slopes = jacfwd({f})({name}_d)\n"
        )
        source.append(f"let {name}_sums = grad(|d| sum(({f})(d)))({name}_d)\n")
    values, _ = ran("".join(source), Engine("interpret"))
    leaves = lambda key: [np.asarray(v, np.float64) for v in values[key].leaves or ()]
    assert all(values[f"{name}_x"].leaves[0].dtype == {"f32": np.float32, "f64": np.float64}[dtype] for name in DISTRIBUTIONS)  # fmt: skip
    return {name: [leaves(f"{name}_{what}") for what in ("x", "slopes", "sums")] for name in DISTRIBUTIONS}


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.nightly
def test_draws_move_with_the_distribution(name: str, dtype: str) -> None:
    """A number x keeps its place F(x; p) in the distribution: dx/dp = -(dF/dp) / (dF/dx). Counts stay where they are."""
    parameters, _, _, below, _ = DISTRIBUTIONS[name]
    (x,), slopes, sums = drawn(dtype)[name]
    for slope, total in zip(slopes, sums, strict=True):
        np.testing.assert_allclose(slope.sum(), total, rtol={"f64": 1e-12, "f32": 1e-4}[dtype], atol=1e-6)
    if name in COUNTS:
        assert (x == np.floor(x)).all() and not any(slope.any() for slope in slopes)
        return
    if name in ("StudentT", "Beta"):  # made of two numbers, of which each keeps its place
        return
    with jax.enable_x64(True):
        moves = jax.grad(lambda x, *p: jnp.sum(below(x, *p)), argnums=tuple(range(len(slopes) + 1)))
        density, *rises = map(np.asarray, moves(jnp.asarray(x), *(jnp.full(x.shape, p) for p in parameters)))
    for slope, rise in zip(slopes, rises, strict=True):
        np.testing.assert_allclose(slope, -rise / density, rtol={"f64": 1e-9, "f32": 3e-4}[dtype], atol={"f64": 1e-9, "f32": 3e-5}[dtype])  # fmt: skip


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.nightly
def test_draws_that_are_made_of_two(dtype: str) -> None:
    """Student's move with their middle and scale as all do; with freedom, and beta numbers, as their moments do."""
    ask = """let (t, b) = (StudentT(N(12), 0.4, 1.3), Beta(N(2.3), 1.4))
let (x, y) = (with_key(key(5)) { draw(t, 60) }, jacfwd(|d| with_key(key(5)) { draw(d, 60) })(t))
let z = jacfwd(|d| with_key(key(6)) { draw(d, 60) })(b)
"""
    values, _ = ran(("float f64\n" if dtype == "f64" else "") + IMPORTS + ask.replace("N(", f"{dtype}("), Engine("interpret"))  # fmt: skip
    (x,), (n, m, s), (a, b) = ([np.asarray(v, np.float64) for v in values[key].leaves or ()] for key in "xyz")
    np.testing.assert_allclose(m, 1, rtol=1e-6)
    np.testing.assert_allclose(s, (x - 0.4) / 1.3, rtol=1e-5, atol=1e-6)
    for move, mean in ((2 * (x - 0.4) * n, -2 * 1.3**2 / 10**2), (a, 1.4 / 3.7**2), (b, -2.3 / 3.7**2)):
        assert abs(move.mean() - mean) < 4.5 * move.std() / np.sqrt(60)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.nightly_except("f32")
def test_several_numbers_are_drawn(dtype: str) -> None:
    """Of a normal vector, white numbers that are normal, and exact derivatives; of places, their frequencies."""
    ask = f"""let (m, l): (N[3], N[3, 3]) = ({X[:3].tolist()}, {LOWER.tolist()})
let (x, places) = ([for i in 0..99 => draw_multivariate_normal(m, l)], draw_categorical(log(N([0.2, 0.0, 0.5, 0.3])), 1000))
let f = |m, l| with_key(key(3)) {{ draw_multivariate_normal(m, l) }}
let (y, in_m, in_l) = (f(m, l), jacfwd(|m| f(m, l))(m), jacrev(|l| f(m, l))(l))
"""
    values, _ = ran(("float f64\n" if dtype == "f64" else "") + IMPORTS + ask.replace("N[", f"{dtype}[").replace("N(", f"{dtype}("), Engine("interpret"))  # fmt: skip
    x, places, y, in_m, in_l = (np.asarray((values[k].leaves or ())[0]) for k in ("x", "places", "y", "in_m", "in_l"))
    assert x.dtype == y.dtype == {"f32": np.float32, "f64": np.float64}[dtype]
    white = np.linalg.solve(LOWER, (x - X[:3]).T)
    assert ss.kstest(white.ravel(), ss.norm.cdf).pvalue > 1e-3 and abs(np.corrcoef(white) - np.eye(3)).max() < 0.4
    z = np.linalg.solve(LOWER, y - X[:3])
    np.testing.assert_array_equal(in_m, np.eye(3))
    np.testing.assert_allclose(in_l, np.einsum("ik,j->ikj", np.eye(3), z), rtol=0, atol={"f64": 1e-14, "f32": 3e-6}[dtype])  # fmt: skip
    seen = np.bincount(places, minlength=4)
    assert seen[1] == 0 and ss.chisquare(seen[[0, 2, 3]], [200, 500, 300]).pvalue > 1e-3
