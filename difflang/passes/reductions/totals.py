"""Sums that are written as 1 and an excess, which has more digits, and once more as a total: one of both is computed.

The logarithm of a sum of exponentials reads the excess, its derivative the sum alone: `x + 1` for the excess `x`. That
is the total where nothing else reads the excess.
"""

from __future__ import annotations

from difflang.ir.graph import Graph, Value, graphs_postorder
from difflang.ops.arrays.constants import const, stop
from difflang.ops.elementwise.linear_arithmetic import add
from difflang.ops.elementwise.powers_and_logs import excess
from difflang.passes.graph_levels import rewrite_each_graph


def choose_totals(graph: Graph) -> Graph:
    """Read the total where only `x + 1` is read, else `x`; not before all derivatives are there. Cost: linear."""
    if any(e.op.is_derivative for inner in graphs_postorder(graph)[0] for e in inner.eqns):
        return graph
    return rewrite_each_graph(graph, choose_in_graph)


def choose_in_graph(graph: Graph) -> Graph:
    """The choice in one graph, whose regions are done."""
    chosen = {e.results[0]: e for e in graph.eqns if e.op is excess}
    if not chosen:
        return graph
    ones = {e.results[0] for e in graph.eqns if e.op is const and e.attrs["value"] == 1}
    # The total itself has the derivative of `x + 1`; the excess has its own, and reads the total without one.
    totals = {e.results[0]: e.operands[0] for e in graph.eqns if e.op is stop}
    sums = {e for e in graph.eqns if e.op is add and e.operands[0] in chosen and e.operands[1] in ones}
    read = {v for e in graph.eqns if e not in sums for v in e.operands} | set(graph.results)
    instead = {x: totals[e.operands[1]] for x, e in chosen.items() if x not in read and e.operands[1] in totals}
    to: dict[Value, Value] = {}
    for eqn in graph.eqns:
        found = eqn.operands[0] if eqn.op is excess else instead.get(eqn.operands[0]) if eqn in sums else None
        if found is not None:
            to[eqn.results[0]] = to.get(found, found)
    eqns = [e.replace_operands(to) for e in graph.eqns if e.op is not excess and to.keys().isdisjoint(e.results)]
    return graph.with_eqns(eqns).replace_results(to)
