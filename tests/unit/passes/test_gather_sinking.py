"""Of an array that only a gather reads, the rows that it reads are computed; values and gradients stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ir.graph import Eqn, Graph
from difflang.ir.tensor_types import F64, Tensor

RNG = np.random.default_rng(0)
N, M = 400, 7
HEADER = "x: f64[n, 5], w: f64[5, 3], v: f64[3], at: i32[m]"
X, W, V = RNG.normal(size=(N, 5)), RNG.normal(size=(5, 3)), RNG.normal(size=3)
AT = np.array([3, 399, 3, 0, 17, 250, 17], np.int32)
SUNK = {
    "a product": "(x @ w)[at]",
    "elementwise": "(tanh(x @ w) + v)[at]",
    "a comprehension": "[for j => [for i => tanh(x[i] @ w)][at[j]]]",
    "two gathers": "{ let y = sin(x @ w)\n y[at] + tanh(y[at]) }",
    "columns": "transpose((transpose(w) @ transpose(x)))[at]",
    "reductions": "{ let y = exp(x) / sum(exp(x), axis = 1)[.., newaxis]\n (y @ w)[at] }",
    "parts": "concat(x @ w, sin(x @ w), axis = 1)[at][.., ..3]",
    "a constant": "(where(x @ w > 0.0, x @ w, 2.0 * (x @ w)) * 3.0)[at]",
}
KEPT = {
    "read elsewhere": "{ let y = tanh(x @ w)\n y[at] + sum(y) }",
    "mixed rows": "reverse(tanh(x @ w))[at]",
    "another index": "{ let y = tanh(x @ w)\n y[at] + y[at + 1 - 1 * (at // 399)] }",
}


def equations(graph: Graph) -> Iterator[Eqn]:
    for eqn in graph.eqns:
        yield eqn
        for region in eqn.regions:
            yield from equations(region)


def largest(graph: Graph) -> int:
    types = [v.type for e in equations(graph) for v in e.results if e.operands]
    return max(prod(map(int, map(str, t.shape))) for t in types if isinstance(t, Tensor))


def module(body: str) -> Any:
    return difflang.loads(
        f"float f64\nfn f({HEADER}) -> f64[m, 3] = {body}\nfn loss({HEADER}) -> f64 = sum(f(x, w, v, at)^2)\n"
    )


@pytest.mark.parametrize("body", SUNK.values(), ids=SUNK)
def test_only_rows_that_are_read_are_computed(body: str) -> None:
    m = module(body)
    whole = np.array(range(N), np.int32)
    assert largest(m.f.lower(X, W, V, AT).graph) < N
    np.testing.assert_allclose(m.f(X, W, V, AT), np.asarray(m.f(X, W, V, whole))[AT], rtol=1e-13)
    np.testing.assert_allclose(m.f.interpret(X, W, V, AT), m.f(X, W, V, AT), rtol=1e-13)


@pytest.mark.parametrize("body", SUNK.values(), ids=SUNK)
def test_so_are_their_gradients(body: str) -> None:
    m = module(body)
    assert largest(m.loss.grad("w").lower(X, W, V, AT).graph) < N
    found = m.loss.grad(("x", "w"))(X, W, V, AT)
    for name, value in (("x", X), ("w", W)):
        step = 1e-5 * RNG.normal(size=value.shape)
        ends = [float(m.loss(*[(X + s * step if name == "x" else X), (W + s * step if name == "w" else W)], V, AT))
                for s in (1, -1)]  # fmt: skip
        np.testing.assert_allclose(np.vdot(getattr(found, name), step), (ends[0] - ends[1]) / 2, rtol=1e-6)


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_what_is_read_as_a_whole_is_computed_as_a_whole(body: str) -> None:
    m = module(body)
    assert largest(m.f.lower(X, W, V, AT).graph) >= 3 * N
    np.testing.assert_allclose(m.f(X, W, V, AT), m.f.interpret(X, W, V, AT), rtol=1e-13)


def test_many_rows_are_gathered_from_the_array() -> None:
    at = RNG.integers(0, N, N).astype(np.int32)
    graph = module(SUNK["elementwise"]).f.lower(X, W, V, at).graph
    assert [e.operands[0].type for e in equations(graph) if e.op.name == "gather"] == [Tensor(F64, (N, 3))]


def test_an_index_out_of_range_is_an_error_as_before() -> None:
    with pytest.raises(difflang.IndexFailure, match="400"):
        module(SUNK["elementwise"]).f(X, W, V, np.array([1, 400], np.int32))


def test_rows_that_are_not_read_may_be_infinite() -> None:
    x = X.copy()
    x[1] = np.inf
    m = module(SUNK["a product"])
    gradient = m.loss.grad(("x", "w"))(x, W, V, AT)
    assert np.isfinite(gradient.w).all()
    assert np.isfinite(gradient.x).all()
