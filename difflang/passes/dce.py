"""Dead code elimination: drops unread equations, and unread consts, carries and outputs of equations with regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from difflang.ir.graph import Attr, Eqn, Graph, Value
from difflang.ir.region_dataflow import RegionDataflow, RegionSlot


def dce(graph: Graph) -> Graph:
    """Drop unread equations, and unread consts, carries, items and outputs of loops, maps, branches and calls.

    A graph used by several equations stays one graph: it keeps what any of them needs.
    Cost: linear in equations and slots, whatever the nesting and however carries depend on each other.
    """
    if not any([eqn.regions for eqn in graph.eqns]):
        return graph.with_eqns(live_equations(graph.eqns, graph.results)[0])
    live = SlotLivenessAnalysis()
    top = live.liveness_of(graph)
    for result in graph.results:
        live.mark_value(top, result)
    live.propagate()
    return GraphPruner(live).graph(graph, whole=True)


def live_equations(eqns: Sequence[Eqn], results: Iterable[Value]) -> tuple[tuple[Eqn, ...], set[Value]]:
    """The equations that the results need, and every value that these equations read."""
    used = set(results)
    kept: list[Eqn] = []
    for eqn in reversed(eqns):
        if not used.isdisjoint(eqn.results) or eqn.effectful:
            used.update(eqn.operands)
            kept.append(eqn)
    return tuple(reversed(kept)), used


class GraphLiveness(Struct, eq=False):
    """The live values, equations, params and results of one graph, so far."""

    # Values and equations may occur in several graphs, so each graph has sets of its own.

    graph: Graph
    made: dict[Value, Eqn] = field(default_factory=dict)
    params: dict[Value, int] = field(default_factory=dict)
    values: set[Value] = field(default_factory=set)
    eqns: set[Eqn] = field(default_factory=set)
    live_params: set[int] = field(default_factory=set)
    live_results: set[int] = field(default_factory=set)
    todo: list[Value] = field(default_factory=list)  # live, and not traced to its equation yet
    nested: dict[Eqn, RegionLiveness] = field(default_factory=dict)


class RegionLiveness(Struct, eq=False):
    """An equation with regions, and which of its slots are live."""

    eqn: Eqn
    regions: tuple[GraphLiveness, ...]
    layout: RegionDataflow
    of_result: dict[Value, int]
    slots: set[int] = field(default_factory=set)

    @property
    def dropped(self) -> list[RegionSlot]:
        return [s for i, s in enumerate(self.layout.slots) if i not in self.slots]


class SlotUse(Struct, frozen=True, eq=False):
    """The slot that a param or result of a region belongs to, in an equation of the graph `scope`."""

    scope: GraphLiveness
    nested: RegionLiveness
    slot: int


class SlotLivenessAnalysis:
    """Propagates liveness from results to the values they are computed from.

    Regions are tracked by position, so all equations that share a region agree on its live params and results.
    """

    def __init__(self) -> None:
        self.scopes: dict[Graph, GraphLiveness] = {}
        self.todo: list[GraphLiveness] = []  # the graphs whose own `todo` is not empty
        self.param_users: dict[tuple[GraphLiveness, int], list[SlotUse]] = {}
        self.result_users: dict[tuple[GraphLiveness, int], list[SlotUse]] = {}

    def liveness_of(self, graph: Graph) -> GraphLiveness:
        if graph in self.scopes:
            return self.scopes[graph]
        scope = self.scopes[graph] = GraphLiveness(graph)
        scope.params = {p: i for i, p in enumerate(graph.params)}
        scope.made = {result: eqn for eqn in graph.eqns for result in eqn.results}
        for eqn in graph.eqns:
            if eqn.regions:
                self.enter(scope, eqn)
        for eqn in graph.eqns if graph.effectful else ():
            if eqn.effectful:
                self.mark_eqn(scope, eqn)
        return scope

    def enter(self, scope: GraphLiveness, eqn: Eqn) -> None:
        layout = eqn.op.region_dataflow(eqn) if eqn.op.region_dataflow else RegionDataflow(())
        results = {eqn.results[s.result]: i for i, s in enumerate(layout.slots) if s.result is not None}
        nested = scope.nested[eqn] = RegionLiveness(
            eqn, tuple([self.liveness_of(g) for g in eqn.regions]), layout, results
        )
        for number, slot in enumerate(layout.slots):
            for region, place in zip(nested.regions, slot.params, strict=False):
                if place is not None:
                    self.param_users.setdefault((region, place), []).append(SlotUse(scope, nested, number))
            for region, place in zip(nested.regions, slot.returns, strict=False):
                if place is not None:
                    self.result_users.setdefault((region, place), []).append(SlotUse(scope, nested, number))

    def mark_value(self, scope: GraphLiveness, value: Value) -> None:
        if value not in scope.values:
            scope.values.add(value)
            if not scope.todo:
                self.todo.append(scope)
            scope.todo.append(value)

    def propagate(self) -> None:
        while self.todo:
            self.follow(self.todo.pop())

    def follow(self, scope: GraphLiveness) -> None:
        """Trace the live values of one graph to their equations, until none is left."""
        made, values, eqns, todo = scope.made, scope.values, scope.eqns, scope.todo
        while todo:
            value = todo.pop()
            if (eqn := made.get(value)) is None:
                self.mark_param(scope, scope.params[value])
            elif eqn.regions:
                self.mark_eqn(scope, eqn)
                nested = scope.nested[eqn]
                if (slot := nested.of_result.get(value)) is not None:
                    self.activate(scope, nested, slot)
            elif eqn not in eqns:
                # `mark_eqn` inlined: this is most of the work.
                eqns.add(eqn)
                fresh = [v for v in eqn.operands if v not in values]
                values.update(fresh)
                todo += fresh

    def mark_eqn(self, scope: GraphLiveness, eqn: Eqn) -> None:
        """Mark an equation live, with its operands outside slots, and the slots that are live through other users."""
        if eqn in scope.eqns:
            return
        scope.eqns.add(eqn)
        if not eqn.regions:
            for value in eqn.operands:
                self.mark_value(scope, value)
            return
        nested = scope.nested[eqn]
        slots = nested.layout.slots
        for i in set(range(len(eqn.operands))) - {s.operand for s in slots}:
            self.mark_value(scope, eqn.operands[i])
        for number, region in enumerate(nested.regions):
            for i in set(range(len(region.graph.params))) - {s.params[number] for s in slots if s.params}:
                self.mark_param(region, i)
            for i in set(range(len(region.graph.results))) - {s.returns[number] for s in slots if s.returns}:
                self.mark_result(region, i)
            for i, slot in enumerate(slots):
                wanted = slot.params and slot.params[number] in region.live_params
                if wanted or slot.always_live or (slot.returns and slot.returns[number] in region.live_results):
                    self.activate(scope, nested, i)

    def activate(self, scope: GraphLiveness, nested: RegionLiveness, number: int) -> None:
        if number in nested.slots:
            return
        nested.slots.add(number)
        slot = nested.layout.slots[number]
        if slot.operand is not None:
            self.mark_value(scope, nested.eqn.operands[slot.operand])
        for region, place in zip(nested.regions, slot.params, strict=False):
            if place is not None:
                self.mark_param(region, place)
        for region, place in zip(nested.regions, slot.returns, strict=False):
            if place is not None:
                self.mark_result(region, place)

    def mark_param(self, region: GraphLiveness, place: int) -> None:
        if place not in region.live_params:
            region.live_params.add(place)
            self.notify_users(self.param_users.get((region, place), []))

    def mark_result(self, region: GraphLiveness, place: int) -> None:
        if place not in region.live_results:
            region.live_results.add(place)
            self.mark_value(region, region.graph.results[place])
            self.notify_users(self.result_users.get((region, place), []))

    def notify_users(self, users: list[SlotUse]) -> None:
        for use in users:
            if use.nested.eqn in use.scope.eqns:
                self.activate(use.scope, use.nested, use.slot)


# ---- Pruning


class GraphPruner:
    """Rebuilds graphs with only their live parts, each graph once."""

    def __init__(self, live: SlotLivenessAnalysis) -> None:
        self.live = live
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph, whole: bool = False) -> Graph:
        if graph in self.done:
            return self.done[graph]
        scope = self.live.scopes[graph]
        eqns = tuple([self.eqn(scope, e) if e.regions else e for e in graph.eqns if e in scope.eqns])
        params = tuple([p for i, p in enumerate(graph.params) if whole or i in scope.live_params])
        results = tuple([r for i, r in enumerate(graph.results) if whole or i in scope.live_results])
        same = len(params) == len(graph.params) and len(results) == len(graph.results)
        same = same and len(eqns) == len(graph.eqns) and all(a is b for a, b in zip(eqns, graph.eqns, strict=True))
        return self.done.setdefault(graph, graph if same else Graph(params, eqns, results, graph.name))

    def eqn(self, scope: GraphLiveness, eqn: Eqn) -> Eqn:
        regions = tuple([self.graph(g) for g in eqn.regions])
        dropped = scope.nested[eqn].dropped
        if not dropped:
            return eqn.with_regions(regions)
        operands = {s.operand for s in dropped}
        results = {s.result for s in dropped}
        fewer = Counter(s.counted for s in dropped)
        attrs: dict[str, Attr] = {
            k: v - fewer[k] if isinstance(v, int) and fewer[k] else v for k, v in eqn.attrs.items()
        }
        return Eqn(
            eqn.op,
            tuple([v for i, v in enumerate(eqn.operands) if i not in operands]),
            tuple([r for i, r in enumerate(eqn.results) if i not in results]),
            attrs,
            regions,
            eqn.span,
        )
