"""Refuses what cannot be moved to the host: lanes of a map, which JAX would have read by a gather there."""

from __future__ import annotations

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.ir.graph import Graph, inner_first
from difflang.ops.map import map_
from difflang.ops.offload import to_host


def refuse_moves_in_lanes(graph: Graph) -> None:
    """Errors: DL0801 at a map in whose lanes something is moved to the host."""
    moving: set[Graph] = set()
    for inner in inner_first(graph)[0]:
        for eqn in inner.eqns:
            within = not moving.isdisjoint(eqn.regions)
            if within and eqn.op is map_:
                raise refused(Label(eqn.span))
            if within or eqn.op is to_host:
                moving.add(inner)


def refused(label: Label) -> DifflangError:
    return DifflangError(
        Diagnostic(
            "DL0801",
            "`@checkpoint(offload)` of a loop in a comprehension is not there yet",
            (label,),
            ("`sqrt` and `revolve` keep less, there too",),
        )
    )
