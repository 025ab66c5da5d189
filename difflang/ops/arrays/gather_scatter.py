"""Gather, scatter and dynamic slices: reading and writing at indices known at run time.

Indices are in range here: checks and negative indices are resolved above. Each declaration still defines the result for
an index out of range, so nothing reads garbage.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import pairwise

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Value
from difflang.ir.op import TensorTypeRule, TypeSolver, UndefinedPrimal
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import BOOL, I32, I64, NUMBERS, DType, Tensor
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.batching_rules import batch_gather, batch_scatter, batch_slice, batch_update, clamp_index
from difflang.ops.device_regions import whole_uneven_axes
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import (
    FixedOperand,
    OpExample,
    inactive_op,
    linear_op,
    remaining_axes,
    tensor_type,
    zeros_of_type,
)

Ints = tuple[int, ...]
Sizes = tuple[Dim, ...]
# Indices, by their number, that count along an axis of their own arrays: `(0, 1)` says that the first is the position
# along axis 1. The axes that it connects are one, so each device of a mesh finds its items in its own rows.
Positions = tuple[tuple[int, int], ...]
Operand = Value | UndefinedPrimal
INDEX_DTYPES = (I32, I64)


# ---- Dynamic slices


def check_starts(same: TypeSolver, x: Tensor, starts: tuple[Tensor, ...]) -> None:
    same.require(len(starts) == x.rank, "{} has {} axes, not {}", x, x.rank, len(starts))
    for start in starts:
        same.accepts(start, INDEX_DTYPES)
        same.dtype(start, starts[0])
        same.require(start.rank == 0, "a start is one number, not {}", start)


def check_window_fits(same: TypeSolver, x: Tensor, sizes: Sizes) -> None:
    same.require(len(sizes) == x.rank, "{} has {} axes, not {}", x, x.rank, len(sizes))
    for whole, size in zip(x.shape, sizes, strict=True):
        same.window(size, whole)


def dynamic_slice_type(same: TypeSolver, x: Tensor, *starts: Tensor, sizes: Sizes) -> Tensor:
    check_starts(same, x, starts)
    check_window_fits(same, x, sizes)
    return Tensor(x.dtype, sizes)


def dynamic_update_type(same: TypeSolver, x: Tensor, update: Tensor, *starts: Tensor) -> Tensor:
    check_starts(same, x, starts)
    same.dtype(x, update)
    check_window_fits(same, x, update.shape)
    return x


def clamped_window(shape: Ints, starts: tuple[Array, ...], sizes: Ints) -> tuple[slice, ...]:
    """The window, moved so that it fits."""
    first = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(s, s + k) for s, k in zip(first, sizes, strict=True))


def dynamic_update_reference(x: Array, update: Array, *starts: Array) -> Array:
    result = np.array(x)
    result[clamped_window(x.shape, starts, update.shape)] = update
    return result


def start_operands(*positions: int) -> tuple[FixedOperand, ...]:
    return tuple(FixedOperand(p, I32) for p in positions)


dynamic_slice = linear_op(
    "dynamic_slice",
    type=dynamic_slice_type,
    transpose=(lambda ct, x, *starts, sizes: dynamic_update.one(zeros_of_type(ct, x.type), ct, *starts), None),
    traits=("gather", "data movement", "bit exact"),
    reference=lambda x, *starts, sizes: x[clamped_window(x.shape, starts, sizes)],
    lower=lambda jax, x, *starts, sizes: jax.lax.dynamic_slice(x, starts, sizes, allow_negative_indices=False),
    batch_rule=batch_slice,
    samples=(
        OpExample(((5, 4), *start_operands(1, 2)), {"sizes": (3, 1)}),
        OpExample(((5,), *start_operands(4)), {"sizes": (3,)}),
        OpExample(((5,), *start_operands(-4)), {"sizes": (3,)}),
        OpExample(((3, 0), *start_operands(1, 0)), {"sizes": (1, 0)}),
        OpExample(((),), {"sizes": ()}),
        OpExample(((4,), FixedOperand(1, I64)), {"sizes": (2,)}),
    ),
    doc="""The window of the given sizes that begins at the starts, one per axis. A window that would leave the array
    is moved inside. Units: u -> u.""",
)
dynamic_update = linear_op(
    "dynamic_update",
    type=dynamic_update_type,
    transpose=(
        lambda ct, x, update, *starts: dynamic_update.one(ct, zeros_of_type(ct, update.type), *starts),
        lambda ct, x, update, *starts: dynamic_slice.one(ct, *starts, sizes=tensor_type(update).shape),
        None,
    ),
    traits=("scatter", "data movement"),
    reference=dynamic_update_reference,
    lower=lambda jax, x, update, *starts: jax.lax.dynamic_update_slice(x, update, starts, allow_negative_indices=False),
    batch_rule=batch_update,
    samples=(
        OpExample(((5, 4), (3, 1), *start_operands(1, 2))),
        OpExample(((5,), (3,), *start_operands(4))),
        OpExample(((5,), (0,), *start_operands(1))),
        OpExample(((), ())),
    ),
    doc="""`x` with a window, beginning at the starts, replaced. A window that would leave the array is moved inside.
    Units: u, u -> u.""",
)


# ---- Arrays of indices


def indices_type(same: TypeSolver, indices: tuple[Tensor, ...], count: int) -> tuple[Dim, ...]:
    """The indices' common shape."""
    same.require(len(indices) == count > 0, "{} axes need as many index arrays, not {}", count, len(indices))
    for index in indices:
        same.accepts(index, INDEX_DTYPES)
        same.dtype(index, indices[0])
        same.shape(index, indices[0])
    return indices[0].shape


def gathered_items_type(
    same: TypeSolver, x: Tensor, indices: tuple[Tensor, ...], axes: Ints, positions: Positions = ()
) -> Tensor:
    """One item of `x` for each index: the indices' shape, then the axes of `x` that are not indexed."""
    rising = all(a < b for a, b in pairwise(axes))
    same.require(rising and all(0 <= a < x.rank for a in axes), "axes {} do not fit {}", axes, x)
    shape = indices_type(same, indices, len(axes))
    for k, axis in positions:
        same.size(x.shape[axes[k]], shape[axis])
    return Tensor(x.dtype, (*shape, *x.drop_axes(*axes).shape))


def gather_type(same: TypeSolver, x: Tensor, *indices: Tensor, axes: Ints, positions: Positions = ()) -> Tensor:
    return gathered_items_type(same, x, indices, axes, positions)


def scatter_type(accepts: tuple[DType, ...] = ()) -> TensorTypeRule:
    """Updates as `gather` would read them, with the array's dtype; any dtype if `accepts` is empty."""

    def type(
        same: TypeSolver, x: Tensor, updates: Tensor, *indices: Tensor, axes: Ints, positions: Positions = ()
    ) -> Tensor:
        if accepts:
            same.accepts(x, accepts)
        due = gathered_items_type(same, x, indices, axes, positions)
        same.dtype(x, updates)
        same.shape(due, updates)
        return x

    return type


def indices_in_range(indices: tuple[Array, ...], sizes: Ints) -> Array:
    """Which indices are in range."""
    return np.logical_and.reduce([(i >= 0) & (i < n) for i, n in zip(indices, sizes, strict=True)])


def indexed_axes_first(x: Array, axes: Ints) -> Array:
    return x.transpose(*axes, *remaining_axes(x.ndim, axes))


def gather_reference(x: Array, *indices: Array, axes: Ints, positions: Positions = ()) -> Array:
    front = indexed_axes_first(x, axes)
    return front[tuple(np.clip(i, 0, n - 1) for i, n in zip(indices, front.shape, strict=False))]


def scatter_reference(x: Array, updates: Array, *indices: Array, axes: Ints, positions: Positions = ()) -> Array:
    """Row by row, so that the last write wins."""
    result = np.array(x)
    front = indexed_axes_first(result, axes)
    for place in np.argwhere(indices_in_range(indices, front.shape[: len(axes)])):
        front[tuple(i[tuple(place)] for i in indices)] = updates[tuple(place)]
    return result


def scatter_add_reference(x: Array, updates: Array, *indices: Array, axes: Ints, positions: Positions = ()) -> Array:
    result = np.array(x)
    front = indexed_axes_first(result, axes)
    good = indices_in_range(indices, front.shape[: len(axes)])
    np.add.at(front, tuple(i[good] for i in indices), updates[good])
    return result


def last_writes_reference(*indices: Array, sizes: Ints) -> Array:
    last: dict[tuple[int, ...], tuple[int, ...]] = {}
    for place in map(tuple, np.argwhere(indices_in_range(indices, sizes))):
        last[tuple(int(i[place]) for i in indices)] = place
    result = np.zeros(indices[0].shape, np.bool_)
    for place in last.values():
        result[place] = True
    return result


def stack_indices(jax: Jax, indices: tuple[JaxArray, ...], positions: Positions = ()) -> JaxArray:
    """The index arrays stacked along a last axis, as XLA takes them, without those that are positions."""
    lax, counted = jax.lax, dict(positions)
    return lax.concatenate(
        [lax.expand_dims(i, (i.ndim,)) for k, i in enumerate(indices) if k not in counted], indices[0].ndim
    )


def index_dims(rank: int, indices: tuple[JaxArray, ...], axes: Ints, positions: Positions) -> tuple[Ints, ...]:
    """As XLA takes them: the result's axes that are not indexed, the axes that indices name, twice, and the axes of the
    array and of the indices that go together.
    """
    batch, rest, counted = indices[0].ndim, rank - len(axes), dict(positions)
    named = tuple([a for k, a in enumerate(axes) if k not in counted])
    of_array, of_indices = tuple([axes[k] for k in counted]), tuple(counted.values())
    return tuple(range(batch, batch + rest)), named, named, of_array, of_indices


def scatter_by(
    jax: Jax,
    scatter: Callable[..., JaxArray],
    x: JaxArray,
    updates: JaxArray,
    indices: tuple[JaxArray, ...],
    axes: Ints,
    positions: Positions = (),
) -> JaxArray:
    """A scatter of JAX, of updates that have the axes of the indices first.

    Where XLA splits an array or these axes into parts of several sizes, it fills up the last part, and then writes what
    it filled up, or in its place, too (jaxlib 0.10.2): it must not.
    """
    batch, lax = range(indices[0].ndim), jax.lax
    rows = whole_uneven_axes(jax, stack_indices(jax, indices, positions), batch)
    dims = lax.ScatterDimensionNumbers(*index_dims(x.ndim, indices, axes, positions))
    x, updates = whole_uneven_axes(jax, x, range(x.ndim)), whole_uneven_axes(jax, updates, batch)
    return scatter(x, rows, updates, dims, mode=lax.GatherScatterMode.FILL_OR_DROP)


def gather_lower(jax: Jax, x: JaxArray, *indices: JaxArray, axes: Ints, positions: Positions = ()) -> JaxArray:
    """In this mode JAX adds nothing to XLA's own gather, which clamps an index out of range."""
    lax = jax.lax
    dims = lax.GatherDimensionNumbers(*index_dims(x.ndim, indices, axes, positions))
    sizes = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    rows = stack_indices(jax, indices, positions)
    return lax.gather(x, rows, dims, sizes, mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def indices_in_range_lower(jax: Jax, indices: tuple[JaxArray, ...], sizes: Ints) -> JaxArray:
    lax = jax.lax
    good = [
        lax.bitwise_and(lax.ge(i, i.dtype.type(0)), lax.lt(i, i.dtype.type(n)))
        for i, n in zip(indices, sizes, strict=True)
    ]
    return reduce(lax.bitwise_and, good)


def last_writes_lower(jax: Jax, *indices: JaxArray, sizes: Ints, positions: Positions = ()) -> JaxArray:
    """The greatest ordinal written to each position wins: a maximum does not depend on the order of writes."""
    lax, shape = jax.lax, indices[0].shape
    count = int(np.prod(shape, dtype=np.int64))
    ordinals = lax.reshape(lax.iota(np.int32, count), shape)
    axes = tuple(range(len(sizes)))
    winners = scatter_by(jax, lax.scatter_max, lax.full(sizes, np.int32(-1)), ordinals, indices, axes, positions)
    stays = lax.eq(gather_lower(jax, winners, *indices, axes=axes, positions=positions), ordinals)
    return lax.bitwise_and(indices_in_range_lower(jax, indices, sizes), stays)


def scatter_lower(
    jax: Jax, x: JaxArray, updates: JaxArray, *indices: JaxArray, axes: Ints, positions: Positions = ()
) -> JaxArray:
    """Writes that are overwritten later are sent out of range and dropped: XLA promises no order among duplicates."""
    lax = jax.lax
    wins = last_writes_lower(jax, *indices, sizes=tuple(x.shape[a] for a in axes), positions=positions)
    first = next(k for k in range(len(indices)) if k not in dict(positions))
    beyond = lax.full_like(indices[first], -1)
    sent = (*indices[:first], lax.select(wins, indices[first], beyond), *indices[first + 1 :])
    return scatter_by(jax, lax.scatter, x, updates, sent, axes, positions)


def scatter_add_lower(
    jax: Jax, x: JaxArray, updates: JaxArray, *indices: JaxArray, axes: Ints, positions: Positions = ()
) -> JaxArray:
    return scatter_by(jax, jax.lax.scatter_add, x, updates, indices, axes, positions)


def gather_transpose(ct: Value, x: Operand, *indices: Value, axes: Ints) -> Value:
    """Each item that was read gets the cotangents of its readers, also when the index was out of range."""
    places = [clamp_index(i, tensor_type(x).shape[a] - 1) for i, a in zip(indices, axes, strict=True)]
    return scatter_add.one(zeros_of_type(ct, x.type), ct, *places, axes=axes)


def scatter_updates_cotangent(ct: Value, x: Operand, updates: Operand, *indices: Value, axes: Ints) -> Value:
    """The cotangent of the updates: gathered for those that stayed, zero for those overwritten."""
    wins = last_writes.one(*indices, sizes=tuple(tensor_type(x).shape[a] for a in axes))
    wide = broadcast.one(wins, shape=tensor_type(updates).shape, axes=tuple(range(tensor_type(wins).rank)))
    return select.one(wide, gather.one(ct, *indices, axes=axes), zeros_of_type(ct, updates.type))


DUPLICATE_INDICES = FixedOperand((0, 2, 2, 1, 0), I32)
GRID_INDICES = (FixedOperand(((0, 1), (1, 1)), I32), FixedOperand(((2, 0), (0, 0)), I32))
OUT_OF_RANGE_INDICES = FixedOperand((0, 3, -1, 2), I32)
NO_INDICES = FixedOperand((), I32)
EMPTY_GRID_INDICES = FixedOperand(((), ()), I32)

gather = linear_op(
    "gather",
    type=gather_type,
    transpose=(gather_transpose, None),
    traits=("gather", "data movement"),
    reference=gather_reference,
    lower=gather_lower,
    batch_rule=batch_gather,
    samples=(
        OpExample(((3, 2), DUPLICATE_INDICES), {"axes": (0,)}),
        OpExample(((2, 3), DUPLICATE_INDICES), {"axes": (1,)}),
        OpExample(((2, 3, 2), *GRID_INDICES), {"axes": (0, 1)}),
        OpExample(((2, 4, 3), *GRID_INDICES), {"axes": (0, 2)}),
        OpExample(((3,), FixedOperand(1, I64)), {"axes": (0,)}),
        OpExample(((3, 2), NO_INDICES), {"axes": (0,)}),
        OpExample(((3, 0), DUPLICATE_INDICES), {"axes": (0,)}),
        OpExample(((0,), EMPTY_GRID_INDICES), {"axes": (0,)}),
    ),
    doc="""Items of `x` at the indices, `indices[k]` along axis `axes[k]`: the indices' shape comes first, then the
    other axes. An index out of range is moved to the nearest in range. Units: u -> u.""",
)
scatter = linear_op(
    "scatter",
    type=scatter_type(),
    transpose=(
        lambda ct, x, updates, *indices, axes: scatter.one(ct, zeros_of_type(ct, updates.type), *indices, axes=axes),
        scatter_updates_cotangent,
        None,
    ),
    traits=("scatter", "data movement"),
    reference=scatter_reference,
    lower=scatter_lower,
    batch_rule=batch_scatter,
    samples=(
        OpExample(((3, 2), (5, 2), DUPLICATE_INDICES), {"axes": (0,)}),
        OpExample(((2, 3), (5, 2), DUPLICATE_INDICES), {"axes": (1,)}),
        OpExample(((2, 3, 2), (2, 2, 2), *GRID_INDICES), {"axes": (0, 1)}),
        OpExample(((3,), (4,), OUT_OF_RANGE_INDICES), {"axes": (0,)}),
        OpExample(((3, 2), (0, 2), NO_INDICES), {"axes": (0,)}),
    ),
    doc="""`x` with items replaced at the indices (see `gather`). Of several writes to one place the last in row-major
    order stays, and the derivative follows it; a write out of range is dropped. Units: u, u -> u.""",
)
scatter_add = linear_op(
    "scatter_add",
    type=scatter_type(NUMBERS),
    transpose=(
        lambda ct, x, updates, *indices, axes: ct,
        lambda ct, x, updates, *indices, axes: gather.one(ct, *indices, axes=axes),
        None,
    ),
    traits=("scatter", "data movement"),
    reference=scatter_add_reference,
    lower=scatter_add_lower,
    batch_rule=batch_scatter,
    accepts=NUMBERS,
    samples=(
        OpExample(((3, 2), (5, 2), DUPLICATE_INDICES), {"axes": (0,)}),
        OpExample(((2, 3), (5, 2), DUPLICATE_INDICES), {"axes": (1,)}),
        OpExample(((2, 3, 2), (2, 2, 2), *GRID_INDICES), {"axes": (0, 1)}),
        OpExample(((3, 2), (0, 2), NO_INDICES), {"axes": (0,)}),
    ),
    doc="""`x` with items added at the indices (see `gather`); several to one place all count; one out of range is
    dropped. Units: u, u -> u.""",
)


def last_writes_type(same: TypeSolver, *indices: Tensor, sizes: Sizes) -> Tensor:
    return Tensor(BOOL, indices_type(same, indices, len(sizes)))


last_writes = inactive_op(
    "last_writes",
    type=last_writes_type,
    reference=last_writes_reference,
    lower=last_writes_lower,
    traits=("whole operands",),
    samples=(
        OpExample((DUPLICATE_INDICES,), {"sizes": (3,)}),
        OpExample(GRID_INDICES, {"sizes": (2, 3)}),
        OpExample((OUT_OF_RANGE_INDICES,), {"sizes": (3,)}),
        OpExample((NO_INDICES,), {"sizes": (3,)}),
        OpExample((EMPTY_GRID_INDICES,), {"sizes": (0,)}),
    ),
    doc="""Is each index, in row-major order, the last that names its place? False out of range.""",
)
