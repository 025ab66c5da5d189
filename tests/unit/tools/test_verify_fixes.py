"""Fixes: what is proposed, and that the checker alone says which are certain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from difflang.base.diagnostics import Diagnostic, render, to_json
from difflang.base.fixes import apply_fixes
from difflang.base.source import Source
from difflang.cli import main
from difflang.driver.checked_program import check_program
from difflang.syntax.parse import parse
from difflang.syntax.recovery.common_mistakes import (
    COMMON_MISTAKES,
    ELSE_IF,
    FOREIGN_KEYWORD_REPLACEMENTS,
    CommonMistake,
)
from difflang.tools.verify_fixes import apply_certain_fixes, certain_fixes, verify_fixes

ROOT = Path(__file__).resolve().parents[3]


def check(source: Source) -> tuple[Diagnostic, ...]:
    return check_program(source, examples=True).diagnostics


def after(text: str) -> str:
    return apply_certain_fixes(Source("wrong.dfl", text), check).source.text


# ---- What is certain

REPAIRED = {
    # Names
    "let total = 1.0\nprint(totl)\n": "let total = 1.0\nprint(total)\n",
    "record P { rate: f32 }\nprint(P(1.0).Rate)\n": "record P { rate: f32 }\nprint(P(1.0).rate)\n",
    "record P { radius: f32 }\nprint(P(radis = 1.0))\n": "record P { radius: f32 }\nprint(P(radius = 1.0))\n",
    "let θωλ = 1.0\nprint(θωκ)\n": "let θωλ = 1.0\nprint(θωλ)\n",
    "fn f(rate: f32) -> f32 = rate\nprint(grad[rte](f)(1.0))\n": (
        "fn f(rate: f32) -> f32 = rate\nprint(grad[rate](f)(1.0))\n"
    ),
    "fn f[T: flaot](x: T) -> T = x\n": "fn f[T: float](x: T) -> T = x\n",
    "@memory(64 MiBs)\nfn f(x: f32) -> f32 = x\n": "@memory(64 MiB)\nfn f(x: f32) -> f32 = x\n",
    "fn f(x: float64) -> double = x\n": "fn f(x: f64) -> f64 = x\n",
    "import odee (rk4)\n": "import ode (rk4)\n",
    "import nn\nprint(nn.mihs(1.0))\n": "import nn\nprint(nn.mish(1.0))\n",
    "var total = 1.0\ntotl = 2.0\n": "var total = 1.0\ntotal = 2.0\n",
    "print(np.sum([1.0]), math.pi, True)\n": "print(sum([1.0]), pi, true)\n",
    # Declarations
    "let x = 1.0\nx = 2.0\n": "var x = 1.0\nx = 2.0\n",
    "fn f(x: f32) -> f32 {\n  let y = x\n  y += 1.0\n  y\n}\n": (
        "fn f(x: f32) -> f32 {\n  var y = x\n  y += 1.0\n  y\n}\n"
    ),
    "x = 1.0\nprint(x)\n": "let x = 1.0\nprint(x)\n",
    "x = 1.0\nx = 2.0\n": "var x = 1.0\nx = 2.0\n",
    "fn f(x: f32) -> f32 {\n  y = x\n  y\n}\n": "fn f(x: f32) -> f32 {\n  let y = x\n  y\n}\n",
    # Numbers
    "let n = 2\nprint(sqrt(n))\n": "let n = 2\nprint(sqrt(f32(n)))\n",
    "float f64\nlet n = 2\nprint(1.5 * n)\n": "float f64\nlet n = 2\nprint(1.5 * f64(n))\n",
    "fn f(n: i32, x: f64) -> f64 = n * x\n": "fn f(n: i32, x: f64) -> f64 = f64(n) * x\n",
    "fn f(x: f64) -> f64 = x\nlet n = 2\nprint(f(n))\n": "fn f(x: f64) -> f64 = x\nlet n = 2\nprint(f(f64(n)))\n",
    # Several that belong together
    "let n = 2\nprint(sqrt(n) + 1.5 * n)\n": "let n = 2\nprint(sqrt(f32(n)) + 1.5 * f32(n))\n",
    "const x = 1;\n": "let x = 1\n",
    # Imports
    "print(mish(1.0))\n": "import nn (mish)\n\nprint(mish(1.0))\n",
    "import nn (silu)\nprint(mish(silu(1.0)))\n": "import nn (mish, silu)\nprint(mish(silu(1.0)))\n",
    "import nn\nprint(nn.silu(mish(1.0)))\n": "import nn\nprint(nn.silu(nn.mish(1.0)))\n",
    "# About.\n\nfloat f64\nlet x = nn.mish(1.0)\n": "# About.\n\nfloat f64\n\nimport nn\n\nlet x = nn.mish(1.0)\n",
    "# About.\n\nlet x = nn.mish(1.0)\n": "# About.\n\nimport nn\n\nlet x = nn.mish(1.0)\n",
    "import data\nimport ode\nlet x = nn.mish(1.0)\n": "import data\nimport nn\nimport ode\nlet x = nn.mish(1.0)\n",
    # Syntax
    "let x = 1; let y = 2\n": "let x = 1\nlet y = 2\n",
    "fn f(x: f32) -> f32 {\n  let y = x; -y\n}\n": "fn f(x: f32) -> f32 {\n  let y = x\n  -y\n}\n",
    "fn f(a: bool, b: bool) -> bool = a&& !b||b\n": "fn f(a: bool, b: bool) -> bool = a and not b or b\n",
    "fn f(x: f32): f32 { x ** 2.0 }\n": "fn f(x: f32) -> f32 { x ^ 2.0 }\n",
    "fn f(a: f32[n]) -> f32 = sum(a[:2])\n": "fn f(a: f32[n]) -> f32 = sum(a[..2])\n",
    "fn f(a: f32[9]) -> f32 = sum(a[1:8:2])\n": "fn f(a: f32[9]) -> f32 = sum(a[1..8 by 2])\n",
    "fn f(x: f32) -> f32 {\n  if x > 1.0 { 1.0 } elif x > 0.0 { 2.0 } else { 3.0 }\n}\n": (
        "fn f(x: f32) -> f32 {\n  if x > 1.0 { 1.0 } else if x > 0.0 { 2.0 } else { 3.0 }\n}\n"
    ),
    "var i = 1\ni++\n": "var i = 1\ni += 1\n",
    "print((1.0 + 2.0])\n": "print((1.0 + 2.0))\n",
    "f32 x = 1.0\n": "let x: f32 = 1.0\n",
}  # fmt: skip


@pytest.mark.parametrize("wrong", REPAIRED)
def test_one_sure_repair_is_made(wrong: str) -> None:
    assert after(wrong) == REPAIRED[wrong]
    assert not check(Source("right.dfl", REPAIRED[wrong]))


UNSURE = (
    "let layer1 = 1.0\nprint(layer3)\n",  # numbers are no slips
    "let scale = 1.0\nlet scalp = 2.0\nprint(scalr)\n",  # either
    "let x = 1.0\nprint(y)\n",
    "var s = 0\ns += 1.5\n",  # a float from the beginning, or a whole number all along
    "var s = -1  # begins\ns = 1.5\n",
    "record Total { x: f32 }\nlet y = totla + 1.0\nlet total = Total(1.0)\n",  # what it stands for is not there yet
    "fn f(k: i32) -> i32 = k + 0.5\n",  # the sum is no integer
    "fn f(x: f64) -> f32 = x\n",  # loses digits
    "fn s(x: f64) -> f64 = x\nlet h = 1e-7\nprint(s(0.5 + h))\n",  # they are lost where `h` has no type
    "fn s(x: f64) -> f64 = x\nlet h = 1e-7\nprint(s(0.5 + h))\nprint(s(0.25 + h))\n",
    "let c = true\nif c { y = 1.0 } else { y = 2.0 }\nprint(y)\n",  # bound in a block it would be lost
    "var value = 1.0\nvalues = 2.0\nvalue = value + values\nprint(value)\n",  # another one that was not declared
    "enum E { A, B }\nfn f(e: E) -> f32 = match e { A => 1.0 }\n",
    "fn f(x: vector) -> f32 = 1.0\n",  # of which axes?
    "print([1; 2])\n",
    "let x = 2x\n",
    "print(!true < false)\n",  # `not` takes in the comparison
    "let a = [1.0, 2.0]\nprint(a[1:0:-1])\n",
    "let x = r\"a\"\n",
)  # fmt: skip


@pytest.mark.parametrize("text", UNSURE)
def test_what_could_mean_something_else_is_left_alone(text: str) -> None:
    source = Source("wrong.dfl", text)
    assert not certain_fixes(verify_fixes(source, check(source), check))
    assert after(text) == text


def test_what_was_judged_says_so_as_data_and_to_people() -> None:
    source = Source("wrong.dfl", "let total = 1.0\nprint(totl)\n")
    unjudged = check(source)
    assert "= fix:" not in render(unjudged) and not any(f["certain"] for f in to_json(unjudged)[0]["fixes"])
    (report, *_) = verify_fixes(source, unjudged, check)
    (data,) = to_json([report])[0]["fixes"]
    (edit,) = data["edits"]
    assert (data["text"], data["certain"], edit["replacement"]) == ("write `total`", True, "total")
    assert (edit["start"]["line"], edit["start"]["column"], edit["end"]["column"]) == (2, 7, 11)
    assert "= fix: write `total`" in render([report])


def test_a_name_that_was_never_declared_is_reported_once() -> None:
    assert len(check(Source("wrong.dfl", "x = 1.0\nx += 2.0\nprint(x)\n"))) == 1


def test_without_proposals_nothing_is_checked_again() -> None:
    def never(source: Source) -> tuple[Diagnostic, ...]:
        raise AssertionError(source)

    source = Source("wrong.dfl", "print(1.0)\nenum E { A, B }\nfn f(e: E) -> f32 = match e { A => 1.0 }\n")
    found = check(source)
    assert found and verify_fixes(source, found, never) == found


def test_few_proposals_of_a_file_are_judged_at_a_time_and_all_are_made() -> None:
    checks = list[Source]()

    def counting(source: Source) -> tuple[Diagnostic, ...]:
        checks.append(source)
        return check(source)

    source = Source("wrong.dfl", "let total = 1.0\n" + "print(totl)\n" * 22)
    assert len(certain_fixes(verify_fixes(source, check(source), counting))) == len(checks) == 20
    assert after(source.text) == source.text.replace("totl", "total")


# ---- The tables of mistakes


@pytest.mark.parametrize("mistake", [m for m in COMMON_MISTAKES if m.replacement is not None], ids=lambda m: m.example)
def test_a_known_mistake_is_gone_when_it_is_written_as_proposed(mistake: CommonMistake) -> None:
    source = Source("wrong.dfl", mistake.example)
    (report,) = parse(source).diagnostics
    right = apply_fixes(source, report.fixes[:1])
    assert not parse(Source("right.dfl", right)).diagnostics, right
    assert not any(parse(Source("right.dfl", apply_fixes(source, [fix]))).diagnostics for fix in report.fixes)


WORDS_IN_PLACE = {
    "def": "{} f(x: f32) -> f32 = x", "func": "{} f(x: f32) -> f32 = x", "fun": "{} f(x: f32) -> f32 = x",
    "function": "{} f(x: f32) -> f32 = x", "class": "{} P {{ x: f32 }}", "struct": "{} P {{ x: f32 }}",
    "const": "{} x = 1", "val": "{} x = 1", "use": "{} nn", "switch": "let y = {} 1 {{ 1 => 2, _ => 3 }}",
    "foreach": "{} i in 0..3 {{ print(i) }}", "int": "{} x = 1", "double": "{} x = 1.0",
}  # fmt: skip


@pytest.mark.parametrize("word", FOREIGN_KEYWORD_REPLACEMENTS)
def test_a_word_of_another_language_is_written_as_ours(word: str) -> None:
    wrong = WORDS_IN_PLACE[word].format(word) + "\n"
    assert (right := after(wrong)) != wrong
    assert not check(Source("right.dfl", right)), right


@pytest.mark.parametrize("word", ELSE_IF)
def test_else_if(word: str) -> None:
    assert after(f"let x = if 1 > 2 {{ 1 }} {word} 2 > 3 {{ 2 }} else {{ 3 }}\n").count("else if") == 1


# ---- The corpora: pages of errors here, wrong programs in tests/errors

BLOCK = re.compile(r"^```dfl[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [
    pytest.param(block, id=f"{path.stem}-{i}")
    for path in sorted((ROOT / "docs" / "errors").glob("DL[0-3]*.md"))
    for i, block in enumerate(BLOCK.findall(path.read_text(encoding="utf-8")))
]
PROGRAMS = sorted((ROOT / "tests" / "errors" / "syntax").glob("*.dfl"))


@pytest.mark.parametrize("text", [*PAGES, *[pytest.param(p.read_text(encoding="utf-8"), id=p.stem) for p in PROGRAMS]])
def test_a_certain_fix_removes_the_error_and_adds_none(text: str) -> None:
    source = Source("wrong.dfl", text)
    found = check(source)
    if not any(report.fixes for report in found):
        return
    told = [(d.code, d.message) for d in found]
    for report in verify_fixes(source, found, check):
        for fix in certain_fixes([report]):
            left = [(d.code, d.message) for d in check(Source("wrong.dfl", apply_fixes(source, [fix])))]
            assert left.count((report.code, report.message)) < told.count((report.code, report.message))
            assert all(left.count(one) <= told.count(one) for one in left)


# ---- The command


def call(*args: object, input: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["check", *map(str, args)], input=input)
    assert "Traceback" not in result.output
    return result.exit_code, result.stdout, result.stderr


def test_check_shows_what_it_can_mend_and_mends_it(tmp_path: Path) -> None:
    file = tmp_path / "wrong.dfl"
    file.write_text("let total = 1.0\nprint(totl)\nprint(y)\n")
    code, _, said = call(file)
    assert code == 1 and "= fix: write `total`" in said and said.endswith("`difflang check --fix` can fix 1\n")
    code, out, said = call("--fix", file)
    assert (code, out) == (1, "") and f"{file}:2: write `total`\n{file}: 1 fixed\n" in said and "no `y`" in said
    assert file.read_text() == "let total = 1.0\nprint(total)\nprint(y)\n"
    assert "fixed" not in call("--fix", file)[2]


def test_several_files_their_line_endings_and_marks(tmp_path: Path) -> None:
    one, two, right = tmp_path / "one.dfl", tmp_path / "two.dfl", tmp_path / "right.dfl"
    one.write_bytes(b"\xef\xbb\xbflet x = 1; let y = 2\r\nprint(mish(1.0))\r\n")
    two.write_bytes("let θωλ = 2.0\nprint(θωκ)\n".encode())
    right.write_bytes(b"print(1)\r\n")
    before = right.stat().st_mtime_ns
    code, _, said = call("--fix", one, two, right)
    assert code == 0 and "two.dfl: 1 fixed" in said and "one.dfl: 2 fixed" in said and "right.dfl" not in said
    assert one.read_bytes() == (b"\xef\xbb\xbfimport nn (mish)\r\n\r\nlet x = 1\r\nlet y = 2\r\nprint(mish(1.0))\r\n")
    assert two.read_text(encoding="utf-8") == "let θωλ = 2.0\nprint(θωλ)\n"
    assert right.stat().st_mtime_ns == before


def test_only_the_files_that_are_named_change(tmp_path: Path) -> None:
    (tmp_path / "model.dfl").write_text("pub fn f(rate: f32) -> f32 = rte\n")
    (tmp_path / "main.dfl").write_text('import "./model.dfl"\nprint(model.f(1.0))\n')
    code, _, said = call("--fix", tmp_path / "main.dfl")
    assert code == 1 and "fixed" not in said
    assert (tmp_path / "model.dfl").read_text().endswith("rte\n")


def test_standard_input_goes_to_standard_output() -> None:
    assert call("--fix", "-", input="let x = .5\n")[:2] == (0, "let x = 0.5\n")
    assert call("--fix", "-", "--output-format", "json", input="let x = .5\n")[0] == 2


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    code, _, said = call("--fix", tmp_path / "missing.dfl")
    assert code == 1 and "DL0701" in said


def test_a_repair_in_several_places_is_said_once() -> None:
    text = "record P { mass: f32 }\nlet a = P(maas = 1.0)\nlet b = a.maas + a.maas\n"
    source = Source("wrong.dfl", text)
    found = verify_fixes(source, check(source), check)
    assert [fix.title for fix in certain_fixes(found)] == ["write `mass`"] * len(
        certain_fixes(found)
    ) and certain_fixes(found)
    assert after(text) == text.replace("maas", "mass")
