"""Comparisons, logic on booleans, and the ops that select by comparison: `max`, `min`, `clamp`."""

from __future__ import annotations

import numpy as np

from difflang.ir.array_types import Jax, JaxArray
from difflang.ir.graph import Value
from difflang.ir.op import ArrayLowerRule, ArrayReferenceRule, Inactive, Op, OperandRules
from difflang.ir.tensor_types import BOOL, BOOLS, FLOATS, NUMBERS, REALS
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import (
    FixedOperand,
    OpExample,
    UniformSamples,
    binary_op,
    comparison_op,
    elementwise_op,
    full_like,
    zeros_of_type,
)

eq = comparison_op(
    "eq",
    reference=np.equal,
    lower=lambda jax, x, y: jax.lax.eq(x, y),
    traits=("accepts fill",),
    accepts=(*BOOLS, *NUMBERS),
    doc="""Equal; NaN equals nothing.""",
)
ne = comparison_op(
    "ne",
    reference=np.not_equal,
    lower=lambda jax, x, y: jax.lax.ne(x, y),
    traits=("accepts fill",),
    accepts=(*BOOLS, *NUMBERS),
    doc="""Not equal.""",
)
lt = comparison_op(
    "lt",
    reference=np.less,
    lower=lambda jax, x, y: jax.lax.lt(x, y),
    traits=("accepts fill",),
    accepts=REALS,
    doc="""Less; false beside a NaN.""",
)
le = comparison_op(
    "le",
    reference=np.less_equal,
    lower=lambda jax, x, y: jax.lax.le(x, y),
    traits=("accepts fill",),
    accepts=REALS,
    doc="""Less or equal; false beside a NaN.""",
)
gt = comparison_op(
    "gt",
    reference=np.greater,
    lower=lambda jax, x, y: jax.lax.gt(x, y),
    traits=("accepts fill",),
    accepts=REALS,
    doc="""Greater; false beside a NaN.""",
)
ge = comparison_op(
    "ge",
    reference=np.greater_equal,
    lower=lambda jax, x, y: jax.lax.ge(x, y),
    traits=("accepts fill",),
    accepts=REALS,
    doc="""Greater or equal; false beside a NaN.""",
)
isnan = comparison_op(
    "isnan",
    reference=np.isnan,
    lower=lambda jax, x: jax.lax.ne(x, x),
    accepts=FLOATS,
    count=1,
    doc="""Is it not a number?""",
)
isinf = comparison_op(
    "isinf",
    reference=np.isinf,
    lower=lambda jax, x: jax.lax.eq(jax.lax.abs(x), jax.lax.full_like(x, float("inf"))),
    accepts=FLOATS,
    count=1,
    doc="""Is it infinite, of either sign?""",
)
isfinite = comparison_op(
    "isfinite",
    reference=np.isfinite,
    lower=lambda jax, x: jax.lax.is_finite(x),
    accepts=FLOATS,
    count=1,
    doc="""Is it neither infinite nor NaN?""",
)


def logical_op(name: str, count: int, reference: ArrayReferenceRule, lower: ArrayLowerRule, doc: str) -> Op:
    """Elementwise logic on booleans."""
    sides = ((True, True, False, False), (True, False, True, False))
    return elementwise_op(
        name, traits=("bit exact", "correctly rounded"), derivative=Inactive(), reference=reference, lower=lower,
        doc=doc, accepts=BOOLS,
        samples=(OpExample(tuple(FixedOperand(side, BOOL) for side in sides[:count])),),
    )  # fmt: skip


logical_and = logical_op("logical_and", 2, np.logical_and, lambda jax, x, y: jax.lax.bitwise_and(x, y), "Both.")
logical_or = logical_op("logical_or", 2, np.logical_or, lambda jax, x, y: jax.lax.bitwise_or(x, y), "One or both.")
logical_xor = logical_op("logical_xor", 2, np.logical_xor, lambda jax, x, y: jax.lax.bitwise_xor(x, y), "Exactly one.")
logical_not = logical_op("logical_not", 1, np.logical_not, lambda jax, x: jax.lax.bitwise_not(x), "Not.")


# ---- Max, min, clamp


def extremum_jvp(d: Value, z: Value, x: Value, y: Value, beats: Op) -> Value:
    """The tangent of the winner; half of each in a tie; NaN where the value is NaN."""
    tie = select.one(eq.one(x, y), full_like(x, 0.5), z)
    won = d * select.one(beats.one(x, y), full_like(x, 1.0), tie)
    # Selected, not multiplied by 0: a loser's infinite tangent contributes exactly 0.
    return select.one(beats.one(y, x), zeros_of_type(won, won.type), won)


max_ = binary_op(
    "max",
    jvp=(lambda d, z, x, y: extremum_jvp(d, z, x, y, gt), lambda d, z, x, y: extremum_jvp(d, z, y, x, gt)),
    reference=np.maximum,
    lower=lambda jax, x, y: jax.lax.max(x, y),
    accepts=REALS,
    samples=(UniformSamples(-2.0, 2.0), UniformSamples(-2.0, 2.0)),
    traits=("cheap", "accepts fill"),
    doc="""The greater; NaN if one is. Units: u, u -> u. Kinks: at x = y the derivative is split evenly.""",
)
min_ = binary_op(
    "min",
    jvp=(lambda d, z, x, y: extremum_jvp(d, z, x, y, lt), lambda d, z, x, y: extremum_jvp(d, z, y, x, lt)),
    reference=np.minimum,
    lower=lambda jax, x, y: jax.lax.min(x, y),
    accepts=REALS,
    samples=(UniformSamples(-2.0, 2.0), UniformSamples(-2.0, 2.0)),
    traits=("cheap", "accepts fill"),
    doc="""The lesser; NaN if one is. Units: u, u -> u. Kinks: at x = y the derivative is split evenly.""",
)


def masked_tangent(d: Value, z: Value, dropped: Value) -> Value:
    """The tangent, exactly 0 where `dropped`, NaN where the value is NaN."""
    kept = d * select.one(eq.one(z, z), full_like(z, 1.0), z)
    return select.one(dropped, zeros_of_type(kept, kept.type), kept)


def clamp_low_jvp(d: Value, z: Value, lo: Value, x: Value, hi: Value) -> Value:
    return masked_tangent(d, z, logical_or.one(le.one(lo, x), lt.one(hi, lo)))


def clamp_value_jvp(d: Value, z: Value, lo: Value, x: Value, hi: Value) -> Value:
    return masked_tangent(d, z, logical_or.one(lt.one(x, lo), lt.one(hi, x)))


def clamp_high_jvp(d: Value, z: Value, lo: Value, x: Value, hi: Value) -> Value:
    return masked_tangent(d, z, logical_and.one(le.one(x, hi), le.one(lo, hi)))


def clamp_lower(jax: Jax, lo: JaxArray, x: JaxArray, hi: JaxArray) -> JaxArray:
    """XLA's own accepts scalar bounds for an array, but no array as the bound of a scalar."""
    shape = np.broadcast_shapes(lo.shape, x.shape, hi.shape)
    return jax.lax.clamp(lo, x if x.shape == shape else jax.lax.full(shape, x), hi)


clamp = elementwise_op(
    "clamp",
    derivative=OperandRules(jvp=(clamp_low_jvp, clamp_value_jvp, clamp_high_jvp)),
    reference=lambda lo, x, hi: np.minimum(np.maximum(x, lo), hi),
    lower=clamp_lower,
    accepts=REALS,
    samples=(UniformSamples(-1.0, -0.5), UniformSamples(-2.0, 2.0), UniformSamples(0.5, 1.0)),
    traits=("cheap", "accepts fill"),
    doc="""`x`, but not below `lo` nor above `hi` (`hi` where `lo > hi`). Units: u, u, u -> u.
    Kinks: at a bound the derivative in `x` is 1 and in the bound 0.""",
)
