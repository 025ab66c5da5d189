"""The language server as an editor meets it: one process, asked over its standard input and output."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.language_client import PATIENCE, Client
from support.served import EVERYTHING, MAIN, MODEL, applied, hover, places, replaced, spot, taken

ROOT = Path(__file__).resolve().parents[2]


# ---- Reports


@pytest.mark.daily
def test_what_is_typed_is_reported_and_no_longer_once_it_is_mended(client: Client, main: str) -> None:
    at = spot(MAIN, "far^2")
    client.change(main, replaced(at, (at[0], at[1] + 3), "fat"))
    (report,) = client.reports(main, settled=True)
    assert (report["code"], report["severity"], report["source"]) == ("DL0201", 1, "difflang")
    assert report["range"]["start"] == {"line": at[0], "character": at[1]}
    assert "did you mean `far`?" in report["message"]
    client.change(main, replaced(at, (at[0], at[1] + 3), "far"))
    assert client.reports(main, settled=True) == []


def test_columns_are_counted_in_utf_16(client: Client, main: str) -> None:
    at = spot(MAIN, "# 𝛼𝛽")
    client.change(main, replaced((at[0], at[1] + 6), (at[0], at[1] + 6), "\n  oops"))
    (report,) = client.reports(main, settled=True)
    assert report["range"]["start"] == {"line": at[0] + 1, "character": 2}
    client.change(main, {"text": 'print("𝛼𝛽", oops)\n'})
    (report,) = client.reports(main, settled=True)
    assert report["range"] == {"start": {"line": 0, "character": 14}, "end": {"line": 0, "character": 18}}


def test_a_broken_declaration_is_reported_alone(client: Client, main: str) -> None:
    at = spot(MAIN, ") -> f32 {")
    client.change(main, replaced(at, (at[0], at[1] + 1), ""))
    codes = [r["code"] for r in client.reports(main, settled=True)]
    assert codes and all(code.startswith("DL01") for code in codes)


def test_a_report_names_the_other_places_it_is_about(client: Client, main: str) -> None:
    client.change(main, {"text": MAIN.replace("x: f32[n], y: f32[n], rate", "x: f32[m], y: f32[n], rate")})
    found = client.reports(main, settled=True)
    assert any(r.get("relatedInformation") for r in found)


def test_another_file_that_changes_changes_what_is_reported(client: Client, folder: Path, main: str) -> None:
    other = client.open(folder / "model.dfl", MODEL.replace("along", "follow"))
    client.told.queue.clear()
    client.change(main, replaced((0, 0), (0, 0), ""))
    assert {r["code"] for r in client.reports(main, settled=True)} == {"DL0723"}
    client.told.queue.clear()
    client.close(other)  # from then on the file on the disk counts, at once
    while (params := client.told.get(timeout=PATIENCE)["params"])["uri"] != main or params["diagnostics"]:
        pass


def test_mistakes_of_an_imported_file_that_is_not_open_are_reported_there(client: Client, folder: Path) -> None:
    (folder / "wrong.dfl").write_text("pub fn f(x: f32) -> f32 = y\n", encoding="utf-8")
    client.told.queue.clear()
    uri = client.open(folder / "right.dfl", 'import "./wrong.dfl" (f)\nprint(f(1.0))\n')
    said: dict[str, list[str]] = {}
    while (folder / "wrong.dfl").as_uri() not in said:
        params = client.told.get(timeout=PATIENCE)["params"]
        said[params["uri"]] = [report["code"] for report in params["diagnostics"]]
    assert said[(folder / "wrong.dfl").as_uri()] == ["DL0201"]
    client.change(uri, {"text": "print(1.0)\n"})  # nobody imports it any more
    while said[(folder / "wrong.dfl").as_uri()]:
        params = client.told.get(timeout=PATIENCE)["params"]
        said[params["uri"]] = [report["code"] for report in params["diagnostics"]]
    client.close(uri)


# ---- What is told


def test_hover_tells_type_comment_and_the_type_of_the_gradient(client: Client, main: str) -> None:
    told = hover(client, main, "loss")
    assert "fn loss(line: model.Line, x: f32[n], y: f32[n]) -> f32" in told
    assert "How far a line is from points." in told
    assert "of type `D(Line)`" in told or "of type `Line`" in told
    assert "squares: f32[n]" in hover(client, main, "squares", 1)
    assert "-> Line" in hover(client, main, "step")
    assert "fn along" in hover(client, main, "along") and "at each place" in hover(client, main, "along")
    assert "slope: f32" in hover(client, main, "slope")
    assert "mean" in hover(client, main, "mean")
    assert "fn grad(f: " in hover(client, main, "grad(loss)")
    assert "model.along(line, x) - y: f32[n]" in hover(client, main, "- y")
    assert hover(client, main, "# ein") == ""


def test_inferred_types_stand_beside_names(client: Client, main: str) -> None:
    hints = client.ask("textDocument/inlayHint", textDocument={"uri": main}, range=EVERYTHING)
    lines = MAIN.split("\n")
    shown = {(lines[h["position"]["line"]][: h["position"]["character"]].split()[-1], h["label"]) for h in hints}
    assert {("far", ": f32[n]"), ("squares", ": f32[n]"), ("xs", ": f32[3]"), ("next", ": Line")} <= shown
    assert any(label == " -> Line" for _, label in shown)


def test_what_a_call_takes_is_shown_with_the_argument_that_stands_next(client: Client, main: str) -> None:
    at = spot(MAIN, "xs, xs, rate")
    told = client.ask("textDocument/signatureHelp", **client.at(main, *at))
    assert told["signatures"][0]["label"].startswith("fn step(line: model.Line")
    assert told["activeParameter"] == 1
    named = client.ask("textDocument/signatureHelp", **client.at(main, at[0], at[1] + len("xs, xs, rate = ")))
    assert named["activeParameter"] == 3
    inner = client.ask("textDocument/signatureHelp", **client.at(main, *spot(MAIN, "slope = 0.0")))
    assert inner["signatures"][0]["label"] == "Line(slope: f32, start: f32)"
    of_module = client.ask("textDocument/signatureHelp", **client.at(main, *spot(MAIN, "line, x) - y")))
    assert of_module["signatures"][0]["label"] == "fn along(line: Line, x: f32[n]) -> f32[n]"


def labels(client: Client, uri: str, text: str, at: tuple[int, int]) -> list[str]:
    client.change(uri, {"text": text})
    return [i["label"] for i in client.ask("textDocument/completion", **client.at(uri, *at))["items"]]


def test_names_fields_and_modules_are_proposed(client: Client, main: str) -> None:
    def after(old: str, new: str) -> list[str]:
        text = MAIN.replace(old, new, 1)
        line, column = spot(MAIN, old)
        return labels(client, main, text, (line, column + len(new)))

    assert after("mean(squares)", "mean(squ")[:1] == ["squares"]
    assert after("mean(squares)", "line.") == ["slope", "start"]
    assert "along" in after("mean(squares)", "model.")
    assert "linalg" not in after("mean(squares)", "mode") and "model" in after("mean(squares)", "mode")
    assert after("import linalg", "import li") == ["linalg"]
    assert after("print(loss(next, xs, xs))", "print(loss(n")[0] == "next"  # of the type that is needed
    assert after("mean(squares)", '"squ') == []


# ---- Names


def test_definitions_are_found_here_in_other_files_and_in_the_library(client: Client, main: str, folder: Path) -> None:
    here = places(client, "definition", main, "loss(next")
    assert (here["uri"], taken(MAIN, here["range"]), here["range"]["start"]["line"]) == (main, "loss", 4)
    there = places(client, "definition", main, "along")
    assert there["uri"] == (folder / "model.dfl").as_uri() and taken(MODEL, there["range"]) == "along"
    field = places(client, "definition", main, "slope")
    assert field["uri"] == there["uri"] and taken(MODEL, field["range"]) == "slope"
    argument = places(client, "definition", main, "rate = 0.5")
    assert argument["range"]["start"]["line"] == 10
    module = places(client, "definition", main, "linalg")
    assert module is None or module["uri"].endswith("linalg.dfl")
    assert places(client, "definition", main, "mean") is None


def test_references_are_found_in_every_file(client: Client, main: str, folder: Path) -> None:
    found = places(client, "references", main, "along", context={"includeDeclaration": True})
    assert sorted(Path(f["uri"]).name for f in found) == ["main.dfl", "model.dfl"]
    sizes = places(client, "references", main, "n]", context={"includeDeclaration": True})
    assert [f["range"]["start"]["line"] for f in sizes] == [4, 4]
    lit = places(client, "documentHighlight", main, "xs")
    assert len(lit) == 7


def test_a_name_is_changed_in_every_file(client: Client, main: str, folder: Path) -> None:
    edit = places(client, "rename", main, "along", newName="follow")
    changes = edit["changes"]
    assert set(changes) == {main, (folder / "model.dfl").as_uri()}
    assert "model.follow(line, x)" in applied(MAIN, changes[main])
    assert "pub fn follow(line" in applied(MODEL, changes[(folder / "model.dfl").as_uri()])
    after = applied(MAIN, places(client, "rename", main, "rate", newName="speed")["changes"][main])
    assert "speed: f32 = 0.1" in after and "-speed * grad" in after and "speed = 0.5)" in after
    field = places(client, "rename", main, "slope", newName="rise")["changes"]
    assert "line.rise * x" in applied(MODEL, field[(folder / "model.dfl").as_uri()])


@pytest.mark.parametrize(
    ("what", "new"), [("mean", "average"), ("loss", "let"), ("far =", "squares"), ("loss", "step")]
)
def test_a_name_that_cannot_be_changed_so_is_refused(client: Client, main: str, what: str, new: str) -> None:
    answer = client.request("textDocument/rename", **client.at(main, *spot(MAIN, what)), newName=new)
    assert answer["error"]["message"]


# ---- Changes


def test_a_file_is_laid_out(client: Client, main: str) -> None:
    untidy = MAIN.replace("let far = ", "let   far=").replace("import linalg\n", "import linalg\n\n\n")
    client.change(main, {"text": untidy})
    edits = client.ask(
        "textDocument/formatting", textDocument={"uri": main}, options={"tabSize": 2, "insertSpaces": True}
    )
    assert applied(untidy, edits) == MAIN
    client.change(main, {"text": MAIN + "let = =\n"})
    assert client.ask("textDocument/formatting", textDocument={"uri": main},
                      options={"tabSize": 2, "insertSpaces": True}) == []  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("far^2", "fat^2"),
        ("var count = 0\ncount += 1\n", "let count = 0\ncount += 1\n"),
        ("import linalg\n", ""),
    ],
)
def test_what_certainly_mends_a_report_is_offered(client: Client, main: str, old: str, new: str) -> None:
    right = MAIN + "print(linalg.pinv(ones(2, 2)))\n"
    if old.startswith("var"):
        right += old
    wrong = right.replace(old, new)
    client.change(main, {"text": wrong})
    (report,) = client.reports(main, settled=True)
    actions = client.ask("textDocument/codeAction", textDocument={"uri": main}, range=report["range"],
                         context={"diagnostics": [report]})  # fmt: skip
    assert actions and actions[0]["kind"] == "quickfix"
    assert actions[0]["isPreferred"]
    client.change(main, {"text": applied(wrong, actions[0]["edit"]["changes"][main])})
    assert client.reports(main, settled=True) == []


def test_a_wider_float_is_offered_and_not_preferred(client: Client, main: str) -> None:
    client.change(main, {"text": "fn s(x: f64) -> f64 = x\nlet h = 1e-7\nprint(s(0.5 + h))\n"})
    (report,) = client.reports(main, settled=True)
    (action,) = client.ask("textDocument/codeAction", textDocument={"uri": main}, range=report["range"],
                           context={"diagnostics": [report]})  # fmt: skip
    assert action["title"] == "write `f64(0.5 + h)`" and not action["isPreferred"]


# ---- From afar


def test_symbols_folds_and_colours(client: Client, main: str, folder: Path) -> None:
    symbols = client.ask("textDocument/documentSymbol", textDocument={"uri": main})
    assert [s["name"] for s in symbols] == ["model", "loss", "step", "xs", "next", "nothing is lost"]
    folds = client.ask("textDocument/foldingRange", textDocument={"uri": main})
    assert {"startLine": 4, "endLine": 7} in folds
    data = client.ask("textDocument/semanticTokens/full", textDocument={"uri": main})["data"]
    legend = client.abilities["semanticTokensProvider"]["legend"]["tokenTypes"]
    line = column = 0
    coloured: dict[str, set[str]] = {}
    for i in range(0, len(data), 5):
        step, across, length, kind, _ = data[i : i + 5]
        line, column = line + step, across if step else column + across
        word = MAIN.split("\n")[line].encode("utf-16-le")[2 * column : 2 * (column + length)].decode("utf-16-le")
        coloured.setdefault(word, set()).add(legend[kind])
    assert (
        coloured["loss"] == {"function"} and coloured["n"] == {"typeParameter"} and coloured["model"] == {"namespace"}
    )
    assert coloured["along"] == {"function"} and coloured["slope"] == {"property"} and coloured["rate"] == {"parameter"}


# ---- Its own part


def test_nothing_of_jax_is_imported() -> None:
    """A process of its own, in which the server is there and has checked a file."""
    program = """
import sys
from pathlib import Path
import difflang.lsp.request_handlers
from difflang.lsp.workspace import Workspace
files = Workspace()
document = files.document(Path(sys.argv[1]), "main.dfl")
document.version = 1
document.set_text(Path(sys.argv[1]).read_text(encoding="utf-8"))
files.check(document, lambda: None, lambda: None)
assert document.analysis is not None and document.analysis.diagnostics() == []
loaded = [name for name in sys.modules if name.partition(".")[0] in ("jax", "jaxlib", "flax")]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program, str(ROOT / "examples" / "logistic.dfl")], check=True, timeout=120)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps a bound on memory")
def test_a_document_beyond_the_memory_limit_is_reported_and_the_server_goes_on(folder: Path) -> None:
    client = Client(folder, options=["--memory-limit", "64MiB"])
    uri = client.open(folder / "large.dfl", "let x = [" + ", ".join(["1.0 + 2.0"] * 200_000) + "]\n")
    assert [report["code"] for report in client.reports(uri)] == ["DL1006"]
    client.change(uri, {"text": "let x = nowhere\n"})
    assert [report["code"] for report in client.reports(uri)] == ["DL0201"]
    assert client.end() == 0


def test_a_keystroke_is_answered_at_once(client: Client, folder: Path) -> None:
    """The median of 30 in a file of a thousand lines; 150 ms are promised, on a machine that does nothing else."""
    block = (ROOT / "tests" / "editor" / "block.dfl").read_text(encoding="utf-8")
    text = "".join(block.replace("Net", f"Net{i}").replace("_a", f"_{i}") for i in range(30))
    assert text.count("\n") >= 1000
    uri = client.open(folder / "long.dfl", text)
    assert client.reports(uri, settled=True) == []
    line, column = spot(text, "+ 0.001 * sum", 15)
    times: list[float] = []
    for typed in "+ 0.5 * mean(found) + 0.25 * s":
        start = time.perf_counter()
        client.change(uri, replaced((line, column), (line, column), typed))
        client.reports(uri)
        times.append(time.perf_counter() - start)
        column += 1
    client.close(uri)
    assert len(times) == 30 and statistics.median(times) < 0.150, f"{1000 * statistics.median(times):.0f} ms"
