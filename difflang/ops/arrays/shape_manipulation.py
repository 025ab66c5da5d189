"""Shape manipulation without arithmetic: broadcast, reshape, transpose, reverse, concat, slice, pad."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Eqn, Value
from difflang.ir.op import AxisPermutation, Fill, Op, TransposeRule, TypeSolver, UndefinedPrimal, Window
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import BOOL, Tensor
from difflang.ops.arrays.axis_reductions import reduce_any, reduce_sum
from difflang.ops.batching_rules import BatchedFunction, broadcast_all
from difflang.ops.device_regions import whole_axes
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import (
    OpExample,
    PerOperandRules,
    along_new_axis,
    batched_axes_attr,
    linear_op,
    remaining_axes,
    static_size,
    tensor_type,
    zeros_of_type,
)

Operand = Value | UndefinedPrimal
Ints = tuple[int, ...]
Sizes = tuple[Dim, ...]


def check_permutation(same: TypeSolver, rank: int, axes: Ints, what: str) -> None:
    same.require(sorted(axes) == list(range(rank)), "{} {} does not name each of the {} axes once", what, axes, rank)


# ---- Broadcast and reshape


def broadcast_type(same: TypeSolver, x: Tensor, *, shape: Sizes, axes: Ints) -> Tensor:
    """Axis i of `x` becomes `axes[i]`; a size that is literally 1 may grow."""
    same.require(len(axes) == x.rank, "{} has {} axes, not {}", x, x.rank, len(axes))
    rising = all(a < b for a, b in pairwise(axes))
    same.require(rising and all(0 <= a < len(shape) for a in axes), "axes {} do not fit a rank of {}", axes, len(shape))
    for size, axis in zip(x.shape, axes, strict=True):
        if size != 1:
            same.size(size, shape[axis])
    return Tensor(x.dtype, shape)


def broadcast_reference(x: Array, *, shape: Ints, axes: Ints) -> Array:
    sizes = [1] * len(shape)
    for size, axis in zip(x.shape, axes, strict=True):
        sizes[axis] = size
    return np.broadcast_to(x.reshape(sizes), shape)


def reduce_broadcast_axes(reduction: Op, ct: Value, x: Operand, shape: Sizes, axes: Ints) -> Value:
    """Reduce over every axis that is new or was expanded."""
    grown = tuple(a for a, size in zip(axes, tensor_type(x).shape, strict=True) if size == 1 and shape[a] != 1)
    spread = tuple(sorted((*remaining_axes(len(shape), axes), *grown)))
    total = reduction.one(ct, axes=spread) if spread else ct
    return reshape.one(total, shape=tensor_type(x).shape) if grown else total


broadcast = linear_op(
    "broadcast",
    type=broadcast_type,
    transpose=(lambda ct, x, shape, axes: reduce_broadcast_axes(reduce_sum, ct, x, shape, axes),),
    traits=("data movement", "bit exact", "cheap", "keeps sign"),
    batch_rule=along_new_axis(lambda n, shape, axes: {"shape": (n, *shape), "axes": (0, *[a + 1 for a in axes])}),
    mask_transpose=lambda truths, _, x, shape, axes: reduce_broadcast_axes(reduce_any, truths, x, shape, axes),
    reference=broadcast_reference,
    lower=lambda jax, x, shape, axes: jax.lax.broadcast_in_dim(x, shape, axes),
    movement=Fill(lambda x, shape, axes: None if axes else x),
    samples=(
        OpExample(((),), {"shape": (2, 3), "axes": ()}),
        OpExample(((3,),), {"shape": (2, 3, 2), "axes": (1,)}),
        OpExample(((2, 1),), {"shape": (2, 4, 3), "axes": (0, 2)}),
        OpExample(((0,),), {"shape": (2, 0), "axes": (1,)}),
        OpExample(((1,),), {"shape": (1, 0), "axes": (1,)}),
    ),
    doc="""The same elements along new axes: axis i of the operand becomes `axes[i]` of the result. Units: u -> u.""",
)


def element_count(shape: Sizes) -> Dim:
    """The number of elements of an array."""
    total: Dim = 1
    for size in shape:
        total = total * size
    return total


def reshape_type(same: TypeSolver, x: Tensor, *, shape: Sizes) -> Tensor:
    same.size(element_count(x.shape), element_count(shape), "number of elements")
    return Tensor(x.dtype, shape)


reshape = linear_op(
    "reshape",
    type=reshape_type,
    transpose=(lambda ct, x, shape: reshape.one(ct, shape=tensor_type(x).shape),),
    traits=("data movement", "disjoint transpose", "bit exact", "cheap", "view", "keeps sign"),
    batch_rule=along_new_axis(lambda n, shape: {"shape": (n, *shape)}),
    reference=lambda x, shape: x.reshape(shape),
    lower=lambda jax, x, shape: jax.lax.reshape(x, shape),
    samples=(
        OpExample(((2, 3),), {"shape": (3, 2)}),
        OpExample(((1,),), {"shape": ()}),
        OpExample(((0, 3),), {"shape": (2, 0)}),
    ),
    doc="""The same elements in row-major order under another shape. Units: u -> u.""",
)


# ---- Transpose and reverse


def transpose_type(same: TypeSolver, x: Tensor, *, perm: Ints) -> Tensor:
    check_permutation(same, x.rank, perm, "the permutation")
    return Tensor(x.dtype, tuple(x.shape[a] for a in perm))


def inverse_permutation(perm: Ints) -> Ints:
    return tuple(perm.index(i) for i in range(len(perm)))


transpose = linear_op(
    "transpose",
    type=transpose_type,
    transpose=(lambda ct, x, perm: transpose.one(ct, perm=inverse_permutation(perm)),),
    traits=("data movement", "disjoint transpose", "bit exact", "cheap", "view", "keeps sign"),
    batch_rule=along_new_axis(lambda n, perm: {"perm": (0, *[a + 1 for a in perm])}),
    reference=lambda x, perm: np.transpose(x, perm),
    lower=lambda jax, x, perm: jax.lax.transpose(x, perm),
    movement=AxisPermutation(lambda perm: perm),
    samples=(
        OpExample(((2, 3, 4),), {"perm": (2, 0, 1)}),
        OpExample(((),), {"perm": ()}),
        OpExample(((0, 1),), {"perm": (1, 0)}),
    ),
    doc="""Axes in another order: axis i of the result is `perm[i]` of the operand. Units: u -> u.""",
)


def reverse_type(same: TypeSolver, x: Tensor, *, axes: Ints) -> Tensor:
    same.require(all(0 <= a < x.rank for a in axes), "axes {} do not fit {}", axes, x)
    return x


reverse = linear_op(
    "reverse",
    type=reverse_type,
    transpose=(lambda ct, x, axes: reverse.one(ct, axes=axes),),
    traits=("data movement", "disjoint transpose", "bit exact", "cheap", "keeps sign"),
    batch_rule=along_new_axis(batched_axes_attr),
    reference=lambda x, axes: np.flip(x, axes),
    lower=lambda jax, x, axes: jax.lax.rev(x, axes),
    samples=(
        OpExample(((2, 3),), {"axes": (0, 1)}),
        OpExample(((3,),), {"axes": (0,)}),
        OpExample(((0,),), {"axes": (0,)}),
    ),
    doc="""Some axes backwards. Units: u -> u.""",
)


# ---- Concat and slice


def concat_type(same: TypeSolver, first: Tensor, *rest: Tensor, axis: int) -> Tensor:
    """All sizes but `axis` agree; the sizes along `axis` add up."""
    same.require(0 <= axis < first.rank, "there is no axis {} in {}", axis, first)
    total: Dim = first.shape[axis]
    for part in rest:
        same.dtype(first, part)
        same.shape(first, part, except_axis=axis)
        total = total + part.shape[axis]
    return first.resized(axis, total)


def concat_transpose(position: int) -> TransposeRule:
    """The cotangent of one part: its slice of the whole."""

    def rule(ct: Value, *parts: Operand, axis: int) -> Value:
        start: Dim = 0
        for part in parts[:position]:
            start = start + tensor_type(part).shape[axis]
        return slice_axis(ct, axis, start, start + tensor_type(parts[position]).shape[axis])

    return rule


def slice_axis(x: Value, axis: int, start: Dim, stop: Dim, step: int = 1) -> Value:
    """`x[start:stop:step]` along one axis."""
    axes = range(tensor_type(x).rank)
    starts = tuple(start if i == axis else 0 for i in axes)
    stops = tensor_type(x).resized(axis, stop).shape
    return slice_.one(x, starts=starts, stops=stops, steps=tuple(step if i == axis else 1 for i in axes))


MAX_SELECTED_COLUMNS = 4


def concat_lower(jax: Jax, *parts: JaxArray, axis: int) -> JaxArray:
    """A few single columns are selected by index: XLA on the CPU does not vectorize short pieces."""
    columns = axis == parts[0].ndim - 1 and all(p.shape[axis] == 1 for p in parts)
    if not columns or not 1 < len(parts) <= MAX_SELECTED_COLUMNS:
        return jax.lax.concatenate(parts, axis)
    shape = (*parts[0].shape[:-1], len(parts))
    wide = [jax.lax.broadcast_in_dim(p, shape, tuple(range(len(shape)))) for p in parts]
    column = jax.lax.broadcasted_iota(np.int32, shape, axis)
    found = wide[-1]
    for k, part in enumerate(wide[:-1]):
        found = jax.lax.select(jax.lax.eq(column, np.int32(k)), part, found)
    return found


def batch_concat(eqn: Eqn, wide: tuple[bool, ...], count: Dim) -> BatchedFunction:
    return lambda *parts: concat.one(*broadcast_all(parts, wide, count), axis=eqn.attrs["axis"] + 1)


concat = linear_op(
    "concat",
    type=concat_type,
    transpose=PerOperandRules(concat_transpose),
    traits=("data movement", "disjoint transpose", "bit exact", "cheap"),
    reference=lambda *parts, axis: np.concatenate(parts, axis),
    lower=concat_lower,
    batch_rule=batch_concat,
    samples=(
        OpExample(((2, 3), (2, 1), (2, 0)), {"axis": 1}),
        OpExample(((2,),), {"axis": 0}),
        OpExample(((1, 2), (3, 2)), {"axis": 0}),
        OpExample(((2, 1), (2, 1), (2, 1)), {"axis": 1}),
    ),
    doc="""The operands one after the other along an axis. Units: u, u, ... -> u.""",
)


def slice_type(same: TypeSolver, x: Tensor, *, starts: Sizes, stops: Sizes, steps: Sizes) -> Tensor:
    """The checker proves `0 <= start <= stop <= size`; here it holds or the sizes are names."""
    same.require(len(starts) == len(stops) == len(steps) == x.rank, "{} has {} axes", x, x.rank)
    for size, start, stop, step in zip(x.shape, starts, stops, steps, strict=True):
        fits = True
        if isinstance(size, int) and isinstance(start, int) and isinstance(stop, int):
            fits = 0 <= start <= stop <= size
        same.require(
            (not isinstance(step, int) or step > 0) and fits, "{}..{} by {} leaves {}", start, stop, step, size
        )
    shape = tuple((stop - start + step - 1) // step for start, stop, step in zip(starts, stops, steps, strict=True))
    return Tensor(x.dtype, shape)


def slice_transpose(ct: Value, x: Operand, *, starts: Sizes, stops: Sizes, steps: Ints) -> Value:
    """Zeros around the slice, and between its elements if it is strided."""
    low, high = list[Dim](), list[Dim]()
    for size, start, step, taken in zip(tensor_type(x).shape, starts, steps, tensor_type(ct).shape, strict=True):
        covered = 0 if taken == 0 else (taken - 1) * step + 1
        low.append(start)
        high.append(size - start - covered)
    zero = zeros_of_type(ct, tensor_type(ct).reshaped())
    return pad.one(ct, zero, low=tuple(low), high=tuple(high), interior=tuple(step - 1 for step in steps))


def contiguous_slice_bounds(eqn: Eqn) -> tuple[int, tuple[int, int]] | None:
    """The only axis that a slice cuts and its bounds there, if the slice has no gaps."""
    starts, stops, steps = (eqn.attrs[name] for name in ("starts", "stops", "steps"))
    shape = tensor_type(eqn.operands[0]).shape
    cut = [a for a, size in enumerate(shape) if (starts[a], stops[a]) != (0, size)]
    if len(cut) != 1 or any(step != 1 for step in steps):
        return None
    (axis,) = cut
    start, stop = starts[axis], stops[axis]
    known = isinstance(shape[axis], int) and isinstance(start, int) and isinstance(stop, int)
    return (axis, (start, stop)) if known and start < stop else None


slice_ = linear_op(
    "slice",
    type=slice_type,
    transpose=(slice_transpose,),
    traits=("data movement", "disjoint transpose", "bit exact", "cheap", "view", "keeps sign"),
    batch_rule=along_new_axis(
        lambda n, starts, stops, steps: {"starts": (0, *starts), "stops": (n, *stops), "steps": (1, *steps)}
    ),
    reference=lambda x, starts, stops, steps: x[tuple(map(slice, starts, stops, steps))],
    lower=lambda jax, x, starts, stops, steps: jax.lax.slice(x, starts, stops, steps),
    movement=Window(contiguous_slice_bounds),
    samples=(
        OpExample(((5, 4),), {"starts": (1, 0), "stops": (5, 3), "steps": (1, 1)}),
        OpExample(((6, 5),), {"starts": (0, 1), "stops": (6, 5), "steps": (2, 3)}),
        OpExample(((4,),), {"starts": (2,), "stops": (2,), "steps": (2,)}),
        OpExample(((0,),), {"starts": (0,), "stops": (0,), "steps": (1,)}),
        OpExample(((),), {"starts": (), "stops": (), "steps": ()}),
    ),
    doc="""Every `step`th element from `start` to before `stop`, per axis. Units: u -> u.""",
)


# ---- Pad


def padded_size(size: Dim, low: Dim, high: Dim, interior: int) -> Dim:
    gaps = max(size - 1, 0) if isinstance(size, int) else size - 1
    return low + size + gaps * interior + high


def pad_type(same: TypeSolver, x: Tensor, v: Tensor, *, low: Sizes, high: Sizes, interior: Ints) -> Tensor:
    same.dtype(x, v)
    same.require(v.rank == 0, "what is padded with is one number, not {}", v)
    same.require(len(low) == len(high) == len(interior) == x.rank, "{} has {} axes", x, x.rank)
    shape = tuple(map(padded_size, x.shape, low, high, interior))
    for size in shape:
        same.require(not isinstance(size, int) or size >= 0, "padding by {} and {} leaves nothing of {}", low, high, x)
    return Tensor(x.dtype, shape)


def pad_reference(x: Array, v: Array, *, low: Ints, high: Ints, interior: Ints) -> Array:
    spread = tuple(static_size(padded_size(n, 0, 0, i)) for n, i in zip(x.shape, interior, strict=True))
    wide = np.full(tuple(max(a, 0) + n + max(b, 0) for n, a, b in zip(spread, low, high, strict=True)), v, x.dtype)
    inner = tuple(slice(max(a, 0), max(a, 0) + n, i + 1) for n, a, i in zip(spread, low, interior, strict=True))
    wide[inner] = x
    return wide[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, a, b in zip(wide.shape, low, high, strict=True))]


def pad_operand_transpose(ct: Value, x: Operand, v: Operand, *, low: Sizes, high: Sizes, interior: Ints) -> Value:
    """The elements that came from `x`; zeros for those that negative padding removed."""
    cropped = pad.one(
        ct, zeros_of_type(ct, tensor_type(ct).reshaped()),
        low=tuple(-a for a in low), high=tuple(-b for b in high), interior=(0,) * tensor_type(x).rank,
    )  # fmt: skip
    steps = tuple(i + 1 for i in interior)
    return slice_.one(cropped, starts=(0,) * tensor_type(x).rank, stops=tensor_type(cropped).shape, steps=steps)


def pad_value_transpose(ct: Value, x: Operand, v: Operand, *, low: Sizes, high: Sizes, interior: Ints) -> Value:
    """The sum over the padding alone: subtracting the rest from the total would cancel."""
    inside = ct.home.const(False, Tensor(BOOL, tensor_type(x).shape))
    outside = pad.one(inside, ct.home.const(True, Tensor(BOOL)), low=low, high=high, interior=interior)
    kept = select.one(outside, ct, zeros_of_type(ct, ct.type))
    return reduce_sum.one(kept, axes=tuple(range(tensor_type(ct).rank)))


def pad_lower(jax: Jax, x: JaxArray, v: JaxArray, *, low: Ints, high: Ints, interior: Ints) -> JaxArray:
    """Elements are added, then removed: there is no code for the CPU that does both at once.

    What is added between elements XLA's partitioner puts in wrong places of an array that is split.
    """
    added = [(max(a, 0), max(b, 0), i) for a, b, i in zip(low, high, interior, strict=True)]
    spread = [a for a, count in enumerate(interior) if count]
    wide = whole_axes(jax, jax.lax.pad(whole_axes(jax, x, spread), v, added), spread)
    if min((*low, *high), default=0) >= 0:
        return wide
    stops = [n - max(-b, 0) for n, b in zip(wide.shape, high, strict=True)]
    return jax.lax.slice(wide, [max(-a, 0) for a in low], stops)


pad = linear_op(
    "pad",
    type=pad_type,
    transpose=(pad_operand_transpose, pad_value_transpose),
    traits=("data movement", "bit exact", "cheap"),
    batch_rule=along_new_axis(
        lambda n, low, high, interior: {"low": (0, *low), "high": (0, *high), "interior": (0, *interior)}
    ),
    reference=pad_reference,
    lower=pad_lower,
    samples=(
        OpExample(((2, 3), ()), {"low": (1, 0), "high": (0, 2), "interior": (0, 1)}),
        OpExample(((5,), ()), {"low": (-1,), "high": (-2,), "interior": (0,)}),
        OpExample(((4,), ()), {"low": (-2,), "high": (1,), "interior": (2,)}),
        OpExample(((6,), ()), {"low": (1,), "high": (-1,), "interior": (0,)}),
        OpExample(((0,), ()), {"low": (1,), "high": (1,), "interior": (3,)}),
        OpExample(((), ()), {"low": (), "high": (), "interior": ()}),
        OpExample(((1, 1), ()), {"low": (0, 0), "high": (0, 0), "interior": (1, 0)}),
    ),
    doc="""`x` with `v` before (`low`), after (`high`) and between (`interior`) its elements; negative `low` or `high`
    cuts elements off. Units: u, u -> u.""",
)
