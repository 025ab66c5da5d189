"""Sinks scalar constants into the regions that use them, where rewrite rules and human readers see them."""

from __future__ import annotations

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.structural_equality import attr_key
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.constants import const


def sink_constants(graph: Graph) -> Graph:
    """Copy scalar constants into the branches and loops that use them. Params that are no longer read are left to dce.

    Cost: linear, except that a graph used with several numbers is copied for each.
    """
    return ConstantSinker().graph(graph)


class ConstantSinker:
    def __init__(self) -> None:
        self.done: dict[Graph, Graph] = {}
        self.specialized: dict[object, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph not in self.done:
            filled = {e.results[0]: e for e in graph.eqns if e.op is const}
            self.done[graph] = graph.with_eqns([self.eqn(e, filled) if e.regions else e for e in graph.eqns])
        return self.done[graph]

    def eqn(self, eqn: Eqn, filled: dict[Value, Eqn]) -> Eqn:
        """The equation, with the constants that it passes to its regions emitted inside these."""
        slots = eqn.op.region_dataflow(eqn).slots if eqn.op.region_dataflow is not None else ()
        given = [(s, filled[eqn.operands[s.operand]]) for s in slots
                 if s.operand is not None and not s.returns and eqn.operands[s.operand] in filled]  # fmt: skip
        regions: list[Graph] = []
        for i, region in enumerate(eqn.regions):
            known = {region.params[p]: made for s, made in given if (p := s.params[i]) is not None}
            regions.append(self.graph(self.with_numbers(region, known)))
        return eqn.with_regions(regions)

    def with_numbers(self, graph: Graph, known: dict[Value, Eqn]) -> Graph:
        """The graph with constants in place of these params."""
        read = {v for e in graph.eqns for v in e.operands} | set(graph.results)
        known = {p: made for p, made in known.items() if p in read and is_scalar(p)}
        if not known:
            return graph
        key = graph, tuple([(p, attr_key(made.attrs["value"])) for p, made in known.items()])
        if key not in self.specialized:
            builder = Builder()
            builder.span = graph.eqns[0].span if graph.eqns else builder.span
            params = [builder.param(p.type, p.hint) for p in graph.params]
            given = [
                builder.const(known[p].attrs["value"], p.type) if p in known else own
                for p, own in zip(graph.params, params, strict=True)
            ]
            self.specialized[key] = builder.finish(builder.inline(graph, *given), name=graph.name)
        return self.specialized[key]


def is_scalar(value: Value) -> bool:
    return isinstance(value.type, Tensor) and not value.type.shape
