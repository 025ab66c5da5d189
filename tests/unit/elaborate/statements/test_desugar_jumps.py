"""`break`, `continue` and `return`: against Python, on both engines, with derivatives."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import difflang

X = np.array([1.0, -5.0, 2.0, 3.0, 4.0])


def module(source: str) -> Any:
    return difflang.loads("float f64\n" + source, name="jumps")


CASES: dict[str, tuple[str, float, list[float]]] = {
    "break": ("var s = 0.0\n for v in x {\n  if v < 0.0 { break }\n  s += v * v\n }\n s", 1.0, [2, 0, 0, 0, 0]),
    "continue": ("var s = 0.0\n for v in x {\n  if v < 0.0 { continue }\n  s += v\n }\n s", 10.0, [1, 0, 1, 1, 1]),
    "return": ("if x[0] > 0.0 { return x[1] * x[2] }\n x[3]", -10.0, [0, 2, -5, 0, 0]),
    "return from a loop": ("for i in 0..n { if x[i] > 2.0 { return x[i]^2 } }\n 0.0", 9.0, [0, 0, 0, 6, 0]),
    "return from two loops": (
        "for v in x {\n  for w in x { if v * w > 10.0 { return v * w } }\n }\n 0.0", 25.0, [0, -10, 0, 0, 0],
    ),
    "the loop goes to its end": ("for v in x { if v > 9.0 { return v } }\n sum(x)", 5.0, [1, 1, 1, 1, 1]),
    "while true": (
        "var i = 0\n var s = 1.0\n while true {\n  s *= x[i]\n  i += 1\n  if i == 3 { break }\n }\n s", -10.0,
        [-10, 2, -5, 0, 0],
    ),
    "continue in a while": (
        "var i = 0\n var s = 0.0\n while i < n {\n  i += 1\n  if i % 2 == 0 { continue }\n  s += x[i - 1]\n }\n s", 7.0,
        [1, 0, 1, 0, 1],
    ),
    "what follows sees its own names": (
        "let y = x[4]\n if x[0] < 0.0 { let y = 1.0\n  if y > x[0] { return y } }\n y", 4.0, [0, 0, 0, 0, 1],
    ),
    "beside the value of a branch": (
        "if x[0] < 0.0 { 1.0 } else {\n  if x[1] < 0.0 { return x[1]^2 }\n  x[2]\n }", 25.0, [0, -10, 0, 0, 0],
    ),
    "beside the value of a block": ("{\n  if x[1] > 0.0 { return x[1]^2 }\n  x[2]\n }", 2.0, [0, 0, 1, 0, 0]),
    "return in place of a value": (
        "let y = if x[0] > 3.0 { return x[1] } else { x[2]^2 }\n let z = if y > 3.0 { return y * x[3] } else { y }\n z",
        12.0, [0, 0, 12, 4, 0],
    ),
    "continue and break in place of a value": (
        "var s = 0.0\n for v in x {\n  let r = if v < 0.0 { continue } else if v > 3.5 { break } else { v * v }\n"
        "  s += if r > 5.0 { continue } else { r }\n }\n s", 5.0, [2, 0, 4, 0, 0],
    ),
    "a block that may be left": (
        "let y = {\n  let t = x[2]\n  if t > 9.0 { return t }\n  t * x[3]\n }\n var s = y\n"
        " s *= if s > 5.5 { return s * x[0] } else { 2.0 }\n s", 6.0, [6, 0, 3, 2, 0],
    ),
    "a name of a branch and the same after it": (
        "let t = x[4]\n let y = { let u = x[2]\n  if u < 0.0 { return u }\n  u }\n t * y", 8.0, [0, 0, 4, 0, 2],
    ),
    "a checkpoint block that a step leaves": (
        "var s = 0.0\n for v in x {\n  checkpoint {\n   if v < 0.0 { continue }\n   if v > 3.5 { break }\n"
        "   s += v * v\n  }\n }\n s", 14.0, [2, 0, 4, 6, 0],
    ),
    "a checkpoint block that the function leaves": (
        "for v in x {\n  checkpoint { if v * v > 5.0 { return v * v } }\n }\n 0.0", 25.0, [0, -10, 0, 0, 0],
    ),
    "a checkpoint block in the last place": (
        "checkpoint {\n  if x[1] > 0.0 { return x[1]^2 }\n  x[2] * x[3]\n }", 6.0, [0, 0, 3, 2, 0],
    ),
    "a block with a key": (
        "for v in x {\n  with_key(key(1)) { if v > 2.5 { return v^2 } }\n }\n 0.0", 9.0, [0, 0, 0, 6, 0],
    ),
    "a loop in an expression": (
        "sum([for i => {\n  var t = 0.0\n  for v in x {\n   if v > x[i] { break }\n   t += v\n  }\n  t }])", 0.0, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient(name: str) -> None:
    body, value, gradient = CASES[name]
    f = module(f"fn f(x: f64[n]) -> f64 {{\n {body}\n}}\n").f
    assert float(f(X)) == float(f.interpret(X)) == pytest.approx(value)
    if gradient is None:
        gradient = [float(f(X + d) - f(X - d)) / 2e-6 for d in 1e-6 * np.eye(5)]
    for found in (f.grad("x")(X), f.grad("x").interpret(X)):
        np.testing.assert_allclose(found, gradient, rtol=1e-8, atol=1e-8)


def test_a_negative_number_of_steps_is_none() -> None:
    f = module("fn f(k: i32) -> i32 {\n for i in 0..k { if i == 3 { return 7 } }\n 1\n}\n").f
    assert [int(f(k)) for k in (-2, 0, 3, 4)] == [1, 1, 1, 7]


RETURNED = """
record M { w: f64, name: str }
enum E { A(x: f64), B(t: str), C }
fn undeclared(x: f64[n]) {
  for v in x { if v < 0.0 { return v^2 } }
  0.0
}
fn several(x: f64[n]) {
  for v in x { if v < 0.0 { return (v, "first below", true) } }
  (x[0], "first below", false)
}
fn halved(m: M) -> M {
  var a = m
  while a.w > 0.5 {
    a.w = a.w / 2
    if a.w < 0.7 { return a with (w = 10 * a.w) }
  }
  a
}
fn of(x: f64[n]) -> (f64) -> f64 {
  for v in x {
    if v > 2.0 { return |y| v * y }
    if v < 0.0 { return |y| y + v }
  }
  sqrt
}
fn one_of(x: f64[n]) -> E {
  for v in x {
    if v > 1.0 { return A(v) }
    if v < 0.0 { return B("below") }
  }
  C
}
fn told(x: f64[n]) -> str {
  for (i, v) in enumerate(x) {
    for w in x { if v * w > 5.0 { return "{v} at {i}" } }
  }
  var k = 0
  for _ in x { k -= 1 }
  "{x[0]} at {k}"
}
"""


@pytest.mark.parametrize("way", ["compiled", "interpreted"])
def test_what_a_loop_returns_is_of_any_type(way: str) -> None:
    """Text, functions, what nobody declares: it is what the loop sets it to, and nobody reads it before."""
    m = module(RETURNED)

    def call(f: Any, *args: Any) -> Any:
        return (f if way == "compiled" else f.interpret)(*args)

    below, above = np.array([1.0, -3.0, 2.0]), np.array([0.5])
    assert [float(call(m.undeclared, x)) for x in (below, above)] == [9.0, 0.0]
    assert [float(y) for y in call(m.undeclared.grad(), below)] == [0.0, -6.0, 0.0]
    assert [(float(v), t, bool(b)) for v, t, b in (call(m.several, x) for x in (below, above))] == [
        (-3.0, "first below", True), (0.5, "first below", False),
    ]  # fmt: skip
    found = [call(m.halved, m.M(w=w, name="m")) for w in (4.0, 0.25)]
    assert [(float(a.w), a.name) for a in found] == [(5.0, "m"), (0.25, "m")]
    assert call(m.one_of, below).t == "below" and isinstance(call(m.one_of, above), m.C)
    assert call(m.told, np.array([1.0, 3.0, 2.0])) == "3.0 at 1" and call(m.told, above) == "0.5 at -1"


def test_a_function_that_a_loop_returns_has_a_derivative_in_what_it_captured() -> None:
    source = f"{RETURNED}fn f(x: f64[n]) -> f64 = of(x)(4.0)\n"
    f = module(source).f
    for x, value, slope in (([1.0, 3.0], 12.0, [0.0, 4.0]), ([-1.0], 3.0, [1.0]), ([1.0], 2.0, [0.0])):
        assert float(f(np.array(x))) == float(f.interpret(np.array(x))) == value
        assert np.asarray(f.grad()(np.array(x))).tolist() == slope


def test_one_of_two_texts_is_returned() -> None:
    source = 'fn f(x: f64[n]) -> str {\n for v in x { if v < 0.0 { return "below" } }\n "none"\n}\n'
    f = module(source).f
    assert (f(np.array([1.0, -2.0])), f(np.array([1.0, 2.0]))) == ("below", "none")


@pytest.mark.parametrize("program", ["sum([for i => solve(b[i], w)])^2", "sum(vmap(|v| solve(v, w))(b))^2"])
def test_lanes_run_again_take_their_own_number_of_steps(program: str) -> None:
    """Lanes side by side may need one step more or less than each alone, by rounding: no state may be missing then."""
    m = module(f"""
fn solve(b: f64[d], w: f64[d, d]) -> f64[d] {{
  var x = b
  var move = 1.0
  while move > 2e-15 {{
    let y = tanh(w @ x + b)
    move = norm(y - x)
    x = y
  }}
  x
}}
fn loss(b: f64[n, d], w: f64[d, d]) -> f64 = {program.replace("sum(", "total(", 1)}
fn total(x: f64[n, d]) -> f64 = sum(x)
""")
    rng = np.random.default_rng(1)
    w, b = 0.5 * rng.normal(size=(8, 8)) / np.sqrt(8), rng.normal(size=(200, 8))
    gradient = m.loss.grad("b")
    np.testing.assert_allclose(gradient(b, w), gradient.interpret(b, w), rtol=1e-9)


def test_choices_on_the_way_back() -> None:
    """What is divided by, or used twice, of a side that is not chosen; and the program grows in proportion."""
    divided = module("fn f(y: f64, x: f64) -> f64 = where(x != 0.0, y / x, 0.0)").f
    assert float(divided.grad("y")(1.0, 0.0)) == 0.0
    twice = module("fn f(x: f64) -> f64 {\n let y = sqrt(x)\n where(x > 0.0, y + y * y, x)\n}").f
    assert float(twice.grad("x")(-1.0)) == 1.0

    def lines(n: int) -> int:
        steps = "".join(f" t = where(c > {k}.0, t * x, 0.5) * 1.1\n" for k in range(n))
        f = module(f"fn f(x: f64, c: f64) -> f64 {{\n var t = x\n{steps} t\n}}").f
        return len(f.grad("x").ir("optimized", 1.0, 2.0).splitlines())

    assert lines(80) < 2.2 * lines(40)


def test_inside_jit() -> None:
    f = module("fn f(x: f64[n]) -> f64 {\n for v in x { if v < 0.0 { return v } }\n 0.0\n}").f
    with jax.enable_x64(True):
        assert float(jax.jit(f)(X)) == -5.0


def test_a_case_that_is_left() -> None:
    source = """enum Maybe { Some(x: f64), None }
fn positive(x: f64) -> Maybe = if x > 0.0 { Some(x) } else { None }
fn f(x: f64[n]) -> f64 {
  var s = 0.0
  for v in x {
    s += match positive(v - 1.5) {
      Some(u) => u^2
      None => {
        if v < -6.0 { return v }
        continue
      }
    }
  }
  s
}
"""
    f = module(source).f
    for x, value, slope in ((X, 0.25 + 2.25 + 6.25, [0, 0, 1, 3, 5]), (X - 2.0, -7.0, [0, 1, 0, 0, 0])):
        assert float(f(x)) == float(f.interpret(x)) == pytest.approx(value)
        np.testing.assert_allclose(f.grad("x").interpret(x), slope)


def test_a_pattern_may_bind_the_name_that_its_statement_binds() -> None:
    source = """let r = 100.0
enum Maybe { Some(x: f64), None }
fn positive(x: f64) -> Maybe = if x > 0.0 { Some(x) } else { None }
fn f(x: f64) -> f64 {
  let r = match positive(x) { Some(r) => r^2, None => { return 0.0 } }
  r + x
}
"""
    f = module(source).f
    assert float(f.interpret(3.0)) == 12.0
    assert float(f.interpret(-3.0)) == 0.0


HIDDEN = {
    "what follows a value": "let z = 5.0\n let y = { let z = 2.0 * x\n  if x > 9.0 { return x }\n  z }\n y + z",
    "a variable of a loop": (
        "var a = x\n for i in 0..3 { a = { var a = 2.0 * x\n  if a > 5.0 { break }\n  3.0 * a } }\n a"
    ),
    "an index": (
        "var a = [x, 0.0, 0.0]\n var j = 0\n for i in 0..3 {\n"
        "  a[j] += { let j = 2\n   if i > 1 { break }\n   x * f64(j) }\n }\n a[0]"
    ),
    "a field of a case": (
        "var a = x\n for i in 0..3 { a = match positive(x) { Some(a) => a + 1.0, None => { break } } }\n a"
    ),
    "a variable that an update reads": ("var t = 1.0\n t += { t = 10.0\n  if x > 3.0 { return 0.0 }\n  x }\n t"),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_name_that_a_left_value_hides(name: str) -> None:
    """What is moved into the value must not mean something else there."""
    enum = "enum Maybe { Some(x: f64), None }\nfn positive(x: f64) -> Maybe = if x > 0.0 { Some(x) } else { None }\n"
    with pytest.raises(difflang.DifflangError) as found:
        module(f"{enum}fn f(x: f64) -> f64 {{\n {HIDDEN[name]}\n}}").f(1.0)
    assert found.value.diagnostics[0].code == "DL0509"


@pytest.mark.parametrize(("text", "want"), [
    ("s += { var t = 0.0\n for w in x { if w > 4 { break }\n t += w }\n t }", 9.0),
    ("s += abs({ var t = 0.0\n for w in x { if w > 4 { break }\n t += w }\n t })", 9.0),
    ("if { var t = 0.0\n for w in x { if w > 4 { break }\n t += w }\n t > v } { break }\n s += v", 0.0),
    ("for u in { var t = x\n for w in x { if w > 4 { break }\n t = t + w }\n t } { s += u }", 3 * 17.0),
    ("while { var t = 0.0\n for w in x { if w > 4 { break }\n t += w }\n s + v < t } { s += 1.0 }", 2.0),
])  # fmt: skip
def test_a_loop_with_jumps_in_an_expression_of_a_loop(text: str, want: float) -> None:
    """Its jumps are its own: the loop around is written once, not again and again."""
    program = f"fn f(x: f64[n]) -> f64 {{\n  var s = 0.0\n  for v in x {{\n    {text}\n  }}\n  s\n}}\n"
    f: Any = difflang.loads(program, name="inner").f
    assert float(f.interpret(np.array([1.0, 2.0, 5.0]))) == want
