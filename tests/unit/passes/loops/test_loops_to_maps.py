"""Loops without recurrence are maps and reductions, and compute what their steps compute one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from difflang.passes.pipelines import LOOPS_TO_MAPS

NUMBERS = np.array([0.5, -1.0, 2.0, 2.0, 0.25])
MATRIX = np.arange(25.0).reshape(5, 5) / 10 - 1

# Programs of a vector `x` and a matrix `a`; none has a loop afterwards.
PROGRAMS = {
    "sum": "var s = 1.0\n for i in 0..n { s += x[i] * a[i, 0] - s0 }\n s",
    "two sums": "var s = 0.0\n var q = 1.0\n for i in 0..n {\n s += x[i]\n q -= x[i]^2\n }\n s * q",
    "triangle": "var k = zeros(n, n)\n for i in 0..n { for j in 0..i { k[i, j] = exp(x[i] * x[j]) } }\n sum(k * a)",
    "diagonals": (
        "var k = zeros(n, n)\n for j in 0..n { for i in 0..n - j { k[j, i] = x[j] * x[i + j] } }\n sum(k * a)"
    ),
    "triangle above": "var s = 0.0\n for i in 0..n { for j in 0..i { s += a[i, j] * x[j] } }\n s",
    "product": (
        "var c = zeros(n, n)\n for i in 0..n {\n for j in 0..n {\n var s = 0.0\n"
        " for k in 0..n { s += a[i, k] * a[k, j] }\n c[i, j] = s\n }\n }\n sum(c * c)"
    ),
    "product in place": (
        "var c = ones(n, n)\n for i in 0..n { for j in 0..n { for k in 0..n { c[i, j] += a[i, k] * a[k, j] } } }\n"
        " sum(c * c)"
    ),
    "row": "var y = x\n for i in 0..n { for j in 0..n { y[j] -= x[i] * a[i, j] } }\n sum(y^2)",
    "own element": "var y = x\n for i in 1..n { y[i] = y[i]^2 * a[i, 1] + y[i] }\n sum(y^3)",
    "greatest": "var top = x[0]\n for i in 1..n { if x[i] > top { top = x[i] } }\n top^2",
    "first of the smallest": (
        "var low = inf\n var at = 0\n for i in 0..n {\n let v = x[i]^2\n if v < low {\n low = v\n at = i\n }\n }\n"
        " low * a[at, 2]"
    ),
    "packed": (
        "var s = 0.0\n var at = 0\n for i in 0..n {\n for j in 0..i {\n s += x[at % 5] * a[i, j]\n at += 1\n }\n }\n s"
    ),
}
HEADER = "float f64\nfn f(x: f64[n], a: f64[n, n], s0: f64) -> f64 where n > 0 {\n "


def program(name: str) -> Any:
    return difflang.loads(HEADER + PROGRAMS[name] + "\n}\n")


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("if x[i] > top { top = x[i] }", [np.nan, 1.0, 2.0]),
        ("if x[i] > top { top = x[i] }", [1.0, np.nan, 2.0]),
        ("if x[i] < top { top = x[i] }", [1.0, np.nan, -np.inf]),
        ("top = top * x[i] + 1.0", [1.0, 2.0, 3.0]),  # a recurrence stays a loop
        ("if top < 2.0 { top += x[i] }", [1.0, 2.0, 3.0]),
    ],
)
def test_comparisons_and_recurrences_are_those_of_the_steps(body: str, numbers: list[float]) -> None:
    m = difflang.loads(
        f"fn f(x: f64[n]) -> f64 where n > 0 {{\n var top = x[0]\n for i in 1..n {{ {body} }}\n top\n}}\n"
    )
    top = numbers[0]
    for v in numbers[1:]:
        if ">" in body or "< top" in body:
            top = v if (v > top if ">" in body else v < top) else top
        else:
            top = top * v + 1.0 if "*" in body else top + v if top < 2.0 else top
    assert np.array_equal(m.f(np.array(numbers)), top, equal_nan=True)


def test_the_first_failure_is_reported() -> None:
    m = difflang.loads(
        "fn f(x: f64[n], at: i32[n]) -> f64 {\n var s = 0.0\n"
        " for i in 0..n { for j in 0..i { s += x[at[j] + i] } }\n s\n}\n"
    )
    assert float(m.f(np.ones(4), np.array([0, -1, 0, 0], np.int32))) == 6.0
    with pytest.raises(difflang.DifflangError, match="index 9 "):
        m.f(np.ones(4), np.array([0, 7, 9, 0], np.int32))


def step_by_step(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Value and gradient of the program as its loops are written."""
    with monkeypatch.context() as patch:
        patch.setattr("difflang.passes.pipelines.LEFT_OUT", {LOOPS_TO_MAPS.name})
        m = program(name)
        return m.f(NUMBERS, MATRIX, 0.5), m.f.grad("x", "a")(NUMBERS, MATRIX, 0.5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_those_of_the_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value, gradient = step_by_step(name, monkeypatch)
    m = program(name)
    assert np.allclose(m.f(NUMBERS, MATRIX, 0.5), value, rtol=1e-13)
    found = m.f.grad("x", "a")(NUMBERS, MATRIX, 0.5)
    assert np.allclose(found.x, gradient.x, rtol=1e-12, atol=1e-14)
    assert np.allclose(found.a, gradient.a, rtol=1e-12, atol=1e-14)
    assert "= loop " not in m.f.ir("optimized", "f64[5]", "f64[5, 5]", "f64")
