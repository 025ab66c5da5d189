"""Contractions lose axes of their batch that are summed, or along which one factor is the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, Tensor
from difflang.ir.verify import verify
from difflang.passes.contractions.drop_batch_axes import drop_batch_axes
from difflang.passes.dce import dce

HEADS, ROWS, INNER, COLUMNS = 3, 2, 4, 5
X, Y = Tensor(F64, (HEADS, ROWS, INNER)), Tensor(F64, (HEADS, INNER, COLUMNS))
SHARED = Tensor(F64, (INNER, COLUMNS))
BATCHED = {"contract": ((2,), (1,)), "batch": ((0,), (0,))}


def dot(x: Value, y: Value) -> Value:
    return OPS["dot_general"].one(x, y, **BATCHED)


def total(x: Value, *axes: int) -> Value:
    return OPS["reduce_sum"].one(x, axes=axes)


def turned(x: Value, *perm: int) -> Value:
    return OPS["transpose"].one(x, perm=perm)


def repeated(y: Value) -> Value:
    return OPS["broadcast"].one(y, shape=Y.shape, axes=(1, 2))


def rows_alike(y: Value) -> Value:
    """Alike along the batch, and along the columns."""
    return OPS["broadcast"].one(total(y, 1), shape=Y.shape, axes=(1,))


# Each: the types of params, a program, and how many axes the batches of its contractions have afterwards.
FORMS: dict[str, tuple[list[Tensor], Callable[..., list[Value]], list[int]]] = {
    "summed": ([X, Y], lambda x, y: [total(dot(x, y), 0)], [0]),
    "turned and summed": ([X, Y], lambda x, y: [total(turned(dot(x, y), 2, 0, 1), 1)], [0]),
    "several summed": ([X, Y], lambda x, y: [total(dot(x, y) + dot(x * x, y), 0)], [0, 0]),
    "summed with another": (
        [X, Y, Tensor(F64, (HEADS, ROWS, COLUMNS))], lambda x, y, z: [total(z + dot(x, y), 0)], [0],
    ),
    "alike": ([X, SHARED], lambda x, y: [dot(x, repeated(y))], [0]),
    "the first alike": (
        [SHARED, X],
        lambda y, x: [OPS["dot_general"].one(repeated(y), x, contract=((1,), (2,)), batch=((0,), (0,)))], [0],
    ),
    "alike along other axes too": ([X, SHARED], lambda x, y: [dot(x, rows_alike(y))], [0]),
    "both alike": (
        [Tensor(F64, (ROWS, INNER)), SHARED],
        lambda x, y: [dot(OPS["broadcast"].one(x, shape=X.shape, axes=(1, 2)), repeated(y))], [0],
    ),
    "alike and summed": ([X, SHARED], lambda x, y: [total(dot(x, repeated(y)), 0)], [0]),
    "read elsewhere": ([X, Y], lambda x, y: [total(s := dot(x, y), 0), s], [1]),
    "summed along rows": ([X, Y], lambda x, y: [total(dot(x, y), 1)], [1]),
    "summed along the batch and rows": ([X, Y], lambda x, y: [total(dot(x, y), 0, 1)], [1]),
    "neither": ([X, Y], lambda x, y: [dot(x, y)], [1]),
}  # fmt: skip


def batches(graph: Graph) -> list[int]:
    return [len(e.attrs["batch"][0]) for e in graph.eqns if e.op.name == "dot_general"]


@pytest.mark.parametrize("name", FORMS)
def test_the_batch_is_gone_and_the_values_are_the_same(name: str) -> None:
    types, body, wanted = FORMS[name]
    before = build_region(types, body)
    after = dce(verify(drop_batch_axes(before), after="unbatch"))
    assert batches(after) == wanted
    xs = [np.random.default_rng(i).normal(size=t.shape) for i, t in enumerate(types)]
    for a, b in zip(evaluate(after, *xs), evaluate(before, *xs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    if 1 in wanted:
        assert drop_batch_axes(before) is before


LANES = """float f64
fn f(w: f64[k, k], x: f64[b, k], seen: f64[n, k]) -> f64 {
  sum([for i in 0..b => {
    var y = x[i]
    for goal in seen { y = tanh(w @ y) + goal }
    sum(y^2)
  }])
}
"""


def test_what_lanes_give_to_a_shared_matrix_is_one_product() -> None:
    """Over the steps of all lanes, after the loop; nothing as large as a matrix is made for each lane."""
    draw = np.random.default_rng(1).normal
    arguments = draw(size=(4, 4)), draw(size=(3, 4)), draw(size=(6, 4))
    f: Any = difflang.loads(LANES, name="lanes").f
    text = f.grad(0).ir("optimized", *arguments)
    assert re.findall(r"^  %\w+: (\S+ \S*\]) = dot_general.*contract = (.*)}", text, re.MULTILINE) == [
        ("f64[4, 4]", "((0, 1), (0, 1))")
    ]
    found, e = np.asarray(f.grad(0)(*arguments)), 1e-6
    way = draw(size=(4, 4))
    ahead, behind = (float(f(arguments[0] + s * e * way, *arguments[1:])) for s in (1, -1))
    assert np.sum(found * way) == pytest.approx((ahead - behind) / (2 * e), rel=1e-7)
