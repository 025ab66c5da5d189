"""Forward dataflow analysis of graphs: facts flow from params to results, along equations and through regions.

The summary of a graph gives the facts of its results in terms of its own params. It stands for the graph wherever it is
a region, so each graph is walked once. Subclasses define the facts and the transfer function of an equation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.region_dataflow import RegionSlot

Fact = TypeVar("Fact")


class DataflowAnalysis(ABC, Generic[Fact]):
    """An analysis of a graph and those in it, by one walk over each; loops iterate until their carries are stable."""

    bottom: Fact  # of a value that no param reaches

    @abstractmethod
    def param_fact(self, graph: Graph, place: int) -> Fact:
        """The fact of a param."""

    @abstractmethod
    def after(self, eqn: Eqn, facts: Sequence[Fact]) -> Sequence[Fact]:
        """The facts of an equation's results. It also handles regions of ops without a `region_dataflow`."""

    @abstractmethod
    def join(self, facts: Sequence[Fact]) -> Fact:
        """The fact of a value that may be any of these."""

    @abstractmethod
    def lift_from_region(self, eqn: Eqn, fact: Fact, param: Callable[[int], Fact]) -> Fact:
        """Translate a fact inside a region from the region's params to the values that these stand for."""

    @abstractmethod
    def add_control_fact(self, fact: Fact, by: Sequence[Fact]) -> Fact:
        """The fact of a result, if the values with the facts `by` decide which region runs, or how often."""

    def originates(self, eqn: Eqn) -> bool:
        """Whether an equation's results have facts even where no param reaches it."""
        return False

    def results(self, graph: Graph) -> tuple[Fact, ...]:
        """The facts of the results, in terms of the params."""
        known: dict[Graph, tuple[Fact, ...]] = {}
        for inner in graphs_postorder(graph)[0]:
            known[inner] = self.summary(inner, known)
        return known[graph]

    def summary(self, graph: Graph, known: dict[Graph, tuple[Fact, ...]]) -> tuple[Fact, ...]:
        at: dict[Value, Fact] = {p: self.param_fact(graph, i) for i, p in enumerate(graph.params)}
        nothing = self.bottom
        for eqn in graph.eqns:
            if at.keys().isdisjoint(eqn.operands) and not self.originates(eqn):
                continue
            facts = [at.get(v, nothing) for v in eqn.operands]
            inside = eqn.regions and eqn.op.region_dataflow is not None
            found = self.through_regions(eqn, facts, known) if inside else self.after(eqn, facts)
            for result, fact in zip(eqn.results, found, strict=True):
                if fact is not nothing:
                    at[result] = fact
        return tuple([at.get(r, nothing) for r in graph.results])

    def through_regions(self, eqn: Eqn, facts: Sequence[Fact], known: dict[Graph, tuple[Fact, ...]]) -> Sequence[Fact]:
        assert eqn.op.region_dataflow is not None
        slots = eqn.op.region_dataflow(eqn).slots
        held = [self.bottom if s.operand is None else facts[s.operand] for s in slots]
        inside = [known[region] for region in eqn.regions]
        holds = [{s.params[k]: i for i, s in enumerate(slots) if s.params} for k in range(len(inside))]

        def region_fact(region: int, place: int) -> Fact:
            def param(i: int) -> Fact:
                return held[holds[region][i]] if i in holds[region] else self.bottom

            return self.lift_from_region(eqn, inside[region][place], param)

        # A fixed point over the carries. Regions without carries need one round.
        while True:
            joined = [
                self.join([h, *[region_fact(k, p) for k, p in region_returns(s)]])
                for s, h in zip(slots, held, strict=True)
            ]
            stable = joined == held or not any(s.params and s.returns for s in slots)
            held = joined
            if stable:
                break
        # Operands and region results in no slot (predicates, limits, conditions) control which steps run.
        read, given = {s.operand for s in slots}, {place for s in slots for place in region_returns(s)}
        by = [fact for i, fact in enumerate(facts) if i not in read]
        by += [region_fact(k, p) for k, region in enumerate(inside) for p in range(len(region)) if (k, p) not in given]
        outer = {s.result: fact for s, fact in zip(slots, held, strict=True)}
        return [self.add_control_fact(outer.get(i, self.bottom), by) for i in range(len(eqn.results))]


def region_returns(slot: RegionSlot) -> Iterator[tuple[int, int]]:
    """The region results of a slot: pairs of a region and the position of the result."""
    return ((k, place) for k, place in enumerate(slot.returns) if place is not None)


def bit_indices(mask: int) -> Iterator[int]:
    """The indices of the bits that are set in a mask."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
