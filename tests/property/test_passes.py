"""Every pass keeps what random graphs compute, bit for bit, and gives graphs that verify."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, I32, Tensor
from difflang.ir.text_printer import shared_graphs
from difflang.ir.verify import verify
from difflang.passes.cse import cse
from difflang.passes.dce import dce
from difflang.passes.fuse_loops import fuse
from difflang.passes.hoist import hoist
from difflang.passes.inline import inline
from difflang.passes.pipelines import OPTIMIZE
from difflang.passes.simplify import simplify
from support.graphs import arguments, bits, random_graph

Pass = Callable[[Graph], Graph]
PASSES: list[Pass] = [dce, cse, hoist, inline, simplify, fuse, OPTIMIZE]
SEEDS = st.integers(0, 10**6)


def name_of(rewrite: Pass) -> str:
    return getattr(rewrite, "__name__", "optimize")


def size(graph: Graph) -> int:
    """Equations, those of regions included, each region counted once."""
    seen: set[Graph] = set()

    def count(graph: Graph) -> int:
        seen.add(graph)
        inner = [g for e in graph.eqns for g in e.regions]
        return len(graph.eqns) + sum(count(g) for g in inner if g not in seen)

    return count(graph)


@pytest.mark.parametrize("rewrite", PASSES, ids=name_of)
@given(seed=SEEDS)
@settings(max_examples=150)
@pytest.mark.nightly_cases("inline")
def test_a_pass_keeps_what_a_graph_computes(rewrite: Pass, seed: int) -> None:
    graph = random_graph(seed)
    xs = arguments(graph, seed)
    after = verify(rewrite(graph), after=name_of(rewrite))
    assert after.type == graph.type
    assert bits(evaluate(after, *xs)) == bits(evaluate(graph, *xs))


@pytest.mark.parametrize("rewrite", [dce, cse, inline, fuse, OPTIMIZE], ids=name_of)
@given(seed=SEEDS)
@settings(max_examples=50)
def test_a_second_time_changes_nothing(rewrite: Pass, seed: int) -> None:
    """The very same graph comes back, so that passes can be repeated until nothing changes."""
    once = rewrite(rewrite(random_graph(seed)))
    assert rewrite(once) is once


@given(seed=SEEDS)
@settings(max_examples=50)
def test_dead_code_and_common_subexpressions_only_shrink(seed: int) -> None:
    graph = random_graph(seed)
    assert size(dce(graph)) <= size(graph)
    assert size(cse(graph)) <= size(graph)
    assert len(shared_graphs(dce(graph))) <= len(shared_graphs(graph))


def chained(seed: int) -> Graph:
    """Loops and maps of one length that read each other's outputs, carries and sums in every order."""
    draw = Random(seed)
    builder = Builder()
    scalars = [builder.param(Tensor(F64))]
    arrays = [builder.param(Tensor(F64, (4,)))]
    for _ in range(12):
        x, y, c, k = draw.choice(arrays), draw.choice(arrays), draw.choice(scalars), draw.choice(scalars)
        kind = draw.randrange(5)
        if kind == 0:
            arrays.append(builder.one(draw.choice(["add", "mul"]), x, y))
        elif kind == 1:
            arrays.append(builder.one("reverse", x, axes=(0,)))
            scalars.append(builder.one("reduce_sum", y, axes=(0,)))
        elif kind == 2:
            body = build_region([Tensor(F64)] * 3, lambda k, x, y: [x * k + y, x - y])
            arrays += builder.emit(OPS["map"], [k, x, y], (body,), consts=1, length=4)
        else:
            step = build_region([Tensor(I32), *[Tensor(F64)] * 4], lambda i, k, c, x, y: [c * k + x, c - y, x * c])
            limit = builder.const(4, Tensor(I32))
            attrs: dict[str, Any] = {
                "consts": 1,
                "carry": 1,
                "length": 4,
                "exact": True,
                "reverse": draw.random() < 0.3,
            }
            _, last, *outs = builder.emit(OPS["loop"], [limit, k, c, x, y], (step,), **attrs)
            scalars.append(last)
            arrays += outs
    return builder.finish([*scalars[-3:], *arrays[-4:]])


@given(seed=SEEDS)
@settings(max_examples=300)
def test_fusion_keeps_the_order_that_values_need(seed: int) -> None:
    graph = chained(seed)
    xs = [np.asarray(0.5), np.asarray([1.0, -0.25, 3.0, 0.5])]
    after = verify(fuse(graph), after="fuse")
    assert bits(evaluate(after, *xs)) == bits(evaluate(graph, *xs))


def test_fusion_happens_in_the_graphs_above() -> None:
    assert sum(len(fuse(chained(seed)).eqns) < len(chained(seed).eqns) for seed in range(100)) > 50
