"""Pass pipelines: the standard order of optimization passes, before and after differentiation, and for reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from difflang.ir.graph import Graph
from difflang.ir.verify import verify_if_enabled
from difflang.passes.constants_into_regions import sink_constants
from difflang.passes.contract_after_loops import contract_after_loops
from difflang.passes.cse import cse
from difflang.passes.dce import dce
from difflang.passes.dead_selects import drop_dead_selects
from difflang.passes.drop_batch_axes import drop_batch_axes
from difflang.passes.fuse_loops import fuse
from difflang.passes.hoist import hoist, hoist_from_nonempty_loops
from difflang.passes.inline import inline
from difflang.passes.simplify import simplify
from difflang.passes.sums_to_contractions import contract, slice_window_sums
from difflang.passes.unroll import unroll
from difflang.passes.vectorize_maps import vectorize_bounded_maps, vectorize_maps

Pass = Callable[[Graph], Graph]

ROUND_PASSES: tuple[Pass, ...] = (inline, simplify, cse, fuse, cse, hoist, dce)
FULL_PASSES: tuple[Pass, ...] = (
    vectorize_maps,
    inline,
    simplify,
    slice_window_sums,
    contract,
    drop_batch_axes,
    drop_dead_selects,
    dce,
    contract_after_loops,
    cse,
    fuse,
    cse,
    hoist,
    dce,
)
READABLE_PASSES: tuple[Pass, ...] = (vectorize_maps, inline, sink_constants, simplify, cse, fuse, cse, hoist, dce)
# Each round opens work for the next: fused bodies have common subexpressions, hoisted equations are simplified.
ROUNDS = 3
PASS_NAMES = tuple(dict.fromkeys(p.__name__ for p in (*FULL_PASSES, *ROUND_PASSES)))
IDEMPOTENT_PASSES: set[Pass] = {cse, dce}  # a second run in a row changes nothing
# Passes for which a dropped dead equation is no reason to run again.
DEAD_CODE_BLIND_PASSES: set[Pass] = {cse, simplify}


def prepare_for_ad(graph: Graph, *, unroll_loops: bool = False) -> Graph:
    """One quick round, for a graph that will be differentiated and then optimized once more.

    With `unroll_loops`, short loops are unrolled; not for graphs that people read.
    """
    # Vectorized here, the lookups of a map are one gather, whose derivative is one scatter. Hoisted here, an equation
    # is differentiated once, not once per step. Sums of products are contracted only afterwards, as masks of their
    # cotangents apply term by term.
    narrow = run_verified(graph, dce, inline, simplify)
    if unroll_loops:
        unrolled = run_verified(narrow, unroll)
        narrow = unrolled if unrolled is narrow else run_verified(unrolled, simplify)
    wide = run_verified(narrow, vectorize_bounded_maps)
    if wide is not narrow:
        wide = run_verified(wide, simplify)
    return run_verified(wide, slice_window_sums, cse, dce, hoist_from_nonempty_loops)


def optimize(graph: Graph) -> Graph:
    """A graph that computes the same results, bit for bit, with less work. Cost: linear."""
    # At most three rounds, without passes that are known to change nothing.
    return run_passes(graph, dce, *ROUND_PASSES * ROUNDS)


def optimize_fully(graph: Graph) -> Graph:
    """The same with vectorized maps, and sums of products as contractions, those of reverse loops after the loop."""
    # This changes the order of additions, so results may differ in their last bits.
    return final_graph(graph, full_pipeline_steps(graph))


def optimize_for_reading(graph: Graph) -> Graph:
    """The same for human readers: sizes may be symbolic, and sums of products are not contracted."""
    return final_graph(graph, full_pipeline_steps(graph, read=True))


def run_verified(graph: Graph, *passes: Pass) -> Graph:
    for rewrite in passes:
        graph = verify_if_enabled(rewrite(graph), after=rewrite.__name__)
    return graph


def run_passes(graph: Graph, *passes: Pass) -> Graph:
    """The graph after all passes, except those that are known to change nothing."""
    return final_graph(graph, pass_steps(graph, *passes))


def final_graph(graph: Graph, steps: Iterator[tuple[str, Graph, Graph]]) -> Graph:
    for _, _, changed in steps:
        graph = changed
    return graph


def pass_steps(graph: Graph, *passes: Pass) -> Iterator[tuple[str, Graph, Graph]]:
    """Run passes; yields the name of each, the graph before and the graph after it."""
    known: dict[Pass, Graph] = {}  # for each pass, a graph that it would not change
    for rewrite in passes:
        if known.get(rewrite) is graph:
            continue
        before, graph = graph, run_verified(graph, rewrite)
        if graph is before or rewrite in IDEMPOTENT_PASSES:
            known[rewrite] = graph
        if rewrite is dce:
            known |= {other: graph for other in DEAD_CODE_BLIND_PASSES if known.get(other) is before}
        yield rewrite.__name__, before, graph


def full_pipeline_steps(graph: Graph, *, read: bool = False) -> Iterator[tuple[str, Graph, Graph]]:
    """The steps of `optimize_fully`, or with `read` those of `optimize_for_reading`."""
    return pass_steps(graph, dce, *(READABLE_PASSES * ROUNDS if read else (*FULL_PASSES, *ROUND_PASSES * (ROUNDS - 1))))
