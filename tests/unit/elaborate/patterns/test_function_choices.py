"""Functions that the run chooses: called, carried, stored, differentiated in what they captured."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

from math import cos, log, sin

import numpy as np
import pytest

import difflang
from difflang.execution.engine import Engine
from support.language import INTERPRETER, answer, codes, ran
from support.values import compare

CHOOSE = """
fn choose(c: i32, k: f64) -> f64 {
  let f = if c == 0 { |x| k * x } else if c == 1 { |x| x^k } else { sin }
  f(2.0) + f(k)
}
"""
EACH = "[for i in 0..3 => {}]"

ROWS = [
    ("chosen_by_an_if", CHOOSE, EACH.format("choose(i, 3.0)"), [15, 35, sin(2) + sin(3)]),
    ("gradient_in_what_is_captured", CHOOSE, EACH.format("grad[k](choose)(i, 3.0)"), [8, 8 * log(2) + 27 * (log(3) + 1), cos(3)]),
    ("second_order", CHOOSE, EACH.format("grad[k](grad[k](choose))(i, 3.0)"),
     [2, 8 * log(2) ** 2 + 27 * ((log(3) + 1) ** 2 + 1 / 3), -sin(3)]),
    ("forward", CHOOSE, EACH.format("{ let (_, d) = jvp[k](choose)(i, 3.0, 2.0)\n d }"),
     [16, 16 * log(2) + 54 * (log(3) + 1), 2 * cos(3)]),
    ("chosen_by_a_match", "enum Kind { Linear(k: f64), Wave, Square }\nfn of(m: Kind) -> f64 {\n"
     " let f = match m { Linear(k) => |x: f64| k * x, Wave => cos, Square => |x| x * x }\n f(3.0)\n}\n"
     "fn kind(i: i32) -> Kind = if i == 0 { Linear(5.0) } else if i == 1 { Wave } else { Square }",
     EACH.format("of(kind(i))"), [15, cos(3), 9]),
    ("an_assignment_on_one_side", "fn f(x: f64) -> f64 {\n var g = |y| y + x\n if x > 0.0 { g = |y| y - x }\n g(1.0)\n}",
     "[f(2.0), f(-2.0), grad(f)(2.0), grad(f)(-2.0)]", [-1, -1, -1, 1]),
    ("one_after_another", "fn f(x: f64) -> f64 {\n var g = |y| y + x\n let a = g(1.0)\n g = |y| y * x\n a * g(2.0)\n}", "f(3.0)", 24),
    ("carried_by_a_loop", "fn f(n: i32, k: f64) -> f64 {\n var g = |x| k * x\n var y = 1.5\n for i in 0..n {\n  y = g(y)\n"
     "  if y > 4.0 { g = sin } else if y < 0.0 { g = |x| x * x + k }\n }\n y\n}",
     "[f(1, 2.0), f(2, 2.0), f(3, 2.0), f(4, 2.0), grad[k](f)(2, 2.0), grad[k](f)(4, 2.0)]",
     [3, 6, sin(6), sin(6) ** 2 + 2, 6, 2 * sin(6) * cos(6) * 6 + 1]),
    ("carried_by_a_while", "fn f(k: f64) -> f64 {\n var g = |x| x + k\n var y = 0.0\n while y < 10.0 {\n  y = g(y)\n  if y > 4.0 { g = |x| 2.0 * x + k }\n }\n y\n}",
     "[f(3.0), grad(f)(3.0)]", [15, 5]),
    ("captured_by_another", "fn f(c: bool, k: f64) -> f64 {\n let g = if c { |x| k * x } else { |x| k + x }\n let twice = |x| g(g(x))\n twice(3.0)\n}",
     "[f(true, 2.0), f(false, 2.0), grad[k](f)(true, 2.0), grad[k](f)(false, 2.0)]", [12, 7, 12, 2]),
    ("of_one_lambda_around_two_functions", "fn f(c: bool, k: f64) -> f64 {\n let around = |g| |x| g(x) + k\n"
     " let h = if c { around(sin) } else { around(|y| k * y) }\n h(2.0)\n}", "[f(true, 3.0), f(false, 3.0), grad[k](f)(false, 3.0)]", [sin(2) + 3, 9, 3]),
    ("in_a_tuple", "fn f(c: bool) -> f64 {\n let (g, k) = if c { (|t| t, 1.0) } else { (|t| 2 * t, 2.0) }\n g(k)\n}", "[f(true), f(false)]", [1, 4]),
    ("in_a_record", "record Layer { act: (f64) -> f64, w: f64 }\nfn f(c: bool, w: f64) -> f64 {\n"
     " var l = if c { Layer(tanh, w) } else { Layer(|x| max(x, 0.0), 2.0 * w) }\n if w > 5.0 { l.act = exp }\n l.act(l.w * 3.0)\n}",
     "[f(true, 1.0), f(false, 1.0), f(false, 6.0), grad[w](f)(false, 1.0)]", [np.tanh(3), 6, np.exp(36), 6]),
    ("in_an_enum", "enum Act { Apply(f: (f64) -> f64), Skip }\nfn f(i: i32, x: f64) -> f64 {\n"
     " let a = if i == 0 { Apply(sin) } else if i == 1 { Apply(|y| x * y) } else { Skip }\n match a { Apply(g) => g(x), Skip => x }\n}",
     EACH.format("f(i, 3.0)") + " + " + EACH.format("grad[x](f)(i, 3.0)"), [sin(3) + cos(3), 9 + 6, 3 + 1]),
    ("given_to_a_function", "fn apply(g: (f64) -> f64, x: f64) -> f64 = g(x) + g(-x)\nfn f(c: bool) -> f64 = apply(if c { |x| x + 1.0 } else { |x| x * x }, 3.0)",
     "[f(true), f(false)]", [2, 18]),
    ("given_by_a_function", "fn pick(c: bool, k: f64) -> (f64) -> f64 = if c { |x| x * k } else { |x| x / k }\nfn f(c: bool, k: f64) -> f64 = pick(c, k)(6.0)",
     "[f(true, 2.0), f(false, 2.0), grad[k](f)(true, 2.0), grad[k](f)(false, 2.0)]", [12, 3, 6, -1.5]),
    ("of_arrays", "fn f(c: bool, w: f64[n], m: f64[n, n]) -> f64 {\n let g = if c { |x| m @ x } else { |x| w * x }\n sum(g(g(w)))\n}",
     "[f(true, [1.0, 2.0], [[1.0, 1.0], [0.0, 1.0]]), f(false, [1.0, 2.0], [[1.0, 1.0], [0.0, 1.0]])]", [7, 9]),
    ("a_derivative_of_it", "fn f(c: bool, k: f64) -> f64 {\n let g = if c { |x| sin(k * x) } else { |x| k * x^3 }\n grad(g)(2.0) + g''(2.0)\n}",
     "[f(true, 1.0), f(false, 1.0), grad[k](f)(false, 1.0)]", [cos(2) - sin(2), 24, 24]),
    ("one_of_several_derivatives", "fn f(c: bool, x: f64) -> f64 {\n let d = if c { grad(sin) } else { grad(|y| x * y * y) }\n d(x)\n}",
     "[f(true, 2.0), f(false, 2.0)]", [cos(2), 8]),
    ("an_array_of_them", "fn f(i: i32, k: f64) -> f64 = [sin, |x| x * k, |x| x^2][i](3.0)", EACH.format("f(i, 2.0)") , [sin(3), 6, 9]),
    ("a_comprehension_of_them", "fn f(i: i32, k: f64) -> f64 {\n let fs = [for j in 0..3 => |x: f64| k * f64(j) * x]\n fs[i](2.0)\n}",
     EACH.format("grad[k](f)(i, 7.0)"), [0, 2, 4]),
    ("each_of_an_array", "fn f(k: f64) -> f64 {\n var y = k\n for g in [|x| x * k, |x| x + 1.0, |x| x * x] { y = g(y) }\n y\n}",
     "[f(2.0), grad(f)(2.0)]", [25, 40]),
    ("each_that_fails_only_if_taken", "fn f(i: i32, x: f64[n]) -> f64 {\n let g = if i < 2 { |j| x[j] } else { |j| -1.0 }\n g(i)\n}", "[f(1, [5.0, 6.0]), f(7, [5.0, 6.0])]", [6, -1]),
    ("what_is_not_called_makes_no_nan", "fn f(c: bool, x: f64) -> f64 {\n let g = if c { |y| sqrt(y - x) } else { |y| y * x }\n g(x)\n}",
     "[grad[x](f)(false, 3.0), grad[x](grad[x](f))(false, 3.0)]", [6, 2]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "declarations", "expression", "value"), ROWS, ids=[r[0] for r in ROWS])
def test_value(name: str, declarations: str, expression: str, value: object) -> None:
    compare(answer(expression, declarations), value)


MOVED = """
fn times(k: f64) -> (f64) -> f64 = |x| k * x
fn plus(k: f64) -> (f64) -> f64 = |x| x + k
fn square(g: (f64) -> f64) -> f64 = g(3.0)^2
fn moved(c: bool, k: f64) -> f64 {
  let g = if c { times(k) } else { plus(k) }
  (g + grad(square)(g))(2.0)
}
fn listed_otherwise(c: bool, k: f64) -> f64 {
  let g = if c { times(k) } else { plus(k) }
  let h = if not c { plus(k) } else { times(k) }
  (g - 0.5 * grad(square)(h))(2.0)
}
fn of_another(c: bool, d: bool) -> f64 {
  let g = if c { times(2.0) } else { plus(2.0) }
  (g + grad(square)(if d { times(2.0) } else { plus(2.0) }))(2.0)
}

record Layer { act: (f64) -> f64, w: f64, name: str }
fn loss(l: Layer) -> f64 = (l.act(l.w) - 0.7)^2
fn step(l: Layer, change: D(Layer)) -> Layer = l + -0.1 * change
fn fit(c: bool, k: f64, n: i32) -> f64 {
  var l = Layer(act = if c { times(k) } else { tanh }, w = 0.5, name = "l")
  var speed = zeros_like(l)
  for i in 0..n {
    speed = 0.5 * speed + grad(loss)(l)
    l = step(l, speed)
  }
  l.act(l.w)
}
"""


def fitted(c: bool, k: float, n: int) -> float:
    w, speed, of_k = 0.5, 0.0, 0.0
    for _ in range(n):
        y = k * w if c else np.tanh(w)
        slope = 2 * (y - 0.7)
        speed = 0.5 * speed + slope * (k if c else 1 - y * y)
        of_k = 0.5 * of_k + slope * w
        w, k = w - 0.1 * speed, k - 0.1 * of_k
    return k * w if c else float(np.tanh(w))


def test_a_change_moves_what_a_chosen_function_captured() -> None:
    """Of the function that it is a change of, wherever that stands among the others."""
    compare(answer("[moved(true, 2.0), moved(false, 2.0)]", MOVED), [(2 + 36) * 2, 2 + 12])
    compare(answer("[listed_otherwise(true, 2.0), listed_otherwise(false, 2.0)]", MOVED), [(2 - 18) * 2, 2 - 3])
    compare(answer("[grad[k](moved)(true, 2.0), grad[k](moved)(false, 2.0)]", MOVED), [(1 + 18) * 2, 3])
    compare(answer("[fit(true, 2.0, 7), fit(false, 2.0, 7)]", MOVED), [fitted(True, 2, 7), fitted(False, 2, 7)])


def test_changes_of_two_functions_are_not_added() -> None:
    compare(answer("of_another(false, false)", MOVED), 4 + 10)
    assert codes(f"float f64\n{MOVED}print(of_another(true, false))\n")[0][0] == "DL0901"


def test_arrays_of_functions_and_enums_are_chosen_between() -> None:
    """As arrays of whatever both can hold."""
    text = """
    enum S { A(x: f64), B, C(y: f64) }
    fn v(s: S) -> f64 = match s { A(x) => x, B => 10.0, C(y) => 100.0 * y }
    fn f(c: bool, k: f64, i: i32) -> f64 = (if c { [sin, |x| x * k] } else { [|x| x + k, sin] })[i](2.0)
    fn g(c: bool, k: f64, i: i32) -> f64 {
      var s = [A(1.0), B]
      if c { s = [B, C(k)] }
      v(s[i])
    }
    """
    compare(
        answer("[f(true, 3.0, 0), f(true, 3.0, 1), f(false, 3.0, 0), f(false, 3.0, 1)]", text), [sin(2), 6, 5, sin(2)]
    )
    compare(answer("[g(true, 3.0, 0), g(true, 3.0, 1), g(false, 3.0, 0), g(false, 3.0, 1)]", text), [10, 300, 1, 10])


REPLACED = """
record Layer { act: (f64) -> f64, w: f64 }
fn made(w: f64) -> Layer = Layer(act = tanh, w = w)
fn pair(w: f64) -> ((f64) -> f64, f64) = (tanh, w)
fn assigned(x: f64) -> f64 {
  var l = made(2.0)
  l.act = |y| x * y
  l.act(l.w)
}
fn updated(x: f64) -> f64 {
  let l = made(2.0) with (act = |y| x + y)
  l.act(l.w)
}
fn in_a_tuple(x: f64) -> f64 {
  var (f, w) = pair(x)
  f = |y| 10.0 * y
  f(w)
}
fn in_turn(x: f64, n: i32) -> f64 {
  var l = made(x)
  for i in 0..n { l = if i == 1 { l with (act = |y| y * x) } else { l with (w = l.act(l.w)) } }
  l.act(l.w)
}
"""


def test_a_function_that_was_given_inside_a_record_is_replaced() -> None:
    """While a definition is checked only its type is known."""
    compare(
        answer("(assigned(3.0), updated(3.0), in_a_tuple(3.0), in_turn(3.0, 3))", REPLACED), (6, 5, 30, 9 * np.tanh(3))
    )


def test_compiled_as_interpreted() -> None:
    moves = difflang.loads(f"float f64\n{MOVED}")
    for c in (True, False):
        np.testing.assert_allclose(moves.fit(c, 2.0, 7), moves.fit.interpret(c, 2.0, 7), rtol=1e-14)
        np.testing.assert_allclose(moves.fit.grad("k")(c, 2.0, 7), moves.fit.grad("k").interpret(c, 2.0, 7), rtol=1e-14)
    module = difflang.loads(f"float f64\n{CHOOSE}\n" + ROWS[7][1])
    for i in range(3):
        for f in (module.choose, module.choose.grad("k"), module.choose.hvp("k")):
            given = (i, 3.0, 1.0) if f.operator == "hvp" else (i, 3.0)
            np.testing.assert_allclose(f(*given), f.interpret(*given), rtol=1e-14)
        np.testing.assert_allclose(module.f.grad("k")(i + 2, 2.0), module.f.grad("k").interpret(i + 2, 2.0), rtol=1e-14)


ON_THE_HOST = """float f64
var g = |x: f64| x
print(g(2.0))
g = |x| 2.0 * x
print(g(2.0), grad(g)(1.0))
for i in 0..4 {
  let k = f64(i)
  print(g(4.0))
  if i % 2 == 0 { g = |x| x + k } else { g = sqrt }
}
fn twice(f: (f64) -> f64) -> (f64) -> f64 = |x| f(f(x))
for _ in 0..2 { g = twice(g) }
print(g(256.0 * 256.0))
record Layer { act: (f64) -> f64, w: f64 }
var l = Layer(act = sqrt, w = 1.0)
l = Layer(act = |x| 3.0 * x, w = 2.0)
print(l.act(l.w))
l.act = exp
print(l.act(0.0))
let fs = for k in [2.0, 3.0] { yield |x: f64| x^2 * k }
print(fs[1](2.0), grad(fs[0])(1.0), sum(for f in fs => f(1.0)))
let hs = for i in 0..2 {
  let h = if i == 0 { sqrt } else { |x: f64| x + f64(i) }
  yield h
}
fn total(x: f64) -> f64 = sum(for h in hs => h(x))
print(total(4.0), total'(4.0))
for h in hs { print(h(9.0)) }
"""


@pytest.mark.parametrize("engine", [INTERPRETER, Engine()], ids=["interpreted", "compiled"])
def test_the_host_holds_one_function_after_another(engine: Engine) -> None:
    want = [
        "2.0",
        "4.0 2.0",
        "8.0",
        "4.0",
        "2.0",
        "6.0",
        "2.0",
        "6.0",
        "1.0",
        "12.0 4.0 5.0",
        "7.0 1.25",
        "3.0",
        "10.0",
    ]
    assert ran(ON_THE_HOST, engine)[1] == want


WRONG = [
    ("fn f(c: bool, x: f64) -> f64 {\n let g = if c { |y| y } else { |y| true }\n g(x)\n}", "DL0327"),
    ("fn f(c: bool, x: f64) -> f64 {\n let g = if c { |y| y } else { |y, z| y }\n g(x)\n}", "DL0319"),
    ("fn f(n: i32) -> f64 {\n var g = |x: f64| x\n for i in 0..n {\n  let h = g\n  g = |x| h(x) + 1.0\n }\n g(0.0)\n}", "DL0507"),
    ("fn f(x: f64) -> f64 = [sin, cos](x)", "DL0320"),
    ("fn f(x: f64) -> f64 = [sin, 1.0][0](x)", "DL0317"),
    ("var g = |x: f64| x\ng = 2.0", "DL0304"),
    ("enum S { A, B }\nfn f(c: bool) -> f64 {\n let g = if c { A } else { sin }\n 1.0\n}", "DL0327"),
    ("record L { f: (f64) -> f64 }\nfn made() -> L = L(sin)\nfn f(x: f64) -> f64 {\n var l = made()\n l.f = x\n x\n}", "DL0304"),
    ("record L { f: (f64) -> f64 }\nfn made() -> L = L(sin)\nfn f(x: f64) -> f64 {\n let l = made() with (f = x)\n x\n}", "DL0304"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "code"), WRONG)
def test_mistakes_are_reported(source: str, code: str) -> None:
    assert codes(f"float f64\n{source}\n")[0][0] == code
