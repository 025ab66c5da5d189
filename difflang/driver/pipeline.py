"""The road of a graph, in order: optimize, differentiate, optimize. Elaboration comes before it, lowering after."""

from __future__ import annotations

from difflang.ad.differentiate import differentiate, expanded
from difflang.ir.graph import Graph
from difflang.ir.verify import verified
from difflang.passes.optimize import optimize, tidied
from difflang.passes.sized import sized
from difflang.passes.widen import widen


FEW_FRAMES, MOST_FRAMES = 64, 1 << 20  # how deep functions may call themselves, at first and at last


def finished(graph: Graph, frames: int = FEW_FRAMES) -> Graph:
    """The graph as it is lowered: no derivative equation is left, and nothing is computed twice or for nothing.

    Functions that call themselves have room for so many `frames`; see `deeper`.
    """
    return optimize(verified(widen(derived(graph, frames)), after="widen"))


def derived(graph: Graph, frames: int = FEW_FRAMES) -> Graph:
    """The graph without derivative equations. What they differentiate is tidied first, so that little is derived."""
    return differentiate(tidied(with_room(graph, frames)))


def derivable(graph: Graph, frames: int = FEW_FRAMES) -> Graph:
    """The same, rules of functions kept: for what is differentiated further."""
    return expanded(tidied(with_room(graph, frames)))


def with_room(graph: Graph, frames: int) -> Graph:
    """The graph with stacks of that size, where functions call themselves."""
    return sized(graph, lambda _: frames)


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
