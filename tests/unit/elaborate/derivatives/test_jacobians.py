"""Derivatives in many directions: against closed forms, on both engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from difflang.execution.engine import Engine
from support.language import INTERPRETER, answer, codes
from support.values import compare

SOURCE = """
float f64
fn two(x: f64[n]) -> f64[2, n] = [sin(x), x * x]
fn cubes(x: f64[n]) -> f64 = sum(x^3) + x[0] * x[1]
fn length(a: f64[n]) -> f64 {
  var x = sum(a)
  while abs(x * x - sum(a * a)) > 1e-13 { x = 0.5 * (x + sum(a * a) / x) }
  x
}
fn powers(t: f64) -> f64[3] = [t, t^2, t^3]
fn outer_product(x: f64[n], y: f64[m]) -> f64[n, m] = [for i, j => x[i] * y[j]]
fn drawn(x: f64[2]) -> f64[2] = x * f64(normal(2))
fn jac(x: f64[n]) -> f64[2, n, n] = jacobian(two)(x)
fn fwd(x: f64[n]) -> f64[2, n, n] = jacfwd(two)(x)
fn rev(x: f64[n]) -> f64[2, n, n] = jacrev(two)(x)
fn hess(x: f64[n]) -> f64[n, n] = hessian(cubes)(x)
fn product(x: f64[n], v: f64[n]) -> f64[n] = hvp(cubes)(x, v)
fn hess_length(x: f64[n]) -> f64[n, n] = hessian(length)(x)
fn product_length(x: f64[n], v: f64[n]) -> f64[n] = hvp(length)(x, v)
fn of_powers(t: f64) -> f64[3] = jacobian(powers)(t)
fn in_y(x: f64[n], y: f64[m]) -> f64[n, m, m] = jacobian[y](outer_product)(x, y)
fn third(x: f64[n]) -> f64[n, n, n] = jacobian(hess)(x)
fn of_drawn(x: f64[2]) -> (f64[2, 2], f64[2, 2]) = (jacfwd(drawn)(x), jacrev(drawn)(x))
"""
MODULE: Any = difflang.loads(SOURCE, name="jacobians")
X, V = np.array([3.0, 4.0]), np.array([1.0, -2.0])
TWO = np.array([np.diag(np.cos(X)), np.diag(2 * X)])
CUBES = np.diag(6 * X) + np.array([[0, 1], [1, 0]])
LENGTH = (np.dot(X, X) * np.eye(2) - np.outer(X, X)) / np.dot(X, X) ** 1.5
THIRD = np.zeros((2, 2, 2))
THIRD[[0, 1], [0, 1], [0, 1]] = 6
CASES = {
    "jac": ((X,), TWO),
    "fwd": ((X,), TWO),
    "rev": ((X,), TWO),
    "hess": ((X,), CUBES),
    "product": ((X, V), CUBES @ V),
    "hess_length": ((X,), LENGTH),
    "product_length": ((X, V), LENGTH @ V),
    "of_powers": ((2.0,), np.array([1.0, 4.0, 12.0])),
    "in_y": ((X, V), np.einsum("i,jk->ijk", X, np.eye(2))),
    "third": ((X,), THIRD),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", ["compiled", "interpreted"])
def test_closed_forms(name: str, engine: str) -> None:
    arguments, expected = CASES[name]
    f = getattr(MODULE, name)
    found = f(*arguments) if engine == "compiled" else f.interpret(*arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_every_direction_sees_the_same_draws() -> None:
    forwards, backwards = MODULE.of_drawn(X, key=3)
    for found in (forwards, backwards):
        assert np.count_nonzero(found) == 2, "a diagonal"
    assert np.all(np.diag(forwards) != np.diag(backwards)), "each call has draws of its own"


def test_of_an_array_of_any_shape() -> None:
    """How many numbers there are is not known at the definition."""
    source = "float f64\nfn f(x: f64[..s]) -> f64 = sum(x^3)\nfn g(x: f64[..s]) -> f64 = sum(hessian(f)(x))\n"
    m: Any = difflang.loads(source, name="shapes")
    assert [float(m.g(x)) for x in (X, X.reshape(2, 1), np.float64(3.0))] == pytest.approx([42.0, 42.0, 18.0])


def test_from_python() -> None:
    np.testing.assert_allclose(MODULE.two.jacobian()(X), TWO)
    np.testing.assert_allclose(MODULE.cubes.hessian("x")(X), CUBES)
    np.testing.assert_allclose(MODULE.cubes.hvp()(X, V), CUBES @ V)
    np.testing.assert_allclose(MODULE.cubes.hvp("x")(x=X, d_x=V), CUBES @ V)


RECORDS = """
record Net { w: f64[2], b: f64, name: str }
let m = Net(w = [1, 2], b = 3, name = "n")
fn out(m: Net, x: f64[2]) -> f64[2] = m.w * x * m.b
fn loss(m: Net) -> f64 = sum(m.w^2) * m.b + m.b^3
fn parts(m: Net) -> (f64, f64[2], i32) = (m.b^2, m.w * m.b, 3)
fn edge(m: Net) -> f64 = m.b + sqrt(m.w[0])
let zero_net = Net(w = [0, 1], b = 0, name = "")
"""
WANTED = [
    ("jacobian(out)(m, [10, 100])", ([[30, 0], [0, 300]], [10, 200])),
    ("jacfwd(out)(m, [10, 100])", ([[30, 0], [0, 300]], [10, 200])),
    ("jacrev(out)(m, [10, 100])", ([[30, 0], [0, 300]], [10, 200])),
    ("jacobian(out)(m, [10, 100]).b", [10, 200]),
    ("jacobian[m, x](out)(m, [10, 100]).x", [[3, 0], [0, 6]]),
    ("jacobian[x](out)(m, [10, 100])", [[3, 0], [0, 6]]),
    ("jacobian[m.b](out)(m, [10, 100])", [10, 200]),
    ("jacobian(parts)(m)", ([0, 0], 6, [[3, 0], [0, 3]], [1, 2])),
    ("jacrev(parts)(m)", ([0, 0], 6, [[3, 0], [0, 3]], [1, 2])),
    ("hessian(loss)(m)", ([[6, 0], [0, 6]], [2, 4], [2, 4], 18)),
    ("hessian(loss)(m).w.b", [2, 4]),
    ("jacobian(grad(loss))(m).b.w", [2, 4]),
    ("jacobian(|p| p |> |(a, b)| a * b)((2, [3, 4]))", ([3, 4], [[2, 0], [0, 2]])),
    ("hessian(|p| p |> |(a, b)| a^2 * sum(b))((2, [3, 4]))", (14, [4, 4], [4, 4], [[0, 0], [0, 0]])),
    ("jacfwd(edge)(zero_net).b", 1),
    ("jacrev(edge)(zero_net)", ([np.inf, 0], 1)),
]


@pytest.mark.parametrize(
    "engine", [INTERPRETER, pytest.param(Engine(), marks=pytest.mark.slow)], ids=["interpreted", "compiled"]
)
@pytest.mark.parametrize(("ask", "value"), WANTED, ids=[a for a, _ in WANTED])
def test_records_and_tuples(ask: str, value: object, engine: Engine) -> None:
    compare(answer(ask, RECORDS, engine), value, 1e-14)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("fn f(x: f64) -> i32 = 3\nlet j = jacobian(f)(2)", "DL0402"),
        ("fn f(k: i32) -> f64 = 3\nlet j = jacobian(f)(2)", "DL0401"),
        ("fn f(k: i32) -> f64 = 3\nlet j = jacrev(f)(2)", "DL0401"),
    ],
)
def test_refused(source: str, code: str) -> None:
    assert [c for c, _ in codes(f"float f64\n{source}\n")] == [code]
