"""Indices that count along an axis are noted, and what is computed stays the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from derivatives import op
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.tensor_types import F64, I32, Tensor
from difflang.runtime.compile import compile_graph
from difflang.sharding.index_positions import note_index_positions

X, K, UPDATES = Tensor(F64, (4, 3)), Tensor(I32, (4,)), Tensor(F64, (4,))
GRID = Tensor(I32, (4, 2))
WRITES = ("scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul")


def count(of: Value, shape: tuple[int, ...], axis: int = 0) -> Value:
    return of.home.one("iota", type=Tensor(I32, shape), axis=axis)


def write(name: str) -> Callable[[Value, Value, Value], list[Value]]:
    return lambda x, k, u: [op(name, x, u, count(k, (4,)), k, axes=(0, 1))]


def in_a_column(of: Value) -> Value:
    """0 to 3 down a column of 4, beside itself, and a 0 added."""
    rows = op("broadcast", op("reshape", count(of, (4,)), shape=(4, 1)), shape=(4, 2), axes=(0, 1))
    return op("add", rows, op("broadcast", of.home.one("const", type=Tensor(I32), value=0), shape=(4, 2), axes=()))


GRAPHS = {
    "a row each": build_region([X, K, UPDATES], lambda x, k, u: [op("gather", x, count(k, (4,)), k, axes=(0, 1))]),
    "two in each row": build_region(
        [X, GRID],
        lambda x, k: [op("gather", x, op("broadcast", count(k, (4,)), shape=(4, 2), axes=(0,)), k, axes=(0, 1))],
    ),
    "in a column, plus 0": build_region([X, GRID], lambda x, k: [op("gather", x, in_a_column(k), k, axes=(0, 1))]),
    "of each column": build_region(
        [Tensor(F64, (4, 2)), GRID], lambda x, k: [op("gather", x, k, count(k, (4, 2), 1), axes=(0, 1))]
    ),
    **{name: build_region([X, K, UPDATES], write(name)) for name in WRITES},
}
OTHERS = {
    "of fewer rows": build_region(
        [X, Tensor(I32, (2,))], lambda x, k: [op("gather", x, count(k, (2,)), k, axes=(0, 1))]
    ),
    "of a longer axis": build_region(
        [Tensor(F64, (5, 3)), K], lambda x, k: [op("gather", x, count(k, (4,)), k, axes=(0, 1))]
    ),
    "no counting": build_region([X, K], lambda x, k: [op("gather", x, k * count(k, (4,)), k, axes=(0, 1))]),
}  # fmt: skip


def noted(graph: Graph) -> list[object]:
    return [e.attrs["positions"] for e in note_index_positions(graph).eqns if "positions" in e.attrs]


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_noted_changes_nothing(name: str) -> None:
    graph = GRAPHS[name]
    after, numbers = note_index_positions(graph), np.random.default_rng(0)
    assert len(noted(graph)) == 1 and note_index_positions(after) is after
    types = [p.type for p in graph.params if isinstance(p.type, Tensor)]
    arrays = [
        numbers.integers(-1, 4, t.shape).astype(np.int32) if t.dtype is I32 else numbers.normal(size=t.shape)
        for t in types
    ]
    (wanted,) = evaluate(graph, *arrays)
    for found in (evaluate(after, *arrays), compile_graph(after)(*arrays), compile_graph(graph)(*arrays)):
        np.testing.assert_array_equal(found[0], wanted)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_position(name: str) -> None:
    assert not noted(OTHERS[name])
