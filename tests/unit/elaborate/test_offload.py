"""`@checkpoint(offload)`: each move to the host and back is an equation, and a placement in what is lowered."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang.base.errors import DifflangError
from difflang.ir.graph import Graph, inner_first

SOURCE = """
float f64
@STRATEGY
fn relaxed(w: f64[n, n], x: f64[n]) -> f64 {
  var y = x
  for i in 0..30 { y = sin(w @ y) * exp(y) * 0.1 + x }
  sum(y * y)
}

fn leaving(w: f64[n, n], x: f64[n]) -> f64 {
  var y = x
  var total = 0.0
  @STRATEGY
  for i in 0..30 {
    y = sin(w @ y) * exp(y)
    total += y[0] * y[1]
    if total > 2.0 { break }
  }
  total * sum(y)
}

fn single(w: f64[n, n], x: f64[n]) -> f64 {
  var y = x
  @STRATEGY
  for i in 0..1 { y = sin(w @ y) * exp(y) }
  sum(y)
}

fn inside(w: f64[n, n], x: f64[n]) -> f64 {
  var y = x
  @STRATEGY
  for i in 0..5 {
    @STRATEGY
    for j in 0..4 { y = sin(w @ y) * exp(y) * x[i % 2] }
  }
  sum(y)
}

fn lanes(w: f64[n, n], x: f64[n]) -> f64 = sum([for k in 0..3 => relaxed(w * (1.0 + 0.1 * f64(k)), x)])

fn pushed(w: f64[n, n], x: f64[n]) -> f64[n] {
  let (_, d) = jvp(|x| grad[1](relaxed)(w, x))(x, x)
  d
}
fn pulled(w: f64[n, n], x: f64[n]) -> f64[n] = grad(|x| sum(grad[1](relaxed)(w, x) * x))(x)
"""
FUNCTIONS = ("relaxed", "leaving", "inside")
W, X = np.linspace(0.0, 1.0, 16).reshape(4, 4), np.linspace(0.1, 1.0, 4)
TYPES = ("f64[4, 4]", "f64[4]")


def module(strategy: str) -> Any:
    return difflang.loads(SOURCE.replace("@STRATEGY", f"@checkpoint({strategy})" if strategy else ""), name="moved")


def moves(graph: Graph) -> tuple[int, int]:
    names = [eqn.op.name for g in inner_first(graph)[0] for eqn in g.eqns]
    return names.count("to_host"), names.count("to_device")


@pytest.mark.filterwarnings("ignore:.*DL0602")
@pytest.mark.parametrize("name", [*FUNCTIONS, "single"])
def test_a_move_changes_no_gradient(name: str) -> None:
    found = [jax.tree.leaves(getattr(module(s), name).grad("w", "x")(W, X)) for s in ("offload", "")]
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-14)


@pytest.mark.filterwarnings("ignore:.*DL0602")
@pytest.mark.parametrize("name", ["pushed", "pulled"])
def test_second_derivatives(name: str) -> None:
    got, want = [getattr(module(s), name)(W, X) for s in ("offload", "")]
    np.testing.assert_allclose(got, want, rtol=1e-13)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("name", [*FUNCTIONS, "pushed", "pulled"])
def test_the_placements_are_the_moves_of_the_graph(name: str, platform: str) -> None:
    of = getattr(module("offload"), name)
    of = of if name in ("pushed", "pulled") else of.grad("w", "x")
    to_host, to_device = moves(of.lower(*TYPES).graph)
    text = of.stablehlo(*TYPES, platform=platform)
    assert to_host > 0
    assert text.count('_xla_buffer_placement = "pinned_host"') == to_host
    assert text.count('_xla_buffer_placement = "device"') == to_device


@pytest.mark.filterwarnings("ignore:.*DL0602")
def test_lanes_are_not_moved_yet() -> None:
    with pytest.raises(DifflangError, match="in a comprehension is not there yet"):
        module("offload").lanes.grad("w", "x")(W, X)
    assert np.isfinite(module("offload").lanes(W, X))


def test_without_a_derivative_nothing_moves() -> None:
    assert moves(module("offload").relaxed.lower(*TYPES).graph) == (0, 0)
    assert moves(module("").relaxed.grad("w", "x").lower(*TYPES).graph) == (0, 0)


def test_a_cpu_says_that_nothing_is_moved() -> None:
    of = module("offload").relaxed
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        of(W, X)
        assert not said
        of.grad("w", "x")(W, X)
    assert len(said) == 1
    assert "DL0602" in str(said[0].message)
    assert "annotate_device_placement" not in of.grad("w", "x").stablehlo(*TYPES, platform="cpu")
