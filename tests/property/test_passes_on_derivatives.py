"""Optimized derivatives are the derivatives, bit for bit; and forward mode through a `while` keeps no history."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from derivative_programs import Program, programs
from derivatives import composed
from difflang.ad.derivative_cache import DerivativeCache
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.tensor_types import History, Tensor
from difflang.ir.verify import verify
from difflang.passes.dce import dce
from difflang.passes.fuse_loops import fuse
from difflang.passes.pipelines import OPTIMIZE, ROUND
from support.graphs import bits

PROGRAMS = list(programs())
ORDERS = ["", "J", "V", "JV", "VV", "JJ"]


def numbers(program: Program, graph: Graph) -> list[np.ndarray]:
    given = [np.asarray(x, float) for x in program.arguments]
    rng = np.random.default_rng(7)
    rest = [p.type for p in graph.params[len(given) :] if isinstance(p.type, Tensor)]
    return [*given, *[rng.normal(size=[int(str(n)) for n in t.shape]) for t in rest]]


def values_of(graph: Graph) -> Iterator[Value]:
    for eqn in graph.eqns:
        yield from eqn.results
        for region in eqn.regions:
            yield from values_of(region)


def histories(graph: Graph) -> list[Value]:
    return [v for v in values_of(graph) if isinstance(v.type, History)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_an_optimized_derivative_is_the_same(program: Program, order: str) -> None:
    graph = composed(order, program.graph)
    xs = numbers(program, graph)
    want = bits(evaluate(graph, *xs))
    for step in ROUND:
        graph = verify(step.of(graph), after=step.of.name)
    assert bits(evaluate(graph, *xs)) == want
    assert bits(evaluate(verify(OPTIMIZE(graph), after="optimize"), *xs)) == want


def pushed_in_two(graph: Graph) -> Graph:
    """Values and tangents by way of a linearized graph: the tangent loops read what the primal loops save."""
    lin = DerivativeCache().linearize(graph, tuple(p.type.tangent is not None for p in graph.params))
    builder = Builder()
    xs = [builder.param(p.type) for p in graph.params]
    dxs = [builder.param(p.type) for p in lin.tangent_params]
    outs = builder.inline(lin.primal, *xs)
    kept = dict(zip(lin.primal.params, xs, strict=True))
    kept.update(zip(lin.primal.results[len(graph.results) :], outs[len(graph.results) :], strict=True))
    dys = builder.inline(lin.tangent, *[kept[r] for r in lin.residuals], *dxs)
    return builder.finish([*outs[: len(graph.results)], *dys])


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_forward_mode_keeps_no_history(program: Program) -> None:
    split = pushed_in_two(program.graph)
    xs = numbers(program, split)
    joined = verify(dce(fuse(split)), after="fuse")
    assert bits(evaluate(joined, *xs)) == bits(evaluate(split, *xs))
    assert not histories(OPTIMIZE(split))
