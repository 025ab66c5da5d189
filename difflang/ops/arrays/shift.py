"""The op `shift`: elements move along an axis, and zeros come in. Of an array that is split over devices, each sends
its neighbour what leaves it: a halo exchange.
"""

from __future__ import annotations

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.op import NeighbourExchange, TypeSolver
from difflang.ir.tensor_types import BOOL, NUMBERS, Tensor
from difflang.ops.arrays.reshard import Split
from difflang.ops.device_regions import mesh_axes, on_each_device, part_of_neighbour, partition_spec
from difflang.ops.op_factories import OpExample, along_new_axis, linear_op


def shift_type(same: TypeSolver, x: Tensor, *, axis: int, by: int, split: Split) -> Tensor:
    same.accepts(x, (*NUMBERS, BOOL))
    same.require(0 <= axis < x.rank, "{} has no axis {}", x, axis)
    same.require(not split or len(split) == x.rank, "{} does not have {} axes", x, len(split))
    return x


def shift_reference(x: Array, *, axis: int, by: int, split: Split) -> Array:
    size = x.shape[axis]
    found = np.zeros_like(x)
    to, origin = [slice(None)] * x.ndim, [slice(None)] * x.ndim
    to[axis] = slice(max(-by, 0), max(size - max(by, 0), 0))
    origin[axis] = slice(max(by, 0), max(size - max(-by, 0), 0))
    found[tuple(to)] = x[tuple(origin)]
    return found


def shift_lower(jax: Jax, x: JaxArray, *, axis: int, by: int, split: Split) -> JaxArray:
    free = mesh_axes(jax)
    along = tuple([a for a in split[axis] if a in free]) if split else ()
    if not along:
        return shift_whole(jax, x, axis, by)

    def on_device(here: JaxArray) -> tuple[JaxArray, ...]:
        return (shift_between(jax, here, axis, by, along),)

    spec = partition_spec(jax, split, free)
    return on_each_device(jax, on_device, (x,), (spec,), (spec,))[0]


def shift_whole(jax: Jax, x: JaxArray, axis: int, by: int) -> JaxArray:
    """On one device."""
    zero = jax.lax.full((), np.zeros((), x.dtype))
    if abs(by) >= x.shape[axis]:
        return jax.lax.broadcast(zero, x.shape)
    left, right = max(by, 0), max(-by, 0)
    kept = jax.lax.slice_in_dim(x, left, x.shape[axis] - right, axis=axis)
    return jax.lax.pad(kept, zero, [(right, left, 0) if a == axis else (0, 0, 0) for a in range(x.ndim)])


def shift_between(jax: Jax, here: JaxArray, axis: int, by: int, along: tuple[str, ...]) -> JaxArray:
    """What a device has afterwards: what stays of the device `by // size` further on, and what leaves the next one."""
    far, rest = divmod(by, here.shape[axis])
    parts: list[JaxArray] = []
    for distance, begin, end in ((far, rest, here.shape[axis]), (far + 1, 0, rest)):
        if begin == end:
            continue
        part = jax.lax.slice_in_dim(here, begin, end, axis=axis)
        parts.append(part_of_neighbour(jax, part, along, distance) if distance else part)
    return parts[0] if len(parts) == 1 else jax.lax.concatenate(parts, axis)


shift = linear_op(
    "shift",
    type=shift_type,
    transpose=(lambda ct, x, axis, by, split: shift.one(ct, axis=axis, by=-by, split=split),),
    reference=shift_reference,
    lower=shift_lower,
    accepts=(*NUMBERS, BOOL),
    movement=NeighbourExchange(lambda axis, by, split: (axis, by)),
    batch_rule=along_new_axis(
        lambda n, axis, by, split: {"axis": axis + 1, "by": by, "split": ((), *split) if split else ()}
    ),
    samples=(
        OpExample(((5,),), {"axis": 0, "by": 2, "split": ()}),
        OpExample(((4, 3),), {"axis": 0, "by": -1, "split": (("rows",), ())}),
        OpExample(((2, 3),), {"axis": 1, "by": 4, "split": ()}),
    ),
    doc="""The elements `by` further on along an axis, and zeros where there are none. The array is split over devices
    as `split`. Units: u -> u. Kinks: none.""",
    traits=("data movement", "disjoint transpose", "bit exact", "cheap"),
)
