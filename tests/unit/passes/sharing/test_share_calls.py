"""Equal calls of a recursion over sizes are computed once, side by side with the others of their function."""

from __future__ import annotations

import re
from math import comb
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.base.errors import IndexFailure

PROGRAM = """
float f64

fn minors(a: f64[n, n]) -> f64 where n > 0 {
  if n == 1 { return a[0, 0] }
  sum(for j in 0..n => {
    let minor = [for i in 0..n - 1, k in 0..n - 1 => a[i + 1, if k < j { k } else { k + 1 }]]
    (if j % 2 == 0 { a[0, j] } else { -a[0, j] }) * minors(minor)
  })
}

fn divided(x: f64[n], y: f64[n]) -> f64 where n > 0 {
  if n == 1 { y[0] } else { (divided(x[1..], y[1..]) - divided(x[..n - 1], y[..n - 1])) / (x[n - 1] - x[0]) }
}

fn distance(a: f64[n], b: f64[m]) -> f64 {
  if n == 0 { return f64(m) }
  if m == 0 { return f64(n) }
  let least = min(distance(a[1..], b), distance(a, b[1..])) + 1.0
  min(least, distance(a[1..], b[1..]) + abs(a[0] - b[0]))
}

## Branches that are known for each instance: a loop on one side, a root on the other.
fn choices(x: f64[n]) -> f64 where n > 0 {
  if n == 1 { return x[0] }
  sum(for j in 0..n => {
    let rest = [for i in 0..n - 1 => if i < j { x[i] } else { x[i + 1] }]
    let w = if j % 2 == 0 { sqrt(x[j]) * sum(exp(-rest)) } else {
      var y = x[j]
      for k in 0..3 { y = cos(y) * rest[0] }
      y
    }
    w * choices(rest)
  })
}

fn computed(x: f64[n]) -> f64 where n > 0 {
  if n == 1 { return x[0] }
  let y = sin(x)
  computed(y[1..]) * computed(x[..n - 1]) + computed(y[1..])
}

fn once(x: f64[n]) -> f64 where n > 0 {
  if n == 1 { x[0] } else { sin(x[0]) * once(x[1..]) }
}

fn checked(x: f64[n], k: i32) -> f64 where n > 0 {
  if n == 1 { return x[0] }
  sum(for j in 0..n => x[j] * checked([for i in 0..n - 1 => x[if i < j { i } else { i + 1 }]], k)) + x[k]
}

fn twice(x: f64[n]) -> f64[n] where n > 0 = grad(|x| sum(grad(choices)(x)^2))(x)
fn many(a: f64[b, n, n]) -> f64[b] where n > 0 = [for i => minors(a[i])]
"""
RANDOM = np.random.default_rng(7)
A = RANDOM.normal(size=(6, 6))
X = RANDOM.uniform(0.5, 1.5, size=6)


@pytest.fixture(scope="module")
def program() -> Any:
    return difflang.loads(PROGRAM, name="recursion")


def largest(text: str) -> int:
    """The number of elements of the largest array in a graph."""
    return max(int(np.prod([int(n) for n in s.split(",")])) for s in re.findall(r"f64\[([\d, ]+)\]", text))


def test_minors_are_computed_once_for_each_set_of_columns(program: Any) -> None:
    text = program.minors.ir("optimized", A)
    assert largest(text) <= max(size * comb(6, size) for size in range(7))
    assert not re.search(" = (map|call|cond|loop) ", text)


def test_the_values_are_those_of_the_recursion(program: Any) -> None:
    assert program.minors(A) == pytest.approx(np.linalg.det(A))
    assert program.minors.grad()(A) == pytest.approx(np.linalg.det(A) * np.linalg.inv(A).T)
    assert program.many(A.reshape(4, 3, 3)) == pytest.approx(np.linalg.det(A.reshape(4, 3, 3)))


def test_intervals_are_a_batch_for_each_length(program: Any) -> None:
    x = np.cumsum(X)
    text = program.divided.ir("optimized", x, X)
    assert text.count(" = div ") == len(x) - 1
    assert program.divided(x, X) == pytest.approx(np.polyfit(x, X, len(x) - 1)[0])


@pytest.mark.parametrize("name", ["distance", "choices", "computed"])
def test_both_engines_agree(program: Any, name: str) -> None:
    function = getattr(program, name)
    arguments = (X[:4], X[1:5] + 0.01) if name == "distance" else (X[:5],)
    assert function(*arguments) == pytest.approx(function.interpret(*arguments), rel=1e-12)
    slope = function.grad()
    for found, expected in zip(slope(*arguments), slope.interpret(*arguments), strict=True):
        assert found == pytest.approx(expected, rel=1e-12)


def test_a_second_derivative(program: Any) -> None:
    assert program.twice(X[:4]) == pytest.approx(program.twice.interpret(X[:4]), rel=1e-11)


def test_a_chain_of_calls_stays_as_it_is(program: Any) -> None:
    assert "gather" not in program.once.ir("optimized", X)


def test_a_failure_inside_is_reported(program: Any) -> None:
    assert np.isfinite(program.checked(X[:4], np.int32(1)))
    with pytest.raises(IndexFailure, match="index 3 is out of range"):
        program.checked(X[:4], np.int32(3))
