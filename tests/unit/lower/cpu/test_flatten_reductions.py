"""A sum over all elements of a product goes over one axis; what others read, or what lies elsewhere, stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, Tensor
from difflang.ir.verify import verify
from difflang.lower.cpu.peephole_rewrites import flatten_reductions
from difflang.runtime.compile import compile_graph

MATRIX, SMALL, ROW = (20, 30), (3, 5), (30,)


def total(x: Value, *axes: int) -> Value:
    return OPS["reduce_sum"].one(x, axes=axes)


def spread(x: Value) -> Value:
    return OPS["broadcast"].one(x, shape=MATRIX, axes=(1,))


def case(shape: tuple[int, ...], body: Callable[[Value, Value], list[Value]]) -> Graph:
    return build_region([Tensor(F64, shape)] * 2, body)


FLAT = {
    "a product": case(MATRIX, lambda x, y: [total(x * y, 0, 1)]),
    "a product with itself": case(MATRIX, lambda x, y: [total(x * x, 0, 1) * total(y * y, 0, 1)]),
    "a square": case(MATRIX, lambda x, y: [total(OPS["integer_pow"].one(x - y, n=2), 0, 1)]),
}


def twice_read(x: Value, y: Value) -> list[Value]:
    product = x * y
    return [total(product, 0, 1), product]


STAYS = {
    "few elements": case(SMALL, lambda x, y: [total(x * y, 0, 1)]),
    "one axis of two": case(MATRIX, lambda x, y: [total(x * y, 0)]),
    "one axis": case(ROW, lambda x, y: [total(x * y, 0)]),
    "a sum of sums": case(MATRIX, lambda x, y: [total(x + y, 0, 1)]),
    "read twice": case(MATRIX, twice_read),
    "a row repeated": case(ROW, lambda x, y: [total(spread(x) * spread(y), 0, 1)]),
}


@pytest.mark.parametrize("name", FLAT)
def test_the_sum_goes_over_one_axis(name: str) -> None:
    graph = FLAT[name]
    rows = Graph(graph.params, tuple(flatten_reductions(graph.eqns, graph.results)), graph.results)
    verify(rows)
    assert {e.attrs["axes"] for e in rows.eqns if e.op.name == "reduce_sum"} == {(0,)}
    x, y = np.random.default_rng(0).normal(size=(2, *MATRIX))
    want = {"a product": np.sum(x * y), "a square": np.sum((x - y) ** 2)}.get(name, np.sum(x * x) * np.sum(y * y))
    np.testing.assert_allclose(compile_graph(rows)(x, y)[0], want, rtol=1e-12)


@pytest.mark.parametrize("name", STAYS)
def test_others_stay(name: str) -> None:
    graph = STAYS[name]
    assert tuple(flatten_reductions(graph.eqns, graph.results)) == graph.eqns
