"""`run --max-steps`: loops without end are an error at their line; loops that end in time are as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from difflang.cli import main

FUNCTIONS = """\
fn f(x: f64) -> f64 {
  var y = x
  while y > 0.0 {
    y = y + 1.0
  }
  y
}
fn g(x: f64) -> f64 = if x < 0.0 { x } else { g(x + 1.0) }
fn to_zero(x: f64, n: i32) -> f64 = if n == 0 { x } else { to_zero(x * 2.0, n - 1) }
fn count(n: i32) -> i32 {
  var k = 0
  while k < n { k = k + 1 }
  k
}
fn broken(n: i32) -> i32 {
  var k = 0
  while true {
    if k == n { break }
    k = k + 1
  }
  k
}
fn yielded(n: i32) -> f64 {
  var k = 0
  let all = while k < n {
    k = k + 1
    yield f64(k)
  }
  var total = 0.0
  for x in all { total = total + x }
  total
}
var k = 0
"""
ENDLESS = {
    "compiled": ("print(f(1.0))", 3),
    "under a derivative": ("print(grad(f)(1.0))", 3),
    "in forward mode": ("print(jvp(f)(1.0, 1.0))", 3),
    "in lanes": ("print([for x in [-1.0, 2.0] => f(x)])", 3),
    "that calls itself": ("print(g(1.0))", 8),
    "that calls itself, under a derivative": ("print(grad(g)(1.0))", 8),
    "of the host": ("while k >= 0 { k = 1 - k }", 34),
    "of the host, counted": ("for i in 0..101 { k = i }", 34),
    "left by a break": ("print(broken(-1))", 17),
    "left by a break, one step too long": ("print(broken(101))", 17),
    "that yields": ("print(yielded(101))", 25),
    "one step too long": ("print(count(101))", 12),
}
ENDING = {
    "compiled": ("print(f(-1.0))", "-1.0"),
    "just in time": ("print(count(100))", "100"),
    "under a derivative": ("print(grad(f)(-1.0))", "1.0"),
    "that calls itself": ("print(to_zero(1.0, 20))", "1048576.0"),
    "that calls itself, under a derivative": ("print(grad[x](to_zero)(1.0, 3))", "8.0"),
    "left by a break": ("print(broken(99))", "99"),
    "that yields": ("print(yielded(100))", "5050.0"),
    "of the host": ("while k < 100 { k = k + 1 }\nprint(k)", "100"),
    "of the host, counted": ("for i in 0..100 { k = i }\nprint(k)", "99"),
    "of known length": ("print(sum([for i in 0..5000 => 1.0]))", "5000.0"),
}


def run(folder: Path, text: str, *options: str) -> Result:
    path = folder / "program.dfl"
    path.write_text(FUNCTIONS + text + "\n")
    result = CliRunner().invoke(main, ["run", *options, str(path)])
    assert "Traceback" not in result.output
    return result


@pytest.mark.parametrize("engine", ["xla", "interpret"])
@pytest.mark.parametrize("name", ENDLESS)
def test_a_loop_without_end_is_an_error_at_its_line(name: str, engine: str, tmp_path: Path) -> None:
    text, line = ENDLESS[name]
    result = run(tmp_path, text, "--max-steps", "100", "--engine", engine)
    assert result.exit_code == 3, result.output
    assert "error[DL0909]" in result.stderr and "more than 100 " in result.stderr
    assert f"program.dfl:{line}:" in result.stderr


@pytest.mark.parametrize("engine", ["xla", "interpret"])
@pytest.mark.parametrize("name", ENDING)
def test_a_loop_that_ends_is_as_without_a_limit(name: str, engine: str, tmp_path: Path) -> None:
    text, answer = ENDING[name]
    for options in ((), ("--max-steps", "100")):
        result = run(tmp_path, text, "--engine", engine, *options)
        assert (result.exit_code, result.stdout) == (0, f"{answer}\n"), result.stderr


def test_a_limit_is_a_number_of_steps(tmp_path: Path) -> None:
    for wrong in ("0", "-1", "many", "4294967296"):
        assert run(tmp_path, "", "--max-steps", wrong).exit_code == 2
