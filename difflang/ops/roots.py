"""Roots and distances: `sqrt`, `rsqrt`, `cbrt`, `hypot`, and the angle `atan2`."""

from __future__ import annotations

from typing import Any

import numpy as np

from difflang.ir.graph import Value
from difflang.ops.compare import eq
from difflang.ops.families import HOLOMORPHIC, Array, Uniform, binary, is_complex, like, number_like, of_complex, unary
from difflang.ops.linear import select

POSITIVE = Uniform(0.2, 3.0)


def rsqrt_reference(x: Array) -> Array:
    return x.dtype.type(1) / np.sqrt(np.where(x == 0, np.zeros_like(x), x))


def rsqrt_lower(jax: Any, x: Any) -> Any:
    zero = number_like(x, 0)
    return jax.lax.select(jax.lax.eq(x, zero), jax.lax.full_like(x, np.inf), jax.lax.rsqrt(x))


rsqrt = unary(
    "rsqrt",
    jvp=lambda dx, y, x: dx * (y * y * y * -0.5),
    reference=rsqrt_reference,
    lower=rsqrt_lower,
    samples=POSITIVE,
    doc="""`1 / sqrt(x)`. Units: u -> u^(-1/2). Kinks: +Inf at 0 and at -0.0, with slope -Inf; NaN below.""",
)


def sqrt_lower(jax: Any, x: Any) -> Any:
    """XLA takes -1 - 0i for -1 + 0i: the imaginary part has the sign of the operand's, signs of zeros too."""
    lax, root = jax.lax, jax.lax.sqrt(x)
    if not of_complex(jax, x):
        return root
    return lax.complex(lax.real(root), jax.numpy.copysign(lax.imag(root), lax.imag(x)))


def sqrt_jvp(dx: Value, y: Value, x: Value) -> Value:
    """Of real numbers not 0.5 / y, which is -Inf at -0.0."""
    return dx * (0.5 / y if is_complex(x) else rsqrt.one(x) * 0.5)


sqrt = unary(
    "sqrt",
    jvp=sqrt_jvp,
    reference=np.sqrt,
    lower=sqrt_lower,
    accepts=HOLOMORPHIC,
    samples=POSITIVE,
    doc="""Square root; of complex numbers the one whose real part is not negative. Units: u -> u^(1/2).
    Kinks: +Inf at 0 and -0.0; NaN below, and at a complex 0.""",
)
cbrt = unary(
    "cbrt",
    jvp=lambda dx, y, x: dx * (like(y, 1 / 3) / (y * y)),
    reference=np.cbrt,
    lower=lambda jax, x: jax.lax.cbrt(x),
    samples=POSITIVE,
    doc="""Cube root, of negative numbers too. Units: u -> u^(1/3). Kinks: +Inf at 0.""",
)


def nonzero(r: Value) -> Value:
    """`r`, but 1 where it is 0: for a divisor below something that vanishes too."""
    return select.one(eq.one(r, like(r, 0.0)), like(r, 1.0), r)


def hypot_lower(jax: Any, x: Any, y: Any) -> Any:
    """Scaled by the larger leg, so that squares neither overflow nor vanish."""
    lax = jax.lax
    long, short = lax.max(lax.abs(x), lax.abs(y)), lax.min(lax.abs(x), lax.abs(y))
    flat = lax.bitwise_or(lax.eq(long, number_like(x, 0)), lax.eq(long, number_like(x, np.inf)))
    ratio = lax.div(short, lax.select(flat, lax.full_like(x, 1), long))
    grown = lax.mul(long, lax.sqrt(lax.add(number_like(x, 1), lax.mul(ratio, ratio))))
    return lax.select(flat, long, grown)


hypot = binary(
    "hypot",
    jvp=(lambda d, z, x, y: d * (x / nonzero(z)), lambda d, z, x, y: d * (y / nonzero(z))),
    reference=np.hypot,
    lower=hypot_lower,
    samples=(Uniform(0.3, 2.0), Uniform(-2.0, -0.3)),
    doc="""`sqrt(x^2 + y^2)` without overflow. Units: u, u -> u. Kinks: 0 at (0, 0).""",
)


def over_square(numerator: Value, x: Value, y: Value) -> Value:
    """`numerator / (x^2 + y^2)` without overflow, 0 at the origin."""
    r = nonzero(hypot.one(x, y))
    return numerator / r * (1.0 / r)  # not `/ r / r`, which XLA makes a division by the square


atan2 = binary(
    "atan2",
    jvp=(lambda d, z, y, x: d * over_square(x, x, y), lambda d, z, y, x: d * -over_square(y, x, y)),
    reference=np.arctan2,
    lower=lambda jax, y, x: jax.lax.atan2(y, x),
    samples=(Uniform(0.3, 2.0), Uniform(-2.0, -0.3)),
    doc="""Angle of the point (x, y); the operands are `y, x`. Units: u, u -> radians. Kinks: (0, 0) at the origin.""",
)
