"""Recursion inside loops and inside recursion: right, to second order, and without an array for every step of each."""

from __future__ import annotations

import re

import pytest

import difflang

PROGRAM = """
float f64
fn deep(x: f64, n: i32) -> f64 = if n == 0 { x } else { sin(deep(x, n - 1)) + x }
fn nested(x: f64, n: i32) -> f64 = if n == 0 { deep(x, 2) } else { x * nested(deep(x, 2), n - 1) }
fn looped(x: f64, n: i32) -> f64 {
  var s = 0.0
  for i in 0..4 { if i != 2 { s += deep(x + f64(i), n) } }
  s
}
fn mapped(x: f64, n: i32) -> f64 = sum([for i in 0..4 => deep(x + f64(i), n + i)])
fn pulled(x: f64, n: i32) -> f64 {
  let (_, pull) = vjp(nested)(x, n)
  pull(1.0)
}
"""
NAMES = ("nested", "looped", "mapped")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.nightly_cases("nested")
def test_derivatives_are_those_of_differences(name: str) -> None:
    f = getattr(difflang.loads(PROGRAM), name)
    x, n, h = 0.3, 2, 1e-5
    slope = (float(f(x + h, n)) - float(f(x - h, n))) / (2 * h)
    assert float(f.grad()(x, n)) == pytest.approx(slope, rel=1e-8)
    bend = (float(f.grad()(x + h, n)) - float(f.grad()(x - h, n))) / (2 * h)
    assert float(f.hvp()(x, n, 1.0)[()]) == pytest.approx(bend, rel=1e-7)
    assert float(f.grad().interpret(x, n)) == pytest.approx(slope, rel=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_no_array_holds_all_steps_of_all_steps(name: str) -> None:
    """There is room for 4096 steps at first: of those outside alone."""
    text = getattr(difflang.loads(PROGRAM), name).grad().ir("optimized", "f64", "i32")
    shapes = re.findall(r"f64\[([0-9, ]+)\]", text)
    assert [s for s in shapes if s.count("4096") > (name == "nested")] == []


@pytest.mark.nightly
def test_a_pullback_as_a_value_is_the_gradient() -> None:
    """It is differentiated while it is elaborated, and put inside other loops afterwards."""
    m = difflang.loads(PROGRAM + "fn again(x: f64, n: i32) -> f64 = sum([for i in 0..2 => pulled(x, n + i)])\n")
    wanted = [float(m.nested.grad()(0.3, n)) for n in (2, 3)]
    assert float(m.pulled(0.3, 2)) == pytest.approx(wanted[0], rel=1e-14)
    assert float(m.again(0.3, 2)) == pytest.approx(sum(wanted), rel=1e-14)
