"""Tails and quantiles of distributions, to all digits where they are far too small for `1 - cdf`."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as ss

from support.language import answer, ran
from support.library import Engine, stdlib

Exact = Callable[[Any], Any]


def normal(z: Any) -> Any:
    return mp.erfc(-z / mp.sqrt(2)) / 2


def beta(a: float, b: float, x: Any) -> Any:
    return mp.betainc(a, b, 0, x, regularized=True)


def gamma(a: float, x: Any) -> Any:
    return mp.gammainc(a, 0, x, regularized=True)


def student(n: float, z: Any) -> Any:
    tail = beta(n / 2, 0.5, n / (n + z * z)) / 2
    return tail if z < 0 else 1 - tail


def von_mises(k: float, z: Any) -> Any:
    density = lambda t: mp.exp(k * (mp.cos(t) - 1))
    return mp.quad(density, [-mp.pi, (z - mp.pi) / 2, z]) / (2 * mp.pi * mp.exp(-k) * mp.besseli(0, k))


def truncated(m: float, s: float, a: float, b: float, x: Any) -> Any:
    below = lambda t: normal((mp.mpf(t) - m) / s)
    return (below(x) - below(a)) / (below(b) - below(a))


# A distribution, its probabilities up to x, and points in both tails and between.
TAILS: dict[str, tuple[Exact, list[float]]] = {
    "Normal(0.4, 1.3)": (lambda x: normal((x - mp.mpf(0.4)) / mp.mpf(1.3)), [-50.0, -3.0, 0.5, 12.0]),
    "LogNormal(0.4, 0.8)": (lambda x: normal((mp.log(x) - mp.mpf(0.4)) / mp.mpf(0.8)), [1e-9, 1.0, 1e7]),
    "HalfNormal(1.3)": (lambda x: mp.erf(x / mp.mpf(1.3) / mp.sqrt(2)), [1e-20, 1.0, 13.0]),
    "StudentT(2.5, 0.0, 1.0)": (lambda x: student(2.5, x), [-1e9, -0.2, 0.9, 1e9]),
    "StudentT(300.0, 0.0, 1.0)": (lambda x: student(300, x), [-4.0, -0.9, 0.1, 3.0]),
    "Cauchy(0.0, 1.0)": (lambda x: mp.atan2(1, -x) / mp.pi, [-1e20, -2.0, 0.3, 1e20]),
    "Laplace(0.0, 2.0)": (lambda x: mp.exp(x / 2) / 2 if x < 0 else 1 - mp.exp(-x / 2) / 2, [-300.0, -1.0, 100.0]),
    "Logistic(0.0, 1.0)": (lambda x: 1 / (1 + mp.exp(-x)), [-500.0, 1.0, 40.0]),
    "Gumbel(0.0, 1.0)": (lambda x: mp.exp(-mp.exp(-x)), [-4.0, 0.5, 100.0]),
    "Uniform(0.0, 1.0)": (lambda x: x, [1e-30, 0.3, 0.99]),
    "Exponential(2.0)": (lambda x: -mp.expm1(-2 * x), [1e-20, 1.0, 50.0]),
    "Gamma(2.5, 2.0)": (lambda x: gamma(2.5, 2 * x), [1e-20, 1.0, 50.0]),
    "InverseGamma(2.5, 2.0)": (lambda x: 1 - gamma(2.5, 2 / x), [5e-3, 1.0, 1e9]),
    "ChiSquared(3.0)": (lambda x: gamma(1.5, x / 2), [1e-20, 1.0, 50.0]),
    "Beta(1.0, 19.0)": (lambda x: beta(1, 19, x), [1e-20, 0.1, 0.865169]),
    "ChiSquared(1.0)": (lambda x: gamma(0.5, x / 2), [1e-20, 0.3, 50.0]),
    "Beta(0.9, 1.3)": (lambda x: beta(0.9, 1.3, x), [1e-20, 0.1, 0.9]),
    "Weibull(1.5, 2.0)": (lambda x: -mp.expm1(-((x / 2) ** mp.mpf(1.5))), [1e-20, 1.0, 60.0]),
    "Pareto(1.5, 2.0)": (lambda x: -mp.expm1(mp.mpf(1.5) * mp.log(2 / x)), [2.5, 1e20]),
    "VonMises(0.0, 20.0)": (lambda x: von_mises(20, x), [-3.0, -0.7, -0.1, 0.05, 2.5]),
    "TruncatedNormal(0.0, 1.0, 8.0, 12.0)": (lambda x: truncated(0, 1, 8, 12, x), [8.00001, 8.1, 11.9]),
    "TruncatedNormal(0.5, 2.0, -inf, 1.0)": (
        lambda x: normal((x - mp.mpf(0.5)) / 2) / normal(mp.mpf(0.25)), [-60.0, 0.0, 0.9999],
    ),
    "Bernoulli(1e-20)": (lambda x: 1 - mp.mpf(1e-20) if x == 0 else mp.mpf(1), [0.0]),
    "Geometric(0.25)": (lambda x: 1 - mp.mpf(0.75) ** (x + 1), [0.0, 3.0, 900.0]),
    "Binomial(40.0, 0.25)": (lambda x: beta(40 - int(x), int(x) + 1, mp.mpf(0.75)), [0.0, 12.0, 39.0]),
    "NegativeBinomial(2.5, 0.25)": (lambda x: beta(2.5, int(x) + 1, mp.mpf(0.25)), [0.0, 12.0, 300.0]),
    "Poisson(2.0)": (lambda x: 1 - gamma(int(x) + 1, 2), [0.0, 3.0, 50.0]),
}  # fmt: skip
COUNTS = ("Bernoulli", "Geometric", "Binomial", "NegativeBinomial", "Poisson")
NAMES = sorted({d.split("(")[0] for d in TAILS})
IMPORTS = stdlib("stats") + f"import stats ({', '.join(NAMES)})\n" + stdlib("math")


@pytest.mark.parametrize("name", TAILS)
def test_tails_and_their_logarithms(name: str) -> None:
    """Values, and slopes in x: the density divided by the tail."""
    exact, x = TAILS[name]
    smooth = not name.startswith(COUNTS)
    ask = "(cdf(d, x), sf(d, x), log_cdf(d, x), log_sf(d, x), log_density(d, x)"
    ask += ", grad(|x| sum(log_cdf(d, x)))(x), grad(|x| sum(log_sf(d, x)))(x))" if smooth else ")"
    values, _ = ran(f"float f64\n{IMPORTS}let (d, x) = ({name}, {x})\nlet y = {ask}\n", Engine("interpret"))
    below, above, log_below, log_above, log_density, *slopes = map(np.asarray, values["y"].leaves or ())
    with mp.workdps(320):
        want = [exact(mp.mpf(v)) for v in x]
        logs = [(float(mp.log(p)), float(mp.log(1 - p)) if p < 1 else -np.inf) for p in want]
        tails = [(float(p), float(1 - p)) for p in want]
    np.testing.assert_allclose(below, [p for p, _ in tails], rtol=2e-12, atol=1e-300)
    np.testing.assert_allclose(above, [q for _, q in tails], rtol=2e-12, atol=1e-300)
    np.testing.assert_allclose(log_below, [p for p, _ in logs], rtol=5e-13)
    np.testing.assert_allclose(log_above, [q for _, q in logs], rtol=5e-13)
    for slope, log, sign in zip(slopes, (log_below, log_above), (1, -1), strict=False):
        np.testing.assert_allclose(slope, sign * np.exp(log_density - log), rtol=1e-11, atol=1e-300)


PROBABILITIES = [1e-30, 1e-3, 0.2, 0.45, 0.7, 0.999]


@pytest.mark.parametrize("name", [n for n in TAILS if not n.startswith(COUNTS) and "inf" not in n])
def test_quantiles_are_the_inverse(name: str) -> None:
    """And so are their derivatives, in the probability and in the parameters."""
    ends = name.startswith(("Pareto", "VonMises", "Truncated"))  # x beside an end that is not 0 is rounded
    p = PROBABILITIES[1:] if ends else PROBABILITIES
    ask = f"""let (d, p): (Distribution[f64], f64[{len(p)}]) = ({name}, {p})
let x = quantile_of(d, p)
let rate = grad(|p| sum(quantile_of(d, p)))(p)
let (_, moved) = jvp(|d| quantile_of(d, p))(d, grad(|d| mean(log_density(d, x)))(d))
let (_, risen) = jvp(|d| cdf(d, x))(d, grad(|d| mean(log_density(d, x)))(d))
let y = (cdf(d, x), rate * density(d, x), moved, -risen / density(d, x))
"""
    values, _ = ran("float f64\n" + IMPORTS + ask, Engine("interpret"))
    back, one, moved, wanted = map(np.asarray, values["y"].leaves or ())
    np.testing.assert_allclose(back, p, rtol=1e-11)
    np.testing.assert_allclose(one, 1.0, rtol=1e-10)
    np.testing.assert_allclose(moved, wanted, rtol=1e-8, atol=1e-8 * np.abs(wanted).max())


def test_quantiles_at_the_ends() -> None:
    """Of the support, whose derivatives are those from inside, to second order."""
    both = [
        "Normal(0.0, 1.0)",
        "StudentT(2.5, 0.0, 1.0)",
        "Cauchy(0.0, 1.0)",
        "Laplace(0.0, 1.0)",
        "Logistic(0.0, 1.0)",
    ]
    both += ["Gumbel(0.0, 1.0)", "TruncatedNormal(0.0, 1.0, -inf, inf)"]
    ends = answer("[" + ", ".join(f"quantile_of({d}, [0.0, 1.0])" for d in both) + "]", IMPORTS, Engine("interpret"))
    np.testing.assert_array_equal(ends, [[-np.inf, np.inf]] * len(both))
    d = "TruncatedNormal(0.5, 2.0, -1.0, 3.0)"
    x, rate, bend, left = answer(
        f"[for p in [0.0, 1.0] => (quantile_of({d}, p), (|p| quantile_of({d}, p))'(p), (|p| quantile_of({d}, p))''(p), "
        "(|a| quantile_of(TruncatedNormal(0.5, 2.0, a, 3.0), p))'(-1.0))]", IMPORTS, Engine("interpret"),
    )  # fmt: skip
    density = ss.truncnorm(-0.75, 1.25, 0.5, 2).pdf(np.array([-1, 3]))
    np.testing.assert_array_equal(x, [-1, 3])
    np.testing.assert_allclose(rate, 1 / density, rtol=1e-12)
    np.testing.assert_allclose(bend, np.array([-1.5, 2.5]) / 4 / density**2, rtol=1e-12)
    np.testing.assert_array_equal(left, [1, 0])


def test_quantiles_of_counts() -> None:
    p = [0.0, 1e-3, 0.2, 0.5, 0.7, 0.999]
    theirs = {
        "Bernoulli(0.3)": ss.bernoulli(0.3), "Geometric(0.3)": ss.geom(0.3, loc=-1), "Binomial(9.0, 0.3)": ss.binom(9, 0.3),
        "NegativeBinomial(2.5, 0.4)": ss.nbinom(2.5, 0.4), "Poisson(2.7)": ss.poisson(2.7),
    }  # fmt: skip
    ask = "(" + ", ".join(f"quantile_of({name}, {p})" for name in theirs) + ")"
    for got, d in zip(answer(ask, IMPORTS, Engine("interpret")), theirs.values(), strict=True):
        np.testing.assert_array_equal(got, np.maximum(d.ppf(p), 0))


def test_moments_of_angles_and_of_truncated_numbers() -> None:
    ask = "(variance_of(VonMises(1.0, 2.0)), mean_of(VonMises(1.0, 2.0)), mean_of(TruncatedNormal(0.0, 1.0, 10.0, inf)), variance_of(TruncatedNormal(0.0, 1.0, 10.0, inf)), variance_of(TruncatedNormal(1.0, 2.0, -3.0, 1.5)))"
    got = answer(ask, IMPORTS, Engine("interpret"))
    far, near = ss.truncnorm(10, 1000), ss.truncnorm(-2, 0.25, 1, 2)
    np.testing.assert_allclose(got, [0.764461879811127, 1, far.mean(), far.var(), near.var()], rtol=1e-9)


def test_an_infinite_bound_is_no_bound() -> None:
    """Its derivatives are 0, and those of the others finite, to second order."""
    ask = "(grad(|m| log_density(TruncatedNormal(m, 1.0, -inf, 2.0), 0.5))'(0.3), grad(|s| log_density(TruncatedNormal(0.3, s, -inf, inf), 0.5))'(1.2), (|b| log_density(TruncatedNormal(0.3, 1.2, b, 2.0), 0.5))''(-inf))"
    z = 1.7
    h = float(ss.norm.pdf(z) / ss.norm.cdf(z))
    want = [-1 + h * (z + h), 1 / 1.2**2 - 3 * 0.2**2 / 1.2**4, 0.0]
    np.testing.assert_allclose(answer(ask, IMPORTS, Engine("interpret")), want, rtol=1e-12)


def test_slopes_far_from_the_mean() -> None:
    """Of x - m less the hazard, which nearly cancel; the exponentials of both differ by rounding far more than that."""
    ask = "[for m in [-1e4, -100.0, 3.0] => grad(|m| log_density(TruncatedNormal(m, 1.0, 0.0, inf), 5e-5))(m)]"
    mirrored = "[for m in [1e4, 100.0, -3.0] => -grad(|m| log_density(TruncatedNormal(m, 1.0, -inf, 0.0), -5e-5))(m)]"
    with mp.workdps(60):
        hazard = lambda m: mp.exp(-(mp.mpf(m) ** 2) / 2) / mp.sqrt(2 * mp.pi) / normal(mp.mpf(m))
        want = [float(mp.mpf(5e-5) - m - hazard(m)) for m in (-1e4, -100, 3)]
    for got in answer(f"({ask}, {mirrored})", IMPORTS, Engine("interpret")):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_inverses_of_incomplete_functions() -> None:
    p, a = np.array([1e-30, 1e-5, 0.3, 0.5, 0.8, 0.9999]), np.array([0.02, 0.7, 1.0, 8.0, 90.0, 5000.0])
    at = lambda f: f"[for a in {a.tolist()} => [for p in {p.tolist()} => {f}]]"
    ask = f"({at('gammaincinv(a, p)')}, {at('gammainccinv(a, p)')}, {at('betaincinv(a, 2.5, p)')})"
    below, above, part = answer(ask, IMPORTS, Engine("interpret"))
    np.testing.assert_allclose(below, sp.gammaincinv(a[:, None], p), rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(above, sp.gammainccinv(a[:, None], p), rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(part, sp.betaincinv(a[:, None], 2.5, p), rtol=1e-11, atol=1e-300)
    ends = "[gammaincinv(2.0, 0.0), gammaincinv(2.0, 1.0), gammainccinv(2.0, 0.0), betaincinv(2.0, 2.0, 1.0), betaincinv(2.0, 2.0, 1.5), gammainc_each(2.0, 1.0), betainc_pair(2.0, 0.5, 1.0, 1e-10)]"
    want = [0, np.inf, np.inf, 1, np.nan, sp.gammainc(2, 1), 1 - 1.5e-5]
    np.testing.assert_allclose(answer(ends, IMPORTS, Engine("interpret")), want, rtol=1e-12)
