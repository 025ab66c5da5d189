"""`roll split repeat tile diag tril triu gather` give what NumPy's functions give, and their derivatives move alike."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from support.language import answer, codes
from support.values import compare

A = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
V = np.array([1.0, 2.0, 3.0, 4.0])
B = np.arange(8.0).reshape(2, 2, 2)
GIVEN = """let a = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
let v = [1.0, 2.0, 3.0, 4.0]
let b = reshape(f64(iota(8)), [2, 2, 2])
let none: f64[0] = zeros(0)
"""
VALUES = [
    ("roll(v, 1)", np.roll(V, 1)), ("roll(v, -5)", np.roll(V, -5)), ("roll(v, 0)", V), ("roll(a, 2)", np.roll(A, 2)),
    ("roll(a, 1, axis = 0)", np.roll(A, 1, 0)), ("roll(a, 7, axis = -1)", np.roll(A, 7, -1)), ("roll(none, 3)", np.zeros(0)),
    ("roll(v > 2.0, 1)", np.roll(V > 2, 1)), ("split(v, 2)", tuple(np.split(V, 2))), ("split(v, [1, 3])", tuple(np.split(V, [1, 3]))),
    ("split(a, 3, axis = 1)", tuple(np.split(A, 3, 1))), ("split(a, [0, 2], axis = 1)", tuple(np.split(A, [0, 2], 1))), ("split(a, 1)", A),
    ("repeat(v, 2)", np.repeat(V, 2)), ("repeat(a, 2)", np.repeat(A, 2)), ("repeat(a, 3, axis = 1)", np.repeat(A, 3, 1)),
    ("repeat(a, 2, axis = 0)", np.repeat(A, 2, 0)), ("repeat(2.0, 3)", np.repeat(2.0, 3)), ("repeat(v, 0)", np.zeros(0)),
    ("tile(v, 2)", np.tile(V, 2)), ("tile(a, 2)", np.tile(A, 2)), ("tile(a, [2, 1])", np.tile(A, [2, 1])), ("tile(v, [2, 3])", np.tile(V, [2, 3])),
    ("tile(b, [2, 1])", np.tile(B, [2, 1])), ("tile(1.5, [2, 2])", np.tile(1.5, [2, 2])),
    ("diag(v)", np.diag(V)), ("diag(v, k = 1)", np.diag(V, 1)), ("diag(v, k = -2)", np.diag(V, -2)), ("diag(a)", np.diag(A)),
    ("diag(a, k = 1)", np.diag(A, 1)), ("diag(a, k = -1)", np.diag(A, -1)), ("diag(a, k = 2)", np.diag(A, 2)), ("diag(a, k = 5)", np.zeros(0)),
    ("diag(v > 2.0)", np.diag(V > 2)), ("diag([1, 2])", np.diag([1, 2]).astype(np.int32)),
    ("tril(a)", np.tril(A)), ("tril(a, k = 1)", np.tril(A, 1)), ("tril(b)", np.tril(B)), ("triu(a)", np.triu(A)), ("triu(a, k = -1)", np.triu(A, -1)),
    ("triu(b, 1)", np.triu(B, 1)), ("tril([[inf, inf], [1.0, 2.0]])", np.array([[np.inf, 0], [1, 2]])),
    ("gather(v, [3, 0, 3])", V[[3, 0, 3]]), ("gather(a, [2, 0], axis = 1)", A[:, [2, 0]]), ("gather(a, 1)", A[1]), ("gather(v, i64([1, 1]))", V[[1, 1]]),
    ("gather(a, [[0, 1], [2, 2]], axis = 1)", np.take(A, [[0, 1], [2, 2]], 1)), ("gather(b, [1], axis = 1)", B[:, [1]]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "want"), VALUES, ids=[text for text, _ in VALUES])
def test_as_in_numpy(text: str, want: Any) -> None:
    compare(answer(text, GIVEN), want)


MOVED = {
    "roll": ("roll(x, 2)", V), "roll by what only the run knows": ("roll(x, i)", V), "roll along an axis": ("roll(x, i, axis = 1)", A),
    "split": ("{ let (p, q) = split(x, [1])\n concat(q * q[0], p) }", V), "repeat": ("repeat(x, 2, axis = 1)", A), "tile": ("tile(x, [2, 2])", A),
    "a diagonal": ("diag(x, k = 1)", A), "a diagonal matrix": ("diag(x)", V), "tril": ("tril(x)", A), "triu": ("triu(x, 1)", A),
    "gather": ("gather(x, [1, 1, 0])", V), "gather along an axis": ("gather(x, [i, 0, i], axis = 1)", A),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_derivatives_go_the_same_way(name: str) -> None:
    """Both modes give the matrix whose columns are what unit vectors become; the function is squared for the second."""
    body, x = MOVED[name]
    sizes = ", ".join("nm"[: x.ndim])
    text = f"""float f64
fn g(x: f64[{sizes}], i: i32) = {body}
fn f(x: f64[{sizes}], i: i32) = reshape(g(x, i), [-1])^3
fn energy(x: f64[{sizes}], i: i32) = sum(f(x, i))
"""
    module: Any = difflang.loads(text, name="moved")
    h = 1e-5
    units = np.eye(x.size).reshape(-1, *x.shape)
    want = np.stack(
        [(module.f.interpret(x + h * u, 1) - module.f.interpret(x - h * u, 1)) / (2 * h) for u in units], -1
    )
    forward, backward = (np.asarray(jacobian.interpret(x, 1)) for jacobian in (module.f.jacfwd(), module.f.jacrev()))
    np.testing.assert_allclose(forward.reshape(want.shape), want, rtol=1e-7, atol=1e-6)
    np.testing.assert_array_equal(forward, backward)
    assert module.energy.check_grad(x, 1, order=2, directions=1, compiled=False).right


def test_compiled_they_are_the_same() -> None:
    """All in one program, for a vector and a matrix that are told apart by their number of axes."""
    parts = [
        (f"fn f{k}(x: f64[{'n' if x.ndim == 1 else 'n, m'}], i: i32) = {body}\n", x)
        for k, (body, x) in enumerate(MOVED.values())
    ]
    asked = ", ".join(f"jacrev(f{k})({'v' if x.ndim == 1 else 'a'}, i)" for k, (_, x) in enumerate(parts))
    source = (
        "float f64\n" + "".join(text for text, _ in parts) + f"fn all(v: f64[4], a: f64[2, 3], i: i32) = ({asked})\n"
    )
    f: Any = difflang.loads(source, name="moved").all
    for compiled, interpreted in zip(f(V, A, 1), f.interpret(V, A, 1), strict=True):
        np.testing.assert_array_equal(compiled, interpreted)


@pytest.mark.parametrize(("source", "code"), [
    ("print(split([1, 2, 3], 2))", "DL0310"), ("print(split([1, 2, 3], 0))", "DL0310"), ("print(split([1, 2, 3], [2, 1]))", "DL0326"),
    ("print(split([1, 2, 3], [4]))", "DL0326"), ("print(diag(2.0))", "DL0313"), ("print(tril([1.0]))", "DL0313"), ("print(roll([1.0], 1, axis = 1))", "DL0335"),
    ("print(roll(eye(2), 1, axis = (0, 1)))", "DL0335"), ("print(gather([1.0], [1]))", "DL0902"), ("print(gather([1.0], [0.5]))", "DL0313"),
    ("print(repeat([1.0], -2))", "DL0303"), ("print(gather(2.0, 0))", "DL0335"), ("print(roll([1.0, 2.0], [1, 2]))", "DL0313"),
    ("print(repeat([1.0], -1))", "DL0303"), ("print(repeat([1.0], [1, 2]))", "DL0313"), ("print(tile([1.0], -1))", "DL0303"),
])  # fmt: skip
def test_refused(source: str, code: str) -> None:
    assert [c for c, _ in codes(source)] == [code]


def test_sizes_are_known_where_a_definition_is_checked() -> None:
    source = """fn a(x: f32[n]) -> f32[2 * n] = repeat(x, 2)
fn b(x: f32[n, m]) -> f32[3 * n, m] = tile(x, [3, 1])
fn c(x: f32[n], k: i32) -> f32[n] = roll(x, k)
fn d(x: f32[n]) -> f32[n, n] = diag(x) + tril(diag(x))
fn e(x: f32[n, n]) -> f32[n] = diag(x)
fn g(x: f32[2 * n]) -> (f32[n], f32[n]) = split(x, 2)
fn h(x: f32[n, m], i: i32[k]) -> f32[n, k] = gather(x, i, axis = 1)
"""
    assert not codes(source)
    assert [c for c, _ in codes("fn a(x: f32[n]) -> f32[n] = repeat(x, 2)")] == ["DL0304"]
