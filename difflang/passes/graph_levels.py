"""Rewrites of every graph of a program by itself, regions first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, rewrite_graphs
from difflang.ops.control.map import map_

GraphRewrite = Callable[[Graph], Graph]  # of a graph whose regions have been rewritten
LevelRewrite = Callable[[Graph, bool], Graph]  # the same; whether the graph is differentiated

# Emits what stands for an equation, from the values of the new graph by those of the old one; returns its results.
EquationEmitter = Callable[[Builder, Mapping[Value, Value]], Iterable[Value]]


def rewrite_each_graph(graph: Graph, rewrite: GraphRewrite) -> Graph:
    """Rewrite a graph and its regions, each once however often it is used."""
    return rewrite_graphs(graph, lambda _, inside: rewrite(inside))


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


def replace_equations(graph: Graph, emitters: Mapping[Eqn, EquationEmitter]) -> Graph:
    """One graph with other equations in the place of some; itself if there are none."""
    if not emitters:
        return graph
    builder = Builder()
    env = {p: builder.param(p.type, p.hint) for p in graph.params}
    for eqn in graph.eqns:
        builder.span = eqn.span
        if eqn in emitters:
            results = emitters[eqn](builder, env)
        else:
            results = builder.copy(eqn, tuple([env[v] for v in eqn.operands]))
        env.update(zip(eqn.results, results, strict=True))
    return builder.finish([env[r] for r in graph.results], name=graph.name)
