"""The standard order of passes."""

from __future__ import annotations

from difflang.ir.graph import Graph
from difflang.ir.verify import verified
from difflang.passes.cse import cse
from difflang.passes.dce import dce
from difflang.passes.fuse import fuse
from difflang.passes.hoist import hoist
from difflang.passes.inline import inline
from difflang.passes.simplify import simplify

ROUND = (inline, simplify, cse, fuse, cse, hoist, dce)
ROUNDS = 3


def tidied(graph: Graph) -> Graph:
    """One quick round, for a graph that will be optimized once more."""
    for rewrite in (dce, inline, simplify, cse):
        graph = verified(rewrite(graph), after=rewrite.__name__)
    return graph


def optimize(graph: Graph) -> Graph:
    """A graph that computes the same, bit for bit, with less.

    Cost: linear; at most three rounds, fewer where one changes nothing.
    """
    graph = dce(graph)
    for _ in range(ROUNDS):
        before = graph
        for rewrite in ROUND:
            graph = verified(rewrite(graph), after=rewrite.__name__)
        if graph is before:
            break
    return graph
