"""The step of a range may be a size, which is known where a function is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import difflang
from support.language import codes

X = np.arange(1.0, 8.0)
STEPPED: dict[str, tuple[str, Callable[[int], Any]]] = {
    "an open range": ("fn f(x: f64[n], k: dim) -> f64 = sum(x[0.. by k]^2)", lambda k: X[::k]),
    "a declared length": (
        "fn g(x: f64[n], k: dim) -> f64[(n + k - 1) // k] = x[0..n by k]\n"
        "fn f(x: f64[n], k: dim) -> f64 = sum(g(x, k)^2)",
        lambda k: X[::k],
    ),
    "a later start": ("fn f(x: f64[n], k: dim) -> f64 = sum(x[1..n - 1 by k]^2)", lambda k: X[1:-1:k]),
    "a computed step": ("fn f(x: f64[n], k: dim) -> f64 = sum(x[0.. by 2 * k + 1]^2)", lambda k: X[:: 2 * k + 1]),
    "beside an index": (
        "fn f(x: f64[n], k: dim) -> f64 = sum(stack(x, x)[i32(x[0]), 0.. by k]^2)",
        lambda k: X[::k],
    ),
    "an update": (
        "fn f(x: f64[n], k: dim) -> f64 {\nvar y = 0.0 * x\ny[0.. by k] = x[0.. by k]\nsum(y^2)\n}",
        lambda k: X[::k],
    ),
    "a loop": (
        "fn f(x: f64[n], k: dim) -> f64 {\nvar s = 0.0\nfor i in 0..n by k { s += x[i]^2 }\ns\n}",
        lambda k: X[::k],
    ),
    "a comprehension": ("fn f(x: f64[n], k: dim) -> f64 = sum([for i in 1..n by k => x[i]^2])", lambda k: X[1::k]),
    "a stop at run time": (
        "fn f(x: f64[n], k: dim) -> f64 = sum(for i in 0..i32(x[4]) by k => x[i]^2)",
        lambda k: X[:5:k],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPPED)
def test_the_step_of_a_range_may_be_a_size(name: str) -> None:
    source, picked = STEPPED[name]
    f = difflang.loads(source)["f"]
    for k in (1, 2, 3, 9):
        np.testing.assert_allclose(f(X, k), np.sum(picked(k) ** 2))
        np.testing.assert_allclose(f.interpret(X, k), np.sum(picked(k) ** 2))
        slope = np.where(np.isin(X, picked(k)), 2 * X, 0.0)
        np.testing.assert_allclose(f.grad("x")(X, k), slope)


def test_a_length_that_differs_is_found_at_the_definition() -> None:
    assert codes("fn f(x: f64[n], k: dim) -> f64[n] = x[0.. by k]") == [("DL0304", 1)]


@pytest.mark.parametrize("body", ["sum(x[0.. by k])", "sum(x[0..n by k])", "sum(for i in 0..n by k => x[i])"])
def test_a_step_of_zero_is_an_error_of_the_call(body: str) -> None:
    source = f"fn f(x: f64[n], k: dim) -> f64 = {body}\n"
    assert codes(source) == []
    assert codes(f"{source}print(f([1.0, 2.0], 0))") == [("DL0328", 1)]
