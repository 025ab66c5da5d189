"""Checks that what a function with axes of a mesh in its types takes together is split alike.

The sizes of the mesh are not known yet, and those of arrays may be names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.op import Placement
from difflang.ir.symbolic_dims import Poly
from difflang.ops.arrays.reshard import ANY, Split
from difflang.sharding.entry_splits import declared_by
from difflang.sharding.index_positions import note_index_positions
from difflang.sharding.mesh_splits import MeshSplits, quoted
from difflang.sharding.region_splits import array_shape, whole_split

WAY = "`reshard(x, @data, _)` splits an array in another way, and `_` makes an axis whole"


def check_splits(eqns: Sequence[Eqn]) -> Mapping[Value, Split]:
    """How the values of a function with axes of a mesh in its types are split; nothing if it names no axis.

    Errors: DL0604 or DL0605 where its equations take together what is split in different ways.
    """
    made = {r for eqn in eqns for r in eqn.results}
    free = tuple(dict.fromkeys([v for eqn in eqns for v in eqn.operands if v not in made]))
    graph = note_index_positions(Graph(free, tuple(eqns), ()))
    if any(isinstance(e.op.movement, Placement) for e in eqns) and all(map(has_sizes, graphs_postorder(graph)[0])):
        declared: dict[Value, Split] = {}
        for value, split in [pair for eqn in eqns for pair in declared_by(eqn)]:
            declared.setdefault(value, split)
        found = DeclaredSplits()
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

    def __init__(self) -> None:
        super().__init__({}, strict=True)

    def placed(self, eqn: Eqn, given: Split, placement: Placement) -> Split:
        asked = placement.splits(**eqn.attrs)
        if placement.declared(**eqn.attrs):
            for here, there in zip(given, asked, strict=True):
                if here and there not in (here, ANY):
                    raise declared_otherwise(eqn, here, there)
        return tuple([b if a == ANY else a for a, b in zip(asked, given, strict=True)])

    def meet(self, eqn: Eqn, axis: str) -> None:
        message = f"`{axis}` splits two axes here that do not belong together"
        raise DifflangError(Diagnostic("DL0605", message, (Label(eqn.span, "one must become whole"),), (WAY,)))

    def of_regions(self, eqn: Eqn, given: Sequence[Split]) -> list[Split]:
        try:
            return super().of_regions(eqn, given)
        except DifflangError as error:
            (found,) = error.diagnostics
            if found.span is None or eqn.span.contains(found.span):
                raise
            labels = (*found.labels, Label(eqn.span, "used here"))
            raise DifflangError(Diagnostic(found.code, found.message, labels, found.helps)) from None


def declared_otherwise(eqn: Eqn, here: tuple[str, ...], there: tuple[str, ...]) -> DifflangError:
    said = f"split along {quoted(there)}" if there else "whole"
    message = f"an array that is split along {quoted(here)} must be {said} here"
    return DifflangError(Diagnostic("DL0605", message, (Label(eqn.span, said),), (WAY,)))
