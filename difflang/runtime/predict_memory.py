"""What a program needs in memory, as predicted before it is compiled. What XLA says is asked of an `Executable`."""

from __future__ import annotations

import jax

from difflang.base.gc_pause import pause_gc
from difflang.ir.graph import Graph
from difflang.lower.buffer_assignment import BufferAssignment, assign_buffers
from difflang.lower.fusion_model import order_by_memory, order_by_readiness
from difflang.lower.jaxpr_reader import read_jaxpr
from difflang.runtime.compile import trace_graph


def predict_memory(graph: Graph, platform: str = "cpu", *, low_memory: bool = False) -> BufferAssignment:
    """The buffers of a program, by the model of `lower.kernels`. It is traced, not compiled.

    `sparing`: where XLA is told to order its kernels so that they take the least memory. It tries several orders.
    """
    with jax.enable_x64(True), pause_gc():
        jaxpr = trace_graph(graph, platform).jaxpr.jaxpr
    part, orders = read_jaxpr(jaxpr), (list, order_by_memory) if low_memory else (order_by_readiness,)
    return min([assign_buffers(part, order) for order in orders], key=lambda found: found.peak)
