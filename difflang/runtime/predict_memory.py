"""Predicts the peak memory of a program before it is compiled. XLA's own figure is `Executable.memory_bytes`."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

import jax
from jax.sharding import AbstractMesh, AxisType

from difflang.base.gc_pause import pause_gc
from difflang.ir.graph import Graph
from difflang.lower import local_shapes
from difflang.lower.buffer_assignment import BufferAssignment, assign_buffers
from difflang.lower.fusion_model import order_by_memory, order_by_readiness
from difflang.lower.jaxpr_reader import read_jaxpr
from difflang.runtime.compile import trace_graph
from difflang.sharding.entry_splits import entry_splits
from difflang.sharding.pin_splits import pin_splits
from difflang.sharding.region_splits import whole_split

NO_MESH: Mapping[str, int] = MappingProxyType({})


def predict_memory(
    graph: Graph, platform: str = "cpu", *, low_memory: bool = False, mesh: Mapping[str, int] = NO_MESH
) -> BufferAssignment:
    """The buffers of a program, by the models of fusion and buffer assignment in `lower`. It is traced, not compiled.

    `low_memory`: for XLA's kernel order of least memory, which is the best of several orders. On a `mesh`, those of one
    device, which has its part of what types split.
    """
    params = [split or whole_split(p.type) for p, split in zip(graph.params, entry_splits(graph), strict=True)]
    axes = AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=(AxisType.Auto,) * len(mesh))
    with jax.enable_x64(True), pause_gc(), jax.sharding.use_abstract_mesh(axes):
        jaxpr = trace_graph(pin_splits(graph, params, mesh) if mesh else graph, platform).jaxpr.jaxpr
    parts = [local_shapes.split(tuple([prod([mesh.get(a, 1) for a in along]) for along in s])) for s in params]
    part, orders = read_jaxpr(jaxpr, parts), (list, order_by_memory) if low_memory else (order_by_readiness,)
    return min([assign_buffers(part, order) for order in orders], key=lambda found: found.peak)
