"""Common subexpression elimination: equations that compute the same values are computed once."""

from __future__ import annotations

from collections.abc import Hashable

from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import Op
from difflang.ir.structural_equality import StructuralKeys, attrs_key


def cse(graph: Graph) -> Graph:
    """Keep the first of any equations that compute the same values; regions are compared structurally.

    Equations with effects are never merged.
    Cost: linear; a graph that is used many times is visited once.
    """
    return CommonSubexpressions().graph(graph)


class CommonSubexpressions:
    def __init__(self) -> None:
        self.keys = StructuralKeys()
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph in self.done:
            return self.done[graph]
        known = EquationTable(self.keys)
        same: dict[Value, Value] = {}
        kept: list[Eqn] = []
        for eqn in graph.eqns:
            new = eqn.replace_operands(same) if same else eqn
            if eqn.regions:
                new = new.with_regions(map(self.graph, eqn.regions))
                same.update(equal_outputs(new))
            effectful = new.op.effect or (new.regions and new.effectful)
            first = new if effectful else known.first(new)
            if first is new:
                kept.append(new)
            else:
                same.update(zip(new.results, first.results, strict=True))
        return self.done.setdefault(graph, graph.with_eqns(kept).replace_results(same))


class EquationTable:
    """The equations of one graph so far, by op and operands."""

    def __init__(self, keys: StructuralKeys) -> None:
        self.keys = keys
        self.by_op_and_operands: dict[tuple[Op, Values], Eqn | dict[Hashable, Eqn]] = {}

    def first(self, eqn: Eqn) -> Eqn:
        """The first equation that computes the same: the given one, if there is no other."""
        # Few equations share op and operands. Only for those are the costly keys of attributes and regions computed.
        key = (eqn.op, eqn.operands)
        before = self.by_op_and_operands.setdefault(key, eqn)
        if before is eqn:
            return eqn
        if isinstance(before, Eqn):
            before = self.by_op_and_operands[key] = {self.attrs_and_regions_key(before): before}
        return before.setdefault(self.attrs_and_regions_key(eqn), eqn)

    def attrs_and_regions_key(self, eqn: Eqn) -> Hashable:
        """The rest of an equation's key, beyond its op and operands."""
        return (attrs_key(eqn.attrs) if eqn.attrs else (), tuple([self.keys.graph_key(g) for g in eqn.regions]))


def equal_outputs(eqn: Eqn) -> dict[Value, Value]:
    """Results of an equation that its regions compute twice, each with the earlier equal one."""
    first: dict[Hashable, Value] = {}
    alike: dict[Value, Value] = {}
    for slot in eqn.op.region_dataflow(eqn).slots if eqn.op.region_dataflow else ():
        if slot.result is not None and slot.operand is None:
            made = tuple([None if i is None else g.results[i] for g, i in zip(eqn.regions, slot.returns, strict=True)])
            result = eqn.results[slot.result]
            # The type is part of the key: an array of all steps is not a history of them.
            if (known := first.setdefault((result.type, made), result)) is not result:
                alike[result] = known
    return alike
