"""Predicts the peak memory of a program before it is compiled. XLA's own figure is `Executable.memory_bytes`."""

from __future__ import annotations

import jax

from difflang.base.gc_pause import pause_gc
from difflang.ir.graph import Graph
from difflang.lower.buffer_assignment import BufferAssignment, assign_buffers
from difflang.lower.fusion_model import order_by_memory, order_by_readiness
from difflang.lower.jaxpr_reader import read_jaxpr
from difflang.runtime.compile import trace_graph


def predict_memory(graph: Graph, platform: str = "cpu", *, low_memory: bool = False) -> BufferAssignment:
    """The buffers of a program, by the models of fusion and buffer assignment in `lower`. It is traced, not compiled.

    `low_memory`: for XLA's kernel order of least memory, which is the best of several orders.
    """
    with jax.enable_x64(True), pause_gc():
        jaxpr = trace_graph(graph, platform).jaxpr.jaxpr
    part, orders = read_jaxpr(jaxpr), (list, order_by_memory) if low_memory else (order_by_readiness,)
    return min([assign_buffers(part, order) for order in orders], key=lambda found: found.peak)
