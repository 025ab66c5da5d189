"""Shows a graph in JAX's forms: lowered to StableHLO, for this machine or another platform, and as a jaxpr."""

from __future__ import annotations

from typing import Any

import jax

from difflang.ir.graph import Graph
from difflang.lower.graph_to_jax import Lowering
from difflang.runtime.compile import lower_graph, shape_struct


def lower_to_stablehlo(graph: Graph, platform: str | None = None) -> Any:
    """JAX's lowered program for this machine, or for a platform that need not be on it."""
    if platform is None:
        return lower_graph(graph, jax.default_backend())
    return lower_graph(graph, platform, lowering_platforms=(platform,))


def jaxpr_text(graph: Graph) -> str:
    """The graph as a jaxpr."""
    lowering = Lowering(jax)
    with jax.enable_x64(True):
        made = jax.make_jaxpr(lambda *arrays: lowering.graph(graph, *arrays))
        return f"{made(*[shape_struct(p.type, None) for p in graph.params])}\n"
