"""Recursion that stands in another loop, so that its gradient keeps states there and not an array for every step.

What a gradient keeps of a machine is an array with a place for each step that there is room for. In a loop around it
each step would bring such an array, of thousands of places however few are used, and a machine in a machine the product
of both. There it is an ordinary `while`, whose steps give a history.
"""

from __future__ import annotations

from difflang.ir.graph import Eqn, Graph, Value, inner_first, regions_below
from difflang.ir.op import OPS
from difflang.recursion.stack_machine import FOREVER, INDEX, STEPS


def endless_where_repeated(graph: Graph) -> Graph:
    """The graph with no bound on the steps of machines inside loops and comprehensions; without any, as it is.

    Those that have been differentiated already stay as they are. Cost: linear.
    """
    graphs, _ = inner_first(graph)
    if not any([is_bounded_machine(e) for inner in graphs for e in inner.eqns if e.regions]):
        return graph
    repeated = regions_below(graphs, lambda eqn: "length" in eqn.attrs)
    done: dict[Graph, Graph] = {}
    for inner in graphs:
        done[inner] = changed(inner, done, endless=inner in repeated)
    return done[graph]


def changed(graph: Graph, done: dict[Graph, Graph], *, endless: bool) -> Graph:
    eqns: list[Eqn] = []
    for eqn in graph.eqns:
        inside = eqn.with_regions([done[r] for r in eqn.regions]) if eqn.regions else eqn
        eqns += without_bound(inside) if endless and is_bounded_machine(eqn) else [inside]
    same = len(eqns) == len(graph.eqns) and all(a is b for a, b in zip(eqns, graph.eqns, strict=True))
    return graph if same else graph.with_eqns(eqns)


def is_bounded_machine(eqn: Eqn) -> bool:
    """Whether it is the loop of a machine of which nothing is kept for each step yet."""
    if eqn.attrs.get("length") != STEPS:
        return False
    carry = eqn.attrs["carry"]
    return len(eqn.operands) == 1 + eqn.attrs["consts"] + carry and len(eqn.results) == 1 + carry


def without_bound(eqn: Eqn) -> list[Eqn]:
    """A loop that only its condition ends, and its limit before it."""
    limit = Value(INDEX, eqn.results[0].home)
    number = Eqn(OPS["const"], (), (limit,), {"value": FOREVER, "type": INDEX}, (), eqn.span)
    operands, attrs = (limit, *eqn.operands[1:]), {**eqn.attrs, "length": None}
    return [number, Eqn(eqn.op, operands, eqn.results, attrs, eqn.regions, eqn.span)]
