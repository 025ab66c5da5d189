"""The standard order of passes."""

from __future__ import annotations

from collections.abc import Callable

from difflang.ir.graph import Graph
from difflang.ir.verify import verified
from difflang.passes.contract import contract, window_sums
from difflang.passes.cse import cse
from difflang.passes.dce import dce
from difflang.passes.defer import defer
from difflang.passes.fuse import fuse
from difflang.passes.hoist import hoist, hoist_surely_done
from difflang.passes.inline import inline
from difflang.passes.simplify import simplify
from difflang.passes.widen import widen, widen_closed

ROUND = (inline, simplify, cse, fuse, cse, hoist, dce)
ROUNDS = 3
AT_ONCE = {cse, dce}  # run again at once they change nothing
BLIND = {cse, simplify}  # they see no dead equation, so one dropped gives them nothing to do


def tidied(graph: Graph) -> Graph:
    """One quick round, for a graph that will be differentiated and then optimized once more.

    What lanes look up is one gather, and its derivative one scatter. What every step of a loop computes alike leaves it
    here: its derivative is then taken once too, not once a step. Sums of products are not contracted yet: as such their
    cotangents are chosen term by term.
    """
    for rewrite in (dce, inline, simplify, widen_closed, simplify, window_sums, cse, dce, hoist_surely_done):
        graph = verified(rewrite(graph), after=rewrite.__name__)
    return graph


def batched(graph: Graph) -> Graph:
    """What maps do on whole arrays, sums of products as contractions, those of derivatives' loops after the loops.

    Sums are added in another order.
    """
    for rewrite in (widen, simplify, window_sums, contract, dce, defer):
        graph = verified(rewrite(graph), after=rewrite.__name__)
    return graph


def optimize(graph: Graph) -> Graph:
    """A graph that computes the same, bit for bit, with less.

    Cost: linear; at most three rounds, and no pass where it is known to change nothing.
    """
    settled: dict[Callable[[Graph], Graph], Graph] = {}  # what each pass would give back as it is
    for rewrite in (dce, *ROUND * ROUNDS):
        if settled.get(rewrite) is graph:
            continue
        before, graph = graph, verified(rewrite(graph), after=rewrite.__name__)
        if graph is before or rewrite in AT_ONCE:
            settled[rewrite] = graph
        if rewrite is dce:
            settled |= {other: graph for other in BLIND if settled.get(other) is before}
    return graph
