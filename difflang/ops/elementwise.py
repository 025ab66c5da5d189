"""Elementary functions of real and complex numbers. Higher ones are in `special`, arithmetic in `arithmetic`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from difflang.ir.graph import Value
from difflang.ops.arithmetic import one_minus_square, sign
from difflang.ops.compare import eq, ge, le, logical_and
from difflang.ops.families import (
    HOLOMORPHIC,
    Array,
    Uniform,
    binary,
    is_complex,
    like,
    number_like,
    of_complex,
    unary,
    zeros_at,
)
from difflang.ops.linear import select
from difflang.ops.roots import hypot, rsqrt

POSITIVE = Uniform(0.2, 3.0)
INSIDE = Uniform(-0.9, 0.9)

exp = unary(
    "exp",
    jvp=lambda dx, y, x: dx * y,
    reference=np.exp,
    lower=lambda jax, x: jax.lax.exp(x),
    accepts=HOLOMORPHIC,
    doc="""Exponential. Units: 1 -> 1, positive. Kinks: none.""",
)
exp2 = unary(
    "exp2",
    jvp=lambda dx, y, x: dx * (y * math.log(2.0)),
    reference=np.exp2,
    lower=lambda jax, x: jax.lax.exp2(x),
    doc="""Power of two. Units: 1 -> 1, positive. Kinks: none.""",
)
expm1 = unary(
    "expm1",
    jvp=lambda dx, y, x: dx * exp.one(x),  # not y + 1, which cancels: it is 0 from -38 on
    reference=np.expm1,
    lower=lambda jax, x: jax.lax.expm1(x),
    doc="""`exp(x) - 1`, accurate near 0. Units: 1 -> 1. Kinks: none.""",
)


def positive_reciprocal_reference(x: Array) -> Array:
    return np.where(x < 0, x.dtype.type(np.nan), x.dtype.type(1) / np.abs(x))


def positive_reciprocal_lower(jax: Any, x: Any) -> Any:
    lax = jax.lax
    negative = lax.lt(x, number_like(x, 0))
    return lax.select(negative, lax.full_like(x, np.nan), lax.div(number_like(x, 1), lax.abs(x)))


positive_reciprocal = unary(
    "positive_reciprocal",
    jvp=lambda dx, y, x: -(dx * (y * y)),
    reference=positive_reciprocal_reference,
    lower=positive_reciprocal_lower,
    samples=POSITIVE,
    doc="""The slope of the logarithm: 1/x for x > 0, +Inf at 0 and -0.0, NaN below. Units: u -> 1/u.
    Kinks: at 0 the limit from inside the domain.""",
)
log = unary(
    "log",
    jvp=lambda dx, y, x: dx / x if is_complex(x) else dx * positive_reciprocal.one(x),
    reference=np.log,
    lower=lambda jax, x: jax.lax.log(x),
    accepts=HOLOMORPHIC,
    samples=POSITIVE,
    doc="""Natural logarithm; of complex numbers the one whose imaginary part is in [-pi, pi]. Units: 1 -> 1.
    Kinks: +Inf at 0 and -0.0; NaN below, and at a complex 0.""",
)
log1p = unary(
    "log1p",
    jvp=lambda dx, y, x: dx * positive_reciprocal.one(x + 1.0),
    reference=np.log1p,
    lower=lambda jax, x: jax.lax.log1p(x),
    samples=Uniform(-0.8, 2.0),
    doc="""`log(1 + x)`, accurate near 0. Units: 1 -> 1. Kinks: +Inf at -1; NaN below.""",
)


sin = unary(
    "sin",
    jvp=lambda dx, y, x: dx * cos.one(x),
    reference=np.sin,
    lower=lambda jax, x: jax.lax.sin(x),
    accepts=HOLOMORPHIC,
    doc="""Sine. Units: radians -> 1. Kinks: none.""",
)
cos = unary(
    "cos",
    jvp=lambda dx, y, x: dx * -sin.one(x),
    reference=np.cos,
    lower=lambda jax, x: jax.lax.cos(x),
    accepts=HOLOMORPHIC,
    doc="""Cosine. Units: radians -> 1. Kinks: none.""",
)
tan = unary(
    "tan",
    jvp=lambda dx, y, x: dx * (sech2.one(x * 1j) if is_complex(x) else y * y + 1.0),
    reference=np.tan,
    lower=lambda jax, x: jax.lax.tan(x),
    accepts=HOLOMORPHIC,
    samples=Uniform(-1.2, 1.2),
    doc="""Tangent. Units: radians -> 1. Kinks: none.""",
)


def pow_lower(jax: Any, x: Any, y: Any) -> Any:
    """XLA's power of a complex 0 is NaN, whatever the exponent, unless that is real."""
    lax, power = jax.lax, jax.lax.pow(x, y)
    if not of_complex(jax, x):
        return power
    zero = lax.full_like(x, 0)
    vanishes = lax.bitwise_and(lax.eq(x, zero), lax.gt(lax.real(y), lax.real(zero)))
    return lax.select(vanishes, zero, power)


def pow_base_jvp(d: Value, z: Value, x: Value, y: Value) -> Value:
    """`y x^(y-1)`, 0 at (0, 0), where the power is Inf."""
    zero = like(x, 0.0)
    corner = logical_and.one(eq.one(x, zero), eq.one(y, zero))
    return d * (y * pow_.one(select.one(corner, like(x, 1.0), x), y - 1.0))


def pow_exponent_jvp(d: Value, z: Value, x: Value, y: Value) -> Value:
    """`x^y log x`, 0 at x = 0 where the power is finite."""
    zero = like(x, 0.0)
    edge = eq.one(x, zero)
    if not is_complex(x):
        edge = logical_and.one(edge, ge.one(y, zero))
    return d * (z * log.one(select.one(edge, like(x, 1.0), x)))


pow_ = binary(
    "pow",
    jvp=(pow_base_jvp, pow_exponent_jvp),
    reference=np.power,
    lower=pow_lower,
    accepts=HOLOMORPHIC,
    samples=(POSITIVE, Uniform()),
    doc="""`x` to the power `y`. Units: 1, 1 -> 1. Kinks: in x it is `y x^(y-1)`, 0 where y = 0; in y it is
    `x^y log x`, 0 where x = 0 and y >= 0, NaN for x < 0. Complex powers are `exp(y log x)`.""",
)


def on_unit_interval(x: Value) -> Value:
    """`(1 - x^2)^(-1/2)`: +Inf at both ends, NaN outside."""
    return rsqrt.one(one_minus_square.one(x))


asin = unary(
    "asin",
    jvp=lambda dx, y, x: dx * on_unit_interval(x),
    reference=np.arcsin,
    lower=lambda jax, x: jax.lax.asin(x),
    samples=INSIDE,
    doc="""Inverse sine. Units: 1 -> radians. Kinks: +Inf at -1 and 1; NaN outside.""",
)
acos = unary(
    "acos",
    jvp=lambda dx, y, x: dx * -on_unit_interval(x),
    reference=np.arccos,
    lower=lambda jax, x: jax.lax.acos(x),
    samples=INSIDE,
    doc="""Inverse cosine. Units: 1 -> radians. Kinks: -Inf at -1 and 1; NaN outside.""",
)
atan = unary(
    "atan",
    jvp=lambda dx, y, x: dx / (x * x + 1.0),
    reference=np.arctan,
    lower=lambda jax, x: jax.lax.atan(x),
    doc="""Inverse tangent. Units: 1 -> radians. Kinks: none.""",
)


def turned(jax: Any, x: Any) -> Any:
    """`i x`: XLA's sine and cosine of it are accurate, its hyperbolic ones of complex numbers are not."""
    return jax.lax.complex(jax.lax.neg(jax.lax.imag(x)), jax.lax.real(x))


def sinh_lower(jax: Any, x: Any) -> Any:
    if not of_complex(jax, x):
        return jax.lax.sinh(x)
    y = jax.lax.sin(turned(jax, x))
    return jax.lax.complex(jax.lax.imag(y), jax.lax.neg(jax.lax.real(y)))


sinh = unary(
    "sinh",
    jvp=lambda dx, y, x: dx * cosh.one(x),
    reference=np.sinh,
    lower=sinh_lower,
    accepts=HOLOMORPHIC,
    doc="""Hyperbolic sine. Units: 1 -> 1. Kinks: none.""",
)
cosh = unary(
    "cosh",
    jvp=lambda dx, y, x: dx * sinh.one(x),
    reference=np.cosh,
    lower=lambda jax, x: jax.lax.cos(turned(jax, x)) if of_complex(jax, x) else jax.lax.cosh(x),
    accepts=HOLOMORPHIC,
    doc="""Hyperbolic cosine. Units: 1 -> 1. Kinks: none.""",
)


def sech2_reference(x: Array) -> Array:
    e = np.exp(-2 * (np.where(x.real < 0, -x, x) if x.dtype.kind == "c" else np.abs(x)))
    return 4 * e / ((1 + e) * (1 + e))


def sech2_lower(jax: Any, x: Any) -> Any:
    """By the exponential that does not overflow."""
    lax = jax.lax
    if of_complex(jax, x):
        size = lax.select(lax.lt(lax.real(x), number_like(lax.real(x), 0)), lax.neg(x), x)
    else:
        size = lax.abs(x)
    e = lax.exp(lax.mul(number_like(x, -2), size))
    whole = lax.add(number_like(x, 1), e)
    return lax.div(lax.mul(number_like(x, 4), e), lax.mul(whole, whole))


sech2 = unary(
    "sech2",
    jvp=lambda dx, y, x: dx * (tanh.one(x) * y * -2.0),
    reference=sech2_reference,
    lower=sech2_lower,
    accepts=HOLOMORPHIC,
    doc="""`1 / cosh(x)^2`, the slope of tanh, to full relative accuracy. Units: 1 -> 1. Kinks: none.""",
)
tanh = unary(
    "tanh",
    jvp=lambda dx, y, x: dx * sech2.one(x),  # not 1 - y*y, which cancels: 145 ulp off at 4, 0 at 20
    reference=np.tanh,
    lower=lambda jax, x: jax.lax.tanh(x),
    accepts=HOLOMORPHIC,
    doc="""Hyperbolic tangent. Units: 1 -> 1, inside (-1, 1). Kinks: none.""",
)
asinh = unary(
    "asinh",
    jvp=lambda dx, y, x: dx / hypot.one(x, like(x, 1.0)),
    reference=np.arcsinh,
    lower=lambda jax, x: jax.lax.asinh(x),
    doc="""Inverse hyperbolic sine. Units: 1 -> 1. Kinks: none.""",
)
acosh = unary(
    "acosh",
    jvp=lambda dx, y, x: dx * (rsqrt.one(x - 1.0) * rsqrt.one(x + 1.0)),
    reference=np.arccosh,
    lower=lambda jax, x: jax.lax.acosh(x),
    samples=Uniform(1.3, 4.0),
    doc="""Inverse hyperbolic cosine. Units: 1 -> 1. Kinks: +Inf at 1; NaN below.""",
)
atanh = unary(
    "atanh",
    jvp=lambda dx, y, x: dx * positive_reciprocal.one(one_minus_square.one(x)),
    reference=np.arctanh,
    lower=lambda jax, x: jax.lax.atanh(x),
    samples=INSIDE,
    doc="""Inverse hyperbolic tangent. Units: 1 -> 1. Kinks: +Inf at -1 and 1; NaN outside.""",
)
sigmoid = unary(
    "sigmoid",
    jvp=lambda dx, y, x: dx * (sech2.one(x * 0.5) * 0.25),  # not y (1 - y), which cancels
    reference=lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x))),
    lower=lambda jax, x: jax.lax.logistic(x),
    doc="""Logistic function `1 / (1 + exp(-x))`. Units: 1 -> 1, inside (0, 1). Kinks: none.""",
)


def relu_jvp(dx: Value, y: Value, x: Value) -> Value:
    """Exactly 0 on the flat side, whatever the tangent; NaN at NaN."""
    return select.one(le.one(x, like(x, 0.0)), zeros_at(dx, dx.type), dx * sign.one(x))


relu = unary(
    "relu",
    jvp=relu_jvp,
    reference=lambda x: np.maximum(x, 0),
    lower=lambda jax, x: jax.lax.max(x, number_like(x, 0)),
    samples=Uniform(-2.0, 2.0, avoid=(0.0,)),
    doc="""The positive part. Units: u -> u. Kinks: 0 at 0, unlike `max(x, 0)`.""",
)


def softplus_lower(jax: Any, x: Any) -> Any:
    lax = jax.lax
    return lax.add(lax.max(x, number_like(x, 0)), lax.log1p(lax.exp(lax.neg(lax.abs(x)))))


softplus = unary(
    "softplus",
    jvp=lambda dx, y, x: dx * sigmoid.one(x),
    reference=lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    lower=softplus_lower,
    doc="""`log(1 + exp(x))` without overflow. Units: 1 -> 1, positive. Kinks: none.""",
)
