"""Writes and additions at positions known at compile time become reads of the updates, and sums of them.

The derivative of reading `x[places]` with constant `places` adds each cotangent at its place, one after the other. If
no place has many more than others, it is a gather of the cotangents of each place and a sum of these: side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

import numpy as np

from difflang.ir.array_types import Array
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.arrays.constants import array_constant
from difflang.ops.arrays.gather_scatter import gather, scatter, scatter_add
from difflang.ops.arrays.shape_manipulation import broadcast, reshape
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.constant_integers import ConstantIntegers
from difflang.passes.graph_levels import EquationEmitter, replace_equations, rewrite_each_graph

MAX_READS = 2  # for each addition: a scatter costs several times what a gather costs
MAX_PLACES = 8  # for each write: before it, another scatter finds the last of several writes to one place


def scatters_to_gathers(graph: Graph) -> Graph:
    """Scatters to known positions as gathers, and sums of them, which may add in another order. Cost: linear."""
    return rewrite_each_graph(graph, read_constant_scatters)


def read_constant_scatters(graph: Graph) -> Graph:
    """One graph, whose regions have been rewritten."""
    found = [e for e in graph.eqns if e.op is scatter_add or e.op is scatter]
    facts = ConstantIntegers(graph)
    return replace_equations(graph, {e: emit for e in found if (emit := reads_instead(facts, e)) is not None})


def reads_instead(facts: ConstantIntegers, eqn: Eqn) -> EquationEmitter | None:
    """What emits the gathers in the place of a scatter, if its positions are known and that is cheaper."""
    places = flat_places(facts, eqn)
    if places is None:
        return None
    if eqn.op is scatter:
        last = last_writes(places.reshape(-1), addressed_size(eqn))
        return None if last is None else partial(emit_written, eqn, last)
    added = np.where(added_where(facts, eqn.operands[1], places.shape), places, -1)
    reads = reads_of_places(added.reshape(-1), addressed_size(eqn))
    return None if reads is None else partial(emit_sums, eqn, *reads, facts.is_zero(eqn.operands[0]))


def addressed_size(eqn: Eqn) -> int:
    """How many places the indices address, if these are the first axes."""
    shape = tensor_type(eqn.operands[0]).shape
    return prod([static_size(shape[a]) for a in eqn.attrs["axes"]])


def flat_places(facts: ConstantIntegers, eqn: Eqn) -> Array | None:
    """For each update the number of its place, or -1 if it is out of range; None if that is not known."""
    axes = eqn.attrs["axes"]
    if axes != tuple(range(len(axes))):
        return None
    indices = [i for v in eqn.operands[2:] if (i := facts.numbers(v)) is not None]
    if len(indices) < len(axes) or not indices[0].size:
        return None
    sizes = [static_size(n) for n in tensor_type(eqn.operands[0]).shape[: len(axes)]]
    inside = np.logical_and.reduce([(i >= 0) & (i < n) for i, n in zip(indices, sizes, strict=True)])
    flat = np.zeros(indices[0].shape, np.int64)
    for i, n in zip(indices, sizes, strict=True):
        flat = flat * n + i
    return np.where(inside, flat, -1)


def added_where(facts: ConstantIntegers, updates: Value, shape: tuple[int, ...]) -> Array:
    """Which items are added, of an array of them of a shape: not those that a known mask replaces by zeros."""
    everywhere = np.ones(shape, np.bool_)
    choice = facts.makers.get(updates)
    if choice is None or choice.op is not select or not facts.is_zero(choice.operands[2]):
        return everywhere
    spread = facts.makers.get(choice.operands[0])
    if spread is None or spread.op is not broadcast:
        mask = facts.numbers(choice.operands[0])
        return everywhere if mask is None else np.asarray(mask.any(axis=tuple(range(len(shape), mask.ndim))))
    # A mask that is the same for a whole item may be known where that of all elements would be too large.
    (mask,), axes = [facts.numbers(v) for v in spread.operands], spread.attrs["axes"]
    if mask is None or any(a >= len(shape) for a in axes) or mask.shape != tuple([shape[a] for a in axes]):
        return everywhere
    return np.broadcast_to(np.expand_dims(mask, [a for a in range(len(shape)) if a not in axes]), shape)


def reads_of_places(places: Array, count: int) -> tuple[Array, Array] | None:
    """For each place, in columns, the additions there, and which of them there are; None if that is too many."""
    order = np.argsort(places, kind="stable")
    order = order[np.searchsorted(places[order], 0) :]
    sizes = np.bincount(places[order], minlength=count)
    most = int(sizes.max(initial=0))
    if not most or most * count > MAX_READS * len(places):
        return None
    present = np.arange(most)[:, None] < sizes
    reads = np.zeros((most, count), np.int64)
    reads.T[present.T] = order
    return reads, present


def last_writes(places: Array, count: int) -> Array | None:
    """For each place the last update that is written there, or -1; None if most places keep what they have."""
    if count > MAX_PLACES * len(places):
        return None
    last = np.full(count, -1, np.int64)
    there = np.flatnonzero(places >= 0)
    np.maximum.at(last, places[there], there)
    return last


def emit_sums(
    eqn: Eqn, reads: Array, present: Array, starts_at_zero: bool, builder: Builder, env: Mapping[Value, Value]
) -> list[Value]:
    """The array with the updates of each place added."""
    x, updates = (env[v] for v in eqn.operands[:2])
    found = read_updates(builder, eqn, updates, reads)
    if not present.all():
        found = select.one(mask_of_places(builder, found, present), found, builder.const(0, found.type))
    added = reduce_sum.one(found, axes=(0,)) if len(reads) > 1 else found
    total = reshape.one(added, shape=tensor_type(x).shape)
    return [total if starts_at_zero else x + total]


def emit_written(eqn: Eqn, last: Array, builder: Builder, env: Mapping[Value, Value]) -> list[Value]:
    """The array with the last update of each place in it."""
    x, updates = (env[v] for v in eqn.operands[:2])
    found = read_updates(builder, eqn, updates, np.maximum(last, 0)[None])
    if last.min() < 0:
        before = reshape.one(x, shape=tensor_type(found).shape)
        found = select.one(mask_of_places(builder, found, (last >= 0)[None]), found, before)
    return [reshape.one(found, shape=tensor_type(x).shape)]


def read_updates(builder: Builder, eqn: Eqn, updates: Value, reads: Array) -> Value:
    """The updates with these numbers, a row of places for each row of numbers."""
    index = tensor_type(eqn.operands[2])
    kept = tensor_type(updates).shape[index.rank :]
    flat = reshape.one(updates, shape=(prod(map(static_size, index.shape)), *kept))
    if np.array_equal(reads, np.arange(static_size(tensor_type(flat).shape[0]))[None]):  # one for each place, in order
        return reshape.one(flat, shape=(1, *tensor_type(flat).shape))
    return gather.one(flat, array_constant(builder, reads, Tensor(I32, reads.shape)), axes=(0,))


def mask_of_places(builder: Builder, found: Value, present: Array) -> Value:
    mask = array_constant(builder, present, Tensor(BOOL, present.shape))
    return broadcast.one(mask, shape=tensor_type(found).shape, axes=(0, 1))
