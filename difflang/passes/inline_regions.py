"""Functions and blocks put where they are used: a graph that is to be read, not compiled."""

from __future__ import annotations

from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ops.control.custom_linear_solve import as_primal_call, custom_linear_solve
from difflang.passes.inline import is_inlinable_call, splice


def inline_regions(graph: Graph) -> Graph:
    """The graph with every region that runs once in the place of its equation. Cost: linear in what it gives."""
    done: dict[Graph, Graph] = {}
    for inner in graphs_postorder(graph)[0]:
        done[inner] = inline_level(inner, done)
    return done[graph]


def inline_level(graph: Graph, done: dict[Graph, Graph]) -> Graph:
    if not any(e.regions for e in graph.eqns):
        return graph
    to: dict[Value, Value] = {}
    eqns: list[Eqn] = []
    for old in graph.eqns:
        eqn = old.replace_operands(to) if to else old
        if eqn.regions:
            eqn = eqn.with_regions([done[r] for r in eqn.regions])
        if (
            eqn.op.without_derivative is not None
        ):  # its derivative has been taken, and nothing is undone where it is read
            eqn = eqn.op.without_derivative(eqn, False)
        if eqn.op is custom_linear_solve:
            eqn = as_primal_call(eqn)
        if is_inlinable_call(eqn) or is_isolated_call(eqn):
            found = splice(eqn.regions[0], eqn.operands, eqns)
            to.update(zip(eqn.results, found, strict=False))
        else:
            eqns.append(eqn)
    return graph.with_eqns(eqns).replace_results(to)


def is_isolated_call(eqn: Eqn) -> bool:
    """Whether it runs its one region once, on its operands, though no other pass may open it."""
    if eqn.op.region_dataflow is None or len(eqn.regions) != 1:
        return False
    layout = eqn.op.region_dataflow(eqn)
    return layout.never_inlined and not layout.repeats
