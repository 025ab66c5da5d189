"""The dataflow machine gives the interpreter's numbers, bit for bit, wherever equations are placed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from derivatives import composed
from difflang.ad.expand_derivatives import differentiate
from difflang.dataflow.partition import dataflow_program
from difflang.dataflow.placement import random_placement
from difflang.dataflow.run_dataflow import RunOptions, run_dataflow
from difflang.gradcheck.op_calls import calls_of
from difflang.gradcheck.op_derivatives import jvp_graph, vjp_graph
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS, Op
from difflang.ir.tensor_types import numpy_dtype
from support.nightly import by_day
from support.op_calls import DIFFERENTIABLE
from support.program_graphs import graph, point
from support.random_graphs import numbers, random_graph
from support.seeds import SEEDS


def same_bits(want: Any, got: Any) -> bool:
    if isinstance(want, list):
        return len(want) == len(got) and all(map(same_bits, want, got))
    return want.dtype == got.dtype and want.shape == got.shape and want.tobytes() == got.tobytes()


def check_machine(graph: Graph, arrays: Sequence[Any], seed: int) -> None:
    """On one device in order, and on 2 and 3 with random placements, orders of tokens, iterations and swapping."""
    printed: list[str] = []
    want = evaluate(graph, *arrays, text_sink=lambda _, text: printed.append(text))
    settings = ((1, None, 32, None), (2, seed, 1, 0), (3, seed + 1, 1 + seed % 4, 64), (3, None, 32, None))
    for devices, order, iterations, swap_above in settings:
        said: list[str] = []
        options = RunOptions(iterations, swap_above, order, text_sink=lambda _, text, said=said: said.append(text))
        program = dataflow_program(graph, random_placement(graph, devices, seed + devices), devices)
        got, statistics = run_dataflow(program, arrays, options)
        assert all(map(same_bits, want, got)), (devices, order, iterations, swap_above)
        assert said == printed
        assert statistics.most_iterations <= iterations


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs(seed: int) -> None:
    arrays = point(seed).arrays
    check_machine(differentiate(graph(seed)), arrays, seed)
    check_machine(composed("V", graph(seed)), [*arrays, np.float64(1)], seed)


@pytest.mark.parametrize("seed", range(by_day(12, 60)))
def test_random_graphs(seed: int) -> None:
    for order in ("", "V", "J"):
        f = composed(order, random_graph(seed))
        check_machine(f, numbers(f, 0, seed), seed)


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=str)
def test_derivatives_of_every_op(op: Op) -> None:
    call = next((c for c in calls_of(op) if c.active), None)
    if call is None:
        pytest.skip("no sample with a derivative")
    rng = np.random.default_rng(1)
    for derived in (jvp_graph(call.graph(), call.wrt), vjp_graph(call.graph(), call.wrt)):
        more = [np.asarray(rng.normal(size=p.type.shape)).astype(x) for p, x in more_params(derived, call.arrays)]
        check_machine(derived, [*call.arrays, *more], 1)


def more_params(graph: Graph, arrays: Sequence[Any]) -> list[tuple[Any, Any]]:
    return [(p, numpy_dtype(p.type.dtype)) for p in graph.params[len(arrays) :]]


def test_every_op_with_regions_says_how_it_is_lowered() -> None:
    with_regions = [op for op in OPS.values() if op.equation_rules is not None and op.regions is not None]
    assert {op.name for op in with_regions} >= {"call", "cond", "loop", "map", "checkpoint", "custom_derivative"}
