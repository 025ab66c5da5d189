"""Ops and graphs of ops as functions that JAX can trace, for tests of lowerings; calls are drawn by the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import difflang.ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  fills the registry
from difflang.gradcheck.op_calls import OpCall
from difflang.ir.graph import Graph
from difflang.ir.op import OPS, Op

DRAWN = [op for op in OPS.values() if op.samples is not None]
DIFFERENTIABLE = [op for op in DRAWN if not op.inactive]


def lower_call(call: OpCall, *arrays: Any) -> list[Any]:
    """What the lowering for the CPU gives, under a trace of JAX."""
    found = (call.op.cpu_lower_rule or call.op.lower)(jax, *arrays, **call.attrs)
    return list(found) if len(call.results) > 1 else [found]


def lowered(graph: Graph) -> Callable[..., list[Any]]:
    """A graph without regions as a function that JAX can trace: each equation by its op's `lower`."""

    def function(*arrays: Any) -> list[Any]:
        env = dict(zip(graph.params, arrays, strict=True))
        for eqn in graph.eqns:
            found = eqn.op.lower(jax, *(env[v] for v in eqn.operands), **eqn.attrs)
            env.update(zip(eqn.results, found if len(eqn.results) > 1 else [found], strict=True))
        return [env[r] for r in graph.results]

    return function


def compiled(op: Op, *xs: Any, **attrs: Any) -> Any:
    """What an op gives once it is lowered and compiled."""
    with jax.enable_x64(True):
        return np.asarray(jax.jit(lambda *xs: op.lower(jax, *xs, **attrs))(*xs))
