"""What a program needs in memory, as predicted before it is compiled. What XLA says is asked of an `Executable`."""

from __future__ import annotations

import jax

from difflang.base.gc_pause import paused
from difflang.ir.graph import Graph
from difflang.lower.buffer_assignment import Account, account
from difflang.lower.fusion_model import in_little_room, in_turn
from difflang.lower.jaxpr_reader import program
from difflang.runtime.compile import traced


def predicted(graph: Graph, platform: str = "cpu", *, sparing: bool = False) -> Account:
    """The buffers of a program, by the model of `lower.kernels`. It is traced, not compiled.

    `sparing`: where XLA is told to order its kernels so that they take the least memory. It tries several orders.
    """
    with jax.enable_x64(True), paused():
        jaxpr = traced(graph, platform).jaxpr.jaxpr
    part, orders = program(jaxpr), (list, in_little_room) if sparing else (in_turn,)
    return min([account(part, order) for order in orders], key=lambda found: found.peak)
