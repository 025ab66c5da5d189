"""The element that an extremum selects: its position where it is unique, and the derivative that it passes on."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Eqn, Value, Values
from difflang.ir.op import OPS, EquationRules, MaybeValue, Op, TypeSolver
from difflang.ir.tensor_types import FLOATS, I32, REALS, Tensor
from difflang.ops.ad_interface import Ad, Tangents
from difflang.ops.arrays.constants import stop
from difflang.ops.op_factories import FixedOperand, OpExample, inactive_op, remaining_axes, same_type_rule

Ints = tuple[int, ...]

# A sum of elements of at least this many positions would not be exact in f32.
MAX_POSITIONS = 1 << 23


def position_type(same: TypeSolver, x: Tensor, y: Tensor, *, axes: Ints) -> Tensor:
    same.accepts(x, REALS)
    same.require(axes == tuple(sorted(set(axes))) and all(0 <= a < x.rank for a in axes), "axes {} do not fit", axes)
    sizes = [x.shape[a] for a in axes]
    many = prod([n for n in sizes if isinstance(n, int)]) >= MAX_POSITIONS
    same.require(not many, "axes {} of {} have too many positions", axes, x)
    reduced = Tensor(x.dtype, x.drop_axes(*axes).shape)
    same.dtype(y, reduced)
    same.shape(y, reduced)
    return Tensor(I32, reduced.shape)


def position_reference(x: Array, y: Array, *, axes: Ints) -> Array:
    equal = x == np.expand_dims(y, axes)
    merged = np.moveaxis(equal, axes, range(len(axes))).reshape(prod([x.shape[a] for a in axes]), *y.shape)
    if not merged.shape[0]:
        return np.full(y.shape, -1, np.int32)
    return np.where(merged.sum(axis=0) == 1, merged.argmax(axis=0), -1).astype(np.int32)


def position_lower(jax: Jax, x: JaxArray, y: JaxArray, *, axes: Ints) -> JaxArray:
    """One sum for both count and position: of floats, which XLA on the CPU adds up faster than integers.

    Each equal element adds a unit, and its position, which is smaller. A sum below two units is exact; rounding never
    takes one of several elements below that.
    """
    lax = jax.lax
    dtype = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    unit = dtype.type(2.0 ** np.finfo(dtype).nmant)
    place, stride = lax.full(x.shape, unit), 1
    for a in reversed(axes):
        steps = lax.broadcasted_iota(dtype, x.shape, a)
        place = lax.add(place, steps if stride == 1 else lax.mul(steps, lax.full(x.shape, dtype.type(stride))))
        stride *= x.shape[a]
    equal = lax.eq(x, lax.broadcast_in_dim(y, x.shape, remaining_axes(x.ndim, axes)))
    total = lax.reduce_sum(lax.select(equal, place, lax.full(x.shape, dtype.type(0))), axes)
    units = lax.full(total.shape, unit)
    single = lax.bitwise_and(lax.ge(total, units), lax.lt(total, lax.add(units, units)))
    return lax.convert_element_type(
        lax.select(single, lax.sub(total, units), lax.full(total.shape, dtype.type(-1))), np.int32
    )


TIED_ROWS = FixedOperand(((1.0, 3.0, 0.0), (2.0, 2.0, 5.0), (7.0, float("nan"), 7.0)), FLOATS[2])
VALUES = FixedOperand((3.0, 2.0, float("nan")), FLOATS[2])

unique_position = inactive_op(
    "unique_position",
    type=position_type,
    reference=position_reference,
    lower=position_lower,
    traits=("fusion barrier",),
    accepts=REALS,
    samples=(
        OpExample((TIED_ROWS, VALUES), {"axes": (1,)}),
        OpExample((TIED_ROWS, VALUES), {"axes": (0,)}),
        OpExample((TIED_ROWS, FixedOperand(5.0, FLOATS[2])), {"axes": (0, 1)}),
        OpExample(((2, 0), (2,)), {"axes": (1,)}),
        OpExample(((0, 2), (0,)), {"axes": (1,)}),
    ),
    doc="""The position along axes, in row-major order, of the only element of x that equals y; -1 where there is none
    or there are several.""",
)


# ---- A value with the derivative of another one


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[Sequence[Value], Sequence[MaybeValue]]:
    return with_derivative(*xs), [dxs.values[1]]


def value_alone(eqn: Eqn, in_reverse: bool) -> Eqn:
    return Eqn(stop, eqn.operands[:1], eqn.results, {}, (), eqn.span)


with_derivative = OPS.declare(
    Op(
        "with_derivative",
        same_type_rule(FLOATS, 2),
        lambda y, z: y,
        lambda jax, y, z: y,
        traits=("elementwise",),
        derivative=EquationRules(linearize=linearize, jvp=linearize, without_derivative=value_alone),
        accepts=FLOATS,
        doc="""The first operand with the derivative of the second, which has the same value but for rounding.""",
    )
)
