"""Special functions: the error function and its inverse, the logarithm of the gamma function and its derivatives.

SciPy, which the references are from, is imported when one is first used.
"""

from __future__ import annotations

import math
from typing import Any

from difflang.ir.graph import Value
from difflang.ops.elementwise import exp
from difflang.ops.families import Array, Example, Uniform, unary

SLOPE_AT_ZERO = 2.0 / math.sqrt(math.pi)


def scipy() -> Any:
    import scipy.special

    return scipy.special


def bell(x: Value, scale: float) -> Value:
    """`scale exp(-x^2)`."""
    return exp.one(-(x * x)) * scale


erf = unary(
    "erf",
    jvp=lambda dx, y, x: dx * bell(x, SLOPE_AT_ZERO),
    reference=lambda x: scipy().erf(x),
    lower=lambda jax, x: jax.lax.erf(x),
    doc="""Error function. Units: 1 -> 1, inside (-1, 1). Kinks: none.""",
)
erfc = unary(
    "erfc",
    jvp=lambda dx, y, x: dx * bell(x, -SLOPE_AT_ZERO),
    reference=lambda x: scipy().erfc(x),
    lower=lambda jax, x: jax.lax.erfc(x),
    doc="""`1 - erf(x)`, accurate where it is small. Units: 1 -> 1, inside (0, 2). Kinks: none.""",
)
erfinv = unary(
    "erfinv",
    jvp=lambda dx, y, x: dx * (exp.one(y * y) * (1.0 / SLOPE_AT_ZERO)),
    reference=lambda x: scipy().erfinv(x),
    lower=lambda jax, x: jax.lax.erf_inv(x),
    samples=Uniform(-0.9, 0.9),
    doc="""Inverse of the error function. Units: 1 -> 1. Kinks: +Inf at -1 and 1; NaN outside.""",
)
lgamma = unary(
    "lgamma",
    jvp=lambda dx, y, x: dx * digamma.one(x),
    reference=lambda x: scipy().gammaln(x),
    lower=lambda jax, x: jax.lax.lgamma(x),
    samples=Uniform(0.3, 5.0),
    doc="""Logarithm of the absolute value of the gamma function; +Inf at its poles. Units: 1 -> 1.
    Kinks: NaN at the poles 0, -1, -2, ...""",
)
digamma = unary(
    "digamma",
    jvp=lambda dx, y, x: dx * polygamma.one(x, n=1),
    reference=lambda x: scipy().digamma(x),
    lower=lambda jax, x: jax.lax.digamma(x),
    samples=Uniform(0.3, 5.0),
    doc="""Derivative of `lgamma`. Units: 1 -> 1. Kinks: NaN at the poles 0, -1, -2, ...""",
)


def polygamma_lower(jax: Any, x: Any, *, n: int) -> Any:
    return jax.lax.polygamma(jax.lax.full_like(x, n), x)


def polygamma_reference(x: Array, *, n: int) -> Array:
    return scipy().polygamma(n, x)


polygamma = unary(
    "polygamma",
    jvp=lambda dx, y, x, n: dx * polygamma.one(x, n=n + 1),
    reference=polygamma_reference,
    lower=polygamma_lower,
    samples=tuple(Example(((2, 3),), {"n": n}, Uniform(0.3, 5.0)) for n in (1, 2, 3)),
    doc="""Derivative number `n` (at least 1) of `digamma`, for x > 0. Units: 1 -> 1. Kinks: +-Inf at 0.""",
)
