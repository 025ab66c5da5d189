"""What each device computes of its parts of an op's operands is its part of the results, or its share of their sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from difflang.gradcheck.op_calls import OpCall, calls_of
from difflang.ir.array_types import Array
from difflang.ir.op import Op
from difflang.ir.tensor_types import BOOL, F64, I32
from difflang.ops.arrays.reshard import Split
from difflang.ops.control.on_devices import cut_axes, local_shape
from difflang.ops.op_factories import static_size
from difflang.sharding.convolution_halos import Halos, halos
from difflang.sharding.mesh_splits import MeshSplits
from support.op_calls import DRAWN


def splits_of(shapes: Sequence[tuple[int, ...]], count: int) -> Iterator[list[Split]]:
    """Splits over devices of one axis of an operand, and of one axis of each of two, that they divide."""
    axes = [(k, i) for k, shape in enumerate(shapes) for i, n in enumerate(shape) if n and n % count == 0]
    for chosen in ({one, other} for one, other in product(axes, axes) if one == other or one[0] < other[0]):
        yield [tuple([("a",) if (k, i) in chosen else () for i in range(len(s))]) for k, s in enumerate(shapes)]


def part(array: Array, split: Split, device: int, count: int) -> Array:
    """The part of an array that a device has."""
    for axis, along in enumerate(split):
        array = np.split(array, count, axis)[device] if along else array
    return array


def with_halos(image: Array, split: Split, widths: Halos, device: int, count: int) -> Array:
    """The part of an image that a device has, with what its neighbours send it."""
    for axis, along in enumerate(split):
        if along and axis in widths:
            low, high = map(static_size, widths[axis])
            size = image.shape[axis] // count
            wide = np.pad(image, [(low, high) if a == axis else (0, 0) for a in range(image.ndim)])
            image = wide.take(range(device * size, (device + 1) * size + low + high), axis)
    return part(image, tuple([() if a in widths else along for a, along in enumerate(split)]), device, count)


def check_parts(call: OpCall, given: Sequence[Split], count: int) -> None:
    mesh = {"a": count}
    splits, graph = MeshSplits(mesh), call.graph()
    found, eqn = splits.of_graph(graph, given), graph.eqns[-1]
    if splits.on_devices.get(eqn) is None or cut_axes(eqn, splits.taken[eqn][0]):
        return  # left to XLA, or windows and items that each device looks for in its part
    sizes: dict[str, Any] = {name: local_shape(call.attrs[name], split, mesh) for name, split in splits.sizes[eqn]}
    first, *others = splits.taken[eqn]
    if widths := halos(eqn):
        margins = enumerate(call.attrs["padding"], 1)
        sizes["padding"] = tuple([(0, 0) if axis in widths and first[axis] else margin for axis, margin in margins])
    devices: list[list[Array]] = []
    for device in range(count):
        arrays = [
            with_halos(call.arrays[0], first, widths, device, count),
            *[part(x, split, device, count) for x, split in zip(call.arrays[1:], others, strict=True)],
        ]
        devices.append(replace(call, attrs={**call.attrs, **sizes}).references(*arrays))
    summed = bool(splits.on_devices[eqn])
    for want, split, parts in zip(call.references(), found, zip(*devices, strict=True), strict=True):
        for device, got in enumerate(parts):
            share = sum(parts) if summed else got
            np.testing.assert_allclose(share, part(want, split, device, count), rtol=1e-9, err_msg=f"{call} of {given}")


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("op", [op for op in DRAWN if not op.effect], ids=str)
def test_a_device_computes_its_part_of_the_results(op: Op, count: int) -> None:
    for call in calls_of(op, (F64, I32, BOOL)):
        for given in splits_of([x.shape for x in call.arrays], count):
            check_parts(call, given, count)
