"""Common subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable

from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.same import Keys, attrs_key


def cse(graph: Graph) -> Graph:
    """Keep the first of any equations that compute the same values; regions are compared as programs.

    Equations with effects are never merged.
    Cost: linear; a graph that is used many times is looked at once.
    """
    return Cse().graph(graph)


class Cse:
    def __init__(self) -> None:
        self.keys = Keys()
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph in self.done:
            return self.done[graph]
        first: dict[Hashable, Values] = {}
        same: dict[Value, Value] = {}
        kept: list[Eqn] = []
        for eqn in graph.eqns:
            new = eqn.renamed(same) if same else eqn
            if eqn.regions:
                new = new.with_regions(map(self.graph, eqn.regions))
                same.update(alike_outputs(new))
            effectful = new.op.effect or (new.regions and new.effectful)
            known = new.results if effectful else first.setdefault(self.key(new), new.results)
            if known is new.results:
                kept.append(new)
            else:
                same.update(zip(new.results, known, strict=True))
        return self.done.setdefault(graph, graph.with_eqns(kept).renamed_results(same))

    def key(self, eqn: Eqn) -> Hashable:
        regions = tuple([self.keys.of(g) for g in eqn.regions]) if eqn.regions else ()
        return (eqn.op, eqn.operands, attrs_key(eqn.attrs) if eqn.attrs else (), regions)


def alike_outputs(eqn: Eqn) -> dict[Value, Value]:
    """Results that the regions compute as they compute an earlier one, with that one."""
    first: dict[Hashable, Value] = {}
    alike: dict[Value, Value] = {}
    for slot in eqn.op.layout(eqn).slots if eqn.op.layout else ():
        if slot.result is not None and slot.operand is None:
            made = tuple([None if i is None else g.results[i] for g, i in zip(eqn.regions, slot.returns, strict=True)])
            result = eqn.results[slot.result]
            if (known := first.setdefault(made, result)) is not result:
                alike[result] = known
    return alike
