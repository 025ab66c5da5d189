"""How the params of a graph are laid out over a mesh, as the types of the program declare it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import prod

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.op import Placement
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.reshard import Split


@lru_cache(maxsize=1024)
def entry_splits(graph: Graph) -> tuple[Split | None, ...]:
    """For each param the split that its type declares, in the function that takes it; None if no type does."""
    found: dict[Value, Split] = {}
    for eqn in graph.eqns:
        for value, split in declared_by(eqn):
            found.setdefault(value, split)
    return tuple([found.get(p) for p in graph.params])


def declared_by(eqn: Eqn) -> Iterator[tuple[Value, Split]]:
    """The operands whose split an equation declares, itself or where its regions take them whole."""
    if isinstance(eqn.op.movement, Placement):
        if eqn.op.movement.declared(**eqn.attrs):
            yield eqn.operands[0], eqn.op.movement.splits(**eqn.attrs)
        return
    for k, region in enumerate(eqn.regions):
        inside = entry_splits(region)
        for operand, at in region_operands(eqn, k):
            split = inside[at]
            if split is not None and operand.type == region.params[at].type:
                yield operand, split


def region_operands(eqn: Eqn, k: int) -> list[tuple[Value, int]]:
    """The operands that a region takes, each with the position of its param."""
    if eqn.op.region_dataflow is None:
        return (
            [(v, i) for i, v in enumerate(eqn.operands[: len(eqn.regions[k].params)])] if eqn.op.is_derivative else []
        )
    slots = [s for s in eqn.op.region_dataflow(eqn).slots if s.operand is not None and s.params]
    return [(eqn.operands[s.operand], at) for s in slots if s.operand is not None and (at := s.params[k]) is not None]


def check_placements(graph: Graph, mesh: Mapping[str, int]) -> None:
    """Errors: DL0603 for an axis that a graph splits along axes of a mesh that do not divide it."""
    for eqn in [e for g in graphs_postorder(graph)[0] for e in g.eqns]:
        if isinstance(eqn.op.movement, Placement) and isinstance(type := eqn.results[0].type, Tensor):
            for size, along in zip(type.shape, eqn.op.movement.splits(**eqn.attrs), strict=True):
                count = prod([mesh.get(name, 1) for name in along])
                if isinstance(size, int) and size % count:
                    by = " and ".join([f"`{name}`" for name in along])
                    message = f"{size} is not a multiple of {count}, the size of {by}"
                    labels = (Label(eqn.span, f"split here; this is {type}"),)
                    way = "pad the array, split another axis, or use another mesh"
                    raise DifflangError(Diagnostic("DL0603", message, labels, (way,)))
