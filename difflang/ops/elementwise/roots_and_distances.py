"""Roots, reciprocal roots and distances: `sqrt`, `rsqrt`, `cbrt`, `hypot`, and the angle `atan2`."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray, NumpyDType
from difflang.ir.graph import Value
from difflang.ir.op import Root
from difflang.numerics import accurate_elementary
from difflang.ops.arrays.constants import stop
from difflang.ops.elementwise.comparison_and_logic import eq, lt, max_
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.elementwise.nonlinear_arithmetic import absolute, integer_pow
from difflang.ops.op_factories import (
    HOLOMORPHIC_DTYPES,
    UniformSamples,
    binary_op,
    full_like,
    is_complex_array,
    piecewise_constant_op,
    scalar_like,
    tensor_type,
    unary_op,
)

POSITIVE = UniformSamples(0.2, 3.0)


def positive_lower(jax: Jax, x: JaxArray) -> JaxArray:
    lax = jax.lax
    return lax.select(lax.lt(x, scalar_like(x, 0)), lax.full_like(x, np.nan), lax.abs(x))


positive = unary_op(
    "positive",
    jvp=lambda dx, y, x: dx,
    reference=lambda x: np.where(x < 0, x.dtype.type(np.nan), np.abs(x)),
    lower=positive_lower,
    samples=POSITIVE,
    doc="""What the slope of a logarithm divides by: x where that is 0 or above, 0 at -0.0, NaN below. Units: u -> u.
    Kinks: at 0 the limit from inside the domain, 1.""",
)


def rsqrt_reference(x: Array) -> Array:
    return x.dtype.type(1) / np.sqrt(np.where(x == 0, np.zeros_like(x), x))


FUSION_SIZE = 1 << 15


def rsqrt_lower(jax: Jax, x: JaxArray) -> JaxArray:
    """By the root, which the program mostly computes anyway.

    The root of -0.0 is -0.0, and XLA's reciprocal root of it -Inf; hence the absolute value.
    """
    lax = jax.lax
    # A root with two readers would split XLA's kernel, which costs more for a large array.
    return lax.abs(lax.rsqrt(x)) if x.size >= FUSION_SIZE else lax.div(scalar_like(x, 1), lax.abs(lax.sqrt(x)))


rsqrt = unary_op(
    "rsqrt",
    jvp=lambda dx, y, x: dx * (y * integer_pow.one(positive.one(x), n=-1) * -0.5),
    reference=rsqrt_reference,
    lower=rsqrt_lower,
    samples=POSITIVE,
    traits=("cheap",),
    doc="""`1 / sqrt(x)`. Units: u -> u^(-1/2). Kinks: +Inf at 0 and at -0.0, with slope -Inf; NaN below.""",
)


def sqrt_lower(jax: Jax, x: JaxArray) -> JaxArray:
    """XLA mistakes -1 - 0i for -1 + 0i: give the imaginary part the operand's sign, signed zeros included."""
    lax, root = jax.lax, jax.lax.sqrt(x)
    if not is_complex_array(jax, x):
        return root
    return lax.complex(lax.real(root), jax.numpy.copysign(lax.imag(root), lax.imag(x)))


def sqrt_jvp(dx: Value, y: Value, x: Value) -> Value:
    """Of real numbers not 0.5 / y, which is -Inf at -0.0."""
    return dx * (0.5 / y if tensor_type(x).dtype.is_complex else rsqrt.one(x) * 0.5)


def sqrt_radicand(x: Value) -> Value:
    return x if tensor_type(x).dtype.is_complex else positive.one(x)


def sqrt_domain(x: Value) -> Value:
    one = full_like(x, 1.0)
    if tensor_type(x).dtype.is_complex:
        return one
    return select.one(lt.one(x, full_like(x, 0.0)), full_like(x, np.nan), one)


sqrt = unary_op(
    "sqrt",
    jvp=sqrt_jvp,
    reference=np.sqrt,
    lower=sqrt_lower,
    accepts=HOLOMORPHIC_DTYPES,
    powers=Root(2, sqrt_radicand, sqrt_domain),
    samples=POSITIVE,
    traits=("cheap", "keeps sign"),
    doc="""Square root; of complex numbers the one whose real part is not negative. Units: u -> u^(1/2).
    Kinks: +Inf at 0 and -0.0; NaN below, and at a complex 0.""",
)


def cbrt_reference(x: JaxArray) -> JaxArray:
    """NumPy's kernels are off by up to an ulp, each machine's at other places."""
    return accurate_elementary.cbrt(np, x, np.cbrt)


def cbrt_lower(jax: Jax, x: JaxArray) -> JaxArray:
    return accurate_elementary.cbrt(jax.numpy, x, jax.lax.cbrt) if x.dtype == np.float64 else jax.lax.cbrt(x)


cbrt = unary_op(
    "cbrt",
    jvp=lambda dx, y, x: dx * (full_like(y, 1 / 3) / (y * y)),
    reference=cbrt_reference,
    lower=cbrt_lower,
    powers=Root(3, lambda x: x),
    samples=POSITIVE,
    doc="""Cube root, of negative numbers too. Units: u -> u^(1/3). Kinks: +Inf at 0.""",
)


def nan_if_zero(r: Value, otherwise: float) -> Value:
    """The number, but NaN where `r` is 0."""
    return select.one(eq.one(r, full_like(r, 0.0)), full_like(r, np.nan), full_like(r, otherwise))


one_if_zero = unary_op(
    "one_if_zero",
    jvp=lambda dr, y, r: dr * nan_if_zero(r, 1.0),
    reference=lambda r: np.where(r == 0, r.dtype.type(1), r),
    lower=lambda jax, r: jax.lax.select(jax.lax.eq(r, scalar_like(r, 0)), jax.lax.full_like(r, 1), r),
    samples=POSITIVE,
    traits=("cheap",),
    doc="""`r`, but 1 where it is 0: for a divisor whose dividend vanishes too, so that the quotient is 0 without a
    derivative. Units: u -> u. Kinks: NaN at 0.""",
)


def root_of_squares_jvp(dx: Value, y: Value, x: Value) -> Value:
    """`dx / (2 y)`, and exactly 0 at 0, whatever rounding leaves of `dx`."""
    divisor = one_if_zero.one(y)
    return dx * (y / divisor * 0.5 / divisor)


root_of_squares = unary_op(
    "root_of_squares",
    jvp=root_of_squares_jvp,
    reference=np.sqrt,
    lower=lambda jax, x: jax.lax.sqrt(x),
    powers=Root(2, lambda x: x),
    samples=POSITIVE,
    traits=("cheap",),
    doc="""The square root of a sum of squares, whose tangent is 0 where the sum is. Units: u -> u^(1/2).
    Kinks: 0 at 0, with second derivative NaN; NaN below.""",
)


def hypot_lower(jax: Jax, x: JaxArray, y: JaxArray) -> JaxArray:
    """Scaled by the larger leg, so that squares neither overflow nor underflow."""
    lax = jax.lax
    u, v, endless = lax.abs(x), lax.abs(y), lax.full_like(x, np.inf)
    long, short, flat = lax.max(u, v), lax.min(u, v), lax.eq(lax.max(u, v), scalar_like(x, 0))
    ratio = lax.div(short, lax.select(flat, lax.full_like(x, 1), long))
    grown = lax.mul(long, lax.sqrt(lax.add(scalar_like(x, 1), lax.mul(ratio, ratio))))
    # Inf also beside NaN, as in C99.
    infinite = lax.bitwise_or(lax.eq(u, endless), lax.eq(v, endless))
    return lax.select(infinite, endless, lax.select(flat, long, grown))


def hypot_share_reference(x: Array, y: Array) -> Array:
    r = np.hypot(x, y)
    return x / np.where(r == 0, x.dtype.type(1), r)


def hypot_share_lower(jax: Jax, x: JaxArray, y: JaxArray) -> JaxArray:
    lax, r = jax.lax, hypot_lower(jax, x, y)
    return lax.div(x, lax.select(lax.eq(r, lax.full_like(r, 0)), lax.full_like(r, 1), r))


def hypot_share_turned(x: Value, y: Value) -> Value:
    """What turns the direction of (x, y): `y / (x^2 + y^2)`."""
    return hypot_share.one(y, x) / hypot.one(x, y)


hypot_share = binary_op(
    "hypot_share",
    # Not (1 - z^2) / r, which cancels.
    jvp=(
        lambda d, z, x, y: d * (hypot_share.one(y, x) * hypot_share_turned(x, y)),
        lambda d, z, x, y: d * -(z * hypot_share_turned(x, y)),
    ),
    reference=hypot_share_reference,
    lower=hypot_share_lower,
    samples=(UniformSamples(0.3, 2.0), UniformSamples(-2.0, -0.3)),
    doc="""`x / sqrt(x^2 + y^2)`, the slope of `hypot`, and 0 at (0, 0). Units: u, u -> 1. Kinks: NaN at (0, 0).""",
)
hypot = binary_op(
    "hypot",
    jvp=(lambda d, z, x, y: d * hypot_share.one(x, y), lambda d, z, x, y: d * hypot_share.one(y, x)),
    reference=np.hypot,
    lower=hypot_lower,
    powers=Root(2, lambda x, y: x * x + y * y),
    samples=(UniformSamples(0.3, 2.0), UniformSamples(-2.0, -0.3)),
    doc="""`sqrt(x^2 + y^2)` without overflow. Units: u, u -> u. Kinks: 0 at (0, 0).""",
)


def binade_reference(x: Array) -> Array:
    return accurate_elementary.binade(np, x, safe_max_exponent(x.dtype))


def binade_lower(jax: Jax, x: JaxArray) -> JaxArray:
    wide = jax.lax.convert_element_type(x, np.float32) if x.dtype.itemsize == 2 else x
    # The barrier is explained at `norm_formula` in `axis_reductions`.
    unit = jax.lax.optimization_barrier(accurate_elementary.binade(jax.numpy, wide, safe_max_exponent(x.dtype)))
    return jax.lax.convert_element_type(unit, x.dtype)


def safe_max_exponent(dtype: NumpyDType) -> int:
    """How far a power of two and its reciprocal are both well inside a type's range, and that of Python's floats."""
    return min(int(ml_dtypes.finfo(dtype).maxexp), sys.float_info.max_exp) - 4


binade = piecewise_constant_op(
    "binade",
    reference=binade_reference,
    lower=binade_lower,
    doc="""The greatest power of two up to |x|, within what the type holds with its reciprocal; 1 at 0. To divide by it
    is exact. Units: u -> u. Kinks: the derivative is 0 everywhere, as for a unit of measure.""",
)


def divide_by_square_norm(numerator: Value, x: Value, y: Value) -> Value:
    """`numerator / (x^2 + y^2)` without overflow, 0 at the origin: scaled so that the squares are of moderate size."""
    per_unit = 1.0 / binade.one(max_.one(absolute.one(stop.one(x)), absolute.one(stop.one(y))))
    u, v = x * per_unit, y * per_unit
    return numerator * per_unit / one_if_zero.one(u * u + v * v) * per_unit


atan2 = binary_op(
    "atan2",
    jvp=(lambda d, z, y, x: d * divide_by_square_norm(x, x, y), lambda d, z, y, x: d * -divide_by_square_norm(y, x, y)),
    reference=np.arctan2,
    lower=lambda jax, y, x: jax.lax.atan2(y, x),
    samples=(UniformSamples(0.3, 2.0), UniformSamples(-2.0, -0.3)),
    doc="""Angle of the point (x, y); the operands are `y, x`. Units: u, u -> radians. Kinks: (0, 0) at the origin.""",
)
