"""Tiling: large arrays that are soon summed are computed tile by tile, in a loop over one of their axes.

A program that sums a function of all pairs writes every pair to memory and reads it back; its derivative does so many
times. In a loop over slices of a long axis, what a step computes stays in the cache. The step is a checkpoint: reverse
mode saves nothing of it and computes each tile again.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import Tensor
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.loop.min_cut_residuals import contraction_size
from difflang.ops.loop.residual_selection import total_bytes
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.graph_levels import rewrite_levels
from difflang.passes.reductions.axis_labels import REDUCTIONS
from difflang.passes.reductions.tile_plan import TilePlan, TileWalk
from difflang.passes.reductions.tiled_loop import TiledLoop

# An array of this size is worth a loop: half of a common second-level cache. Smaller ones stay there by themselves.
MIN_BYTES = 1 << 20
# The same where reverse mode computes products again: up to here they are read sooner from the third-level cache. Of 4
# and 7 MB a gradient of attention takes 1.8 times as long in tiles, of mixtures 1.2 times; of 20 MB as long, and half.
MIN_BYTES_OF_PRODUCTS = 1 << 23
# The largest array of a tile. Several of them are live at once, and should fit in the cache together.
TILE_BYTES = 1 << 19
MIN_TILES = 3  # below, tiles save little memory
# How much larger the array must be than what goes in and out of all steps.
LEAST_GROWTH = 3
# How much more a tile must hold than what all steps share: each step adds to the cotangents of that.
CONSTS_PER_TILE = 2
# Elementwise arrays may be this much larger than those that are surely written: most are fused with what reads them.
FUSED_PER_WRITTEN = 8
# The longest contraction to compute again: up to here two layers of a network still gain (a gradient of 6.7 instead of
# 8.6 ms); a longer one takes more time than reading its result from memory.
MAX_CONTRACTION = 256
MAX_SEEDS = 4  # arrays of a graph from which a loop is tried
MAX_LOOPS = 4  # that one graph becomes


def tile(graph: Graph) -> Graph:
    """Compute large arrays that are reduced in tiles; sums are added in another order. Cost: linear.

    Not in maps, whose instances run side by side. Sizes must be numbers.
    """
    return rewrite_levels(graph, tile_repeatedly)


def tile_repeatedly(graph: Graph, differentiated: bool) -> Graph:
    """One graph, each of whose largest arrays becomes a loop of its own."""
    for _ in range(MAX_LOOPS):
        before, graph = graph, tile_level(graph, differentiated)
        if graph is before:
            break
    return graph


def tile_level(graph: Graph, differentiated: bool) -> Graph:
    """One graph, whose regions have been rewritten."""
    if graph.effectful:
        return graph
    large = [e.results[0] for e in graph.eqns if is_written(e, differentiated) and is_large(e.results[0])]
    for seed in sorted(large, key=lambda v: total_bytes([v]), reverse=True)[:MAX_SEEDS]:
        for axis in sorted(range(tensor_type(seed).rank), key=lambda a: -static_size(tensor_type(seed).shape[a])):
            plan = TileWalk(graph).plan(seed, axis)
            if plan is not None and (size := tile_size(plan, differentiated)) is not None:
                return TiledLoop(plan, size, differentiated).emit(graph)
    return graph


# Ops whose results XLA writes to memory, unless what reads them is fused in.
MATERIALIZED = {*REDUCTIONS, dot_general}


def is_written(eqn: Eqn, differentiated: bool) -> bool:
    """Whether an array is written to memory; derivatives keep those of elementwise operations."""
    return eqn.op in MATERIALIZED or (differentiated and eqn.op.elementwise)


def is_large(value: Value) -> bool:
    type = value.type
    return isinstance(type, Tensor) and all([isinstance(n, int) for n in type.shape]) and type.bytes >= MIN_BYTES


def tile_size(plan: TilePlan, differentiated: bool) -> int | None:
    """How many positions a step takes; None if a loop does not pay."""
    made = [e for e, axis, _ in plan.steps if axis >= 0]
    largest = largest_bytes([e for e in made if is_written(e, differentiated)])
    moved = total_bytes([p.value for p in (*plan.sliced, *plan.stacked)])
    products = [e for e in made if e.op is dot_general] if differentiated else []
    least = MIN_BYTES_OF_PRODUCTS if products else MIN_BYTES
    if largest < least or LEAST_GROWTH * moved > largest or not (differentiated or rereads(plan)):
        return None
    if any([contraction_size(e) > MAX_CONTRACTION for e in products]):
        return None
    surely = largest_bytes([e for e in made if e.op in MATERIALIZED])
    row = max(surely, largest / FUSED_PER_WRITTEN) / plan.length
    shared = total_bytes(plan.consts) if differentiated else 0
    size = ceil(max(TILE_BYTES, CONSTS_PER_TILE * shared) / row)
    return None if size * MIN_TILES > plan.length else nearby_divisor(plan.length, size)


def largest_bytes(eqns: Iterable[Eqn]) -> int:
    return max([total_bytes(e.results) for e in eqns], default=0)


def rereads(plan: TilePlan) -> bool:
    """Whether an array is in memory even where nothing is differentiated: a product, one that is read twice, or one
    that is reduced again.
    """
    readers: dict[Value, set[Eqn]] = {}
    summed: set[Value] = set()  # large sums, and what is computed from them elementwise
    for eqn, axis, operands in plan.steps:
        if any([at.value in summed for at in operands]):
            if eqn.op in REDUCTIONS:
                return True
            summed.update(eqn.results if eqn.op.elementwise else ())
        if axis >= 0 and eqn.op in MATERIALIZED and is_large(eqn.results[0]):
            summed.add(eqn.results[0])
        for at in operands:
            readers.setdefault(at.value, set()).add(eqn)
    large = [e for e, axis, _ in plan.steps if axis >= 0 and e.op in MATERIALIZED and is_large(e.results[0])]
    return any([e.op is dot_general or len(readers.get(e.results[0], ())) > 1 for e in large])


def nearby_divisor(length: int, size: int) -> int:
    """A divisor of the length from two thirds to twice the size, the nearest; the size itself if there is none."""
    near = [n for n in range(max(1, ceil(size * 2 / 3)), 2 * size + 1) if length % n == 0]
    return min(near, key=lambda n: abs(n - size), default=size)
