"""The road of a graph, in order: optimize, differentiate, optimize. Elaboration comes before it, lowering after."""

from __future__ import annotations

from difflang.ad.differentiate import differentiate
from difflang.ir.graph import Graph
from difflang.passes.optimize import optimize


def finished(graph: Graph) -> Graph:
    """The graph as it is lowered: no derivative equation is left, and nothing is computed twice or for nothing."""
    return optimize(differentiate(optimize(graph)))
