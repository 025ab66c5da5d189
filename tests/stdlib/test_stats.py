"""`stats`: 21 distributions and the summaries against SciPy; derivatives against differences of SciPy's; draws against both."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as ss

from support.language import answer, codes, ran
from support.library import Engine, stdlib

Array = Any
LINE = [-3.1, -0.4, 0.3, 1.7, 4.2]
HALF = [0.2, 0.7, 1.9, 4.4, 9.0]
PART = [0.05, 0.3, 0.5, 0.77, 0.96]
COUNT = [0.0, 1.0, 2.0, 4.0, 7.0]
# Variant: its parameters, places, and the same of SciPy's.
DISTRIBUTIONS: dict[str, tuple[list[float], list[float], Any]] = {
    "Normal": ([0.4, 1.3], LINE, lambda m, s: ss.norm(m, s)),
    "LogNormal": ([0.4, 0.8], HALF, lambda m, s: ss.lognorm(s, scale=np.exp(m))),
    "HalfNormal": ([1.3], HALF, lambda s: ss.halfnorm(scale=s)),
    "StudentT": ([5.5, 0.4, 1.3], LINE, lambda n, m, s: ss.t(n, m, s)),
    "Cauchy": ([0.4, 1.3], LINE, lambda m, s: ss.cauchy(m, s)),
    "Laplace": ([0.4, 1.3], LINE, lambda m, s: ss.laplace(m, s)),
    "Logistic": ([0.4, 1.3], LINE, lambda m, s: ss.logistic(m, s)),
    "Gumbel": ([0.4, 1.3], LINE, lambda m, s: ss.gumbel_r(m, s)),
    "Uniform": ([-4.0, 6.5], LINE, lambda a, b: ss.uniform(a, b - a)),
    "Exponential": ([0.7], HALF, lambda r: ss.expon(scale=1 / r)),
    "Gamma": ([2.3, 0.7], HALF, lambda a, r: ss.gamma(a, scale=1 / r)),
    "InverseGamma": ([3.3, 1.7], HALF, lambda a, s: ss.invgamma(a, scale=s)),
    "ChiSquared": ([3.4], HALF, lambda n: ss.chi2(n)),
    "Beta": ([2.3, 1.4], PART, lambda a, b: ss.beta(a, b)),
    "Weibull": ([1.7, 2.2], HALF, lambda k, s: ss.weibull_min(k, scale=s)),
    "Pareto": ([5.3, 0.15], HALF, lambda k, m: ss.pareto(k, scale=m)),
    "Bernoulli": ([0.3], [0.0, 1.0, 2.0], lambda p: ss.bernoulli(p)),
    "Geometric": ([0.3], COUNT, lambda p: ss.geom(p, loc=-1)),
    "Binomial": ([9.0, 0.3], COUNT, lambda n, p: ss.binom(n, p)),
    "NegativeBinomial": ([2.5, 0.4], COUNT, lambda n, p: ss.nbinom(n, p)),
    "Poisson": ([2.7], COUNT, lambda r: ss.poisson(r)),
}
IMPORTS = stdlib("stats") + f"import stats ({', '.join(DISTRIBUTIONS)})\n"
COUNTS = ("Bernoulli", "Geometric", "Binomial", "NegativeBinomial", "Poisson")
DRAWS = 1000


def made(name: str, dtype: str) -> str:
    first, *rest = DISTRIBUTIONS[name][0]
    return f"{name}({', '.join([f'{dtype}({first})', *map(str, rest)])})"


# What is asked of each distribution, by the program that answers it.
ASKED = {
    "values": "(log_density({d}, {x}), cdf({d}, {x}), mean_of({d}), variance_of({d}))",
    "slopes": "jacfwd(|d| log_density(d, {x}))({d})",
    "rises": "jacfwd(|d| cdf(d, {x}))({d})",
    "reverse": "grad(|d| sum(log_density(d, {x})) + sum(cdf(d, {x})))({d})",
    "draws": f"draw({{d}}, {DRAWS})",
}


@cache
def ours(what: str, dtype: str = "f64") -> dict[str, tuple[Array, ...]]:
    source = ["float f64\n" if dtype == "f64" else "", IMPORTS]
    for name, (_, x, _) in DISTRIBUTIONS.items():
        ask = ASKED[what].format(d=made(name, dtype), x=f"{name}_x")
        source.append(f"let {name}_x: {dtype}[{len(x)}] = {x}\nlet {name}_answer = {ask}\n")
    engine = Engine("xla" if what == "draws" else "interpret")  # one compiles little, and one draws many
    values, _ = ran("".join(source), engine, seed=5)
    return {name: tuple(map(np.asarray, values[f"{name}_answer"].leaves or ())) for name in DISTRIBUTIONS}


def differences(name: str, of: str) -> list[Array]:
    """Of SciPy's function in each parameter, by five points."""
    parameters, x, theirs = DISTRIBUTIONS[name]
    slopes: list[Array] = []
    for k in range(len(parameters)):
        h = 1e-3 * max(1.0, abs(parameters[k]))
        total: Array = 0
        for weight, step in ((1, -2), (-8, -1), (8, 1), (-1, 2)):
            moved = [p + (step * h if j == k else 0) for j, p in enumerate(parameters)]
            total = total + weight * value(theirs(*moved), of, x, name)
        slopes.append(total / (12 * h))
    return slopes


def value(d: Any, of: str, x: Array, name: str) -> Array:
    if of == "cdf":
        return d.cdf(x)
    return d.logpmf(x) if name in COUNTS else d.logpdf(x)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_values(name: str, dtype: str) -> None:
    parameters, x, theirs = DISTRIBUTIONS[name]
    d = theirs(*parameters)
    rtol = 1e-11 if dtype == "f64" else 3e-5
    logs, below, mean, variance = ours("values", dtype)[name]
    assert logs.dtype == below.dtype == {"f32": np.float32, "f64": np.float64}[dtype]
    np.testing.assert_allclose(logs, value(d, "logs", x, name), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(below, d.cdf(x), rtol=rtol, atol=rtol)
    np.testing.assert_allclose([mean, variance], [d.mean(), d.var()] if name != "Cauchy" else np.nan, rtol=rtol)


@pytest.mark.parametrize("name", [n for n in DISTRIBUTIONS if n not in ("Binomial", "Bernoulli")])
def test_derivatives_in_parameters(name: str) -> None:
    """Forward mode place by place; reverse mode in their sums."""
    slopes, rises = ours("slopes")[name], ours("rises")[name]
    for k, (log, below) in enumerate(zip(differences(name, "logs"), differences(name, "cdf"), strict=True)):
        np.testing.assert_allclose(slopes[k], log, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(rises[k], below, rtol=1e-7, atol=1e-8)
        back = float(ours("reverse")[name][k])
        assert back == pytest.approx(float(slopes[k].sum() + rises[k].sum()), rel=1e-9)


@pytest.mark.in_a_hurry
@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.nightly
def test_draws_are_of_the_distribution(name: str, dtype: str) -> None:
    """Kolmogorov's and Smirnov's test, or of counts Pearson's, at a fixed seed; and the mean."""
    parameters, _, theirs = DISTRIBUTIONS[name]
    d = theirs(*parameters)
    (x,) = ours("draws", dtype)[name]
    assert x.shape == (DRAWS,) and x.dtype == {"f32": np.float32, "f64": np.float64}[dtype]
    x = x.astype(np.float64)
    if name in COUNTS:
        top = int(d.ppf(0.98))
        seen = np.array([*(np.sum(x == k) for k in range(top)), np.sum(x >= top)])
        expected = DRAWS * np.array([*d.pmf(range(top)), 1 - d.cdf(top - 1)])
        assert ss.chisquare(seen[expected > 0], expected[expected > 0]).pvalue > 1e-3
    else:
        assert ss.kstest(x, d.cdf).pvalue > 1e-3
    if name != "Cauchy":
        assert abs(x.mean() - d.mean()) < 4.5 * d.std() / np.sqrt(DRAWS)


def test_gamma_draws_move_with_their_shape() -> None:
    """At one place of the distribution: against differences of SciPy's quantiles there."""
    ask = "(with_key(key(3)) { draw(Gamma(1.5, 1.0), 40) }, jacfwd(|a| with_key(key(3)) { draw(Gamma(a, 1.0), 40) })(1.5))"
    x, slope = answer(ask, IMPORTS, Engine("interpret"))
    place = ss.gamma(1.5).cdf(x)
    theirs = (ss.gamma(1.5 + 1e-5).ppf(place) - ss.gamma(1.5 - 1e-5).ppf(place)) / 2e-5
    np.testing.assert_allclose(slope, theirs, rtol=1e-6)


def test_special_functions() -> None:
    """The incomplete gamma and beta functions, and their derivatives in what is not the place."""
    x = [1e-3, 0.4, 2.0, 7.5, 40.0]
    p = [1e-4, 0.2, 0.6, 0.999]
    ask = f"""([for a in [0.3, 2.5, 30.0] => gammainc(a, {x})], [for a in [0.3, 2.5, 30.0] => gammaincc(a, {x})], [for a in [0.3, 2.5, 30.0] => betainc(a, 1.7, {p})],
      log_beta(2.5, 4.5), log_choose(9.0, [0.0, 3.0, 10.0]), jacfwd(|a| gammainc(a, {x}))(2.5), jacfwd(|b| betainc(2.5, b, {p}))(1.7))"""
    low, high, beta, log_beta, choose, in_a, in_b = answer(ask, stdlib("math"), Engine("interpret"))
    shapes = np.array([0.3, 2.5, 30.0])[:, None]
    np.testing.assert_allclose(low, sp.gammainc(shapes, x), rtol=1e-12)
    np.testing.assert_allclose(high, sp.gammaincc(shapes, x), rtol=1e-11)
    np.testing.assert_allclose(beta, sp.betainc(shapes, 1.7, p), rtol=1e-12)
    assert float(log_beta) == pytest.approx(sp.betaln(2.5, 4.5), rel=1e-14)
    np.testing.assert_allclose(choose[:2], np.log([1, 84]), atol=1e-13)
    assert choose[2] == -np.inf
    h = 1e-4
    np.testing.assert_allclose(in_a, (sp.gammainc(2.5 + h, x) - sp.gammainc(2.5 - h, x)) / (2 * h), atol=2e-8)
    np.testing.assert_allclose(in_b, (sp.betainc(2.5, 1.7 + h, p) - sp.betainc(2.5, 1.7 - h, p)) / (2 * h), atol=2e-8)


def test_several_numbers_and_summaries() -> None:
    rng = np.random.default_rng(1)
    x, rows = rng.normal(size=9), rng.normal(size=(6, 3))
    cov = rows.T @ rows
    ask = f"""(multivariate_normal_log_density([0.1, -0.4, 2.0], [0.0, 0.5, 1.0], cholesky({cov.tolist()})), dirichlet_log_density([0.2, 0.3, 0.5], [0.7, 2.0, 3.1]),
      quantile({x.tolist()}, 0.3), median({x.tolist()}), covariance({rows.tolist()}), correlation({rows.tolist()}), skewness({x.tolist()}), kurtosis({x.tolist()}),
      histogram({x.tolist()}, -1.0, 1.5, 4), autocorrelation({x.tolist()}, 3), ks_distance({x.tolist()}, Normal(0.1, 1.2)),
      draw_categorical(log([0.2, 0.0, 0.8]), {DRAWS}), [for i in 0..{DRAWS} => draw_multivariate_normal([1.0, 2.0], [[1.0, 0.0], [0.6, 0.8]])])"""
    mvn, dirichlet, q, middle, c, r, skew, kurt, seen, auto, ks, places, vectors = answer(
        ask, IMPORTS, Engine("interpret")
    )
    off = x - x.mean()
    expected = (
        (mvn, ss.multivariate_normal([0, 0.5, 1], cov).logpdf([0.1, -0.4, 2])),
        (dirichlet, ss.dirichlet([0.7, 2, 3.1]).logpdf([0.2, 0.3, 0.5])),
        (q, np.quantile(x, 0.3)),
        (middle, np.median(x)),
        (c, np.cov(rows.T)),
        (r, np.corrcoef(rows.T)),
        (skew, ss.skew(x)),
        (kurt, ss.kurtosis(x)),
        (seen, np.histogram(x, 4, (-1, 1.5))[0]),
        (
            auto,
            [
                np.sum(off * off) / np.sum(off**2),
                np.sum(off[1:] * off[:-1]) / np.sum(off**2),
                np.sum(off[2:] * off[:-2]) / np.sum(off**2),
            ],
        ),
        (ks, ss.kstest(x, ss.norm(0.1, 1.2).cdf).statistic),
    )
    for got, want in expected:
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)
    assert set(places.tolist()) == {0, 2} and abs(np.mean(places == 2) - 0.8) < 0.06
    np.testing.assert_allclose(vectors.mean(axis=0), [1, 2], atol=0.15)
    np.testing.assert_allclose(np.cov(vectors.T), [[1, 0.6], [0.6, 1]], atol=0.2)


@pytest.mark.parametrize(
    "wrong",
    [
        "log_density(Normal(0.0, 0.0), 1.0)",
        "cdf(Gamma(-1.0, 1.0), 1.0)",
        "draw(Uniform(1.0, 1.0), 2)",
        "mean_of(Binomial(2.5, 0.5))",
        "variance_of(Beta(1.0, nan))",
        "quantile([1.0], 1.5)",
        "histogram([1.0], 1.0, 1.0, 3)",
        "dirichlet_log_density([1.0], [0.0])",
    ],
)
def test_what_does_not_fit(wrong: str) -> None:
    assert [c for c, _ in codes(f"{IMPORTS}let y = {wrong}\n", Engine("interpret"))] == ["DL0901"]
