"""`difflang emit`: every stage of a program as text, and what it says to wrong use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from difflang.cli import main
from difflang.cli.options_and_reports import split_entry
from difflang.ir.json_codec import graph_from_json
from difflang.ir.text_parser import graph_from_text
from difflang.lower.lowering_pipeline import COMPILE, PIPELINES

PROGRAM = """
record P[d] { w: f32[d], b: f32 }
let c: f32[2] = [1.0, 2.0]
fn square(x: f32) = x * x * sum(c)
fn line(p: P[d], x: f32[n, d]) -> f32[n] = x @ p.w + p.b
fn draw(n: dim) -> f32[n] = normal(n)
fn pick(x: f32[n], i: i32) -> f32 = x[i] + sum(draw(3))
host fn say(x: f32) { print(x) }
"""


def emit(*args: object) -> Result:
    return CliRunner().invoke(main, ["emit", *map(str, args)])


def test_the_tree_is_indented(file: Path) -> None:
    result = emit("--stage", "ast", f"{file}:square")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Fn name='square'") and lines[0].endswith("@4:1")
    assert "    rhs: Call @4:29" in lines and "Record name='P'" not in result.stdout
    assert "Record name='P'" in emit("--stage", "ast", file).stdout


def test_a_deep_tree_is_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "deep.dfl"
    path.write_text(f"fn f(x: f32) -> f32 = {' + '.join(['x'] * 8_000)}\n")
    result = emit("--stage", "ast", path)
    assert result.exit_code == 0 and result.stdout.count("Name id='x'") == 8_000


def test_signatures_show_what_was_inferred(file: Path) -> None:
    result = emit("--stage", "typed", file)
    assert result.stdout.splitlines() == [
        "fn square(x: f32) -> f32",
        "fn line(p: P[d], x: f32[n, d]) -> f32[n]",
        "fn draw(n: dim) -> f32[n]  # rand",
        "fn pick(x: f32[n], i: i32) -> f32  # fail, rand",
        "host fn say(x: f32) -> _  # io",
    ]


def test_graphs_are_shown_for_the_arguments_told(file: Path) -> None:
    for stage in ("ir", "derived", "optimized"):
        result = emit("--stage", stage, f"{file}:line", "--arg", "n=4", "--arg", "d=3")
        assert result.exit_code == 0 and "%x: f32[4, 3]" in result.stdout and "%p.w: f32[3]" in result.stdout
        graph_from_text(result.stdout)
        assert emit("--stage", stage, f"{file}:line", "--arg", "p=P[3]", "--arg", "x=f32[4, 3]").stdout == result.stdout
    assert "vjp" in emit("--stage", "ir", f"{file}:square", "--wrt", "x").stdout
    gradient = emit("--stage", "derived", f"{file}:square", "--wrt", "0").stdout
    assert "vjp" not in gradient and "@grad_square" in gradient
    assert "f32[5]" in emit("--stage", "ir", f"{file}:draw", "--arg", "n=5").stdout


def test_all_entries_whose_sizes_can_be_told(file: Path) -> None:
    result = emit("--stage", "ir", file)
    assert result.exit_code == 0 and result.stdout.count("graph @square") >= 1 and "@line" not in result.stdout
    assert "warning[DL1210]" in result.stderr and "`line`" in result.stderr and "--arg d=3" in result.stderr
    assert set(json.loads(emit("--stage", "json", file, "--arg", "n=3").stdout)) == {"square", "draw", "pick"}


def test_json_loads_back(file: Path) -> None:
    text = emit("--stage", "json", f"{file}:square").stdout
    assert graph_from_json(text).name == "square"


def test_what_jax_and_xla_see(file: Path) -> None:
    assert "lambda ;" in emit("--stage", "jaxpr", f"{file}:square").stdout
    for platform in ("cpu", "cuda", "tpu"):
        result = emit("--stage", "stablehlo", f"{file}:square", "--wrt", "x", "--platform", platform)
        assert result.exit_code == 0 and "stablehlo.multiply" in result.stdout, result.stderr


# ---- Wrong use


def test_an_unknown_entry_gets_the_nearest_name(file: Path) -> None:
    result = emit("--stage", "ir", f"{file}:squar")
    assert result.exit_code == 1 and "did you mean `square`?" in result.stderr and result.stdout == ""


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("--stage", "ir", "{file}:line"), 1, "the sizes d, n of `line` are not given"),
        (("--stage", "ir", "{file}:line", "--arg", "q=3"), 1, "no parameter or size `q`"),
        (("--stage", "ir", "{file}:line", "--arg", "x=f64[4, 3]"), 1, "declared type is f32[n, d]"),
        (("--stage", "ir", "{file}:line", "--arg", "x=f32["), 1, "not an argument type"),
        (("--stage", "ir", "{file}:square", "--wrt", "y"), 1, "no parameter `y`"),
        (("--stage", "ir", "{file}:say"), 1, "host function"),
        (("--stage", "ir", "{file}.nothing"), 1, "cannot read"),
        (("--stage", "ir", "{file}.nothing:f"), 1, "cannot read"),
        (("--stage", "plan", "{file}"), 2, "plan"),
        (("{file}",), 2, "--stage"),
        (("--stage", "ir", "{file}", "--arg", "f32[3]"), 2, "NAME=TYPE"),
        (("--stage", "ir", "{file}", "--platform", "tpu"), 2, "stablehlo"),
    ],
)
def test_wrong_use_is_told(file: Path, args: tuple[str, ...], code: int, words: str) -> None:
    result = emit(*[a.format(file=file) for a in args])
    assert result.exit_code == code and words in result.stderr, result.stderr
    assert "Traceback" not in result.stderr


def test_a_wrong_program_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "wrong.dfl"
    path.write_text("fn f(x: f32) -> f32 = y\n")
    result = emit("--stage", "ir", path)
    assert result.exit_code == 1 and "DL0201" in result.stderr


def test_files_and_entries_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd:name").write_text("")
    assert split_entry("odd:name") == ("odd:name", None)
    assert split_entry("odd:name:f") == ("odd:name", "f")
    assert split_entry("a.dfl:f") == ("a.dfl", "f") and split_entry("a.dfl") == ("a.dfl", None)
    assert split_entry(r"C:\models\a.dfl") == (r"C:\models\a.dfl", None)
    assert split_entry(r"C:\models\a.dfl:f") == (r"C:\models\a.dfl", "f")
    assert split_entry("C:model") == ("C:model", None) and split_entry("-:f") == ("-", "f")


@pytest.mark.parametrize("stage", ["ast", "typed", "ir", "derived", "optimized", "json"])
@pytest.mark.nightly_except("ast|typed")
def test_these_stages_need_no_jax(file: Path, stage: str) -> None:
    program = (
        "import sys\nfrom difflang.cli import main\n"
        f"main(['emit', '--stage', {stage!r}, {f'{file}:square'!r}], standalone_mode=False)\n"
        "assert 'jax' not in sys.modules, 'jax was imported'"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_graph_after_a_pass(file: Path) -> None:
    result = emit("--after", "inline", "--wrt", "x", "--arg", "x=f32", f"{file}:square")
    assert result.exit_code == 0 and "mul" in result.stdout and "vjp" not in result.stdout
    early = emit("--after", "unroll", "--wrt", "x", "--arg", "x=f32", f"{file}:square")
    assert "vjp" in early.stdout or "grad" in early.stdout
    graph_from_text(result.stdout, "after")


def test_wrong_uses_of_after(file: Path) -> None:
    unknown = emit("--after", "inlin", file)
    assert unknown.exit_code == 2 and "Did you mean 'inline'?" in unknown.stderr
    for words in ([], ["--stage", "ir", "--after", "cse"]):
        found = emit(*words, file)
        assert found.exit_code == 2 and "either --stage STAGE or --after PASS" in found.stderr


@pytest.mark.parametrize(
    "name", sorted({s.of.name for p in PIPELINES for s in p.steps} - {s.of.name for s in COMPILE.steps})
)
def test_passes_of_other_pipelines_have_a_graph_after_them(file: Path, name: str) -> None:
    result = emit("--after", name, "--wrt", "x", "--arg", "x=f32", f"{file}:square")
    assert result.exit_code == 0
    graph_from_text(result.stdout, "after")


def test_passes_are_applied_in_their_order(file: Path) -> None:
    plain, dense = [
        emit(*words, "--arg", "x=f32", f"{file}:square") for words in (["--stage", "ir"], ["--passes", "inline, dce"])
    ]
    assert "call" in plain.stdout and dense.exit_code == 0 and "call" not in dense.stdout
    later = emit("--stage", "derived", "--passes", "cse", "--wrt", "x", "--arg", "x=f32", f"{file}:square")
    assert later.exit_code == 0 and "vjp" not in later.stdout
    wrong = emit("--passes", "contract", "--wrt", "x", "--arg", "x=f32", f"{file}:square")
    assert wrong.exit_code == 1 and "apply `differentiate` first" in wrong.stderr
    for words, said in (
        (["--passes", "inlin"], "Did you mean 'inline'?"),
        (["--passes", ""], "there is no pass ''"),
        (["--passes", "cse", "--stage", "jaxpr"], "--passes works only with --stage ir"),
        (["--passes", "cse", "--after", "cse"], "either --stage STAGE or --after PASS"),
    ):
        found = emit(*words, f"{file}:square")
        assert found.exit_code == 2 and said in found.stderr


PLUGIN = """from difflang import graph as dg
@dg.graph_pass("{name}", gives=["slow"])
def slow(g):
    "Every product is a sum of two halves."
    for e in g.equations:
        if e.op == "mul":
            g = g.replace(e.outputs[0], with_=lambda b, v: v * 0.5 + v * 0.5)
    return g
"""


def test_passes_of_a_plugin(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow_passes_of_a_test.py").write_text(PLUGIN.format(name="slow_of_a_test"))
    where = "--plugin", "slow_passes_of_a_test"
    found = emit("--passes", "inline,slow_of_a_test", *where, "--arg", "x=f32", f"{file}:square")
    assert found.exit_code == 0 and found.stdout.count("0.5") == 4
    listed = CliRunner().invoke(main, ["passes", *where])
    assert "  slow_of_a_test  Every product is a sum of two halves.; gives: slow" in listed.stdout.splitlines()
    data = json.loads(CliRunner().invoke(main, ["passes", "--json", *where]).stdout)
    assert "slow_of_a_test" in [step["pass"] for step in data[-1]["steps"]]  # other tests have declared passes too


def test_an_error_in_a_pass_of_a_plugin_is_its_own(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "from difflang import graph as dg\n@dg.graph_pass('faulty_of_a_test')\ndef faulty(g):\n    return [][0]\n"
    (tmp_path / "faulty_pass_of_a_test.py").write_text(text)
    where = "--plugin", "faulty_pass_of_a_test"
    found = emit("--passes", "faulty_of_a_test", *where, "--arg", "x=f32", f"{file}:square")
    assert found.exit_code == 1 and "internal error" not in found.output
    assert "the pass `faulty_of_a_test` raised IndexError: list index out of range (" in found.output
    assert f"{tmp_path}/faulty_pass_of_a_test.py:4)" in found.output
