"""Moves between the memory of a device and that of its host. Where they are one, a move is nothing.

What a loop keeps for reverse mode goes to the host step by step, and comes back where it is read. Each move is an
equation, so the graph says what is moved, and what is lowered for an accelerator has one placement for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from difflang.base.source import Span
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import Op
from difflang.ir.tensor_types import BOOL, NUMBERS, Tensor
from difflang.ops.ad_interface import LinearizedGraph
from difflang.ops.op_factories import UniformSamples, linear_op, same_type_rule


def declare_transfer(name: str, space: str, doc: str) -> Op:
    """The same numbers in the space of memory that JAX calls so."""
    return linear_op(
        name,
        type=same_type_rule((*NUMBERS, BOOL)),
        transpose=(lambda ct, x: ct,),
        reference=np.asarray,
        lower=lambda jax, x: jax.device_put(x, getattr(jax.memory.Space, space)),
        accepts=(*NUMBERS, BOOL),
        samples=(UniformSamples(),),
        doc=doc,
        pinned=True,
    )


to_host = declare_transfer("to_host", "Host", "The same numbers in the memory of the host. Units: u -> u. Kinks: none.")
to_device = declare_transfer(
    "to_device", "Device", "The same numbers, brought back from the memory of the host. Units: u -> u. Kinks: none."
)


def offload_residuals(lin: LinearizedGraph, made: Sequence[Value], span: Span) -> tuple[LinearizedGraph, Values]:
    """The linearization with these residuals moved to the host, whence the tangent takes them; what they are now.

    Single numbers stay: a move costs more than they do. `span` is that of the equation whose region this is.
    """
    large = [v for v in made if isinstance(v.type, Tensor) and v.type.shape]
    if not large:
        return lin, tuple(made)
    builder = Builder()
    env = {p: builder.param(p.type, p.hint) for p in lin.tangent.params}
    param = dict(zip(lin.residuals, lin.residual_params, strict=True))
    inside = {param[v]: to_device.one(env[param[v]]) for v in large}
    outs = builder.inline(lin.tangent, *[inside.get(p, env[p]) for p in lin.tangent.params])
    tangent = builder.finish(outs, name=lin.tangent.name)
    moved = {v: Value(v.type, v.home, v.hint) for v in large}
    moves = [Eqn(to_host, (v,), (new,), {}, (), span) for v, new in moved.items()]
    results = [*lin.primal.results[: len(lin.active)], *[moved.get(v, v) for v in lin.made]]
    primal = Graph(lin.primal.params, (*lin.primal.eqns, *moves), tuple(results), lin.primal.name)
    residuals = tuple([moved.get(v, v) for v in lin.residuals])
    return LinearizedGraph(primal, tangent, residuals, lin.active), tuple([moved.get(v, v) for v in made])


def results_on_host(graph: Graph) -> set[Value]:
    """What a graph gives that it moves to the host."""
    made = {r for eqn in graph.eqns if eqn.op is to_host for r in eqn.results}
    return made.intersection(graph.results)
