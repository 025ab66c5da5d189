"""Says in a graph how its values are split over a mesh, so that XLA's partitioner finds what was predicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from difflang.base.source import NO_SPAN, Span
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import AxisPermutation, Fill, Placement
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.reshard import Split, reshard
from difflang.ops.arrays.resplit import resplit
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.control.on_devices import on_devices
from difflang.ops.linalg.dot_general import dot_general
from difflang.sharding.index_positions import note_index_positions
from difflang.sharding.mesh_splits import MeshSplits, busy
from difflang.sharding.region_splits import region_params, region_results, whole_split
from difflang.sharding.sums_after_loops import sums_after_loops
from difflang.sharding.windows.windows_to_shifts import windows_to_shifts

MAX_ROUNDS = 3  # once the step of a loop has no windows, what it carries may stay split, and have windows elsewhere


def pin_splits(graph: Graph, params: Sequence[Split], mesh: Mapping[str, int]) -> Graph:
    """A finished graph as devices run it, that says how its values are split; see `graph_for_mesh` and `with_pins`."""
    return with_pins(graph_for_mesh(graph, params, mesh), params, mesh)


def with_pins(graph: Graph, params: Sequence[Split], mesh: Mapping[str, int]) -> Graph:
    """A graph for a mesh that says how results of operations on several elements, and what loops carry, are split.

    Where it moves arrays, it does so by the way that costs least: what will be cut is cut first.
    """
    return SplitPins(mesh).graph(graph, params)


def graph_for_mesh(graph: Graph, params: Sequence[Split], mesh: Mapping[str, int]) -> Graph:
    """A finished graph as devices run it: with shifted arrays for windows, and sums that wait for the end of loops."""
    graph = note_index_positions(graph)
    for _ in range(MAX_ROUNDS):
        shifted = windows_to_shifts(graph, params, mesh)
        if shifted is graph:
            break
        graph = shifted
    return sums_after_loops(graph, params, mesh)


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
        self.held: dict[Value, dict[Split, Value]] = {}  # values that stand for one, each in another split
        self.uses = Counter([v for eqn in graph.eqns for v in eqn.operands] + list(graph.results))
        self.fills: dict[Value, Eqn] = {}  # values that are made where they are needed, in each split
        self.eqns: list[Eqn] = []

    def finish(self, results: Sequence[Split | None]) -> Graph:
        for param in self.old.params:
            if self.uses[param]:
                self.to[param] = self.pin(param, self.env[param], NO_SPAN)
        for eqn in self.old.eqns:
            self.add(eqn)
        wanted = [split or self.env[v] for v, split in zip_longest(self.old.results, results)]
        found = [
            self.pin(self.bring(v, split, NO_SPAN), split, NO_SPAN)
            for v, split in zip(self.old.results, wanted, strict=True)
        ]
        return self.old.with_eqns(self.eqns).with_results(found)

    def add(self, old: Eqn) -> None:
        given = [self.env[v] for v in old.operands]
        moves = busy(old, given)
        found = self.pins.splits.of_eqn(old, given) if moves else [whole_split(r.type) for r in old.results]
        self.env.update(zip(old.results, found, strict=True))
        if isinstance(old.op.movement, Placement):
            self.place(old, found[0])
            return
        if is_fill(old) and not any(found[0]):
            self.fills[old.results[0]] = old
            return
        taken = self.pins.splits.taken.get(old, given) if moves else given
        operands = [self.bring(v, split, old.span) for v, split in zip(old.operands, taken, strict=True)]
        eqn = Eqn(old.op, tuple(operands), old.results, old.attrs, old.regions, old.span)
        summed = self.pins.splits.on_devices.get(old) if moves else None
        if summed is not None:
            sizes = self.pins.splits.sizes[old]
            region = Graph(old.operands, (old,), old.results)
            attrs = {"given": tuple(taken), "found": tuple(found), "summed": summed, "sizes": sizes}
            eqn = Eqn(on_devices, eqn.operands, eqn.results, {"name": old.op.name, **attrs}, (region,), eqn.span)
        elif old.regions:
            eqn = self.with_regions(old, eqn)
        self.eqns.append(eqn)
        combined = moves and old in self.pins.splits.on_devices
        for result, split in zip(old.results, found, strict=True):
            known = any(split) and not old.op.elementwise
            if combined or known or self.uses[result] > 1 or not is_cut_freely(old):
                self.to[result] = self.pin(result, split, old.span)

    def bring(self, value: Value, wanted: Split, span: Span) -> Value:
        """What stands for a value, in this split: by the exchanges that were predicted."""
        if value in self.fills:
            return self.filled(value, wanted)
        here = self.to.get(value, value)
        held = self.held.setdefault(value, {self.env[value]: here})
        if wanted in held or not isinstance(value.type, Tensor):
            return held.get(wanted, here)
        source, steps = self.pins.splits.cheapest_steps(value.type, held, wanted)
        if not steps:
            held[wanted] = held[source]
        elif all(step.kind == "cut" for step in steps):
            held[wanted] = self.pin(held[source], wanted, span)
        else:
            moved = Value(value.type, value.home, value.hint)
            attrs = {"given": source, "wanted": wanted}
            self.eqns.append(Eqn(resplit, (held[source],), (moved,), attrs, (), span))
            held[wanted] = self.pin(moved, wanted, span)
        return held[wanted]

    def filled(self, value: Value, wanted: Split) -> Value:
        """What costs nothing to make, made in this split: where an array is whole XLA would make it whole for both."""
        held, old = self.held.setdefault(value, {}), self.fills[value]
        if wanted not in held:
            made = Value(value.type, value.home, value.hint)
            operands = tuple([self.bring(v, self.env[v], old.span) for v in old.operands])
            self.eqns.append(Eqn(old.op, operands, (made,), old.attrs, (), old.span))
            held[wanted] = self.pin(made, wanted, old.span) if operands or any(wanted) else made
        return held[wanted]

    def place(self, old: Eqn, found: Split) -> None:
        """A placement, which is left to XLA where nothing is sent."""
        (x,), (result,) = old.operands, old.results
        self.to[result] = self.pin(self.bring(x, found, old.span), found, old.span)

    def with_regions(self, old: Eqn, eqn: Eqn) -> Eqn:
        """The equation with pins in its regions, and on what they carry."""
        splits = self.pins.splits
        starts = splits.starts.get(old)
        if starts is None:
            return eqn
        regions = [
            self.pins.graph(region, region_params(old, k, starts), region_results(old, k, splits.returns[old]))
            for k, region in enumerate(old.regions)
        ]
        lanes = splits.by_device.get(old)
        attrs = eqn.attrs if lanes is None else {**eqn.attrs, "along": lanes}
        return Eqn(eqn.op, eqn.operands, eqn.results, attrs, tuple(regions), eqn.span)

    def pin(self, value: Value, split: Split, span: Span) -> Value:
        """The value, split like this; as it is if that says nothing."""
        if not isinstance(value.type, Tensor) or not split:
            return value
        pinned = Value(value.type, value.home, value.hint)
        self.eqns.append(Eqn(reshard, (value,), (pinned,), {"splits": split, "source": split}, (), span))
        return pinned


def is_fill(eqn: Eqn) -> bool:
    """Whether an equation makes an array of a smaller one, or of nothing."""
    return len(eqn.results) == 1 and not eqn.op.effect and (not eqn.operands or eqn.op is broadcast)


def is_cut_freely(eqn: Eqn) -> bool:
    """Whether each device can compute its part of a result from parts of the operands, or from nothing."""
    return eqn.op.elementwise or isinstance(eqn.op.movement, Fill | AxisPermutation) or eqn.op is dot_general
