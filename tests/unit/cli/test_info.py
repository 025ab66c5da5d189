"""`difflang info`: what a file offers, and what a gradient takes as a formula that XLA's own account agrees with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from difflang.base.source import Source
from difflang.cli import main
from difflang.driver.checked_program import check_program
from difflang.lower.lowering_pipeline import finalize_graph
from difflang.runtime.compile import compile_graph
from difflang.tools.emit import EmitRequest, function_graph
from difflang.tools.function_info import MemoryFormula, factor_bytes, primes_near

PROGRAM = """
fn layers(w: f32[n, m], x: f32[b, n], k: i32) -> f32 {
  let h = tanh(x @ w)
  sum(h * h) + f32(k)
}
fn walk(u: f32[n]) -> f32 {
  var x = u
  for i in 0..50 { x = sin(0.9 * x) + 0.1 * cos(x) }
  sum(x)
}
fn vector(x: f64[n]) -> f64[n] = x * x
fn count(x: f64[n]) -> i32 = n
fn any(x) = x
host fn say(x: f32) { print(x) }
fn deeper(x: f32, n: i32) -> f32 = if n == 0 { x } else { checkpoint { sin(deeper(x, n - 1)) } }
"""


@pytest.fixture(scope="module")
def offers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("info") / "model.dfl"
    path.write_text(PROGRAM)
    found = CliRunner().invoke(main, ["info", str(path), "--json"])
    assert found.exit_code == 0, found.output
    return {entry["name"]: entry for entry in json.loads(found.stdout)["entries"]}


def test_what_functions_take_and_in_what_they_are_differentiable(offers: dict[str, Any]) -> None:
    assert list(offers) == ["layers", "walk", "vector", "count", "any", "say", "deeper"]
    layers = offers["layers"]
    assert layers["dims"] == ["n", "m", "b"] and layers["result"] == "f32"
    assert layers["differentiable_in"] == layers["gradient"]["wrt"] == ["w", "x"]
    assert [(a["name"], a["type"], a["dtype"]) for a in layers["arguments"]] == [
        ("w", "f32[n, m]", "f32"), ("x", "f32[b, n]", "f32"), ("k", "i32", "i32")
    ]  # fmt: skip
    assert offers["vector"]["differentiable_in"] == ["x"] and offers["vector"]["gradient"] is None
    assert offers["count"]["differentiable_in"] == [] and offers["count"]["gradient"] is None
    assert offers["deeper"]["why_not"].startswith("no figure: a function calls itself")
    assert offers["any"]["why_not"] and offers["say"]["why_not"] and offers["say"]["effects"] == ["io"]


@pytest.mark.parametrize("each", [(48, 44, 50), (97, 95, 101), (150, 145, 155)])
@pytest.mark.parametrize("name", ["layers", "walk"])
def test_the_formula_is_what_xla_takes(name: str, each: tuple[int, ...], offers: dict[str, Any]) -> None:
    agrees(offers[name], dict(zip("nmb", each, strict=True)))


def test_a_formula_for_sizes_in_other_proportions(tmp_path: Path) -> None:
    path = tmp_path / "model.dfl"
    path.write_text(PROGRAM)
    found = CliRunner().invoke(main, ["info", str(path), "--json", "--dim=b=256", "--dim=m=100", "--dim=n=20"])
    assert found.exit_code == 0, found.output
    (layers, *_) = json.loads(found.stdout)["entries"]
    agrees(layers, {"n": 24, "m": 96, "b": 256})


def test_arrays_that_are_large_enough_for_tiles_have_no_formula(tmp_path: Path) -> None:
    path = tmp_path / "model.dfl"
    path.write_text(PROGRAM)
    found = CliRunner().invoke(main, ["info", str(path), "--json", "--dim=b=16384", "--dim=m=200", "--dim=n=40"])
    (layers, *_) = json.loads(found.stdout)["entries"]
    assert layers["gradient"]["bytes"] is None and "not a sum of products" in layers["why_not"]


def agrees(offer: dict[str, Any], sizes: dict[str, int]) -> None:
    """The formula with what XLA says, to a tenth."""
    checked = check_program(Source("model", PROGRAM), None, Path(), ())
    told = {n: str(sizes[n]) for n in offer["dims"]}
    wanted = EmitRequest("ir", offer["name"], told, ",".join(offer["differentiable_in"]))
    taken = compile_graph(
        finalize_graph(function_graph(checked, checked.module.fns[offer["name"]], wanted))
    ).memory_bytes
    predicted = eval(offer["gradient"]["bytes"], {}, sizes)  # noqa: S307  a sum of products
    assert abs(predicted / taken - 1) <= 0.1


@pytest.mark.parametrize(("size", "said"), [("n=many", "not a size"), ("p=3", "DL1207")])
def test_a_size_that_is_none(tmp_path: Path, size: str, said: str) -> None:
    path = tmp_path / "model.dfl"
    path.write_text(PROGRAM)
    found = CliRunner().invoke(main, ["info", str(path), f"--dim={size}"])
    assert found.exit_code == 2 and said in found.stderr


def test_for_people(tmp_path: Path) -> None:
    path = tmp_path / "model.dfl"
    path.write_text("fn f(x: f32[n]) -> f32 = sum(x * x * x)\n")
    found = CliRunner().invoke(main, ["info", str(path)])
    head, wrt, bytes = found.stdout.splitlines()
    assert (head, wrt) == ("f(x: f32[n]) -> f32", "  differentiable with respect to x")
    assert bytes.startswith("  the gradient takes 8*n")


def test_a_limit_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.dfl"
    path.write_text("@memory(2 MiB)\nfn f(x: f32[n]) -> f32 = sum(x * x)\nfn g(x: f32[n]) -> f32 = 2.0 * f(x)\n")
    text = CliRunner().invoke(main, ["info", str(path)]).stdout
    assert text.count("  `@memory` limits it to 2 MiB\n") == 2
    data = json.loads(CliRunner().invoke(main, ["info", str(path), "--json"]).stdout)["entries"]
    assert [each["gradient"]["limit"] for each in data] == [2 << 20, 2 << 20]


def test_sizes_are_primes_of_their_own() -> None:
    assert primes_near({"a": 96, "b": 96, "c": 3, "d": 1000}) == {"a": 97, "b": 101, "c": 37, "d": 1009}


def test_bytes_are_taken_apart() -> None:
    told = {"n": 97, "m": 89}
    formula = MemoryFormula(factor_bytes(4 * 97 * 97 * 89, told) + factor_bytes(8 * 97, told) + factor_bytes(12, told))
    assert str(formula) == "4*m*n*n + 8*n + 12"
    assert formula.at({"n": 2, "m": 3}) == 4 * 12 + 16 + 12
