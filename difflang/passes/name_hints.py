"""Values called as the user calls them: by the `let` whose right side an equation is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from difflang.base.source import Span
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder


def apply_name_hints(graph: Graph, names: Mapping[Span, str]) -> Graph:
    """The graph with the names of the program for the values of these expressions. Cost: linear."""
    done: dict[Graph, Graph] = {}
    for inner in graphs_postorder(graph)[0]:
        done[inner] = name_results(inner, names, done)
    return done[graph]


def name_results(graph: Graph, names: Mapping[Span, str], done: Mapping[Graph, Graph]) -> Graph:
    """An expression is several equations of one place: its value is that which none of the others reads."""
    inside = Counter((v, e.span) for e in graph.eqns for v in e.operands)
    to: dict[Value, Value] = {}
    eqns: list[Eqn] = []
    for old in graph.eqns:
        eqn = old.replace_operands(to) if to else old
        if eqn.regions:
            eqn = eqn.with_regions([done[r] for r in eqn.regions])
        name = names.get(eqn.span, "")
        if name and len(eqn.results) == 1 and not inside[old.results[0], old.span]:
            (result,) = eqn.results
            to[result] = Value(result.type, result.home, name)
            eqn = Eqn(eqn.op, eqn.operands, (to[result],), eqn.attrs, eqn.regions, eqn.span)
        eqns.append(eqn)
    return graph.with_eqns(eqns).replace_results(to)
