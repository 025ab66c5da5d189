"""Name hints: names values of a graph after the `let` bindings of the program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from difflang.base.source import Span
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder


def apply_name_hints(graph: Graph, names: Mapping[Span, str]) -> Graph:
    """The graph with the values of these expressions named as in the program. Cost: linear."""
    done: dict[Graph, Graph] = {}
    for inner in graphs_postorder(graph)[0]:
        done[inner] = name_results(inner, names, done)
    return done[graph]


def name_results(graph: Graph, names: Mapping[Span, str], done: Mapping[Graph, Graph]) -> Graph:
    """One graph with its results named; `done` holds its regions."""
    # All equations of an expression have its span. The value of the expression is the result that none of them reads.
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
