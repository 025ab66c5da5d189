"""What all calls of a function compute from the same operands is computed once, before them."""

from __future__ import annotations

from typing import Any

import numpy as np

import difflang
from difflang.ir.graph import graphs_postorder
from difflang.ir.verify import verify
from difflang.passes.dce import dce
from difflang.passes.hoist import hoist_from_calls

STEPS = "\n".join(f"  y = sin(y) * {k}.5 + cos(y)" for k in range(8))  # too many equations to be inlined twice
SOURCE = f"""float f64
fn f(x: f64[n], p: f64[n]) -> f64[n] {{
  var y = exp(x)
{STEPS}
  y * p + tanh(y) * p * p
}}
fn along(x: f64[n], p: f64[n], q: f64[n]) -> (f64[n], f64[n]) {{
  let (_, a) = jvp[p](f)(x, p, q)
  let (_, b) = jvp[p](f)(x, p, q + 1.0)
  (a, b)
}}
fn both(x: f64[n], p: f64[n], q: f64[n]) -> f64[n] = f(x, p) + f(x, q)
fn apart(x: f64[n], p: f64[n], q: f64[n]) -> f64[n] = f(p, x) + f(q, x)
fn total(x: f64[n], p: f64[n], q: f64[n]) -> f64 = sum(both(x, p, q)^2)
"""
RNG = np.random.default_rng(0)
X, P, Q = RNG.normal(size=(3, 5))


def count(function: Any, name: str) -> int:
    """How often an op stands in the optimized graph, shared functions once."""
    graph = function.lower(X, P, Q).graph
    return sum(e.op.name == name for g in graphs_postorder(graph)[0] for e in g.eqns)


def test_two_calls_at_one_point_compute_it_once() -> None:
    m: Any = difflang.loads(SOURCE, name="calls")
    for f in (m.both, m.along):
        assert (count(f, "exp"), count(f, "sin"), count(f, "tanh"), count(f, "call")) == (1, 8, 1, 0)
    np.testing.assert_allclose(m.both(X, P, Q), np.asarray(m.f(X, P)) + np.asarray(m.f(X, Q)), rtol=1e-10)
    np.testing.assert_allclose(m.both.interpret(X, P, Q), m.both(X, P, Q), rtol=1e-10)
    for found, step in zip(m.along(X, P, Q), (Q, Q + 1.0), strict=True):
        ends = [np.asarray(m.f(X, P + s * 0.5 * step)) for s in (1, -1)]
        np.testing.assert_allclose(found, ends[0] - ends[1], rtol=1e-10)


def test_its_gradient_is_the_same() -> None:
    m: Any = difflang.loads(SOURCE, name="calls")
    gradient = m.total.grad("x")
    np.testing.assert_allclose(gradient(X, P, Q), gradient.interpret(X, P, Q), rtol=1e-10)
    step = 1e-6 * RNG.normal(size=5)
    ends = [float(m.total(X + s * step, P, Q)) for s in (1, -1)]
    np.testing.assert_allclose(np.vdot(gradient(X, P, Q), step), (ends[0] - ends[1]) / 2, rtol=1e-6)


def test_calls_that_share_nothing_stay_as_they_are() -> None:
    m: Any = difflang.loads(SOURCE, name="calls")
    graph = m.apart.lower(X, P, Q).graph
    assert count(m.apart, "call") == 2
    assert hoist_from_calls(graph) is graph


def test_the_graph_verifies_and_a_second_run_changes_nothing() -> None:
    m: Any = difflang.loads(SOURCE, name="calls")
    once = dce(verify(hoist_from_calls(m.both.lower(X, P, Q).graph), after="hoist_from_calls"))
    assert hoist_from_calls(once) is once
