"""Linear functions: the maps of `linearize` and `vjp`, linear lambdas, their transposes, in every nesting."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import difflang
from difflang.execution.engine import Engine
from support.language import INTERPRETER, answer, codes
from support.solvers import CG
from support.values import compare

S, C = math.sin, math.cos
A = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
MATRIX = "let a: f64[3, 2] = [[1, 2], [3, 4], [5, 7]]\n"
NET = """record Net { w: f64[2], b: f64, name: str }
fn out(m: Net, x: f64[2]) -> (f64, f64[2]) = (sum(m.w * x) * m.b, m.w * m.b)
let m = Net(w = [1, 2], b = 3, name = "n")
fn both(m: Net, x: f64[2]) -> (f64, f64[2], f64[2], f64) {
  let (y, l) = linearize(out)(m, x)
  let t = transpose(l)((1, [10, 100]))
  let (p, q) = l(t)
  (p, q, t.w, t.b)
}
"""
W = "fn w(x: f64) -> f64 {\n var s = x\n var k = 0\n while s < 100 {\n s = s * x + sin(s)\n k += 1\n }\n s\n}\n"


def w(x: float) -> tuple[float, float]:
    """What the loop above gives at x, and its derivative."""
    s, ds = x, 1.0
    while s < 100:
        s, ds = s * x + math.sin(s), ds * x + s + math.cos(s) * ds
    return s, ds


# What `both` gives: at w = [1, 2], b = 3 and x = [4, 5], with t = Lᵀ(1, [10, 100]), the two parts of L(t), t.w and t.b.
TW, TB = np.array([12.0 + 30, 15 + 300]), 14.0 + 210
MAPS = [
    ("", "linearize(|x| x^3)(2.0) |> |(y, l)| (y, l(1.0), l(0.5))", (8, 12, 6)),
    ("", "linearize(|x| [x^2, sin(x)])(3.0) |> |(y, l)| (l(2.0), transpose(l)([1.0, 10.0]))", ([12, 2 * C(3)], 6 + 10 * C(3))),
    ("", "vjp(|x| [x^2, sin(x)])(3.0) |> |(y, l)| (l([1.0, 10.0]), transpose(l)(2.0), transpose(transpose(l))([1.0, 0.0]))", (6 + 10 * C(3), [12, 2 * C(3)], 6)),
    ("fn f(x: f64, y: f64) -> f64 = x^2 * y", "linearize[y](f)(3, 2) |> |(v, l)| (v, l(10.0))", (18, 90)),
    ("fn f(x: f64, y: f64) -> f64 = x^2 * y", "linearize[x, y](f)(3, 2) |> |(v, l)| (v, l(1.0, 10.0), transpose(l)(1.0).x, l(transpose(l)(1.0)))", (18, 12 + 90, 12, 144 + 81)),
    ("fn f(p: (f64, f64[2])) -> f64 = p |> |(a, b)| a * sum(b)", "linearize(f)((2.0, [3.0, 4.0])) |> |(v, l)| (l((1.0, [1.0, 0.0])), l(1.0, [1.0, 0.0]), transpose(l)(1.0))", (9, 9, 7, [2, 2])),
    (NET, "both(m, [4, 5])", (3 * TW @ [4, 5] + 14 * TB, 3 * TW + [TB, 2 * TB], TW, TB)),
    (MATRIX, "transpose(linear |v: f64[2]| a @ v)([1.0, 1.0, 2.0])", A.T @ [1, 1, 2]),
    (MATRIX, "transpose(transpose(linear |v: f64[2]| a @ v))([1.0, 1.0])", A @ [1, 1]),
    (MATRIX, "(linear |v| a @ v)([1.0, 1.0])", A @ [1, 1]),
    (MATRIX, "transpose(linear |u: f64[3], v: f64[2]| dot(u, a[.., 0]) + sum(v))(2.0)", (A[:, 0] * 2, [2, 2])),
    (MATRIX, "transpose(transpose(linear |u: f64[3], v: f64| sum(u) + 2 * v))([1.0, 2.0, 3.0], 10.0)", 26),
    (MATRIX, "transpose(linear |p: (f64, f64[2])| p |> |(s, v)| s * a[0] + 3 * v)([1.0, 10.0])", (21, [3, 30])),
    (MATRIX, "transpose(linear |v: f64[2]| [for i => sum(for j if j <= i => a[i, j] * v[j])])([1.0, 10.0, 100.0])", [531, 740]),
    (MATRIX, "transpose(linear |v: f64[2]| {\n var s = v\n for i in 0..3 { s = s + a[i] * s }\n s\n})([1.0, 1.0])", [2 * 4 * 6, 3 * 5 * 8]),
    (MATRIX, "transpose(linear |v: f64[2]| if a[0, 0] > 0 { 2 * v } else { v })([1.0, 3.0])", [2, 6]),
    (MATRIX, "transpose(linear |v: f64[2]| jvp(|x| sin(x))(a[0], v) |> |(y, d)| d)([1.0, 1.0])", [C(1), C(2)]),
    (MATRIX, "transpose(linear |v: f64[2]| hvp(|x| x[0]^3 * x[1])(a[0], v))([1.0, 10.0])", [12 + 30, 3]),
    (MATRIX, "transpose(linear |v: f64[2]| grad(|x| sum(a @ x * (a @ x)) * v[0])(a[0]))([1.0, 0.0])", [2 * (A.T @ (A @ A[0]))[0], 0]),
    (MATRIX, "vmap(linear |v| a @ v)([[1.0, 0.0], [0.0, 1.0]])", A.T),
    (MATRIX, "vmap(transpose(linear |v: f64[2]| a @ v))([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])", A[:2]),
    (MATRIX, "linearize(|x| a @ x)([1.0, 2.0]) |> |(y, l)| [for i in 0..3 => l([f64(i), 1.0])]", np.array([A @ [i, 1] for i in range(3)])),
    ("", "(linear |v| 0.0 * v)(3.0)", 0),
    ("fn f(x: f64[n]) -> f64[n] = x * normal(n)", "linearize(f)([1.0, 2.0]) |> |(y, l)| (y - l([1.0, 2.0]), transpose(l)([1.0, 1.0]) * [1.0, 2.0] - y)", ([0, 0], [0, 0])),
    (W, "linearize(w)(1.5) |> |(y, l)| (y, l(1.0), l(3.0), transpose(l)(2.0))", (w(1.5)[0], w(1.5)[1], 3 * w(1.5)[1], 2 * w(1.5)[1])),
    (W, "vjp(w)(1.5) |> |(y, l)| (y, l(1.0), l(3.0), transpose(l)(2.0))", (w(1.5)[0], w(1.5)[1], 3 * w(1.5)[1], 2 * w(1.5)[1])),
    (W + "fn v(x: f64[n]) -> f64[n] = [for i => w(x[i])]", "linearize(v)([1.5, 2.5]) |> |(y, l)| (l([1.0, 1.0]), transpose(l)([1.0, 10.0]))", ([w(1.5)[1], w(2.5)[1]], [w(1.5)[1], 10 * w(2.5)[1]])),
    (W + "fn c(x: f64) -> f64 = if x > 0 { w(x) } else { x }", "linearize(c)(1.5) |> |(y, l)| (l(1.0), transpose(l)(1.0))", (w(1.5)[1], w(1.5)[1])),
    (W + "let (y, l) = linearize(w)(1.5)\nlet t = transpose(l)", "(y, l(1.0), t(2.0))", (w(1.5)[0], w(1.5)[1], 2 * w(1.5)[1])),
    ("fn apply(l: f64[2] -o f64, v: f64[2]) -> f64 = l(v)", "apply(linear |v| 3 * sum(v), [1.0, 2.0])", 9),
    ("fn apply(l: f64[2] -o f64, v: f64[2]) -> f64 = l(v)", "linearize(|x| x[0] * x[1])([3.0, 4.0]) |> |(y, l)| apply(l, [1.0, 10.0])", 34),
    ("fn back(l: f64[n] -o f64[m], ct: f64[m]) -> f64[n] = transpose(l)(ct)\nlet a: f64[3, 2] = [[1, 2], [3, 4], [5, 7]]", "(back(transpose(transpose(linear |v: f64[2]| a @ v)), [1.0, 1.0, 2.0]), back(transpose(linear |v: f64[2]| a @ v), [1.0, 1.0]))", (A.T @ [1, 1, 2], A @ [1, 1])),
    (MATRIX + "fn normal(l: f64[n] -o f64[m], x: f64[n]) -> f64[n] = transpose(l)(l(x))", "normal(linear |v| a @ v, [1.0, 10.0])", A.T @ A @ [1, 10]),
    ("fn plain(g: (f64) -> f64) -> f64 = g(2)", "(plain(linear |v| 3 * v), linearize(|x| x^2)(5.0) |> |(y, l)| plain(l))", (6, 20)),
    ("fn made(k: f64) -> f64 -o f64 = linear |v| k * v", "(made(3.0)(2.0), transpose(made(3.0))(5.0))", (6, 15)),
    ("let l: f64[2] -o f64 = linear |v| 2 * sum(v)", "transpose(l)(3.0)", [6, 6]),
    ("fn twice(l: f64 -o f64) -> f64 -o f64 = linear |v| l(l(v))", "(twice(linear |v| 3 * v)(1.0), transpose(twice(linear |v| 3 * v))(2.0))", (9, 18)),
    ("fn steps(x0: f64) -> f64 {\n var (y, l) = linearize(|t| t^2)(x0)\n for i in 0..3 { (y, l) = linearize(|t| t^2)(y) }\n l(1.0)\n}", "steps(1.1)", 2 * 1.1**8),
]  # fmt: skip


@pytest.mark.parametrize(
    "engine", [INTERPRETER, pytest.param(Engine(), marks=pytest.mark.slow)], ids=["interpreted", "compiled"]
)
@pytest.mark.parametrize(
    ("declarations", "expression", "value"), MAPS, ids=[e[:60].replace("\n", " ") for _, e, _ in MAPS]
)
def test_map(declarations: str, expression: str, value: object, engine: Engine) -> None:
    got = answer(expression, declarations, engine)
    want = tuple(np.asarray(v, float) for v in value) if isinstance(value, tuple) else np.asarray(value, float)
    compare(got, want, 2e-14)


# Every nesting of derivatives made by maps: J pushes by `linearize`, V pulls by `vjp`, T by a map turned round.
PUSH = {
    "J": "fn {g}(x: f64) -> f64 {{\n let (_, l) = linearize({f})(x)\n l(1)\n}}\n",
    "V": "fn {g}(x: f64) -> f64 {{\n let (_, l) = vjp({f})(x)\n l(1)\n}}\n",
    "T": "fn {g}(x: f64) -> f64 {{\n let (_, l) = linearize({f})(x)\n transpose(l)(1)\n}}\n",
    "L": "fn {g}(x: f64) -> f64 {{\n let (_, l) = vjp({f})(x)\n (transpose(linear |v: f64| 2 * transpose(l)(v)))(0.5)\n}}\n",
    "G": "fn {g}(x: f64) -> f64 = grad({f})(x)\n",
}
NESTED = ["J", "V", "T", "L", "JJ", "JV", "VJ", "VV", "TT", "LL", "GV", "VG", "GJ", "JG", "LG", "JVJ", "VVV", "TGT", "LVJ"]  # fmt: skip
FUNCTIONS = {
    "plain": ("sin(x) * x^2", 0.7),
    "for": ("{\n var s = x\n for i in 0..4 { s = s * x }\n s\n}", 0.7),
    "while": ("{\n var s = x\n var k = 0\n while k < 4 {\n s = s * x\n k += 1\n }\n s\n}", 0.7),
    "branch": ("if x > 0 { x^5 } else { sqrt(x) }", 0.7),
    "lanes": ("sum([for i in 0..2 => x^5 / 2])", 0.7),
    "call": ("inner(x) * x^2", 0.7),
}


def wanted(name: str, order: int, x: float) -> float:
    if name == "plain":
        of = [
            x * x * S(x),
            2 * x * S(x) + x * x * C(x),
            (2 - x * x) * S(x) + 4 * x * C(x),
            (6 - x * x) * C(x) - 6 * x * S(x),
        ]
        return of[order]
    return math.perm(5, order) * x ** (5 - order)


@pytest.mark.parametrize(
    "engine", [INTERPRETER, pytest.param(Engine(), marks=pytest.mark.slow)], ids=["interpreted", "compiled"]
)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.nightly_cases("while-compiled")
def test_every_nesting(name: str, engine: Engine) -> None:
    body, x = FUNCTIONS[name]
    declarations = f"fn inner(x: f64) -> f64 = x^3\nfn f(x: f64) -> f64 = {body}\n"
    for order in NESTED:
        f = "f"
        for letter in reversed(order):
            g = f"{letter.lower()}_{f}"
            if f"fn {g}(" not in declarations:
                declarations += PUSH[letter].format(f=f, g=g)
            f = g
    names = ["_".join(o.lower()) + "_f" for o in NESTED]
    got = answer("(" + ", ".join(f"{g}({x})" for g in names) + ")", declarations, engine)
    compare(got, tuple(wanted(name, len(o), x) for o in NESTED), 1e-13)


CAPTURED = [
    ("fn f(a: f64) -> f64 = transpose(linear |v: f64| sin(a) * v)(2.0)", 2 * C(0.7)),
    ("fn f(a: f64) -> f64 {\n let l = linear |v: f64[2]| [a * v[0], a^2 * v[1]]\n sum(l(transpose(l)([1.0, 1.0])))\n}", 2 * 0.7 + 4 * 0.7**3),
    ("fn f(a: f64) -> f64 {\n let (_, l) = linearize(|x| a * x^2)(a)\n l(1.0)\n}", 4 * 0.7),
    ("fn f(a: f64) -> f64 {\n let (y, pull) = vjp(|x| a * x^2)(a)\n y + pull(pull(1.0))\n}", 3 * 0.7**2 + 16 * 0.7**3),
    ("fn use(l: f64 -o f64) -> f64 = transpose(l)(l(1))\nfn f(a: f64) -> f64 = use(linear |v| a * v)", 2 * 0.7),
    ("fn f(a: f64) -> f64 {\n let (_, l) = linearize(|x| a * x^2)(a)\n var s = 1.0\n for i in 0..3 { s = l(s) }\n s\n}", 8 * 6 * 0.7**5),
]  # fmt: skip


@pytest.mark.parametrize(("source", "slope"), CAPTURED, ids=range(len(CAPTURED)))
def test_a_map_is_differentiated_in_what_it_captured(source: str, slope: float) -> None:
    way = "(grad(f)(0.7), jvp(f)(0.7, 1) |> |(y, d)| d, linearize(f)(0.7) |> |(y, l)| l(1), vmap(grad(f))([0.7])[0])"
    compare(answer(way, source), (slope,) * 4, 1e-13)


# ---- What is computed once


ONCE = {
    "in one function": "fn f(x: f64[n]) -> f64[n] {\n let (y, l) = linearize(|x| sin(x))(x)\n l(l(l(l(l(x)))))\n}",
    "pulled": "fn f(x: f64[n]) -> f64[n] {\n let (y, l) = vjp(|x| sin(x))(x)\n l(l(l(l(l(x)))))\n}",
    "in a loop": "fn f(x: f64[n]) -> f64[n] {\n let (y, l) = linearize(|x| sin(x))(x)\n var v = x\n for i in 0..5 { v = l(v) }\n v\n}",
    "in a while": "fn f(x: f64[n]) -> f64[n] {\n let (y, l) = linearize(|x| sin(x))(x)\n var v = x\n while sum(v) < 100 { v = 2 * v + l(v) }\n v\n}",
    "passed on": "fn use(l: f64[n] -o f64[n], v: f64[n]) -> f64[n] = l(l(v))\nfn f(x: f64[n]) -> f64[n] {\n let (y, l) = linearize(|x| sin(x))(x)\n use(l, use(l, l(x)))\n}",
    "transposed": "fn f(x: f64[n]) -> f64[n] {\n let (y, l) = linearize(|x| sin(x))(x)\n let t = transpose(l)\n t(l(t(l(l(x)))))\n}",
}  # fmt: skip


@pytest.mark.parametrize("name", ONCE)
def test_the_primal_is_computed_once(name: str) -> None:
    """sin is linearized to a product with a cosine: of however many calls, there is one cosine, and in no loop."""
    module = difflang.loads(f"float f64\n{ONCE[name]}\n")
    text = module.f.ir("optimized", "f64[3]")
    assert len(re.findall(r"= cos ", text)) == 1, text
    assert re.search(r"^  %\S+: f64\[3\] = cos ", text, flags=re.MULTILINE), "at the top level, outside every region"


def test_a_map_of_the_host_is_called_without_the_primal() -> None:
    """Python holds the residuals; a call of the map is a product."""
    module = difflang.loads("float f64\nfn f(x: f64[n]) -> f64[n] = sin(x)\n")
    _, push = module.f.linearize()(np.array([0.5, 1.0]))
    np.testing.assert_allclose(push(np.array([1.0, 2.0])), [C(0.5), 2 * C(1.0)], rtol=1e-15)
    assert "cos" not in push.ir("optimized", np.ones(2))


# ---- The proof

LINEAR = [
    "v / 2 + 3 * v - k * v", "sum(v) * a", "[v[1], v[0]]", "where(a > 1, v, 0)", "if a[0] > 1 { v } else { 2 * v }", "a * dot(v, a)",
    "{\n var s = v\n for i in 0..3 { s = k * s + v }\n s\n}", "{\n var s = zeros(2)\n for x in a { s += x * v }\n s\n}", "g(a) * v",
    "{\n var s = v\n var k = 0\n while k < 3 {\n s = 2 * s\n k += 1\n }\n s\n}", "v |> |u| 2 * u", "h(v)", "[for i => v[i] * a[i]]",
    "jvp(g)(a, v) |> |(y, d)| d", "vjp(g)(a) |> |(y, p)| p(v)", "grad(|y| dot(y, v))(a)", "hvp(|x| sum(g(x)))(a, v)", "0 * v", "zeros(2)",
    "concat(v[1..], v[..1])", "reshape(transpose(reshape(v, [1, 2])), [2])", "norm(a) * v", "vmap(|u| 2 * u)(v)", "mean(v) * a", "f64(f32(v))",
    "v + stop(a) * v", "{\n var s = v\n s[0] = 2 * v[1]\n s[1] += v[0]\n s\n}", "if sum(a) > 0 { v } else { zeros(2) }",
]  # fmt: skip
NOT_LINEAR = [
    "exp(v)", "v * v", "dot(v, v) * a", "v + 1", "v + a", "where(v > 0, v, 0)", "if sum(v) > 0 { v } else { 2 * v }", "f64(i32(v))", "1 / v", "a / v",
    "a", "max(v, 0)", "abs(v)", "relu(v)", "norm(v) * a", "v^2", "v * v[0]", "stop(v)", "floor(v)", "g(v)", "if a[0] > 1 { v } else { a }",
    "{\n var s = v\n for i in 0..3 { s = s + a }\n s\n}", "{\n var s = v\n while sum(s) < 3 { s = 2 * s }\n s\n}", "where(a > 1, v, 1)",
    "{\n var s = a\n for i in 0..3 { s += v }\n s\n}", "jvp(g)(v, v) |> |(y, d)| d", "grad(|y| dot(y, v) * dot(y, v))(a)", "concat(v[1..], a[..1])",
    "sin(v[0]) * a", "prod(v) * a", "[for i => v[i] * v[0]]", "{\n var s = a\n s[0] = v[0]\n s\n}", "sort_of(v)", "v / (1 + v)", "softmax(v)", "g(v) - g(v) + v",
]  # fmt: skip
OUTSIDE = """fn g(x: f64[n]) -> f64[n] = sin(x)
fn h(x: f64[n]) -> f64[n] = 2 * x
fn sort_of(x: f64[2]) -> f64[2] = if x[0] < x[1] { x } else { [x[1], x[0]] }
let a: f64[2] = [1, 2]
let k = 3.0
"""


@pytest.mark.parametrize("body", LINEAR)
def test_what_is_linear_is_let_through(body: str) -> None:
    """And it is: L(2 u - 3 v) = 2 L(u) - 3 L(v), and its transpose is its adjoint."""
    source = OUTSIDE + f"fn l(v: f64[2]) -> f64[2] {{\n let m = linear |v: f64[2]| {body}\n m(v)\n}}\n"
    source += f"fn t(v: f64[2]) -> f64[2] {{\n let m = linear |v: f64[2]| {body}\n transpose(m)(v)\n}}\n"
    left, right, pulled, pushed = answer(
        "(l(2 * [1, 5] - 3 * [7, 2]), 2 * l([1, 5]) - 3 * l([7, 2]), dot(t([1, 5]), [7, 2]), dot([1, 5], l([7, 2])))",
        source,
    )
    compare(left, right, 1e-6 if "f32" in body else 1e-13)
    compare(pulled, pushed, 1e-6 if "f32" in body else 1e-13)


@pytest.mark.parametrize("body", NOT_LINEAR)
def test_what_is_not_linear_is_refused(body: str) -> None:
    assert {c for c, _ in codes(f"float f64\n{OUTSIDE}let l = linear |v: f64[2]| {body}\nprint(l([1, 2]))\n")} == {
        "DL1101"
    }


REFUSED = [
    ("fn use(l: f64 -o f64) -> f64 = l(1)\nprint(use(|v| 2 * v))", "DL1102"), ("fn use(l: f64 -o f64) -> f64 = l(1)\nprint(use(sin))", "DL1102"),
    ("fn use(l: f64 -o f64) -> f64 = l(1)\nfn f(g: (f64) -> f64) -> f64 = use(g)", "DL1102"), ("let l: f64 -o f64 = |v| 2 * v", "DL0304"),
    ("fn f(x: f64) -> f64 -o f64 = |v| x * v", "DL0304"), ("print(transpose(|v| 2 * v)(1.0))", "DL1102"),
    ("fn use(l: (f64) -> f64) -> f64 = transpose(l)(1)", "DL1102"), ("print(transpose(linear |v| 2 * v)(1.0))", "DL1103"),
    ("fn f(x: f64) -> f64 = (linear |v| 2 * v * v)(x)", "DL1101"), ("fn f(x: f64) -> f64 = (linear |v| normal() * v)(x)", "DL1101"),
    ("fn f(x: i32) -> i32 = (linear |v| 2 * v)(x)", "DL1101"), ("fn f(x: f64) -> (f64, i32) = (linear |v| (v, 1))(x)", "DL1101"),
    ("fn use(l: f64 -o f64) -> f64 = l(1)\nprint(use(linear |v| v + 1))", "DL1101"), ("fn f(k: f64) -> f64 -o f64 = linear |v| k + v", "DL1101"),
    ("fn use(l: f64[n] -o f64[n], x: f64[n]) -> f64[n] = l(x)\nfn f(x: f64[n]) -> f64[n] = use(linear |v| v * v, x)", "DL1101"),
    ("fn f(x: f64) -> f64 {\n let (y, l) = linearize(|t| t^2)(x)\n l([1.0, 2.0])[0]\n}", "DL0404"),
    ("let (y, l) = linearize(|t| t^2)(3.0)\nprint(l(1, 2))", "DL0404"), ("fn use(l: f64[2] -o f64) -> f64 = l([1, 2])\nlet (y, l) = linearize(|t| t^2)(3.0)\nprint(use(l))", "DL0304"),
]  # fmt: skip


UNUSED = [
    "let l = linear |v: f64[2]| v * v", "let l: f64 -o f64 = linear |v| v * v", "let p = (linear |v: f64| v + 1, 3)",
    "fn f(x: f64) -> f64 {\n let l = linear |v: f64| x * v * v\n x\n}", "fn f(x: f64) -> f64 {\n let l: f64 -o f64 = linear |v| x + v\n x\n}",
    "fn f(x: f64[n]) -> f64[n] {\n let l = linear |v: f64[m]| v * v\n x\n}", "fn f(k: f64) = linear |v: f64| k * v * v",
    "fn use[A, B](l: A -o B, x: f64) -> f64 = x\nprint(use(linear |v: f64| v * v, 1))",
    "record P { l: f64 -o f64 }\nlet p = P(linear |v| v * v)", "let l = linear |v: i32| v",
]  # fmt: skip


@pytest.mark.parametrize("source", UNUSED)
def test_a_linear_lambda_is_proved_where_it_is_made(source: str) -> None:
    """Nobody applies it; what it takes is written."""
    assert [c for c, _ in codes(f"float f64\n{source}\n")] == ["DL1101"]


def test_a_size_that_only_arguments_tell_may_be_another_each_time() -> None:
    source = "fn f(x: f64) -> f64 {\n let l = linear |v: f64[m]| sum(x * v)\n l([1, 2])\n}"
    assert answer("(f(2), (|x| (linear |v: f64[m]| x * v)([1, 2, 3]))(2))", source)[0] == 6


@pytest.mark.parametrize(("source", "code"), REFUSED)
def test_refused(source: str, code: str) -> None:
    assert [c for c, _ in codes(f"float f64\n{source}\n")] == [code]


CHOSEN = (
    """enum Move { By(w: f64, v: f64[2]), Turn(a: f64), Stay }
fn size(m: Move, p: f64) -> f64 = match m { By(w, v) => p * w^3 + sum(v^2) * w, Turn(a) => sin(a) * p^2, Stay => 0.0 }
"""
    + CG
    + """rule cg(A, b, tol) by linear_solve (A, b)
fn pick(i: i32, s: f64) -> Move = match i { 0 => By(s, [s, 2.0]), 1 => Turn(s), _ => Stay }
fn act(i: i32, s: f64) -> (f64) -> f64 = match i { 0 => |t| s * t, 1 => |t| t^2 * s * s, _ => |t| t }
fn solved(i: i32, s: f64) -> f64 {
  let g = grad(size)(pick(i, s), s)
  let x = cg(linear |v| (2.0 + s) * v, g, 1e-12)
  dot(x, x)
}
fn divided(i: i32, s: f64) -> f64 {
  let g = grad(size)(pick(i, s), s)
  dot(g, g) / (2.0 + s)^2
}
fn of_function(i: i32, s: f64) -> f64 {
  let g = grad(|h| h(s)^2)(act(i, s))
  let x = cg(linear |v| (2.0 + s) * v, g, 1e-12)
  dot(x, x)
}
fn divided_function(i: i32, s: f64) -> f64 {
  let g = grad(|h| h(s)^2)(act(i, s))
  dot(g, g) / (2.0 + s)^2
}
fn slopes(s: f64) -> f64[3] = [for i in 0..3 => grad(|s| solved(i, s))(s)]
"""
)


@pytest.mark.parametrize(("got", "want"), [("solved", "divided"), ("of_function", "divided_function")])
@pytest.mark.parametrize("engine", [INTERPRETER, Engine()], ids=["interpreted", "compiled"])
@pytest.mark.nightly_except("compiled-solved-divided")
def test_an_equation_in_what_only_the_run_chooses(got: str, want: str, engine: Engine) -> None:
    """Values, both modes and both second orders of a solution beside those of the quotient that it is."""
    rows = "f(i, s), deriv(|s| f(i, s))(s), grad(|s| f(i, s))(s), hvp(|s| f(i, s))(s, 1.0), grad(|s| grad(|s| f(i, s))(s))(s)"
    made = [f"fn of_{f}(i: i32, s: f64) -> f64[5] = [{rows.replace('f(i', f'{f}(i')}]\n" for f in (got, want)]
    for i in range(3):
        found = [answer(f"of_{f}({i}, 0.7)", CHOSEN + "".join(made), engine) for f in (got, want)]
        np.testing.assert_allclose(found[0], found[1], rtol=1e-11, atol=1e-13)


def test_lanes_of_an_equation_in_what_only_the_run_chooses() -> None:
    one = "[for i in 0..3 => grad(|s| divided(i, s))(0.7)]"
    for engine in (INTERPRETER, Engine()):
        compare(answer("slopes(0.7)", CHOSEN, engine), answer(one, CHOSEN, INTERPRETER))
