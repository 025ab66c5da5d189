"""Inlining of function calls, and copying of graph bodies. Code never grows by more than a constant factor."""

from __future__ import annotations

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import History
from difflang.ir.text_printer import shared_graphs

MAX_INLINE_EQNS = 20  # a function that is called more than once and has more equations stays a call


def inline(graph: Graph) -> Graph:
    """Inline functions that are small, called only once, or take or give histories. Cost: linear in the result."""
    return Inliner(graph).graph(graph) if any([e.regions for e in graph.eqns]) else graph


class Inliner:
    def __init__(self, graph: Graph) -> None:
        # A function that is called once is always inlined; only shared ones would be copied.
        self.shared = set(shared_graphs(graph))
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph in self.done:
            return self.done[graph]
        to: dict[Value, Value] = {}
        eqns: list[Eqn] = []
        for old in graph.eqns:
            eqn = old.replace_operands(to) if to else old
            if eqn.regions:
                eqn = eqn.with_regions(map(self.graph, eqn.regions))
            if is_inlinable_call(eqn) and (old.regions[0] not in self.shared or should_inline(eqn)):
                to.update(zip(eqn.results, splice(eqn.regions[0], eqn.operands, eqns), strict=True))
            else:
                eqns.append(eqn)
        return self.done.setdefault(graph, graph.with_eqns(eqns).replace_results(to))


def is_inlinable_call(eqn: Eqn) -> bool:
    """Whether the equation runs its one region once, on its operands, for its results, and may be inlined."""
    if eqn.op.region_dataflow is None or len(eqn.regions) != 1:
        return False
    layout = eqn.op.region_dataflow(eqn)
    return (
        not layout.repeats and not layout.never_inlined and all(s.invariant or s.operand is None for s in layout.slots)
    )


def should_inline(eqn: Eqn) -> bool:
    """Whether to inline a function that is called elsewhere too."""
    # A history is read in the graph of the loop that makes it, so no call may stand between the two.
    crossing = any(isinstance(v.type, History) for v in (*eqn.operands, *eqn.results))
    return crossing or len(eqn.regions[0].eqns) <= MAX_INLINE_EQNS


def splice(body: Graph, operands: tuple[Value, ...], eqns: list[Eqn]) -> list[Value]:
    """Copy the equations of a body on these operands to the end of `eqns`; returns the results."""
    to = dict(zip(body.params, operands, strict=True))
    for eqn in body.eqns:
        results = tuple([Value(r.type, r.home, r.hint) for r in eqn.results])
        eqns.append(Eqn(eqn.op, tuple([to[v] for v in eqn.operands]), results, eqn.attrs, eqn.regions, eqn.span))
        to.update(zip(eqn.results, results, strict=True))
    return [to[r] for r in body.results]
