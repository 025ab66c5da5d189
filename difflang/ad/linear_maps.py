"""Linear maps of `linearize` and `vjp`: a function split into a primal graph, run once, and a reusable linear graph.

The linear graph takes residuals, which are arrays, and a tangent. Histories of loops cannot be residuals: the linear
graph recomputes them from arrays.
"""

from __future__ import annotations

from msgspec import Struct

from difflang.ad.derivative_cache import DerivativeCache
from difflang.ad.expand_derivatives import DerivativeExpansion
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import History
from difflang.ops.ad_interface import LinearizedGraph, Mask, classify_cotangents
from difflang.ops.control.print_effect import without_prints
from difflang.passes.dce import dce
from difflang.passes.pipelines import PREPARE_KEEPING_LOOPS
from difflang.recursion.drop_step_limit_in_loops import drop_step_limit_in_loops


class LinearizedFunction(Struct, frozen=True):
    """A linearized graph. `primal` gives the graph's results, then the residuals that `tangent` takes first."""

    primal: Graph  # params -> results ++ residuals
    tangent: Graph  # residuals ++ tangents of the active params -> a tangent of every result that has one


def linearize_function(graph: Graph, active: Mask) -> LinearizedFunction:
    """A graph split into its primal and its tangent in the `active` params; all residuals are arrays.

    Cost: linear. Derivative equations in the graph are expanded first.
    """
    ad = DerivativeExpansion(reused=True)
    plain = dce(ad.graph(PREPARE_KEEPING_LOOPS(drop_step_limit_in_loops(graph))))
    wanted = tuple([r.type.tangent is not None for r in plain.results])
    lin = ad.ad.linearize(plain, active, wanted)
    tangent, residuals = inline_history_makers(lin)
    results = (*lin.primal.results[: len(lin.active)], *residuals)
    whole = dce(Graph(lin.primal.params, lin.primal.eqns, results, graph.name))
    return LinearizedFunction(whole, PREPARE_KEEPING_LOOPS(tangent))


def inline_history_makers(lin: LinearizedGraph) -> tuple[Graph, list[Value]]:
    """The tangent graph with the loops that make its histories copied in, and the primal arrays that it then reads."""
    makers = history_makers([r for r in lin.residuals if isinstance(r.type, History)], without_prints(lin.primal))
    made = {r for e in makers for r in e.results}
    read = dict.fromkeys(v for v in (*lin.residuals, *(v for e in makers for v in e.operands)) if v not in made)
    builder = Builder()
    env = {v: builder.param(v.type, v.hint) for v in read}
    tangents = [builder.param(p.type, p.hint) for p in lin.tangent_params]
    for eqn in makers:
        env.update(zip(eqn.results, builder.copy(eqn, tuple([env[v] for v in eqn.operands])), strict=True))
    results = builder.inline(lin.tangent, *[env[r] for r in lin.residuals], *tangents)
    return builder.finish(results, name=lin.tangent.name), list(read)


def history_makers(histories: list[Value], primal: Graph) -> list[Eqn]:
    """The equations that make histories, in order, with the constants that these read, such as a limit."""
    needed = set(histories)
    if not needed:
        return []
    kept: list[Eqn] = []
    constants: set[Value] = set()
    for eqn in reversed(primal.eqns):
        if not needed.isdisjoint(eqn.results):
            needed.update([v for v in eqn.operands if isinstance(v.type, History)])
            constants.update([v for v in eqn.operands if not isinstance(v.type, History)])
            kept.append(eqn)
        elif not eqn.operands and not eqn.regions and not constants.isdisjoint(eqn.results):
            kept.append(eqn)
    return kept[::-1]


def transpose_map(graph: Graph, tangents: int) -> Graph:
    """The transpose: residuals ++ cotangents of the results -> cotangents of the last `tangents` params."""
    # The graph is linear in these params, which follow its residuals.
    linear = tuple([i >= len(graph.params) - tangents for i in range(len(graph.params))])
    every = classify_cotangents((True,) * len(graph.results))
    return PREPARE_KEEPING_LOOPS(
        DerivativeCache().transpose(graph, linear, every, classify_cotangents(linear)).without_choices
    )
