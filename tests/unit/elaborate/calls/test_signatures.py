"""Declared types hold: of functions that are passed or returned, of records, and of what is stacked from these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from difflang import DifflangError

PROGRAM = """
fn backward(f: (f64[n]) -> f64) -> (f64[n]) -> f64[n] = |x| grad(f)(x)
fn at_ones(f: (f64[n]) -> f64) -> f64 = f(ones(n))
fn cubes(x: f64[n]) -> f64 = sum(x^3)
fn three(x: f64[3]) -> f64 = sum(x^3)
fn of_named(x: f64[n]) -> f64[n] = backward(cubes)(x)
fn of_lambda(x: f64[n]) -> f64[n] = backward(|y| sum(y^3))(x)
fn at_three() -> f64 = at_ones(three)
"""


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads(PROGRAM, name="signatures")


def test_each_call_binds_a_size_that_only_a_function_names(m: Any) -> None:
    x = np.array([1.0, 2.0])
    assert m.of_named(x).tolist() == m.of_lambda(x).tolist() == [3.0, 12.0]
    assert m.of_named(np.ones(3)).shape == (3,)


def test_the_parameters_of_a_named_function_bind_it(m: Any) -> None:
    assert float(m.at_three()) == 3.0


@pytest.mark.parametrize(
    "wrong",
    [
        "fn f(x: f64[3]) -> f64[3] = backward(|y| sum(y))(2.0)",
        "fn f(x: f64[2]) -> f64[2] = backward(three)(x)",
        "fn g() -> (f64[3]) -> f64[3] = |x| sum(x)\nfn f(x: f64[3]) -> f64 = sum(g()(x))",
        "fn f(x: f64[3]) -> f64 {\n  let g: (f64[2]) -> f64 = |y| sum(y)\n  g(x)\n}",
        "record B[c] { b: f64[c] }\nfn one(p: B[c]) -> f64 = sum(p.b)\n"
        "fn f(a: f64[n, c]) -> f64 = one([for i => B(b = a[i])])",
        "record B[c] { b: f64[c] }\nfn f(c: dim, k: dim) -> B[c] = [for i in 0..k => B(b = ones(c))]",
        "record P { x: f64 }\nfn one(p: D(P)) -> f64 = 1.0\n"
        "fn f(a: f64[n]) -> f64 = one(grad(|p| sum(p.x))([for i => P(x = a[i])]))",
        "enum K { A(k: f64) }\nfn one(p: K) -> f64 = 1.0\nfn f(a: f64[n]) -> f64 = one([for i => A(k = a[i])])",
    ],
)
def test_another_type_is_an_error_before_anything_runs(wrong: str) -> None:
    with pytest.raises(DifflangError, match="DL0304"):
        difflang.loads(PROGRAM + wrong, name="wrong").check()


def test_each_condition_of_a_where_clause_is_taken_for_itself() -> None:
    """One that may divide by zero is evaluated only if those before it hold, and hides none of them."""
    right = "fn rows(x: f64[n], k: dim) -> f64[n // k, k] where k > 0 and n == n // k * k = reshape(x, [n // k, k])"
    m = difflang.loads(right)
    assert m.rows(np.ones(4), 2).shape == (2, 2)
    with pytest.raises(DifflangError, match="requires k > 0 and n == n // k"):
        m.rows(np.ones(4), 0)
    wrong = "fn added(x: f64[n], y: f64[m], k: dim) -> f64[n] where k > 0 and n // k > 2 = x + y"
    with pytest.raises(DifflangError, match="DL0310"):
        difflang.loads(wrong).check()
