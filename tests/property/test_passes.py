"""Every pass keeps what random graphs compute, bit for bit, and gives graphs that verify."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from difflang.ir.evaluate import evaluate
from difflang.ir.graph import Graph
from difflang.ir.text import shared
from difflang.ir.verify import verify
from difflang.passes.cse import cse
from difflang.passes.dce import dce
from difflang.passes.fuse import fuse
from difflang.passes.hoist import hoist
from difflang.passes.inline import inline
from difflang.passes.optimize import optimize
from difflang.passes.simplify import simplify
from support.graphs import arguments, bits, random_graph

Pass = Callable[[Graph], Graph]
PASSES: list[Pass] = [dce, cse, hoist, inline, simplify, fuse, optimize]
SEEDS = st.integers(0, 10**6)


def size(graph: Graph) -> int:
    """Equations, those of regions included, each region counted once."""
    seen: set[Graph] = set()

    def count(graph: Graph) -> int:
        seen.add(graph)
        inner = [g for e in graph.eqns for g in e.regions]
        return len(graph.eqns) + sum(count(g) for g in inner if g not in seen)

    return count(graph)


@pytest.mark.parametrize("rewrite", PASSES, ids=lambda p: p.__name__)
@given(seed=SEEDS)
@settings(max_examples=150)
def test_a_pass_keeps_what_a_graph_computes(rewrite: Pass, seed: int) -> None:
    graph = random_graph(seed)
    xs = arguments(graph, seed)
    after = verify(rewrite(graph), after=rewrite.__name__)
    assert after.type == graph.type
    assert bits(evaluate(after, *xs)) == bits(evaluate(graph, *xs))


@pytest.mark.parametrize("rewrite", [dce, cse, inline, fuse, optimize], ids=lambda p: p.__name__)
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
    assert len(shared(dce(graph))) <= len(shared(graph))
