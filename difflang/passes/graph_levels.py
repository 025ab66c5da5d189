"""Rewrites of every graph of a program by itself, regions first."""

from __future__ import annotations

from collections.abc import Callable

from difflang.ir.graph import Eqn, Graph, graphs_postorder
from difflang.ops.control.map import map_

GraphRewrite = Callable[[Graph], Graph]  # of a graph whose regions have been rewritten
LevelRewrite = Callable[[Graph, bool], Graph]  # the same; whether the graph is differentiated


def rewrite_graphs(graph: Graph, rewrite: GraphRewrite) -> Graph:
    """Rewrite a graph and its regions, each once however often it is used."""
    done: dict[Graph, Graph] = {}
    for inner in graphs_postorder(graph)[0]:
        eqns = [e.with_regions([done[r] for r in e.regions]) if e.regions else e for e in inner.eqns]
        done[inner] = rewrite(inner.with_eqns(eqns))
    return done[graph]


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
