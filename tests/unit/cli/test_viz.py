"""`difflang viz`: pictures of graphs in five formats, at each stage, beside a gradient, and of what a pass did."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from difflang.cli import main
from difflang.ir.graph import graphs_postorder
from difflang.ir.text_parser import graph_from_text
from difflang.tools.viz.diagram import MAX_EQUATIONS
from difflang.tools.viz.visualize import shared_equations

PROGRAM = """
record Net[n, k] { w: f32[k, n], v: f32[k] }
fn loss(m: Net[n, k], x: f32[n], y: f32) -> f32 {
  let h = tanh(m.w @ x)
  let e = m.v @ h - y
  e * e
}
fn steps(w: f64, x: f64[n]) -> f64 {
  var s = 1.0
  for i in 0..n {
    s = if s > 2.0 { s * w } else { s + sin(w * x[i]) }
  }
  s
}
fn twice(x: f64) -> f64 = (x + 1.0) * (x + 1.0) + sin(x)
host fn say(x: f32) { print(x) }
"""
ODD = 'fn f(x: f32) -> f32 = x * 2.0 # <script>alert(1)</script> "&" \\ `]]>\n'


def viz(*args: object) -> Result:
    result = CliRunner().invoke(main, ["viz", *map(str, args)])
    assert "Traceback" not in result.output
    return result


def data(*args: object) -> list[dict[str, Any]]:
    result = viz(*args, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def boxes(picture: dict[str, Any]) -> list[dict[str, Any]]:
    """Every box, at any depth."""
    found: list[dict[str, Any]] = []
    todo = [picture]
    while todo:
        for box in todo.pop()["boxes"]:
            found.append(box)
            todo += box["inside"]
    return found


def test_wires_carry_types_and_names_of_the_program(file: Path) -> None:
    (found,) = data(f"{file}:loss")
    assert [b["title"] for b in found["boxes"]] == [
        "m.w", "m.v", "x", "y", "dot_general", "tanh", "dot_general", "sub", "mul", "yield",
    ]  # fmt: skip
    wires = {(w["from"], w["to"]): (w["name"], w["type"]) for w in found["wires"]}
    assert wires[4, 5] == ("", "f32[k]") and wires[5, 6] == ("h", "f32[k]") and wires[7, 8] == ("e", "f32[]")
    tanh = found["boxes"][5]
    assert (tanh["line"], tanh["below"]) == (4, "4: tanh(m.w @ x)")
    assert "let h = tanh(m.w @ x)" in tanh["tip"] and tanh["file"] == str(file)


def test_regions_are_boxes_in_boxes(file: Path) -> None:
    (found,) = data(f"{file}:steps")
    (loop,) = [b for b in found["boxes"] if b["kind"] == "region"]
    (cond,) = [b for b in loop["inside"][0]["boxes"] if b["kind"] == "region"]
    assert [p["title"] for p in cond["inside"]] == ["then", "else"]
    assert "sin" in [b["title"] for b in cond["inside"][1]["boxes"]]


def test_a_gradient_stands_beside_its_function(file: Path) -> None:
    plain, gradient = data(f"{file}:loss", "--wrt", "m")
    assert gradient["title"] == "gradient of loss with respect to m"
    assert not any(b["mark"] for b in boxes(plain))
    old = [b["title"] for b in boxes(gradient) if b["mark"] == "" and b["kind"] == "eqn"]
    new = [b["title"] for b in boxes(gradient) if b["mark"] == "new"]
    assert old == ["dot_general", "tanh", "dot_general", "sub"]
    assert "sech2" in new and "tanh" not in new


def test_what_a_pass_changes(file: Path) -> None:
    before, after = data(f"{file}:twice", "--diff", "cse")
    marks = [(b["title"], b["mark"]) for b in boxes(before) if b["kind"] == "eqn"]
    assert ("add ·, 1.0", "gone") in marks and ("sin", "") in marks
    assert len(boxes(after)) < len(boxes(before))
    nothing = viz(f"{file}:twice", "--diff", "contract_after_loops")
    assert nothing.exit_code == 0 and "contract_after_loops changes nothing here; these passes do:" in nothing.stderr
    assert "cse" in nothing.stderr


def test_every_stage(file: Path) -> None:
    (raw,), (done,) = data(f"{file}:loss", "--stage", "ir"), data(f"{file}:loss", "--stage", "derived")
    assert any(b["title"] == "call loss" for b in boxes(raw)) and not any("call" in b["title"] for b in boxes(done))


def test_sizes_can_be_told(file: Path) -> None:
    (found,) = data(f"{file}:loss", "--arg", "n=3", "--arg", "k=4")
    assert {w["type"] for w in found["wires"]} >= {"f32[4, 3]", "f32[4]", "f32[]"}


@pytest.mark.parametrize("form", ["svg", "html"])
def test_text_of_the_user_is_text(form: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.dfl"
    path.write_text(ODD)
    result = viz(path, "--wrt", "x", "--format", form)
    assert result.exit_code == 0
    assert "<script" not in result.stdout and "http" not in re.sub(
        r'xmlns(:xlink)?="http://www.w3.org/[0-9a-z/]*"', "", result.stdout
    )
    assert "&lt;script&gt;" in result.stdout
    if form == "svg":
        ElementTree.fromstring(result.stdout)


def test_without_graphviz(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    result = viz(f"{file}:loss")
    assert result.exit_code == 1 and "DL0709" in result.stderr and "pip install 'difflang[pictures]'" in result.stderr
    assert viz(f"{file}:loss", "--format", "dot").exit_code == 0


@pytest.mark.parametrize(("script", "said"), [
    ("#!/bin/sh\necho out of colours >&2\nexit 3\n", "out of colours"), ("#!/bin/sh\nexit 3\n", "exit status is 3"),
    ("#!/bin/sh\necho nothing\n", "exit status is 0"), ("#!/bin/sh\nprintf '\\377' >&2\nexit 1\n", "did not draw"),
    ("#!/no/such/shell\n", "did not draw"),
])  # fmt: skip
def test_graphviz_that_fails(
    script: str, said: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "dot"
    broken.write_text(script)
    broken.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda *_, **__: str(broken))
    result = viz(f"{file}:loss")
    assert result.exit_code == 1 and "DL0709" in result.stderr and said in result.stderr


@pytest.mark.parametrize("form", ["svg", "html"])
def test_control_characters_are_shown_as_such(form: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.dfl"
    path.write_text("fn f(x: f32) -> f32 = x * 2.0 # a\x0cb\n")
    shown = viz(path, "--format", form).stdout
    assert "\x0c" not in shown and "# a\ufffdb" in shown
    if form == "svg":
        ElementTree.fromstring(shown)


def test_text_of_the_user_is_text_in_dot_and_mermaid(tmp_path: Path) -> None:
    from difflang.tools.viz.dot_and_mermaid import dot_string, mermaid_escape

    assert dot_string('a"b\\c\nd &lt;') == '"a\\"b\\\\c\\nd &amp;lt;"'
    assert mermaid_escape('<b>"x";') == "#60;b#62;#34;x#34;#59;"
    path = tmp_path / "odd.dfl"
    path.write_text(ODD)
    for form in ("dot", "mermaid"):
        text = viz(path, "--format", form).stdout
        assert len(re.findall(r'(?<!\\)"', text)) % 2 == 0
        assert "<script" not in re.sub(r'"(\\.|[^"\\])*"', "", text)


def test_dot_and_mermaid_have_every_wire(file: Path) -> None:
    (found,) = data(f"{file}:steps")
    dot, mermaid = viz(f"{file}:steps", "--format", "dot").stdout, viz(f"{file}:steps", "--format", "mermaid").stdout
    count = sum(len(p["wires"]) for p in [found, *[i for b in boxes(found) for i in b["inside"]]])
    assert dot.count(" -> ") == mermaid.count(" -->|") == count
    bare = re.sub(r'"(\\.|[^"\\])*"', "", dot)
    assert dot.startswith("digraph ") and bare.count("{") == bare.count("}") and "subgraph cluster_" in dot
    assert mermaid.startswith("flowchart TB\n") and mermaid.count("subgraph ") == mermaid.split().count("end")


def test_a_page_leads_to_the_lines(file: Path) -> None:
    page = viz(f"{file}:loss", "--wrt", "m", "--format", "html").stdout
    assert '<a xlink:href="#L4"' in page and '<span id="L4">' in page
    assert set(re.findall(r'href="#(L\d+)"', page)) <= set(re.findall(r'id="(L\d+)"', page))


def test_lines_of_a_page_are_those_of_reports(tmp_path: Path) -> None:
    path = tmp_path / "odd.dfl"
    path.write_text("# a\u2028b\x0cc\nfn f(x: f32) -> f32 = x * 2.0\n")
    page = viz(path, "--format", "html").stdout
    assert re.search(r'id="L2"><i>2</i>  fn f', page) and 'href="#L2"' in page and 'id="L3"' not in page


def test_the_name_of_a_file_says_the_format(file: Path, tmp_path: Path) -> None:
    for name, start in {
        "a.svg": "<svg",
        "b.SVG": "<svg",
        "a.html": "<!doctype",
        "a.mmd": "flowchart",
        "a.dot": "digraph",
    }.items():
        assert viz(f"{file}:loss", "--out", tmp_path / name).exit_code == 0
        assert (tmp_path / name).read_text().startswith(start)
    assert viz(f"{file}:loss", "--out", tmp_path / "a.xyz").exit_code == 2
    missing = viz(f"{file}:loss", "--out", tmp_path / "there" / "a.svg")
    assert missing.exit_code == 1 and "DL0710" in missing.stderr


def test_wrong_use(file: Path) -> None:
    for args, code, said in [
        ((f"{file}:los",), 2, "did you mean `loss`?"),
        ((file,), 2, "DL1207"),
        ((f"{file}:say",), 2, "DL0322"),
        ((f"{file}:loss", "--wrt", "q"), 2, "DL0403"),
        ((f"{file}:loss", "--diff", "inlin"), 2, "Did you mean 'inline'?"),
        ((f"{file}:loss", "--diff", "cse", "--stage", "ir"), 2, "do not use --stage"),
        ((f"{file}:loss", "--format", "png"), 2, "svg"),
    ]:
        result = viz(*args)
        assert (result.exit_code, said in result.stderr) == (code, True), result.stderr


def test_much_is_folded_and_can_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "long.dfl"
    lines = "\n".join(f"  let y{i + 1} = sin(y{i}) * cos(y{i}) + exp(y{i})" for i in range(400))
    path.write_text(f"fn f(y0: f64) -> f64 {{\n{lines}\n  y400\n}}\n")
    folded = viz(path, "--format", "json")
    assert "--all shows every one" in folded.stderr
    (found,) = json.loads(folded.stdout)
    assert len(found["boxes"]) <= MAX_EQUATIONS + 2 and any(b["kind"] == "folded" for b in found["boxes"])
    (every,) = data(path, "--all")
    assert len(every["boxes"]) == 2_002


def test_a_function_used_again_is_drawn_once(tmp_path: Path) -> None:
    """Sixty functions that each call the one before twice are 2^60 boxes otherwise."""
    path = tmp_path / "doubling.dfl"
    functions = "".join(f"fn f{i + 1}(x: f64) -> f64 = f{i}(x) + f{i}(x * 2.0)\n" for i in range(60))
    path.write_text(f"fn f0(x: f64) -> f64 = sin(x)\n{functions}")
    start = time.monotonic()
    (found,) = data(f"{path}:f60", "--stage", "ir", "--all")
    assert time.monotonic() - start < 20
    assert len(boxes(found)) < 1_000 and any(b["below"] == "as above" for b in boxes(found))


# ---- Which equations are in both


def test_counterparts_are_found_by_what_is_computed() -> None:
    first = graph_from_text(
        "graph @f(%x: f32[]) {\n %a: f32[] = sin %x\n %b: f32[] = cos %x\n %c: f32[] = mul %a, %b\n yield %c\n}"
    )
    second = graph_from_text(
        "graph @g(%x: f32[]) {\n %q: f32[] = cos %x\n %p: f32[] = sin %x\n %r: f32[] = add %p, %q\n yield %r\n}"
    )
    assert {e.op.name for e in shared_equations(first, second)} == {"sin", "cos"}
    assert shared_equations(first, first) == {e for g in graphs_postorder(first)[0] for e in g.eqns}


def test_what_is_there_twice_needs_two_counterparts() -> None:
    first = graph_from_text("graph @f(%x: f32[]) {\n %a: f32[] = sin %x\n %b: f32[] = sin %x\n yield %a, %b\n}")
    second = graph_from_text("graph @f(%x: f32[]) {\n %a: f32[] = sin %x\n yield %a, %a\n}")
    assert len(shared_equations(first, second)) == 1 and len(shared_equations(second, first)) == 1
