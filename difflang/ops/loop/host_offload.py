"""Transfers between device and host memory, `to_host` and `to_device`, and offloading a loop's residuals to the host.

Residuals go to the host step by step, and come back where they are read. Each transfer is an equation, so the graph
shows what is moved, and an accelerator gets one placement for each. Without a separate host memory a transfer does
nothing.
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
    """An op that copies an array into one of JAX's memory spaces."""
    return linear_op(
        name,
        type=same_type_rule((*NUMBERS, BOOL), 1),
        transpose=(lambda ct, x: ct,),
        reference=np.asarray,
        lower=lambda jax, x: jax.device_put(x, getattr(jax.memory.Space, space)),
        accepts=(*NUMBERS, BOOL),
        samples=(UniformSamples(),),
        doc=doc,
        traits=("pinned",),
    )


to_host = declare_transfer("to_host", "Host", "The same numbers in the memory of the host. Units: u -> u. Kinks: none.")
to_device = declare_transfer(
    "to_device", "Device", "The same numbers, brought back from the memory of the host. Units: u -> u. Kinks: none."
)


def offload_residuals(lin: LinearizedGraph, made: Sequence[Value], span: Span) -> tuple[LinearizedGraph, Values]:
    """The linearization with these residuals moved to the host, from where the tangent reads them; and the moved
    values.

    `span` is that of the equation whose region this is.
    """
    # Scalars stay: a transfer costs more than it saves.
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
    """The results of a graph that it moves to the host."""
    made = {r for eqn in graph.eqns if eqn.op is to_host for r in eqn.results}
    return made.intersection(graph.results)
