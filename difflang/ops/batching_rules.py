"""Batching rules: how slices, updates, gathers, scatters and dot products run for all instances of a map at once.

A batching rule takes an equation of the map's body, the mask of its batched operands, and the batch size. It returns a
function of the operands, batched ones with the batch axis in front, or `None` where a loop does better. Its result has
the batch axis in front and equals what the instances compute, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from difflang.ir.graph import Eqn, Value
from difflang.ir.op import OPS
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import Tensor
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import remaining_axes, tensor_type

Mask = tuple[bool, ...]
Ints = tuple[int, ...]
Sizes = tuple[Dim, ...]
BatchedFunction = Callable[..., Value]


def broadcast_over_batch(x: Value, count: Dim) -> Value:
    """An unbatched value, broadcast along the batch axis."""
    shape = (count, *tensor_type(x).shape)
    return OPS["broadcast"].one(x, shape=shape, axes=tuple(range(1, len(shape))))


def broadcast_all(values: Sequence[Value], wide: Mask, count: Dim) -> list[Value]:
    return [x if w else broadcast_over_batch(x, count) for x, w in zip(values, wide, strict=True)]


def transpose_axes(x: Value, perm: Ints) -> Value:
    return x if perm == tuple(range(len(perm))) else OPS["transpose"].one(x, perm=perm)


def batch_axis_to_front(x: Value, axis: int) -> Value:
    return transpose_axes(x, (axis, *[a for a in range(tensor_type(x).rank) if a != axis]))


def iota_like(like: Value, shape: Sizes, axis: int) -> Value:
    """Positions along an axis, in the integer type of other positions."""
    (positions,) = like.home.emit(OPS["iota"], (), type=Tensor(tensor_type(like).dtype, shape), axis=axis)
    return positions


def clamp_index(start: Value, last: Dim) -> Value:
    """Start positions, clamped so that no window leaves the array."""
    least, most = (start.home.one("const", value=v, type=start.type) for v in (0, last))
    return OPS["clamp"].one(least, start, most)


# ---- Dynamic slices


def batch_slice(eqn: Eqn, wide: Mask, count: Dim) -> BatchedFunction | None:
    """One window per instance: a gather of positions along the axes that the window does not span."""
    shape, sizes = tensor_type(eqn.operands[0]).shape, eqn.attrs["sizes"]
    cut = [a for a, (whole, size) in enumerate(zip(shape, sizes, strict=True)) if whole != size]
    lead = int(wide[0])

    def shared_starts(x: Value, *starts: Value) -> Value:
        zero = x.home.one("const", value=0, type=Tensor(tensor_type(starts[0]).dtype))
        at = [start if a in cut else zero for a, start in enumerate(starts)]
        return OPS["dynamic_slice"].one(x, zero, *at, sizes=(count, *sizes))

    def gather_windows(x: Value, *starts: Value) -> Value:
        own = broadcast_all([starts[a] for a in cut], tuple([wide[1 + a] for a in cut]), count)
        long = [a for a in cut if sizes[a] != 1]
        grid = (count, *[sizes[a] for a in long])
        places = [iota_like(own[0], grid, 0)] if lead else []
        for axis, start in zip(cut, own, strict=True):
            if axis in long:
                start = OPS["broadcast"].one(clamp_index(start, shape[axis] - sizes[axis]), shape=grid, axes=(0,))
                places.append(start + iota_like(start, grid, 1 + long.index(axis)))
            else:
                places.append(OPS["broadcast"].one(start, shape=grid, axes=(0,)))
        axes = (*range(lead), *[a + lead for a in cut])
        found = OPS["gather"].one(x, *places, axes=axes)
        made = (*long, *remaining_axes(len(shape), tuple(cut)))
        found = transpose_axes(found, (0, *[1 + made.index(a) for a in sorted(made)]))
        return OPS["reshape"].one(found, shape=(count, *sizes))

    if not any(wide[1 + a] for a in cut):
        return shared_starts if lead and cut else (lambda x, *_: x) if lead else None
    return gather_windows


def batch_update(eqn: Eqn, wide: Mask, count: Dim) -> BatchedFunction | None:
    """One window at a place that all instances share; or one element of each, written to a shared array: a select.

    A shared array is copied for each instance in any case. `None` for places that differ in a batched array, which is
    updated in place, and for a window of several positions along part of an axis.
    """
    x, update = tensor_type(eqn.operands[0]), tensor_type(eqn.operands[1])

    def update_all(*operands: Value) -> Value:
        array, values = broadcast_all(operands[:2], wide[:2], count)
        zero = array.home.one("const", value=0, type=Tensor(tensor_type(operands[2]).dtype))
        return OPS["dynamic_update"].one(array, values, zero, *operands[2:])

    if wide[2:] and not any(wide[2:]):
        return update_all
    axes = [a for a, (whole, size) in enumerate(zip(x.shape, update.shape, strict=True)) if whole != size]
    if wide[0] or any(update.shape[a] != 1 for a in axes):
        return None

    def select_updated(*operands: Value) -> Value:
        x, update, *starts = broadcast_all(operands, wide, count)
        shape = tensor_type(x).shape
        value = OPS["broadcast"].one(update, shape=shape, axes=tuple(range(len(shape))))
        here = [updated_position_mask(starts[a], a + 1, shape) for a in axes]
        return select.one(reduce(OPS["logical_and"].one, here), value, x) if here else value

    return select_updated


def updated_position_mask(start: Value, axis: int, shape: Sizes) -> Value:
    """Where along an axis each instance writes."""
    place = clamp_index(start, shape[axis] - 1)
    return OPS["eq"].one(iota_like(start, shape, axis), OPS["broadcast"].one(place, shape=shape, axes=(0,)))


# ---- Gather and scatter


def batch_gather(eqn: Eqn, wide: Mask, count: Dim) -> BatchedFunction:
    """More indices; for a batched array the position in the batch comes first."""
    axes: Ints = eqn.attrs["axes"]

    def gathered(x: Value, *indices: Value) -> Value:
        if not any(wide[1:]):
            found = OPS["gather"].one(x, *indices, axes=tuple([a + 1 for a in axes]))
            return batch_axis_to_front(found, tensor_type(indices[0]).rank)
        places = broadcast_all(indices, wide[1:], count)
        if not wide[0]:
            return OPS["gather"].one(x, *places, axes=axes)
        instances = iota_like(places[0], tensor_type(places[0]).shape, 0)
        return OPS["gather"].one(x, instances, *places, axes=(0, *[a + 1 for a in axes]))

    return gathered


def batch_scatter(eqn: Eqn, wide: Mask, count: Dim) -> BatchedFunction:
    """Into batched arrays: the position in the batch comes first."""

    def scatter_batch(*operands: Value) -> Value:
        x, updates, *places = broadcast_all(operands, wide, count)
        instances = iota_like(places[0], tensor_type(places[0]).shape, 0)
        return eqn.op.one(x, updates, instances, *places, axes=(0, *[a + 1 for a in eqn.attrs["axes"]]))

    return scatter_batch


# ---- Dot products


def batch_dot(eqn: Eqn, wide: Mask, count: Dim) -> BatchedFunction:
    """One more batch axis, or one more free axis of the only batched operand."""
    (xc, yc), (xb, yb) = eqn.attrs["contract"], eqn.attrs["batch"]
    x_left, y_left = (
        len(remaining_axes(tensor_type(v).rank, (*c, *b)))
        for v, c, b in zip(eqn.operands, (xc, yc), (xb, yb), strict=True)
    )

    def shift_axes(axes: Ints) -> Ints:
        return tuple([a + 1 for a in axes])

    def product(x: Value, y: Value) -> Value:
        dot = OPS["dot_general"].one
        if all(wide):
            batch = (0, *shift_axes(xb)), (0, *shift_axes(yb))
            return dot(x, y, contract=(shift_axes(xc), shift_axes(yc)), batch=batch)
        if wide[0]:
            return batch_axis_to_front(dot(x, y, contract=(shift_axes(xc), yc), batch=(shift_axes(xb), yb)), len(xb))
        if not y_left:
            return batch_axis_to_front(dot(y, x, contract=(shift_axes(yc), xc), batch=(shift_axes(yb), xb)), len(xb))
        return batch_axis_to_front(
            dot(x, y, contract=(xc, shift_axes(yc)), batch=(xb, shift_axes(yb))), len(xb) + x_left
        )

    return product
