"""Says in a graph how its values are split over a mesh, so that XLA's partitioner finds what was predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from difflang.base.source import NO_SPAN, Span
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import Placement
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.reshard import ANY, Split, reshard
from difflang.sharding.axis_names import AxisNames
from difflang.sharding.index_positions import note_index_positions
from difflang.sharding.mesh_splits import MeshSplits, busy
from difflang.sharding.region_splits import region_params, whole_split
from difflang.sharding.windows.windows_to_shifts import windows_to_shifts


def pin_splits(graph: Graph, params: Sequence[Split], mesh: Mapping[str, int]) -> Graph:
    """A finished graph that says how results of operations on several elements, and what loops carry, are split.

    Windows are shifted arrays in it.
    An array that is moved goes by the way that costs least: what will be cut is cut first.
    """
    graph = note_index_positions(graph)
    return SplitPins(mesh).graph(windows_to_shifts(graph, params, mesh), params)


class SplitPins:
    """The graphs with pins, each region once for every split of its params."""

    def __init__(self, mesh: Mapping[str, int]) -> None:
        self.splits = MeshSplits(mesh)
        self.done: dict[tuple[Graph, tuple[Split, ...], tuple[Split | None, ...]], Graph] = {}

    def graph(self, graph: Graph, params: Sequence[Split], results: Sequence[Split | None] = ()) -> Graph:
        """The graph with pins; `results` are splits that its results must have."""
        key = graph, tuple(params), tuple(results)
        if key not in self.done:
            self.done[key] = PinnedGraph(self, graph, params).finish(results)
        return self.done[key]


class PinnedGraph:
    """One graph under construction. `to` maps its values to those in their place."""

    def __init__(self, pins: SplitPins, graph: Graph, params: Sequence[Split]) -> None:
        self.pins, self.old = pins, graph
        self.env: dict[Value, Split] = dict(zip(graph.params, params, strict=True))
        self.to: dict[Value, Value] = {}
        self.eqns: list[Eqn] = []

    def finish(self, results: Sequence[Split | None]) -> Graph:
        for eqn in self.old.eqns:
            self.add(eqn)
        for value, split in zip(self.old.results, results, strict=False):
            if split is not None:
                self.to[value] = self.pin(self.to.get(value, value), split, NO_SPAN)
        return self.old.with_eqns(self.eqns).replace_results(self.to)

    def add(self, old: Eqn) -> None:
        given = [self.env[v] for v in old.operands]
        found = self.pins.splits.of_eqn(old, given) if busy(old, given) else [whole_split(r.type) for r in old.results]
        self.env.update(zip(old.results, found, strict=True))
        eqn = old.replace_operands(self.to)
        if isinstance(old.op.movement, Placement):
            self.place(eqn, given[0], found[0])
            return
        if old.regions:
            eqn = self.with_regions(old, eqn)
        several = any(map(any, given)) and not old.regions and not old.op.elementwise
        self.eqns.append(self.with_operands(old, eqn, given) if several else eqn)
        if several:
            for result, split, names in zip(old.results, found, AxisNames(old).of_results(), strict=True):
                if isinstance(result.type, Tensor):
                    known = [along if name else ANY for name, along in zip(names, split, strict=True)]
                    self.to[result] = self.pin(result, tuple(known), old.span)

    def with_operands(self, old: Eqn, eqn: Eqn, given: Sequence[Split]) -> Eqn:
        """The equation on operands that are split as it takes them; what only moves elements may send less."""
        if "data movement" in old.op.traits or old not in self.pins.splits.taken:
            return eqn
        operands = list(eqn.operands)
        for k, (before, after) in enumerate(zip(given, self.pins.splits.taken[old], strict=True)):
            if before != after:
                operands[k] = self.pin(operands[k], after, old.span)
        return Eqn(eqn.op, tuple(operands), eqn.results, eqn.attrs, (), eqn.span)

    def place(self, eqn: Eqn, given: Split, found: Split) -> None:
        """A placement, after what it cuts has been cut."""
        taken = {a for along in given for a in along}
        pairs = zip(given, found, strict=True)
        first = tuple([(*a, *[n for n in b if n not in taken]) if b[: len(a)] == a else a for a, b in pairs])
        if first != given and first != found:
            first = self.pins.splits.fitting(first, eqn.operands[0].type)
            eqn = eqn.replace_operands({eqn.operands[0]: self.pin(eqn.operands[0], first, eqn.span)})
        self.eqns.append(eqn)

    def with_regions(self, old: Eqn, eqn: Eqn) -> Eqn:
        """The equation with pins in its regions, and on what they carry."""
        starts = self.pins.splits.starts.get(old)
        if starts is None:
            return eqn
        regions: list[Graph] = []
        for k, region in enumerate(old.regions):
            wanted: list[Split | None] = [None] * len(region.results)
            for slot, split in starts.items():
                at = slot.returns[k] if slot.returns and slot.result is not None else None
                if at is not None and any(split):
                    wanted[at] = split
            regions.append(self.pins.graph(region, region_params(old, k, starts), wanted))
        operands = list(eqn.operands)
        for slot, split in starts.items():
            if slot.result is not None and slot.operand is not None and split != self.env[old.operands[slot.operand]]:
                operands[slot.operand] = self.pin(operands[slot.operand], split, old.span)
        lanes = self.pins.splits.by_device.get(old)
        attrs = eqn.attrs if lanes is None else {**eqn.attrs, "along": lanes}
        return Eqn(eqn.op, tuple(operands), eqn.results, attrs, tuple(regions), eqn.span)

    def pin(self, value: Value, split: Split, span: Span) -> Value:
        """The value, split like this; as it is if that says nothing."""
        if not isinstance(value.type, Tensor) or not split or all(along == ANY for along in split):
            return value
        pinned = Value(value.type, value.home, value.hint)
        self.eqns.append(Eqn(reshard, (value,), (pinned,), {"splits": split, "source": split}, (), span))
        return pinned
