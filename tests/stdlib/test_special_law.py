"""Special functions have all their digits, and so have their derivatives to second order, over the whole range."""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement

import mpmath as mp
import numpy as np
import pytest

import difflang
from support.special_law import Exact, Law, broken

FAR = [1e-10, 1e-3, 0.5, 1.9, 2.1, 10.0, 15.0, 25.0, 55.5, 1e3, 1e5, 1e8, 2e17, 1e30]
LINE = [-30.0, -3.1, -2.0, -1e-3, 1e-10, 0.3, 0.9, 1.1, 1.6, 2.9, 3.1, 5.0, 20.0, 300.0]
CHOSEN = tuple((name, 50) for name in ("value", "in_m", "in_k", "in_m_k", "in_k_k"))
SIZES = [1e-20, 1e-3, 0.3, 0.9, 1.0, 1.0001, 5.0, 1e8]
WAVES = [1e-10, 0.5, 1.9, 2.1, 8.0, 11.0, 15.0, 29.0, 33.0, 55.5, 300.0, 1e6, 4e9, 1e12]


def hypergeometric(args: str, first: float, second: float) -> tuple[tuple[str, float], ...]:
    """The bounds of the page for value and first derivatives, and for second ones."""
    orders = [by for n in (1, 2) for by in combinations_with_replacement(args, n)]
    return (("value", first), *((f"in_{'_'.join(by)}", first if len(by) == 1 else second) for by in orders))


ONE_SIGN, BOTH_SIGNS = hypergeometric("abx", 64, 500), hypergeometric("abx", 1e4, 1e6)
GAUSS, GAUSS_BOTH_SIGNS = hypergeometric("abcx", 100, 2000), hypergeometric("abcx", 1e4, 1e6)
# Slopes in a and b are there differences of two larger ones.
GAUSS_BELOW_0 = tuple((name, 1e4 if name in ("in_a", "in_b") else bound) for name, bound in GAUSS)


def logaddexp(x: mp.mpf, y: mp.mpf) -> mp.mpf:
    return max(x, y) + mp.log1p(mp.exp(-abs(x - y)))


def lgamma_sum(a: mp.mpf, b: mp.mpf) -> mp.mpf:
    return mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)


def normal(z: mp.mpf) -> mp.mpf:
    return mp.erfc(-z / mp.sqrt(2)) / 2


def quantile(log: mp.mpf) -> mp.mpf:
    return mp.findroot(lambda z: mp.log(normal(z)) - log, -mp.sqrt(-2 * log))


def dawson(x: mp.mpf) -> mp.mpf:
    return mp.exp(-x * x) * mp.erfi(x) * mp.sqrt(mp.pi) / 2


def hurwitz(s: mp.mpf, q: mp.mpf) -> mp.mpf:
    with mp.workdps(mp.mp.dps + 120):  # what mpmath drops is small beside 1, not beside the sum
        return mp.zeta(s, q)


def expanded(f: Exact) -> Exact:
    """With digits enough for what cancels in it."""

    def wide(*args: mp.mpf) -> mp.mpf:
        with mp.workdps(mp.mp.dps + 200):
            return f(*args)

    return wide


def owens_t(h: mp.mpf, a: mp.mpf) -> mp.mpf:
    """By Owen's series in a."""
    if abs(a) > 1:
        p, q = normal(-abs(h)), normal(-abs(a * h))
        return mp.sign(a) * ((p + q) / 2 - p * q - owens_t(a * h, 1 / abs(a)))
    half = h * h / 2
    total, j, part, sum_, power = mp.mpf(0), 0, mp.exp(-half), mp.mpf(0), a
    while abs(power) > mp.eps * abs(a):
        sum_ += part
        total += power * (1 - sum_) / (2 * j + 1)
        j, power = j + 1, -power * a * a
        part *= half / j
    return (mp.atan(a) - total) / (2 * mp.pi)


def poch(a: mp.mpf, n: mp.mpf) -> mp.mpf:
    with mp.workdps(mp.mp.dps + 60):  # for what is lost near poles
        return mp.gammaprod([a + n], [a])


def hyp1f1(a: mp.mpf, b: mp.mpf, x: mp.mpf) -> mp.mpf:
    with mp.workdps(mp.mp.dps + 60):
        return mp.hyp1f1(a, b, x)


def hyp2f1(a: mp.mpf, b: mp.mpf, c: mp.mpf, x: mp.mpf) -> mp.mpf:
    with mp.workdps(mp.mp.dps + 60):
        return mp.hyp2f1(a, b, c, x)


def boxcox(x: mp.mpf, power: mp.mpf) -> mp.mpf:
    return mp.expm1(power * mp.log(x)) / power


def scaled(n: int, x: mp.mpf) -> mp.mpf:
    return mp.exp(-abs(x)) * mp.besseli(n, x)


LAWS = {
    "logaddexp": Law("logaddexp(x, y)", "x y", logaddexp, [[0.0, -30.0, 3.0, -1e-3], [-20.0, -50.0, 0.0, 1.0, -1e-5]]),
    "hypot": Law(
        "hypot(x, y)", "x y", lambda x, y: mp.sqrt(x * x + y * y),
        [[1.0, 1e4, -3e-5, 1e10, 7.0], [1e-5, 1e-3, 2.0, 1e8, -1e-12]],
    ),
    "bessel_j, order 0": Law("bessel_j(0, x)", "x", lambda x: mp.besselj(0, x), [WAVES]),
    "bessel_j, order 1": Law("bessel_j(1, x)", "x", lambda x: mp.besselj(1, x), [WAVES]),
    "bessel_j, order 30": Law("bessel_j(30, x)", "x", lambda x: mp.besselj(30, x), [WAVES[1:]]),
    "bessel_i_scaled, order 0": Law("bessel_i_scaled(0, x)", "x", lambda x: scaled(0, x), [[-1e3, -2.1, -1e-3, *FAR]]),
    "bessel_i_scaled, order 1": Law("bessel_i_scaled(1, x)", "x", lambda x: scaled(1, x), [[-1e3, -2.1, -1e-3, *FAR]]),
    "bessel_i_scaled, order 30": Law(
        "bessel_i_scaled(30, x)", "x", lambda x: scaled(30, x), [[-15.0, 40.0, 100.0, *FAR[2:]]],
        bounds=(("in_x", 32), ("in_x_x", 900)),
    ),
    "bessel_i, order 0": Law(
        "bessel_i(0, x)", "x", lambda x: mp.besseli(0, x), [[-3.0, -1e-10, -1e-30, 0.0, 1e-20, 0.1, 3.0, 20.0, 80.0]]
    ),
    "log_poisson": Law(
        "log_poisson(k, r)", "k r", lambda k, r: k * mp.log(r) - r - mp.loggamma(k + 1),
        [[0.5, 3.0, 15.5, 16.0, 100.0, 1e5], [1e-5, 1.0, 30.0, 1e4, 1e9]],
    ),
    "erfcx": Law("erfcx(x)", "x", lambda x: mp.exp(x * x) * mp.erfc(x), [[-3.0, 0.5, 1.2, 1.3, 1.99, 5.0, 30.0, 1e4]]),
    "log_normal_cdf": Law(
        "log_normal_cdf(z)", "z", lambda z: mp.log(normal(z)), [[-1e3, -40.0, -5.0, -1.9, -1.2, -0.5, 1e-3, 2.0, 6.0]]
    ),
    "ndtri": Law(
        "ndtri(p)", "p", lambda p: quantile(mp.log(p)), [[1e-30, 1e-15, 0.05, 0.11, 0.3, 0.499, 0.7, 0.95, 0.9999]]
    ),
    "ndtri_exp": Law("ndtri_exp(l)", "l", quantile, [[-1e4, -100.0, -3.0, -2.0, -0.5, -0.05]]),
    "log_gammainc": Law(
        "log_gammainc(a, x)", "a x", lambda a, x: mp.log(mp.gammainc(a, 0, x, regularized=True)),
        [[0.1, 1.0, 3.5, 50.0], [1e-10, 0.5, 3.0, 40.0]],
    ),
    "log_gammaincc": Law(
        "log_gammaincc(a, x)", "a x", lambda a, x: mp.log(mp.gammainc(a, x, mp.inf, regularized=True)),
        [[0.1, 3.5, 50.0], [3.0, 40.0, 900.0]], bounds=(("in_x_x", 100),),
    ),
    "log_betainc": Law(
        "log_betainc(a, b, x)", "a b x", lambda a, b, x: mp.log(mp.betainc(a, b, 0, x, regularized=True)),
        [[0.3, 2.0, 40.0], [0.7, 3.0], [1e-8, 0.1]], bounds=(("in_b_x", 24),),
    ),
    "log_betaincc": Law(
        "log_betaincc(a, b, x)", "a b x", lambda a, b, x: mp.log(mp.betainc(a, b, x, 1, regularized=True)),
        [[0.3, 2.0, 40.0], [0.7, 3.0], [0.9, 0.999]],
    ),
    "log_beta": Law(
        "log_beta(a, b)", "a b", lgamma_sum, [[1e-10, 0.1, 3.0, 100.0, 1e5], [0.5, 2.0, 20.0, 1e3, 1e10, 1e30]],
    ),
    "log_choose": Law(
        "log_choose(m, k)", "m k", lambda n, k: mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1),
        [[3.0, 15.5, 20.0, 1000.0, 1e5], [1e-9, 1e-7, 1e-3, 0.5, 1.25, 2.0]],
    ),
    "Cauchy": Law(
        "log_density(Cauchy(m, s), x)", "m s x", lambda m, s, x: -mp.log(mp.pi * s * (1 + ((x - m) / s) ** 2)),
        [[-5.0, 0.0], [1e5, 1.0, 0.01], [1e9, 3.0, 300.0, -2e4]],
    ),
    "Logistic": Law(
        "log_density(Logistic(m, s), x)", "m s x",
        lambda m, s, x: -abs(x - m) / s - 2 * mp.log1p(mp.exp(-abs(x - m) / s)) - mp.log(s),
        [[0.0, 1e-3], [1.0, 10.0], [1e-10, 1e-5, 1.0, 30.0, -800.0]],
    ),
    "Gumbel, below": Law(
        "cdf(Gumbel(m, s), x)", "m s x", lambda m, s, x: mp.exp(-mp.exp((m - x) / s)),
        [[0.0], [1.0, 10.0], [1e-10, 1e-5, 1.0, 30.0, -5.0, -710.0]],
    ),
    "Binomial, below": Law(
        "cdf(Binomial(7.0, p), k)", "p k", lambda p, k: mp.betainc(7 - k, k + 1, 0, 1 - p, regularized=True),
        [[1e-10, 1e-3, 0.3, 0.9, 0.99, 0.99999], [0.0, 1.0, 3.0, 6.0]], by="p",
    ),
    "digamma": Law("digamma(x)", "x", mp.digamma, [[-1e-300, -1e-30, -1e-10, -0.3, 1e-300, 1e-30]]),
    "lgamma": Law(
        "lgamma(x)", "x", lambda x: mp.log(abs(mp.gamma(x))), [[-1e-300, -1e-30, -1e-10, -0.3, 1e-30]]
    ),
    "dawson": Law(
        "dawson(x)", "x", dawson,
        [[-1e37, -10.0, -9.0, -1.4, 1e-30, 0.1, 0.19, 0.21, 1.6, 2.0, 3.0, 5.0, 7.0, 10.1, 1e4, 1e6]],
    ),
    "hurwitz_zeta": Law(
        "hurwitz_zeta(s, q)", "s q", hurwitz, [[1.000001, 1.01, 1.5, 7.5, 30.0], [0.01, 0.5, 1.0, 9.5, 1e3]]
    ),
    "polygamma": Law(
        "polygamma(2, x)", "x", lambda x: mp.polygamma(2, x),
        [[1e-3, 0.5, 1.0, 1.46, 9.0, 1e3, 1e8, -1e-10, -0.3, -1.9, -7.25, -1e4 - 0.125]],
    ),
    **{
        f"expn, order {n}": Law(
            f"expn({n}, x)", "x", lambda x, n=n: mp.expint(n, x), [[1e-10, 1e-3, 0.5, 0.99, 1.01, 3.0, 50.0, 200.0]]
        )
        for n in (0, 1, 2, 10, 60)
    },
    "elliptic_e": Law(
        "elliptic_e(m)", "m", mp.ellipe, [[-1e100, -1e30, -1e10, -1e3, -3.1, -2.9, -1.0, 0.3, 0.9, 0.999999]]
    ),
    "expi": Law(
        "expi(x)", "x", lambda x: mp.re(mp.ei(x)),
        [[-300.0, -30.0, -0.5, -1e-10, 1e-30, 1e-3, 0.3, 0.4, 1.5, 10.0, 39.0, 41.0, 60.0, 85.0, 700.0, 713.0]],
    ),
    "sine integral": Law("sici(x) |> |(si, _)| si", "x", mp.si, [LINE]),
    "cosine integral": Law("sici(x) |> |(_, ci)| ci", "x", lambda x: mp.re(mp.ci(x)), [LINE]),
    "fresnel, sine": Law("fresnel(x) |> |(s, _)| s", "x", mp.fresnels, [LINE]),
    "fresnel, cosine": Law("fresnel(x) |> |(_, c)| c", "x", mp.fresnelc, [LINE]),
    "spence": Law(
        "spence(x)", "x", lambda x: mp.re(mp.polylog(2, 1 - x)),
        [[1e-30, 1e-3, 0.3, 0.49, 0.51, 0.69, 0.71, 0.999, 1.0001, 1.29, 1.31, 1.9, 2.1, 10.0, 1e5, 1e30]],
    ),
    "entr": Law("entr(x)", "x", lambda x: -x * mp.log(x), [SIZES]),
    "rel_entr": Law("rel_entr(x, y)", "x y", lambda x, y: x * mp.log(x / y), [SIZES, SIZES]),
    "kl_div": Law("kl_div(x, y)", "x y", expanded(lambda x, y: x * mp.log(x / y) - x + y), [SIZES, SIZES]),
    "xlog1py": Law(
        "xlog1py(x, y)", "x y", lambda x, y: x * mp.log1p(y), [[-2.0, 1e-10, 3.0], [-0.999, -0.3, 1e-20, 0.1, 1e10]]
    ),
    "boxcox": Law(
        "boxcox(x, l)", "x l", expanded(boxcox),
        [[1e-5, 0.5, 0.999, 1.001, 3.0, 1e5], [-3.0, -0.3, 1e-10, -1e-5, 0.2, 1.0, 2.5]],
    ),
    "factorial": Law(
        "factorial(x)", "x", lambda x: mp.gamma(x + 1), [[1e-10, 0.3, 1.0, 2.5, 7.3, 40.0, 100.5]]
    ),
    "multigammaln": Law(
        "multigammaln(a, 3)", "a",
        lambda a: mp.log(mp.pi) * 3 / 2 + sum(mp.loggamma(a - mp.mpf(j) / 2) for j in range(3)),
        [[1.001, 1.3, 5.0, 30.0, 1e5]],
    ),
    "comb": Law(
        "comb(m, k)", "m k", lambda n, k: mp.binomial(n, k),
        [[3.0, 15.5, 1000.0, 1e5], [1e-9, 1e-3, 0.5, 1.25, 2.0]],
        bounds=(*CHOSEN, ("in_m_m", 120)),
    ),
    "comb, of many": Law(
        "comb(m, k)", "m k", lambda n, k: mp.binomial(n, k), [[31.6, 102.2, 429.3], [15.8, 29.65]],
        bounds=(*CHOSEN, ("in_m_m", 50)),
    ),
    "poch": Law(
        "poch(a, k)", "a k", poch,
        [
            [-150.3, -20.25, -3.5, -1.0001, -0.3, -1e-10, 1e-20, 1e-3, 0.4, 1.0, 1.5, 10.3, 100.0, 1e5, 1e10],
            [-30.9, -3.37, -1.2, -0.55, -1.1e-10, 1e-9, 0.31, 1.7, 3.0, 25.2, 90.0],
        ],
    ),
    "poch, whole steps down": Law("poch(a, k)", "a k", poch, [[1e-3, 0.4, 1.5, 10.3], [-3.0, -20.0]]),
    "hyp1f1": Law(
        "hyp1f1(a, b, x)", "a b x", hyp1f1,
        [[1e-10, 0.3, 0.5, 2.5], [3.2, 30.2], [-1e3, -62.3, -5.2, -1e-8, 2.3, 80.0]], bounds=ONE_SIGN,
    ),
    "hyp1f1, a tiny b": Law(
        "hyp1f1(a, b, x)", "a b x", hyp1f1, [[0.3, 2.0], [1e-5], [1e-3, 60.0]], bounds=ONE_SIGN,
    ),
    "hyp1f1, negative parameters": Law(
        "hyp1f1(a, b, x)", "a b x", hyp1f1, [[-3.5, -3.0, -0.4], [-1.5, 0.7, 45.3], [-2.4, 0.3, 8.0]],
        bounds=BOTH_SIGNS,
    ),
    "hyp1f1, large parameters": Law(
        "hyp1f1(a, b, x)", "a b x", hyp1f1, [[0.7, 300.0], [350.0, 1e5], [-120.0, -1.3, 40.0]], bounds=ONE_SIGN,
    ),
    "hyp2f1": Law(
        "hyp2f1(a, b, c, x)", "a b c x", hyp2f1,
        [[0.3, 2.5], [0.2, 2.2], [2.6, 20.3], [0.3, 0.99999]], bounds=GAUSS,
    ),
    "hyp2f1, below 0": Law(
        "hyp2f1(a, b, c, x)", "a b c x", hyp2f1, [[0.3, 2.5], [0.2, 2.2], [2.6, 20.3], [-30.0, -0.4]],
        bounds=GAUSS_BELOW_0,
    ),
    "hyp2f1, a small c": Law(
        "hyp2f1(a, b, c, x)", "a b c x", hyp2f1, [[0.3, 2.5], [1e-3, 7.4], [0.6], [0.3, 0.95, 0.999]], bounds=GAUSS,
    ),
    "hyp2f1, a large c": Law(
        "hyp2f1(a, b, c, x)", "a b c x", hyp2f1, [[0.3, 2.0], [1.0], [60.0, 300.0], [-0.8, 0.75, 0.999999]],
        bounds=GAUSS,
    ),
    "hyp2f1, negative parameters": Law(
        "hyp2f1(a, b, c, x)", "a b c x", hyp2f1, [[-1.5, -0.4], [0.7, 2.5], [-1.3, 1.5], [-0.3, 0.6, 0.97]],
        bounds=GAUSS_BOTH_SIGNS,
    ),
    "hyp2f1, polynomials": Law(
        "hyp2f1(a, b, c, x)", "a b c x", hyp2f1, [[-3.0, -1.0], [0.5, 12.0], [2.5], [-20.0, 0.7, 0.9999]],
        bounds=GAUSS_BOTH_SIGNS,
    ),
    "hyp2f1, at 1": Law("hyp2f1(a, b, c, x)", "a b c x", hyp2f1, [[0.3, 1.0], [0.7], [8.2], [1.0]], bounds=GAUSS),
    "soft_min": Law(
        "soft_min([x, y, inf], g)", "x y g", lambda x, y, g: -g * mp.log(mp.exp(-x / g) + mp.exp(-y / g)),
        [[-3.0, 0.0, 1.0, 60.0], [1.5, 7.0], [0.3, 1.0, 10.0]],
    ),
    "owens_t": Law(
        "owens_t(x, a)", "x a", owens_t, [[-1.0, 1e-3, 5.0], [-0.5, 1e-10, 0.6, 1.5, 20.0]],
    ),
    "Weibull's variance": Law(
        "variance_of(Weibull(k, 1.0))", "k", lambda k: mp.gamma(1 + 2 / k) - mp.gamma(1 + 1 / k) ** 2,
        [[0.1, 0.5, 1.0, 3.0, 100.0, 1e6, 1e10]],
    ),
}  # fmt: skip
BY_DAY = (
    "logaddexp",
    "hypot",
    "bessel_j, order 30",
    "bessel_i_scaled, order 0",
    "log_beta",
    "kl_div",
    "cosine integral",
)


@pytest.mark.parametrize("name", BY_DAY)
def test_on_a_thin_grid(name: str) -> None:
    assert not broken(LAWS[name], "f64", thin=True)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", LAWS)
def test_on_the_whole_grid(name: str, dtype: str) -> None:
    assert not broken(LAWS[name], dtype)


@pytest.mark.nightly
def test_a_rising_factorial_has_no_slope_at_its_poles_and_jumps() -> None:
    source = "float f64\nimport math (poch)\nfn in_k(a: f64, k: f64) -> f64 = (|t| poch(a, t))'(k)\n"
    module = difflang.loads(source)
    assert all(np.isnan(module.in_k(*at)) for at in ((2.0, -3.0), (-3.0, 2.0), (0.5, -1.5)))


@cache
def firsts(name: str, args: str, dtype: str = "f64") -> difflang.Module:
    """The function by this name as `value`, and its first derivatives."""
    params = ", ".join(f"{a}: {dtype}" for a in args)
    call = f"{name})({', '.join(args)})"
    lines = ["float f64"] if dtype == "f64" else []
    lines += [f"import hypergeometric ({name})", f"fn value({params}) -> {dtype} = ({call}"]
    lines += [f"fn in_{a}({params}) -> {dtype} = grad[{a}]({call}" for a in args]
    return difflang.loads("\n".join([*lines, ""]))


@pytest.mark.nightly
def test_where_hypergeometric_functions_are_nan_or_infinite_no_derivative_is_a_number() -> None:
    kummer, gauss = firsts("hyp1f1", "abx"), firsts("hyp2f1", "abcx")
    found = [getattr(kummer, f"in_{v}")(*at) for v in "abx" for at in ((20.5, 1.0, -10.0), (1.0, -2.0, 1.0))]
    found += [kummer.in_a(-1.0, -2.0, 3.0), kummer.in_a(-1.0, -1.0, 0.5), kummer.in_b(10.0, 1e-8, -200.0)]
    outside = ((1.0, 2.0, 3.0, 1.5), (1.0, 2.0, 3.0, 1.0), (1.0, 2.0, -3.0, 0.5), (9.5, 40.5, 0.3, -0.6))
    found += [getattr(gauss, f"in_{v}")(*at) for v in "abcx" for at in outside]
    found += [gauss.in_b(7.0, -2.0, -0.5, 1.0), gauss.in_a(0.0, 3.0, 1.0, 1.0), gauss.in_b(2.5, -2.0, -2.0, -0.2)]
    assert not np.isfinite(found).any()


@pytest.mark.nightly
@pytest.mark.parametrize(("a", "b", "c", "x"), [
    (1.0, 2.0, 300.0, 0.75), (1.0, 1.0, 50.0, 0.9), (0.05, 0.1, 34.0, 0.999999), (38.35, 0.0223, 38.38, -37.7),
    (1.0, 1.0, 4.0, 1.0), (-1.0, 12.0, 1.0, 0.9999), (30.0, -2.0, 1e-6, 0.9), (7.0, -2.0, 2.5, 1 - 1e-12),
    (0.5, 0.5, 1.0, 1 - 1e-9), (50.5, 51.0, 1.5, 0.99), (1.0, 1.0, 2.0, -1e12), (-0.5, 1.0, 1.0, 0.99),
])  # fmt: skip
def test_gauss_s_function_where_sums_are_long_or_end(a: float, b: float, c: float, x: float) -> None:
    module = firsts("hyp2f1", "abcx")
    with mp.workdps(30):
        value, in_x = mp.hyp2f1(a, b, c, x), a * b / c * mp.hyp2f1(a + 1, b + 1, c + 1, x)
    assert float(module.value(a, b, c, x)) == pytest.approx(float(value), rel=1e-12, abs=0)
    assert float(module.in_x(a, b, c, x)) == pytest.approx(float(in_x), rel=1e-12, abs=0)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "dtype", "at", "value"), [
    ("hyp1f1", "f32", (40.0, 48.0, -88.5), 1.375381e-24),
    ("hyp1f1", "f64", (500.0, 503.0, -760.0), 7.0899598e-303),
    ("hyp2f1", "f32", (38.5, 2.5, 35.0, -9.0), 2.524390e-3),
    ("hyp2f1", "f64", (309.0, 4.5, 300.0, -9.0), 2.8022299e-5),
])  # fmt: skip
def test_factors_that_underflow_are_no_loss(name: str, dtype: str, at: tuple[float, ...], value: float) -> None:
    module = firsts(name, "abcx" if len(at) == 4 else "abx", dtype)
    assert float(module.value(*at)) == pytest.approx(value, rel=1e-5, abs=0)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "dtype", "at"), [
    ("hyp2f1", "f32", (1.0, 1.0, -120.5, 0.5)), ("hyp2f1", "f64", (1.0, 1.0, -1100.5, 0.51)),
    ("hyp1f1", "f32", (1.0, -160.5, 45.0)), ("hyp1f1", "f64", (1.0, -1500.5, 420.0)),
])  # fmt: skip
def test_terms_that_underflow_and_come_back_make_nan(name: str, dtype: str, at: tuple[float, ...]) -> None:
    module = firsts(name, "abcx" if len(at) == 4 else "abx", dtype)
    assert np.isnan([getattr(module, call)(*at) for call in ("value", "in_a", "in_b", "in_x")]).all()


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "dtype", "at"), [
    ("hyp1f1", "f64", (1e-200, -500.5, 142.6)), ("hyp1f1", "f64", (1e-200, -500.5, 137.6)),
    ("hyp2f1", "f64", (1e-200, 1.0, -300.5, 0.52)), ("hyp1f1", "f32", (1e-16, -80.5, 20.93)),
    ("hyp1f1", "f32", (1e-25, -60.5, 15.125)),
])  # fmt: skip
def test_terms_of_a_tiny_parameter_that_underflow_and_come_back_make_nan(
    name: str, dtype: str, at: tuple[float, ...]
) -> None:
    """Beside 1 they count as little as the first, but not in a derivative that has the parameter as a factor."""
    module = firsts(name, "abcx" if len(at) == 4 else "abx", dtype)
    assert np.isnan(module.in_b(*at)) and (len(at) == 3 or np.isnan(module.in_c(*at)))


@pytest.mark.nightly
def test_where_a_hypergeometric_function_is_nan_so_is_its_slope_in_x() -> None:
    kummer, gauss = firsts("hyp1f1", "abx"), firsts("hyp2f1", "abcx")
    found = [gauss.in_x(0.0, 1.0, 3.0, x) for x in (-np.inf, -4e307)] + [kummer.in_x(0.0, 1.0, np.inf)]
    assert np.isnan(found).all()
    assert float(kummer.value(1e-300, 2.0, 1.0)) == 1.0 and float(gauss.value(1e-300, 1.0, 2.0, 0.5)) == 1.0


@pytest.mark.nightly
def test_gauss_s_function_of_a_parameter_at_0_has_its_mixed_derivative() -> None:
    lines = ["float f64", "import hypergeometric (hyp2f1)"]
    lines += ["fn in_x(a: f64, b: f64) -> f64 = grad[x](|x: f64| hyp2f1(a, b, 2.5, x))(0.5)"]
    lines += [f"fn in_{p}(a: f64, b: f64) -> f64 = grad[{p}](in_x)(a, b)" for p in "ab"]
    module = difflang.loads("\n".join([*lines, ""]))
    assert float(module.in_a(0.0, 1.5)) == pytest.approx(0.9574057634, rel=1e-9)
    assert float(module.in_b(1.5, 0.0)) == pytest.approx(0.9574057634, rel=1e-9)


@pytest.mark.nightly
def test_hypergeometric_functions_of_nan_and_of_far_parameters() -> None:
    kummer, gauss = firsts("hyp1f1", "abx"), firsts("hyp2f1", "abcx")
    at = [(np.nan, -1.0, 1.0), (1.0, -1.0, np.nan), (0.0, 1.0, np.nan), (1.0, -np.inf, 1.0), (1.0, 2.0, np.inf)]
    found = [getattr(kummer, name)(*p) for name in ("value", "in_a", "in_b", "in_x") for p in at]
    at = [(np.nan, 1.0, -1.0, 0.5), (1.0, 1.0, -1.0, np.nan), (0.0, 1.0, 1.0, np.nan), (1.0, 1.0, -np.inf, 0.5)]
    at += [(-1.0, 2.0, 3.0, -np.inf), (0.01, 1.5, 2.5, -1.7e308)]
    found += [getattr(gauss, name)(*p) for name in ("value", "in_a", "in_b", "in_c", "in_x") for p in at]
    assert np.isnan(found).all()
    assert float(gauss.in_x(1e-200, 1e-200, 1e-200, 0.5)) == pytest.approx(2e-200, rel=1e-12, abs=0)
    assert np.isnan(float(gauss.in_x(1e-18, 75.0, 1e-30, -1.04)))  # 1 + a has lost a
