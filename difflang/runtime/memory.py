"""What a program needs in memory: as predicted before it is compiled, and as XLA says of what it made."""

from __future__ import annotations

from typing import Any

import jax

from difflang.base.collection import paused
from difflang.ir.graph import Graph
from difflang.lower.buffers import Account, account
from difflang.lower.steps import program
from difflang.runtime.compile import compiled, lowered, traced


def predicted(graph: Graph, platform: str = "cpu") -> Account:
    """The buffers of a program, by the model of `lower.kernels`. It is traced, not compiled."""
    with jax.enable_x64(True), paused():
        jaxpr = traced(graph, platform).jaxpr.jaxpr
    return account(program(jaxpr))


def measured(graph: Graph, platform: str = "cpu") -> int:
    """How many bytes the compiled program takes: its arguments, its results, and what is between them."""
    found: Any = compiled(lowered(graph, platform), graph)
    sizes = found.memory_analysis()
    return sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
