"""Each feature that the server announces is asked for by a client, however broken a text is; none runs a program."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.language_client import Client
from support.seeds import SEED
from support.served import EVERYTHING, MAIN, MODEL, hover, places, replaced, spot, taken

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "logistic.dfl"
OF_A_FILE = ("documentSymbol", "foldingRange", "semanticTokens/full")
AT_A_PLACE = (
    "hover", "completion", "signatureHelp", "definition", "references", "documentHighlight", "prepareRename",
    "rename", "prepareCallHierarchy",
)  # fmt: skip
ASKED = (*AT_A_PLACE, *OF_A_FILE, "inlayHint", "codeAction", "formatting")
WRITES = """\
let x = [1.0, 2.0]

fn loss(x: f32[n]) -> f32 = sum(x^2)

print(grad(loss)(x))
write_npy("written.npy", x)

test "it is small" {
  assert loss(x) < 10.0
}
"""


def everything(client: Client, uri: str, line: int, column: int) -> dict[str, dict[str, Any]]:
    """The answers to all that can be asked of a file and of a place in it."""
    more = {
        "context": {"diagnostics": [], "includeDeclaration": True, "triggerKind": 1, "isRetrigger": False},
        "newName": "other",
        "options": {"tabSize": 2, "insertSpaces": True},
        "range": EVERYTHING,
    }
    return {m: client.request(f"textDocument/{m}", **client.at(uri, line, column), **more) for m in ASKED}


def test_each_feature_is_asked_for_by_a_client() -> None:
    """A feature without one is told by its name."""
    written = {word for file in HERE.glob("test_*.py") for word in re.findall(r'"([\w/.]+)"', file.read_text("utf-8"))}
    written |= set(re.findall(r'"([\w/.]+)"', (HERE.parent / "support" / "language_client.py").read_text("utf-8")))
    ask = (
        "from difflang.lsp.request_handlers import server as s; print(*s.protocol.fm.features, *s.protocol.fm.commands)"
    )
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, timeout=120)
    features = set(told.stdout.split())
    assert len(features) > 20
    asked = {name for name in features if {name, name.removeprefix("textDocument/")} & written}
    assert features - asked == set()


def test_what_is_announced_is_what_there_is(client: Client) -> None:
    """An editor asks for nothing that it was not told of."""
    told = {name.removesuffix("Provider") for name, value in client.abilities.items() if value and "Provider" in name}
    assert told == {
        "callHierarchy", "codeAction", "completion", "definition", "documentFormatting", "documentHighlight",
        "documentSymbol", "executeCommand", "foldingRange", "hover", "inlayHint", "references", "rename",
        "semanticTokens", "signatureHelp",
    }  # fmt: skip
    assert client.abilities["textDocumentSync"]["change"] == 2  # in pieces
    assert client.abilities["executeCommandProvider"]["commands"] == ["difflang.derive"]


def test_it_is_said_beforehand_whether_a_name_can_be_changed(client: Client, main: str) -> None:
    assert taken(MAIN, places(client, "prepareRename", main, "along")) == "along"
    assert taken(MAIN, places(client, "prepareRename", main, "model", 1)) == "model"
    assert places(client, "prepareRename", main, "# ein") is None
    refused = client.request("textDocument/prepareRename", **client.at(main, *spot(MAIN, "mean")))
    assert "not declared" in refused["error"]["message"]


def test_a_file_that_another_program_writes_is_read_again(client: Client, tmp_path: Path) -> None:
    """A formatter or another branch: the editor says so, and the text that imports it is checked."""
    (tmp_path / "model.dfl").write_text(MODEL, encoding="utf-8")
    uri = client.open(tmp_path / "main.dfl", MAIN)
    assert client.reports(uri, settled=True) == []
    (tmp_path / "model.dfl").write_text(MODEL.replace("along", "follow"), encoding="utf-8")
    client.told.queue.clear()
    client.tell("workspace/didChangeWatchedFiles", changes=[{"uri": (tmp_path / "model.dfl").as_uri(), "type": 2}])
    assert {r["code"] for r in client.reports(uri, settled=True)} == {"DL0723"}
    client.close(uri)


def test_a_file_that_another_program_changed_or_removed_is_not_renamed_where_it_was(
    client: Client, folder: Path, main: str
) -> None:
    """Nobody says so to a server, and the file was read before."""
    other = folder / "other.dfl"
    other.write_text('import "./model.dfl" (along, Line)\nprint(along(Line(1.0, 0.0), [1.0]))\n', encoding="utf-8")

    def renamed() -> set[str]:
        return {Path(uri).name for uri in places(client, "rename", main, "along", newName="follow")["changes"]}

    assert renamed() == {"main.dfl", "model.dfl", "other.dfl"}
    other.write_text("print(1.0)\n", encoding="utf-8")
    assert renamed() == {"main.dfl", "model.dfl"}
    other.write_text('import "./model.dfl" (along)\n', encoding="utf-8")
    assert renamed() == {"main.dfl", "model.dfl", "other.dfl"}
    other.unlink()
    assert renamed() == {"main.dfl", "model.dfl"}


def test_a_gradient_is_offered_within_a_function_to_who_asks_for_refactorings(client: Client, main: str) -> None:
    line, column = spot(MAIN, "far^2")
    place = {"line": line, "character": column}

    def offered(**more: Any) -> list[str]:
        found = client.ask("textDocument/codeAction", textDocument={"uri": main}, range={"start": place, "end": place},
                           context={"diagnostics": [], **more})  # fmt: skip
        return [action["command"]["arguments"][1] for action in found if action["kind"] == "refactor.rewrite"]

    assert (offered(only=["refactor.rewrite"]), offered(only=["quickfix"]), offered()) == (["loss"], [], [])


# ---- Broken texts


def test_a_broken_declaration_keeps_the_types_that_it_had(client: Client, main: str) -> None:
    """Its own and those of all others, in what is told, shown, proposed and coloured."""
    broken = MAIN.replace("  mean(squares)\n", "  mean(squ\n")
    client.change(main, {"text": broken})
    assert client.reports(main, settled=True)
    line, column = spot(broken, "mean(squ")
    items = client.ask("textDocument/completion", **client.at(main, line, column + len("mean(squ")))["items"]
    assert [(i["label"], i["detail"]) for i in items][:1] == [("squares", "f32[n]")]
    assert "next: Line" in hover(client, main, "next", text=broken)
    hints = client.ask("textDocument/inlayHint", textDocument={"uri": main}, range=EVERYTHING)
    assert {": f32[n]", ": f32[3]", ": Line", " -> Line"} <= {h["label"] for h in hints}
    client.change(main, {"text": broken.replace("(squ\n", "(squa\n")})  # and so for every key that follows
    items = client.ask("textDocument/completion", **client.at(main, line, column + len("mean(squa")))["items"]
    assert [(i["label"], i["detail"]) for i in items][:1] == [("squares", "f32[n]")]
    assert "next: Line" in hover(client, main, "next", text=broken)
    assert "step" in {s["name"] for s in client.ask("textDocument/documentSymbol", textDocument={"uri": main})}
    assert places(client, "definition", main, "along")["uri"].endswith("model.dfl")


def pieces(rng: random.Random, text: str, count: int) -> tuple[str, list[dict[str, Any]]]:
    """A text after some edits, and the edits as an editor sends them, each about the text after the one before."""
    edits: list[dict[str, Any]] = []
    for _ in range(count):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice((0, 0, 0, 1, 3, 40)))
        new = rng.choice(("", "x", "𝛼", "\n", "(", "}", '"', " = 1.0\n", "fn f(x: f32) -> f32 = x\n", "let y ="))
        edits.append(replaced(where(text, start), where(text, end), new))
        text = text[:start] + new + text[end:]
    return text, edits


def where(text: str, at: int) -> tuple[int, int]:
    """Line and column, in UTF-16 units, of a character."""
    before = text[:at]
    return before.count("\n"), len(before.rsplit("\n", 1)[-1].encode("utf-16-le")) // 2


def known(client: Client, uri: str) -> list[Any]:
    """What is said of a file that does not depend on what it is called."""
    found: list[Any] = [sorted((r["code"], str(r["range"]), r["message"]) for r in client.reports(uri, settled=True))]
    for method in (*OF_A_FILE, "inlayHint"):
        found.append(client.ask(f"textDocument/{method}", textDocument={"uri": uri}, range=EVERYTHING))
    return found


def test_edits_in_pieces_are_the_text_sent_whole(client: Client, folder: Path) -> None:
    """One file is told of each edit, the other of the text that there is by then."""
    rng = random.Random(f"{SEED} pieces")
    one, other = (client.open(folder / name, MAIN) for name in ("one.dfl", "other.dfl"))
    text = MAIN
    for step in range(12):
        text, edits = pieces(rng, text if step % 4 else MAIN + text[:40], 1 + step % 3)
        if step % 4 == 0:
            edits = [{"text": text}]
        client.change(one, *edits)
        told = known(client, one)
        client.change(other, {"text": text})
        assert told == known(client, other), f"after {step + 1} steps:\n{text}"
    for uri in (one, other):
        client.close(uri)


@pytest.mark.nightly
def test_an_example_typed_key_by_key_is_right_in_the_end(client: Client) -> None:
    """Everything is asked on the way, and no answer is a fault of ours."""
    text = EXAMPLE.read_text(encoding="utf-8")
    uri = client.open(EXAMPLE, "")
    line = column = 0
    for i, key in enumerate(text):
        client.change(uri, replaced((line, column), (line, column), key))
        line, column = (line + 1, 0) if key == "\n" else (line, column + 1)
        if i % 150 == 149:
            for method, answer in everything(client, uri, line, column).items():
                if "ename" not in method:  # what cannot be changed is refused
                    assert "error" not in answer, (method, answer)
                assert answer.get("error", {}).get("message") != "Invalid Params"
    assert client.reports(uri, settled=True) == []
    client.close(uri)


# ---- Nothing is run


def test_no_program_is_run_and_no_jax_is_there_whatever_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the server's Python writes of its own imports. The file would leave another one beside it."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "writes.dfl").write_text(WRITES, encoding="utf-8")
    with (tmp_path / "imports").open("w+") as imports:
        client = Client(tmp_path / "work", stderr=imports)
        uri = client.open(tmp_path / "work" / "writes.dfl", WRITES)
        assert client.reports(uri, settled=True) == []
        for method, answer in everything(client, uri, *spot(WRITES, "loss")).items():
            assert "error" not in answer, (method, answer)
        assert "its gradient" in hover(client, uri, "loss", text=WRITES)
        client.change(uri, {"text": WRITES.replace("sum(x^2)", "sun(x^2)")})
        assert client.reports(uri, settled=True)
        assert client.end() == 0
        imports.seek(0)
        names = {line.rpartition("|")[2].strip() for line in imports}
    assert "difflang.lsp.request_handlers" in names
    assert {name for name in names if name.partition(".")[0] in ("jax", "jaxlib", "flax")} == set()
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["writes.dfl"]


def test_a_command_that_there_is_not_is_refused(client: Client) -> None:
    answer = client.request("workspace/executeCommand", command="difflang.run", arguments=[])
    assert answer["error"]["message"]
