"""`difflang cost`: counts from types, and work and span of a run, whose longest chain is told by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import difflang
from difflang.cli import main

PROGRAM = """fn tree(x: f64[n]) -> f64 {
  let a = sin(x)
  let b = cos(x)
  let c = exp(b) * b
  sum(a) + sum(c)
}
fn steps(x: f64[n], k: i32) -> f64 {
  var s = x
  for _ in 0..k { s = sin(s) * x }
  sum(s)
}
fn halved(x: f64) -> f64 {
  var s = x
  while s > 1.0 { s = s / 2.0 }
  s
}
fn lanes(x: f64[n]) -> f64 = sum([for a in x => halved(a)])
record Pair { a: f64, b: f64[2] }
fn paired(p: Pair, x: f64) -> f64 = x * sin(p.a) * sum(p.b)
fn whole(k: i32) -> i32 = k + 1
fn needs(x: f64) -> f64 {
  assert x > 0.0, "x is positive"
  log(x)
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.dfl"
    path.write_text(PROGRAM)
    return path


def cost(*words: str) -> Result:
    return CliRunner().invoke(main, ["cost", *words])


def work_span(file: Path, name: str, *words: str) -> dict[str, Any]:
    found = cost(f"{file}:{name}", "--work-span", "--json", *words)
    assert found.exit_code == 0, found.stderr
    return json.loads(found.stdout)


def test_counts_are_those_of_the_api(file: Path) -> None:
    module = difflang.load(file)
    found = json.loads(cost(f"{file}:tree", "--arg", "x=f64[100]", "--json").stdout)
    assert found == json.loads(json.dumps(module.tree.cost("f64[100]").to_json()))
    assert found["rows"][0]["operations"] == 6 * 100 + 1


def test_a_function_without_a_derivative_says_why(file: Path) -> None:
    assert "no gradient" in cost(f"{file}:whole").stdout
    assert cost(f"{file}:whole", "--wrt", "k").exit_code != 0


def test_the_longest_chain_is_told_by_line(file: Path) -> None:
    found = work_span(file, "tree", "--at", "x=[1.0, 2.0, 3.0]")
    rows = {row["line"]: row for row in found["lines"]}
    sine, cosine, third = (rows[f"m.dfl:{n}"] for n in (2, 3, 4))
    assert sine["critical"] == 0 < sine["operations"]
    assert cosine["critical"] == cosine["operations"] and third["critical"] == third["operations"]
    assert "m.dfl:3" in sine["beside"] and "m.dfl:4" not in cosine["beside"]
    assert found["operations"] == sum(row["operations"] for row in found["lines"])
    assert found["work"] == sum(found["widths"]) == sum(row["equations"] for row in found["lines"])
    # cos, exp, times, sum, plus
    assert found["span"] == len(found["widths"]) == 5


def test_steps_of_a_loop_follow_each_other_and_lanes_do_not(file: Path) -> None:
    for k in (3, 30):
        loop = work_span(file, "steps", "--at", "x=[1.0, 2.0]", "--at", f"k={k}")
        (line,) = [row for row in loop["lines"] if row["line"] == "m.dfl:9" and row["operations"]]
        assert line["critical"] == line["operations"] and line["at_once"] <= 2
        assert loop["span"] >= 2 * k
        lanes = work_span(file, "lanes", "--at", f"x={[3.0] * k}")
        assert lanes["span"] < 20
        assert max(lanes["widths"]) >= k


def test_a_gradient_takes_a_few_times_the_work(file: Path) -> None:
    given = ["--at", "x=[1.0, 2.0]", "--at", "k=10"]
    value, gradient = work_span(file, "steps", *given), work_span(file, "steps", *given, "--wrt", "x")
    assert value["operations"] < gradient["operations"] < 6 * value["operations"]
    assert gradient["span"] >= 2 * 10


def test_fields_of_records_and_several_parameters(file: Path) -> None:
    given = ["--at", "p.a=0.5", "--at", "p.b=[1.0, 2.0]", "--at", "x=2"]
    value = work_span(file, "paired", *given)
    assert [row["line"] for row in value["lines"]] == ["m.dfl:19"]
    both, one = (work_span(file, "paired", *given, "--wrt", wrt) for wrt in ("p,x", "x"))
    assert both["operations"] > one["operations"] > 0


def test_lines_of_files_with_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder, name in (("aa", "sin"), ("bb", "cos")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "u.dfl").write_text(f"pub fn {name}_of(x: f64) -> f64 = {name}(x)\n")
    main = tmp_path / "m.dfl"
    text = 'import "aa/u.dfl" as a\nimport "bb/u.dfl" as b\nfn f(x: f64) -> f64 = a.sin_of(x) * b.cos_of(x)\n'
    main.write_text(text)
    lines = [row["line"] for row in work_span(main, "f", "--at", "x=1.0")["lines"]]
    assert len(lines) == 3 and sum(line.endswith("aa/u.dfl:1") for line in lines) == 1 and "m.dfl:3" in lines


def test_text(file: Path) -> None:
    lines = cost(f"{file}:tree", "--work-span", "--at", "x=[1.0, 2.0, 3.0]").stdout.splitlines()
    assert lines[0] == "tree(x = [1, 2, 3])"
    assert lines[1].startswith("work ") and lines[2].startswith("span ")
    assert lines[4].split("  ")[0] == "line" and "m.dfl:2" in lines[5] + lines[6] + lines[7]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--at", "x=[1.0]"], "--at belongs to --work-span"),
        (["--work-span", "--arg", "x=f64[3]"], "it needs values"),
        (["--work-span", "--at", "y=1.0"], "DL1207"),
        (["--work-span", "--at", "x=cat"], "DL1210"),
        (["--work-span", "--at", "x=[1.0]", "--wrt", "z"], "DL0403"),
        (["--arg", "x=f64[3]", "--wrt", "z"], "DL0403"),
    ],
)
def test_mistakes(file: Path, words: list[str], said: str) -> None:
    found = cost(f"{file}:tree", *words)
    assert found.exit_code == 2 and said in found.stderr


def test_a_check_that_fails_is_told(file: Path) -> None:
    found = cost(f"{file}:needs", "--work-span", "--at", "x=-1.0")
    assert found.exit_code == 3 and "x is positive" in found.stderr
