"""The library at hard points: at ends and kinks, far out, of numbers whose squares are too large or too small."""

# ruff: noqa: E501 - a program of the language is a line

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as ss

from difflang.base.diagnostics import DifflangError
from difflang.execution.engine import Engine
from support.language import ran

ROOTS = "import roots (bisect, chandrupatla, newton, newton_system, secant)\n"
QUAD = "import quad (gauss_kronrod, gauss_kronrod_tail, tanh_sinh)\n"
LINALG = "import linalg (bicgstab, cg, gmres, p_norm, pinv, power_iteration, rank, sqrtm)\nlet A = linear |v: f64[2]| [4.0 * v[0] + v[1], v[0] + 3.0 * v[1]]\n"
MINIMIZE = "import minimize (lbfgs, levenberg_marquardt, wolfe)\n"
LISTS = "import matrices (polar)\nimport sparse (Csr, csr_times)\nimport signal (median_filter)\n"
STEPS = "import ode (dopri5, dopri5_until, leapfrog)\nimport optim (moments, nadam, polynomial_decay)\n"
LOSSES = "import losses (cosine_similarity, focal_loss, kl_divergence, log_cosh, soft_cross_entropy)\nimport nn (elu)\n"
INTERP = "import interp (barycentric, nearest, pchip)\nimport optim (project_simplex)\nimport geometry (rotation, rotation_vector)\n"
STATS = """import math (betainc, gammainc, gammaincc, log_beta, log_choose)
import stats (Distribution, cdf, draw, log_density, median, quantile)
import stats (Bernoulli, Beta, Binomial, Cauchy, Gamma, Geometric, NegativeBinomial, Poisson, StudentT, Weibull)
"""

# What a program prints in f64, or in f32 where it says so.
POINTS: dict[str, tuple[str, str, list[Any]]] = {
    "a zero at the upper end": (ROOTS, "bisect(|x| x - 1.0, 0.0, 1.0)", [1.0]),
    "a zero at the upper end of what falls": (ROOTS, "bisect(|x| 1.0 - x, 0.0, 1.0)", [1.0]),
    "ends the other way round": (ROOTS, "bisect(|x| x^2 - 2.0, 2.0, 0.0)", [2**0.5]),
    "two first guesses next to each other": (ROOTS, "secant(|x| x^2 - 2.0, 1.0, 1.0000001, tol = 1e-13)", [2**0.5]),
    # second derivatives far out
    "bends of error functions at Inf": (
        "",
        "[erf''(inf), erf''(-inf), erfc''(inf), gelu''(inf), gelu''(-inf)]",
        [0.0] * 5,
    ),
    "bends of what underflows": (
        "import special (exp_integral, log_normal_cdf)\n",
        "[exp_integral''(700.0) * 1e307, log_normal_cdf''(inf)]",
        [1.4105373994235918, 0.0],
    ),
    # quad
    "a slow tail": (QUAD, "f32: 1e-4 * round(1e4 * gauss_kronrod_tail(|x| x^(-1.5), 1.0).value)", [2.0]),
    "a singular end at 20": (QUAD, "1e-6 * round(1e6 * tanh_sinh(|x| 1 / sqrt(x - 20.0), 20.0, 21.0))", [2.0]),
    "a pole that is met": (QUAD, "if gauss_kronrod(|x| 1 / (x - 0.3), 0.0, 1.0).converged { 1.0 } else { 0.0 }", [0.0]),
    # minimize
    "a wall beside the least": (
        MINIMIZE,
        "(|m| if m.converged { 1.0 } else { 0.0 })(levenberg_marquardt(|x| if x[0] < 2.0 { [nan] } else { x - 1.0 }, [3.0], most = 60))",
        [0.0],
    ),
    "an event at the very start": (
        STEPS,
        "(|a| [a.t, a.y])(dopri5_until(|t, y| -y, |t, y| y - 10.0, 10.0, 0.0, 1.0))",
        [0.0, 10.0],
    ),
    "an event at the start of the second act": (
        STEPS,
        "(|q| dopri5_until(|t, y| -y, |t, y| y - q, 10.0, 2.0, 3.0).t)'(10.0)",
        [-0.1],
    ),
    "a wall on the way": (MINIMIZE, "levenberg_marquardt(|x| log(x), [6.0]).x", [1.0]),
    # linalg
    "a map that is infinite": (LINALG, "cg(linear |v| [inf * v[0], v[1]], [1.0, 2.0])", [np.nan] * 2),
    "right sides that are infinite": (
        LINALG,
        "(cg(A, [inf, 2.0]), gmres(A, [inf, 2.0]), bicgstab(A, [inf, 2.0]))",
        [np.nan] * 6,
    ),
    "an inverse of infinity": (LINALG, "pinv([[inf, 0.0], [0.0, 1.0]])", [np.nan] * 4),
    "the root of nothing": (LINALG, "sum(sqrtm(zeros(0, 0)))", [0.0]),
    "gradients that are not numbers": (LINALG, "(cg(A, [nan, 2.0]), gmres(A, [nan, 2.0]))", [np.nan] * 4),
    "a right side whose square is too large": (LINALG, "1e-200 * cg(A, [1e200, 2e200], tol = 1e-14)", [1 / 11, 7 / 11]),
    "a right side whose square is 0": (LINALG, "1e200 * cg(A, [1e-200, 2e-200], tol = 1e-14)", [1 / 11, 7 / 11]),
    "a square root whose determinant overflows": (LINALG, "f32: trace(sqrtm(100.0 * eye(24)))", [240.0]),
    "a norm of infinity": (LINALG, "p_norm([3.0, inf], 2.0)", [np.inf]),
    # matrices, signal, optim
    "the nearest columns to what is nearly singular": (
        LISTS,
        "1e-4 * round(1e4 * (|a| { let (u, _) = polar(a)\n  u })([[1.0, 1.0], [1.0, 1.000000001]]))",
        [1.0, 0.0, 0.0, 1.0],
    ),
    "a middle one beside what is no number": (
        LISTS,
        "median_filter([1.0, nan, 2.0, 3.0, 4.0], 3)",
        [np.nan, np.nan, np.nan, 3.0, 4.0],
    ),
    "a step of nadam without a gradient": (
        STEPS,
        "(|g| { let (p, _) = nadam(1.0, g, moments(1.0), rate = 0.25, eps_root = 1e-16)\n  p })'(0.0)",
        [-0.25 * (1 + 0.09 / 0.19) / 2e-8],
    ),
    # losses
    "soft labels of 0": (
        LOSSES,
        "grad(|p| sum(soft_cross_entropy([[0.0, 1.0]], p)))([[0.0, 1.0]])",
        [np.log1p(np.e), np.log1p(np.e) - 1],
    ),
    "an exponential unit at 0": (LOSSES, "elu'(0.0)", [1.0]),
    "a certain answer": (
        LOSSES,
        "grad(|z| sum(focal_loss(z, [1.0, 0.0], gamma = 0.5)))([100.0, -800.0])",
        [0.0, 0.0],
    ),
    "a small error": (LOSSES, "f32: log_cosh([1e-3, -1e-4], zeros(2))", [5e-7, 5e-9]),
    "a large error": (
        LOSSES,
        "log_cosh([1.0, 1.0000000001, 1e200], zeros(3))",
        [np.log(np.cosh(1)), np.log(np.cosh(1.0000000001)), 1e200],
    ),
    "small and large vectors": (
        LOSSES,
        "f32: cosine_similarity([[1e-25, 0.0], [1e25, 0.0], [0.0, 0.0]], [[1e-25, 0.0], [1e25, 1e25], [1.0, 0.0]])",
        [1.0, 0.5**0.5, 0.0],
    ),
    # interp
    "slopes of tiny values": (
        INTERP,
        "f32: 1e25 * pchip([0.0, 1.0, 2.0, 3.0], [0.0, 1e-25, 3e-25, 4e-25]).slope",
        [0.5, 4 / 3, 4 / 3, 0.5],
    ),
    "a polynomial through years": (
        INTERP,
        "f32: barycentric([1904.0, 1960.0], [for i in 0..30 => 1900.0 + 4.0 * f32(i)], [for i in 0..30 => f32(i)])",
        [1.0, 15.0],
    ),
    "a place that is no number": (INTERP, "nearest([nan, 0.9], [0.0, 1.0], [3.0, 4.0])", [np.nan, 4.0]),
    "a projection of large numbers": (INTERP, "project_simplex([1e17, 1e17, 3.0])", [0.5, 0.5, 0.0]),
    "a half turn": (
        INTERP,
        "rotation_vector([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]])",
        [np.pi, 0.0, 0.0],
    ),
    "nearly a half turn": (INTERP, "f32: rotation_vector(rotation([0.5, 3.1, 0.01]))", [0.5, 3.1, 0.01]),
    "two derivatives of a way from a rotation to itself": (
        "import geometry (quaternion, slerp)\n",
        "(|s| slerp([1.0, 0.0, 0.0, 0.0], quaternion([0.0, 0.0, 1.0], s), 0.3)[0])''(0.0)",
        [-0.0225],
    ),
    "two derivatives of the moment of an event": (
        "import ode (dopri5_until)\n",
        "1e-6 * round(1e6 * (|h| dopri5_until(|t, y| [y[1], -10.0], |t, y| y[0], [h, 0.0], 0.0, 9.0).t)''(5.0))",
        [-0.01],
    ),
    "derivatives near a half turn": (
        INTERP,
        "sum(jacobian(|v| rotation_vector(rotation(v)))([0.3, -3.1, 0.3]), axis = 1)",
        [1.0, 1.0, 1.0],
    ),
    # stats
    "far out": (
        STATS,
        "f32: (log_density(Cauchy(0.0, 1.0), 1e25), log_density(StudentT(3.0, 0.0, 1.0), 1e25))",
        list(ss.cauchy.logpdf([1e25])) + list(ss.t.logpdf([1e25], 3)),
    ),
    "at 0": (
        STATS,
        "(log_density(Gamma(1.0, 2.0), 0.0), log_density(Beta(1.0, 2.0), [0.0, 1.0]), log_density(Weibull(1.0, 2.0), 0.0))",
        [np.log(2), np.log(2), -np.inf, -np.log(2)],
    ),
    "a uniform prior": (
        STATS,
        "((|b| log_density(Beta(2.0, b), 0.3))'(1.0), grad(|b| log_density(Beta(2.0, b), 1.0))(1.0))",
        [np.log(0.7) + sp.digamma(3.0) - sp.digamma(1.0), -np.inf],
    ),
    "at infinity": (
        STATS,
        "(log_density(Gamma(2.0, 1.0), inf), log_density(Poisson(2.0), inf), cdf(Gamma(2.0, 1.0), inf), cdf(Poisson(2.0), inf), cdf(NegativeBinomial(2.0, 0.5), inf))",
        [-np.inf, -np.inf, 1, 1, 1],
    ),
    "large counts": (
        STATS,
        "f32: (log_density(Poisson(1e6), 1e6), log_density(Gamma(1e5, 1.0), 1e5), cdf(Poisson(1e4), 1e4))",
        [ss.poisson.logpmf(1e6, 1e6), ss.gamma.logpdf(1e5, 1e5), ss.poisson.cdf(1e4, 1e4)],
    ),
    "rare successes": (
        STATS,
        "f32: (log_density(Geometric(2.0^(-30)), 2.0^30), cdf(Geometric(2.0^(-30)), [0.0, 2.0^30]))",
        [-30 * np.log(2) - 1, 2.0**-30, -np.expm1(-1)],
    ),
    "a long left tail": (STATS, "f32: cdf(Cauchy(0.0, 1.0), [-1e8, -1e3])", list(ss.cauchy.cdf([-1e8, -1e3]))),
    "the middle": (
        STATS,
        "(cdf(StudentT(3.0, 0.0, 1.0), [1e-9, 0.4999, 0.5001]), (|x| cdf(StudentT(3.0, 0.0, 1.0), x))'(0.0))",
        [*ss.t.cdf([1e-9, 0.4999, 0.5001], 3), ss.t.pdf(0, 3)],
    ),
    "many degrees of freedom": (STATS, "f32: log_density(StudentT(1e6, 0.0, 1.0), 0.0)", [ss.t.logpdf(0, 1e6)]),
    "a beta function of a large and a small number": (
        STATS,
        "f32: (log_beta(1e6, 0.5), log_choose(1e6, 3.0), betainc(2e4, 3e4, 0.4))",
        [float(sp.betaln(1e6, 0.5)), np.log(sp.comb(1e6, 3)), sp.betainc(2e4, 3e4, 0.4)],
    ),
    "gamma functions of large numbers": (
        STATS,
        "(gammaincc(1e10, 1.00001e10), gammainc(1e10, 0.99999e10), gammaincc(3e3, 3.3e3), gammainc(1e300, 1e300))",
        [0.158655253927424235, 0.158655253927424177, 5.46175125882870184e-8, 0.5],
    ),
    "a beta function of large numbers": (STATS, "betainc(1e7, 1e7, 0.5)", [0.5]),
    "a count that is no number": (STATS, "cdf(Bernoulli(0.5), [nan, 0.0])", [np.nan, 0.5]),
    "large numbers that are drawn": (
        STATS,
        "(draw(Gamma(1e300, 1e300), 1), 1e-3 * round(1e3 * 1e-9 * draw(Poisson(1e9), 1)), 1e-3 * round(1e3 * 1e-9 * draw(Binomial(1e9, 0.25), 1)))",
        [1.0, 1.0, 0.25],
    ),
    "two derivatives where both are equal": (
        STATS,
        "grad(|a| grad(|a| log_beta(a, 20.0))(a))(20.0)",
        [sp.polygamma(1, 20) - sp.polygamma(1, 40)],
    ),
    "derivatives of counts at the ends": (
        STATS,
        "jacfwd(|p| cdf(Binomial(6.0, p), [0.0, 1.0, 5.0]))(0.0)",
        [-6.0, 0.0, 0.0],
    ),
    "draws too small to be written": (STATS, "sum(for x in draw(Beta(0.001, 0.001), 50) if x == 0.5 => 1)", [0.0]),
    "quantiles beside infinity": (
        STATS,
        "(median([1.0, inf, 2.0]), median([nan, 1.0, 2.0]), quantile([inf, inf], 0.5))",
        [2.0, np.nan, np.inf],
    ),
}


def printed(imports: str, expression: str) -> list[float]:
    single = expression.startswith("f32: ")
    source = f"{'' if single else 'float f64'}\n{imports}\nlet answer = {expression.removeprefix('f32: ')}\n"
    values, _ = ran(source, Engine("interpret"))
    return [float(x) for leaf in values["answer"].leaves or () for x in np.ravel(leaf)]


@pytest.mark.parametrize("name", POINTS)
def test_is_right_at(name: str) -> None:
    imports, expression, expected = POINTS[name]
    rtol = 2e-6 if expression.startswith("f32: ") else 1e-11
    np.testing.assert_allclose(printed(imports, expression), expected, rtol=rtol, atol=0)


REFUSED: dict[str, tuple[str, str, str]] = {
    # roots
    "one sign whose product is 0": (
        ROOTS,
        "f32: chandrupatla(|x| 1e-25 * (x^2 + 1.0), 0.0, 2.0)",
        "values of two signs",
    ),
    "ends without end": (ROOTS, "bisect(|x| x - 1.0, 0.0, inf)", "`a` and `b` of `bisect` are finite, not 0.0 and inf"),
    "cubic steps to no tolerance": (
        ROOTS,
        "chandrupatla(|x| x^3 - 0.5, 0.0, 2.0, tol = nan)",
        "`tol` of `chandrupatla`",
    ),
    "Newton's method to no tolerance": (ROOTS, "newton(|x| x^2 - 2.0, 1.0, tol = nan)", "`tol` of `newton`"),
    "Newton's method from infinity": (ROOTS, "newton(|x| x^2 - 2.0, inf)", "no step from inf"),
    "lines to no tolerance": (ROOTS, "secant(|x| x^2 - 2.0, 1.0, 2.0, tol = nan)", "`tol` of `secant`"),
    "a system to no tolerance": (ROOTS, "newton_system(|x| x^2 - 2.0, [1.0], tol = nan)", "`tol` of `newton_system`"),
    "a system from what is no number": (ROOTS, "newton_system(|x| x^2 - 2.0, [nan])", "has no step"),
    # minimize
    "a tolerance below nothing": (
        MINIMIZE,
        "lbfgs(|x| x^2, 1.0, tol = -1.0)",
        "`tol` of `lbfgs` is not below 0, but -1.0",
    ),
    "a first step that is none": (
        MINIMIZE,
        "wolfe(|x| x^2, 1.0, -1.0, first = 0.0)",
        "`first` of `wolfe` is above 0, not 0.0",
    ),
    # linalg, matrices, sparse
    "a map that is 0": (LINALG, "gmres(linear |v| 0.0 * v, [1.0, 2.0], restart = 2)", "does not come to an end"),
    "a vector that turns round": (
        LINALG,
        "power_iteration(linear |v| [v[0], -v[1]], [1.0, 0.5])",
        "does not settle in 100",
    ),
    "the rank of what is no matrix": (LINALG, "rank([[nan, 1.0], [1.0, 2.0]])", "NaN or Inf"),
    "conjugate gradients to no tolerance": (LINALG, "cg(A, [1.0, 2.0], tol = nan)", "`tol` of `cg`"),
    "a basis to no tolerance": (LINALG, "gmres(A, [1.0, 2.0], tol = nan)", "`tol` of `gmres`"),
    "two sequences to no tolerance": (
        LINALG,
        "bicgstab(A, [1.0, 2.0], tol = -1.0)",
        "`tol` of `bicgstab`",
    ),
    "columns that depend on each other": (LISTS, "polar([[1.0, 1.0], [1.0, 1.0]])", "depend on each other"),
    "rows that end before the numbers": (
        LISTS,
        "csr_times(Csr(start = [0, 1, 2], column = [1, 0, 1], value = [2.0, 3.0, 4.0]), [1.0, 10.0])",
        "rises from 0 to 3",
    ),
    "rows that end before they begin": (
        LISTS,
        "csr_times(Csr(start = [0, 2, 1, 3], column = [1, 0, 1], value = [2.0, 3.0, 4.0]), [1.0, 10.0])",
        "rises from 0 to 3",
    ),
    # ode, optim
    "a time that is no number": (STEPS, "dopri5(|t, y| -y, 1.0, 0.0, nan)", "`t0` and `t1` are finite"),
    "a tolerance below 0": (STEPS, "dopri5(|t, y| -y, 1.0, 0.0, 1.0, rtol = -1.0)", "`rtol` and `atol`"),
    "no tolerance at all": (STEPS, "dopri5(|t, y| -y, 1.0, 0.0, 1.0, rtol = 0.0, atol = 0.0)", "nor both 0"),
    "an event that is no number": (STEPS, "dopri5_until(|t, y| -y, |t, y| nan * y, 1.0, 0.0, 1.0)", "event .* is NaN"),
    "fewer steps than none": (STEPS, "leapfrog(|x| -x, 1.0, 0.0, 0.1, steps = -3)", "`steps` of `leapfrog`"),
    "a power below 0": (STEPS, "polynomial_decay(2, 2, 1.0, 0.0, -1.0)", "`p` of `polynomial_decay`"),
    # stats
    "draws without end": (STATS, "draw(Poisson(inf), 1)", "no such distribution to draw from"),
    # roots
    "one first guess": (ROOTS, "secant(|x| x^2 - 2.0, 1.0, 1.0)", "has no step"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name: str) -> None:
    imports, expression, message = REFUSED[name]
    with pytest.raises(DifflangError, match=message):
        printed(imports, expression)
