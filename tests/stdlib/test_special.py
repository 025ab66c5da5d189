"""`special`: values and derivatives against SciPy and closed forms, in both types, and at the ends of domains."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.special as sp

from support.language import codes, ran
from support.library import RTOL, Engine, literal, stdlib

IMPORTS = stdlib("special")
LINE = [-30.0, -3.0, -0.7, 0.0, 0.3, 1.9, 2.1, 6.0, 40.0]
UP = [0.01, 0.3, 0.999, 1.0, 1.2, 4.0, 30.0]
INSIDE = [-2.5, -0.9, 0.0, 0.4, 1.0]
Real = Callable[[Any], Any]
# What is called on x, SciPy's value and derivative, and where.
TABLE: dict[str, tuple[str, Real, Real, list[float]]] = {
    "log1mexp": ("log1mexp(x)", lambda x: np.log(-np.expm1(-x)), lambda x: 1 / np.expm1(x), [1e-9, 0.5, 0.7, 5.0]),
    "log_difference": ("log_difference(x + 1, x)", lambda x: x + np.log(np.expm1(1.0)), np.ones_like, [-3.0, 2.0, 90.0]),
    "erfcx": ("erfcx(x)", sp.erfcx, lambda x: 2 * x * sp.erfcx(x) - 2 / np.sqrt(np.pi), [-3.0, -1.0, 0.0, 1.9, 2.1, 5.0, 9.0]),
    "log_normal_cdf": ("log_normal_cdf(x)", sp.log_ndtr, lambda x: np.exp(-x * x / 2 - sp.log_ndtr(x)) / np.sqrt(2 * np.pi), LINE),
    "dawson": ("dawson(x)", sp.dawsn, lambda x: 1 - 2 * x * sp.dawsn(x), LINE),
    "exp_integral": ("exp_integral(x)", sp.exp1, lambda x: -np.exp(-x) / x, UP),
    "lambert_w": ("lambert_w(x)", lambda x: sp.lambertw(x).real, lambda x: 1 / (x + np.exp(sp.lambertw(x).real)), [-0.36, -0.2, 0.0, 0.5, 2.0, 3.0, 1e3, 1e9]),
    "hurwitz_zeta in s": ("hurwitz_zeta(x, 0.5 + zeros_like(x))", lambda x: sp.zeta(x, 0.5), lambda x: (sp.zeta(x + 1e-5, 0.5) - sp.zeta(x - 1e-5, 0.5)) / 2e-5, [1.5, 2.0, 7.0]),
    "hurwitz_zeta in q": ("hurwitz_zeta(2.5 + zeros_like(x), x)", lambda x: sp.zeta(2.5, x), lambda x: -2.5 * sp.zeta(3.5, x), [0.5, 1.0, 20.0]),
    "polygamma": ("polygamma(2, x)", lambda x: sp.polygamma(2, x), lambda x: sp.polygamma(3, x), [0.7, 1.0, 5.0, 80.0]),
    "elliptic_k": ("elliptic_k(x)", sp.ellipk, lambda m: np.where(m == 0, np.pi / 8, (sp.ellipe(m) / (1 - m) - sp.ellipk(m)) / (2 * np.where(m == 0, 1, m))), [-9.0, -0.5, 0.0, 0.6, 0.98]),
    "elliptic_e": ("elliptic_e(x)", sp.ellipe, lambda m: np.where(m == 0, -np.pi / 8, (sp.ellipe(m) - sp.ellipk(m)) / (2 * np.where(m == 0, 1, m))), [-9.0, -0.5, 0.0, 0.6, 0.98]),
    "bessel_j, order 0": ("bessel_j(0, x)", sp.j0, lambda x: -sp.j1(x), LINE),
    "bessel_j, order 3": ("bessel_j(3, x)", lambda x: sp.jv(3, x), lambda x: sp.jvp(3, x), LINE),
    "bessel_i, order 0": ("bessel_i(0, x)", sp.i0, sp.i1, INSIDE),
    "bessel_i, order 2": ("bessel_i(2, x)", lambda x: sp.iv(2, x), lambda x: sp.ivp(2, x), INSIDE),
    "bessel_i_scaled": ("bessel_i_scaled(1, x)", sp.i1e, lambda x: np.exp(-abs(x)) * sp.ivp(1, x) - np.sign(x) * sp.i1e(x), LINE),
    "chebyshev": ("chebyshev(5, x)", lambda x: sp.eval_chebyt(5, x), lambda x: 5 * sp.eval_chebyu(4, x), INSIDE),
    "legendre": ("legendre(4, x)", lambda x: sp.eval_legendre(4, x), np.polynomial.Legendre.basis(4).deriv(), INSIDE),
    "hermite": ("hermite(4, x)", lambda x: sp.eval_hermite(4, x), lambda x: 8 * sp.eval_hermite(3, x), INSIDE),
    "laguerre": ("laguerre(3, x)", lambda x: sp.eval_laguerre(3, x), lambda x: -sp.eval_genlaguerre(2, 1, x), INSIDE),
    "chebyshev_series": ("chebyshev_series([0.5, -1.0, 2.0, 0.25], x)", np.polynomial.Chebyshev([0.5, -1, 2, 0.25]), np.polynomial.Chebyshev([0.5, -1, 2, 0.25]).deriv(), INSIDE),
}  # fmt: skip


@cache
def found(dtype: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    source = ["float f64\n" if dtype == "f64" else "", IMPORTS]
    for i, (call, _, _, at) in enumerate(TABLE.values()):
        source.append(f"let x{i}: {dtype}[{len(at)}] = {literal(at)}\n")
        source.append(f"let y{i} = value_and_grad(|x| sum({call}))(x{i}) |> |(_, slope)| ((|x| {call})(x{i}), slope)\n")
    values, _ = ran("".join(source), Engine("interpret"))
    leaves = [values[f"y{i}"].leaves or () for i in range(len(TABLE))]
    return {name: (np.asarray(y), np.asarray(slope)) for name, (y, slope) in zip(TABLE, leaves, strict=True)}


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", TABLE)
def test_value_and_derivative(name: str, dtype: str) -> None:
    """Element by element; what is small beside 1 in the scale of 1, as rounding of what goes in makes it."""
    _, value, slope, at = TABLE[name]
    x = np.array(at, np.float32 if dtype == "f32" else np.float64).astype(np.float64)
    loose = 1e3 if "in s" in name and dtype == "f64" else 20  # SciPy has no derivative there: differences
    for got, want in zip(found(dtype)[name], (value(x), slope(x)), strict=True):
        assert got.dtype == (np.float32 if dtype == "f32" else np.float64)
        np.testing.assert_allclose(got, want, rtol=loose * RTOL[dtype], atol=loose * RTOL[dtype])


FAR = """let far: f64[3] = [1e5, 1e150, inf]
let (a, b, c) = (erfcx(far), dawson(far), (|x| sum(dawson(x))) |> |f| grad(f)(far))
let (d, e, f) = (log_normal_cdf([-1e5, inf]), lambert_w([inf, 1e300]), exp_integral([700.0, 0.0]))
let (g, h) = (bessel_i_scaled(0, [1e4, inf]), bessel_j(1, zeros(0)))
let (i, j) = (log1mexp([0.0, 1e3]), lambert_w'(0.0))
"""


def test_far_out_and_nothing() -> None:
    values, _ = ran(f"float f64\n{IMPORTS}{FAR}", Engine("interpret"))
    a, b, c, d, e, f, g, h, i, j = (np.asarray((values[k].leaves or ())[0]) for k in "abcdefghij")
    far = np.array([1e5, 1e150, np.inf])
    np.testing.assert_allclose(a, 1 / (np.sqrt(np.pi) * far), rtol=1e-9)
    np.testing.assert_allclose(b, 0.5 / far, rtol=1e-9)
    np.testing.assert_allclose(c[:1], -0.5e-10, rtol=1e-6)
    np.testing.assert_allclose(d, sp.log_ndtr([-1e5, np.inf]), rtol=1e-13)
    np.testing.assert_allclose(e, [np.inf, sp.lambertw(1e300).real], rtol=1e-13)
    np.testing.assert_allclose(f, [sp.exp1(700.0), np.inf], rtol=1e-12)
    np.testing.assert_allclose(g, [sp.i0e(1e4), 0], rtol=1e-12)
    assert h.shape == (0,) and i[0] == -np.inf and i[1] == 0 and j == 1


# What is called on x, where, and what its value and its derivative are: points at which one of them was wrong.
HARD: dict[str, tuple[str, list[float], list[float], list[float]]] = {
    "where both are equal": ("log_difference(x, [2.0, -1.0])", [2.0, -1.0], [-np.inf] * 2, [np.inf] * 2),
    "where erfcx overflows": ("erfcx(x)", [-30.0, -np.inf], [np.inf] * 2, [-np.inf] * 2),
    "dawson at 0": ("dawson(x)", [0.0, 1e-30, 1e-10, 0.19], [0.0, 1e-30, 1e-10, float(sp.dawsn(0.19))], [1.0, 1.0, 1.0, 1 - 0.38 * float(sp.dawsn(0.19))]),
    "dawson far out": ("dawson(x)", [100.0, 1000.0, 9999.0], [float(v) for v in sp.dawsn([100.0, 1000.0, 9999.0])], [-5.0007501875656e-05, -5.0000075000187e-07, -5.0010002250500e-09]),
    "exp_integral below 0": ("exp_integral(x)", [-0.0, -1.0], [np.inf, np.nan], [-np.inf, np.nan]),
    "lambert_w at -1 / e in f32": ("lambert_w(x)", [-0.3678794503211975], [-1.0], [np.inf]),
    "lambert_w beside -1 / e": ("lambert_w(x)", [-0.36787939071655273, -0.367], [-0.9994763536729969, -0.9323991847479251], [5188.346872080676, 37.58234607337]),
    "zeta beyond its domain": ("hurwitz_zeta([2.0, 2.0, 2.0, 0.5], x)", [0.0, -0.5, np.nan, 1.0], [np.nan] * 4, [np.nan] * 4),
    "polygamma at its poles": ("polygamma(2, x)", [0.0, -1.0, np.nan], [-np.inf, np.nan, np.nan], [np.inf, np.inf, np.nan]),
    "polygamma below 0": ("polygamma(2, x)", [-0.5, -1e-3, -2.5, -40.75], [float(v) for v in sp.polygamma(2, [-0.5, -1e-3, -2.5, -40.75])], [float(v) for v in sp.polygamma(3, [-0.5, -1e-3, -2.5, -40.75])]),
    "polygamma of odd order below 0": ("polygamma(3, x)", [-0.5, -1.0, -40.75], [float(v) for v in sp.polygamma(3, [-0.5, -1.0, -40.75])], [float(sp.polygamma(4, -0.5)), np.nan, float(sp.polygamma(4, -40.75))]),
    "zeta far out": ("hurwitz_zeta([1.5, 2.0, 2.0], x)", [1e30, 1e18, np.inf], [2e-15, 1e-18, 0.0], [-1e-45, -1e-36, 0.0]),
    "zeta of a large order": ("hurwitz_zeta(x, [1.0, 2.0])", [np.inf, 1e10], [1.0, 0.0], [0.0, 0.0]),
    "polygamma far out": ("polygamma(20, x)", [100.0, np.inf], [-1.3423500975739656e-23, 0.0], [2.6977147877389617e-24, 0.0]),
    "elliptic_e near 1": ("elliptic_e(x)", [0.9990000128746033, 0.9999998807907104, 1.0], [1.0021707660971, 1.0000005279474, 1.0], [-1.9214054912704, -4.1787438274873, -np.inf]),
    "elliptic integrals far out": ("elliptic_e(x)", [-1e30, -np.inf], [1e15, np.inf], [-5e-16, 0.0]),
    "bessel_j near 0": ("bessel_j(2, x)", [0.0, 1e-3, 0.5], [0.0, *map(float, sp.jv(2, [1e-3, 0.5]))], [0.0, *map(float, sp.jvp(2, [1e-3, 0.5]))]),
    "bessel_i_scaled near 0": ("bessel_i_scaled(5, x)", [-0.5, 0.01, 2.0], [float(v) for v in sp.ive(5, [-0.5, 0.01, 2.0])], [float(np.exp(-abs(v)) * (sp.ivp(5, v) - np.sign(v) * sp.iv(5, v))) for v in (-0.5, 0.01, 2.0)]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_hard_points(dtype: str) -> None:
    """Element by element, in the scale of each: also what is much smaller than 1."""
    source = ["float f64\n" if dtype == "f64" else "", IMPORTS]
    for i, (call, at, _, _) in enumerate(HARD.values()):
        source.append(f"let x{i}: {dtype}[{len(at)}] = {literal(at)}\n")
        source.append(f"let y{i} = ((|x| {call})(x{i}), grad(|x| sum({call}))(x{i}))\n")
    values, _ = ran("".join(source), Engine("interpret"))
    for i, (name, (_, _, *wanted)) in enumerate(HARD.items()):
        if "in f32" in name and dtype == "f64":
            continue
        for got, want in zip(values[f"y{i}"].leaves or (), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(got), want, rtol=100 * RTOL[dtype], atol=1e-44, err_msg=name)


@pytest.mark.parametrize(
    "wrong",
    ["polygamma(0, 1.0)", "bessel_j(-1, 1.0)", "bessel_i_scaled(-2, 1.0)", "chebyshev(-1, 1.0)", "legendre(-1, 1.0)", "hermite(-1, 1.0)", "laguerre(-1, 1.0)"],
)  # fmt: skip
def test_an_order_that_is_none(wrong: str) -> None:
    assert [c for c, _ in codes(f"{IMPORTS}let y = {wrong}\n", Engine("interpret"))] == ["DL0901"]
