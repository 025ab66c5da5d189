"""Types as programs meet them: literals, conversion, sizes, generics, records, tangents. Source, call, value or code."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import numpy as np
import pytest

from support.language import answer, codes, ran
from support.values import compare

VALUES = [
    # Literals take the type asked of them.
    ("fn f(x: f32) -> f32 = x * 2 + 1.5", "f(f32(2))", np.float32(5.5)),
    ("fn f(x: i64) -> i64 = x + 1", "f(3)", np.int64(4)),
    ("fn f(x: u8) -> u8 = x + 1", "f(3)", np.uint8(4)),
    ("fn f(x: f64) -> f64 = if x > 1 { 2 } else { x }", "f(3)", np.float64(2)),
    ("fn f(x: f64[2]) -> f64[2] = x + [1, 2]", "f([1, 2])", np.array([2.0, 4.0])),
    ("fn f() -> f32[2] = [1, 2]", "f()", np.array([1, 2], np.float32)),
    ("fn f() -> f64 {\n let a: f64 = 3\n a\n}", "f()", np.float64(3)),
    ("fn f() -> f64[2, 2] {\n let a: f64[2, 2] = [[1, 2], [3, 4]]\n a\n}", "f()", np.array([[1.0, 2], [3, 4]])),
    ("fn f() = 1", "f()", np.int32(1)),
    ("fn f() = 1.0", "f()", np.float64(1)),
    ("fn f() = true", "f()", np.bool_(True)),
    ("fn f(x: f16) -> f16 = x + 0.5", "f(f16(1))", np.float16(1.5)),
    ("fn f(x: i32) -> f64 = f64(x) / 2", "f(3)", np.float64(1.5)),
    ("fn f(x: f64) -> i32 = i32(x)", "f(-2.7)", np.int32(-2)),
    ("fn f(x: f64) -> i32 = i32(floor(x))", "f(-2.7)", np.int32(-3)),
    ("fn f(x: bool) -> f64 = f64(x)", "f(true)", np.float64(1)),
    ("fn f(x: f64[n]) -> f32[n] = f32(x)", "f([1.0, 2.0])", np.array([1, 2], np.float32)),
    ("fn f(x: f64) -> f64 = x^2 + x^-1 + x^0.5", "f(4.0)", np.float64(18.25)),
    ("fn f(x: f64) -> f64 = -x^2", "f(3.0)", np.float64(-9)),
    ("fn f(x: i32) -> (i32, i32, i32) = (x // 2, x % 2, x^3)", "f(-3)", (np.int32(-2), np.int32(1), np.int32(-27))),
    ("fn f(x: f64) -> (f64, f64) = (x // 2, x % 2)", "f(-3.5)", (np.float64(-2), np.float64(0.5))),
    ("fn f(x: f64) -> f64 = 2^x^2", "f(3.0)", np.float64(512)),
    # Sizes.
    ("fn f(x: f64[n]) -> i32 = n", "f([1, 2, 3])", np.int32(3)),
    ("fn f(x: f64[n]) -> f64[n + 1] = concat(x, [0])", "f([1, 2])", np.array([1.0, 2, 0])),
    ("fn f(x: f64[n], y: f64[m]) -> f64[n + m] = concat(x, y)", "f([1], [2])", np.array([1.0, 2])),
    ("fn f(x: f64[n, m]) -> f64[n * m] = reshape(x, [n * m])", "f([[1, 2]])", np.array([1.0, 2])),
    ("fn f(x: f64[2 * n]) -> f64[n] = x[..n] + x[n..]", "f([1, 2, 3, 4])", np.array([4.0, 6])),
    ("fn f(x: f64[n]) -> f64[n // 2] = x[..n // 2]", "f([1, 2, 3])", np.array([1.0])),
    ("fn f(x: f64[n]) -> f64[n - 1] = x[1..] - x[..n - 1]", "f([1, 2, 4])", np.array([1.0, 2])),
    ("fn f(x: f64[n + 1]) -> f64[n] = x[1..]", "f([1, 2, 4])", np.array([2.0, 4])),
    ("fn f(x: f64[n, n]) -> f64 = sum(x)", "f([[1, 2], [3, 4]])", np.float64(10)),
    ("fn f(x: f64[n], y: f64[n^2]) -> f64 = sum(x) + sum(y)", "f([1, 2], [1, 1, 1, 1])", np.float64(7)),
    ("fn f(k: dim) -> f64[k, k] = eye(k)", "f(2)", np.eye(2)),
    ("fn f(k: dim) -> f64[2 * k + 1] = fill(2 * k + 1, 3)", "f(1)", np.full(3, 3.0)),
    ("fn f(x: f64[n], k: dim) -> f64[n // k] = [for i in 0..n // k => x[k * i]]", "f([1, 2, 3, 4], 2)", np.array([1.0, 3])),
    ("let k = 2\nfn f(n: dim) -> f64[n] = zeros(n)", "f(k + 1)", np.zeros(3)),
    ("fn f(x: f64[..s]) -> f64[..s] = 2 * x", "(f(1), f([1, 2]), f([[1], [2]]))", (np.float64(2), np.array([2.0, 4]), np.array([[2.0], [4]]))),
    ("fn f(x: f64[..s], y: f64[..s]) -> f64 = sum(x * y)", "f([1, 2], [3, 4])", np.float64(11)),
    ("fn f(x: f64[n, ..s]) -> f64[..s] = sum(x, axis = 0)", "f([[1, 2], [3, 4]])", np.array([4.0, 6])),
    ("fn f(x: f64[n]) -> f64[n] = relu(x)", "f(zeros(0))", np.zeros(0)),
    ("fn f(x: f64[n]) -> f64 = sum(x)", "f(zeros(0))", np.float64(0)),
    ("fn f(x: f64[n, m]) -> f64[m] = sum(x, axis = 0)", "f(zeros(0, 2))", np.zeros(2)),
    ("fn f(x: f64[n, m], v: f64[m]) -> f64[n] = x @ v", "f(zeros(2, 0), zeros(0))", np.zeros(2)),
    ("fn f(x: f64[n]) -> f64[n] where n > 1 = x", "f([1, 2])", np.array([1.0, 2])),
    ("fn f(x: f64[n, 3]) -> f64[n, 3] = x + [1, 2, 3]", "f([[0, 0, 0]])", np.array([[1.0, 2, 3]])),
    ("fn f(x: f64[n, 1], y: f64[m]) -> f64[n, m] = x * y", "f([[1], [2]], [3, 4, 5])", np.outer([1, 2], [3, 4, 5.0])),
    # Generics.
    ("fn f[T: float](x: T) -> T = x * x + 1", "(f(f32(2)), f(2.0))", (np.float32(5), np.float64(5))),
    ("fn f[T: num](x: T, y: T) -> T = x * y", "(f(2, 3), f(2.0, 3.0))", (np.int32(6), np.float64(6))),
    ("fn f[T: ord](x: T, y: T) -> T = if x < y { x } else { y }", "(f(2, 3), f(2.5, 1.5))", (np.int32(2), np.float64(1.5))),
    ("fn f[T: float](x: T[n]) -> T = mean(x) + T(1) / 2", "f([1.0, 2.0])", np.float64(2)),
    ("fn g[T: float](x: T[n]) -> T = sum(x)\nfn f[T: float](x: T[n, m]) -> T[n] = [for i => g(x[i])]", "f([[1.0, 2.0]])", np.array([3.0])),
    # Records and tuples.
    ("record P[d] { x: f64[d], tag: str, k: i32 }\nfn f(p: P[d]) -> f64[d] = p.x * f64(p.k)", 'f(P(x = [1, 2], tag = "t", k = 3))', np.array([3.0, 6])),
    ("record P[T: float] { x: T }\nfn f[T: float](p: P[T]) -> T = p.x", "f(P(x = f32(2)))", np.float32(2)),
    ("record P { x: f64 }\nfn f(p: P, q: P) -> f64 = p.x - q.x", "f(P(3), P(x = 1))", np.float64(2)),
    ('record P { x: f64, how: str }\nfn f(p: P) -> f64 = if p.how == "neg" { -p.x } else { p.x }', '(f(P(1, "neg")), f(P(1, "pos")))',
     (np.float64(-1), np.float64(1))),
    ("fn f(p: (f64, (i32, f64[2]))) -> f64 {\n let (a, (k, v)) = p\n a + f64(k) + sum(v)\n}", "f((1, (2, [3, 4])))", np.float64(10)),
    ("fn f() = ()", "f()", ()),
    # Tangents: D of a type, a value moved by its change.
    ("record P { x: f64, v: f64[2], k: i32, tag: str }\nfn f(p: P) -> P = p + 2 * D(p)".replace("2 * D(p)", "2 * grad(|q: P| q.x^2 + sum(q.v))(p)"),
     'f(P(x = 3, v = [1, 2], k = 7, tag = "t"))', (np.float64(15), np.array([3.0, 4]), np.int32(7))),
    ("record P { x: f64, k: i32 }\nfn f(p: P, d: D(P)) -> P = p - 0.5 * d", "f(P(x = 3, k = 7), zero(P(x = 0, k = 0)))", (np.float64(3), np.int32(7))),
    ("record P { x: f64, k: i32 }\nfn g(p: P) -> D(P) = grad(|q: P| q.x^2)(p)\nfn f(p: P) -> f64 = g(p).x", "f(P(x = 3, k = 7))", np.float64(6)),
    ("record P { x: f64, v: f64[2] }\nfn f(p: P) -> f64 {\n let d = grad(|q: P| q.x^2 + sum(q.v^2))(p)\n dot(d, d) + norm(d) + norm(-d) - norm(2 * d) + dot(d - d, d)\n}",
     "f(P(x = 3, v = [1, 2]))", np.float64(56)),
    ("fn f(x: f64) -> (f64, i32) {\n let p = (x, i32(3))\n let d = grad(|q| q |> |(a, b)| a * a * f64(b))(p)\n p + d\n}", "f(2)", (np.float64(14), np.int32(3))),
    ("record P { x: f64, k: i32 }\nfn f(p: P) -> P {\n var q = p\n for _ in 0..3 { q += -0.25 * grad(|r: P| r.x^2)(q) }\n q\n}", "f(P(x = 8, k = 1))",
     (np.float64(1), np.int32(1))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("declarations", "expression", "value"), VALUES, ids=[f"{d[:40]} {e[:20]}".replace("\n", " ") for d, e, _ in VALUES]
)
def test_value(declarations: str, expression: str, value: object) -> None:
    compare(answer(expression, declarations), value)


WRONG = [
    ("fn f(x: f32, y: f64) -> f64 = x + y", "DL0311"),
    ("fn f(x: f64, i: i32) -> f64 = x * i", "DL0311"),
    ("fn f(i: i32) -> i32 = i + 0.5", "DL0311"),
    ("fn f(x: f64) -> f32 = x", "DL0304"),
    ("fn f(x: f64) -> i32 = x", "DL0304"),
    ("fn f(x: f64[n]) -> f64[m] = x", "DL0203"),
    ("fn f(x: f64[n]) -> (f64, f64[2 * m]) = (1.0, x)", "DL0203"),
    ("fn f(x: f64[n], y: f64[m]) -> f64[n] = x + y", "DL0310"),
    ("fn f(x: f64[n], y: f64[n, 2]) -> f64[n, 2] = x + y", "DL0310"),
    ("fn f(x: f64[n]) -> f64[n + 1] = x", "DL0304"),
    ("fn f(x: f64[n, k], y: f64[m, k]) -> f64[n, m] = x @ y", "DL0312"),
    ("fn f(x: f64[n]) -> f64 = x", "DL0304"),
    ("fn f(x: f64) -> f64 { if x { 1.0 } else { 2.0 } }", "DL0313"),
    ("fn f(x: f64) -> f64 { if x > 0.0 { 1.0 } else { true } }", "DL0327"),
    ("fn f(x: f64) -> f64 {\n var y = x\n y = [x]\n y\n}", "DL0304"),
    ("fn f(x: f64) -> f64 {\n let y = x\n y = 1.0\n y\n}", "DL0208"),
    ("fn f(x: f64) -> f64 = g(x)", "DL0201"),
    ("fn f(x: f63) -> f64 = 1.0", "DL0202"),
    ("fn f(x: f64) -> f64 = x.y", "DL0206"),
    ("record P { x: f64 }\nfn f(p: P) -> f64 = p.y", "DL0206"),
    ("fn f(e: f64, m: f64) -> f64 = e * m\nprint(grad[e, m](f)(1.0, 2.0).x)", "DL0206"),
    ("record P { x: f64 }\nfn f(p: P) -> P = p + p", "DL0314"),
    ("fn f(x: f64, y: f64) -> f64 = x\nfn g(x: f64) -> f64 = f(x)", "DL0319"),
    ("fn f(x: f64[n], y: f64[n]) -> f64 = 0.0\nfn g(x: f64[n]) -> f64 = f(x, x[1..])", "DL0304"),
    ("fn f(x: f64[n]) -> f64 where n > 2 = 0.0\nlet r = f([1.0, 2.0])", "DL0315"),
    ("fn f(k: dim) -> f64[k] = zeros(k)\nfn g(i: i32) -> f64 = sum(f(i))", "DL0305"),
    ("fn f(b: bool) -> bool = b + b", "DL0311"),
    ("fn f(x: f64) -> f64 {\n for i in 0..3 { x = 1.0 }\n x\n}", "DL0208"),
    ("fn f(x: f64[n]) -> f64 = reshape(x, [2 * n])[0]", "DL0336"),
    ("fn f(x: f64[n], y: f64[m]) -> f64 = sum(for i => x[i] * y[i])", "DL0324"),
    ("fn f(x: f64) -> f64 {\n x + 1.0\n x\n}", "DL0323"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "code"), WRONG, ids=[s[:60].replace("\n", " ") for s, _ in WRONG])
def test_mistake(source: str, code: str) -> None:
    """Found before anything runs, and reported once."""
    assert [c for c, _ in codes(f"float f64\n{source}\n")] == [code]


def test_the_default_float_is_f32_and_a_file_may_change_it() -> None:
    for head, dtype in (("", np.float32), ("float f64\n", np.float64), ("float f32\n", np.float32)):
        values, _ = ran(f"{head}let a = 1.5\nlet b = zeros(2)\nlet c = linspace(0, 1, 3)\nlet d = [1, 2.5]\n")
        assert [np.asarray(values[n].leaves[0]).dtype for n in "abcd"] == [dtype] * 4  # type: ignore[index]


WHOLE = {
    "1 / 3": 1 / 3, "-1 / 3": -1 / 3, "sqrt(2)": np.sqrt(2), "2 ^ 0.5": np.sqrt(2), "[1, 2] / 3": np.array([1 / 3, 2 / 3]),
    "std([1, 2, 4])": np.std([1, 2, 4]), "mean([1, 2, 4])": 7 / 3, "fill(2, 1) / 3": np.full(2, 1 / 3),
    "solve([[3]], [1])": np.array([1 / 3]), "(|x| x / 3)(1)": 1 / 3, "grad(|x| x * x / 3)(1)": 2 / 3,
    "(if true { 1 } else { 2 }) / 3": 1 / 3, "third(1)": 1 / 3, "reduce(|a, b| a + b / 3, 0, [1])": 1 / 3,
    "fft([1])": np.array([1 + 0j]), "1 / (1 + 1j)": 0.5 - 0.5j,
}  # fmt: skip


@pytest.mark.parametrize("text", WHOLE)
def test_the_default_float_is_that_of_whole_numbers_in_float_places(text: str) -> None:
    want = np.asarray(WHOLE[text])
    got = answer(text, "fn third[T: float](x: T) -> T = x / 3")
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-15)
    short = ran(f"fn third[T: float](x: T) -> T = x / 3\nlet y = {text}\n")[0]["y"].leaves
    assert short is not None and np.asarray(short[0]).dtype == (np.complex64 if want.dtype.kind == "c" else np.float32)


@pytest.mark.parametrize("value", ['"text"', "(1.0, 2.0)", "sin"])
def test_what_is_no_array_does_not_fit_one(value: str) -> None:
    """It is said of the argument, not of the size that it does not tell."""
    assert codes(f"fn f(x: f32[n]) -> f32 = sum(x)\nprint(f({value}))\n") == [("DL0304", 2)]
