"""`linalg`: maps against the matrices that they are."""

# ruff: noqa: E501 - a program is a line

from __future__ import annotations

import numpy as np
import pytest

from difflang.driver.engine import Engine
from support.language import answer, codes
from support.values import compare

RNG = np.random.default_rng(3)
HALF = RNG.normal(size=(5, 5))
A = HALF @ HALF.T + 2 * np.eye(5)
WIDE = RNG.normal(size=(7, 3))
B, C = RNG.normal(size=5), RNG.normal(size=7)
GIVEN = f"""import linalg (cg, least_squares, power_iteration)
let a: f64[5, 5] = {A.tolist()}
let wide: f64[7, 3] = {WIDE.tolist()}
let b: f64[5] = {B.tolist()}
let c: f64[7] = {C.tolist()}
"""


def test_conjugate_gradients() -> None:
    """The solution, its derivatives in the map and in the right-hand side, and the tolerance, relative to |b|."""
    f = "fn x(a: f64[5, 5], b: f64[5]) -> f64[5] = cg(linear |v| a @ v, b, tol = 1e-13)\n"
    ask = "(x(a, b), grad[a, b](|a, b| dot(c[..5], x(a, b)))(a, b) |> |g| (g.a, g.b), cg(linear |v| a @ v, 1e6 * b, tol = 1e-3))"
    value, da, db, rough = answer(ask, GIVEN + f)
    solution, adjoint = np.linalg.solve(A, B), np.linalg.solve(A, C[:5])
    compare(value, solution, 1e-11)
    compare(db, adjoint, 1e-11)
    compare(da, -np.outer(adjoint, solution), 1e-10)
    assert np.linalg.norm(A @ rough - 1e6 * B) < 1e-3 * np.linalg.norm(1e6 * B)


def test_single_precision_is_as_good_as_it_gets() -> None:
    found = answer("cg(linear |v| f32(a) @ v, f32(b))", GIVEN, Engine("xla"))
    assert np.asarray(found).dtype == np.float32
    np.testing.assert_allclose(found, np.linalg.solve(A, B), rtol=1e-4)


@pytest.mark.parametrize("map", ["v - 2.0 * v", "[v[0] + 2.0 * v[1], 2.0 * v[0] + v[1]]"])
def test_a_map_that_is_not_positive_ends(map: str) -> None:
    found = codes(f"{GIVEN}print(cg(linear |v| {map}, [1.0, -2.0], tol = 1e-300, most = 50))\n")
    assert [code for code, _ in found] in ([], ["DL0901"])


def test_least_squares_between_two_spaces() -> None:
    """From three numbers, as a tuple, to seven."""
    f = """fn act(a: f64[7, 3], v: (f64, f64[2])) -> f64[7] { let (x, y) = v
  a @ concat([x], y) }
fn fit(a: f64[7, 3], c: f64[7]) -> f64[3] { let (x, y) = least_squares(linear |v: (f64, f64[2])| act(a, v), c, tol = 1e-13)
  concat([x], y) }
"""
    pinv = np.linalg.pinv(WIDE)
    got = answer("(fit(wide, c), jacobian[c](fit)(wide, c))", GIVEN + f)
    compare(got, (pinv @ C, pinv), 1e-9)


def test_power_iteration() -> None:
    """The eigenvalue's derivative is v v', that of its vector follows the other eigenvectors."""
    f = "fn top(a: f64[5, 5]) -> f64 { let (l, v) = power_iteration(linear |v| a @ v, ones(5), steps = 400)\n l }\n"
    values, vectors = np.linalg.eigh(A)
    value, slope = answer("value_and_grad(top)(a)", GIVEN + f)
    assert value == pytest.approx(values[-1], rel=1e-13)
    compare(slope, np.outer(vectors[:, -1], vectors[:, -1]), 1e-9)
