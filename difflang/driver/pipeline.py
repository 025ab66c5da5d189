"""The road of a graph, in order: optimize, differentiate, optimize. Elaboration comes before it, lowering after."""

from __future__ import annotations

from difflang.ad.differentiate import differentiate, expanded
from difflang.ir.graph import Graph
from difflang.passes.optimize import batched, optimize, tidied


def finished(graph: Graph) -> Graph:
    """The graph as it is lowered: no derivative equation is left, and nothing is computed twice or for nothing."""
    return optimize(batched(derived(graph)))


def derived(graph: Graph) -> Graph:
    """The graph without derivative equations. What they differentiate is tidied first, so that little is derived."""
    return differentiate(tidied(graph))


def derivable(graph: Graph) -> Graph:
    """The same, rules of functions kept: for what is differentiated further."""
    return expanded(tidied(graph))


STAGES = ("ir", "derived", "optimized")


def staged(graph: Graph, stage: str) -> Graph:
    """The graph at a stage: as elaborated, without derivative equations, or as it is lowered.

    Errors: ValueError for another stage.
    """
    match stage:
        case "ir":
            return graph
        case "derived":
            return derived(graph)
        case "optimized":
            return finished(graph)
        case _:
            raise ValueError(f"there is no stage {stage!r}: the stages are {', '.join(STAGES)}")
