"""Checks that what a function with axes of a mesh in its types takes together is split alike.

The sizes of the mesh are not known yet, and those of arrays may be names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, Label
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.op import Placement
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.reshard import ANY, Along, Split, split_type_text
from difflang.ops.control.call import call
from difflang.sharding.entry_splits import declared_by, region_operands
from difflang.sharding.index_positions import note_index_positions
from difflang.sharding.mesh_splits import MeshSplits, RegionSplits
from difflang.sharding.region_splits import array_shape, whole_split
from difflang.sharding.split_conflicts import SplitConflict, quoted, split_differently

WAY = "`reshard(x, @data, _)` splits an array in another way, and `_` makes an axis whole"


def check_splits(
    eqns: Sequence[Eqn], regions: dict[Any, RegionSplits], noted: dict[Graph, Graph]
) -> Mapping[Value, Split]:
    """How the values of a function with axes of a mesh in its types are split; nothing if it names no axis.

    `regions` and `noted` are known of functions that several functions call, and grow.
    Errors: DL0604 or DL0605 where its equations take together what is split in different ways.
    """
    made = {r for eqn in eqns for r in eqn.results}
    free = tuple(dict.fromkeys([v for eqn in eqns for v in eqn.operands if v not in made]))
    graph = note_index_positions(Graph(free, tuple(eqns), ()), noted)
    if any(isinstance(e.op.movement, Placement) for e in eqns) and all(map(has_sizes, graphs_postorder(graph)[0])):
        declared: dict[Value, Split] = {}
        for value, split in [pair for eqn in eqns for pair in declared_by(eqn)]:
            declared.setdefault(value, split)
        found = DeclaredSplits(graph, regions)
        found.of_graph(graph, [declared.get(v) or whole_split(v.type) for v in free])
        return found.values
    return {}


def has_sizes(graph: Graph) -> bool:
    """Whether the number of axes of every array is known."""
    values = [*graph.params, *[r for eqn in graph.eqns for r in eqn.results]]
    return all(isinstance(n, (int, Poly)) for v in values for n in array_shape(v.type))


class DeclaredSplits(MeshSplits):
    """Splits as types say: nothing is split in another way without a word."""

    ways = (WAY,)

    def __init__(self, graph: Graph, regions: dict[Any, RegionSplits]) -> None:
        super().__init__({}, strict=True)
        self.graph, self.regions = graph, regions
        self.given: dict[Value, Split] = {}  # how operands were split where they were taken last

    def of_eqn(self, eqn: Eqn, given: Sequence[Split]) -> list[Split]:
        self.given.update(zip(eqn.operands, given, strict=True))
        try:  # a call itself, for fewer levels of Python where calls nest
            return self.of_region(eqn.regions[0], given).results if eqn.op is call else super().of_eqn(eqn, given)
        except SplitConflict as conflict:
            raise self.traced(eqn, conflict) from None

    def placed(self, eqn: Eqn, given: Split, placement: Placement) -> Split:
        asked = placement.splits(**eqn.attrs)
        if placement.declared(**eqn.attrs):
            for here, there in zip(given, asked, strict=True):
                if here and there not in (here, ANY):
                    raise declared_otherwise(eqn, here, there)
        return tuple([b if a == ANY else a for a, b in zip(asked, given, strict=True)])

    def meet(self, eqn: Eqn, axis: str) -> None:
        message = f"`{axis}` splits two axes here that do not belong together"
        label = Label(eqn.span, "one must become whole")
        raise SplitConflict(Diagnostic("DL0605", message, (label,), (WAY,)), (axis,))

    def flow_together(self, eqn: Eqn, ways: Iterable[Along]) -> None:
        first, *others = list(dict.fromkeys(filter(None, ways))) or [()]
        if others:
            raise split_differently(eqn, first, others[0], self.ways)

    def traced(self, eqn: Eqn, conflict: SplitConflict) -> SplitConflict:
        """A conflict in an equation or its regions, with the places where the program splits what meets there."""
        (found,) = conflict.diagnostics
        (first, *others), params = found.labels, conflict.params
        if params is None:
            params = [(v, axis) for v in eqn.operands for axis in conflict.axes if self.is_split(v, axis)]
            texts = [split_type_text(v.type, self.given[v]) for v, _ in params if isinstance(v.type, Tensor)]
            types = " and ".join(dict.fromkeys(texts))
            labels = [Label(first.span, f"{first.text}: {types}")]
            if isinstance(eqn.op.movement, Placement) and (maker := self.makers.get(eqn.operands[0])) is not None:
                labels = [first, Label(maker.span, f"this is {types}")]
        elif eqn.span.contains(first.span):
            labels = [first, *others]
        else:
            labels = [Label(eqn.span, "called here" if eqn.op is call else "used here"), first, *others]
        outside = {eqn.regions[k].params[at]: v for k in range(len(eqn.regions)) for v, at in region_operands(eqn, k)}
        origins = dict.fromkeys([(self.origin(outside.get(v, v), axis), axis) for v, axis in params])
        for value, axis in origins:
            maker, marked = self.makers.get(value), [label.span for label in labels]
            if maker is not None and maker.span not in marked:
                labels.append(Label(maker.span, f"split along `{axis}` here"))
        entered = [(v, axis) for v, axis in origins if v not in self.makers]
        return SplitConflict(replace(found, labels=tuple(labels)), conflict.axes, entered)

    def origin(self, value: Value, axis: str) -> Value:
        """The value that a program first splits along an axis of the mesh, or the param that is split along it."""
        while (maker := self.makers.get(value)) is not None and not splits_along(maker, axis):
            before = next((v for v in maker.operands if self.is_split(v, axis)), None)
            if before is None:
                break
            value = before
        return value

    @cached_property
    def makers(self) -> Mapping[Value, Eqn]:
        return {r: eqn for graph in graphs_postorder(self.graph)[0] for eqn in graph.eqns for r in eqn.results}

    def is_split(self, value: Value, axis: str) -> bool:
        return any(axis in along for along in self.given.get(value, ()))


def splits_along(eqn: Eqn, axis: str) -> bool:
    """Whether an equation says that an array is split along an axis of the mesh."""
    return isinstance(eqn.op.movement, Placement) and any(axis in a for a in eqn.op.movement.splits(**eqn.attrs))


def declared_otherwise(eqn: Eqn, here: tuple[str, ...], there: tuple[str, ...]) -> SplitConflict:
    said = f"split along {quoted(there)}" if there else "whole"
    message = f"an array that is split along {quoted(here)} must be {said} here"
    return SplitConflict(Diagnostic("DL0605", message, (Label(eqn.span, said),), (WAY,)), here)
