"""The standard order of passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from difflang.ir.graph import Graph
from difflang.ir.verify import verified
from difflang.passes.constants_into_regions import inward
from difflang.passes.contract_after_loops import defer
from difflang.passes.cse import cse
from difflang.passes.dce import dce
from difflang.passes.dead_selects import unseen
from difflang.passes.drop_batch_axes import unbatch
from difflang.passes.fuse import fuse
from difflang.passes.hoist import hoist, hoist_surely_done
from difflang.passes.inline import inline
from difflang.passes.simplify import simplify
from difflang.passes.sums_to_contractions import contract, window_sums
from difflang.passes.unroll import unroll
from difflang.passes.vectorize_maps import widen, widen_closed

Pass = Callable[[Graph], Graph]

ROUND: tuple[Pass, ...] = (inline, simplify, cse, fuse, cse, hoist, dce)
WHOLE: tuple[Pass, ...] = (
    widen,
    inline,
    simplify,
    window_sums,
    contract,
    unbatch,
    unseen,
    dce,
    defer,
    cse,
    fuse,
    cse,
    hoist,
    dce,
)
READ: tuple[Pass, ...] = (widen, inline, inward, simplify, cse, fuse, cse, hoist, dce)
ROUNDS = 3
PASSES = tuple(dict.fromkeys(p.__name__ for p in (*WHOLE, *ROUND)))
AT_ONCE: set[Pass] = {cse, dce}  # run again at once they change nothing
BLIND: set[Pass] = {cse, simplify}  # they see no dead equation, so one dropped gives them nothing to do


def tidied(graph: Graph, *, written_out: bool = False) -> Graph:
    """One quick round, for a graph that will be differentiated and then optimized once more.

    What lanes look up is one gather, and its derivative one scatter. What every step of a loop computes alike leaves it
    here: its derivative is then taken once too, not once a step. Sums of products are not contracted yet: as such their
    cotangents are chosen term by term. What is not to be read has short loops `written_out`.
    """
    narrow = after(graph, dce, inline, simplify)
    if written_out:
        straight = after(narrow, unroll)
        narrow = straight if straight is narrow else after(straight, simplify)
    wide = after(narrow, widen_closed)
    if wide is not narrow:
        wide = after(wide, simplify)
    return after(wide, window_sums, cse, dce, hoist_surely_done)


def optimize(graph: Graph) -> Graph:
    """A graph that computes the same, bit for bit, with less.

    Cost: linear; at most three rounds, and no pass where it is known to change nothing.
    """
    return settled(graph, dce, *ROUND * ROUNDS)


def optimized_whole(graph: Graph) -> Graph:
    """The same, with maps done on whole arrays and sums of products as contractions, for derivatives' loops after them.

    Sums are added in another order.
    """
    return last(graph, whole_steps(graph))


def readable(graph: Graph) -> Graph:
    """The same, to be read: sizes may be names, and sums of products stay what they are."""
    return last(graph, whole_steps(graph, read=True))


def after(graph: Graph, *passes: Pass) -> Graph:
    for rewrite in passes:
        graph = verified(rewrite(graph), after=rewrite.__name__)
    return graph


def settled(graph: Graph, *passes: Pass) -> Graph:
    """The graph after all passes, but for those that are known to change nothing."""
    return last(graph, steps(graph, *passes))


def last(graph: Graph, taken: Iterator[tuple[str, Graph, Graph]]) -> Graph:
    for _, _, changed in taken:
        graph = changed
    return graph


def steps(graph: Graph, *passes: Pass) -> Iterator[tuple[str, Graph, Graph]]:
    """What each pass that is run is called, the graph before it, and after it."""
    known: dict[Pass, Graph] = {}  # what each pass would give back as it is
    for rewrite in passes:
        if known.get(rewrite) is graph:
            continue
        before, graph = graph, after(graph, rewrite)
        if graph is before or rewrite in AT_ONCE:
            known[rewrite] = graph
        if rewrite is dce:
            known |= {other: graph for other in BLIND if known.get(other) is before}
        yield rewrite.__name__, before, graph


def whole_steps(graph: Graph, *, read: bool = False) -> Iterator[tuple[str, Graph, Graph]]:
    """The steps of `optimized_whole`, or if it is to be read those of `readable`."""
    return steps(graph, dce, *(READ * ROUNDS if read else (*WHOLE, *ROUND * (ROUNDS - 1))))
