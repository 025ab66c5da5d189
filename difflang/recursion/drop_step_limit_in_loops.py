"""Drops the step limit of stack machines (recursion) inside other loops, so their gradients need no full-size arrays.

A gradient saves for a stack machine an array with one entry for each step of its capacity. In a loop, each step would
save such an array, thousands of entries however few are used; for a machine in a machine, the product of both. Without
the limit it is an ordinary `while`, whose steps are saved in a history.
"""

from __future__ import annotations

from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder, nested_regions
from difflang.ops.arrays.constants import const
from difflang.recursion.stack_machine import INDEX, STEP_CAPACITY, UNLIMITED_STEPS


def drop_step_limit_in_loops(graph: Graph) -> Graph:
    """The graph with no limit on the steps of stack machines inside loops and comprehensions.

    Machines that have been differentiated already keep their limit. Cost: linear.
    """
    graphs, _ = graphs_postorder(graph)
    if not any([is_step_limited(e) for inner in graphs for e in inner.eqns if e.regions]):
        return graph
    in_loops = nested_regions(graphs, lambda eqn: "length" in eqn.attrs)
    done: dict[Graph, Graph] = {}
    for inner in graphs:
        done[inner] = rewrite_machines(inner, done, in_loop=inner in in_loops)
    return done[graph]


def rewrite_machines(graph: Graph, done: dict[Graph, Graph], *, in_loop: bool) -> Graph:
    eqns: list[Eqn] = []
    for eqn in graph.eqns:
        inside = eqn.with_regions([done[r] for r in eqn.regions]) if eqn.regions else eqn
        eqns += drop_step_limit(inside) if in_loop and is_step_limited(eqn) else [inside]
    same = len(eqns) == len(graph.eqns) and all(a is b for a, b in zip(eqns, graph.eqns, strict=True))
    return graph if same else graph.with_eqns(eqns)


def is_step_limited(eqn: Eqn) -> bool:
    """Whether it is the loop of a stack machine that saves nothing per step yet."""
    if eqn.attrs.get("length") != STEP_CAPACITY:
        return False
    # Further operands or results would be arrays of saved values with an entry for each step of the capacity.
    carry = eqn.attrs["carry"]
    return len(eqn.operands) == 1 + eqn.attrs["consts"] + carry and len(eqn.results) == 1 + carry


def drop_step_limit(eqn: Eqn) -> list[Eqn]:
    """The loop without a limit, which only its condition ends, preceded by the constant for "no limit"."""
    limit = Value(INDEX, eqn.results[0].home)
    number = Eqn(const, (), (limit,), {"value": UNLIMITED_STEPS, "type": INDEX}, (), eqn.span)
    operands, attrs = (limit, *eqn.operands[1:]), {**eqn.attrs, "length": None}
    return [number, Eqn(eqn.op, operands, eqn.results, attrs, eqn.regions, eqn.span)]
