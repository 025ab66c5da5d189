"""Of a sum and the same less 1, with more digits, derivatives of `logsumexp` read the first, its value the second."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, graphs_postorder
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, Tensor
from difflang.passes.reductions.totals import choose_totals

SOURCE = """
fn total(x: f64[n, m]) -> f64 = sum([for i => logsumexp(x[i])^2])
fn flat(x: f64[n, m]) -> f64 = sum([for i => logsumexp(x[i])])
fn slope(x: f64[n, m]) -> f64[n, m] = grad(flat)(x)
fn both(x: f64[n, m]) -> (f64, f64[n, m]) = value_and_grad(flat)(x)
fn squared(x: f64[n, m]) -> f64 = sum(grad(flat)(x)^2)
fn second(x: f64[n, m]) -> f64[n, m] = grad(squared)(x)
fn steps(x: f64[n, m]) -> f64[n, m] {
  var y = x
  for _ in 0..20 { y = y - 0.1 * grad(flat)(y) }
  y
}
fn value_and_slope(x: f64[n, m]) -> (f64, f64[n, m]) = (flat(x), grad(flat)(x))
"""
X = np.random.default_rng(4).normal(size=(7, 30)) * 3


@pytest.fixture(scope="module")
def module() -> Any:
    return difflang.loads(SOURCE, name="totals")


def ops_of(graph: Graph) -> Counter[str]:
    return Counter(e.op.name for g in graphs_postorder(graph)[0] for e in g.eqns)


@pytest.mark.parametrize(
    ("name", "sums", "compared"),
    [("flat", 3, True), ("slope", 1, False), ("both", 3, True), ("value_and_slope", 3, True), ("steps", 1, False)],
)
def test_one_of_both_is_computed(module: Any, name: str, sums: int, compared: bool) -> None:
    """The sums are those over all but one, the count of the greatest and, of the value, the outer one."""
    found = ops_of(getattr(module, name).lower(X).graph)
    assert found["reduce_sum"] == sums
    assert found["excess"] == 0
    assert bool(found["log1p"]) is compared


def test_derivatives(module: Any) -> None:
    """Of the sum of `logsumexp` of rows: `softmax`, and of the sum of its squares."""
    powers = np.exp(X)
    slope = powers / powers.sum(axis=1, keepdims=True)
    second = 2 * slope * (slope - (slope**2).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(module.slope(X), slope, rtol=1e-13)
    np.testing.assert_allclose(module.both(X)[1], slope, rtol=1e-13)
    np.testing.assert_allclose(module.second(X), second, rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(
        module.total.grad("x")(X), 2 * np.log(powers.sum(axis=1, keepdims=True)) * slope, rtol=1e-13
    )


@pytest.mark.parametrize("stage", ["derived", "optimized"])
def test_a_derivative_of_what_was_chosen(stage: str) -> None:
    """The total has the derivative of the sum that it stands for."""
    f = difflang.loads("fn f(x: f64[n]) -> f64 = sum(grad(|y| logsumexp(y))(x)^3)", name="cubes").f
    graph = f.graph("f64[30]", stage=stage)
    found = difflang.graph.gradient(graph, graph.outputs[0], graph.inputs[0]).run(X[0])[0]
    slope = np.exp(X[0]) / np.exp(X[0]).sum()
    np.testing.assert_allclose(found, 3 * slope * (slope**2 - (slope**3).sum()), rtol=1e-11, atol=1e-15)


def test_the_value_has_its_digits(module: Any) -> None:
    x = np.array([[0.0, -40.0]])
    assert float(module.both(x)[0]) == float(module.flat(x)) == np.log1p(np.exp(-40.0))


def chosen(body: Any) -> Counter[str]:
    return ops_of(choose_totals(build_region([Tensor(F64, (3,))] * 2, body)))


def test_an_excess_that_others_read_stays() -> None:
    def excess(x: Any, total: Any) -> Any:
        return OPS["excess"].one(x, OPS["stop"].one(total))

    assert chosen(lambda x, total: [excess(x, total) + 1.0]) == {"const": 1, "stop": 1}
    assert chosen(lambda x, total: [OPS["excess"].one(x, total) + 1.0])["add"] == 1
    assert chosen(lambda x, total: [excess(x, total) + 2.0])["add"] == 1
    assert chosen(lambda x, total: [(e := excess(x, total)) + 1.0, e])["add"] == 1
    assert chosen(lambda x, total: [(e := excess(x, total)) + 1.0, e + x])["add"] == 2
