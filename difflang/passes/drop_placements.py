"""Drops what places arrays on a mesh of devices, from a program that runs on one device."""

from __future__ import annotations

from collections.abc import Callable

from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.op import Placement


def drop_placements(graph: Graph) -> Graph:
    """The graph without equations that only say how arrays are split over devices; the same graph if it has none."""
    return drop_where(graph, lambda eqn: isinstance(eqn.op.movement, Placement))


def drop_declared_placements(graph: Graph) -> Graph:
    """The graph without those that types say, for reading."""
    return drop_where(graph, lambda e: isinstance(e.op.movement, Placement) and e.op.movement.declared(**e.attrs))


def drop_where(graph: Graph, drops: Callable[[Eqn], bool]) -> Graph:
    graphs, _ = graphs_postorder(graph)
    if not any([drops(e) for g in graphs for e in g.eqns]):
        return graph
    done: dict[Graph, Graph] = {}
    for inner in graphs:
        done[inner] = rewrite_graph(inner, drops, done)
    return done[graph]


def rewrite_graph(graph: Graph, drops: Callable[[Eqn], bool], done: dict[Graph, Graph]) -> Graph:
    to: dict[Value, Value] = {}
    eqns: list[Eqn] = []
    for old in graph.eqns:
        eqn = old.replace_operands(to)
        if drops(eqn):
            to[eqn.results[0]] = eqn.operands[0]
        else:
            eqns.append(eqn.with_regions([done[r] for r in eqn.regions]) if eqn.regions else eqn)
    same = len(eqns) == len(graph.eqns) and all(a is b for a, b in zip(eqns, graph.eqns, strict=True))
    return graph if same else graph.with_eqns(eqns).replace_results(to)


def has_placements(graph: Graph) -> bool:
    """Whether a graph or a region of it says how an array is split."""
    return any(isinstance(e.op.movement, Placement) for g in graphs_postorder(graph)[0] for e in g.eqns)
