"""Additions at positions known at compile time become sums of what is read there.

The derivative of reading `x[places]` with constant `places` adds each cotangent at its place, one after the other. If
no place has many more than others, it is a gather of the cotangents of each place and a sum of these: side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from difflang.ir.array_types import Array
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.arrays.constants import array_constant
from difflang.ops.arrays.gather_scatter import gather, scatter_add
from difflang.ops.arrays.shape_manipulation import broadcast, reshape
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.constant_integers import ConstantIntegers
from difflang.passes.graph_levels import rewrite_graphs

MAX_READS = 2  # for each addition: a scatter costs several times what a gather costs


def scatters_to_gathers(graph: Graph) -> Graph:
    """Scattered additions of known positions as gathers and sums, which may add in another order. Cost: linear."""
    return rewrite_graphs(graph, read_constant_scatters)


def read_constant_scatters(graph: Graph) -> Graph:
    """One graph, whose regions have been rewritten."""
    if not any([e.op is scatter_add for e in graph.eqns]):
        return graph
    facts, builder, changed = ConstantIntegers(graph), Builder(), False
    env = {p: builder.param(p.type, p.hint) for p in graph.params}
    for eqn in graph.eqns:
        operands = tuple([env[v] for v in eqn.operands])
        places = flat_places(facts, eqn) if eqn.op is scatter_add else None
        reads = None if places is None else reads_of_places(places, addressed_size(eqn))
        builder.span = eqn.span
        if reads is None:
            results = builder.copy(eqn, operands)
        else:
            changed = True
            results = (sum_of_reads(operands, *reads, starts_at_zero=facts.is_zero(eqn.operands[0])),)
        env.update(zip(eqn.results, results, strict=True))
    return builder.finish([env[r] for r in graph.results], name=graph.name) if changed else graph


def addressed_size(eqn: Eqn) -> int:
    """How many places the indices address, if these are the first axes."""
    shape = tensor_type(eqn.operands[0]).shape
    return prod([static_size(shape[a]) for a in eqn.attrs["axes"]])


def flat_places(facts: ConstantIntegers, eqn: Eqn) -> Array | None:
    """For each addition the number of its place, or -1 if it is out of range; None if that is not known."""
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
    return np.where(inside & added_where(facts, eqn.operands[1], flat.shape), flat, -1).reshape(-1)


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


def sum_of_reads(operands: Sequence[Value], reads: Array, present: Array, *, starts_at_zero: bool) -> Value:
    """The array with the updates of each place added."""
    x, updates = operands[:2]
    home, index = x.home, tensor_type(operands[2])
    kept = tensor_type(updates).shape[index.rank :]
    flat = reshape.one(updates, shape=(prod(map(static_size, index.shape)), *kept))
    if np.array_equal(reads, np.arange(static_size(tensor_type(flat).shape[0]))[None]):  # one for each place, in order
        found = reshape.one(flat, shape=(1, *tensor_type(flat).shape))
    else:
        found = gather.one(flat, array_constant(home, reads, Tensor(I32, reads.shape)), axes=(0,))
    if not present.all():
        mask = array_constant(home, present, Tensor(BOOL, present.shape))
        mask = broadcast.one(mask, shape=tensor_type(found).shape, axes=(0, 1))
        found = select.one(mask, found, home.const(0, found.type))
    added = reduce_sum.one(found, axes=(0,)) if len(reads) > 1 else found
    total = reshape.one(added, shape=tensor_type(x).shape)
    return total if starts_at_zero else x + total
