"""`difflang compare`: what the documentation says, its data, its picture, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from difflang.cli import main
from difflang.tools.compare import difference_errors
from support.documents import ROOT

PROGRAM = """
fn f(x: f64, y: f64) -> f64 = log(x) + x * y - sin(y)
fn whole(n: i32, x: f64) -> i32 = n
fn scaled(n: i32, x: f64) -> f64 = f64(n) * x
fn counted(n: i32) -> f64 = f64(n)
fn total(x: f64[n]) -> f64 = sum(x * sin(x))
fn root(x: f64) -> f64 = sqrt(x)
fn kink(x: f64) -> f64 = abs(x)
fn positive(x: f64) -> f64 {
  assert x > 0.0, "x must be positive"
  x * x
}
fn endless(x: f64) -> f64 {
  var s = x
  while s > 0.0 { s += 1.0 }
  s
}
fn halved(x: f64) -> f64 {
  var s = x
  while s > 1.0 { s = 0.5 * s }
  s
}
@memory(600 B)
fn limited(x: f64) -> f64 {
  var s = x
  for i in 0..200 { s = sin(s) + 0.1 * x }
  s
}
record Net[d, h] { w: f64[d, h], v: f64[h] }
fn loss(m: Net[d, h], x: f64[d]) -> f64 = tanh(x @ m.w) @ m.v
enum Shape { Disk(r: f64), Empty }
fn area(s: Shape) -> f64 = match s {
  Disk(r) => 3.0 * r^2
  Empty => 0.0
}
fn noisy(x: f64[3]) -> f64 = sum(x * normal(3))
fn nothing_out(x: f64) -> f64[0] = zeros(0) * x
host fn say(x: f64) { print(x) }
"""


def compare(*args: object) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, args)])


def data_of(file: Path, function: str, *args: object) -> dict[str, Any]:
    found = compare(f"{file}:{function}", *args, "--json")
    assert found.exit_code == 0, found.output
    data = json.loads(found.stdout)
    data["ways"] = {way["name"]: way for way in data["ways"]}
    return data


def test_the_documentation_shows_what_it_prints(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    program = re.search(r"```dfl book.dfl\n(.*?)```", text, re.DOTALL)
    assert program
    (path := tmp_path / "book.dfl").write_text(program[1], encoding="utf-8")
    shown = [line.removeprefix("    ") for line in text.splitlines() if line.startswith("    ")]
    printed = compare(f"{path}:f", "--at=x1=2", "--at=x2=5").stdout.splitlines()
    printed += compare(f"{path}:logistic", "--at=x=0.2", "--order=5").stdout.splitlines()
    # Errors are rounded differently on other processors; the first digits of truncation and all counts are not.
    error = re.compile(r" *\b(0|\d\.\de[-+]\d\d)\b(  at h = \S+)?")
    assert {error.sub("", line) for line in shown if line} <= {error.sub("", line) for line in printed}
    assert "1e-02    8.7e-04     8.7e-04" in "\n".join(printed)


def test_a_table_of_ways(file: Path) -> None:
    ways = data_of(file, "f", "--at", "x=2", "--at", "y=5")["ways"]
    takes = {name: (way["times"], way["unit"], way["in_all"]) for name, way in ways.items()}
    assert takes == {
        "the function": (1, "run", 5),
        "symbolic": (2, "expression", 5),
        "one-sided differences": (3, "run", 15),
        "central differences": (4, "run", 20),
        "forward mode": (2, "pass", 18),
        "reverse mode": (1, "pass", 5),
    }
    assert ways["forward mode"]["error"] < 1e-15 > ways["reverse mode"]["error"]
    assert ways["symbolic"]["memory"] is None and ways["reverse mode"]["memory"] == 32


def test_passes_of_reverse_mode_do_not_grow_with_the_arguments(file: Path) -> None:
    values = json.dumps([0.1 * i for i in range(100)])
    found = data_of(file, "total", "--at", f"x={values}")
    times = {name: way["times"] for name, way in found["ways"].items()}
    assert times["forward mode"] == 100 and times["reverse mode"] == 1 and times["central differences"] == 200
    assert any(
        "errors are those at 8 of 100 numbers of the arguments, 1 of 1 number" in note for note in found["notes"]
    )
    assert any("derivative along ones" in note for note in found["notes"])


def test_parameters_are_chosen(file: Path) -> None:
    args = ["--at=d=2", "--at=h=1", "--at=m.w=[[1], [2]]", "--at=m.v=[0.5]", "--at=x=[0.3, -0.2]"]
    assert data_of(file, "loss", *args)["wrt"] == ["m.w", "m.v", "x"]
    found = data_of(file, "loss", *args, "--wrt=m.v,x", "--order=2")
    assert (found["wrt"], found["along"]) == (["m.v", "x"], "m.v") and len(found["orders"]) == 3
    assert data_of(file, "area", "--at=s=Disk(2.0)")["wrt"] == ["s.Disk.r"]
    assert data_of(file, "scaled", "--at=n=3", "--at=x=2")["wrt"] == ["x"]


def test_a_memory_limit_is_obeyed(file: Path) -> None:
    ways = data_of(file, "limited", "--at=x=0.5", "--order=1")["ways"]
    assert ways["reverse mode"]["memory"] <= 600 and ways["symbolic"]["in_all"] == 60_300


def test_a_loop_of_unknown_length_has_no_expression(file: Path) -> None:
    shown = compare(f"{file}:halved", "--at=x=5", "--order=2").stdout
    assert re.search("^no expression of order 0, 1: the loop or recursion at .*model.dfl:[0-9]+ takes", shown, re.M)
    assert re.search("^2 +1 +1 +1.0$", shown, re.M) and "memory of such loops is that of 4,096 steps" in shown


def test_draws_follow_the_seed(file: Path) -> None:
    args = ("--at", "x=[1.0, 2.0, 3.0]", "--order=1")
    values = [data_of(file, "noisy", *args, f"--seed={seed}")["value"] for seed in (1, 1, 2)]
    assert values[0] == values[1] != values[2]


def test_a_kink_is_noted(file: Path) -> None:
    assert "there may be a kink, which `difflang check-grad` finds" in compare(f"{file}:kink", "--at=x=0").stdout
    assert "kink," not in compare(f"{file}:kink", "--at=x=1").stdout


@pytest.mark.parametrize("suffix", ["svg", "png"])
@pytest.mark.parametrize("call", [("f", "--at=x=2", "--at=y=5"), ("scaled", "--at=n=0", "--at=x=2")])
def test_a_picture(file: Path, tmp_path: Path, call: tuple[str, ...], suffix: str) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / f"out.{suffix}"
    found = compare(f"{file}:{call[0]}", *call[1:], f"--plot={out}")
    assert found.exit_code == 0, found.output
    assert out.read_bytes().startswith(b"<?xml" if suffix == "svg" else b"\x89PNG")


def test_a_picture_of_huge_expressions(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (path := tmp_path / "grows.dfl").write_text(
        "fn f(x: f64) -> f64 {\n  var s = x\n  for _ in 0..350 { s = 1.5 * s * (1.0 - s) }\n  s\n}\n"
    )
    found = compare(path, "--at=x=0.3", "--order=1", f"--plot={tmp_path / 'out.svg'}")
    assert found.exit_code == 0, found.output
    assert re.search("^symbolic +1 expression +over 1e[+]100$", found.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("",), 2, "model.dfl:f`; the file has f, "),
        ((":nothing",), 2, "DL0201"),
        ((":say", "--at=x=1"), 2, "DL0322"),
        ((":f", "--at=x=2"), 2, "add `--at y=…`"),
        ((":f", "--at=x=2", "--at=y=5", "--at=z=1"), 2, "DL1207"),
        ((":f", "--at=x=2", "--at=y=two"), 2, "write `--at y=2.5`"),
        ((":f", "--at=x=2", "--at=y"), 2, "'y' is not NAME=VALUE"),
        ((":f", "--at=x=2", "--at=x=3"), 2, "'x' is given twice"),
        ((":f", "--at=x=2", "--at=y=2j"), 2, "`y` is f64[], but 0+2j is not"),
        ((":f", "--at=x=[1]", "--at=y=2"), 2, "DL1210"),
        ((":f", "--at=x=1e999", "--at=y=2"), 2, "the value of `f` is not finite"),
        ((":f", "--at=x=2", "--at=y=5", "--wrt=z"), 2, "DL0403"),
        ((":f", "--at=x=2", "--at=y=5", "--order=9"), 2, "'--order'"),
        ((":f", "--at=x=2", "--at=y=5", "--plot=out.pdf"), 2, "DL0710"),
        ((":f", "--at=x=2", "--at=y=5", "--plot=/nowhere/out.svg"), 2, "DL0710"),
        ((":f", "--at=x=-1", "--at=y=5"), 3, "log(-1) is nan"),
        ((":root", "--at=x=0"), 3, "its slope at 0 is infinite"),
        ((":positive", "--at=x=-1"), 3, "x must be positive"),
        ((":endless", "--at=x=1"), 2, "more than 50,000 operations"),
        ((":whole", "--at=n=1", "--at=x=1"), 2, "`whole` returns no real numbers"),
        ((":counted", "--at=n=1"), 2, "`counted` takes no real numbers"),
        ((":scaled", "--at=n=1", "--at=x=1", "--wrt=n"), 2, "there is no real parameter `n`"),
        ((":total", "--at=x=[]"), 2, "`total` takes no real numbers"),
        ((":nothing_out", "--at=x=1"), 2, "`nothing_out` returns no real numbers"),
        ((":area",), 2, "write `--at s=…`, as Disk(r) or Empty"),
    ],
)
def test_what_is_refused(
    file: Path, args: tuple[str, ...], code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(difference_errors, "MAX_OPERATIONS", 20_000)
    found = compare(f"{file}{args[0]}", *args[1:])
    assert (found.exit_code, said in found.stderr) == (code, True), found.output
    assert not found.stdout or "--plot" in args[-1]


def test_numbers_in_json_are_all_there(file: Path) -> None:
    steps = data_of(file, "f", "--at=x=2", "--at=y=5")["errors"]["steps"]
    assert [row["step"] for row in steps] == [10.0**-k for k in range(1, 17)]
    assert np.isfinite([row["central"]["total"] for row in steps]).all()


def test_higher_orders_are_those_in_the_first_parameter_that_is_named(file: Path) -> None:
    assert data_of(file, "f", "--at=x=2", "--at=y=5", "--wrt=y,x")["along"] == "y"


def test_a_value_that_does_not_have_the_size_given(file: Path) -> None:
    found = compare(f"{file}:total", "--at=n=3", "--at=x=[1, 2]")
    assert "is f64[2], but its declared type is f64[n], where n = 3" in found.stderr
