"""Recursion that stands in another loop, so that its gradient keeps states there and not an array for every step.

What a gradient keeps of a machine is an array with a place for each step that there is room for. In a loop around it
each step would bring such an array, of thousands of places however few are used, and a machine in a machine the product
of both. There it is an ordinary `while`, whose steps give a history.
"""

from __future__ import annotations

from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder, nested_regions
from difflang.ir.op import OPS
from difflang.recursion.stack_machine import INDEX, STEP_CAPACITY, UNLIMITED_STEPS


def drop_step_limit_in_loops(graph: Graph) -> Graph:
    """The graph with no bound on the steps of machines inside loops and comprehensions; without any, as it is.

    Those that have been differentiated already stay as they are. Cost: linear.
    """
    graphs, _ = graphs_postorder(graph)
    if not any([is_step_limited(e) for inner in graphs for e in inner.eqns if e.regions]):
        return graph
    repeated = nested_regions(graphs, lambda eqn: "length" in eqn.attrs)
    done: dict[Graph, Graph] = {}
    for inner in graphs:
        done[inner] = rewrite_machines(inner, done, in_loop=inner in repeated)
    return done[graph]


def rewrite_machines(graph: Graph, done: dict[Graph, Graph], *, in_loop: bool) -> Graph:
    eqns: list[Eqn] = []
    for eqn in graph.eqns:
        inside = eqn.with_regions([done[r] for r in eqn.regions]) if eqn.regions else eqn
        eqns += drop_step_limit(inside) if in_loop and is_step_limited(eqn) else [inside]
    same = len(eqns) == len(graph.eqns) and all(a is b for a, b in zip(eqns, graph.eqns, strict=True))
    return graph if same else graph.with_eqns(eqns)


def is_step_limited(eqn: Eqn) -> bool:
    """Whether it is the loop of a machine of which nothing is kept for each step yet."""
    if eqn.attrs.get("length") != STEP_CAPACITY:
        return False
    carry = eqn.attrs["carry"]
    return len(eqn.operands) == 1 + eqn.attrs["consts"] + carry and len(eqn.results) == 1 + carry


def drop_step_limit(eqn: Eqn) -> list[Eqn]:
    """A loop that only its condition ends, and its limit before it."""
    limit = Value(INDEX, eqn.results[0].home)
    number = Eqn(OPS["const"], (), (limit,), {"value": UNLIMITED_STEPS, "type": INDEX}, (), eqn.span)
    operands, attrs = (limit, *eqn.operands[1:]), {**eqn.attrs, "length": None}
    return [number, Eqn(eqn.op, operands, eqn.results, attrs, eqn.regions, eqn.span)]
