"""Traces: the table of the textbooks, the chain rule through all control flow, and what is refused."""

# ruff: noqa: E501 - small programs stand in a row

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import difflang
from difflang.cli import main
from difflang.gradcheck import evaluation_trace

BOOK = "fn f(x1: f64, x2: f64) -> f64 = log(x1) + x1 * x2 - sin(x2)\n"


def command(*words: object) -> Result:
    return CliRunner().invoke(main, ["trace", *map(str, words)])


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.dfl"
    path.write_text(BOOK)
    return path


def test_the_example_of_the_textbooks_comes_out_row_by_row(book: Path) -> None:
    """Baydin, Pearlmutter, Radul, Siskind 2018, tables 2 and 3: ln x1 + x1 x2 - sin x2 at (2, 5)."""
    data = json.loads(command(f"{book}:f", "x1=2", "x2=5", "--format", "json").stdout)
    rows = [(r["name"], r["formula"], r["value"], r["tangents"][0], r["adjoint"]) for r in data["rows"]]
    c, s = np.cos(5.0), np.sin(5.0)
    want = [
        ("x1", "", 2.0, 1.0, 5.5),
        ("x2", "", 5.0, 0.0, 2 - c),
        ("v1", "log(x1)", np.log(2), 0.5, 1.0),
        ("v2", "x1 * x2", 10.0, 5.0, 1.0),
        ("v3", "v1 + v2", 10 + np.log(2), 5.5, 1.0),
        ("v4", "sin(x2)", s, 0.0, -1.0),
        ("v5", "v3 - v4", 10 + np.log(2) - s, 5.5, 1.0),
    ]
    assert [r[:2] for r in rows] == [w[:2] for w in want]
    np.testing.assert_allclose([r[2:] for r in rows], [w[2:] for w in want], rtol=1e-15)
    assert [r["line"] for r in data["rows"]] == [None, None, 1, 1, 1, 1, 1]


def test_json_has_texts_for_what_are_no_numbers_in_it(book: Path) -> None:
    def never(name: str) -> None:
        raise AssertionError(name)

    data = json.loads(command(f"{book}:f", "x1=0", "x2=5", "--format", "json").stdout, parse_constant=never)
    rows = {r["name"]: r for r in data["rows"]}
    assert rows["x1"]["adjoint"] == "Infinity" and rows["v1"]["value"] == "-Infinity"


def test_other_forms(book: Path) -> None:
    latex = command(f"{book}:f", "x1=2", "x2=5", "--format", "latex").stdout
    assert r"$v_{1}$ & $= \ln x_{1}$ & $0.693147$ & $0.5$ & $0$ & $1$ \\" in latex
    assert latex.count(r"\\") == 8 and latex.startswith(r"\begin{tabular}{llrrrr}")
    html = command(f"{book}:f", "x1=2", "x2=5", "--format", "html").stdout
    assert html.count("<tr>") == 8 and "<td>= log(x1)</td>" in html
    assert "d/dx2" not in command(f"{book}:f", "x1=2", "x2=5", "--wrt", "x1").stdout


PROGRAMS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "loops and branches": (
        "fn sq(x: f64) -> f64 = x * x\nfn f(x: f64[n], k: i32) -> f64 {\n var s = 0.0\n for i in 0..k { s += sq(x[i]) }\n"
        " while s > 1.0 { s = s / 2 }\n if s > 0.7 { s * 2 } else { exp(s) }\n}",
        (np.array([1.0, 0.5, 2.0]), 3),
    ),
    "items and what is yielded": (
        "fn f(x: f64[n], y: f64) -> f64 {\n let a = for v in reverse(x) { yield sin(v) * y }\n a[0] * sum(a) + [for v in x => v^2][1]\n}",
        (np.array([1.0, 0.5, 2.0]), 0.3),
    ),
    "a yield of unknown length": (
        "fn f(x: f64) -> f64 {\n var s = x\n let h = while s < 5.0 {\n s = s * 1.7\n yield s * x\n }\n"
        " var t = 0.0\n for v in h { t += sin(v) }\n t\n}",
        (1.1,),
    ),
    "a derivative within": ("fn g(a: f64, b: f64) -> f64 = sin(a * b)\nfn f(a: f64, b: f64) -> f64 = grad[0](g)(a, b) * b", (0.4, 1.3)),
    "recursion": ("fn f(x: f64, k: i32) -> f64 = if k <= 1 { x } else { x * f(x + 1, k - 1) }", (2.0, 4)),
    "a rule": (
        "fn h(x: f64) -> f64 = x^3\nrule h(x) { (x^3, linear |dx| 3 * x^2 * dx) }\nfn f(x: f64) -> f64 = h(x) * x",
        (1.2,),
    ),
    "several results": ("fn f(a: f64[2, 2]) -> f64 {\n let (q, r) = qr(a)\n q[0, 0] * r[0, 1]\n}", (np.array([[1.0, 2.0], [0.5, -1.0]]),)),
    "complex numbers": ("fn f(x: f64) -> f64 {\n let z = exp(complex(x, 2 * x))\n real(z * z) + abs(z)\n}", (0.3,)),
    "a name of a row": ("fn f(v1: f64) -> f64 = sin(v1) * v1", (0.3,)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_adjoints_of_the_arguments_are_the_gradient(name: str) -> None:
    source, arguments = PROGRAMS[name]
    f = getattr(difflang.loads(source, name="traced"), "f")  # noqa: B009 - the module's own name
    trace = f.trace(*arguments)
    floats = [i for i, x in enumerate(arguments) if np.asarray(x).dtype.kind == "f"]
    want = f.grad(*floats).interpret(*arguments)
    want = [want] if len(floats) == 1 else [getattr(want, f"_{i}") for i in range(len(floats))]
    rows = [r for r in trace.rows if r.line is None]
    for row, gradient in zip(rows, want, strict=True):
        np.testing.assert_allclose(row.adjoint, gradient, rtol=1e-14)
    np.testing.assert_allclose(trace.rows[-1].value, f.interpret(*arguments), rtol=1e-15)
    for i, name in enumerate(trace.wrt):  # forward mode of the last row is reverse mode of the argument
        (row,) = [r for r in rows if r.name == name]
        np.testing.assert_allclose(trace.rows[-1].tangents[i], row.adjoint, rtol=1e-14)
    assert len({r.name for r in trace.rows}) == len(trace.rows)


def test_each_step_of_a_loop_has_its_rows() -> None:
    f: Any = difflang.loads("fn f(x: f64) -> f64 {\n var s = x\n for _ in 0..3 { s = sin(s) * s }\n s\n}", name="l").f
    assert [r.formula for r in f.trace(0.5).rows] == [
        "", "sin(x)", "v1 * x", "sin(v2)", "v3 * v2", "sin(v4)", "v5 * v4",
    ]  # fmt: skip


def test_a_long_table_shows_its_ends_and_json_all() -> None:
    f: Any = difflang.loads("fn f(x: f64) -> f64 {\n var s = x\n for _ in 0..90 { s = sin(s) }\n s\n}", name="l").f
    trace = f.trace(0.5, rows=10)
    lines = str(trace).splitlines()
    assert len(lines) == 2 + 1 + 10 + 1 and "81 rows" in lines[8] and lines[-1].startswith("v90")
    assert len(trace.to_json()["rows"]) == 91


def test_records_field_by_field(tmp_path: Path) -> None:
    path = tmp_path / "net.dfl"
    path.write_text(
        "record Net[d, h] { w: f32[d, h], v: f32[h] }\nfn out(m: Net[d, h], x: f32[d]) -> f32 = tanh(x @ m.w) @ m.v\n"
    )
    given = ["m.w=[[1, 2], [3, 4]]", "m.v=[0.1, 0.2]", "x=[0.3, -0.2]"]
    for sizes in (["d=2", "h=2"], ["m=Net[2, 2]"]):
        found = command(f"{path}:out", *given, *sizes)
        assert found.exit_code == 0, found.stderr
        assert [line.split()[0] for line in found.stdout.splitlines()[3:]] == ["m.w", "m.v", "x", "v1", "v2", "v3"]


REFUSED = {
    "a value that is missing": (["x1=2"], "DL1207", "add `x2=…`"),
    "another name": (["x1=2", "x2=5", "x3=1"], "DL1207", "did you mean `x1`?"),
    "no number": (["x1=two", "x2=5"], "DL1210", "write `x1=2.5`"),
    "an array for a number": (["x1=[1, 2]", "x2=5"], "DL1210", "f64[2]"),
    "a complex number": (["x1=2j", "x2=5"], "DL1210", "`x1` is f64[], but 0+2j is not"),
    "a parameter that is none": (["x1=2", "x2=5", "--wrt", "y"], "DL0403", "it has x1, x2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit(name: str, book: Path) -> None:
    words, code, says = REFUSED[name]
    found = command(f"{book}:f", *words)
    assert (found.exit_code, f"error[{code}]" in found.stderr, says in found.stderr) == (2, True, True), found.stderr


def test_what_is_no_pair_of_name_and_value_is_wrong_usage(book: Path) -> None:
    assert command(f"{book}:f", "2").exit_code == 2


def test_a_check_that_fails_is_the_report_of_the_run() -> None:
    f: Any = difflang.loads('fn f(x: f64) -> f64 {\n assert x > 0, "bad {x}"\n x\n}', name="l").f
    with pytest.raises(difflang.DifflangError, match="bad -1"):
        f.trace(-1.0)


def test_too_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation_trace, "MAX_STEPS", 20)
    f: Any = difflang.loads("fn f(x: f64) -> f64 {\n var s = x\n for _ in 0..90 { s = sin(s) }\n s\n}", name="l").f
    with pytest.raises(difflang.DifflangError, match="DL1222"):
        f.trace(0.5)


SHAPES = """import losses (huber_loss)
enum Shape { Disk(r: f64), Box(w: f64, h: f64, n: i32), Empty }
fn area(s: Shape, k: f64) -> f64 = match s { Disk(r) => k * r^2, Box(w, h, n) => w * h * f64(n), Empty => k }
fn loss(x: f64[3], y: f64[3]) -> f64 = mean(huber_loss(x, y)) + max(x)
"""


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("s=Disk(2)", "s.Disk.r 2 1 0 12"),
        ("s=Box(n = 2, w = 3, h = 1)", "s.Box.w"),
        ("s=Empty", "area(k = 3)"),
        ("s=Round(2)", "`Round(2)` is not a valid value of `s`"),
        ("s=Disk(1, 2)", "write `s=…`, as Disk(r) or Box(w, h, n) or Empty"),
        ("s=Disk(x)", "`x` is not a number or an array of numbers, as `s.r` needs"),
        ("", "there is no value of `s`"),
    ],
)
def test_an_enum_is_written_as_its_variant(given: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "shapes.dfl"
    path.write_text(SHAPES)
    result = command(f"{path}:area", *([given] if given else []), "k=3")
    assert says in " ".join(result.output.split()), result.output


def test_arrays_of_records_and_enums_are_given_by_their_arrays(tmp_path: Path) -> None:
    path = tmp_path / "items.dfl"
    path.write_text(
        "record P[c] { b: f64[c], m: f64 }\nenum Law { Spring(k: f64), Free }\n"
        "fn f(ps: P[c][n], ls: Law[n]) -> f64 = sum(for (p, l) in zip(ps, ls) => match l { Spring(k) => k * p.m * sum(p.b), Free => p.m })\n"
    )
    given = ("c=1", "n=2", "ps.b=[[2], [3]]", "ps.m=[5, 7]", "ls.tag=[0, 1]", "ls.Spring.k=[4, 0]")
    rows = json.loads(command(f"{path}:f", *given, "--format", "json").stdout)["rows"]
    found = {r["name"]: r["adjoint"] for r in rows}
    assert found["ps.b"] == [[20], [0]] and found["ps.m"] == [8, 1] and found["ls.Spring.k"] == [10, 0]
    assert "there is no value of `ls.tag`" in command(f"{path}:f", *given[:4]).output


def test_lines_of_several_files_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "shapes.dfl"
    path.write_text(SHAPES)
    shown = command(f"{path}:loss", "x=[1, 2, 3]", "y=[1, 1, 1]").output
    assert re.search(r"losses\.dfl:\d+  y - target", shown) and re.search(r"shapes\.dfl:4  max\(x\)", shown), shown
    shown = CliRunner().invoke(main, ["memory", f"{path}:loss"]).output
    assert re.search(r"losses\.dfl:\d+ .*let off = ", shown), shown
