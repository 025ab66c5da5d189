"""Sums that are written as 1 and an excess, which has more digits, and once more as a total: one of both is computed.

The logarithm of a sum of exponentials reads the excess, its derivative the sum alone: `x + 1` for the excess `x`. That
is the total where nothing else reads the excess.
"""

from __future__ import annotations

from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ops.arrays.constants import const
from difflang.ops.elementwise.linear_arithmetic import add, excess
from difflang.passes.graph_levels import rewrite_each_graph


def choose_totals(graph: Graph) -> Graph:
    """Read the total where only `x + 1` is read, else `x`; not before all derivatives are there. Cost: linear."""
    if any(e.op.is_derivative for inner in graphs_postorder(graph)[0] for e in inner.eqns):
        return graph
    return rewrite_each_graph(graph, choose)


def choose(graph: Graph) -> Graph:
    """The same for one graph."""
    chosen = [e for e in graph.eqns if e.op is excess]
    if not chosen:
        return graph
    ones = {e.results[0] for e in graph.eqns if e.op is const and e.attrs["value"] == 1}
    found = {e.results[0] for e in chosen}
    sums = [e for e in graph.eqns if e.op is add and e.operands[0] in found and e.operands[1] in ones]
    read = {v for e in graph.eqns if e not in sums for v in e.operands} | set(graph.results)
    to: dict[Value, Value] = {}
    eqns: list[Eqn] = []
    totals: dict[Value, Value] = {}
    for old in graph.eqns:
        eqn = old.replace_operands(to)
        if old.op is excess and old.results[0] in read:
            to[old.results[0]] = eqn.operands[0]
        elif old.op is excess:
            totals[old.results[0]] = eqn.operands[1]
        elif old in sums and old.operands[0] in totals:
            to[old.results[0]] = totals[old.operands[0]]
        else:
            eqns.append(eqn)
    return graph.with_eqns(eqns).replace_results(to)
