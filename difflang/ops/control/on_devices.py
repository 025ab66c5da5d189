"""The op `on_devices`: one equation that each device of a mesh computes by itself, of its parts of the operands.

XLA's partitioner finds no good way to look up or to write items of an array that is split, to go along one axis of
several, or to factor a batch of matrices, and some convolutions it computes wrong. Here a device looks for items in its
own part; one of them has what is read, and the others zeros. For a convolution neighbours send each other halos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from difflang.ir.array_types import Jax, JaxArray
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import OPS, EquationRules, Op, RegionRules, TypeSolver
from difflang.ir.tensor_types import Tensor, Type
from difflang.ops.ad_interface import require_same_types
from difflang.ops.arrays.gather_scatter import dynamic_slice, dynamic_update, gather, scatter, scatter_add
from difflang.ops.arrays.reshard import Along, Split
from difflang.ops.arrays.scatter_reductions import scatter_max, scatter_min, scatter_mul
from difflang.ops.arrays.shape_manipulation import slice_
from difflang.ops.arrays.swap_item import swap_item, swap_window
from difflang.ops.control.call import jvp, linearize, transpose
from difflang.ops.device_regions import mesh_here, on_each_device, part_of_neighbour, partition_spec
from difflang.ops.op_factories import tensor_type
from difflang.ops.region_interface import Evaluate, ReferenceValue, RegionLowering, region_to_dataflow
from difflang.ops.signal.convolution import conv, conv_sums

READS = (slice_, dynamic_slice, gather, swap_item, swap_window)  # what they find in each part of an array is added
WRITES = (dynamic_update, swap_item, swap_window)
SCATTERS = (scatter, scatter_add, scatter_mul, scatter_min, scatter_max)
LOOKS_UP = (gather, *SCATTERS)
IN_PARTS = frozenset((*READS, *WRITES, *SCATTERS))
Splits = tuple[Split, ...]
Sizes = tuple[tuple[str, Split], ...]  # how sizes in attributes are split, by attribute


def window_shape(eqn: Eqn) -> tuple[Any, ...]:
    """The shape of what an equation reads or writes of its first operand at once, axis by axis."""
    x, attrs = tensor_type(eqn.operands[0]), eqn.attrs
    if eqn.op is slice_:
        return tuple([b - a for a, b in zip(attrs["starts"], attrs["stops"], strict=True)])
    if eqn.op is dynamic_slice:
        return tuple(attrs["sizes"])
    if eqn.op in (dynamic_update, swap_window):
        return tensor_type(eqn.operands[1]).shape
    if eqn.op is swap_item:
        return (1, *x.shape[1:])
    return tuple([1 if a in indexed_axes(eqn) else n for a, n in enumerate(x.shape)])


def cut_axes(eqn: Eqn, split: Split) -> list[int]:
    """The split axes of the first operand of which an equation reads or writes a part."""
    if eqn.op not in IN_PARTS:
        return []
    looks_up = indexed_axes(eqn) if eqn.op in LOOKS_UP else ()
    sizes = zip(window_shape(eqn), tensor_type(eqn.operands[0]).shape, split, strict=True)
    return [a for a, (m, n, along) in enumerate(sizes) if along and (m != n or a in looks_up)]


def indexed_axes(eqn: Eqn) -> list[int]:
    """The axes of the first operand that are looked up."""
    counted = dict(eqn.attrs.get("positions", ()))
    return [a for k, a in enumerate(eqn.attrs["axes"]) if k not in counted]


# ---- On a device


class Part:
    """What a device has of the first operand of an equation, which reads or writes items along some split axes."""

    def __init__(
        self, lowering: RegionLowering, eqn: Eqn, x: JaxArray, splits: tuple[Splits, Splits, Sizes], mesh: Any
    ) -> None:
        self.lowering, self.eqn, self.x, self.splits, self.mesh = lowering, eqn, x, splits, mesh
        self.lax, self.shape = lowering.jax.lax, tensor_type(eqn.operands[0]).shape
        self.axes = cut_axes(eqn, splits[0][0])
        counted = eqn.attrs["axes"] if eqn.op in LOOKS_UP else ()
        # Where the part begins.
        self.first = {
            a: self.lax.axis_index(along) * x.shape[a]
            for a, along in enumerate(splits[0][0])
            if along and (a in self.axes or a in counted)
        }

    def results(self, *others: JaxArray) -> list[JaxArray]:
        """The results of the equation: of what it reads, what the device has, and zero elsewhere."""
        lax, op, attrs = self.lax, self.eqn.op, self.eqn.attrs
        if op is slice_:
            found = self.window([lax.full((), np.int32(a)) for a in attrs["starts"]])
            return [lax.slice(found, (0,) * found.ndim, found.shape, attrs["steps"])]
        if op is dynamic_slice:
            return [self.window(others)]
        if op is dynamic_update:
            return [self.with_window(*others)]
        if op is swap_window:
            return [self.with_window(*others), self.window(others[1:])]
        if op is swap_item:
            starts = [others[0], *[lax.full((), np.int32(0))] * (self.x.ndim - 1)]
            item = lax.expand_dims(others[1], (0,))
            return [self.with_window(item, *starts), lax.squeeze(self.window(starts), (0,))]
        if op is gather:
            return [self.items(others)]
        return self.local(self.x, others[0], *self.local_indices(others[1:]))

    # A window may begin before the part or end after it: as many elements as it has are added on each side.

    def window(self, starts: Sequence[JaxArray]) -> JaxArray:
        return self.lax.dynamic_slice(
            self.padded(), self.local_starts(starts), self.window_sizes(), allow_negative_indices=False
        )

    def with_window(self, update: JaxArray, *starts: JaxArray) -> JaxArray:
        at = self.local_starts(starts)
        wide = self.lax.dynamic_update_slice(self.padded(), update, at, allow_negative_indices=False)
        low = [m if a in self.axes else 0 for a, m in enumerate(self.window_sizes())]
        return self.lax.slice(wide, low, [a + n for a, n in zip(low, self.x.shape, strict=True)])

    def padded(self) -> JaxArray:
        wide = [(m, m, 0) if a in self.axes else (0, 0, 0) for a, m in enumerate(self.window_sizes())]
        return self.lax.pad(self.x, np.zeros((), self.x.dtype), wide)

    def window_sizes(self) -> list[int]:
        pairs = zip(window_shape(self.eqn), self.x.shape, strict=True)
        return [m if a in self.axes else min(m, n) for a, (m, n) in enumerate(pairs)]

    def local_starts(self, starts: Sequence[JaxArray]) -> list[JaxArray]:
        lax, found = self.lax, list[JaxArray]()
        for a, (start, m, n) in enumerate(zip(starts, window_shape(self.eqn), self.shape, strict=True)):
            type = start.dtype.type
            start = lax.clamp(type(0), start, type(n - m))
            if a in self.axes:
                begin = start - self.first[a].astype(start.dtype) + type(m)
                start = lax.clamp(type(0), begin, type(m + self.x.shape[a]))
            found.append(start)
        return found

    def items(self, indices: Sequence[JaxArray]) -> JaxArray:
        lax, axes = self.lax, self.eqn.attrs["axes"]
        limits = [self.shape[a] for a in axes]
        valid = [lax.clamp(i.dtype.type(0), i, i.dtype.type(n - 1)) for i, n in zip(indices, limits, strict=True)]
        here = self.local_indices(valid)
        (found,) = self.local(self.x, *here)
        cut = [(i, self.x.shape[a]) for i, a in zip(here, axes, strict=True) if a in self.axes]
        if not cut:
            return found
        inside = reduce(lax.bitwise_and, [(i >= 0) & (i < n) for i, n in cut])
        return lax.select(lax.broadcast_in_dim(inside, found.shape, range(inside.ndim)), found, lax.full_like(found, 0))

    def local_indices(self, indices: Sequence[JaxArray]) -> list[JaxArray]:
        pairs = zip(indices, self.eqn.attrs["axes"], strict=True)
        return [i - self.first[a].astype(i.dtype) if a in self.first else i for i, a in pairs]

    def convolved(self, kernel: JaxArray, along: Along) -> JaxArray:
        """Of an image that has, along axes of space that are split, what neighbours have there in place of padding.

        What devices have shares of is added over the mesh before it is rounded.
        """
        jax, x, padding = self.lowering.jax, self.x, list(self.eqn.attrs["padding"])
        for axis, margins in enumerate(padding, 1):
            if split := self.splits[0][0][axis]:
                x = with_halo(jax, x, axis, margins, split)
                padding[axis - 1] = (0, 0)
        attrs: dict[str, Any] = {**self.eqn.attrs, "padding": tuple(padding)}
        result = conv_sums(jax, x, kernel, **attrs)
        return jax.lax.convert_element_type(jax.lax.psum(result, along) if along else result, x.dtype)

    def local(self, *arrays: JaxArray) -> list[JaxArray]:
        """The results of the equation with the types that it has on a device."""
        eqn, sizes = self.eqn, self.mesh.shape
        given, found, of_attrs = self.splits
        operands = tuple([local_value(v, s, sizes) for v, s in zip(eqn.operands, given, strict=True)])
        results = tuple([local_value(v, s, sizes) for v, s in zip(eqn.results, found, strict=True)])
        attrs = {name: local_shape(eqn.attrs[name], split, sizes) for name, split in of_attrs}
        if eqn.op is slice_:
            attrs["stops"] = tuple([min(n, m) for n, m in zip(eqn.attrs["stops"], self.x.shape, strict=True)])
        local = Eqn(eqn.op, operands, results, {**eqn.attrs, **attrs}, (), eqn.span)
        return self.lowering.graph(Graph(operands, (local,), results), *arrays)


def with_halo(jax: Jax, x: JaxArray, axis: int, widths: tuple[int, int], along: Along) -> JaxArray:
    """A part with the last elements of the one before, and the first ones of the one after; zeros at the ends."""
    lax, (low, high), size = jax.lax, widths, x.shape[axis]
    before = lax.slice_in_dim(x, size - low, size, axis=axis)
    after = lax.slice_in_dim(x, 0, high, axis=axis)
    ends = [part_of_neighbour(jax, part, along, way) if part.size else part for part, way in ((before, -1), (after, 1))]
    return lax.concatenate([ends[0], x, ends[1]], axis)


def local_value(value: Value, split: Split, sizes: Mapping[str, int]) -> Value:
    type = tensor_type(value)
    return Value(Tensor(type.dtype, local_shape(type.shape, split, sizes)), value.home)


def local_shape(shape: Sequence[Any], split: Split, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple([n // prod([sizes[a] for a in along]) for n, along in zip(shape, split, strict=True)])


def sum_of_bits(jax: Jax, x: JaxArray, along: Along) -> JaxArray:
    """What one of the devices has where the others have zeros: the sum of the bits, since -0.0 + 0.0 is 0.0."""
    lax = jax.lax
    if x.dtype.kind == "c":
        pair = lax.concatenate([lax.expand_dims(part, (0,)) for part in (lax.real(x), lax.imag(x))], 0)
        found = sum_of_bits(jax, pair, along)
        return lax.complex(found[0], found[1])
    if x.dtype == np.bool_:
        return lax.psum(x.astype(np.uint8), along).astype(np.bool_)
    bits = np.dtype(f"u{x.dtype.itemsize}")
    return lax.bitcast_convert_type(lax.psum(lax.bitcast_convert_type(x, bits), along), x.dtype)


# ---- The op


def on_devices_type(
    same: TypeSolver,
    *types: Type,
    regions: tuple[Graph],
    name: str,
    given: Splits,
    found: Splits,
    summed: Along,
    sizes: Sizes,
) -> tuple[Type, ...]:
    params, results = regions[0].type
    require_same_types(same, "on_devices", types, params)
    return results


def on_devices_reference(
    evaluate: Evaluate, *arrays: ReferenceValue, regions: tuple[Graph], name: str, given: Splits, found: Splits,
    summed: Along, sizes: Sizes,
) -> list[ReferenceValue]:  # fmt: skip
    return evaluate(regions[0], *arrays)


def on_devices_lower(
    lowering: RegionLowering, *arrays: JaxArray, regions: tuple[Graph], name: str, given: Splits, found: Splits,
    summed: Along, sizes: Sizes,
) -> Sequence[JaxArray]:  # fmt: skip
    jax = lowering.jax
    mesh, free = mesh_here(jax)
    if not free:
        return lowering.graph(regions[0], *arrays)
    (eqn,) = regions[0].eqns
    given, found = [tuple([free_axes(split, free) for split in splits]) for splits in (given, found)]
    known = tuple([(attr, free_axes(split, free)) for attr, split in sizes])
    along = tuple([a for a in summed if a in free and mesh.shape[a] > 1])

    def on_device(*parts: JaxArray) -> tuple[JaxArray, ...]:
        part = Part(lowering, eqn, parts[0], (given, found, known), mesh)
        if eqn.op is conv:
            return (part.convolved(parts[1], along),)
        results = part.results(*parts[1:]) if part.first else part.local(*parts)
        return (*results[:-1], sum_of_bits(jax, results[-1], along)) if along else tuple(results)

    specs = [[partition_spec(jax, split, free) for split in splits] for splits in (given, found)]
    return list(on_each_device(jax, on_device, arrays, specs[0], tuple(specs[1])))


def free_axes(split: Split, free: frozenset[str]) -> Split:
    return tuple([tuple([a for a in along if a in free]) for along in split])


on_devices = OPS.declare(
    Op(
        "on_devices",
        on_devices_type,
        on_devices_reference,
        on_devices_lower,
        derivative=EquationRules(linearize=linearize, jvp=jvp, transpose=transpose),
        regions=RegionRules(region_to_dataflow),
        doc="""on_devices(*operands) {one equation}: its results. On a mesh each device computes it of its parts of the
        operands, which are split as `given`, and has its parts of results that are split as `found`; of the last result
        the sum over the axes `summed`.""",
    )
)
