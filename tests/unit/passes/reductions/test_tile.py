"""Large arrays that are summed are computed in tiles: the same values and derivatives, without the large arrays."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.passes.measured_rewrites import LEFT_OUT
from difflang.passes.reductions import tile as passes
from difflang.passes.reductions import tile_plan

PROGRAMS = {
    "pairs": "sum(for i, j => exp(-sum((x[i] - y[j])^2)))",
    "pairs of one array": "sum(for i, j => 1.0 / (0.1 + sum((x[i] - x[j])^2))) + 0.0 * y[0, 0]",
    "kernel regression": "sum(for i => (sum(for j => exp(-sum((x[i] - y[j])^2)) * y[j, 0]) - x[i, 1])^2)",
    "mixture": "sum(for i => logsumexp([for j => -sum((x[i] - y[j])^2) + y[j, 0]]))",
    "products": "mean(for i => log(1.0 + sum(exp(x[i] @ transpose(y)))))",
    "matrices": "sum(tanh(x @ transpose(y))^2)",
    "nearest": "sum(for i => min(for j => sum((x[i] - y[j])^2)))",
    "along the other axis": "sum([for i => max(sin(y @ x[i]))] * x[.., 0])",
    "rows that are kept": "sum(normalized(x, y)^2 * 0.5)",
    "weights": "sum(for i => x[i, 0] * sum(for j => f64(i) * 0.1 + cos(dot(x[i], y[j]))))",
    "in a loop": "walk(x, y)",
}
SOURCE = """float f64
fn normalized(x: f64[n, d], y: f64[k, d]) -> f64[n, d] where k > 0 {
  let e = exp(x @ transpose(y))
  (e / sum(e, axis = 1)[.., newaxis]) @ y
}
fn walk(x: f64[n, d], y: f64[k, d]) -> f64 {
  var z = y
  for _ in 0..3 { z += 0.01 * [for j, c => sum(for i => exp(-sum((x[i] - z[j])^2)) * x[i, c])] }
  sum(z^2)
}
"""
R = np.random.default_rng(3)
Y = R.normal(size=(6, 2))
X = {n: R.normal(size=(n, 2)) for n in (48, 47, 61)}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MIN_BYTES", 1 << 10)
    monkeypatch.setattr(passes, "MIN_BYTES_OF_PRODUCTS", 1 << 10)
    monkeypatch.setattr(passes, "TILE_BYTES", 1 << 9)
    monkeypatch.setattr(tile_plan, "SLICED_BYTES", 1 << 8)
    monkeypatch.setattr(passes, "LEAST_GROWTH", 1)


def program(body: str, name: str = "tiles") -> Any:
    return difflang.loads(SOURCE + f"fn f(x: f64[n, d], y: f64[k, d]) -> f64 where k > 0 = {body}\n", name=name)


def whole(module: Any, x: Any) -> list[Any]:
    """The value and the derivatives without tiles."""
    both = module.f.grad(("x", "y")).interpret(x, Y)
    return [module.f.interpret(x, Y), both.x, both.y]


def results(module: Any, x: Any) -> list[Any]:
    both = module.f.grad(("x", "y"))(x, Y)
    return [module.f(x, Y), both.x, both.y]


def sizes(text: str) -> list[int]:
    """The elements of every array of floats in a graph."""
    return [prod(map(int, shape.split(", "))) for shape in re.findall(r"f64\[([\d, ]+)\]", text)]


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_values_and_gradients_are_the_same(body: str) -> None:
    module = program(body)
    for a, b in zip(results(module, X[48]), whole(module, X[48]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
    assert " = loop " in module.f.grad(("x", "y")).ir("optimized", X[48], Y)


@pytest.mark.parametrize("n", [47, 61])
def test_a_rest_is_computed_by_itself(n: int) -> None:
    body = PROGRAMS["mixture"]
    module = program(body)
    for a, b in zip(results(module, X[n]), whole(module, X[n]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert "loop_step" in module.f.grad("y").ir("optimized", X[n], Y)


def test_no_large_array_is_left() -> None:
    text = program(PROGRAMS["mixture"]).f.grad("y").ir("optimized", X[48], Y)
    assert max(sizes(text)) < 48 * 6
    LEFT_OUT.add("tile")
    try:
        assert max(sizes(program(PROGRAMS["mixture"], "large").f.grad("y").ir("optimized", X[48], Y))) >= 48 * 6 * 2
    finally:
        LEFT_OUT.discard("tile")


def test_second_derivatives() -> None:
    source = PROGRAMS["mixture"]
    more = "fn h(x: f64[n, d], y: f64[k, d]) -> f64[k, d] where k > 0 = grad(|z| sum(grad(|y| f(x, y))(z)^2))(y)\n"
    module = difflang.loads(SOURCE + f"fn f(x: f64[n, d], y: f64[k, d]) -> f64 where k > 0 = {source}\n" + more)
    np.testing.assert_allclose(module.h(X[48], Y), module.h.interpret(X[48], Y), rtol=1e-10)


def test_compiled_as_interpreted() -> None:
    gradient = program(PROGRAMS["rows that are kept"]).f.grad("y")
    np.testing.assert_allclose(gradient(X[47], Y), gradient.interpret(X[47], Y), rtol=1e-12)


@pytest.mark.parametrize(
    ("body", "tiled"), [(PROGRAMS["nearest"], True), ("sum(for i, c => x[i, c] * y[0, c])", False)]
)
def test_of_values_sums_are_tiled_that_are_reduced_again(body: str, tiled: bool) -> None:
    module = program(body)
    assert (" = loop " in module.f.ir("optimized", X[48], Y)) == tiled
    np.testing.assert_allclose(module.f(X[48], Y), module.f.interpret(X[48], Y), rtol=1e-12)


def test_small_arrays_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MIN_BYTES", 1 << 20)
    assert "loop" not in program(PROGRAMS["mixture"]).f.grad("y").ir("optimized", X[48], Y)


def test_products_are_computed_again_for_larger_arrays_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MIN_BYTES_OF_PRODUCTS", 1 << 20)
    assert "loop" not in program(PROGRAMS["matrices"]).f.grad("y").ir("optimized", X[48], Y)
    assert " = loop " in program(PROGRAMS["pairs"]).f.grad("y").ir("optimized", X[48], Y)


def test_divisors() -> None:
    assert passes.nearby_divisor(1000, 131) == 125
    assert passes.nearby_divisor(10_000, 33) == 40
    assert passes.nearby_divisor(997, 100) == 100
