"""The hyperbolic tangent and its slope are made of one exponential on the CPU, where a gradient needs both."""

from __future__ import annotations

from typing import Any

import numpy as np

import difflang
from difflang.ir.op import OPS
from difflang.runtime.compile import compile_graph
from support.op_calls import Call

SOURCE = """float {0}
fn recurrent(w: {0}[n, n], y0: {0}[b, n]) -> {0} {{
  var y = y0
  for i in 0..5 {{ y = tanh(y @ w) }}
  sum(y)
}}
fn layer(w: {0}[n, n], x: {0}[b, n]) -> {0} = sum(tanh(x @ w)^2)
"""
W = np.random.default_rng(0).normal(size=(6, 6))
X = np.random.default_rng(1).normal(size=(4, 6))


def loaded(dtype: str = "f64") -> Any:
    return difflang.loads(SOURCE.format(dtype), name="paired")


def test_one_exponential() -> None:
    f = loaded().recurrent
    gradient = f.grad("w")
    here, there = (gradient.lower(W, X, platform=p).as_text() for p in ("cpu", "cuda"))
    assert here.count("stablehlo.exponential") == 1 and "stablehlo.tanh" not in here
    assert there.count("stablehlo.exponential") == there.count("stablehlo.tanh") == 1
    np.testing.assert_allclose(gradient(W, X), gradient.interpret(W, X), rtol=1e-12)
    assert f.check_grad(W, X)


def test_outside_of_loops_xla_decides_what_is_written_down() -> None:
    text = loaded().layer.grad("w").lower(W, X, platform="cpu").as_text()
    assert "stablehlo.tanh" in text


def test_in_single_precision_both_are_made_as_ever() -> None:
    w, x = W.astype(np.float32), X.astype(np.float32)
    assert "stablehlo.tanh" in loaded("f32").recurrent.grad("w").lower(w, x, platform="cpu").as_text()


def test_second_derivatives() -> None:
    f = difflang.loads(
        SOURCE.format("f64") + "fn both(w: f64[n, n], x: f64[b, n]) = hvp(|w| recurrent(w, x))(w, w)\n"
    ).both
    np.testing.assert_allclose(f(W, X), f.interpret(W, X), rtol=1e-11)


def test_edges_are_those_of_the_function() -> None:
    """With the slope beside it: of 0 its sign is kept, and NaN stays alone."""
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 0.625, -0.625, 1e-300, 800.0, -22.0])
    y, slope = map(np.asarray, compile_graph(Call(OPS["tanh_and_slope"], (edges,), {}).graph())(edges))
    np.testing.assert_allclose(y, np.tanh(edges), rtol=1e-15)
    np.testing.assert_array_equal(np.signbit(y[:4]), np.signbit(edges[:4]))
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(slope, 1 / np.cosh(edges) ** 2, rtol=1e-14)


def test_a_kernel_of_a_step_is_not_shared_among_threads() -> None:
    """XLA would where it counts more steps than bytes, and two threads take longer for a kernel as small as these."""
    square = np.ones((32, 32))
    text = loaded().recurrent.grad("w").lower(square, square, platform="cpu").compile().as_text()
    kernels = [line for line in text.splitlines() if " fusion(" in line and "kind=kLoop" in line]
    assert kernels and not [line for line in kernels if "outer_dimension_partitions" in line]
