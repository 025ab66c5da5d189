"""Rules: written out, by an implicit equation, by a linear solve; in every nesting, on both engines."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.execution.engine import Engine
from difflang.host.values import HostValue
from difflang.ir.tensor_types import F64, Tensor
from difflang.tools.testing.derivative_rule_comparison import RuleComparison, compare_rule
from support.language import INTERPRETER, answer, checked, codes
from support.solvers import CG
from support.values import compare as compare_values

ENGINES = pytest.mark.parametrize(
    "engine", [INTERPRETER, pytest.param(Engine(), marks=pytest.mark.slow)], ids=["interpreted", "compiled"]
)

# The fifth power, whose body has derivative 0: whatever is right comes from the rule, at every order.
POWER = """fn p(x: f64) -> f64 = stop(x)^5
rule p(x) { (p(x), linear |dx| 5 * p(x) / x * dx) }
"""
AROUND = {
    "alone": ("p(x)", 5),
    "call": ("inner(x)", 5),
    "twice": ("p(p(x))", 25),
    "for": ("{\n var s = x\n for i in 0..2 { s = p(s) }\n s\n}", 25),
    "while": ("{\n var s = x\n var k = 0\n while k < 2 {\n s = p(s)\n k += 1\n }\n s\n}", 25),
    "branch": ("if x > 0 { p(x) } else { sqrt(x) }", 5),
    "lanes": ("sum([for i in 0..4 => p(x) / 4])", 5),
    "filter": ("sum(for i in 0..9 if i < 4 => p(x) / 4)", 5),
    "vmap": ("mean(vmap(p)([x, x]))", 5),
    "closure": ("(|t| p(t * x))(x)", 10),
    "map": ("{\n let (y, l) = linearize(p)(x)\n y + l(x) / 5\n}", 5),
}
CHOSEN = """
fn p(f: (f64) -> f64, x: f64) -> f64 = stop(f(x))^5
rule p(f, x) {
  let y = p(f, x)
  (y, linear |df, dx| { let (_, d) = jvp[f, x](|f, x| f(x))(f, x, df, dx)
    5.0 * y / f(x) * d })
}
fn root(f: (f64, f64) -> f64, q: f64, x0: f64) -> f64 {
  var x = x0
  while abs(f(x, q)) > 1e-13 { x -= f(x, q) / grad[0](f)(x, q) }
  x
}
rule root(f, q, x0) by implicit |x| f(x, q)
fn times(k: f64) -> (f64) -> f64 = |x| k * x
fn plus(k: f64) -> (f64) -> f64 = |x| x + k
fn written(i: i32, k: f64) -> f64 {
  let g = if i == 0 { times(k) } else if i == 1 { plus(k) } else { sin }
  p(g, 2.0) + p(g, k)
}
fn solved(i: i32, k: f64) -> f64 {
  let g = if i == 0 { |x, q| k * x^2 - q } else if i == 1 { |x, q| x^3 - k * q } else { |x, q| exp(x) - q }
  root(g, 2.0, 1.5)
}
enum S { A(x: f64), B(x: f64, y: f64), C }
fn flip(s: S) -> S = match s { A(x) => B(x, x^2), B(x, y) => A(x * y), C => C }
fn quiet(s: S) -> S = match s { A(x) => B(stop(x), stop(x)^2), B(x, y) => A(stop(x * y)), C => C }
rule quiet(s) {
  (quiet(s), linear |ds| { let (_, d) = jvp(flip)(s, ds)
    10.0 * d })
}
fn value(s: S) -> f64 = match s { A(x) => x^3, B(x, y) => x * y, C => 0.0 }
fn made(i: i32, x: f64) -> S = if i == 0 { A(x) } else if i == 1 { B(x, x + 1.0) } else { C }
fn flipped(i: i32, k: f64) -> f64 = value(quiet(made(i, k)))
fn straight(i: i32, k: f64) -> f64 {
  let s = made(i, k)
  sum(cg(linear |v| match s { A(x) => x * v, B(x, y) => x * y * v, C => v }, [1.0, 2.0], 1e-12))
}
"""


@pytest.mark.parametrize(
    ("f", "k", "value", "first", "second"),
    [
        ("written", 3.0, [66825, 10901, math.sin(2) ** 5 + math.sin(3) ** 5],
         [209790, 16085, 5 * math.sin(3) ** 4 * math.cos(3)],
         [607770, 19780, 20 * math.sin(3) ** 3 * math.cos(3) ** 2 - 5 * math.sin(3) ** 5]),
        ("solved", 3.0, [(2 / 3) ** 0.5, 6 ** (1 / 3), math.log(2)], [-((2 / 3) ** 0.5) / 6, 6 ** (1 / 3) / 9, 0],
         [0.75 * 2**0.5 * 3**-2.5, -2 / 9 * 2 ** (1 / 3) * 3 ** (-5 / 3), 0]),
        ("flipped", 2.0, [8, 216, 0], [120, 5400, 0], [840, 92160, 0]),
        ("straight", 3.0, [1, 0.25, 3], [-1 / 3, -7 * 3 / 144, 0], [2 / 9, 6 * 37 / 12**3, 0]),
    ],
)  # fmt: skip
def test_of_what_the_run_chooses(f: str, k: float, value: list[float], first: list[float], second: list[float]) -> None:
    """The rule's derivative, in what a chosen function captured and in a variant, at two orders."""
    from support.programs import programs

    cg = programs()["chapter7/conjugate_gradients.dfl"]
    ask = "([for i in 0..3 => {0}(i, {1})], [for i in 0..3 => grad[k]({0})(i, {1})], [for i in 0..3 => grad[k](grad[k]({0}))(i, {1})])"
    compare_values(answer(ask.format(f, k), cg + CHOSEN), (value, first, second), 1e-10)


DERIVATIVES = {
    "G": "fn {g}(x: f64) -> f64 = grad({f})(x)\n",
    "D": "fn {g}(x: f64) -> f64 = {f}'(x)\n",
    "P": "fn {g}(x: f64) -> f64 = jvp({f})(x, 1) |> |(y, d)| d\n",
    "V": "fn {g}(x: f64) -> f64 = vjp({f})(x) |> |(y, l)| l(1)\n",
    "L": "fn {g}(x: f64) -> f64 = linearize({f})(x) |> |(y, l)| transpose(l)(1)\n",
}
NESTED = ["G", "D", "P", "V", "L", "GG", "DD", "GD", "DG", "VP", "PV", "LL", "GV", "LG", "DDD", "GGG", "PGV", "DVL"]


def nested(orders: list[str], x: float) -> tuple[str, str]:
    """Declarations of the derivatives of f in these orders, and all of them at a point."""
    declarations, names = "", []
    for order in orders:
        f = "f"
        for letter in reversed(order):
            g = f"{letter.lower()}_{f}"
            if f"fn {g}(" not in declarations:
                declarations += DERIVATIVES[letter].format(f=f, g=g)
            f = g
        names.append(f)
    return declarations, "(" + ", ".join(f"{g}({x})" for g in names) + ")"


@ENGINES
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.nightly_cases("while-compiled")
def test_every_nesting(around: str, engine: Engine) -> None:
    body, power = AROUND[around]
    factor = 2.0 if around == "map" else 1.0
    late = around == "while" and engine is not INTERPRETER
    orders = [o for o in NESTED if not (late and (len(o) > 2 or o == "LL"))]
    declarations, ask = nested(orders, 1.1)
    got = answer(ask, f"{POWER}fn inner(x: f64) -> f64 = p(x)\nfn f(x: f64) -> f64 = {body}\n{declarations}", engine)
    want = [factor * math.perm(power, len(o)) * 1.1 ** (power - len(o)) for o in orders]
    compare_values(got, tuple(want), 1e-12)


NET = "record Net { w: f64[2], b: f64, name: str, k: i32 }\n"
S, C = math.sin, math.cos
WRITTEN = [
    ("value and derivative", "fn f(x: f64) -> f64 = x^2\nrule f(x) { (7, linear |dx| 100 * dx) }", "(f(3), value_and_grad(f)(3), jvp(f)(3, 2))", (9, 7, 100, 7, 200)),
    ("several parameters", "fn f(x: f64, y: f64) -> f64 = stop(x * y)\nrule f(x, y) { (f(x, y), linear |da, db| 2 * y * da + 3 * x * db) }", "(grad(f)(5, 7), grad[y](f)(5, 7), grad[x, y](f)(5, 7), jvp[y](f)(5, 7, 1))", (14, 15, 14, 15, 35, 15)),
    ("an integer has no tangent", "fn f(x: f64, n: i32, y: f64) -> f64 = x\nrule f(x, n, y) { (f(x, n, y), linear |dx, dy| f64(n) * dx + dy) }", "(grad(f)(5, 7, 1), grad[y](f)(5, 7, 1))", (7, 1)),
    ("a size", "fn f(x: f64, k: dim) -> f64[k] = fill(k, x)\nrule f(x, k) { (f(x, k), linear |dx| [for i in 0..k => f64(k) * dx]) }", "jvp(|x| f(x, 3))(2, 1)", ([2] * 3, [3] * 3)),
    ("sizes of arrays", "fn f(x: f64[n]) -> f64[n] = x\nrule f(x) { (f(x), linear |dx| f64(n) * dx) }", "grad(|x| sum(f(x)))([1, 2])", [2, 2]),
    ("a tuple", "fn f(x: f64) -> (f64, f64[2]) = (x, [x, x])\nrule f(x) { (f(x), linear |dx| (2 * dx, [3 * dx, 4 * dx])) }", "(jvp(f)(1, 10), vjp(f)(1) |> |(y, l)| l((1, [10, 100])))", (1, [1, 1], 20, [30, 40], 432)),
    ("a result with an integer", "fn f(x: f64) -> (f64, i32) = (x, 3)\nrule f(x) { (f(x), linear |dx| (2 * dx, ())) }", "jvp(f)(1, 10)", (1, 3, 20)),
    ("a record", NET + 'fn f(m: Net, x: f64) -> f64 = x\nrule f(m, x) { (f(m, x), linear |dm, dx| sum(m.w * dm.w) + 5 * dm.b + dx) }\nlet m = Net(w = [1, 2], b = 3, name = "n", k = 4)', "(grad(f)(m, 1), grad[m.b](f)(m, 1), grad[x](f)(m, 1))", ([1, 2], 5, 5, 1)),
    ("a closure", "fn twice(g: (f64) -> f64, x: f64) -> f64 = stop(g(g(x)))\nrule twice(g, x) { (twice(g, x), linear |dg, dx| jvp[g, x](|g, x| g(g(x)))(g, x, dg, dx) |> |(y, d)| d) }\nfn f(a: f64, x: f64) -> f64 = twice(|t| a * t^2, x)", "(grad(f)(2, 3), grad[x](f)(2, 3), grad(grad(f))(2, 3), twice(sin, 1), grad[x](twice)(sin, 1))", (3 * 4 * 81, 8 * 4 * 27, 6 * 2 * 81, S(S(1)), C(S(1)) * C(1))),
    ("a linear function", "fn f(l: f64 -o f64, x: f64) -> f64 = l(x)^2\nrule f(l, x) { (f(l, x), linear |dl, dx| 100 * l(dx)) }", "(grad[x](f)(linear |v| 3 * v, 1), linearize(|t| t^2)(5.0) |> |(y, l)| grad[x](f)(l, 1))", (300, 1000)),
    ("a top-level value", "let k = 3.0\nlet w: f64[2] = [1, 10]\nfn g(x: f64) -> f64 = sum(w) * x\nfn f(x: f64) -> f64 = k * x\nrule f(x) { (f(x), linear |dx| g(w[1]) * k * dx) }", "(f(2), grad(f)(2), grad(|x| x * f(x))(2))", (6, 330, 666)),
    ("a smaller size", "fn total(x: f64[n]) -> f64 { if n == 0 { 0 } else { stop(x[0]) + total(x[1..]) } }\nrule total(x) { (if n == 0 { 0 } else { x[0] + total(x[1..]) }, linear |dx| if n == 0 { 0 } else { f64(n) * dx[0] }) }", "grad(total)([1, 2, 3])", [3, 0, 0]),
    ("another function with a rule", "fn f(x: f64) -> f64 = x\nfn g(x: f64) -> f64 = f(x)\nrule f(x) { (f(x), linear |dx| 2 * dx) }\nrule g(x) { (g(x), linear |dx| 3 * f(x) * dx) }", "(grad(g)(5), g''(5), f''(5))", (15, 6, 0)),
    ("the rule of a function is used in another's body", "fn f(x: f64) -> f64 = x\nrule f(x) { (f(x), linear |dx| 2 * dx) }\nfn g(x: f64) -> f64 = f(f(x)) * x", "(g'(5), g''(5))", (5 + 5 * 4, 4 + 4)),
    ("generic", "fn f[T: float](x: T[..s]) -> T[..s] = x\nrule f(x) { (f(x), linear |dx| 2 * dx) }", "(grad(f)(5), grad(f)(f32(5)), grad(|x| sum(f(x)))([[1, 2]]))", (2, np.float32(2), [[2, 2]])),
    ("a check that fails on the way not taken", "fn f(x: f64[n], i: i32) -> f64 = x[i]\nrule f(x, i) { (f(x, i), linear |dx| 2 * dx[i]) }", "grad(f)([1, 2, 3], 1)", [0, 2, 0]),
    ("by position", "fn f(x: f64, y: f64 = 3) -> f64 = x * y\nrule f(x, y) { (f(x, y), linear |du, dv| 10 * y * du) }", "(grad(f)(2), f(2), grad(|x| f(y = 5, x = x))(2))", (30, 6, 50)),
    ("a helper", "fn h(x: f64) -> f64 = 3 * x\nfn f(x: f64) -> f64 = x\nrule f(x) {\n let k = h(x)\n (f(x), linear |dx| k * dx)\n}", "(f'(2), f''(2))", (6, 3)),
    ("a loop in the linear part", "fn f(x: f64) -> f64 = x\nrule f(x) { (f(x), linear |dx| {\n var s = dx\n for i in 0..3 { s = s * x }\n s\n}) }", "(f'(2), f''(2), grad(f)(2), grad(grad(f))(2))", (8, 12, 8, 12)),
    ("a while in the linear part", "fn f(x: f64) -> f64 = x\nrule f(x) { (f(x), linear |dx| {\n var s = dx\n var k = 0.0\n while k < x {\n s = s * x\n k += 1\n }\n s\n}) }", "(f'(2.5), f''(2.5), grad(f)(2.5), grad(grad(f))(2.5))", (2.5**3, 3 * 2.5**2) * 2),
    ("a draw around it", "fn f(x: f64) -> f64 = x\nrule f(x) { (f(x), linear |dx| 2 * dx) }\nfn g(x: f64) -> f64 = f(x) * normal()\nfn two() -> f64 = value_and_grad(g)(1) |> |(y, d)| d / y", "two()", 2),
    ("what is not finite elsewhere", "fn f(x: f64) -> f64 = x / (x * x)\nrule f(x) { (where(x == 0, 0, 1 / x), linear |dx| where(x == 0, 0, -dx / (x * x))) }", "(grad(f)(0), grad(f)(2), grad(grad(f))(2))", (0, -0.25, 0.25)),
]  # fmt: skip


@ENGINES
@pytest.mark.parametrize(("what", "source", "ask", "value"), WRITTEN, ids=[w for w, *_ in WRITTEN])
def test_a_written_rule(what: str, source: str, ask: str, value: object, engine: Engine) -> None:
    got = answer(ask, source, engine)
    compare_values(got, tuple(value) if isinstance(value, tuple) else value, 1e-13)


ITERATE = """fn iterate(f: (f64, f64) -> f64, p: f64, x0: f64) -> f64 {
  var x = x0
  while abs(f(x, p)) > 1e-13 { x -= f(x, p) / grad[0](f)(x, p) }
  x
}
fn root(f: (f64, f64) -> f64, p: f64, x0: f64) -> f64 = stop(iterate(f, p, x0))
rule root(f, p, x0) by implicit |x| f(x, p)
"""
ROOTS = "fn f(a: f64) -> f64 = root(|x, p| x^2 - p, a, 1)"
BOTH = """fn both(p: f64[2]) -> f64[2] {
  var x: f64[2] = [1, 1]
  for _ in 0..80 { x = [sqrt(p[0] - x[1]), sqrt(p[1] + x[0])] }
  stop(x)
}
rule both(p) by implicit |x| [x[0]^2 + x[1] - p[0], x[1]^2 - x[0] - p[1]]
fn plain(p: f64[2]) -> f64[2] {
  var x: f64[2] = [1, 1]
  for _ in 0..80 { x = [sqrt(p[0] - x[1]), sqrt(p[1] + x[0])] }
  x
}
"""
PAIR = """record State { u: f64[2], v: f64 }
fn find(p: f64[3]) -> State = stop(State(u = [p[1], p[0]^2], v = p[2] / p[0]))
rule find(p) by implicit |s| ([s.u[1] - p[0]^2, 2 * (s.u[0] - p[1])], s.v * p[0] - p[2])
"""
SQRT = [0.5 * 2**-0.5, -0.25 * 2**-1.5, 0.375 * 2**-2.5]
IMPLICIT = [
    (ITERATE + ROOTS, "(f(2), f'(2), f''(2), f'''(2))", (2**0.5, *SQRT), 1e-12),
    (ITERATE + ROOTS, "(grad(f)(2), grad(grad(f))(2), jvp(grad(f))(2, 1) |> |(y, d)| d, grad(f')(2), linearize(grad(f))(2) |> |(y, l)| l(1))", (SQRT[0], *[SQRT[1]] * 4), 1e-12),
    (ITERATE + "fn f(a: f64) -> f64 = root(|x, p| x^2 - a * p, 1, 1)", "(f'(2), f''(2), grad(f)(2), grad(grad(f))(2))", (*SQRT[:2], *SQRT[:2]), 1e-12),
    (ITERATE + "fn f(a: f64) -> f64 = root(|x, p| x^2 - a * p, a, 1)", "(f(2), f'(2), grad(grad(f))(2))", (2, 1, 0), 1e-12),
    (ITERATE + "fn f(a: f64) -> f64 = root(|x, p| x^2 - p, 2, a)", "(f(1), f'(1), grad(f)(1))", (2**0.5, 0, 0), 1e-12),
    (ITERATE + "fn f(a: f64[n]) -> f64[n] = [for i => root(|x, p| x^2 - p, a[i], 1)]", "(vmap(|t| root(|x, p| x^2 - p, t, 1))([4, 9]), grad(|a| sum(f(a)))([4, 9]), hessian(|a| sum(f(a)))([4, 9]))", ([2, 3], [1 / 4, 1 / 6], np.diag([-1 / 32, -1 / 108])), 1e-12),
    (ITERATE + "fn f(a: f64) -> f64 {\n var s = a\n for i in 0..2 { s = root(|x, p| x^2 - p, s, 1) }\n s\n}", "(f(2), f'(2), f''(2), grad(f)(2), grad(grad(f))(2))", (2**0.25, 0.25 * 2**-0.75, -3 / 16 * 2**-1.75, 0.25 * 2**-0.75, -3 / 16 * 2**-1.75), 1e-12),
    (ITERATE + "fn f(a: f64) -> f64 = root(|x, p| x + exp(x) * p - a, 1, 0)\nfn x(a: f64) -> f64 = f(a)", "f'(1.0)", 0.5, 1e-12),
    (BOTH, "jacobian(both)([3, 1]) - jacobian(plain)([3, 1])", np.zeros((2, 2)), 1e-12),
    (BOTH, "hessian(|p| sum(both(p)^2))([3, 1]) - hessian(|p| sum(plain(p)^2))([3, 1])", np.zeros((2, 2)), 1e-12),
    (BOTH, "grad(|p| sum(both(p)^3))([3, 1]) - grad(|p| sum(plain(p)^3))([3, 1])", np.zeros(2), 1e-12),
    (PAIR, "jvp(find)([2, 3, 5], [1, 10, 100]) |> |(s, d)| d", ([10, 4], 50 - 5 / 4), 1e-13),
    (PAIR, "vjp(find)([2, 3, 5]) |> |(s, l)| l(jvp(find)([2, 3, 5], [1, 10, 100]) |> |(s, d)| d)", [16 - 5 / 4 * (50 - 5 / 4), 10, (50 - 5 / 4) / 2], 1e-13),
    (PAIR, "grad(|p| find(p).v * find(p).u[1])([2, 3, 5])", [5, 0, 2], 1e-13),
]  # fmt: skip


@ENGINES
@pytest.mark.parametrize(("source", "ask", "value", "rtol"), IMPLICIT, ids=[a[:60] for _, a, _, _ in IMPLICIT])
def test_a_rule_by_implicit(source: str, ask: str, value: object, rtol: float, engine: Engine) -> None:
    compare_values(answer(ask, source, engine), tuple(value) if isinstance(value, tuple) else value, rtol)


# Jacobi's iteration for a matrix that is not symmetric; `stop` makes its own derivative 0.
JACOBI = """fn jacobi(A: f64[n] -o f64[n], d: f64[n], b: f64[n]) -> f64[n] {
  var x = zeros(n)
  var r = b
  while norm(r) > 1e-13 * (1 + norm(b)) {
    x += r / d
    r = b - A(x)
  }
  stop(x)
}
rule jacobi(A, d, b) by linear_solve (A, b)
fn m(a: f64) -> f64[2, 2] = [[4 + a, 1], [a * a, 5]]
fn f(a: f64) -> f64[2] {
  let k = m(a)
  jacobi(linear |v| k @ v, [5, 5], [a, 1])
}
fn g(a: f64) -> f64[2] {
  let det = (4 + a) * 5 - a * a
  [(5 * a - 1) / det, (4 + a - a^3) / det]
}
"""
SOLVES = [
    "(f(0.5), g(0.5))",
    "(jvp(f)(0.5, 1) |> |(y, d)| d, jvp(g)(0.5, 1) |> |(y, d)| d)",
    "(grad(|a| sum(f(a)^2))(0.5), grad(|a| sum(g(a)^2))(0.5))",
    "((|a| sum(f(a)^2))''(0.5), (|a| sum(g(a)^2))''(0.5))",
    "(grad(grad(|a| sum(f(a)^2)))(0.5), grad(grad(|a| sum(g(a)^2)))(0.5))",
    "(grad(|a| sum(f(a)^2))'(0.5), grad(|a| sum(g(a)^2))'(0.5))",
    "(grad(grad(grad(|a| sum(f(a)^2))))(0.5), grad(grad(grad(|a| sum(g(a)^2))))(0.5))",
    "(vmap(|a| grad(|t| sum(f(t)^2))(a))([0.5, 0.7]), [grad(|a| sum(g(a)^2))(0.5), grad(|a| sum(g(a)^2))(0.7)])",
    "(linearize(f)(0.5) |> |(y, l)| transpose(l)([1, 10]), vjp(g)(0.5) |> |(y, l)| l([1, 10]))",
    "(sum([for i in 0..2 => f(0.5 * f64(i))[i]]), g(0)[0] + g(0.5)[1])",
    "(transpose(linear |b: f64[2]| jacobi(linear |v| m(0.5) @ v, [5, 5], b))([1, 10]), jacobi(linear |v| transpose(m(0.5)) @ v, [5, 5], [1, 10]))",
    "(grad[b](|k, b| jacobi(linear |v| k @ v, [5, 5], b)[0])(m(0.5), [1, 2]), jacobi(linear |v| transpose(m(0.5)) @ v, [5, 5], [1, 0]))",
]  # fmt: skip


@ENGINES
@pytest.mark.parametrize("ask", SOLVES)
def test_a_rule_by_linear_solve(ask: str, engine: Engine) -> None:
    """Beside Cramer's rule, differentiated through."""
    ours, theirs = answer(ask, JACOBI, engine)
    compare_values(ours, theirs.tolist(), 1e-11)


@ENGINES
def test_a_solver_that_fails_for_a_derivative_gives_no_number(engine: Engine) -> None:
    """Three steps are needed there, and one is allowed, which is enough for the value."""
    source = """import linalg (cg)
fn f(b: f64[3], most: i32) -> f64 = dot([1, 2, 4], cg(linear |v: f64[3]| [4, 2, 1] * v, b, tol = 1e-13, most = most))
"""
    ask = "(jvp[b](f)([1, 0, 0], {0}, [1, 1, 0]), grad[b](f)([1, 0, 0], {0}))"
    few, enough = (answer(ask.format(most), source, engine) for most in (1, 3))
    assert few[0] == 0.25 and np.isnan(few[1]) and np.isnan(few[2]).all()
    compare_values(enough[1], 1.25, 1e-12)
    compare_values(enough[2], [0.25, 1.0, 4.0], 1e-12)


def test_the_solver_of_records() -> None:
    """Conjugate gradients on tangents of a record, whose map is a Hessian."""
    source = (
        """record P { u: f64[2], v: f64 }
"""
        + CG
        + """rule cg(A, b, tol) by linear_solve A
fn loss(q: P, k: f64) -> f64 = k * sum(q.u^2) + q.v^4 + q.u[0] * q.v
let q = P(u = [1, 2], v = 1)
fn step(k: f64) -> D(P) = cg(linear |v| hvp(|q| loss(q, k))(q, v), grad(|q| loss(q, k))(q), 1e-14)
fn size(k: f64) -> f64 = dot(step(k), step(k))
"""
    )
    got = answer("(step(2), size'(2), grad(size)(2))", source)

    def step(k: float) -> np.ndarray:
        h = np.array([[2 * k, 0, 1], [0, 2 * k, 0], [1, 0, 12.0]])
        return np.linalg.solve(h, [2 * k + 1, 4 * k, 4 + 1])

    compare_values(got[0], step(2)[:2].tolist(), 1e-12)
    compare_values(got[1], step(2)[2].item(), 1e-12)
    slope = (step(2 + 1e-6) @ step(2 + 1e-6) - step(2 - 1e-6) @ step(2 - 1e-6)) / 2e-6
    compare_values(got[2:], (slope, slope), 1e-8)


def test_elimination_turns_rows_round() -> None:
    """The dense solver behind implicit rules, on matrices without a usable diagonal."""
    source = "fn x(a: f64[n, n], b: f64[n]) -> f64[n] = eliminated(linear |v| a @ v, b)\n"
    a, b = np.array([[0.0, 2, 1], [1, 0, 0], [3, 0, 1e-3]]), np.array([3.0, 1, 5])
    found = answer(f"x({a.tolist()}, {b.tolist()})", source)
    compare_values(found, np.linalg.solve(a, b).tolist(), 1e-12)


@pytest.mark.parametrize(
    ("declared", "shape"),
    [
        ("pairs(x: f64[n]) -> f64[n // 2, 2] where n % 2 == 0 = reshape(x, [n // 2, 2])", "[n // 2, 2]"),
        (
            "pairs(x: f64[n], k: dim) -> f64[k, n // k] where k > 0 and n % k == 0 = reshape(x, [k, n // k])",
            "[k, n // k]",
        ),
    ],
)
def test_a_rule_relies_on_the_conditions_of_its_function(declared: str, shape: str) -> None:
    names = "x, k" if "k: dim" in declared else "x"
    rule = f"rule pairs({names}) {{ (pairs({names}), linear |dx| reshape(dx, {shape})) }}\n"
    call = names.replace("k", "2")
    source = f"fn {declared}\n{rule}"
    assert answer(f"grad(|x| sum(pairs({call})^2))([1.0, 2.0])", source).tolist() == [2.0, 4.0]
    wrong = source.replace(f"(dx, {shape})", "(dx, [n // 3, 3])")
    (report,) = check_program(Source("t.dfl", wrong)).errors
    assert report.code == "DL0336" and report.helps[0].startswith("for ")


def test_python_sees_rules() -> None:
    module = difflang.loads(f"float f64\n{POWER}fn f(x: f64) -> f64 = p(x) + x\n")
    assert float(module.f(2.0)) == 34
    assert float(module.f.grad()(2.0)) == 81
    assert float(module.f.grad().grad()(2.0)) == 160


def test_a_rule_that_fails_says_where() -> None:
    source = 'fn f(x: f64) -> f64 = x\nrule f(x) {\n assert x > 0, "positive"\n (f(x), linear |dx| dx)\n}\n'
    assert codes(f"float f64\n{source}print(f(-1))\nprint(grad(f)(1))\n") == []
    assert codes(f"float f64\n{source}print(grad(f)(-1))\n") == [("DL0901", 4)]


REFUSED = [
    ("rule f(x) { (x, linear |dx| dx) }", "DL1104"), ("fn f(x: f64) -> f64 = x\nrule f(x, y) { (x, linear |dx| dx) }", "DL1104"),
    ("fn f(x: f64) -> f64 = x\nrule f(x) { x }", "DL1104"), ("fn f(x: f64) -> f64 = x\nrule f(x) { (x, |dx| dx) }", "DL1104"),
    ("fn f(x: f64) -> f64 = x\nrule f(x) { (x, linear |dx, dy| dx) }", "DL1104"), ("fn f(x: f64) -> f64 = x\nrule f(x) { ([x, x], linear |dx| dx) }", "DL1104"),
    ("fn f(x: f64) -> f64 = x\nrule f(x) { (x, linear |dx| [dx, dx]) }", "DL1104"), ("fn f(x: f64) -> f64 = x\nrule f(x) { (x, linear |dx| dx * dx) }", "DL1101"),
    ("fn f(x: f64) -> f64 = x\nrule f(x) { (x, linear |dx| dx) }\nrule f(x) { (x, linear |dx| dx) }", "DL0210"), ("fn f(x: f64, y: f64) -> f64 = x\nrule f(x, x) { (x, linear |dx, dy| dx) }", "DL0210"),
    ("fn f(x: f64) -> f64 = x\nrule f(x) by magic x", "DL1104"), ("fn f(x: f64) -> f64 = x\nrule f(x) by implicit x", "DL1104"),
    ("fn f(x: f64) -> f64 = x\nrule f(x) by implicit |a, b| a", "DL1104"), ("fn f(x: f64) -> f64 = x\nrule f(x) by implicit |y| [y, x]", "DL1104"),
    ("fn f(x: f64) -> f64 = x\nrule f(x) by linear_solve x", "DL1104"), ("fn f(A: f64 -o f64, b: f64) -> f64 = b\nrule f(A, b) by linear_solve C", "DL1104"),
    ("fn f(x: f64) -> f64 = x\nrule f(x) { (y, linear |dx| dx) }", "DL0201"), ("fn f(x: f64) -> f64 = x\nrule f(x: f64[2]) { (x, linear |dx| dx) }", "DL0304"),
    ("fn f(x: f64) -> f64 = x\nrule f(x) { (f(x), linear |dx| grad(f)(x) * dx) }\nprint(f(2))", "DL1105"),
    ("fn f(x: f64) -> f64 = x\nfn g(x: f64) -> f64 = 2 * f(x)\nrule f(x) { (g(x), linear |dx| dx) }\nprint(f(2))", "DL1105"),
    ("fn f(x: f64) -> f64 = x * normal()\nrule f(x) { (f(x), linear |dx| normal() * dx) }\nprint(f(2))", "DL1101"),
    ("fn f(x: f64) -> f64 = x\nrule f(x) { (f(x) * normal(), linear |dx| dx) }\nprint(f(2))", "DL1104"),
    ("fn f(A: f64 -o f64, x: f64, b: f64) -> f64 = b\nrule f(A, x, b) by linear_solve A", "DL1104"), ("fn f(A: f64 -o f64) -> f64 = 1\nrule f(A) by linear_solve A", "DL1104"),
    ("fn f(x: f64, y: f64) -> f64 = x / y\nrule f(y, x) { (f(y, x), linear |dx, dy| dx / y) }", "DL1104"), ("fn f(x: f64) -> f64 = x\nrule f(u) { (f(u), linear |du| du) }\nprint(f(1))", "DL1104"),
    ("fn f(x: f64[n]) -> f64 = sum(x)\nrule f(x) { (x, linear |dx| dx) }\nprint(f([1, 2]), f([1]))\nprint(f([1, 2, 3]))", "DL1104"),
    ("fn f(x) = sum(x)\nrule f(x) { (x, linear |dx| sum(dx)) }\nprint(f([1, 2]), f([1]))\nprint(f([1, 2, 3]))", "DL1104"),
    ("rule sin(x) { (sin(x), linear |dx| dx) }", "DL1104"), ("host fn f(x: f64) { print(x) }\nrule f(x) { (x, linear |dx| dx) }", "DL1104"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "code"), REFUSED)
def test_refused(source: str, code: str) -> None:
    assert [c for c, _ in codes(f"float f64\n{source}\n")] == [code]


# ---- Rules held against the bodies


def compared(source: str, name: str, *arguments: object) -> RuleComparison:
    values = [HostValue(Tensor(F64, np.shape(a)), (np.asarray(a, float),)) for a in arguments]
    return compare_rule(checked(f"float f64\n{source}\n"), name, values)


SOUND = [
    ("fn f(x: f64[n]) -> f64 = log(sum(exp(x)))\nrule f(x) {\n let y = f(x)\n (y, linear |dx| sum(exp(x - y) * dx))\n}", "f", [0.1, 0.7, -2]),
    ("fn f(x: f64, y: f64) -> f64[2] = [x * y, x / y]\nrule f(x, y) { (f(x, y), linear |dx, dy| [x * dy + y * dx, dx / y - x / y^2 * dy]) }", "f", 2.0, 3.0),
    (ITERATE.replace("stop(iterate(f, p, x0))", "iterate(f, p, x0)") + "fn f(a: f64, k: f64) -> f64 = root(|x, p| k * x^2 - p, a, 1)", "f", 2.0, 3.0),
    (BOTH.replace("stop(x)", "x"), "both", [3.0, 1.0]),
    (JACOBI.replace("stop(x)", "x"), "f", 0.5),
    ("let k: f64[2] = [2, 3]\nfn f(x: f64[2]) -> f64[2] = k * x\nrule f(x) { (f(x), linear |dx| k * dx) }\nfn g(x: f64[2]) -> f64 = sum(f(f(x)))", "g", [3.0, 1.0]),
]  # fmt: skip


@pytest.mark.parametrize(("source", "name", "arguments"), [(s, n, a) for s, n, *a in SOUND], ids=range(len(SOUND)))
def test_a_sound_rule_agrees_with_the_body(source: str, name: str, arguments: list[object]) -> None:
    found = compared(source, name, *arguments)
    assert found.within(1e-11), found


def test_a_wrong_rule_loads_and_is_found() -> None:
    """The change of one is off, the value of another; both are their own adjoints, as every rule is that is linear."""
    body = "fn f(x: f64[n]) -> f64[n] = x^3\n"
    wrong = compared(body + "rule f(x) { (f(x), linear |dx| 3 * x^2 * dx + 1e-6 * dx) }", "f", [1.0, 2.0])
    assert 1e-8 < wrong.tangent < 1e-6 and wrong.value == 0 and wrong.adjoint_gap < 1e-15
    wrong = compared(body + "rule f(x) { (f(x) * (1 + 1e-9), linear |dx| 3 * x^2 * dx) }", "f", [1.0, 2.0])
    assert wrong.value == pytest.approx(5e-10, rel=1e-3) and wrong.tangent < 1e-15


def test_a_solver_that_is_not_one_is_found_by_its_transpose() -> None:
    """It is linear in b, but no inverse of A: what pulls through it is not the adjoint of what pushes."""
    source = "fn s(A: f64[2] -o f64[2], b: f64[2]) -> f64[2] = b + [A(b)[1], 0]\nrule s(A, b) by linear_solve A\n"
    source += "let m: f64[2, 2] = [[2, 1], [0, 3]]\nfn f(b: f64[2]) -> f64[2] = s(linear |v| m @ v, b)"
    assert compared(source, "f", [1.0, 2.0]).adjoint_gap > 0.01


COMPLEX = """
float f64
fn cube_root(p: c128, z0: c128) -> c128 {
  var z = z0
  for _ in 0..40 { z -= (z^3 - p) / (3 * z^2) }
  stop(z)
}
rule cube_root(p, z0) by implicit |z| z^3 - p
fn first(p: c128) -> c128 = (|p| cube_root(p, 1.0 + 0.5j))'(p)
fn second(p: c128) -> c128 = (|p| cube_root(p, 1.0 + 0.5j))''(p)

fn step(z: c128[2], t: f64, p: c128[2], k: f64) -> (c128[2], f64) {
  let w = 0.3 * conj(z) * c128(k) + 0.1 * z * z[0] + p + 0.1 * c128(t)
  (w, 0.2 * t + 0.1 * real(w[0] * w[1]) + k)
}
fn unrolled(p: c128[2], k: f64) -> (c128[2], f64) {
  var (z, t) = (p, k)
  for _ in 0..150 { (z, t) = step(z, t, p, k) }
  (z, t)
}
fn settled(p: c128[2], k: f64) -> (c128[2], f64) {
  let (z, t) = unrolled(p, k)
  (stop(z), stop(t))
}
rule settled(p, k) by implicit |(z, t)| { let (w, s) = step(z, t, p, k)
  (w - z, s - t) }
fn size(f: (c128[2], f64) -> (c128[2], f64), p: c128[2], k: f64) -> f64 {
  let (z, t) = f(p, k)
  real(z[0] * z[1]) + imag(z[0])^2 + t * abs(z[1])
}
fn slopes(p: c128[2], k: f64) -> (c128[2], f64) {
  let d = grad[p, k](|p, k| size(settled, p, k))(p, k)
  (d.p, d.k)
}
fn slopes_of_steps(p: c128[2], k: f64) -> (c128[2], f64) {
  let d = grad[p, k](|p, k| size(unrolled, p, k))(p, k)
  (d.p, d.k)
}
fn twice(p: c128[2], k: f64) -> c128[2] = grad(|p| grad(|k| size(settled, p, k))(k))(p)
fn twice_of_steps(p: c128[2], k: f64) -> c128[2] = grad(|p| grad(|k| size(unrolled, p, k))(k))(p)
fn pushed(p: c128[2], k: f64) -> (f64, f64) = jvp[p](|p, k| size(settled, p, k))(p, k, conj(p))
fn pushed_of_steps(p: c128[2], k: f64) -> (f64, f64) = jvp[p](|p, k| size(unrolled, p, k))(p, k, conj(p))
"""


def test_an_implicit_function_of_complex_numbers() -> None:
    """Holomorphic, with complex derivatives; and not, where the equation is one of real and imaginary parts."""
    of: Any = difflang.loads(COMPLEX, name="implicit")
    p = 2.0 + 1.0j
    z = p ** (1 / 3)
    np.testing.assert_allclose(of.first(p), 1 / (3 * z * z), rtol=1e-14)
    np.testing.assert_allclose(of.second(p), -2 / 9 * z / p / p, rtol=1e-13)
    given = np.array([0.3 + 0.2j, -0.1 + 0.4j]), 0.5
    for name in ("slopes", "twice", "pushed"):
        got, want = (getattr(of, n).interpret(*given) for n in (name, f"{name}_of_steps"))
        pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
        for g, w in pairs:
            np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-12, err_msg=name)


def test_an_implicit_function_that_is_not_holomorphic_has_no_complex_derivative() -> None:
    text = """float f64
fn f(p: c128) -> c128 = stop(p)
rule f(p) by implicit |z| conj(z) - p
fn slope(p: c128) -> c128 = f'(p)
"""
    with pytest.raises(difflang.DifflangError, match="DL0408"):
        difflang.loads(text, name="refused")


DRAWING = """
float f64
fn noisy(x: f64) -> f64 = DROPPED(x) * (1.0 + normal())
rule noisy(x) {
  let y = noisy(x)
  (y, linear |dx| noisy(x) / x * dx)
}
fn cut(x: f64[3]) -> f64[3] = DROPPED(x) * normal(3) * uniform(3)
rule cut(x) {
  let (a, b) = (normal(3), uniform(3))
  (cut(x), linear |dx| a * b * dx)
}
fn other(x: f64, k: key) -> f64 = DROPPED(x) * normal()
rule other(x, k) { (other(x, k), linear |dx| { let s = with_key(k) { other(1.0, k) }
  other(1.0, k) * dx + 0.0 * s * dx }) }
fn guessed(A: f64[2] -o f64[2], b: f64[2]) -> f64[2] {
  var x = b * normal(2)
  for _ in 0..60 { x += 0.3 * (b - A(x)) }
  DROPPED(x)
}
rule guessed(A, b) by linear_solve A
fn all_of(x: f64) -> f64 {
  var s = sum([for i in 0..3 => noisy(x * f64(i + 1))^2]) + other(x, key(5))^3
  for i in 0..4 { s = sin(noisy(s)) + 0.1 * sum(cut([s, x, 1.0])^3) }
  if x > 0.0 { s * noisy(x) + sum(guessed(linear |v| [2.0 * v[0] + x * v[1], v[1]], [x, 1.0])^2) } else { s }
}
fn first(x: f64) -> f64 = with_key(key(3)) { all_of(x) }
fn second(x: f64) -> f64 = with_key(key(3)) { grad(all_of)(x) }
fn third(x: f64) -> f64 = with_key(key(3)) { hvp(all_of)(x, 1.0) }
fn fourth(x: f64) -> f64 = with_key(key(3)) { grad(|x| grad(all_of)(x))(x) }
"""


@pytest.mark.parametrize("name", ["first", "second", "third", "fourth"])
def test_a_rule_of_what_draws(name: str) -> None:
    """Its function draws in it what it drew; draws of its own are those of the body."""
    ruled: Any = difflang.loads(DRAWING.replace("DROPPED", "stop"), name="drawing")
    bare = re.sub(r"^rule (.|\n)*?\n(?=fn)", "", DRAWING, flags=re.MULTILINE)
    plain: Any = difflang.loads(bare.replace("DROPPED", ""), name="drawing")
    got, want = (float(getattr(of, name).interpret(0.7)) for of in (ruled, plain))
    assert got == pytest.approx(want, rel=1e-11)


# In `x` its slope is infinite, which a zero tangent of `x` must not meet.
STEEP = """fn steep(x: f64, l: f64) -> f64 = x^l
@unchecked rule steep(x, l) { (steep(x, l), linear |dx, dl| inf * dx + steep(x, l) * log(x) * dl) }
fn sums(l: f64, n: dim) -> f64 = sum([for i in 0..n => steep(2.0, l)])
"""


@ENGINES
@pytest.mark.parametrize(
    ("derivative", "times"),
    [
        ("{\n let (_, d) = jvp(|l| steep(2.0, l))(3.0, 1.0)\n d\n}", 1),
        ("{\n let (_, d) = jvp(|l| grad(|m| steep(2.0, m))(l))(3.0, 1.0)\n d\n}", math.log(2.0)),
        (
            "{\n let (_, d) = jvp(|k| { let (_, e) = jvp(|l| steep(2.0, l))(k, 1.0)\n e })(3.0, 1.0)\n d\n}",
            math.log(2.0),
        ),
        ("{\n let (_, d) = jvp(|l| sums(l, 4))(3.0, 1.0)\n d\n}", 4),
        ("grad(|l| sums(l, 4))(3.0)", 4),
    ],
)
def test_an_absent_tangent_meets_no_infinite_slope(derivative: str, times: float, engine: Engine) -> None:
    got = answer("f()", f"{STEEP}fn f() -> f64 = {derivative}", engine)
    assert float(got) == pytest.approx(8.0 * math.log(2.0) * times, rel=1e-14)
