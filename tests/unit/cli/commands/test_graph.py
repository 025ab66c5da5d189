"""`difflang graph`: the size of a graph, its equations by op, and what of them is reverse mode alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from difflang.cli import main

PROGRAM = """fn loss(x: f64[n, 2], w: f64[2], k: i32) -> f64 {
  let z = tanh(x @ w)
  sum(z * z) + z[k]
}
fn powers(x: f64, n: i32) -> f64 {
  var y = x
  for _ in 0..n { y = sin(y) * x }
  y
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.dfl"
    path.write_text(PROGRAM)
    return path


def graph(*words: str) -> Result:
    return CliRunner().invoke(main, ["graph", *words])


def test_a_function(file: Path) -> None:
    lines = graph(f"{file}:loss", "--arg", "n=3").stdout.splitlines()
    assert lines[0].startswith("loss, optimized: ") and "backward" not in lines[0]
    assert lines[1:3] == ["  inputs: x: f64[3, 2], w: f64[2], k: i32[]; 68 B", "  outputs: f64[]; 8 B"]
    assert ["dot_general", "1", "1", "0", "24", "B"] in [line.split() for line in lines]


def test_a_gradient(file: Path) -> None:
    lines = graph(f"{file}:loss", "--arg", "n=3", "--wrt", "w").stdout.splitlines()
    assert lines[0].startswith("grad_loss, optimized") and "backward" in lines[0]
    assert lines[3] == "  kept for the backward equations: 2 arrays, 48 B"
    data = json.loads(graph(f"{file}:loss", "--arg", "n=3", "--wrt", "w", "--json").stdout)
    rows = {row["op"]: row for row in data["ops"]}
    assert rows["tanh"]["backward"] == 0 and rows["dot_general"]["backward"] == 1
    assert data["backward"] == sum(row["backward"] for row in data["ops"]) and data["outputs"] == ["f64[2]"]


def test_regions_of_backward_equations_are_backward(file: Path) -> None:
    lines = graph(f"{file}:powers", "--wrt", "x", "--stage", "derived").stdout
    assert "histories" in lines or "history" in lines
    (row,) = [line.split() for line in lines.splitlines() if line.startswith("mul ")]
    assert row[1:4] == ["4", "1", "3"]


def test_what_is_wrong_is_reported(file: Path) -> None:
    assert "takes one function of a file" in graph(str(file)).stderr
    assert "DL1210" in graph(f"{file}:loss").stderr
    assert "Did you mean 'derived'?" in graph(f"{file}:loss", "--stage", "derive").stderr
    assert graph(f"{file}:lost").exit_code == 2
