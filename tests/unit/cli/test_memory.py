"""`difflang memory`: its table, its data, its picture, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import difflang
from difflang.base.byte_sizes import format_bytes, parse_bytes
from difflang.cli import main
from support.documents import ROOT

PROGRAM = """
fn f(w: f32[n]) -> f32 {
  var x = w
  for i in 0..100 { x = sin(0.9 * x) + 0.1 * cos(x) }
  sum(x)
}
host fn say(x: f32) { print(x) }
fn g(x: f32) -> f32 = x
"""


def memory(*args: object) -> Result:
    return CliRunner().invoke(main, ["memory", *map(str, args)])


def test_of_a_recursion_it_says_for_what_depth(tmp_path: Path) -> None:
    file = tmp_path / "deep.dfl"
    file.write_text("fn f(x: f64, n: i32) -> f64 = if n == 0 { x } else { 2.0 * f(x * x, n - 1) }\n")
    found = memory(f"{file}:f", "--wrt=x")
    assert "  with capacity for 64 nested calls, and 4,096 steps of reverse-mode loops; " in found.stdout
    assert json.loads(memory(f"{file}:f", "--wrt=x", "--json").stdout)["room"] == {"frames": 64, "steps": 4096}


def test_a_table_says_what_each_line_needs(file: Path) -> None:
    found = memory(f"{file}:f", "--wrt=w", "--arg=n=1000")
    assert found.exit_code == 0, found.output
    head, parts, _, header, *rows = found.stdout.splitlines()
    assert head == "the gradient of `f` with respect to `w`: 406 KiB at the peak"
    assert parts == "  arguments 3.91 KiB, results 3.91 KiB, between them 398 KiB"
    assert header.split() == ["line", "at", "the", "peak", "at", "most", "before"]
    (loop,) = [row for row in rows if "for i in 0..100" in row]
    assert loop.split()[0] == "4"


def test_a_plan_is_shown_and_given_as_data(file: Path) -> None:
    found = memory(f"{file}:f", "--wrt=w", "--arg=n=1000", "--memory-budget=100KiB", "--json")
    assert found.exit_code == 0, found.output
    data = json.loads(found.stdout)
    assert data["limit"] == 100 * 1024 >= data["peak"]
    assert data["before_planning"]["peak"] > 400 * 1024 * 0.9
    assert (
        data["peak"]
        == data["arguments"] + data["results"] + data["between"]
        == sum(line["at_the_peak"] for line in data["lines"])
    )
    assert max(data["course"]) == data["between"]
    ((slots,), line) = [[p["slots"] for p in data["plan"]], data["plan"][0]["line"]]
    assert slots > 2 and line == 4
    shown = memory(f"{file}:f", "--wrt=w", "--arg=n=1000", "--memory-budget=100KiB")
    assert f":4 saves {slots} of its states" in shown.stdout


def test_with_xla_beside_it(file: Path) -> None:
    found = memory(f"{file}:f", "--wrt=w", "--arg=n=1000", "--compile", "--json")
    data = json.loads(found.stdout)
    off = data["peak"] / data["measured"] - 1
    assert abs(off) < 0.1
    shown = memory(f"{file}:f", "--wrt=w", "--arg=n=1000", "--compile").stdout
    assert f"; the prediction was {abs(off):.1%} {'higher' if off > 0 else 'lower'}" in shown


def test_the_readme_tells_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    program = re.search(r"```dfl\n(@memory\(32 KiB\).*?)```", text, re.DOTALL)
    told = re.search(
        r"(\d+) KiB without\s+the\s+limit and (\S+) KiB with it; "
        r".* (\d+) of its 1,000 states, and the residuals[^)]*\) of (\d+)",
        text,
    )
    assert program and told
    (path := tmp_path / "cooled.dfl").write_text(program[1], encoding="utf-8")
    said = memory(f"{path}:cooled", "--wrt=rate", "--arg=n=100").stdout
    before, with_it, states, steps = told.groups()
    assert f"{with_it} KiB at the peak, {before} KiB before planning" in said
    assert f"saves {states} of its states, and the residuals of {steps} steps at a time" in said


@pytest.mark.parametrize("least", [4, 8, 20, 36, 37, 50])
def test_no_smaller_limit_is_refused_than_one_that_can_be_kept(least: int, tmp_path: Path) -> None:
    """The plan of the way back is a part of the program, which its few states share no room with."""
    path = tmp_path / "cooled.dfl"
    path.write_text(
        f"""@memory({least} KiB)
fn cooled(rate: f32, rod: f32[n]) -> f32 {{
  var t = rod
  for _ in 0..1000 {{ t[1..n - 1] += rate * (t[2..] - 2.0 * t[1..n - 1] + t[..n - 2]) }}
  sum(t * t)
}}
"""
    )
    found = memory(f"{path}:cooled", "--wrt=rate", "--arg=n=100", "--json")
    if least == 4:
        assert "the smallest possible limit is 4.69 KiB" in found.stderr
    else:
        assert 0.85 * least * 1024 < json.loads(found.stdout)["peak"] <= least * 1024


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_picture(file: Path, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / f"out.{suffix}"
    found = memory(f"{file}:f", "--wrt=w", "--arg=n=100", f"--save={out}")
    assert found.exit_code == 0, found.output
    assert out.read_bytes().startswith(b"<?xml" if suffix == "svg" else b"\x89PNG")


def test_a_picture_of_another_kind_is_refused(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = memory(f"{file}:f", "--wrt=w", "--arg=n=100", f"--save={tmp_path / 'out.txt'}")
    assert found.exit_code == 2 and "DL0710" in found.stderr


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ((":f", "--wrt=w"), 2, "DL1210"),
        ((":f", "--wrt=u", "--arg=n=3"), 2, "DL0403"),
        ((":f", "--arg=m=3"), 2, "it has the parameter w and the size n"),
        ((":f",), 2, "the size n of `f` is not given"),
        ((":h",), 2, "DL0201"),
        (("",), 2, "model.dfl:f`; the file has f, g"),
        ((":say",), 2, "DL0322"),
        ((":f", "--wrt=w", "--arg=n=1000", "--memory-budget=10KiB"), 1, "DL1012"),
        ((":f", "--memory-budget=lots"), 2, "not an amount of memory; write 64MiB"),
        ((":f", "--memory-budget=100"), 2, "not an amount of memory; write 100B or 100MiB"),
        ((":f", "--memory-budget=2 bytes"), 2, "not an amount of memory; write 2B"),
        ((":f", "--memory-budget=2.5 mb"), 2, "not an amount of memory; write 2.5MB"),
        ((":f", "--memory-budget=2mib"), 2, "not an amount of memory; write 2MiB"),
        ((":f", "--memory-budget=2Gi"), 2, "not an amount of memory; write 2GiB"),
        ((":f", "--memory-budget=5 b"), 2, "not an amount of memory; write 5B"),
        ((":f", "--memory-budget=5eib"), 2, "not an amount of memory; write 64MiB"),
        ((":f", "--memory-budget=5k"), 2, "not an amount of memory; write 5KiB"),
        ((":f", "--dim=n=3"), 2, "Set a size with `--arg n=3`"),
        (
            (":f", "--arg=n=1000", "--memory-budget=10KiB"),
            2,
            "a limit applies to reverse-mode derivatives, but `f` has none",
        ),
    ],
)
def test_what_it_refuses(file: Path, args: tuple[str, ...], code: int, said: str) -> None:
    found = memory(f"{file}{args[0]}", *args[1:])
    assert found.exit_code == code, found.output
    assert said in found.stderr


@pytest.mark.parametrize(
    ("bytes", "text"), [(0, "0 B"), (1023, "1,023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (2**30 + 1, "1 GiB")]
)
def test_amounts_are_written_for_people(bytes: int, text: str) -> None:
    assert format_bytes(bytes) == text


@pytest.mark.parametrize("bytes", [1, 1000, 1025, 54321, 10**6, 1_040_000, 2**30 + 1, 123456789012])
def test_rounded_up_an_amount_is_never_less(bytes: int) -> None:
    read = parse_bytes(format_bytes(bytes, up=True))  # as it is said, so that it may be copied into a program
    assert read is not None and bytes <= read <= bytes * 1.011


@pytest.mark.parametrize("text", ["", "MiB", "100", "1e400", "-3KiB", "5 parsecs", "0.1B"])
def test_what_is_no_amount(text: str) -> None:
    assert parse_bytes(text) is None


def test_the_program_as_it_is_planned(file: Path) -> None:
    args = ["emit", f"{file}:f", "--wrt=w", "--arg=n=1000", "--stage"]
    planned = CliRunner().invoke(main, [*args, "planned", "--memory-budget=100KiB"])
    assert planned.exit_code == 0, planned.output
    assert "keep = (" in planned.stdout
    assert "keep = (" not in CliRunner().invoke(main, [*args, "planned"]).stdout
    refused = CliRunner().invoke(main, [*args, "optimized", "--memory-budget=100KiB"])
    assert refused.exit_code == 2 and "--stage planned" in refused.stderr


def test_the_same_report_in_python() -> None:
    of: Any = difflang.loads(PROGRAM, name="memory")
    found = of.f.memory("f32[1000]", wrt="w", budget="100 KiB")
    assert found.limit == 100 * 1024 >= found.account.peak and "of its states" in str(found)
    assert of.f.memory("f32[1000]").to_json()["measured"] is None
    exact = of.f.memory("f32[1000]", wrt="w", compiled=True)
    assert abs(exact.account.peak / exact.measured - 1) < 0.1
    with pytest.raises(difflang.DifflangError, match="DL1012"):
        of.f.memory("f32[1000]", wrt="w", budget=10_000)
    with pytest.raises(difflang.DifflangError, match="DL1207"):
        of.f.memory("f32[1000]", wrt="w", budget="lots")
    with pytest.raises(difflang.DifflangError, match="declared f32\\[n\\], but f64\\[9\\] was given"):
        of.f.memory("f64[9]")
    with pytest.raises(difflang.DifflangError, match="pass several as separate strings: 'w', 'k'"):
        of.f.memory("f32[9]", wrt="w, k")


def test_the_interpreter_takes_no_limit(file: Path) -> None:
    refused = CliRunner().invoke(main, ["run", "--engine=interpret", "--memory-budget=1MiB", str(file)])
    assert refused.exit_code == 2 and "--engine interpret keeps everything" in refused.output


def test_a_limit_that_nothing_had_to_keep_to_is_told(tmp_path: Path) -> None:
    file = tmp_path / "run.dfl"
    file.write_text("fn f(x: f32) -> f32 = x * x\nprint(f(3.0))\n")
    run = ["run", "--memory-budget=1MiB", str(file)]
    told = CliRunner().invoke(main, run)
    assert (told.exit_code, told.stdout) == (0, "9.0\n")
    assert "warning[DL1207]: the program takes no derivative in reverse mode" in told.stderr
    file.write_text(file.read_text() + "let (y, back) = vjp(f)(3.0)\nprint(back(1.0))\n")
    assert "not to `vjp` and `linearize`" in CliRunner().invoke(main, run).stderr
    file.write_text(file.read_text() + "print(grad(f)(3.0))\n")
    assert CliRunner().invoke(main, run).stderr == ""


@pytest.mark.parametrize("budget", [1.5, 0, float("nan"), True, "100", -1])
def test_what_is_no_budget_in_python(budget: Any) -> None:
    f = difflang.loads(PROGRAM, name="model").f
    with pytest.raises(difflang.ArgumentError, match="not an amount of memory"):
        f.memory("f32[3]", wrt="w", budget=budget)


def test_a_result_that_a_loop_adds_up_from_nothing_has_its_room() -> None:
    text = "fn f(w: f32, v: f32[n]) -> f32 {\n  var x = v\n  for _ in 0..50 { x = x + w * x }\n  sum(x * x)\n}"
    assert difflang.loads(text, name="adds").f.memory("f32", "f32[100]", wrt="w").account.results == 4


def test_budgets_in_python() -> None:
    f = difflang.loads(PROGRAM, name="model").f
    limits = [f.memory("f32[3]", wrt="w", budget=b).limit for b in (None, 10**6, np.int64(10**6), "1 MB")]
    assert limits == [0, 10**6, 10**6, 10**6]
    with pytest.raises(difflang.ArgumentError, match="did you mean `compiled`"):
        f.memory("f32[3]", compile=True)


def test_a_derivative_is_in_something() -> None:
    f = difflang.loads(PROGRAM, name="model").f
    for wrt in ([], ()):
        with pytest.raises(difflang.DifflangError, match="at least one parameter"):
            f.memory("f32[3]", wrt=wrt)


@pytest.mark.parametrize(("attribute", "code"), [("memory(1 MiB)", "DL0220"), ("checkpoint(sqrt)", "DL0219")])
def test_what_is_run_by_the_host_has_no_strategy(tmp_path: Path, attribute: str, code: str) -> None:
    path = tmp_path / "host.dfl"
    path.write_text(f"@{attribute}\nhost fn say(x: f64) {{ print(x) }}\n")
    found = CliRunner().invoke(main, ["check", str(path)])
    assert found.exit_code == 1 and f"error[{code}]" in found.stderr and "a `host fn` is not compiled" in found.stderr


def test_memory_and_cost_of_each_device(tmp_path: Path) -> None:
    program = tmp_path / "net.dfl"
    program.write_text("axes data\nfn loss(w: f32[d], x: f32[n @data, d]) -> f32 = mean((x @ w)^2)\n")
    words = ["--arg", "n=4096", "--arg", "d=16", f"{program}:loss"]
    for command, figure in (("memory", "at the peak"), ("cost", "as the compiler counts")):
        whole, each = [CliRunner().invoke(main, [command, *mesh, *words]) for mesh in ([], ["--mesh", "data=4"])]
        assert whole.exit_code == each.exit_code == 0, each.output
        assert "data = 4" in each.output and figure in each.output and "data = 4" not in whole.output
    found = [
        json.loads(CliRunner().invoke(main, ["cost", "--json", *mesh, *words]).output)["rows"][1]
        for mesh in ([], ["--mesh", "data=4"])
    ]
    assert found[1]["operations"] < 0.3 * found[0]["operations"] and found[1]["peak"] < 0.3 * found[0]["peak"]
    refused = CliRunner().invoke(main, ["cost", "--mesh", "data=4", "--work-span", *words[4:]])
    assert refused.exit_code == 2 and "--work-span runs the function on one device" in refused.output
