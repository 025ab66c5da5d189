"""Arrays of texts: made, indexed, gone through, compared and printed, on the host and in compiled functions."""

# ruff: noqa: E501 - a program is a line

from __future__ import annotations

import re
from pathlib import Path

import jax
import numpy as np
import pytest

import difflang
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data.file_access import FileAccess

ROWS = """record Row { group: str, x: f64 }
let rows = [Row("a", 1.0), Row("b", 2.0), Row("a", 3.0)]
"""
NAMES = 'let names: str[n] = ["a", "bb", "c"]\n'

PROGRAMS = {
    "their length": (NAMES + "print(n, names)", ['3 ["a", "bb", "c"]']),
    "items": (NAMES + "print(names[1], names[1..], names[[2, 0]], reverse(names))", ['bb ["bb", "c"] ["c", "a"] ["c", "bb", "a"]']),
    "loops": ('for (i, name) in enumerate(["x", "y"]) { print(i, "<{name:>3}>", name) }', ["0 <  x> x", "1 <  y> y"]),
    "yields": ('let more: str[n] = for i in 0..3 { yield "n{i}" }\nprint(n, more)', ['3 ["n0", "n1", "n2"]']),
    "yields of tuples": (ROWS + "let (g, x) = for r in rows { yield (r.group, 2.0 * r.x) }\nprint(g, x)", ['["a", "b", "a"] [2.0, 4.0, 6.0]']),
    "no yields": (ROWS + "let g: str[n] = for r in rows { if r.x > 9.0 { yield r.group } }\nprint(n, g)", ["0 []"]),
    "comparisons": (NAMES + 'let one = "c"\nprint(names == "bb", names != ["a", "a", "c"], names[0] == names[1], names == one)', ["[false, true, false] [false, true, false] false [false, false, true]"]),
    "grids": ('let g = [["a", "b"], ["c", "d"]]\nprint(g[1, 0], g[.., 1])', ['c ["b", "d"]']),
    "choices": (NAMES + 'let k = if n > 2 { names[1] } else { "none" }\nvar last = "?"\nfor name in names { last = name }\nprint(k, last)', ["bb c"]),
    "matches": (ROWS + 'for r in rows { match r.group { "a" => print(r.x), _ => print("other {r.group}") } }', ["1.0", "other b", "3.0"]),
    "host functions": (NAMES + 'host fn joined(names: str[k], mark: str) -> str {\n  var s = ""\n  for name in names { s = "{s}{name}{mark}" }\n  s\n}\nprint(joined(names, names[0]), joined(["p", "q"], "-"))', ["aabbaca p-q-"]),
    "records": (ROWS + "print(rows, rows.group[1], rows[1], rows[1..].group)", ['Row(group = ["a", "b", "a"], x = [1.0, 2.0, 3.0]) b Row(group = "b", x = 2.0) ["b", "a"]']),
    "rearranged": (ROWS + 'print(where(rows.x > 1.5, rows.group, ["x", "x", "x"]), concat(rows.group, ["z"]))', ['["x", "b", "a"] ["a", "b", "a", "z"]']),
    "assigned": ('var s = ["a", "b"]\ns[1] = "c"\ns[0] = s[1]\nprint(s)', ['["c", "c"]']),
    "in functions": (ROWS + 'fn total(rows: Row[n], of: str) -> f64 = sum(for r in rows => if r.group == of { r.x } else { 0.0 })\nprint(total(rows, "a"), total(rows, rows[1].group), grad(total)(rows, "a").x)', ["4.0 2.0 [1.0, 0.0, 1.0]"]),
    "matched in functions": (ROWS + 'fn signed(r: Row) -> f64 = match r.group { "a" => r.x, "b" => -r.x, _ => 0.0 }\nprint([for r in rows => signed(r)])', ["[1.0, -2.0, 3.0]"]),
    "printed in functions": (ROWS + 'fn show(rows: Row[n], i: i32) { print("{rows[i].group:>3}|", rows.group) }\nshow(rows, 1)', ['  b| ["a", "b", "a"]']),
    "in loops of functions": (ROWS + 'fn last(names: str[n]) -> str {\n  var s = names[0]\n  for name in names { s = name }\n  s\n}\nprint(last(["p", "q"]), last(rows.group))', ["q a"]),
    "in enums": ('enum Item { Named(name: str), Other }\nlet items = [Named("a"), Other, Named("b")]\nfor i in items { match i { Named(name) => print(name), Other => print("-") } }', ["a", "-", "b"]),
    "variables": (ROWS + 'var best = Row("z", 0.0)\nfor r in rows { if r.x > best.x { best = r } }\nprint(best, best.group == "a")\nbest = Row("known", 2.0)\nprint(best.group)', ['Row(group = "a", x = 3.0) true', "known"]),
    "variables of functions": (ROWS + 'fn top(rows: Row[n]) -> Row {\n  var best = Row("none", -inf)\n  for r in rows { if r.x > best.x { best = r } }\n  best\n}\nprint(top(rows), top(rows[..2]).group)', ['Row(group = "a", x = 3.0) b']),
    "branches and returns of functions": (ROWS + 'fn first(rows: Row[n], x: f64) -> str {\n  for r in rows { if r.x > x { return r.group } }\n  "nobody"\n}\nfn chosen(rows: Row[n], x: f64) -> str = if x > 0.0 { rows[1].group } else { "none" }\nprint(first(rows, 1.5), first(rows, 9.0), chosen(rows, 1.0), chosen(rows, -1.0))', ["b nobody b none"]),
    "recursion": (ROWS + 'fn nth(rows: Row[n], i: i32) -> str = if i == 0 { rows[1].group } else { nth(rows, i - 1) }\nprint(nth(rows, 2))', ["b"]),
    "host functions that yield": (ROWS + 'host fn loud(rows: Row[n]) -> str[n] { for r in rows { yield "{r.group}!" } }\nhost fn pick(names: str[n], i: i32 = 0) -> str { names[i] }\nprint(loud(rows), pick(["x", "y"], i = 1))', ['["a!", "b!", "a!"] y']),
    "enums in functions": ('enum Law { Named(s: str, k: f64), Free }\nlet laws = [Named("hooke", 1.0), Free, Named("newton", 2.0)]\nfn strength(l: Law, s: str) -> f64 = match l { Named(name, k) => if name == s { k } else { 0.0 }, Free => -1.0 }\nprint([for l in laws => strength(l, "newton")])', ["[0.0, -1.0, 2.0]"]),
    "in quotes": ('record P { s: str }\nfn f(x: f64) -> f64 {\n  print(P("\\"{x}\\t"), ("a\\\\b", ["\\n"]))\n  x\n}\nlet y = f(1.0)\nprint(["a\\"b"], P("\\""), "\\"")', [r'P(s = "\"1.0\t") ("a\\b", ["\n"])', r'["a\"b"] P(s = "\"") "']),
    "empty": ('let e = [""]\nprint(e, e[0] == "")', ['[""] true']),
}  # fmt: skip


def ran(program: str, engine: str = "interpret") -> list[str]:
    lines: list[str] = []
    checked = check_program(Source("test.dfl", f"float f64\n{program}\n"))
    run_program(checked, Engine(engine), FileAccess(Path.cwd()), 0, lines.append)
    return lines


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    program, printed = PROGRAMS[name]
    assert ran(program) == printed


@pytest.mark.parametrize("name", ["in functions", "printed in functions", "in quotes"])
def test_compiled_programs(name: str) -> None:
    program, printed = PROGRAMS[name]
    assert ran(program, "xla") == printed


WRONG = [
    ('print(sort(["a", "b"]))', "DL0313", "this is str[2]"),
    ('print(["a", "b"] < "b")', "DL0313", "texts can only be compared with == and !="),
    ('print(["a", "b"] + 1.0)', "DL0313", "host statements get numbers for them by `codes`"),
    ('print(["a", 1.0])', "DL0317", "the items of an array must have one type"),
    ('print(["a", "b"] == ["a", "b", "c"])', "DL0310", ""),
    ('let x: str[3] = ["a", "b"]', "DL0304", "declared str[3] but is str[2]"),
    ('let x: str = ["a", "b"]', "DL0304", "declared str but is str[2]"),
    ('let x: f64[2] = ["a", "b"]', "DL0304", "this is str[2]"),
    ('fn f(names: str[n]) -> f64 = 1.0\nprint(f("a"))', "DL0304", "this is str"),
    ('fn f(name: str) -> f64 = 1.0\nprint(f(["a"]))', "DL0304", "this is str[1]"),
    ('match ["a"] { "a" => print(1), _ => print(2) }', "DL0353", ""),
    ('print(["a", "b"][2])', "DL0326", ""),
    ('let n = ["a", "b"]\nprint([n[0], ["a", "b"]])', "DL0317", "the items of an array must have one type"),
    ('assert all(["a", "b"] == "a")', "DL0901", ""),
    (NAMES + 'assert all(names == "a")', "DL0901", 'this is ["a", "bb", "c"]'),
    (
        'let n = for i in 0..300 { yield "name {i}" }\nassert all(n != "name 150")',
        "DL0901",
        'this is "name 150" at [150]',
    ),
    (NAMES + "assert names[0] == names[1]", "DL0901", 'this is "bb"'),
    ('let x: str[2] = arg("x")', "DL0319", "an argument of a program must be a real number, a bool or a text"),
    (NAMES + "let x: f64[m] = read_csv(names)", "DL0319", "this is str[3], but a text is required"),
    ("fn f(names: str[..s]) -> f64 = 1.0", "DL0355", "not of texts, records or enums"),
    ("fn f(x: key[3]) -> f64 = 1.0", "DL0355", "there are no arrays of `key`"),
    (
        'fn f(i: i32) -> str[2] = ["a{i}", "b"]\nprint(f(1))',
        "DL0327",
        "cannot put a text with run-time parts into an array",
    ),
    (
        'fn f(x: f64, names: str[n]) -> str = if x > 0.0 { "x{x}" } else { names[0] }\nprint(f(1.0, ["a"]))',
        "DL0327",
        "",
    ),
    ('print(grad(|names| sum(for s in names => 1.0))(["a"]))', "DL0401", "str[1] has no tangent"),
]


@pytest.mark.parametrize(("program", "code", "said"), WRONG)
def test_mistakes_are_reported(program: str, code: str, said: str) -> None:
    with pytest.raises(DifflangError) as raised:
        ran(program)
    text = raised.value.render()
    assert f"error[{code}]" in text and said in text


def test_many_texts_are_one_compiled_program() -> None:
    """An item of an array of texts is a number: a loop over many of them compiles nothing again."""
    program = 'let names = for i in 0..2000 { yield "name {i}" }\nvar k = 0\nfor s in names { if s == "name 7" { k += 1 } }\nprint(k)'
    assert ran(program) == ["1"]


def test_from_python() -> None:
    module = difflang.loads(
        "float f32\nrecord Row { group: str, x: f32 }\n"
        "fn count(names: str[n], of: str) -> i32 = sum(for s in names => if s == of { 1 } else { 0 })\n"
        "fn turned(names: str[n]) -> (str, str[n]) = (names[0], reverse(names))\n"
        'fn total(rows: Row[n]) -> f32 = sum(for r in rows => if r.group == "a" { r.x } else { 0.0 })\n'
        'fn rows(n: dim) -> Row[n] = [for i in 0..n => Row(if i == 0 { "g" } else { "g" }, f32(i))]\n'
    )
    assert module.count(["a", "b", "a"], "a") == 2
    assert module.turned(["a", "b"]) == ("a", ("b", "a"))
    items = [module.Row("a", np.float32(1.0)), module.Row("b", np.float32(2.0))]
    assert module.total(items) == 1.0 and module.total.grad()(items)[0].x == 1.0
    rows = module.rows(n=3)
    assert rows.group == ("g", "g", "g") and rows[1].group == "g" and rows[1:].group == ("g", "g")
    with pytest.raises(DifflangError, match="declared str"):
        module.count([1, 2], "a")


def test_columns_of_texts_from_python() -> None:
    module = difflang.loads(
        "float f32\nrecord Row { group: str, x: f32 }\n"
        'fn total(rows: Row[n]) -> f32 = sum(for r in rows => if r.group == "a" { r.x } else { 0.0 })\n'
        "fn rows(names: str[n]) -> Row[n] = [for (i, s) in enumerate(names) => Row(s, f32(i))]\n"
    )
    rows = module.rows(["b", "a", "a"])
    assert [row.group for row in rows] == ["b", "a", "a"]
    assert module.total(rows) == 3.0 and jax.jit(module.total)(rows) == 3.0
    assert module.total({"group": ["a", "b"], "x": np.ones(2, np.float32)}) == 1.0
    for group, said in ((("a",), "has 1"), (("a", 1), "declared str"), ((("a",), ("b",)), "declared str")):
        with pytest.raises(DifflangError, match=said):
            module.total(module.Row(group, np.ones(2, np.float32)))


def test_columns_of_numpy_texts() -> None:
    module = difflang.loads(
        "float f64\nrecord Row { group: str, x: f64 }\n"
        "fn total(rows: Row[n], of: str) -> f64 = sum(for r in rows => if r.group == of { r.x^2 } else { 0.0 })\n"
        "fn turned(names: str[n, m]) -> str[n, m] = reverse(names, axis = 0)\n"
        "fn count(names: str[n]) -> i32 = i32(n)\n"
    )
    x = np.array([1.0, 2.0, 3.0])
    for group in (np.array(["a", "b", "a"]), np.array(["c", "a", "a"]), np.array(["b", "a", "a"], object)):
        mask = group == "a"
        rows = {"group": group, "x": x}
        for given in (rows, module.Row(group, x)):
            assert float(module.total(given, "a")) == np.sum(x[mask] ** 2)
        np.testing.assert_array_equal(module.total.grad()(rows, "a")["x"], np.where(mask, 2 * x, 0))
    assert module.turned(np.array([["a", "b"], ["c", "d"]])) == (("c", "d"), ("a", "b"))
    assert module.count(np.array([], str)) == 0
    for given, said in (
        (np.array(["a", None], object), "a NoneType is in the array"),
        (np.array([["a"]]), "declared str"),
        (np.array([1.0]), "declared str"),
        ("ab", "is declared str[n], but a str was given"),
        ([], "np.array(texts, str)"),
    ):
        with pytest.raises(DifflangError, match=re.escape(said)):
            module.count(given)


CHOSEN = """record P { name: str, x: f64 }
fn name(k: i32) -> str = if k > 0 { "up" } else { "down" }
fn walked(n: i32) -> (str, i32) {
  var s = "start"
  var k = n
  while k > 1 {
    s = if k % 2 == 0 { "even" } else { "odd" }
    k = if k % 2 == 0 { k // 2 } else { 3 * k + 1 }
  }
  (s, k)
}
fn here(n: i32) -> str = if n <= 0 { "a" } else { there(n - 1) }
fn there(n: i32) -> str = if n <= 0 { "b" } else { here(n - 1) }
fn pick(p: P, q: P, c: bool) -> P = if c { p } else { q }
fn weight(s: str) -> f64 = match s { "up" => 3.0, "down" => -1.0, _ => 0.0 }
fn f(x: f64) -> f64 = weight(name(i32(x))) * x^2
"""


@pytest.mark.parametrize("engine", ["interpret", "xla"])
def test_a_condition_of_the_run_chooses_a_text(engine: str) -> None:
    lines = ran(
        CHOSEN + "print(name(3), name(-1), walked(5), walked(1), [for k in 2..5 => here(k)])\n"
        'print(pick(P("a", 1.0), P("b", 2.0), false), if name(2) == "up" { 1 } else { 2 })\n'
        "print(f(2.0), grad(f)(2.0), grad(f)(-2.0), vmap(grad(f))([1.0, -3.0]))\n",
        engine,
    )
    assert lines == [
        'up down ("even", 1) ("start", 1) ["a", "b", "a"]',
        'P(name = "b", x = 2.0) 1',
        "12.0 12.0 4.0 [6.0, 6.0]",
    ]
