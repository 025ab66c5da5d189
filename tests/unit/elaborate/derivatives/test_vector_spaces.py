"""Functions of any vector space, `[V: vec]`, and of whatever has changes: each space against arrays that hold its numbers."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import numpy as np
import pytest

from support.language import answer, codes
from support.programs import programs
from support.values import compare

CG = programs()["chapter7/conjugate_gradients.dfl"]
RECORDS = """
record Inner { a: f64, n: i32, pair: (f64, f64[2]) }
record Outer { x: f64[2], inner: Inner, name: str }
fn outer(x: f64[2], a: f64, c: f64, d: f64[2]) -> Outer = Outer(x = x, inner = Inner(a = a, n = 3, pair = (c, d)), name = "o")
fn d_outer(x: f64[2], a: f64, c: f64, d: f64[2]) -> D(Outer) = zero(outer(x, a, c, d)) with (x = x, inner = zero(outer(x, a, c, d)).inner with (a = a, pair = (c, d)))
"""
# Six numbers in each space: how they are put in, and taken out again.
SPACES = {
    "an array": ("f64[6]", "x", "v"),
    "a matrix": ("f64[2, 3]", "reshape(x, [2, 3])", "reshape(v, [-1])"),
    "a tuple": ("(f64[2], f64, f64[3])", "(x[..2], x[2], x[3..])", "{ let (a, b, c) = v\n concat(a, [b], c) }"),
    "a nested tuple": ("((f64[2], f64), f64[1, 3])", "((x[..2], x[2]), [x[3..]])", "{ let ((a, b), c) = v\n concat(a, [b], c[0]) }"),
    "a tangent of a record": ("D(Outer)", "d_outer(x[..2], x[2], x[3], x[4..])", "{ let (c, d) = v.inner.pair\n concat(v.x, [v.inner.a, c], d) }"),
}  # fmt: skip
M = np.diag([2.0, 3, 4, 5, 6, 7]) + 0.5
B = np.array([1.0, -2, 0.5, 3, 0.25, -1])


def declared(space: str) -> str:
    """The space, `into` it and `out` of it, and the map with matrix c M on it."""
    type, into, out = SPACES[space]
    return f"""{CG}{RECORDS}
fn into(x: f64[6]) -> {type} = {into}
fn out(v: {type}) -> f64[6] = {out}
let m: f64[6, 6] = {M.tolist()}
let b: f64[6] = {B.tolist()}
fn act(c: f64, v: {type}) -> {type} = into(c * (m @ out(v)))
"""


@pytest.mark.parametrize("space", SPACES)
def test_the_operations_of_a_vector_space(space: str) -> None:
    twice = "fn twice[V: vec](v: V, w: V) -> (V, f64, f64) = (2 * v - w / 4 + zero(v), dot(v, w), norm(v))\n"
    got = answer("twice(into(b), into(b * b)) |> |(v, d, n)| (out(v), d, n)", declared(space) + twice)
    compare(got, (2 * B - B**2 / 4, np.sum(B**3), np.linalg.norm(B)), 1e-14)


@pytest.mark.parametrize("space", SPACES)
def test_conjugate_gradients_in_any_space(space: str) -> None:
    """x = (c M)⁻¹ b, and its first two derivatives in c, by the solver's rule."""
    f = "fn solved(c: f64) -> f64[6] = out(cg(linear |v| act(c, v), into(b), 1e-12))\n"
    ask = "(solved(2.0), jvp(solved)(2.0, 1.0) |> |(_, dx)| dx, grad(|c| dot(b, solved(c)))(2.0), hvp(|c| dot(b, solved(c)))(2.0, 1.0))"
    x = np.linalg.solve(M, B)
    compare(answer(ask, declared(space) + f), (x / 2, -x / 4, -B @ x / 4, B @ x / 4), 1e-10)


@pytest.mark.parametrize("space", SPACES)
def test_a_method_of_runge_and_kutta_in_any_space(space: str) -> None:
    step = (
        "fn step[V: vec](f: (V) -> V, y: V, h: f64) -> V {\n let k = f(y)\n let l = f(y + h / 2 * k)\n y + h * l\n}\n"
    )
    ask = "out(step(|v| act(1.0, v), into(b), 0.1))"
    compare(answer(ask, declared(space) + step), B + 0.1 * M @ (B + 0.05 * M @ B), 1e-14)


@pytest.mark.parametrize("space", SPACES)
def test_elementwise_functions_of_any_vector(space: str) -> None:
    """What an optimizer needs of its moments."""
    moved = "fn moved[V: vec](g: V) -> V = g / (sqrt(0.1 * g * g) + 1e-3) + max(abs(g), 0.5)\n"
    expected = B / (np.sqrt(0.1 * B * B) + 1e-3) + np.maximum(np.abs(B), 0.5)
    compare(answer("out(moved(into(b)))", declared(space) + moved), expected, 1e-14)


def test_other_element_types_and_shapes() -> None:
    f = "fn f[V: vec](v: V) -> V = 2 * v + zero(v)\nfn g[T: float](v: T[..s], k: T) -> T[..s] = f(k * v)\n"
    found = answer("(f(f32([1.0, 2.0])), f(f16(3.0)), f(1.0 + 2j), f(zeros(0)), g(f32([[1.0]]), 2.0), g(4.0, 0.5))", f)
    assert [np.asarray(x).tolist() for x in found] == [[2, 4], 6, 2 + 4j, [], [[4]], 4]
    assert [np.asarray(x).dtype.name for x in found[:3]] == ["float32", "float16", "complex128"]
    assert np.asarray(found[4]).dtype == np.float32


@pytest.mark.parametrize(
    "value",
    ["i32(3)", "[true]", '"text"', "|x| x", "(1.0, i32(2))", "Inner(a = 1.0, n = 2, pair = (1.0, [1.0, 2.0]))", "0..3"],
)
def test_what_is_no_vector(value: str) -> None:
    assert codes(f"float f64\n{RECORDS}fn f[V: vec](v: V) -> V = v\nprint(f({value}))\n") == [("DL0304", 8)]


def test_a_record_of_any_vector() -> None:
    """Whole types in the brackets of a record, told by its fields and written out."""
    source = """
record Pair[V: vec, A] { v: V, w: V, rest: A }
record P { x: f64[2], n: i32 }
fn both[V: vec, A](p: Pair[V, A]) -> V = p.v + p.w
fn flipped[P](p: P, q: Pair[D(P), i32]) -> Pair[D(P), i32] = Pair(v = q.w, w = q.v, rest = q.rest)
fn written(p: Pair[f64[2], (f64, bool)]) -> f64 = sum(both(p))
let p = P(x = [1.0, 2.0], n = 3)
let q = flipped(p, Pair(v = zero(p), w = zero(p) with (x = [5.0, 6.0]), rest = 4))
"""
    ask = "(both(q).x, q.v.x, both(Pair(v = 1.0, w = 2.0, rest = true)), written(Pair(v = [1.0, 2.0], w = [3.0, 4.0], rest = (1.0, true))))"
    compare(answer(ask, source), (np.array([5.0, 6]), np.array([5.0, 6]), 3.0, 10.0), 0)
    wrong = (
        "float f64\n"
        + source
        + "print(both(Pair(v = 1.0, w = [1.0], rest = 1)))\nprint(flipped(p, Pair(v = 1.0, w = 2.0, rest = 1)))\n"
    )
    assert [c for c, _ in codes(wrong)] == ["DL0304", "DL0304"]


def test_a_bound_that_is_not_there() -> None:
    assert codes("fn f[V: vector](v: V) -> V = v\n") == [("DL0202", 1)]


def test_newtons_method_with_conjugate_gradients() -> None:
    """The program of the language's description: the minimum of a function that is not quadratic, by Hessian products."""
    f = "fn f(x: f64[n]) -> f64 = sum(exp(x) - 2 * x) + 0.5 * sum(x)^2\n"
    x = answer("newton_cg(f, [1.0, 0.0, -1.0])", CG + f)
    np.testing.assert_allclose(np.exp(x) - 2 + np.sum(x), np.zeros(3), atol=1e-9)


@pytest.mark.parametrize("parameters", ["p: P, d: D(P)", "d: D(P), p: P"])
def test_whatever_has_changes_is_moved(parameters: str) -> None:
    """An enum of a known variant or one that the run chooses too, the change before its value or after it."""
    order = ("p", "d") if parameters.startswith("p") else ("d", "p")
    source = f"""
enum Shape {{ Circle(r: f64), Box(w: f64, h: f64) }}
record Named {{ x: f64, n: i32 }}
fn area(s: Shape) -> f64 = match s {{ Circle(r) => r^2, Box(w, h) => w * h }}
fn made(big: bool, x: f64) -> Shape = if big {{ Box(x, 2.0 * x) }} else {{ Circle(x) }}
fn moved[P]({parameters}) -> P = p + 0.5 * d
fn at(p: Shape) -> f64 {{ let d = grad(area)(p)
  area(moved({", ".join(order)})) }}
fn named(p: Named) -> f64 {{ let d = grad(|q| q.x^2)(p)
  moved({", ".join(order)}).x }}
"""
    ask = "(at(Circle(3.0)), at(made(false, 3.0)), at(made(true, 3.0)), named(Named(x = 1.0, n = 2)))"
    compare(answer(ask, source), (36.0, 36.0, 6.0 * 7.5, 2.0), 0)


def test_a_change_alone_does_not_tell_its_value() -> None:
    source = f"{RECORDS}fn f[P](d: D(P)) -> f64 = norm(d)\n"
    assert answer("f([3.0, 4.0])", source) == 5.0
    ask = "print(f(zero(outer([1.0, 2.0], 1.0, 1.0, [1.0, 2.0]))))\n"
    assert [c for c, _ in codes(f"float f64\n{source}{ask}")] == ["DL0204"]
