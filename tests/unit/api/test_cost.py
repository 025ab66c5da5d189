"""`f.cost`: what is counted in the compiler's own graph, against counts by hand."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

import difflang

PROGRAM = """
fn dots(a: f64[n, k], b: f64[k, m]) -> f64 = sum(a @ b)
fn product(a: f64[n, k], b: f64[k, m]) -> f64[n, m] = a @ b
fn counted(x: i32) -> i32 = x + 1
fn none() -> f64 = 1.0
extern fn wave(x: f64[n]) -> f64[n]
fn called(x: f64[n]) -> f64 = sum(wave(x))
fn steps(x: f64, n: dim) -> f64 {
  var y = x
  for _ in 0..n { y = sin(y) }
  y
}
fn heron(a: f64) -> f64 {
  var x = a
  while abs(x * x - a) > 1e-12 { x = 0.5 * (x + a / x) }
  x
}
fn looked_up(x: f64[n], i: i32) -> f64 = x[i]
fn changed(x: f64[n], i: i32[k]) -> f64[n] {
  var y = x
  for j in 0..k { y[i[j]] += 1.0 }
  y
}
fn rooted(x: f64, n: dim) -> f64 {
  var y = x
  @checkpoint(sqrt)
  for _ in 0..n { y = sin(y) }
  y
}
"""


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads(PROGRAM, name="cost", externs={"wave": jnp.sin})


@pytest.mark.parametrize(("n", "k", "p"), [(3, 4, 5), (30, 7, 11)])
def test_a_product_of_matrices(m: Any, n: int, k: int, p: int) -> None:
    report = m.product.cost(f"f64[{n}, {k}]", f"f64[{k}, {p}]")
    assert report.value.operations == 2 * n * k * p
    assert report.value.bytes == 8 * (n * k + k * p + n * p) == report.value.peak
    assert report.value.arguments == 8 * (n * k + k * p) and report.value.results == 8 * n * p
    assert report.gradient is None and "real number" in report.why and report.ratio is None


def test_a_gradient_beside_the_value(m: Any) -> None:
    bound = m.product.bind(n=3, k=4, m=5)
    report = m.dots.bind(n=3, k=4, m=5).cost(wrt=["a", "b"])
    assert report.value.operations >= bound.cost().value.operations and report.wrt == "a, b"
    assert report.gradient.results == 8 * (3 * 4 + 4 * 5)
    assert report.ratio == report.gradient.operations / report.value.operations
    assert [row["of"] for row in report.table()] == ["value", "gradient with respect to a, b"]
    assert report.to_json()["rows"] == report.table()
    assert "without times" in str(report) and "gradient with respect to a, b" in str(report)


def test_loops_count_each_step_and_those_of_unknown_length_one(m: Any) -> None:
    few, many = (m.steps.cost("f64", n) for n in (10, 1000))
    assert (few.value.operations, many.value.operations) == (10, 1000)
    assert many.gradient.operations == 100 * few.gradient.operations and not many.value.per_step
    report = m.heron.cost("f64")
    assert report.value.per_step and report.value.operations < 20 and "one step is counted" in str(report)


def test_of_an_array_that_is_looked_up_or_changed_its_places_count(m: Any) -> None:
    small, large = (m.looked_up.cost(f"f64[{n}]", "i32").value for n in (10, 10_000))
    assert small.bytes == large.bytes < 200
    small, large = (m.changed.cost(f"f64[{n}]", "i32[4]").value for n in (10, 10_000))
    assert small.bytes == large.bytes < 600 and small.arguments < large.arguments


def test_what_a_loop_computes_again_to_keep_less_is_said(m: Any) -> None:
    free, rooted = m.steps.cost("f64", 1000), m.rooted.cost("f64", 1000)
    assert rooted.gradient.peak < 4096 < 8000 < free.gradient.peak
    assert rooted.gradient.rematerializes and not free.gradient.rematerializes
    assert "is not counted" in str(rooted) and "is not counted" not in str(free)


def test_a_function_without_a_gradient_says_why(m: Any) -> None:
    assert "no tangent" in m.counted.cost().why and m.counted.cost().value.operations == 1
    assert "no parameter" in m.none.cost().why and "\nno gradient: " in str(m.none.cost())
    assert "\nno gradient with respect to x: i32 has no tangent" in str(m.counted.cost())
    with pytest.raises(difflang.DifferentiationError):
        m.counted.cost(wrt=0)
    report = m.called.cost("f64[3]")
    assert report.gradient is None and "`wave`" in report.why and report.value.results == 8
    with pytest.raises(difflang.DifferentiationError):
        m.called.cost("f64[3]", wrt="x")
    with pytest.raises(difflang.ArgumentError, match="not given") as caught:
        m.dots.cost()
    assert "f.bind(n=3, k=3, m=3)" in str(caught.value)
