"""Scatter reductions: several updates to one position combine by max, min or product. Sums are in `gather_scatter`.

Each equals a loop over the updates in row-major order, and the derivative is that of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Value
from difflang.ir.op import OPS, ArrayReferenceRule, JvpRule, Op, OperandRules, TypeSolver
from difflang.ir.tensor_types import BOOL, BOOLS, I32, I64, NUMBERS, REALS, Tensor
from difflang.ops.arrays.axis_reductions import dtype_maximum, dtype_minimum
from difflang.ops.arrays.cumulative_and_sort import argsort, recurrence, shift_along_axis
from difflang.ops.arrays.gather_scatter import (
    DUPLICATE_INDICES,
    EMPTY_GRID_INDICES,
    GRID_INDICES,
    NO_INDICES,
    OUT_OF_RANGE_INDICES,
    Ints,
    Positions,
    Sizes,
    gather,
    gather_lower,
    gathered_items_type,
    indexed_axes_first,
    indices_in_range,
    scatter_add,
    scatter_by,
    scatter_type,
)
from difflang.ops.arrays.shape_manipulation import broadcast, reshape
from difflang.ops.batching_rules import batch_scatter
from difflang.ops.elementwise.comparison_and_logic import eq, ge, gt, logical_and, lt, ne
from difflang.ops.elementwise.linear_arithmetic import select, truncate
from difflang.ops.op_factories import (
    FixedOperand,
    OpExample,
    UniformSamples,
    full_like,
    inactive_op,
    static_size,
    tensor_type,
    zeros_of_type,
)

SAMPLES = (
    OpExample(((3, 2), (5, 2), DUPLICATE_INDICES), {"axes": (0,)}),
    OpExample(((2, 3), (5, 2), DUPLICATE_INDICES), {"axes": (1,)}),
    OpExample(((2, 3, 2), (2, 2, 2), *GRID_INDICES), {"axes": (0, 1)}, UniformSamples(0.5, 2.0)),
    OpExample(((3,), (4,), OUT_OF_RANGE_INDICES), {"axes": (0,)}),
    OpExample(((3, 2), (0, 2), NO_INDICES), {"axes": (0,)}),
)


def sequential_scatter_reference(combine: Callable[[Array, Array], Array]) -> ArrayReferenceRule:
    """A reference: one update after the other."""

    def reference(x: Array, updates: Array, *indices: Array, axes: Ints, positions: Positions = ()) -> Array:
        result = np.array(x)
        front = indexed_axes_first(result, axes)
        for place in map(tuple, np.argwhere(indices_in_range(indices, front.shape[: len(axes)]))):
            at = tuple(i[place] for i in indices)
            front[at] = combine(front[at], updates[place])
        return result

    return reference


# ---- Max and min


def first_claims_type(same: TypeSolver, claims: Tensor, *indices: Tensor, shape: Sizes, axes: Ints) -> Tensor:
    same.accepts(claims, BOOLS)
    same.shape(gathered_items_type(same, Tensor(BOOL, shape), indices, axes), claims)
    return claims


def first_claims_reference(claims: Array, *indices: Array, shape: Ints, axes: Ints) -> Array:
    taken = indexed_axes_first(np.zeros(shape, np.bool_), axes)
    result = np.zeros(claims.shape, np.bool_)
    for place in map(tuple, np.argwhere(indices_in_range(indices, taken.shape[: len(axes)]))):
        at = tuple(i[place] for i in indices)
        result[place] = claims[place] & ~taken[at]
        taken[at] |= claims[place]
    return result


def first_claims_lower(jax: Jax, claims: JaxArray, *indices: JaxArray, shape: Ints, axes: Ints) -> JaxArray:
    """Each position gets the least ordinal that claims it: a minimum does not depend on the order of writes."""
    lax, lead = jax.lax, indices[0].shape
    count = prod(lead)
    ordinals = lax.reshape(lax.iota(np.int32, count), lead)
    ordinals = lax.broadcast_in_dim(ordinals, claims.shape, tuple(range(len(lead))))
    none = np.int32(count)
    claimed = lax.select(claims, ordinals, lax.full_like(ordinals, none))
    first = scatter_by(jax, lax.scatter_min, lax.full(shape, none), claimed, indices, axes)
    return lax.bitwise_and(claims, lax.eq(gather_lower(jax, first, *indices, axes=axes), ordinals))


first_claims = inactive_op(
    "first_claims",
    type=first_claims_type,
    reference=first_claims_reference,
    lower=first_claims_lower,
    traits=("whole operands",),
    samples=(
        OpExample(
            (FixedOperand((True, False, True, True, True), BOOL), DUPLICATE_INDICES), {"shape": (3,), "axes": (0,)}
        ),
        OpExample(
            (FixedOperand(((True, True), (True, False)), BOOL), *GRID_INDICES), {"shape": (2, 3), "axes": (0, 1)}
        ),
        OpExample((FixedOperand(((True,) * 2,) * 4, BOOL), OUT_OF_RANGE_INDICES), {"shape": (2, 3), "axes": (1,)}),
        OpExample((FixedOperand((), BOOL), NO_INDICES), {"shape": (3,), "axes": (0,)}),
        OpExample((FixedOperand(((), ()), BOOL), EMPTY_GRID_INDICES), {"shape": (0,), "axes": (0,)}),
    ),
    doc="""Is each claim the first, in row-major order of the indices, to its place in an array of that shape? False
    where nothing is claimed, and out of range.""",
)


def scatter_extremum_jvp(better: Op) -> JvpRule:
    """The tangent of the updates: at each position that changed, that of the first update equal to the new value."""

    def rule(du: Value, y: Value, x: Value, updates: Value, *indices: Value, axes: Ints) -> Value:
        was, now = (gather.one(v, *indices, axes=axes) for v in (x, y))
        claims = logical_and.one(better.one(now, was), eq.one(updates, now))
        wins = first_claims.one(claims, *indices, shape=tensor_type(x).shape, axes=axes)
        return scatter_add.one(zeros_of_type(du, x.type.tangent or x.type), mask_tangent(wins, du), *indices, axes=axes)

    return rule


def mask_tangent(wins: Value, d: Value) -> Value:
    return select.one(wins, d, zeros_of_type(d, d.type))


def scatter_extremum_op(
    name: str,
    better: Op,
    reference: Callable[[Array, Array], Array],
    lower: str,
    nothing: Callable[[np.dtype[Any]], float],
    doc: str,
) -> Op:
    def x_rule(dx: Value, y: Value, x: Value, *_: Value, axes: Ints) -> Value:
        return select.one(better.one(y, x), zeros_of_type(dx, dx.type), dx)

    def lowering(
        jax: Jax, x: JaxArray, updates: JaxArray, *indices: JaxArray, axes: Ints, positions: Positions = ()
    ) -> JaxArray:
        """XLA's max and min propagate NaN, but here a NaN update never wins: replace it by the neutral element."""
        lax = jax.lax
        if jax.numpy.issubdtype(x.dtype, np.floating):
            updates = lax.select(lax.ne(updates, updates), lax.full_like(updates, nothing(x.dtype)), updates)
        return scatter_by(jax, getattr(lax, lower), x, updates, indices, axes, positions)

    def combine(old: Array, new: Array) -> Array:
        return np.where(reference(new, old), new, old)

    return OPS.declare(
        Op(
            name,
            type=scatter_type(REALS),
            traits=("scatter",),
            derivative=OperandRules(jvp=(x_rule, scatter_extremum_jvp(better), None)),
            reference=sequential_scatter_reference(combine),
            lower=lowering,
            batch_rule=batch_scatter,
            accepts=REALS,
            samples=SAMPLES,
            doc=doc,
        )
    )


scatter_max = scatter_extremum_op(
    "scatter_max",
    gt,
    np.greater,
    "scatter_max",
    dtype_minimum,
    """`x` with items replaced at the indices (see `gather`) where they are greater than what is there: of several to
    one place the greatest stays. NaN is not greater, and nothing is greater than NaN; out of range nothing is written.
    Units: u, u -> u. Kinks: an assignment that happens, so the first of equals has the derivative, before them `x`.""",
)
scatter_min = scatter_extremum_op(
    "scatter_min",
    lt,
    np.less,
    "scatter_min",
    dtype_maximum,
    """`x` with items replaced at the indices (see `gather`) where they are less than what is there: see `scatter_max`.
    Units: u, u -> u. Kinks: an assignment that happens, so the first of equals has the derivative, before them `x`.""",
)


# ---- Products


def scatter_mul_updates_jvp(du: Value, y: Value, x: Value, updates: Value, *indices: Value, axes: Ints) -> Value:
    """The product rule step by step, as the loop has it: sorted by position, the partial products are a recurrence.

    No division, so zeros are exact at every order.
    """
    flat, places = tensor_type(updates).shape[tensor_type(indices[0]).rank :], [flatten_index(i) for i in indices]
    size = static_size(tensor_type(places[0]).shape[0])
    if size == 0:
        return zeros_of_type(du, y.type)
    rows = [reshape.one(v, shape=(size, *flat)) for v in (updates, du)]
    sizes = [static_size(tensor_type(x).shape[a]) for a in axes]
    number = flat_positions(places, sizes)
    order = argsort.one(number, axis=0, descending=False)
    number, *places = (gather.one(v, order, axes=(0,)) for v in (number, *places))
    factors, moved = (gather.one(v, order, axes=(0,)) for v in rows)
    begins = broadcast_flags(ne.one(number, shift_along_axis(number, 0, False, -1)), factors)
    written = broadcast_flags(lt.one(number, full_like(number, prod(sizes))), factors)
    ends = logical_and.one(shift_along_axis(begins, 0, True, True), written)
    start = gather.one(x, *places, axes=axes)
    nothing = zeros_of_type(start, start.type)
    products = recurrence.one(begins, factors, select.one(begins, start * factors, nothing), axis=0, reverse=False)
    before = select.one(begins, start, shift_along_axis(products, 0, False, 0.0))
    changes = recurrence.one(begins, factors, before * moved, axis=0, reverse=False)
    return scatter_add.one(zeros_of_type(du, y.type), mask_tangent(ends, changes), *places, axes=axes)


def flatten_index(index: Value) -> Value:
    return reshape.one(index, shape=(prod(map(static_size, tensor_type(index).shape)),))


def broadcast_flags(marks: Value, x: Value) -> Value:
    return broadcast.one(marks, shape=tensor_type(x).shape, axes=(0,))


def flat_positions(places: list[Value], sizes: list[int]) -> Value:
    """A row-major number for each position, and one past the last for positions out of range."""
    total = prod(sizes)
    dtype = I32 if total < 2**31 else I64
    places = [p if tensor_type(p).dtype is dtype else truncate.one(p, dtype=dtype) for p in places]
    number, good = full_like(places[0], 0), places[0].home.const(True, Tensor(BOOL, tensor_type(places[0]).shape))
    for place, size in zip(places, sizes, strict=True):
        number = number * size + place
        within = logical_and.one(ge.one(place, full_like(place, 0)), lt.one(place, full_like(place, size)))
        good = logical_and.one(good, within)
    return select.one(good, number, full_like(number, total))


def scatter_mul_lower(
    jax: Jax, x: JaxArray, updates: JaxArray, *indices: JaxArray, axes: Ints, positions: Positions = ()
) -> JaxArray:
    return scatter_by(jax, jax.lax.scatter_mul, x, updates, indices, axes, positions)


def scatter_mul_array_jvp(dx: Value, y: Value, x: Value, updates: Value, *indices: Value, axes: Ints) -> Value:
    ones = x.home.const(1.0, x.type)
    return dx * scatter_mul.one(ones, updates, *indices, axes=axes)


scatter_mul = OPS.declare(
    Op(
        "scatter_mul",
        type=scatter_type(NUMBERS),
        traits=("scatter",),
        derivative=OperandRules(jvp=(scatter_mul_array_jvp, scatter_mul_updates_jvp, None)),
        reference=sequential_scatter_reference(np.multiply),
        lower=scatter_mul_lower,
        batch_rule=batch_scatter,
        accepts=NUMBERS,
        samples=SAMPLES,
        doc="""`x` with items multiplied at the indices (see `gather`); several to one place all count; one out of range
        is dropped; integers wrap. Units: u, 1 -> u. Kinks: none; the derivative is exact where items are 0.""",
    )
)
