"""`@checkpoint(offload)`: each move to the host and back is an equation, and a placement in what is lowered."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang.ir.graph import Graph, graphs_postorder
from difflang.runtime import compile

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

fn unknown(w: f64[n, n], x: f64[n], k: i32) -> f64 {
  var (y, steps) = (x, 0)
  @STRATEGY
  while steps < k {
    y = sin(w @ y) * exp(y) * 0.1 + x
    steps += 1
  }
  sum(y * y)
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
    names = [eqn.op.name for g in graphs_postorder(graph)[0] for eqn in g.eqns]
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
def test_what_lanes_keep_stays_where_it_is() -> None:
    found = [jax.tree.leaves(module(s).lanes.grad("w", "x")(W, X)) for s in ("offload", "")]
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-14)
    of = module("offload").lanes.grad("w", "x")
    assert moves(of.lower(*TYPES).graph)[0] > 0
    assert "annotate_device_placement" not in of.stablehlo(*TYPES, platform="cuda")


def test_lanes_say_that_nothing_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is a host to move to."""
    monkeypatch.setattr(compile, "device_platform", lambda device: "gpu")
    alone, lanes = [getattr(module("offload"), n).grad("w", "x").lower(*TYPES).graph for n in ("relaxed", "lanes")]
    assert not compile.Executable(alone).offload_warnings
    (note,) = compile.Executable(lanes).offload_warnings
    assert note.code == "DL0602" and "batches" in note.message


@pytest.mark.filterwarnings("ignore:.*DL0602")
@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_a_loop_of_unknown_length_moves_what_it_keeps(platform: str) -> None:
    """There is room for so many steps; a run of more is made anew, and the values are those of any strategy."""
    got, want = [module(s).unknown for s in ("offload", "")]
    for steps in (0, 3, 700):
        assert got(W, X, steps) == want(W, X, steps)
        found = [jax.tree.leaves(f.grad("w", "x")(W, X, steps)) for f in (got, want)]
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13)
    of = got.grad("w", "x")
    to_host, _ = moves(of.lower(*TYPES, "i32").graph)
    assert to_host > 0
    if platform == "cuda":
        text = of.stablehlo(*TYPES, "i32", platform=platform)
        assert text.count('_xla_buffer_placement = "pinned_host"') == to_host


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


@pytest.mark.filterwarnings("ignore::difflang.DifflangWarning")
def test_what_no_step_changes_is_moved_by_each_step() -> None:
    """The slope in w is one number for all steps, which is seen when the function that has it stands in the loop."""
    text = """float f64
fn kick(x: f64[n], w: f64) -> f64[n] = x - 0.1 * w * sin(x)
@unchecked
rule kick(x, w) by inverse |x| x
fn long(w: f64, x0: f64[n]) -> f64 {
  var x = x0
  @checkpoint(STRATEGY)
  for _ in 0..20 { x = kick(x, w) }
  sum(x * x)
}
"""
    x = np.array([0.3, 0.4])
    found, wanted = (difflang.loads(text.replace("STRATEGY", how)).long.grad()(0.7, x) for how in ("offload", "sqrt"))
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
