"""`sort`, `argsort` and `top_k`: against NumPy and JAX's derivatives; ties, NaN, axes, empty ones."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import difflang
from support.against_jax import check, derivatives
from support.language import answer, codes
from support.values import compare

V = np.array([0.3, -0.7, 1.6, 0.05, 1.6])
A = np.array([[0.3, -0.7, 1.6], [0.05, 2.0, -1.1]])
N = np.array([2.0, np.nan, -np.inf, 0.0, 2.0, -0.0, np.nan, np.inf])
GIVEN = """let v = [0.3, -0.7, 1.6, 0.05, 1.6]
let a = [[0.3, -0.7, 1.6], [0.05, 2.0, -1.1]]
let m = [2.0, nan, -inf, 0.0, 2.0, -0.0, nan, inf]
let e0 = zeros(0)
let e03 = zeros(0, 3)
"""
NOTHING, NO_PLACES = np.zeros(0), np.zeros(0, np.int32)


def places(x: Any, axis: int = -1) -> Any:
    return np.argsort(x, axis=axis, kind="stable").astype(np.int32)


VALUES = [
    ("sort(v)", np.sort(V)),
    ("sort(v, descending = true)", np.sort(V)[::-1]),
    ("sort(a, axis = 0)", np.sort(A, 0)),
    ("sort(a, axis = -1, descending = true)", np.sort(A, 1)[:, ::-1]),
    ("sort(m)", np.sort(N)),
    ("sort(m, descending = true)", np.sort(N)[::-1]),
    ("sort(e0)", NOTHING),
    ("sort(e03, axis = 0)", np.zeros((0, 3))),
    ("sort(e03, axis = 1)", np.zeros((0, 3))),
    ("sort([3, -1, 2])", np.array([-1, 2, 3], np.int32)),
    ("sort([2.5])", np.array([2.5])),
    ("argsort(v)", places(V)),
    ("argsort(m)", places(N)),
    ("argsort(v, descending = true)", np.array([2, 4, 0, 3, 1], np.int32)),
    ("argsort(m, descending = true)", np.array([1, 6, 7, 0, 4, 3, 5, 2], np.int32)),
    ("argsort(a, axis = 0)", places(A, 0)),
    ("argsort([0, 0, 0], descending = true)", np.array([0, 1, 2], np.int32)),
    ("argsort(e0)", NO_PLACES),
    ("v[argsort(v)]", np.sort(V)),
    ("top_k(v, 3)", (np.array([1.6, 1.6, 0.3]), np.array([2, 4, 0], np.int32))),
    ("top_k(a, 1, axis = 0)", (np.array([[0.3, 2.0, 1.6]]), np.array([[0, 1, 0]], np.int32))),
    ("top_k(a, 2, axis = 1)", (np.sort(A, 1)[:, :0:-1], np.array([[2, 0], [1, 0]], np.int32))),
    ("top_k(v, 0)", (NOTHING, NO_PLACES)),
    ("top_k(e0, 0)", (NOTHING, NO_PLACES)),
    ("top_k([4, 9, 9], 2)", (np.array([9, 9], np.int32), np.array([1, 2], np.int32))),
]


@pytest.mark.parametrize(("text", "want"), VALUES, ids=[t for t, _ in VALUES])
def test_value(text: str, want: Any) -> None:
    compare(answer(text, GIVEN), want, 0.0)


JAX = [
    ("sort(x)", jnp.sort, np.array([0.3, -0.7, 1.6, 0.05])),
    ("sort(x, axis = 0, descending = true)", lambda x: jnp.sort(x, 0, descending=True), A),
    ("sort(x, axis = 1)", lambda x: jnp.sort(x, 1), A),
    ("top_k(x, 2, axis = 1)[0]", lambda x: jnp.sort(x, 1)[:, :0:-1], A),
    ("x[argsort(x)]^2", lambda x: jnp.sort(x) ** 2, np.array([0.3, -0.7, 1.6, 0.05])),
]


@pytest.mark.parametrize(("body", "twin", "x"), JAX, ids=[b for b, _, _ in JAX])
def test_derivatives(body: str, twin: Any, x: Any) -> None:
    if "top_k" in body:
        body = "{ let (top, _) = top_k(x, 2, axis = 1)\n top }"
    check(body, twin, x)


@pytest.mark.parametrize("descending", [False, True])
def test_the_derivative_with_ties_is_a_stable_permutation(descending: bool) -> None:
    module = derivatives(f"sort(x, descending = {str(descending).lower()})", (5,))
    order = [1, 3, 0, 2, 4] if not descending else [2, 4, 0, 3, 1]
    for found in (module.forwards(V), module.backwards(V), module.backwards.interpret(V)):
        np.testing.assert_array_equal(found, np.eye(5)[order])


def test_positions_have_no_derivative() -> None:
    module: Any = difflang.loads("fn f(x: f64[n]) -> i32[n] = argsort(x)\n", name="positions")
    with pytest.raises(difflang.DifferentiationError, match="DL040"):
        module.f.grad("x")(V)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64", "i8", "u32", "i64"])
def test_every_element_type(dtype: str) -> None:
    x = np.array([3, 1, 2, 1, 0])
    found = answer(f"f64(sort({dtype}([3, 1, 2, 1, 0])))")
    compare(found, np.sort(x).astype(float))


def test_lane_by_lane_and_compiled() -> None:
    module: Any = difflang.loads(
        "fn f(x: f64[n, m]) -> f64[n, m] = [for i => sort(x[i], descending = true)]\n", name="lanes"
    )
    xs = np.random.default_rng(5).integers(-3, 3, (4, 33)).astype(float)
    np.testing.assert_array_equal(module.f(xs), np.sort(xs, 1)[:, ::-1])
    assert module.f.ir("optimized", xs).count("= argsort ") == 1


def test_positions_that_sort_are_in_range() -> None:
    """They need no check as they index what was sorted."""
    module: Any = difflang.loads("fn f(x: f64[n], y: f64[n]) -> f64[n] = y[argsort(x)]\n", name="proved")
    assert "reduce_any" not in module.f.ir("ir", V, V)


WRONG = [
    ("sort(a)", "DL0335"),
    ("sort(1.0)", "DL0335"),
    ("sort(v, axis = 1)", "DL0335"),
    ("sort([true])", "DL0311"),
    ("sort(v, descending = 1)", "DL0305"),
    ("top_k(v, 6)", "DL0303"),
    ("top_k(v, -1)", "DL0303"),
    ("top_k(v)", "DL0319"),
]


@pytest.mark.parametrize(("text", "code"), WRONG, ids=[t for t, _ in WRONG])
def test_what_is_refused(text: str, code: str) -> None:
    assert codes(f"{GIVEN}let x = {text}\n") == [(code, 6)]
