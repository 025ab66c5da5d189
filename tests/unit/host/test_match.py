"""`match` on the host: cases that do host work, leave functions and loops, and take enums of other files."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from difflang.cli import main
from support.language import codes, ran

ALONE = """\
float f64
enum Shape { Circle(r: f64), Box(w: f64, h: f64), Empty }
enum Label { Named(name: str), Unnamed }
fn pick(i: i32) -> Shape = if i == 0 { Circle(1.0) } else if i == 1 { Box(2.0, 3.0) } else { Empty }
host fn loud(x: f64) -> f64 { print("loud {x}")
  return x + 1.0 }
host fn area(s: Shape) -> f64 = match s { Circle(r) => loud(r), Box(w, h) => { let k = w * h
   loud(k) }, Empty => 0.0 }
host fn early(s: Shape) -> str {
  match s { Circle(_) => { return "circle" }, Empty => { return "empty" }, _ => {} }
  return "other"
}
host fn all_end(s: Shape) -> i32 {
  match s { Circle(_) => { return 1 }, _ => { return 2 } }
}
host fn next(s: Shape) -> Shape = match s { Circle(r) => Box(loud(r), 1.0), Box(w, h) => Empty, Empty => Circle(9.0) }
for i in 0..3 { print(area(pick(i)), early(pick(i)), all_end(pick(i)), next(pick(i))) }
print(early(Circle(1.0)), all_end(Empty), area(Box(1.0, 1.0)))
var s = Circle(1.0)
for i in 0..4 { s = next(s)
 print(s) }
let x = match pick(1) { Circle(r) => r, Box(w, h) => loud(w) + h, Empty => 0.0 }
print(x)
let y = 1.0 + (match pick(0) { Circle(r) => loud(r), _ => 0.0 })
print(y)
for i in 0..10 {
  match pick(i) { Circle(r) => { continue }, Empty => { break }, Box(w, h) => print("box", i) }
}
let ys = for i in 0..3 { match pick(i) { Circle(r) => { yield r }, Box(w, _) => { yield w }, Empty => { yield 0.5 } } }
print(ys)
match (pick(0), 3) { (Circle(r), 3) => print("both", r), _ => print("no") }
let t = "ab"
match t { "ab" => print("text"), _ => print("else") }
match 3 { 0 => print("zero"), n => print("n", n) }
var l = Named("a")
l = Named("b")
print(l)
match l { Named(n) => print("named {n}"), Unnamed => print("none") }
var c = 0
while c < 3 { s = match s { Circle(r) => Empty, e => next(e) }
  c += 1
  print(s) }
match true { true => print("yes"), false => print("no") }
match loud(1.0) { 2.0 => print("two"), v => print(v) }
"""
SHOWN = """\
loud 1.0
loud 1.0
2.0 circle 1 Box(w = 2.0, h = 1.0)
loud 6.0
7.0 other 2 Empty
0.0 empty 2 Circle(r = 9.0)
loud 1.0
circle 2 2.0
loud 1.0
Box(w = 2.0, h = 1.0)
Empty
Circle(r = 9.0)
loud 9.0
Box(w = 10.0, h = 1.0)
loud 2.0
6.0
loud 1.0
3.0
box 1
[1.0, 2.0, 0.5]
both 1.0
text
n 3
Named(name = "b")
named b
Empty
Circle(r = 9.0)
Empty
yes
loud 1.0
two
"""

SHAPES = """\
float f64
pub record Point { x: f64, y: f64 }
pub enum Shape { Circle(r: f64, at: Point), Box(w: f64), Empty }
enum Private { A, B }
pub host fn say(s: Shape) {
  match s { Circle(r, p) => print("circle {r} {p}"), Box(w) => print("box {w}"), Empty => print("empty") }
}
pub fn pick(i: i32) -> Shape = if i == 0 { Circle(1.0, Point(1.0, 2.0)) } else { Empty }
"""
QUALIFIED = """\
float f64
import "./shapes.dfl" as shapes
enum Tree { Leaf(p: shapes.Point), Holds(s: shapes.Shape) }
shapes.say(shapes.pick(0))
shapes.say(shapes.Box(2.0))
var s = shapes.pick(0)
s = shapes.Box(3.0)
shapes.say(s)
var t = Holds(s)
print(t)
t = Leaf(shapes.Point(1.0, 2.0))
print(t)
host fn go(s: shapes.Shape) -> f64 { match s { Circle(r, _) => print(r), other => shapes.say(other) }
 1.0 }
print(go(s))
"""
BY_NAME = """\
float f64
import "./shapes.dfl" (Shape, Circle, pick, say, Box, Point)
say(pick(0))
var s = Circle(1.0, Point(1.0, 2.0))
s = Box(3.0)
say(s)
match s { Circle(r, p) => print(r), Box(w) => say(Box(w + 1.0)), _ => {} }
host fn go(s: Shape) -> f64 { match s { Circle(r, _) => print(r), other => say(other) }
 1.0 }
print(go(s))
"""
IN_TEST = """
enum Opt { Some(x: f32), None }
var x = 1.0
test "a pattern's name is its own" {
  let y = match Some(2.0) { Some(x) => x, None => 0.0 }
  assert y == 2.0
}
"""


def shown(command: str, path: Path) -> str:
    result = CliRunner().invoke(main, [command, str(path), "--engine=interpret"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_cases_do_host_work_and_jump(tmp_path: Path) -> None:
    path = tmp_path / "alone.dfl"
    path.write_text(ALONE, encoding="utf-8")
    assert shown("run", path) == SHOWN


@pytest.mark.parametrize(
    ("program", "lines"),
    [
        (
            QUALIFIED,
            [
                "circle 1.0 Point(x = 1.0, y = 2.0)",
                "box 2.0",
                "box 3.0",
                "Holds(s = Box(w = 3.0))",
                "Leaf(p = Point(x = 1.0, y = 2.0))",
                "box 3.0",
                "1.0",
            ],
        ),
        (BY_NAME, ["circle 1.0 Point(x = 1.0, y = 2.0)", "box 3.0", "box 4.0", "box 3.0", "1.0"]),
    ],
    ids=["qualified", "by name"],
)
def test_enums_of_other_files(tmp_path: Path, program: str, lines: list[str]) -> None:
    (tmp_path / "shapes.dfl").write_text(SHAPES, encoding="utf-8")
    path = tmp_path / "main.dfl"
    path.write_text(program, encoding="utf-8")
    assert shown("run", path).splitlines() == lines


def test_a_name_of_a_pattern_is_no_variable_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tested.dfl"
    path.write_text(IN_TEST, encoding="utf-8")
    assert "1 passed" in shown("test", path)


def test_a_number_is_matched_as_one_of_its_type() -> None:
    """0.1 is another number in f32, wherever it is asked for."""
    source = """fn of(x: f32) -> i32 = match x { 0.1 => 1, _ => 2 }
var x = 0.1
let y: f32 = 0.100000001
let z: f16 = 0.1
match x { 0.1 => print("same", of(x)), _ => print("other", of(x)) }
match 1.0 * x { 0.1 => print("same"), _ => print("other") }
match y { 0.1 => print("same", of(y)), _ => print("other", of(y)) }
match z { 0.1 => print("same"), _ => print("other") }
match nan { 0.0 => print("same"), _ => print("other", of(nan)) }
"""
    assert ran(source)[1] == ["same 1", "same", "same 1", "same", "other 2"]


@pytest.mark.parametrize("case", ["-1", "256"])
def test_a_number_that_the_type_does_not_hold(case: str) -> None:
    assert codes(f"let x: u8 = 255\nmatch x {{ {case} => print(1), _ => print(2) }}\n") == [("DL0316", 2)]
