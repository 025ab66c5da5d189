"""Loops that add at positions of their own need no steps, and compute what their steps compute one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang

N = 6
X, W = np.linspace(-1.0, 1.5, N), np.linspace(0.3, 2.0, N)
A = np.cos(np.arange(36.0)).reshape(N, N)
PACKED = np.sin(np.arange(15.0))
AT = np.array([3, 0, 3, 5, 1, 0], np.int32)
HEADER = (
    "float f64\nfn f(x: f64[n], w: f64[n], a: f64[n, n], l: f64[n * (n - 1) // 2], at: i32[n]) -> f64 where n > 2 {\n"
)

# Programs of two vectors, a matrix, a packed triangle and positions.
PROGRAMS = {
    "triangle packed by columns": (
        "var y = exp(w) * x\n var k = 0\n for j in 0..n { for i in j + 1..n {\n y[i] += l[k] * x[j]\n k += 1\n } }\n"
        " dot(y, y)"
    ),
    "triangle packed by rows": (
        "var y = x\n var k = 0\n for i in 0..n { for j in i + 1..n {\n y[i] += l[k] * x[j]\n y[j] -= l[k] * w[i]\n"
        " k += 1\n } }\n dot(y, y)"
    ),
    "histogram": "var h = zeros(n)\n for i in 0..n { h[at[i]] += w[i] }\n dot(h, h)",
    "sparse product": "var y = x\n for e in 0..n { y[at[e]] += w[e] * x[at[n - 1 - e]] }\n dot(y, w * y)",
    "two writes": "var y = x\n for e in 0..n {\n y[at[e]] += w[e]\n y[e] -= x[at[e]] * w[e]\n"
    " y += w * x[e]\n }\n dot(y, y)",
    "product of vector and matrix": (
        "var y = zeros(n)\n for i in 0..n { for j in 0..n { y[j] += x[i] * a[i, j] } }\n dot(y, y)"
    ),
    "rows of a matrix": "var m = a\n for e in 0..n { m[at[e]] += w[e] * x }\n sum(m^2)",
    "elements of a matrix": "var m = a\n for e in 0..n { m[at[e], e] += w[e] * x[e]\n m[e, e] -= x[e] }\n sum(m^3)",
    "band": "var y = zeros(n)\n for i in 1..n - 1 { for k in 0..3 { y[i + k - 1] += a[i, k] * x[i] } }\n dot(y, y)",
    "counter with steps of two": (
        "var y = zeros(2 * n)\n var k = 1\n for i in 0..n {\n y[k] += x[i] * w[i]\n k += 2\n }\n sum(y^2) * y[3]"
    ),
    "windows": "var y = zeros(2 * n)\n for i in 0..n { y[at[i]..at[i] + 3] += w[i] * x[..3] }\n dot(y, y)",
    "triangle from below": (
        "var y = x\n for i in 0..n { for j in i + 1..n { y[j] += w[i] / (x[j] - x[i]) } }\n sum(y^2)"
    ),
}
ARGUMENTS = (X, W, A, PACKED, AT)
TYPES = ("f64[6]", "f64[6]", "f64[6, 6]", "f64[15]", "i32[6]")


def assert_close(found: Any, expected: Any) -> None:
    """Of gradients: the same numbers, and NaN in the same places."""
    for name in ("x", "w", "a", "l"):
        if hasattr(expected, name):
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_derivatives_are_those_of_the_steps(name: str) -> None:
    m = difflang.loads(HEADER + PROGRAMS[name] + "\n}\n")
    np.testing.assert_allclose(m.f(*ARGUMENTS), m.f.interpret(*ARGUMENTS), rtol=1e-13)
    found = m.f.grad("x", "w", "a", "l")
    assert_close(found(*ARGUMENTS), found.interpret(*ARGUMENTS))
    assert "= loop " not in m.f.ir("optimized", *TYPES)
    assert "= loop " not in found.ir("optimized", *TYPES)


def of(source: str) -> Any:
    return difflang.loads("float f64\n" + source)


TRIANGLE = """fn f(x: f64[n], l: f64[n * (n - 1) // 2]) -> f64[n] where n > 1 {
  var y = zeros(n)
  var k = 0
  for j in 0..n {
    for i in j + 1..n {
      y[i] += l[k] * x[j] / (x[i] - x[j])
      k += 1
    }
  }
  y
}
"""


def packed_triangle(x: np.ndarray, packed: np.ndarray) -> np.ndarray:
    y, k = np.zeros_like(x), 0
    for j in range(len(x)):
        for i in range(j + 1, len(x)):
            y[i] += packed[k] * x[j] / (x[i] - x[j])
            k += 1
    return y


@pytest.mark.parametrize("size", [2, 3, 9])
def test_a_triangle_of_any_size_is_no_loop(size: int) -> None:
    m, x, packed = of(TRIANGLE), np.arange(1.0, size + 1) ** 1.5, np.cos(np.arange(size * (size - 1) / 2))
    np.testing.assert_allclose(m.f(x, packed), packed_triangle(x, packed), rtol=1e-13)
    assert "= loop " not in m.f.ir("optimized", f"f64[{size}]", f"f64[{size * (size - 1) // 2}]")


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_steps_that_are_not_taken_leave_neither_inf_nor_nan(bad: float) -> None:
    # The last of `x` is divided by, but never multiplied; no step subtracts an element from itself.
    m = of(TRIANGLE + "fn s(x: f64[n], l: f64[n * (n - 1) // 2]) -> f64 where n > 1 = f(x, l)[1]\n")
    x = np.array([*X[:-1], bad])
    np.testing.assert_array_equal(np.isfinite(m.f(x, PACKED)), np.isfinite(packed_triangle(x, PACKED)))
    gradient = m.s.grad("x", "l")
    assert_close(gradient(x, PACKED), gradient.interpret(x, PACKED))


def test_the_first_step_that_fails_is_reported() -> None:
    m = of(
        "fn f(x: f64[n], at: i32[n]) -> f64[n] {\n var y = x\n"
        " for i in 0..n { for j in i + 1..n { y[at[j] - i] += x[i] } }\n y\n}\n"
    )
    x = np.ones(4)
    for at, message in [([0, 1, 7, 9], "index 7 "), ([0, 9, 7, 2], "index 9 "), ([9, 1, 2, 3], None)]:
        positions = np.array(at, np.int32)
        if message is None:
            np.testing.assert_array_equal(m.f(x, positions), m.f.interpret(x, positions))
            continue
        for call in (m.f, m.f.interpret):
            with pytest.raises(difflang.DifflangError, match=message):
                call(x, positions)


@pytest.mark.parametrize("type", ["i32", "i64", "f32"])
def test_integers_wrap_and_small_floats_are_added(type: str) -> None:
    m = of(
        f"fn f(h: {type}[n], at: i32[m], w: {type}[m]) -> {type}[n] {{\n"
        " var y = h\n for e in 0..m { y[at[e]] += w[e] }\n y\n}\n"
    )
    dtype = {"i32": np.int32, "i64": np.int64, "f32": np.float32}[type]
    most = 2**30 if type != "i64" else 2**62
    h, w = np.array([1, 2, 3], dtype), np.full(6, most, dtype)
    at = np.array([0, 0, 0, 0, 2, 0], np.int32)
    np.testing.assert_array_equal(m.f(h, at, w), m.f.interpret(h, at, w))


def test_large_terms_of_one_step_cancel_before_they_are_added() -> None:
    m = of(
        "fn f(x: f64[n], at: i32[n]) -> f64[n] {\n var y = zeros(n)\n"
        " for e in 0..n { y[at[e]] = y[at[e]] + x[e] - x[e] }\n y\n}\n"
    )
    np.testing.assert_array_equal(m.f(np.full(3, 1e308), np.zeros(3, np.int32)), np.zeros(3))


def test_a_limit_that_only_the_run_knows_may_be_negative() -> None:
    m = of(
        "fn f(x: f64[n], at: i32[n]) -> f64[n] {\n var y = x\n"
        " for i in 0..n { for j in 0..min(at[i], n) { y[j] += x[i] * 2.0 } }\n y\n}\n"
    )
    at = np.array([-3, 2, 0, 9, 1, -1], np.int32)
    np.testing.assert_allclose(m.f(X, at), m.f.interpret(X, at), rtol=1e-14)


@pytest.mark.parametrize("name", ["triangle packed by columns", "sparse product"])
def test_derivatives_of_derivatives_are_those_of_the_steps(name: str) -> None:
    source = (
        HEADER
        + PROGRAMS[name]
        + "\n}\n"
        + (
            "fn g(x: f64[n], w: f64[n], a: f64[n, n], l: f64[n * (n - 1) // 2], at: i32[n]) -> f64 where n > 2 =\n"
            " sum(grad[x](f)(x, w, a, l, at) * w)\n"
        )
    )
    found = difflang.loads(source).g.grad("x", "w", "l")
    assert_close(found(*ARGUMENTS), found.interpret(*ARGUMENTS))


def test_long_windows_at_positions_of_the_run_stay_a_loop() -> None:
    m = of(
        "fn f(x: f64[65], at: i32[n]) -> f64[100] {\n var y = zeros(100)\n"
        " for e in 0..n { y[at[e]..at[e] + 65] += f64(e) * x }\n y\n}\n"
    )
    x, at = np.sin(np.arange(65.0)), np.array([3, 0, 35], np.int32)
    assert "= loop " in m.f.ir("optimized", x, at)
    np.testing.assert_allclose(m.f(x, at), m.f.interpret(x, at), rtol=1e-14)
