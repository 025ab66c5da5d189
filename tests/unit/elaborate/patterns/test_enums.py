"""Enums: what `match` takes, how a value of any variant is carried, derivatives through payloads in closed form."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

from math import cos, exp, inf, log, nan, pi, sin

import numpy as np
import pytest

import difflang
from support.language import answer, codes, ran
from support.values import compare

SHAPES = """
enum Shape { Circle(r: f64), Box(w: f64, h: f64, tag: i32), Empty }
fn area(s: Shape) -> f64 = match s {
  Circle(r) => pi * r^2
  Box(w, h, _) => w * h
  Empty => 0.0
}
fn pick(i: i32, x: f64) -> Shape {
  if i == 0 { Circle(x) } else if i == 1 { Box(w = x, h = 2.0, tag = 7) } else { Empty }
}
"""
ALL = "[for i in 0..3 => {}]"  # of a circle, a box and nothing

VALUES = [
    ("of_known_variants", "", "(area(Circle(2.0)), area(Box(2.0, 3.0, 1)), area(Empty))", (4 * pi, 6, 0)),
    ("chosen_by_the_run", "", ALL.format("area(pick(i, 3.0))"), [9 * pi, 6, 0]),
    ("fields_by_name", "", "area(Box(tag = 1, h = 2.0, w = 5.0))", 10),
    ("a_name_for_the_rest", "fn f(s: Shape) -> f64 = match s { Circle(r) => r, other => -area(other) }",
     ALL.format("f(pick(i, 3.0))"), [3, -6, 0]),
    ("a_constructor_is_a_function", "fn f(x: f64[n]) -> f64 = sum(for i => area(map_to(Circle, x[i])))\n"
     "fn map_to(g: (f64) -> Shape, x: f64) -> Shape = g(x)", "f([1.0, 2.0])", 5 * pi),
    ("in_a_record", "record P { s: Shape, k: f64 }\nfn f(i: i32) -> f64 {\n var p = P(Circle(1.0), 2.0)\n"
     " if i > 0 { p.s = Box(p.k, 3.0, 0) }\n let q = p with (s = pick(i, p.k))\n area(p.s) + area(q.s)\n}",
     ALL.format("f(i)"), [pi + 4 * pi, 6 + 4, 6]),
    ("in_a_tuple", "fn f(i: i32) -> f64 {\n let (s, t) = if i == 0 { (Circle(1.0), Empty) } else { (Empty, pick(i, 3.0)) }\n"
     " area(s) + 10.0 * area(t)\n}", ALL.format("f(i)"), [pi, 60, 0]),
    ("swapped", "fn f(i: i32) -> f64 {\n var a = pick(i, 1.0)\n var b = Box(2.0, 2.0, 0)\n (a, b) = (b, a)\n area(a) - area(b)\n}",
     ALL.format("f(i)"), [4 - pi, 2, 4]),
    ("carried_by_a_for", "fn f(n: i32) -> f64 {\n var s = Circle(1.0)\n var total = 0.0\n for i in 0..n {\n  match s {\n"
     "   Circle(r) => { s = Box(r, r + 1.0, i) }\n   Box(w, h, _) => {\n    total += w * h\n"
     "    s = if w > 3.0 { Empty } else { Circle(w + 1.0) }\n   }\n   Empty => { total += 100.0 }\n  }\n }\n total\n}",
     "[f(0), f(2), f(4), f(8), f(9)]", [0, 2, 8, 40, 140]),
    ("carried_by_a_while", "fn f(x: f64) -> f64 {\n var s = Circle(x)\n var n = 0\n while area(s) < 100.0 {\n"
     "  s = match s { Circle(r) => Box(2.0 * r, r, n), Box(w, h, _) => Circle(w + h), Empty => Empty }\n  n += 1\n }\n area(s)\n}",
     "f(1.0)", 81 * pi),
    ("as_a_condition_of_a_while", "fn f(n: i32) -> i32 {\n var s = Circle(1.0)\n var k = 0\n"
     " while (match s { Empty => false, _ => true }) {\n  k += 1\n  if k == n { s = Empty }\n }\n k\n}", "f(5)", 5),
    ("yielded", "fn f(n: dim) -> f64 {\n var x = 1.0\n let shapes = for i in 0..n {\n  x *= 2.0\n  yield pick(i, x)\n }\n"
     " var t = 0.0\n for s in shapes { t += area(s) }\n t\n}", "f(4)", 4 * pi + 8),
    ("an_array_of_them", "fn f(x: f64[n]) -> f64 {\n let s = [for i => if x[i] > 1.0 { Circle(x[i]) } else { Empty }]\n"
     " sum(for i => area(s[i])) + area(s[1])\n}", "f([2.0, 3.0, 0.5])", 4 * pi + 18 * pi),
    ("written_out", "fn f(i: i32) -> f64 = area([Circle(1.0), Empty, Box(2.0, 3.0, 0)][i])", ALL.format("f(i)"), [pi, 0, 6]),
    ("of_one_kind_only", "fn f(x: f64[n]) -> f64 = area([for i => Circle(x[i])][1])", "f([2.0, 3.0])", 9 * pi),
    ("returned_early", "fn f(n: i32) -> Shape {\n for i in 0..n { if i == 3 { return Circle(2.0) } }\n Empty\n}",
     "(area(f(3)), area(f(5)))", (0, 4 * pi)),
    ("return_from_a_case", "fn f(s: Shape) -> f64 {\n match s {\n  Circle(r) => { return r }\n  Empty => { return -1.0 }\n  _ => {}\n }\n"
     " let t = area(s)\n t + 0.5\n}", ALL.format("f(pick(i, 3.0))"), [3, 6.5, -1]),
    ("break_and_continue_in_cases", "fn f(n: i32) -> f64 {\n var t = 0.0\n for i in 0..n {\n  match pick(i - 2, 1.0) {\n"
     "   Circle(_) => { continue }\n   Box(_, _, _) => { break }\n   _ => {}\n  }\n  t += 1.0\n }\n t\n}",
     "(f(1), f(2), f(3), f(9))", (1, 2, 2, 2)),
    ("of_sizes", "enum Opt[n] { Some(x: f64[n]), None }\nfn total(o: Opt[n], y: f64[n]) -> f64 = match o { Some(x) => sum(x * y), None => -1.0 }\n"
     "fn opt(c: bool, x: f64[n]) -> Opt[n] = if c { Some(x) } else { None }",
     "(total(opt(true, [1.0, 2.0]), [3.0, 4.0]), total(opt(false, [1.0, 2.0]), [3.0, 4.0]), total(None, [1.0]))", (11, -1, -1)),
    ("of_any_type", "enum Opt[T] { Some(x: T), None }\nfn get[T](o: Opt[T], otherwise: T) -> T = match o { Some(x) => x, None => otherwise }\n"
     "fn f(i: i32) -> f64 = area(get(if i < 2 { Some(pick(i, 1.0)) } else { None }, Box(5.0, 5.0, 0)))",
     "(f(0), f(1), f(2), f64(get(Some(3), 4)))", (pi, 2, 25, 3)),
    ("nested", "enum Side { Left, Right }\nenum Move { Turn(to: Side), Go(by: f64, s: Shape), Stay }\n"
     "fn f(m: Move) -> f64 = match m {\n  Turn(Left) => 1.0\n  Go(b, Circle(r)) => b + r\n  Go(b, Box(2.0, h, _)) => b * h\n  Go(b, _) => b\n"
     "  Turn(Right) => 2.0\n  Stay => 3.0\n}\nfn m(i: i32) -> Move = if i < 0 { Stay } else if i == 9 { Turn(if i > 8 { Right } else { Left }) }"
     " else { Go(10.0, pick(i, 2.0)) }",
     "[f(m(-1)), f(m(9)), f(m(0)), f(m(1)), f(m(2)), f(Turn(Left)), f(Go(1.0, Box(3.0, 4.0, 1)))]", [3, 2, 12, 20, 10, 1, 1]),
    ("numbers_and_truths", "fn f(n: i32, b: bool) -> i32 = match (n, b) {\n (0, true) => 1\n (0, false) => 2\n (-1, _) => 3\n (m, true) => m\n _ => -5\n}",
     "[f(0, true), f(0, false), f(-1, true), f(8, true), f(8, false)]", [1, 2, 3, 8, -5]),
    ("texts", "fn f(name: str, x: f64) -> f64 = match name { \"double\" => 2.0 * x, \"half\" => x / 2.0, _ => x }",
     "[f(\"double\", 3.0), f(\"half\", 3.0), f(\"none\", 3.0)]", [6, 1.5, 3]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "declarations", "expression", "value"), VALUES, ids=[v[0] for v in VALUES])
def test_value(name: str, declarations: str, expression: str, value: object) -> None:
    compare(answer(expression, SHAPES + declarations), value)


SIZED = """
enum Kind[n] { On(w: f64[n]), Off }
record M[n] { k: Kind[n], b: f64 }
record W[n] { m: M[n], y: f64[n] }
let n = 7
fn total(m: M[n]) -> f64 = m.b + (match m.k { On(w) => sum(w), Off => 0.0 })
fn size(m: M[n]) -> i32 = n
fn chosen(c: bool, x: f64[n]) -> M[n] = M(k = if c { On(x) } else { Off }, b = 2.0)
fn off(x: f64[n]) -> M[n] = M(Off, 2.0)
fn beside(m: M[n], x: f64[n]) -> i32 = size(m)
fn inside(w: W[n]) -> i32 = size(w.m)
fn either(c: bool) -> i32 = size(if c { M(Off, 2.0) } else { M(On([1.0, 2.0]), 3.0) })
let here: M[3] = M(Off, 2.0)
let there = M(Off, 2.0)
let again: M[4] = there
"""


def test_a_record_whose_variant_does_not_tell_its_size() -> None:
    """The size is that of any written type that the value meets; who does not need it does not ask."""
    compare(answer("(total(M(Off, 2.0)), total(here + grad(total)(here)))", SIZED), (2, 3))
    told = (
        "[size(here), size(again), size(chosen(true, [1.0, 2.0])), size(off([1.0])), beside(M(Off, 1.0), [1.0, 2.0])]"
    )
    compare(answer(told, SIZED), [3, 4, 2, 1, 2])
    compare(answer("[inside(W(M(Off, 1.0), [1.0, 2.0])), either(true), either(false)]", SIZED), [2, 2, 2])


DERIVATIVES = [
    ("grad_in_an_enum", "fn f(i: i32) -> f64 = match grad(area)(pick(i, 3.0)) {\n  Circle(dr) => dr\n  Box(dw, dh) => 100.0 * dw + dh\n  Empty => -1.0\n}",
     ALL.format("f(i)"), [6 * pi, 203, -1]),
    ("value_plus_change", "fn f(i: i32) -> f64 {\n let s = pick(i, 3.0)\n area(s + -0.1 * grad(area)(s))\n}",
     ALL.format("f(i)"), [pi * (3 - 0.6 * pi) ** 2, 2.8 * 1.7, 0]),
    ("through_a_payload", "fn f(x: f64, i: i32) -> f64 = area(pick(i, x))", ALL.format("grad(f)(3.0, i)"), [6 * pi, 2, 0]),
    ("forward", "fn f(x: f64, i: i32) -> f64 = area(pick(i, x))\nfn d(i: i32) -> f64 {\n let (_, dy) = jvp(f)(3.0, i, 2.0)\n dy\n}",
     ALL.format("d(i)"), [12 * pi, 4, 0]),
    ("forward_in_an_enum", "fn d(i: i32) -> f64 {\n let s = pick(i, 3.0)\n let (_, dy) = jvp(area)(s, grad(area)(s))\n dy\n}",
     ALL.format("d(i)"), [(6 * pi) ** 2, 13, 0]),
    ("forward_of_an_enum", "fn d(i: i32) -> f64 {\n let (_, ds) = jvp[x](pick)(i, 3.0, 5.0)\n match ds { Circle(dr) => dr, Box(dw, dh) => dw - dh, Empty => 7.0 }\n}",
     ALL.format("d(i)"), [5, 5, 7]),
    ("second_order", "fn f(x: f64, i: i32) -> f64 = exp(area(pick(i, x)))",
     ALL.format("grad(grad(f))(0.5, i)"), [(2 * pi + pi**2) * exp(pi / 4), 4 * exp(1), 0]),
    ("forward_over_reverse", "fn f(x: f64, i: i32) -> f64 = sin(area(pick(i, x)))", ALL.format("hvp(f)(0.5, i, 1.0)"),
     [2 * pi * cos(pi / 4) - pi**2 * sin(pi / 4), -4 * sin(1), 0]),
    ("of_a_gradient_in_an_enum", "fn f(x: f64, i: i32) -> f64 = norm(grad(area)(pick(i, x)))^2",
     ALL.format("grad(f)(3.0, i)"), [8 * pi**2 * 3, 6, 0]),
    ("hvp_in_an_enum", "fn f(i: i32) -> f64 {\n let s = pick(i, 3.0)\n norm(hvp(area)(s, grad(area)(s)))\n}",
     ALL.format("f(i)"), [2 * pi * 6 * pi, 13**0.5, 0]),
    ("through_a_loop", "fn f(x: f64, n: i32) -> f64 {\n var s = Circle(x)\n for i in 0..n {\n"
     "  s = match s { Circle(r) => Box(r, r * r, 0), Box(w, h, _) => Circle(w + h), Empty => Empty }\n }\n area(s)\n}",
     "[grad(f)(2.0, 0), grad(f)(2.0, 1), grad(f)(2.0, 2), grad(grad(f))(2.0, 1)]", [4 * pi, 12, 2 * pi * 6 * 5, 12]),
    ("through_a_while", "fn f(x: f64) -> f64 {\n var s = Circle(x)\n while area(s) < 50.0 {\n"
     "  s = match s { Circle(r) => Box(r, 2.0 * r, 0), Box(w, h, _) => Circle(w * h), Empty => Empty }\n }\n area(s)\n}",
     "[f(1.5), grad(f)(1.5)]", [pi * 4.5**2, pi * 4 * 4 * 1.5**3]),
    ("of_an_array_of_them", "fn f(x: f64[n]) -> f64 = sum(for s in [for i => if x[i] > 1.0 { Circle(x[i]) } else { Box(x[i], 3.0, 0) }] => area(s))",
     "grad(f)([2.0, 0.5])", [4 * pi, 3]),
    ("no_change_at_all", "fn f(i: i32) -> f64 {\n let s = pick(i, 2.0)\n let o = ones_like(s)\n area(s + zeros_like(s)) + 10.0 * norm(o)^2\n}",
     ALL.format("f(i)"), [4 * pi + 10, 4 + 20, 0]),
    ("of_a_variant_without_fields", "fn f(x: f64) -> f64 {\n let s = Empty\n let (a, d) = value_and_grad(area)(s)\n let (b, c) = jvp(area)(s, d)\n"
     " area(s + d) + a + b + c + (match d { Empty => x, _ => 0.0 })\n}", "f(3.0)", 3),
    ("measured_where_a_part_holds_no_number", "record P { s: Shape, k: f64 }\nfn f(p: P) -> f64 = p.k^2 + area(p.s)\n"
     "fn g(i: i32) -> f64 {\n let d = grad(f)(P(pick(i, 3.0), 2.0))\n dot(d, d)\n}",
     "(dot(grad(f)(P(Empty, 2.0)), ones_like(P(Empty, 2.0))), norm(grad(area)(Empty)), g(1), g(2))", (4, 0, 16 + 13, 16)),
    ("measured_in_depth", "enum In { Pair(a: f64, b: f64), Out }\nenum Deep { One(i: In), Two(x: f64[2]) }\n"
     "fn value(d: Deep) -> f64 = match d { One(Pair(a, b)) => a * b, One(Out) => 1.0, Two(x) => sum(x^2) }\n"
     "fn deep(i: i32) -> Deep = if i < 2 { One(if i == 0 { Pair(3.0, 4.0) } else { Out }) } else { Two([1.0, 2.0]) }\n"
     "fn f(i: i32) -> f64 = norm(grad(value)(deep(i)))", ALL.format("f(i)"), [5, 0, 20**0.5]),
    ("of_a_known_variant", "", "grad(area)(Box(2.0, 3.0, 1))", (3, 2)),
    ("whole_jacobians_of_a_known_variant", "fn f(b: Shape) -> f64[2] = match b { Box(w, h, _) => [w * h, w], _ => [0.0, 0.0] }",
     "jacobian(f)(Box(2.0, 3.0, 1))", ([3, 1], [2, 0])),
    ("pulled_back_to_a_known_variant", "fn f(x: f64) -> (f64, f64) {\n let (y, pull) = vjp(area)(Box(x, 3.0, 1))\n match pull(y) { Box(a, b) => (a, b), _ => (0.0, 0.0) }\n}",
     "f(2.0)", (18, 12)),
    ("descent", "fn f(n: i32) -> f64 {\n var s = pick(1, 3.0)\n for i in 0..n { s = s + -0.25 * grad(|t| area(t)^2)(s) }\n area(s)\n}",
     "f(0)", 6),
]  # fmt: skip


@pytest.mark.parametrize(("name", "declarations", "expression", "value"), DERIVATIVES, ids=[d[0] for d in DERIVATIVES])
def test_derivative(name: str, declarations: str, expression: str, value: object) -> None:
    compare(answer(expression, SHAPES + declarations), value)


MAPS = """
enum Solid { Ball(r: f64), Bar(w: f64, h: f64, n: i32), Void }
fn size(s: Solid) -> f64 = match s { Ball(r) => r^3, Bar(w, h, _) => w * h^2, Void => 1.0 }
fn solid(i: i32, x: f64) -> Solid = if i == 0 { Ball(x^2) } else if i == 1 { Bar(w = x, h = 2.0 * x, n = 3) } else { Void }
fn other(s: Solid) -> Solid = match s { Ball(r) => Bar(r, r^2, 2), Bar(w, h, _) => Ball(w * h), Void => Void }
fn pair(d: D(Solid)) -> f64[2] = match d { Ball(r) => [r, 0.0], Bar(w, h) => [w, h], Void => [-1.0, -1.0] }
fn pulled(i: i32) -> f64[2] {
  let (s, pull) = vjp(other)(solid(i, 3.0))
  pair(pull(grad(size)(s)))
}
fn direct(i: i32) -> f64[2] = pair(grad(|s| size(other(s)))(solid(i, 3.0)))
fn pushed(i: i32) -> f64[2] {
  let (_, push) = linearize[x](solid)(i, 3.0)
  pair(2.0 * push(0.5))
}
fn turned(i: i32) -> f64 {
  let (s, push) = linearize[x](solid)(i, 3.0)
  transpose(push)(grad(size)(s))
}
fn rows(i: i32) -> f64[2] = pair(jacobian(size)(solid(i, 3.0)))
fn columns(i: i32) -> f64[2] = pair(jacobian[x](solid)(i, 3.0))
fn curved(i: i32) -> f64[2, 2] = match hessian(size)(solid(i, 3.0)) {
  Ball(dr) => [pair(dr), [0.0, 0.0]]
  Bar(dw, dh) => [pair(dw), pair(dh)]
  Void => zeros(2, 2)
}
fn coefficients(i: i32) -> f64[3] = match jet[x](solid, order = 2)(i, 3.0) { Ball(r) => r, Bar(w, h) => w + h, Void => zeros(3) }
fn by_lambda(i: i32) -> f64 {
  let measured = linear |d: D(Solid)| match d { Ball(r) => 3.0 * r, Bar(w, h) => w - 2.0 * h, Void => 0.0 }
  let twice = linear |d| 2.0 * d
  measured(twice(grad(size)(solid(i, 3.0))))
}
fn of_two(i: i32, j: i32) -> f64 {
  let (_, push) = linearize(size)(solid(i, 3.0))
  push(grad(size)(solid(j, 3.0)))
}
"""


def test_linear_maps_and_jacobians_of_what_the_run_chooses() -> None:
    """What a map takes and gives is of the variants that were there where it was made."""
    each = "[for i in 0..3 => {}(i)]"
    compare(answer(each.format("pulled"), MAPS), [[5 * 9.0**4, 0], [3 * 18**2 * 6, 3 * 18**2 * 3], [-1, -1]])
    compare(answer(each.format("direct"), MAPS), answer(each.format("pulled"), MAPS))
    compare(answer(each.format("pushed"), MAPS), [[6, 0], [1, 2], [-1, -1]])
    compare(answer(each.format("turned"), MAPS), [6 * 9**4 / 27, 36 + 2 * 36, 0])
    compare(answer(each.format("rows"), MAPS), [[243, 0], [36, 36], [-1, -1]])
    compare(answer(each.format("columns"), MAPS), [[6, 0], [1, 2], [-1, -1]])
    compare(answer(each.format("curved"), MAPS), [[[54, 0], [0, 0]], [[0, 12], [12, 6]], [[0, 0], [0, 0]]])
    compare(answer(each.format("coefficients"), MAPS), [[9, 6, 1], [9, 3, 0], [0, 0, 0]])
    compare(answer(each.format("by_lambda"), MAPS), [6 * 243, 2 * 36 - 4 * 36, 0])
    assert codes(f"float f64\n{MAPS}print(of_two(1, 0))\n")[0][0] == "DL0901"


NESTED = """
enum Act { Apply(f: (f64) -> f64), Skip(x: f64) }
fn times(k: f64) -> (f64) -> f64 = |x| k * x
fn plus(k: f64) -> (f64) -> f64 = |x| x + k
fn value(a: Act) -> f64 = match a { Apply(f) => f(2.0)^2, Skip(x) => x^2 }
fn act(i: i32) -> Act = if i < 2 { Apply(if i == 0 { times(3.0) } else { plus(3.0) }) } else { Skip(5.0) }
fn listed_otherwise(i: i32) -> Act = if i < 2 { Apply(if i == 1 { plus(3.0) } else { times(3.0) }) } else { Skip(5.0) }
fn slope(i: i32, j: i32) -> f64 {
  let (_, dy) = jvp(value)(act(i), grad(value)(listed_otherwise(j)))
  dy
}
fn acts(x: f64[n]) -> f64 = sum(for a in [for i => if x[i] > 1.0 { Apply(times(x[i])) } else { Skip(x[i]) }] => value(a))
fn of_all(x: f64[n]) -> (f64, f64, f64) {
  let all = [for i => if x[i] > 1.0 { Apply(times(x[i])) } else { Skip(x[i]) }]
  let total = |s| sum(for a in s => value(a))
  let (_, pull) = vjp(total)(all)
  let g = pull(1.0)
  (norm(g), dot(g, zeros_like(all) + 2.0 * g), total(all + 0.1 * g))
}
"""


def test_a_function_in_a_variant_that_is_not_there_asks_for_nothing() -> None:
    compare(answer("[slope(0, 0), slope(1, 1), slope(2, 2)]", NESTED), [24**2, 10**2, 10**2])
    assert codes(f"float f64\n{NESTED}print(slope(0, 1))\n")[0][0] == "DL0901"


def test_changes_of_arrays_of_enums_are_vectors() -> None:
    """Added, measured and moved along place by place."""
    compare(answer("of_all([2.0, 0.5])", NESTED), (257**0.5, 2 * 257, 7.2**2 + 0.6**2))


POISON = """
enum Num { Plain(x: f64), Root(y: f64, z: f64), Nothing }
fn value(s: Num) -> f64 = match s { Plain(x) => x * x, Root(y, z) => sqrt(y) / z + log(y), Nothing => 1.0 }
fn make(i: i32, x: f64) -> Num = if i == 0 { Plain(x) } else if i == 1 { Root(x - 2.0, x) } else { Nothing }
fn f(x: f64, i: i32) -> f64 = value(make(i, x))
fn changed(x: f64, i: i32) -> f64 {
  let s = make(i, x)
  let g = grad(value)(s)
  norm(1.0 / (g * g + g)) + value(s + log(g * g + 1.0))
}
"""


def test_a_variant_that_is_not_there_never_makes_a_nan() -> None:
    """Where it holds zeros in the place of fields, `sqrt`, `log` and a division by them are not run."""
    compare(answer("[for i in 0..3 => f(2.0, i)]", POISON), [4, -inf, 1])
    compare(answer("[for i in 0..3 => grad(f)(1.0, i)]", POISON), [2, nan, 0])
    compare(answer("[for i in 0..3 => grad(grad(f))(1.0, i)]", POISON), [2, nan, 0])
    compare(answer("(grad(f)(2.0, 0), hvp(f)(2.0, 0, 1.0), hvp(f)(2.0, 2, 1.0))", POISON), (4, 2, 0))


BATCHED = """
enum Num { Plain(x: f64), Root(y: f64, z: f64), Nothing }
fn value(s: Num) -> f64 = match s { Plain(x) => x * x, Root(y, z) => sqrt(y) / z + log(y), Nothing => 1.0 }
fn make(x: f64) -> Num = if x < 1.0 { Plain(x) } else if x < 3.0 { Root(x, x) } else { Nothing }
fn side_by_side(x: f64[n]) -> f64 = sum(for i => value(make(x[i])))
fn stacked(x: f64[n]) -> f64 { let s = [for i => make(x[i])]
 sum(for e in s => value(e)) }
fn chosen(x: f64[n]) -> f64 = sum(for i => (if x[i] < 1.0 { |y| y * x[i] } else if x[i] < 3.0 { |y| log(y - 1.0) } else { |y| 1.0 })(x[i]))
"""


@pytest.mark.parametrize("interpreted", [True, False])
def test_side_by_side_no_lane_poisons_another(interpreted: bool) -> None:
    """Where lanes are of different variants and a `cond` becomes a selection: at zeros, where `sqrt` and `log` are not finite."""
    module, x = difflang.loads(f"float f64\n{BATCHED}"), np.array([0.5, 2.0, 4.0, 0.0])
    root = [0, -0.5 * 2**-1.5 + 0.5, 0, 0]
    for name, want in (
        ("side_by_side", np.add([1, 0, 0, 0], root)),
        ("stacked", np.add([1, 0, 0, 0], root)),
        ("chosen", [1, 1, 0, 0]),
    ):
        f = module[name].grad()
        np.testing.assert_allclose(f.interpret(x) if interpreted else f(x), want, rtol=1e-14)
    hvp = module.side_by_side.hvp()
    curved = hvp.interpret(x, np.ones(4)) if interpreted else hvp(x, np.ones(4))
    np.testing.assert_allclose(curved, [2, 0.75 * 2**-2.5 - 0.25, 0, 2], rtol=1e-13)


def test_changes_are_reckoned_with_for_the_variant_that_is_there() -> None:
    """Of the others nothing is computed, where `1 / g` would be infinite."""
    moved = 2 + log(17)
    compare(answer("(changed(2.0, 0), changed(2.0, 2))", POISON), (1 / 20 + moved**2, 1))
    slope = -(2 * 8 + 2) / (16 + 4) ** 2 + 2 * moved * (1 + 16 / 17)
    compare(answer("(grad(changed)(2.0, 0), grad(changed)(2.0, 2))", POISON), (slope, 0))


def test_a_known_variant_decides_before_the_run() -> None:
    """No branch is left, nor a tag."""
    module = difflang.loads("float f64\n" + SHAPES + "fn f(x: f64) -> f64 = area(Box(x, 2.0, 0)) + area(Empty)\n")
    text = module.f.ir("optimized", "f64")
    assert "mul" in text
    assert "cond" not in text
    assert "i32" not in text


def test_both_engines_and_jax_agree_on_all_of_it() -> None:

    functions = [d for name, d, _, _ in DERIVATIVES if name in ("second_order", "through_a_loop", "through_a_while")]

    for text, call in zip(functions, ("grad(f)(0.5, {})", "grad(f)(2.0, {})", "grad(f)(1.5)"), strict=True):
        module = difflang.loads(f"float f64\n{SHAPES}{text}\nfn d(i: i32) -> f64 = {call.format('i')}\n")
        for i in range(3):
            np.testing.assert_allclose(module.d(i), module.d.interpret(i), rtol=1e-13)


def test_changes_of_two_variants_are_not_added() -> None:
    wrong = SHAPES + "fn f(i: i32, j: i32) -> f64 = area(pick(i, 1.0) + grad(area)(pick(j, 1.0)))\n"
    compare(answer("f(1, 1)", wrong), 9)
    assert codes(f"float f64\n{wrong}print(f(1, 0))\n")[0][0] == "DL0901"


def test_host_statements_hold_print_and_match_them() -> None:
    _, lines = ran(
        f"float f64\n{SHAPES}"
        "var s = Circle(1.0)\nfor i in 0..3 {\n  print(s)\n  s = pick(i, 2.0)\n}\nprint(s, grad(area)(pick(1, 3.0)))\n"
        'for i in 0..3 {\n  let t = pick(i, 4.0)\n  match t {\n    Circle(r) => print("circle {r}")\n'
        "    Box(w, h, tag) => {\n      let k = w * h\n      print(k, tag)\n    }\n    other => print(other)\n  }\n}\n"
        'host fn say(s: Shape) { match s { Empty => print("empty"), _ => print(area(s)) } }\nsay(s)\nsay(Circle(1.0))\n'
    )
    assert lines == [
        "Circle(r = 1.0)", "Circle(r = 2.0)", "Box(w = 2.0, h = 2.0, tag = 7)", "Empty D(Box)(w = 2.0, h = 3.0)",
        "circle 4.0", "8.0 7", "Empty", "empty", "3.141592653589793",
    ]  # fmt: skip


WRONG = [
    ("fn f(s: Shape) -> f64 = s.r", "DL0206"),
    ("fn f(s: Shape) -> f64 = s[0]", "DL0313"),
    ("fn f(s: Shape) -> Shape = s + 1.0", "DL0314"),
    ("fn f(s: Shape) -> f64 {\n let x = match s { Circle(r) => { let k = r }, _ => {} }\n 1.0\n}", "DL0327"),
    ("enum Opt[n] { Some(x: f64[n]), None }\nfn f(c: bool, x: f64[n], y: f64[m]) -> f64 {\n"
     " let o = if c { Some(x) } else { Some(y) }\n 1.0\n}", "DL0327"),
    ("enum Opt[n] { Some(x: f64[n]), None }\nfn f(o: Opt) -> f64 = 1.0", "DL0302"),
    ("fn f(s: Shape) -> f64 = match [s] { _ => 1.0 }", "DL0353"),
    ("fn f(x: f64) -> f64 = area(x)", "DL0304"),
    ("enum Way { Left, Right }\nfn g(w: Way) -> f64 = match w { Left => 1.0, Right => 2.0 }\nfn f(w: Way) -> Way = w + grad(g)(w)", "DL0401"),
    ("fn f(c: bool) -> Shape = if c { Circle(1.0) } else { 2.0 }", "DL0327"),
    ("enum Num { Plain(x: f64), Zero }\nfn f(c: bool) -> f64 {\n let n = if c { Plain(1.0) } else { Zero }\n"
     " deriv(|m| match m { Plain(x) => x, Zero => 0.0 })(n)\n}", "DL0405"),
    ("fn f(s: Shape[3][2]) -> f64 = 1.0", "DL0355"),
    ("fn f(s: Shape[3]) -> f64 = area(s)", "DL0304"),
    (f"{NESTED}fn f(x: f64[n]) -> f64 {{\n let all = [for i => act(i32(x[i]))]\n norm(jacobian(|s| sum(for a in s => value(a)))(all))\n}}\nprint(f([1.0]))", "DL0411"),
    (f"{SIZED}print(size(M(Off, 2.0)))", "DL0204"),
    (f"{SIZED}fn all(m: M[n]) -> f64[n] = ones(n)\nprint(all(there))", "DL0204"),
    ("enum Opt[T] { Some(x: T), None }\nfn f[T: float](o: Opt[T]) -> i32 = i32(T(1))\nprint(f(None))", "DL0204"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "code"), WRONG)
def test_mistakes_are_reported(source: str, code: str) -> None:
    assert codes(f"float f64\n{SHAPES}{source}\n")[0][0] == code


MAYBE = """enum Maybe[n] { Some(x: f64[n]), None }
fn size(m: Maybe[n]) -> i32 = n
fn none(k: dim) -> Maybe[k] = None
fn twice(x: f64[n]) -> i32 {
  let m: (Maybe[2 * n], f64) = (None, 1.0)
  size(m.first())
}
fn first(m: (Maybe[n], f64)) -> Maybe[n] {
  let (a, _) = m
  a
}
"""


def test_a_written_type_tells_what_an_empty_variant_does_not() -> None:
    compare(answer("(size(known), size(none(4)), twice([1.0, 2.0]))", MAYBE + "let known: Maybe[3] = None"), (3, 4, 4))


@pytest.mark.parametrize(
    ("use", "code"),
    [("let m: Maybe[3] = none(2)", "DL0304"), ("fn f(x: f64[n]) -> Maybe[n + 1] = none(n)", "DL0304")],
)
def test_sizes_of_an_empty_variant_must_agree(use: str, code: str) -> None:
    assert [c for c, _ in codes(f"float f64\n{MAYBE}{use}\n")] == [code]
