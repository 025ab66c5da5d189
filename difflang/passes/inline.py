"""Inlining of calls. Loops stay (see `unroll` for short ones), and code never grows by more than a constant factor."""

from __future__ import annotations

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import History
from difflang.ir.text_printer import shared_graphs

MAX_INLINE_EQNS = 20  # equations; a body that is used again and is larger stays a call


def inline(graph: Graph) -> Graph:
    """Put the body of a function where it is called, if it is small or called in one place only, or histories cross it.

    A history is read beside its maker (see `ops.saved`), which lowering puts in one place in any case.
    Cost: linear in what it gives.
    """
    return Inliner(graph).graph(graph) if any([e.regions for e in graph.eqns]) else graph


class Inliner:
    def __init__(self, graph: Graph) -> None:
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
    """Whether the equation runs its one region once, on its operands, for its results, and may be opened."""
    if eqn.op.region_dataflow is None or len(eqn.regions) != 1:
        return False
    layout = eqn.op.region_dataflow(eqn)
    return (
        not layout.repeats and not layout.never_inlined and all(s.invariant or s.operand is None for s in layout.slots)
    )


def should_inline(eqn: Eqn) -> bool:
    """Whether the body of a function that is called elsewhere too is put where it is called."""
    crossing = any(isinstance(v.type, History) for v in (*eqn.operands, *eqn.results))
    return crossing or len(eqn.regions[0].eqns) <= MAX_INLINE_EQNS


def splice(body: Graph, operands: tuple[Value, ...], eqns: list[Eqn]) -> list[Value]:
    """Copy the equations of a body to the end of `eqns`; gives what the body's results are there."""
    to = dict(zip(body.params, operands, strict=True))
    for eqn in body.eqns:
        results = tuple([Value(r.type, r.home, r.hint) for r in eqn.results])
        eqns.append(Eqn(eqn.op, tuple([to[v] for v in eqn.operands]), results, eqn.attrs, eqn.regions, eqn.span))
        to.update(zip(eqn.results, results, strict=True))
    return [to[r] for r in body.results]
