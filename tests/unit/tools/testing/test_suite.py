"""Tests, examples and rules of a file: which there are, what each may use, and what is said of those that fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data.file_access import FileAccess
from difflang.host.let_dependencies import required_lets
from difflang.tools.testing.suite import Outcome, Suite, SuiteOptions

INTERPRETED = Engine("interpret")


def suite(text: str, folder: Path | None = None, seed: int = 0) -> Suite:
    path = folder / "file.dfl" if folder is not None else None
    return Suite(Source("file.dfl", text), path, SuiteOptions(INTERPRETED, seed))


def run(text: str, folder: Path | None = None, seed: int = 0) -> list[Outcome]:
    found = suite(text, folder, seed)
    return [found.run(n) for n in range(len(found.cases))]


def results(text: str) -> dict[str, str]:
    return {outcome.case.title: outcome.result for outcome in run(text)}


# ---- Which there are


def test_every_kind_in_the_order_of_the_file() -> None:
    text = """## The head of the file.
## > f(2.0)
## 4.0

## Squares.
## > f(3.0)
## 9.0
fn f(x: f64) -> f64 = x^2
rule f(x) { (f(x), linear |dx| 2 * x * dx) }
test "zero" { assert f(0.0) == 0.0 }
record P {
  ## The place.
  ## > P(x = 1.0)
  ## P(x = 1.0)
  x: f64
}
## > three
## 3
let three = 3
"""
    found = suite(text)
    assert [(c.line, c.title) for c in found.cases] == [
        (2, "example file"), (6, "example f"), (9, "rule f"), (10, 'test "zero"'), (13, "example P"),
        (17, "example three"),
    ]  # fmt: skip
    assert {found.run(n).result for n in range(6)} == {"passed"}


@pytest.mark.parametrize(
    "text",
    [
        "# > f(1)\n# 2\nfn f(x: i32) -> i32 = x\n",  # no doc comment
        "let x = 1\n## > x\n## 2\nprint(x)\n",  # documents nothing
        "fn f(x: i32) -> i32 {\n  ## > x\n  ## 2\n  x\n}\n",  # inside a function
        "## >x\n## 2\nlet x = 1\n",  # no example: `>` and a space
    ],
)
def test_what_is_no_example(text: str) -> None:
    assert suite(text).cases == []


def test_a_file_that_does_not_check_is_one_failure() -> None:
    (outcome,) = run('fn f(x: f32) -> f32 = y\ntest "one" { assert true }\n')
    assert (outcome.case.kind, outcome.case.line, outcome.result) == ("check", 1, "failed")
    assert outcome.codes == ("DL0201",)
    (outcome,) = run("## > f(\n## 1\nfn f(x: f32) -> f32 = x\n")
    assert outcome.codes == ("DL0103",) and "file.dfl:1:7" in outcome.report


def test_tests_are_checked_with_the_file_and_examples_where_they_are_asked_for() -> None:
    source = Source("f.dfl", '## > f(true)\n## 1.0\nfn f(x: f32) -> f32 = x\ntest "t" { assert f([1.0]) == 1.0 }\n')
    assert [d.span.position[0] for d in check_program(source).errors if d.span] == [4]
    assert sorted(d.span.position[0] for d in check_program(source, examples=True).errors if d.span) == [
        1,
        4,
    ]


# ---- What they may use


def test_they_do_not_run_with_the_file() -> None:
    shown: list[str] = []
    checked = check_program(Source("f.dfl", 'test "no" {\n  print("no")\n  assert false\n}\nprint("yes")\n'))
    run_program(checked, INTERPRETED, FileAccess(Path()), 0, shown.append)
    assert shown == ["yes"]


def test_names_end_with_the_test() -> None:
    text = 'let a = 1\ntest "one" {\n  let a = 2\n  let b = a\n  assert a == 2 and b == 2\n}\n'
    assert results(text + 'test "two" { assert a == 1 }\n')['test "two"'] == "passed"
    (outcome,) = run(text + 'test "two" { assert b == 2 }\n')
    assert outcome.codes == ("DL0201",)


def test_only_the_lets_that_are_needed_run() -> None:
    text = """let unread: f32[n] = read_npy("missing.npy")
let a = 2.0
let b = a * 3.0
fn f(x: f32) -> f32 = x.scaled()
fn scaled(x: f32) -> f32 = x * b
test "through functions and methods" { assert f(2.0) == 12.0 }
test "shadowed" {
  let unread = 1
  assert unread == 1
}
record P { unread: f32 }
test "a field of that name" { assert P(unread = 1.0).unread == 1.0 }
test "read" { assert sum(unread) == 0.0 }
"""
    assert list(results(text).values()) == ["passed", "passed", "passed", "failed"]
    checked = suite(text).checked
    found = required_lets(checked.module, checked.items, checked.items[5].body)  # type: ignore[union-attr]
    assert [item.pattern.span.text for item in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("declared", "call"),
    [
        ("fn f(x: f32[k]) -> f32 = sum(x)", "f([3.0])"),
        ("fn f(k: f32) -> f32 = k", "f(3.0)"),
        ("fn f(k: f32) -> f32 = k^2 / 2", "grad[k](f)(3.0)"),
        ("fn f[k: float](x: k) -> k = x", "f(3.0)"),
        ("fn f(x: f32) -> f32 {\n  let k = x\n  k\n}", "f(3.0)"),
        ("fn f(x: f32) -> f32 {\n  fn k(y: f32) -> f32 = y\n  k(x)\n}", "f(3.0)"),
        ("fn f(x: f32) -> f32 = (|k| k + 1)(x - 1)", "f(3.0)"),
        ("fn f(x: f32) -> f32 = sum(for k in 0..3 => x * f32(k))", "f(1.0)"),
        ("fn f(x: f32) -> f32 {\n  var s = x\n  for k in 0..3 {\n    s += f32(k)\n  }\n  s\n}", "f(0.0)"),
        ("fn f(x: f32) -> f32 = match 3 {\n  0 => x\n  k => f32(k) + x\n}", "f(0.0)"),
        ("fn f(k: f32) -> f32 = k\nrule f(k) { (f(k), linear |dk| dk) }", "f(3.0)"),
    ],
)
def test_a_name_that_a_function_binds_itself_needs_no_let(declared: str, call: str) -> None:
    (*_, outcome) = run(f'let k: f32[n] = read_npy("missing.npy")\n{declared}\ntest "t" {{ assert {call} == 3.0 }}\n')
    assert outcome.result == "passed", outcome.report


@pytest.mark.parametrize(
    "declared",
    [
        "fn f(x: f32) -> f32 {\n  let y = k\n  let k = x\n  y\n}",
        "fn f(x: f32) -> f32 {\n  if x > 5 {\n    let k = x\n    print(k)\n  }\n  k\n}",
        "fn f(x: f32, y: f32 = k) -> f32 {\n  let k = y\n  k\n}",
        "fn f(x: f32) -> f32 = (|k| k)(k)",
        "fn f(x: f32) -> f32 = sum(for k in [k] => k)",
        "fn f(x: f32) -> f32 = (|k| k + k)(1.0) * 0 + k",
    ],
)
def test_a_name_is_of_the_file_until_a_function_binds_it_and_where_it_binds_it_no_more(declared: str) -> None:
    outcome, *_ = run(f'let k = 3.0\n{declared}\ntest "t" {{ assert f(1.0) == 3.0 }}\n')
    assert outcome.result == "passed", outcome.report


def test_a_test_sees_what_stands_above_it() -> None:
    """A name that is bound twice is what it was there; an example sees the end of the file."""
    text = 'let a = 1\ntest "first" { assert a == 1 }\nlet a = a + 1\ntest "second" { assert a == 2 }\n'
    assert set(results(text + "## > a\n## 2\nfn f(x: f32) -> f32 = x\n").values()) == {"passed"}
    (outcome,) = run('test "above" { assert b == 1 }\nlet b = 1\n')
    assert outcome.codes == ("DL0201",)


@pytest.mark.parametrize(
    ("body", "fine"),
    [("assert v == 1", False), ("v = 2", False), ("assert w == 2", False), ("let v = 1\n  assert v == 1", True),
     ("let f = |v| v + 1\n  assert f(1) == 2", True)],
)  # fmt: skip
def test_variables_of_the_file_have_no_value_in_a_test(body: str, fine: bool) -> None:
    outcome, *_ = run(f'var v = 1\nlet w = v + 1\ntest "t" {{\n  {body}\n}}\n')
    assert outcome.result == "passed" if fine else outcome.codes == ("DL0211",)


def test_what_only_looks_like_a_variable_of_the_file() -> None:
    """A field, a parameter and a name of its own are none; a host function that reads one is."""
    text = """record M { rate: f64 }
var rate = 0.1
let m = M(rate = 2.0)
let f = |rate| 2.0 * rate
let field = m.rate
host fn fine(rate: f64) { print(rate) }
host fn reads(x: f64) { print(rate) }
"""
    fine = text + 'test "t" {\n  fine(f(field))\n  assert field == 2.0\n}\n'
    (outcome,) = run(fine)
    assert (outcome.result, outcome.output) == ("passed", "4.0")
    (outcome,) = run(text + 'test "t" { reads(1.0) }\n')
    assert outcome.codes == ("DL0211",) and "it depends on `rate`" in outcome.report


def test_each_draws_anew_from_the_seed() -> None:
    """Whatever ran before, and also for the `let`s of the file."""
    text = 'let x = normal(2)\ntest "a" { print(x, normal(1)) }\ntest "b" { print(x, normal(1)) }\n'
    first, second = [outcome.output for outcome in run(text)]
    assert first == second
    alone = suite(text).run(1).output
    assert alone == first != run(text, seed=1)[0].output


def test_data_beside_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3.0))
    (outcome,) = run('test "t" {\n  let x: f64[n] = read_npy("x.npy")\n  assert n == 3\n}\n', tmp_path)
    assert outcome.result == "passed", outcome.report


# ---- What is said


def test_a_failure_shows_the_values_that_were_compared() -> None:
    """Those of the draws themselves: the sides are computed with the key that the condition had."""
    (truth,) = run('test "t" { print([uniform(1)[0], uniform(1)[0]]) }')
    (outcome,) = run('test "t" { assert uniform(1)[0] < uniform(1)[0] - 1.0 }')
    (first, second) = truth.output.strip("[]").split(", ")
    assert f"this is {first}" in outcome.report
    assert f"this is {float(np.float32(second) - np.float32(1)):.5f}"[:14] in outcome.report
    (then,) = run('test "t" {\n  if 1 < uniform(1)[0] { print(1) }\n  print(uniform(1))\n}')
    after = 'test "t" {\n  let x = uniform(1)\n  assert uniform(1)[0] > 1.0\n}'
    assert f"this is {then.output.strip('[]')}" in run(after)[0].report


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ("x[0] == 2.0", ["this is 1.0"]),
        ("all(x < y)", ["this is [1.0, 2.0]", "this is [3.0, 1.0]"]),
        ("1.0 < x[1] < x[0]", ["this is 1.0", "this is 2.0"]),
        ("x[0] == 1.0 and y[0] == 1.0", ["this is 3.0"]),
        ("not (x[0] == 1.0)", ["this is false"]),
        ("false", ["this is false"]),
        ("any(x == y)", ["this is false"]),
        ("x[0] < 0.0 or y[0] < 0.0", ["this is false"]),
        ("[x, y][0, 1] == [x, y][1, 1]", ["this is 2.0", "this is 1.0"]),
        ("all(ones(200) == linspace(1.0, 1.5, 200))", ["this is 1.0 at [1]", "this is 1.0025126 at [1]"]),
        ("all(ones(30, 30) == linspace(1.0, 1.5, 30))", ["this is 1.0 at [0, 1]", "this is 1.0172414 at [1]"]),
    ],
)
def test_what_stands_beside_a_condition(condition: str, shown: list[str]) -> None:
    text = f'let x: f32[2] = [1, 2]\nlet y: f32[2] = [3, 1]\ntest "t" {{ assert {condition} }}\n'
    (outcome,) = run(text)
    assert outcome.codes == ("DL0901",)
    for part in ["this is "] if shown == ["this is false"] else shown:
        assert part in outcome.report
    assert outcome.report.count("this is ") == len(shown), outcome.report


def test_what_a_failed_test_printed_is_kept() -> None:
    (outcome,) = run('test "t" {\n  print("so far")\n  assert 1 > 2\n}')
    assert outcome.output == "so far"


def test_a_fault_of_ours_ends_one_case(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = suite('test "a" { assert 1 == 1 }\ntest "b" { assert 1 == 1 }\n')

    def broken(*_: object) -> None:
        raise TypeError("planted")

    with monkeypatch.context() as planted:
        planted.setattr("difflang.host.run_statements.HostRunner.asserted", broken)
        outcome = found.run(0)
    assert outcome.crashed and "planted" in outcome.report
    assert found.run(1).result == "passed"


def test_the_same_failure_twice_is_reported_twice(tmp_path: Path) -> None:
    """What only a run brings up is new to each test, and to a second run of it."""
    np.save(tmp_path / "x.npy", np.arange(3.0))
    text = 'fn f(x: f64[n]) -> f64[n] where n > 3 = x\nlet x: f64[k] = read_npy("x.npy")\n'
    text += "".join(f'test "{name}" {{ print(f(x)) }}\n' for name in "ab")
    found = suite(text, tmp_path)
    assert [found.run(n).codes for n in (0, 1, 0)] == [("DL0315",)] * 3


# ---- Examples


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        (["> 1.5", "1.5"], "passed"),
        (["> 1.5", "1.6"], "failed"),
        (["> 1.5"], "failed"),
        (["> 1.5", "1.5", "more"], "failed"),
        (["> 1.5", "1.5", "", "more"], "passed"),
        (["> let x = 2", "> x + 1", "3"], "passed"),
        (["> let x = 2", "3"], "failed"),
        (['> print("a", 1)', "a 1"], "passed"),
        (['> "{pi:.3f}"', "3.142"], "passed"),
        (["> [[1, 2], [3, 4]]", "[[1, 2],", " [3, 4]]"], "passed"),
        (["> [[1, 2], [3, 4]]", "[[1, 2], [3, 4]]"], "failed"),
        (["> sqrt(2.0)", "1.4142135"], "passed"),
        (["> sqrt(2.0)", "1.414214"], "passed"),
        (["> sqrt(2.0)", "1.4142"], "failed"),
        (["> sqrt(2.0)", "1.414216"], "failed"),
        (["> -sqrt(2.0)", "1.4142135"], "failed"),
        (["> (1, true)", "(1, true)"], "passed"),
        (["> var x = 1", "> x += 1", "> x", "2"], "passed"),
        (["> [1.0][f]", "1.0"], "failed"),
    ],
)
def test_examples(lines: list[str], result: str) -> None:
    text = "\n".join(f"## {line}".rstrip() for line in lines)
    (outcome,) = run(f"{text}\nfn f(x: f32) -> f32 = x\n")
    assert outcome.result == result, outcome.report


def test_every_wrong_line_of_a_comment_is_reported() -> None:
    (outcome,) = run("## > 1\n## 2\n## > 1\n## 1\n## > 2\n## 1\nfn f(x: f32) -> f32 = x\n")
    assert outcome.codes == ("DL0907", "DL0907")


def test_the_digits_do_not_depend_on_the_line_ends() -> None:
    (outcome,) = run("## > 1.5\r\n## 1.5\r\nfn f(x: f32) -> f32 = x\r\n")
    assert outcome.result == "passed", outcome.report


# ---- Rules

RULES = {
    "right": ("fn f(x: f64[n]) -> f64[n] = x^3\nrule f(x) { (f(x), linear |dx| 3 * x^2 * dx) }", "passed"),
    "single precision": ("fn f(x: f32[n]) -> f32[n] = x^3\nrule f(x) { (f(x), linear |dx| 3 * x^2 * dx) }", "passed"),
    "wrong change": ("fn f(x: f64[n]) -> f64[n] = x^3\nrule f(x) { (f(x), linear |dx| 2 * x^2 * dx) }", "failed"),
    "wrong value": ("fn f(x: f64) -> f64 = x^3\nrule f(x) { (f(x) + 1e-3, linear |dx| 3 * x^2 * dx) }", "failed"),
    "wrong in one branch": (
        "fn f(x: f64[n]) -> f64[n] = abs(x)\nrule f(x) { (f(x), linear |dx| dx) }", "failed",
    ),
    "complex": ("fn f(z: c128[n]) -> c128[n] = z^3\nrule f(z) { (f(z), linear |dz| 3 * z^2 * dz) }", "passed"),
    "complex and wrong": (
        "fn f(z: c128) -> c128 = z^3\nrule f(z) { (f(z), linear |dz| 3 * conj(z)^2 * dz) }", "failed",
    ),
    "a dim": (
        "fn f(x: f64[n], k: dim) -> f64[n] = x^2 * f64(k)\n"
        "rule f(x, k) { (f(x, k), linear |dx| 2 * x * f64(k) * dx) }", "passed",
    ),
    "globals": ("let k: f64 = 3\nfn f(x: f64) -> f64 = k * x\nrule f(x) { (f(x), linear |dx| k * dx) }", "passed"),
    "no caller": (
        "fn f(g: (f64) -> f64, x: f64) -> f64 = stop(g(x))\nrule f(g, x) by implicit |y| y - g(x)", "skipped",
    ),
    "nothing drawn fits": (
        "fn f(x: f64) -> f64 {\n  assert x > 1e9\n  x\n}\nrule f(x) { (f(x), linear |dx| dx) }", "skipped",
    ),
    "a value of the run": (
        "var r: f64 = 2\nlet s = r\nfn f(x: f64) -> f64 = s * x\nrule f(x) { (f(x), linear |dx| s * dx) }", "skipped",
    ),
    "whole numbers": ("fn f(n: i32) -> f64 = f64(n)\nrule f(n) { (f(n), linear || 0.0) }", "skipped"),
    "an inverse": (
        "fn f(x: f64[n], v: f64[n], k: f64) -> (f64[n], f64[n]) = (x + k * v, v + sin(x + k * v))\n"
        "rule f(x, v, k) by inverse |(x, v)| (x - k * (v - sin(x)), v - sin(x))", "passed",
    ),
    "an inverse by name": (
        "fn f(x: f64, k: i32) -> f64 = x + f64(k)\nfn g(x: f64, k: i32) -> f64 = x - f64(k)\nrule f by inverse g",
        "passed",
    ),
    "an inverse of whole numbers": (
        "fn f(n: i32, x: f64) -> i32 = bit_xor(n, 5)\nrule f(n, x) by inverse |n| bit_xor(n, 5)", "passed",
    ),
    "an inverse reached through a loop from rest": (
        "fn f(g: (f64) -> f64, x: f64, v: f64) -> (f64, f64) = (x + v, v + g(x + v))\n"
        "rule f(g, x, v) by inverse |(x, v)| (x - (v - g(x)), v - g(x))\n"
        "fn h(y: f64) -> f64 {\n  var (x, v) = (y, 0.0)\n  for _ in 0..5 { (x, v) = f(|z| -z, x, v) }\n  x\n}",
        "passed",
    ),
    "stopped": ("fn f(x: f64) -> f64 = stop(sqrt(abs(x)))\nrule f(x) by implicit |y| y * y - abs(x)", "skipped"),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_rules(name: str) -> None:
    text, result = RULES[name]
    (outcome,) = run(text + "\n")
    assert outcome.result == result, outcome.report
    assert outcome.codes == (("DL0406",) if result == "failed" else ())


@pytest.mark.parametrize("wrong", ["x / 2.0 + 1e-6", "x / 2.0000001", "x", "x / 0.0", "stop(2.0) * x"])
def test_an_inverse_that_is_none(wrong: str) -> None:
    (outcome,) = run(f"fn f(x: f64) -> f64 = 2 * x\nrule f(x) by inverse |x| {wrong}\n")
    assert outcome.result == "failed" and outcome.codes == ("DL1106",)


def test_a_rule_of_functions_is_reached_through_its_callers() -> None:
    solver = """fn root(f: (f64, f64) -> f64, p: f64, x0: f64) -> f64 {
  var x = x0
  while abs(f(x, p)) > 1e-12 { x -= f(x, p) / grad[0](f)(x, p) }
  x
}
fn unrelated(x: f64) -> f64 = x
fn square_root(a: f64) -> f64 = root(|x, p| x * x - p, 1.0 + a * a, 1.0)
"""
    (right,) = run(solver + "rule root(f, p, x0) by implicit |x| f(x, p)\n")
    assert right.result == "passed", right.report
    (wrong,) = run(solver + "rule root(f, p, x0) by implicit |x| f(x, 2.0 * p)\n")
    assert "compared at a: f64, seed 0" in wrong.report and "file.dfl:8:6" in wrong.report


NEWTON = """float f64
fn newton(f: (f64[n], f64[k]) -> f64[n], x0: f64[n], p: f64[k]) -> f64[n] {
  var x = x0
  var r = f(x, p)
  while norm(r) > 1e-12 {
    x = x - solve(jacobian(|x| f(x, p))(x), r)
    r = f(x, p)
  }
  x
}
fn system(x: f64[2], p: f64[2]) -> f64[2] = [x[0]^2 + p[0] * x[1] - 3.0, x[0] * x[1]^2 - p[1]]
fn sol(p: f64[2]) -> f64[2] = newton(system, [1.5, 1.5], p)
"""


@pytest.mark.nightly
def test_where_rounding_decides_the_derivative_of_a_body_it_tells_nothing_of_the_rule() -> None:
    """At the first point that is drawn the iteration wanders for 217 steps, and its derivative is noise."""
    (right,) = run(NEWTON + "rule newton(f, x0, p) by implicit |x| f(x, p)\n")
    assert right.result == "passed", right.report
    (wrong,) = run(NEWTON + "rule newton(f, x0, p) by implicit |x| f(x, 2.0 * p)\n")
    assert wrong.result == "failed"
    assert "seed 1" in wrong.report


def test_where_it_does_so_everywhere_a_rule_is_skipped() -> None:
    wild = (
        "fn f(x: f64) -> f64 {\n  var y = 0.5 + 0.4 * sin(x)\n  for _ in 0..200 { y = 3.99 * y * (1.0 - y) }\n  y\n}\n"
    )
    (found,) = run(wild + "rule f(x) { (f(x), linear |dx| dx) }\n")
    assert found.result == "skipped"
    assert "the derivative of `f`" in found.report


def test_tests_run_after_rules_as_before() -> None:
    """A comparison leaves the file's names as they were."""
    text = "let k: f64 = 3\nfn f(x: f64) -> f64 = k * x\nrule f(x) { (f(x), linear |dx| k * dx) }\n"
    found = suite(text + 'test "t" { assert f(2.0) == 6.0 }\n')
    assert [found.run(n).result for n in (0, 1, 0, 1)] == ["passed"] * 4
