"""Rewrites of every graph of a program by itself: regions first, knowing whether it is differentiated."""

from __future__ import annotations

from collections.abc import Callable

from difflang.ir.graph import Eqn, Graph
from difflang.ops.control.map import map_

LevelRewrite = Callable[[Graph, bool], Graph]  # of a graph whose regions have been rewritten; whether in a derivative


def rewrite_levels(graph: Graph, rewrite: LevelRewrite, *, in_maps: bool = False) -> Graph:
    """Rewrite a graph and its regions, those of maps only if `in_maps`."""
    done: dict[tuple[Graph, bool], Graph] = {}

    def rewritten(graph: Graph, differentiated: bool) -> Graph:
        key = graph, differentiated
        if key not in done:
            inner = graph
            if any([e.regions for e in graph.eqns]):
                inner = graph.with_eqns([with_rewritten_regions(e, differentiated) for e in graph.eqns])
            done[key] = rewrite(inner, differentiated)
        return done[key]

    def with_rewritten_regions(eqn: Eqn, differentiated: bool) -> Eqn:
        if not eqn.regions or (eqn.op is map_ and not in_maps):
            return eqn
        return eqn.with_regions([rewritten(r, differentiated or eqn.op.is_derivative) for r in eqn.regions])

    return rewritten(graph, False)
