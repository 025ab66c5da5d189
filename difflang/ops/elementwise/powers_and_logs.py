"""Powers and logarithms of two operands, where a rounded intermediate would cost digits.

`pow`, `xlogy`, `exp_sub`, `logaddexp` and `excess`.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Attr, Value
from difflang.ir.op import FactoredForm, Op
from difflang.numerics import accurate_elementary
from difflang.ops.arrays.constants import stop
from difflang.ops.elementwise.comparison_and_logic import eq, ge, isinf, logical_and
from difflang.ops.elementwise.elementary_functions import POSITIVE, exp, log, sigmoid
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import (
    HOLOMORPHIC_DTYPES,
    OpExample,
    UniformSamples,
    binary_op,
    full_like,
    is_complex_array,
    tensor_type,
    zeros_of_type,
)


def power_less_base_jvp(d: Value, z: Value, x: Value, y: Value, *, n: int = 0) -> Value:
    """`(y - n) x^(y-n-1)`, 0 where y = n: at x = 0 the power is Inf there."""
    zero = full_like(x, 0.0)
    left = y - float(n) if n else y
    corner = logical_and.one(eq.one(x, zero), eq.one(left, zero))
    return d * (left * power_less.one(select.one(corner, full_like(x, 1.0), x), y, n=n + 1))


def power_less_exponent_jvp(d: Value, z: Value, x: Value, y: Value, *, n: int = 0) -> Value:
    """`x^(y-n) log x`, 0 at x = 0 where the power is finite."""
    zero = full_like(x, 0.0)
    edge = eq.one(x, zero)
    if not tensor_type(x).dtype.is_complex:
        edge = logical_and.one(edge, ge.one(y, full_like(y, float(n))))
    return d * (z * log.one(select.one(edge, full_like(x, 1.0), x)))


def factor_power(op: Op, x: Value, y: Value, **attrs: Attr) -> Value:
    """`x^c e^((y - c) log x)` with c = `stop(y)`: a power of a constant exponent, and an exponential whose value is 1.

    Where x = 0 the exponential is constant: in y the derivative is 0 there.
    """
    fixed = stop.one(y)
    base = select.one(eq.one(x, full_like(x, 0.0)), full_like(x, 1.0), x)
    return op.one(x, fixed, **attrs) * exp.one((y - fixed) * log.one(base))


def pow_lower(jax: Jax, x: JaxArray, y: JaxArray) -> JaxArray:
    """XLA's power of a complex 0 is NaN for every exponent that is not real."""
    lax, power = jax.lax, jax.lax.pow(x, y)
    if not is_complex_array(jax, x):
        return power
    zero = lax.full_like(x, 0)
    vanishes = lax.bitwise_and(lax.eq(x, zero), lax.gt(lax.real(y), lax.real(zero)))
    return lax.select(vanishes, zero, power)


pow_ = binary_op(
    "pow",
    jvp=(power_less_base_jvp, power_less_exponent_jvp),
    reference=np.power,
    lower=pow_lower,
    powers=FactoredForm(lambda x, y: factor_power(pow_, x, y)),
    accepts=HOLOMORPHIC_DTYPES,
    samples=(POSITIVE, UniformSamples()),
    doc="""`x` to the power `y`. Units: 1, 1 -> 1. Kinks: in x it is `y x^(y-1)`, 0 where y = 0; in y it is
    `x^y log x`, 0 where x = 0 and y >= 0, NaN for x < 0. Complex powers are `exp(y log x)`.""",
)


def power_less_lower(jax: Jax, x: JaxArray, y: JaxArray, *, n: int) -> JaxArray:
    return accurate_elementary.power_minus_integer(jax.numpy, x, y, n, partial(pow_lower, jax))


power_less = binary_op(
    "power_less",
    jvp=(power_less_base_jvp, power_less_exponent_jvp),
    reference=lambda x, y, n: accurate_elementary.power_minus_integer(np, x, y, n, np.power),
    lower=power_less_lower,
    powers=FactoredForm(lambda x, y, n: factor_power(power_less, x, y, n=n)),
    accepts=HOLOMORPHIC_DTYPES,
    samples=tuple(OpExample(((2, 3), (2, 3)), {"n": n}, POSITIVE) for n in (1, 2)),
    doc="""`x^(y-n)`, as if `y - n` were not rounded: for large x that rounding costs digits. Units: 1, 1 -> 1.
    Kinks: those of `pow`.""",
)


def xlogy_reference(x: Array, y: Array) -> Array:
    return np.where((x == 0) & (y == y), x.dtype.type(0), x * np.log(y))


def xlogy_lower(jax: Jax, x: JaxArray, y: JaxArray) -> JaxArray:
    lax = jax.lax
    zero = lax.full_like(x, 0)
    nothing = lax.bitwise_and(lax.eq(x, zero), lax.eq(y, y))
    return lax.select(nothing, zero, lax.mul(x, lax.log(y)))


def xlogy_second_jvp(d: Value, z: Value, x: Value, y: Value) -> Value:
    """`x / y`, 0 at the origin."""
    zero = full_like(x, 0.0)
    origin = logical_and.one(eq.one(x, zero), eq.one(y, zero))
    return d * (x / select.one(origin, full_like(y, 1.0), y))


xlogy = binary_op(
    "xlogy",
    jvp=(lambda d, z, x, y: d * log.one(y), xlogy_second_jvp),
    reference=xlogy_reference,
    lower=xlogy_lower,
    samples=(UniformSamples(), POSITIVE),
    doc="""`x log y`, and 0 where x is 0 and y is any number, but not NaN. Units: u, 1 -> u. Kinks: in x it is `log y`,
    -Inf at y = 0; in y it is `x / y`, 0 at the origin.""",
)


def exp_sub_reference(x: Array, y: Array) -> Array:
    return np.exp(np.where(x == y, np.zeros_like(x), x - y))


def subtract_or_zero(jax: Jax, x: JaxArray, y: JaxArray) -> JaxArray:
    """`x - y`, and 0 where they are equal, infinities included."""
    lax = jax.lax
    # Selected before the exponential: XLA recomputes a select after it for each reader, exponential included.
    return lax.select(lax.eq(x, y), lax.full_like(x, 0), lax.sub(x, y))


exp_sub = binary_op(
    "exp_sub",
    jvp=(lambda d, z, x, y: d * z, lambda d, z, x, y: -(d * z)),
    reference=exp_sub_reference,
    lower=lambda jax, x, y: jax.lax.exp(subtract_or_zero(jax, x, y)),
    samples=(UniformSamples(), UniformSamples()),
    traits=("nonnegative",),
    doc="""`exp(x - y)`; 1 where x = y, infinite ones too. Units: 1, 1 -> 1.
    Kinks: none.""",
)


def share_of_sum(x: Value, y: Value) -> Value:
    """`exp(x) / (exp(x) + exp(y))`: half at a pair of Inf, and 0 at a pair of -Inf, since their sum stays 0."""
    even = logical_and.one(eq.one(x, y), isinf.one(x))
    share = sigmoid.one(select.one(even, full_like(x, 0.0), x - y))
    return select.one(eq.one(x, full_like(x, -np.inf)), full_like(x, 0.0), share)


def logaddexp_lower(jax: Jax, x: JaxArray, y: JaxArray) -> JaxArray:
    lax = jax.lax
    top, bottom = lax.max(x, y), lax.min(x, y)
    return lax.add(top, lax.log1p(lax.exp(subtract_or_zero(jax, bottom, top))))


logaddexp = binary_op(
    "logaddexp",
    jvp=(lambda d, z, x, y: d * share_of_sum(x, y), lambda d, z, x, y: d * share_of_sum(y, x)),
    reference=np.logaddexp,
    lower=logaddexp_lower,
    samples=(UniformSamples(), UniformSamples()),
    doc="""`log(exp(x) + exp(y))` without overflow or cancellation. Units: 1, 1 -> 1.
    Kinks: at a pair of Inf half in each, at a pair of -Inf 0 in both.""",
)

excess = binary_op(
    "excess",
    jvp=(lambda d, z, x, total: d, lambda d, z, x, total: zeros_of_type(d, z.type)),
    reference=lambda x, total: np.array(x),
    lower=lambda jax, x, total: x,
    samples=(UniformSamples(), UniformSamples()),
    traits=("cheap", "correctly rounded"),
    doc="""`x`; `total` is `x + 1`, less precisely, and may be read in its place. The derivative is that of `x`.
    Units: 1, 1 -> 1. Kinks: none.""",
)
