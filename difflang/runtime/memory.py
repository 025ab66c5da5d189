"""What a program needs in memory, as predicted before it is compiled. What XLA says is asked of an `Executable`."""

from __future__ import annotations

import jax

from difflang.base.collection import paused
from difflang.ir.graph import Graph
from difflang.lower.buffers import Account, account
from difflang.lower.steps import program
from difflang.runtime.compile import traced


def predicted(graph: Graph, platform: str = "cpu") -> Account:
    """The buffers of a program, by the model of `lower.kernels`. It is traced, not compiled."""
    with jax.enable_x64(True), paused():
        jaxpr = traced(graph, platform).jaxpr.jaxpr
    return account(program(jaxpr))
