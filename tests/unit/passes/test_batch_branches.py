"""What is the same in all instances of a map is computed once, also behind branches and in loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import difflang
from difflang.ir.graph import Eqn, Graph
from difflang.ir.tensor_types import Tensor

RNG = np.random.default_rng(0)


def equations(graph: Graph) -> Iterator[Eqn]:
    for eqn in graph.eqns:
        yield eqn
        for region in eqn.regions:
            yield from equations(region)


CHAIN = """float f64
fn pose(x: f64[n], parents: i32[n]) -> f64[n] {
  var y = sin(x)
  for i in 0..n {
    let p = parents[i]
    if p >= 0 { y[i] = y[p] * cos(x[i]) }
  }
  if x[0] > 0.0 { exp(y) } else { y }
}
fn all(x: f64[n], parents: i32[n]) -> f64[n, n] = jacobian(pose)(x, parents)
"""
X, PARENTS = RNG.normal(size=7), np.array([-1, 0, 1, 0, 3, 4, 4], np.int32)


def test_a_jacobian_computes_its_primal_once() -> None:
    """Behind a loop with a branch, and a branch that all columns share."""
    m: Any = difflang.loads(CHAIN, name="chain")
    graph = m["all"].lower(X, PARENTS).graph
    made = [(e.op.name, v.type) for e in equations(graph) for v in e.results]
    assert "map" not in [name for name, _ in made]
    assert [t for name, t in made if name in ("sin", "cos", "exp") and isinstance(t, Tensor) and t.rank > 1] == []
    found = m["all"](X, PARENTS)
    np.testing.assert_allclose(found, m["all"].interpret(X, PARENTS), rtol=1e-14)
    for j in range(7):
        step = 1e-6 * np.eye(7)[j]
        ends = [np.asarray(m.pose(X + s * step, PARENTS)) for s in (1, -1)]
        np.testing.assert_allclose(np.asarray(found)[:, j], (ends[0] - ends[1]) / 2e-6, atol=1e-8)


FILTERS = """float f64
fn lower(a: f64[n, n], x: f64[n, d]) -> f64[n, d] = [for i, c => sum(for j if j < i => a[i, j] * x[j, c])]
fn scores(q: f64[n, d], k: f64[n, d]) -> f64[n, n] {
  [for i, j => if j <= i { sum(for t => q[i, t] * k[j, t]) } else { -inf }]
}
fn squares(a: f64[n, n], x: f64[n, d]) -> f64 = sum(lower(a, x)^2)
fn weights(q: f64[n, d], k: f64[n, d]) -> f64 = sum(for i => sum(exp(scores(q, k)[i])))
"""
A, Q, K = RNG.normal(size=(20, 20)), RNG.normal(size=(20, 15)), RNG.normal(size=(20, 15))


def test_filters_and_branches_are_masks_of_products() -> None:
    m: Any = difflang.loads(FILTERS, name="filters")
    for f, arguments in (
        (m.lower, (A, Q)),
        (m.scores, (Q, K)),
        (m.squares.grad("x"), (A, Q)),
        (m.weights.grad("q"), (Q, K)),
    ):
        made = [e.op.name for e in equations(f.lower(*arguments).graph)]
        assert "dot_general" in made
        assert "map" not in made
        np.testing.assert_allclose(f(*arguments), f.interpret(*arguments), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(m.lower(A, Q), np.tril(A, -1) @ Q, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(m.scores(Q, K), np.where(np.tri(20) > 0, Q @ K.T, -np.inf), rtol=1e-12, atol=1e-12)
    weights = np.where(np.tri(20) > 0, np.exp(Q @ K.T), 0.0)
    np.testing.assert_allclose(m.weights.grad("q")(Q, K), weights @ K, rtol=1e-11)


def test_what_a_filter_leaves_out_may_be_infinite() -> None:
    m: Any = difflang.loads(FILTERS, name="filters")
    a, x = A.copy(), Q.copy()
    a[3, 5], x[19, 2] = np.nan, np.inf
    np.testing.assert_allclose(m.lower(a, x), np.tril(A, -1) @ Q, rtol=1e-12, atol=1e-12)
    k = K.copy()
    k[19] = np.inf
    expected = np.where(np.tri(20)[:19] > 0, Q[:19] @ K.T, -np.inf)
    np.testing.assert_allclose(m.scores(Q, k)[:19], expected, rtol=1e-12, atol=1e-12)
    gradient = m.squares.grad("x")(a, Q)
    np.testing.assert_allclose(gradient, 2 * np.tril(A, -1).T @ np.tril(A, -1) @ Q, rtol=1e-11, atol=1e-11)


def test_a_branch_not_taken_has_no_derivative() -> None:
    source = "fn f(x: f64[n]) -> f64 = sum(for i => if x[i] > 0.0 { sqrt(x[i]) * log(x[i]) } else { 0.0 })"
    f: Any = difflang.loads("float f64\n" + source, name="not_taken").f
    x = np.array([-1.0, 0.0, 1.0, np.nan])
    for gradient in (f.grad("x")(x), f.grad("x").interpret(x)):
        np.testing.assert_array_equal(gradient, [0.0, 0.0, 1.0, 0.0])
