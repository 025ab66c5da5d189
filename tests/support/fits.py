"""The polynomials that lowerings hold, made again by mpmath's `chebyfit` to twice the digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp

from difflang.numerics import digamma_negative
from difflang.ops.elementwise import error_functions, gamma_functions, gelu
from support.known import below, density, psi

Exact = Callable[[Any], Any]
CLOSE = 1e-14  # to a removable singularity


@dataclass(frozen=True, slots=True)
class Fit:
    """`function` on an interval, by as many coefficients as the polynomial has."""

    name: str
    coefficients: tuple[Any, ...]
    function: Exact
    low: str = "-1"
    high: str = "1"

    def again(self) -> list[float]:
        return [float(c) for c in self.exactly(45)]

    def exactly(self, digits: int) -> list[Any]:
        with mp.workdps(digits):
            return mp.chebyfit(self.function, [mp.mpf(self.low), mp.mpf(self.high)], len(self.coefficients))

    def __str__(self) -> str:
        return self.name


def quotient(function: Exact, root: Any, slope: Exact) -> Exact:
    """A function over the distance from its root."""
    return lambda x: function(x) / (x - root) if abs(x - root) > CLOSE**1.5 else slope(root)


def digamma_quotient(s: Any) -> Any:
    root = mp.findroot(mp.digamma, 1.46)
    return quotient(mp.digamma, root, lambda x: psi(1, x))(mp.mpf("1.75") + mp.mpf("0.75") * s)


def digamma_tail(v: Any) -> Any:
    x = 1 / mp.sqrt(v)
    return (mp.log(x) - 1 / (2 * x) - mp.digamma(x)) / v if v > 1e-12 else mp.mpf(1) / 12 - v / 120


def lgamma_between(s: Any) -> Any:
    if abs(s) < CLOSE or abs(s + 1) < CLOSE:
        return 1 - mp.euler if abs(s) < CLOSE else mp.euler
    return mp.loggamma(2 + s) / (s * (s + 1))


def stirling_tail(v: Any) -> Any:
    x = 1 / mp.sqrt(v)
    main = (x - mp.mpf(1) / 2) * mp.log(x) - x + mp.log(2 * mp.pi) / 2
    return x * (mp.loggamma(x) - main) if v > 1e-12 else mp.mpf(1) / 12 - v / 360


def gelu_slope(x: Any) -> Any:
    return below(x) + x * density(x)


def gelu_quotient(s: Any) -> Any:
    root = mp.findroot(gelu_slope, -0.75)
    slope = lambda x: (2 - x * x) * density(x)
    return quotient(gelu_slope, root, slope)(mp.mpf("-1.075") + mp.mpf("0.725") * s)


def gelu_tail(s: Any, middle: int = 5) -> Any:
    x = middle * (1 + s) / (1 - s)
    return below(-x) * mp.exp(x * x / 2) * (1 + x)


def scaled_complement(s: Any) -> Any:
    x = (3 + s) / 4
    return mp.erfc(x) * mp.exp(x * x)


def log_quotient(v: Any) -> Any:
    s = mp.sqrt(v)
    return 2 * mp.atanh(s) / s if v > mp.mpf(10) ** -40 else mp.mpf(2)


def halfway_tail(v: Any) -> Any:
    """Near 0, where the difference has no digits, by its series."""
    if v < 1e-8:
        return mp.mpf(1) / 24 - v * (mp.mpf(7) / 960 - v * (mp.mpf(31) / 8064 - v * 127 / 30720))
    z = 1 / mp.sqrt(v)
    return (mp.digamma(z + mp.mpf(1) / 2) - mp.log(z)) / v


def cotangent_rest(v: Any) -> Any:
    f = mp.sqrt(v)
    return (mp.pi * mp.cot(mp.pi * f) - 1 / f + 2 * f / (1 - v)) / f if v > mp.mpf(10) ** -40 else 2 - 2 * mp.zeta(2)


PAIRS = [
    Fit("log", digamma_negative.LOG_QUOTIENT, log_quotient, "0", "0.0295"),
    Fit("digamma far out, halfway", digamma_negative.HALFWAY_TAIL, halfway_tail, "0", "0.0178"),
    Fit("cotangent", digamma_negative.COTANGENT_SERIES, cotangent_rest, "0", "0.25"),
]
FITS = [
    Fit("digamma near its root", gamma_functions.ROOT_QUOTIENT, digamma_quotient),
    Fit("digamma far out", gamma_functions.PSI_TAIL, digamma_tail, "0", "0.16"),
    Fit("lgamma near its roots", gamma_functions.BETWEEN_ZEROS, lgamma_between, "-1", "0.5"),
    Fit("lgamma far out", gamma_functions.STIRLING_TAIL, stirling_tail, "0", "0.16"),
    Fit("gelu's slope near its root", gelu.ROOT_QUOTIENT, gelu_quotient),
    Fit("beyond x, over the bell curve", gelu.TAIL, gelu_tail, "-1", "0.78"),
    Fit("gelu's slope near its root, to f32", gelu.SHORT_ROOT_QUOTIENT, gelu_quotient),
    Fit("beyond x, over the bell curve, to f32", gelu.SHORT_TAIL, lambda s: gelu_tail(s, 4), "-1", "0.58"),
    Fit("erfc below 1", error_functions.ERFCX_COEFFICIENTS, scaled_complement),
]
