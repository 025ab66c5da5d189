"""Windows of arrays that are split over devices become the arrays, shifted: devices send only what crosses borders.

A slice `t[2..n]` of an array whose axis is split has a size that the mesh does not divide, and XLA gathers the array
for it. Here it stays the array, and where it begins is remembered. What is computed of windows element by element is
computed of arrays that are shifted to begin at one place; outside of the windows something is computed too, and nobody
reads it. Where the result is put into an array, or padded to its size, it is an array that is split again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from difflang.ir.graph import Attrs, Eqn, Graph, Value, graphs_postorder
from difflang.ir.region_dataflow import RegionSlot
from difflang.ir.tensor_types import History, Tensor, Type, sequence_item_type
from difflang.ops.arrays.reshard import Split
from difflang.ops.arrays.shape_manipulation import broadcast, slice_
from difflang.passes.dce import dce
from difflang.sharding.mesh_splits import MeshSplits
from difflang.sharding.region_splits import is_item, region_params
from difflang.sharding.windows.window_builder import Starts, Window, WindowBuilder, shape_of
from difflang.sharding.windows.window_rules import MAKES_WINDOWS, rewrite


def windows_to_shifts(graph: Graph, params: Sequence[Split], mesh: Mapping[str, int]) -> Graph:
    """A finished graph whose params are split like this, without windows along axes that are split. Cost: linear."""
    if not any(e.op in MAKES_WINDOWS for g in graphs_postorder(graph)[0] for e in g.eqns):
        return graph
    kinds = [ParamKind(p.type, split) for p, split in zip(graph.params, params, strict=True)]
    found = WindowGraphs(MeshSplits(mesh)).of(graph, tuple(kinds))
    return dce(with_cuts(found, graph, 0, set())) if found.changed else graph


class ParamKind(Struct, frozen=True):
    """What a param is: an array, which is split like this.

    With `starts` the old param is a window of it; if it is `filled`, the old one is an array filled with that number.
    """

    type: Type
    split: Split
    starts: Starts | None = None
    filled: bool = False


class WindowGraph(Struct, frozen=True):
    """A graph of arrays, and for each result the window of it that the old one is."""

    graph: Graph
    windows: tuple[Window | None, ...]
    changed: bool


class WindowGraphs:
    """The graphs of one program, each once for every kind of its params."""

    def __init__(self, analysis: MeshSplits) -> None:
        self.analysis = analysis
        self.done: dict[tuple[Graph, tuple[ParamKind, ...]], WindowGraph] = {}

    def of(self, graph: Graph, params: tuple[ParamKind, ...]) -> WindowGraph:
        key = graph, params
        if key not in self.done:
            self.done[key] = WindowShifter(self, graph, params).finish(graph)
        return self.done[key]


class WindowShifter:
    """One graph: its equations in order."""

    def __init__(self, graphs: WindowGraphs, graph: Graph, params: Sequence[ParamKind]) -> None:
        self.graphs = graphs
        self.at = WindowBuilder(graphs.analysis)
        self.uneven: set[Value] = set()  # computed element by element of windows that have no place in common
        self.parts: dict[tuple[Value, object], Value] = {}  # of those
        for param, kind in zip(graph.params, params, strict=True):
            given = Value(kind.type, param.home, param.hint) if kind.filled else param
            self.at.param(given, kind.type, kind.split, kind.starts)
            if kind.filled:
                shape = {"shape": shape_of(param), "axes": ()}
                self.add(Eqn(broadcast, (given,), (param,), shape, (), self.at.to.span))
        for eqn in graph.eqns:
            self.add(eqn)

    def add(self, eqn: Eqn) -> None:
        at = self.at
        at.to.span = eqn.span
        at.made |= dict.fromkeys(eqn.results, eqn)
        if eqn.op is slice_ and eqn.operands[0] in self.uneven:
            self.alias(eqn.results[0], self.part(eqn.operands[0], eqn.attrs))
        elif eqn.regions and any(v in at.windows or any(at.splits[v]) for v in eqn.operands) and self.add_regions(eqn):
            pass
        elif eqn.regions or not rewrite(at, eqn):
            at.copy(eqn)
            if eqn.op.elementwise and any(v in at.windows or v in self.uneven for v in eqn.operands):
                self.uneven.add(eqn.results[0])

    def finish(self, old: Graph) -> WindowGraph:
        at = self.at
        windows = [None if r in at.values else at.windows[r] for r in old.results]
        windows = [None if w is None or w.beyond is not None else w for w in windows]
        results = [at.value(r) if w is None else w.array for r, w in zip(old.results, windows, strict=True)]
        graph = at.to.finish(results, at.to.params, old.name)
        return WindowGraph(graph, tuple(windows), at.changed)

    # ---- Parts of what has no place

    def part(self, x: Value, attrs: Attrs) -> Value:
        """A slice of what is computed element by element: computed of slices, which may have a place in common."""
        key = x, tuple(attrs.items())
        if key not in self.parts:
            made = self.at.made[x]
            if x in self.uneven:
                operands = tuple([self.part(v, attrs) for v in made.operands])
                eqn = Eqn(made.op, operands, (self.sliced(x, attrs),), made.attrs, (), made.span)
            else:
                eqn = Eqn(slice_, (x,), (self.sliced(x, attrs),), attrs, (), made.span)
            self.add(eqn)
            (self.parts[key],) = eqn.results
        return self.parts[key]

    def sliced(self, x: Value, attrs: Attrs) -> Value:
        assert isinstance(x.type, Tensor)
        bounds = zip(attrs["starts"], attrs["stops"], attrs["steps"], strict=True)
        return Value(Tensor(x.type.dtype, tuple([-(-(b - a) // s) for a, b, s in bounds])), x.home, x.hint)

    def alias(self, old: Value, same: Value) -> None:
        for table in (self.at.values, self.at.windows, self.at.splits):
            if same in table:
                table[old] = table[same]  # pyright: ignore[reportArgumentType]

    # ---- Equations with regions

    def add_regions(self, eqn: Eqn) -> bool:
        """Windows go in and out of regions as the arrays that they are windows of, but for what loops carry."""
        if eqn.op.region_dataflow is None:
            return False
        at, analysis = self.at, self.graphs.analysis
        slots = eqn.op.region_dataflow(eqn).slots
        entering = {s: w for s in slots if (w := self.entering(eqn, s)) is not None}
        splits_of_windows = {s.operand: w.split for s, w in entering.items()}
        analysis.of_regions(eqn, [splits_of_windows.get(i, at.splits[v]) for i, v in enumerate(eqn.operands)])
        filled = {s: n for s in slots if (n := self.entering_number(eqn, s)) is not None}
        done: list[WindowGraph] = []
        for k, region in enumerate(eqn.regions):
            splits = region_params(eqn, k, analysis.starts[eqn])
            params = [ParamKind(p.type, split) for p, split in zip(region.params, splits, strict=True)]
            for slot, window in entering.items():
                if (place := slot.params[k]) is not None:
                    params[place] = param_of(window, item=is_item(eqn, k, slot))
            for slot, number in filled.items():
                if (place := slot.params[k]) is not None:
                    params[place] = ParamKind(number.type, (), filled=True)
            done.append(self.graphs.of(region, tuple(params)))
        at.changed |= any(one.changed for one in done)
        leaving = {s.result: w for s in slots if s.result is not None and (w := leaves_as(s, done)) is not None}
        kept = {at for s in slots if s.result in leaving for at in enumerate(s.returns)}
        regions = tuple([with_cuts(one, eqn.regions[k], k, kept) for k, one in enumerate(done)])
        arrays = {s.operand: n for s, n in filled.items()} | {s.operand: w.array for s, w in entering.items()}
        operands = [arrays[i] if i in arrays else at.value(v) for i, v in enumerate(eqn.operands)]
        results = at.to.emit(eqn.op, operands, regions, hints=[r.hint for r in eqn.results], **eqn.attrs)
        splits = analysis.of_eqn(eqn, [at.splits[v] for v in eqn.operands])
        for i, (old, new, split) in enumerate(zip(eqn.results, results, splits, strict=True)):
            at.splits[old] = split
            if i in leaving:
                stacked = len(shape_of(new)) - len(leaving[i].starts)
                starts = ((None,) * stacked) + leaving[i].starts
                at.windows[old] = Window(new, starts, ((),) * stacked + leaving[i].split)
            else:
                at.values[old] = new
        return True

    def entering_number(self, eqn: Eqn, slot: RegionSlot) -> Value | None:
        """The number that an array is filled with which is the same in every run of the regions."""
        if slot.operand is None or not slot.invariant:
            return None
        old = eqn.operands[slot.operand]
        return self.at.number(old) if isinstance(old.type, Tensor) and old.type.rank else None

    def entering(self, eqn: Eqn, slot: RegionSlot) -> Window | None:
        """The window that enters regions as an array: no carry, and no item of an axis that is a window."""
        if slot.operand is None or not slot.params or slot.returns or slot.result is not None:
            return None
        window = self.at.windows.get(eqn.operands[slot.operand])
        if window is None or window.beyond is not None:
            return None
        return None if is_item(eqn, 0, slot) and window.starts[0] is not None else window


def param_of(window: Window, *, item: bool) -> ParamKind:
    type = window.array.type
    if isinstance(type, History) or item:
        type = sequence_item_type(type)
    first = 1 if item else 0
    return ParamKind(type, window.split[first:], window.starts[first:])


def leaves_as(slot: RegionSlot, done: Sequence[WindowGraph]) -> Window | None:
    """The window that every region gives for an output, if it is at one place."""
    if slot.operand is not None or not slot.returns or None in slot.returns:
        return None
    found = [one.windows[place] for one, place in zip(done, slot.returns, strict=False) if place is not None]
    first = found[0]
    if first is None:
        return None
    kind = first.array.type, first.starts, first.split
    return first if all(w is not None and (w.array.type, w.starts, w.split) == kind for w in found) else None


def with_cuts(done: WindowGraph, old: Graph, k: int, kept: set[tuple[int, int | None]]) -> Graph:
    """The region, which cuts out the windows among its results that do not leave as arrays."""
    cuts = {i: w for i, w in enumerate(done.windows) if w is not None and (k, i) not in kept}
    if not cuts:
        return done.graph
    at = WindowBuilder(MeshSplits({}))
    params = [at.to.param(p.type, p.hint) for p in done.graph.params]
    results = at.to.inline(done.graph, *params)
    for i, w in cuts.items():
        results[i] = at.cut(Window(results[i], w.starts, w.split), shape_of(old.results[i]))
    return at.to.finish(results, params, done.graph.name)
