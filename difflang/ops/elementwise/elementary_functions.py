"""Elementary functions, real and complex: exponentials, logarithms, trigonometric, hyperbolic, activations."""

from __future__ import annotations

import math

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Value
from difflang.numerics import accurate_elementary
from difflang.numerics.accurate_elementary import lower_in_f64
from difflang.ops.elementwise.comparison_and_logic import le
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.elementwise.nonlinear_arithmetic import one_minus_square
from difflang.ops.elementwise.roots_and_distances import hypot, positive, rsqrt
from difflang.ops.op_factories import (
    HOLOMORPHIC_DTYPES,
    UniformSamples,
    full_like,
    is_complex_array,
    scalar_like,
    tensor_type,
    unary_op,
    zeros_of_type,
)

POSITIVE = UniformSamples(0.2, 3.0)
INSIDE_UNIT_INTERVAL = UniformSamples(-0.9, 0.9)

exp = unary_op(
    "exp",
    jvp=lambda dx, y, x: dx * y,
    reference=np.exp,
    lower=lambda jax, x: jax.lax.exp(x),
    accepts=HOLOMORPHIC_DTYPES,
    traits=("nonnegative",),
    doc="""Exponential. Units: 1 -> 1, positive. Kinks: none.""",
)


def exp2_slope_lower(jax: Jax, x: JaxArray) -> JaxArray:
    """By the square root: `2^x` overflows before its derivative does."""
    root = exp2_lower(jax, x * scalar_like(x, 0.5))
    return root * (root * scalar_like(x, math.log(2.0)))


exp2_lower = lower_in_f64(accurate_elementary.exp2, lambda lax: lax.exp2)
exp2_slope = unary_op(
    "exp2_slope",
    jvp=lambda dx, y, x: dx * (y * math.log(2.0)),
    reference=lambda x: np.exp2(x * 0.5) * (np.exp2(x * 0.5) * math.log(2.0)),
    lower=exp2_slope_lower,
    doc="""The slope of `exp2`, `log(2) 2^x`. Units: 1 -> 1, positive. Kinks: none.""",
)
exp2 = unary_op(
    "exp2",
    jvp=lambda dx, y, x: dx * exp2_slope.one(x),
    reference=np.exp2,
    lower=exp2_lower,
    doc="""Power of two. Units: 1 -> 1, positive. Kinks: none.""",
)
expm1 = unary_op(
    "expm1",
    # Not y + 1, which cancels: it is 0 from -38 on.
    jvp=lambda dx, y, x: dx * exp.one(x),
    reference=np.expm1,
    lower=lambda jax, x: jax.lax.expm1(x),
    doc="""`exp(x) - 1`, accurate near 0. Units: 1 -> 1. Kinks: none.""",
)


log = unary_op(
    "log",
    jvp=lambda dx, y, x: dx / (x if tensor_type(x).dtype.is_complex else positive.one(x)),
    reference=np.log,
    lower=lambda jax, x: jax.lax.log(x),
    accepts=HOLOMORPHIC_DTYPES,
    samples=POSITIVE,
    doc="""Natural logarithm; of complex numbers the one whose imaginary part is in [-pi, pi]. Units: 1 -> 1.
    Kinks: +Inf at 0 and -0.0; NaN below, and at a complex 0.""",
)
log1p = unary_op(
    "log1p",
    jvp=lambda dx, y, x: dx / positive.one(x + 1.0),
    reference=np.log1p,
    lower=lower_in_f64(accurate_elementary.log1p, lambda lax: lax.log1p),
    samples=UniformSamples(-0.8, 2.0),
    doc="""`log(1 + x)`, accurate near 0. Units: 1 -> 1. Kinks: +Inf at -1; NaN below.""",
)


sin = unary_op(
    "sin",
    jvp=lambda dx, y, x: dx * cos.one(x),
    reference=np.sin,
    lower=lambda jax, x: jax.lax.sin(x),
    accepts=HOLOMORPHIC_DTYPES,
    doc="""Sine. Units: radians -> 1. Kinks: none.""",
)
cos = unary_op(
    "cos",
    jvp=lambda dx, y, x: dx * -sin.one(x),
    reference=np.cos,
    lower=lambda jax, x: jax.lax.cos(x),
    accepts=HOLOMORPHIC_DTYPES,
    doc="""Cosine. Units: radians -> 1. Kinks: none.""",
)
tan = unary_op(
    "tan",
    jvp=lambda dx, y, x: dx * (sech2.one(x * 1j) if tensor_type(x).dtype.is_complex else y * y + 1.0),
    reference=np.tan,
    lower=lambda jax, x: jax.lax.tan(x),
    accepts=HOLOMORPHIC_DTYPES,
    samples=UniformSamples(-1.2, 1.2),
    doc="""Tangent. Units: radians -> 1. Kinks: none.""",
)


def rsqrt_one_minus_square(x: Value) -> Value:
    """`(1 - x^2)^(-1/2)`: +Inf at both ends, NaN outside."""
    return rsqrt.one(one_minus_square.one(x))


asin = unary_op(
    "asin",
    jvp=lambda dx, y, x: dx * rsqrt_one_minus_square(x),
    reference=np.arcsin,
    lower=lambda jax, x: jax.lax.asin(x),
    samples=INSIDE_UNIT_INTERVAL,
    doc="""Inverse sine. Units: 1 -> radians. Kinks: +Inf at -1 and 1; NaN outside.""",
)
acos = unary_op(
    "acos",
    jvp=lambda dx, y, x: dx * -rsqrt_one_minus_square(x),
    reference=np.arccos,
    lower=lambda jax, x: jax.lax.acos(x),
    samples=INSIDE_UNIT_INTERVAL,
    doc="""Inverse cosine. Units: 1 -> radians. Kinks: -Inf at -1 and 1; NaN outside.""",
)
atan = unary_op(
    "atan",
    jvp=lambda dx, y, x: dx / (x * x + 1.0),
    reference=np.arctan,
    lower=lambda jax, x: jax.lax.atan(x),
    doc="""Inverse tangent. Units: 1 -> radians. Kinks: none.""",
)


def times_imaginary_unit(jax: Jax, x: JaxArray) -> JaxArray:
    """`i x`: XLA's complex sine and cosine of it are accurate, its complex hyperbolic functions are not."""
    return jax.lax.complex(jax.lax.neg(jax.lax.imag(x)), jax.lax.real(x))


real_sinh = lower_in_f64(accurate_elementary.sinh, lambda lax: lax.sinh)
real_cosh = lower_in_f64(accurate_elementary.cosh, lambda lax: lax.cosh)


def sinh_lower(jax: Jax, x: JaxArray) -> JaxArray:
    if not is_complex_array(jax, x):
        return real_sinh(jax, x)
    y = jax.lax.sin(times_imaginary_unit(jax, x))
    return jax.lax.complex(jax.lax.imag(y), jax.lax.neg(jax.lax.real(y)))


def cosh_lower(jax: Jax, x: JaxArray) -> JaxArray:
    return jax.lax.cos(times_imaginary_unit(jax, x)) if is_complex_array(jax, x) else real_cosh(jax, x)


sinh = unary_op(
    "sinh",
    jvp=lambda dx, y, x: dx * cosh.one(x),
    reference=np.sinh,
    lower=sinh_lower,
    accepts=HOLOMORPHIC_DTYPES,
    doc="""Hyperbolic sine. Units: 1 -> 1. Kinks: none.""",
)
cosh = unary_op(
    "cosh",
    jvp=lambda dx, y, x: dx * sinh.one(x),
    reference=np.cosh,
    lower=cosh_lower,
    accepts=HOLOMORPHIC_DTYPES,
    doc="""Hyperbolic cosine. Units: 1 -> 1. Kinks: none.""",
)


def sech2_reference(x: Array) -> Array:
    return accurate_elementary.sech2(np, x)


def real_sech2(jax: Jax, x: JaxArray) -> JaxArray:
    lax = jax.lax
    e = lax.exp(lax.mul(lax.abs(x), scalar_like(x, -2)))
    whole = lax.add(e, scalar_like(x, 1))
    return lax.div(lax.mul(e, scalar_like(x, 4)), lax.mul(whole, whole))


def sech2_lower(jax: Jax, x: JaxArray) -> JaxArray:
    return accurate_elementary.sech2(jax.numpy, x) if is_complex_array(jax, x) else real_sech2(jax, x)


sech2 = unary_op(
    "sech2",
    jvp=lambda dx, y, x: dx * (tanh.one(x) * y * -2.0),
    reference=sech2_reference,
    lower=sech2_lower,
    accepts=HOLOMORPHIC_DTYPES,
    traits=("nonnegative",),
    doc="""`1 / cosh(x)^2`, the slope of tanh, to full relative accuracy. Units: 1 -> 1. Kinks: none.""",
)


tanh = unary_op(
    "tanh",
    # Not 1 - y*y, which cancels: 145 ulp off at 4, 0 at 20.
    jvp=lambda dx, y, x: dx * sech2.one(x),
    reference=np.tanh,
    lower=lambda jax, x: jax.lax.tanh(x),
    accepts=HOLOMORPHIC_DTYPES,
    doc="""Hyperbolic tangent. Units: 1 -> 1, inside (-1, 1). Kinks: none.""",
)
asinh = unary_op(
    "asinh",
    jvp=lambda dx, y, x: dx / hypot.one(x, full_like(x, 1.0)),
    reference=np.arcsinh,
    lower=lambda jax, x: jax.lax.asinh(x),
    doc="""Inverse hyperbolic sine. Units: 1 -> 1. Kinks: none.""",
)
acosh = unary_op(
    "acosh",
    jvp=lambda dx, y, x: dx * (rsqrt.one(x - 1.0) * rsqrt.one(x + 1.0)),
    reference=np.arccosh,
    lower=lambda jax, x: jax.lax.acosh(x),
    samples=UniformSamples(1.3, 4.0),
    doc="""Inverse hyperbolic cosine. Units: 1 -> 1. Kinks: +Inf at 1; NaN below.""",
)
atanh = unary_op(
    "atanh",
    jvp=lambda dx, y, x: dx / positive.one(one_minus_square.one(x)),
    reference=np.arctanh,
    lower=lower_in_f64(accurate_elementary.atanh, lambda lax: lax.atanh),
    samples=INSIDE_UNIT_INTERVAL,
    doc="""Inverse hyperbolic tangent. Units: 1 -> 1. Kinks: +Inf at -1 and 1; NaN outside.""",
)


def sigmoid_lower(jax: Jax, x: JaxArray) -> JaxArray:
    """The formula of XLA's own `logistic`, which takes JAX four times as long to lower."""
    one = scalar_like(x, 1)
    return jax.lax.div(one, jax.lax.add(jax.lax.exp(jax.lax.neg(x)), one))


sigmoid = unary_op(
    "sigmoid",
    # Not y (1 - y), which cancels.
    jvp=lambda dx, y, x: dx * (sech2.one(x * 0.5) * 0.25),
    reference=lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x))),
    lower=sigmoid_lower,
    traits=("nonnegative",),
    doc="""Logistic function `1 / (1 + exp(-x))`. Units: 1 -> 1, inside (0, 1). Kinks: none.""",
)


def relu_jvp(dx: Value, y: Value, x: Value) -> Value:
    """Exactly 0 on the flat side, whatever the tangent; elsewhere 1, as for `x` itself, at NaN too."""
    return select.one(le.one(x, full_like(x, 0.0)), zeros_of_type(dx, dx.type), dx)


relu = unary_op(
    "relu",
    jvp=relu_jvp,
    reference=lambda x: np.maximum(x, 0),
    lower=lambda jax, x: jax.lax.max(x, scalar_like(x, 0)),
    samples=UniformSamples(-2.0, 2.0, avoid=(0.0,)),
    doc="""The positive part. Units: u -> u. Kinks: 0 at 0, unlike `max(x, 0)`.""",
)


def softplus_lower(jax: Jax, x: JaxArray) -> JaxArray:
    lax = jax.lax
    return lax.add(lax.max(x, scalar_like(x, 0)), lax.log1p(lax.exp(lax.neg(lax.abs(x)))))


softplus = unary_op(
    "softplus",
    jvp=lambda dx, y, x: dx * sigmoid.one(x),
    reference=lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    lower=softplus_lower,
    doc="""`log(1 + exp(x))` without overflow. Units: 1 -> 1, positive. Kinks: none.""",
)
