"""What the language server tells of calls, derivatives and sizes, and that it outlives hostile clients."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support.language_client import PATIENCE, Client
from support.served import MAIN, MODEL, applied, hover, places, replaced, spot

TRAINED = """\
record Net[i] { w: f32[i], b: f32 }

## How far a net is.
fn loss(net: Net[i], x: f32[n, i], y: f32[n], steps: i32) -> f32 {
  let z = x @ net.w + net.b
  let fixed = stop(z)
  mean((z - y)^2)
}

fn fit(net: Net[i], x: f32[n, i], y: f32[n]) -> Net[i] = net + -0.1 * grad(loss)(net, x, y, 1)
"""


def opened(client: Client, folder: Path, text: str, name: str = "trained.dfl") -> str:
    uri = client.open(folder / name, text)
    assert client.reports(uri, settled=True) == []
    return uri


# ---- Calls


def test_who_calls_whom_is_told_across_files(client: Client, main: str, folder: Path) -> None:
    (item,) = places(client, "prepareCallHierarchy", main, "along")
    assert (item["name"], item["uri"]) == ("along", (folder / "model.dfl").as_uri())
    (caller,) = client.ask("callHierarchy/incomingCalls", item=item)
    assert (caller["from"]["name"], len(caller["fromRanges"])) == ("loss", 1)
    callers = client.ask("callHierarchy/incomingCalls", item=caller["from"])
    assert {c["from"]["name"] for c in callers} == {"step", "main.dfl", "nothing is lost"}
    (called,) = client.ask("callHierarchy/outgoingCalls", item=caller["from"])
    assert called["to"]["name"] == "along" and called["to"]["detail"].endswith("model.dfl")
    assert places(client, "prepareCallHierarchy", main, "far", 1) is None


# ---- Derivatives


def test_hover_tells_what_a_function_and_its_gradient_take(client: Client, main: str, folder: Path) -> None:
    """The first formula counts a product of matrices, the second two."""
    uri = opened(client, folder, TRAINED)
    told = hover(client, uri, "loss", text=TRAINED)
    assert "of type `D(Net[i])`" in told and "`loss` takes `2*i*n + 4*n + 1` operations, its gradient `4*i*n" in told
    client.change(uri, {"text": TRAINED.replace("x @ net.w", "x @ (x @ net.w @ x)")})
    assert "4*i*n" not in hover(client, uri, "loss", text=TRAINED)  # it is about the text as it is
    client.close(uri)


def tokens(client: Client, uri: str, text: str) -> list[tuple[int, str, str, set[str]]]:
    """Line, text, type and modifiers of each token."""
    legend = client.abilities["semanticTokensProvider"]["legend"]
    data = client.ask("textDocument/semanticTokens/full", textDocument={"uri": uri})["data"]
    found, line, column = [], 0, 0
    for i in range(0, len(data), 5):
        step, across, length, kind, bits = data[i : i + 5]
        line, column = line + step, across if step else column + across
        modifiers = {m for j, m in enumerate(legend["tokenModifiers"]) if bits >> j & 1}
        found.append((line, text.split("\n")[line][column : column + length], legend["tokenTypes"][kind], modifiers))
    return found


def test_a_size_is_coloured_alike_everywhere_and_what_is_differentiated_is_marked(client: Client, folder: Path) -> None:
    uri = opened(client, folder, TRAINED)
    found = tokens(client, uri, TRAINED)
    groups = {name: {frozenset(m for m in ms if m.startswith("dim")) for _, word, kind, ms in found
                     if (word, kind) == (name, "typeParameter")} for name in ("n", "i")}  # fmt: skip
    assert groups == {"n": {frozenset({"dim7"})}, "i": {frozenset({"dim2"})}}
    marked = {(line, word) for line, word, _, ms in found if "differentiated" in ms}
    inside = {word for line, word in marked if 3 <= line <= 6}
    assert inside == {"loss", "net", "z"}  # neither what is stopped, nor a number of steps, nor the data
    assert {word for line, word in marked if line > 7} == {"loss"}
    client.close(uri)


def test_names_in_a_comment_keep_its_colour_and_are_renamed_all_the_same(client: Client, folder: Path) -> None:
    text = "## > half(2.0)\n## 1.0\nfn half(x: f32) -> f32 = x / 2.0\n\nprint(half(1.0))\n"
    uri = opened(client, folder, text)
    assert [line for line, word, _, _ in tokens(client, uri, text) if word == "half"] == [2, 4]
    edit = client.ask("textDocument/rename", **client.at(uri, *spot(text, "half", 1)), newName="part")
    assert "half" not in applied(text, edit["changes"][uri])
    client.close(uri)


def offered(client: Client, uri: str, text: str, name: str) -> list[dict[str, Any]]:
    line, column = spot(text, name)
    place = {"line": line, "character": column}
    found = client.ask("textDocument/codeAction", textDocument={"uri": uri}, range={"start": place, "end": place},
                       context={"diagnostics": []})  # fmt: skip
    return [action for action in found if action["kind"] == "refactor.rewrite"]


def carried_out(client: Client, action: dict[str, Any]) -> dict[str, Any]:
    """What the server asks for, or says, when a person takes an offer."""
    client.told.queue.clear()
    command = action["command"]
    client.ask("workspace/executeCommand", command=command["command"], arguments=command["arguments"])
    while True:
        message = client.told.get(timeout=PATIENCE)
        if message["method"] != "textDocument/publishDiagnostics":
            return message


def test_a_derivative_is_written_below_its_function_when_it_is_asked_for(client: Client, folder: Path) -> None:
    """It is that of the text as it stands, not of the file; and nothing is done before."""
    uri = opened(client, folder, TRAINED)
    (action,) = offered(client, uri, TRAINED, "loss")
    assert "edit" not in action
    asked = carried_out(client, action)
    after = applied(TRAINED, asked["params"]["edit"]["changes"][uri])
    assert asked["method"] == "workspace/applyEdit" and "fn d_loss(net: Net[i]" in after and "<stdin>" not in after
    client.change(uri, {"text": after})
    assert client.reports(uri, settled=True) == []
    again = carried_out(client, action)
    assert again["method"] == "window/showMessage" and "`d_loss` already exists" in again["params"]["message"]
    client.close(uri)


def test_a_derivative_that_cannot_be_written_is_refused(client: Client, main: str, folder: Path) -> None:
    (action,) = offered(client, main, MAIN, "loss")
    said = carried_out(client, action)
    assert said["method"] == "window/showMessage" and "`Line` is declared in another file" in said["params"]["message"]
    assert offered(client, main, MAIN, "squares") == []


# ---- Renaming


@pytest.mark.parametrize(
    ("text", "name", "nth", "new", "after"),
    [
        # in brackets stand names of the other function's parameters
        ("fn f(w: f32, x: f32) -> f32 = w * x\nfn g(w: f32) -> f32 = grad[w](f)(w, w)\n", "w", 2, "v",
         "grad[w](f)(v, v)"),
        ("fn f(w: f32, x: f32) -> f32 = w * x\nfn g(a: f32) -> f32 = grad[w](f)(w = a, x = a)\n", "w", 0, "v",
         "grad[v](f)(v = a"),
        ("record P { w: f32 }\nfn f(p: P) -> f32 = p.w^2\nfn g(p: P) -> f32 = grad[p.w](f)(p)\n", "w", 0, "v",
         "grad[p.v](f)(p)"),
        ('import "./model.dfl" as model\nfn f(l: model.Line) -> f32 = l.slope\n', "model", 1, "m",
         "l: m.Line"),
    ],
)  # fmt: skip
def test_a_name_is_changed_where_it_means_the_same(
    client: Client, folder: Path, text: str, name: str, nth: int, new: str, after: str
) -> None:
    uri = opened(client, folder, text)
    edit = client.ask("textDocument/rename", **client.at(uri, *spot(text, name, nth)), newName=new)
    changed = applied(text, edit["changes"][uri])
    assert after in changed
    client.change(uri, {"text": changed})
    assert client.reports(uri, settled=True) == []
    client.close(uri)


@pytest.mark.parametrize(
    ("text", "name", "nth", "new", "why"),
    [
        # another function would call this one instead of the language's
        ("fn f(x: f32[n]) -> f32 = x[0]\nfn g(x: f32[n]) -> f32 = mean(x)\n", "f", 1, "mean", "something else"),
        # the result of a derivative in several is a record with the parameters' names
        ("fn f(w: f32, v: f32) -> f32 = w * v\nfn g(a: f32) -> f32 {\n  let d = grad[w, v](f)(a, a)\n  d.w\n}\n",
         "w", 0, "u", "would cause an error"),
    ],
)  # fmt: skip
def test_a_name_that_would_mean_something_else_is_refused(
    client: Client, folder: Path, text: str, name: str, nth: int, new: str, why: str
) -> None:
    uri = opened(client, folder, text)
    answer = client.request("textDocument/rename", **client.at(uri, *spot(text, name, nth)), newName=new)
    assert why in answer["error"]["message"]
    client.close(uri)


def test_a_name_is_changed_in_texts_that_nobody_saved(client: Client, main: str, folder: Path) -> None:
    """What editors have open counts, in either file."""
    other = client.open(folder / "model.dfl", MODEL.replace("along", "follow"))
    text = MAIN.replace("along", "follow")
    client.change(main, {"text": text})
    assert client.reports(main, settled=True) == []
    edit = client.ask("textDocument/rename", **client.at(main, *spot(text, "follow")), newName="at")
    assert "model.at(line, x)" in applied(text, edit["changes"][main])
    assert "fn at(line" in applied(MODEL.replace("along", "follow"), edit["changes"][other])
    client.close(other)


# ---- Hostile clients


def test_a_message_that_is_none_is_answered_and_no_traceback_is_written(folder: Path, tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w+") as errors:
        client = Client(folder, stderr=errors)
        uri = client.open(folder / "main.dfl", MAIN)
        below = client.request("textDocument/hover", **client.at(uri, -1, 0))
        assert below["error"]["code"] == -32602
        refused = client.request("textDocument/rename", **client.at(uri, *spot(MAIN, "mean")), newName="average")
        assert "not declared" in refused["error"]["message"]
        nowhere = client.request("textDocument/hover", **client.at("file:///nowhere.dfl", 0, 0))
        assert "is not open" in nowhere["error"]["message"]
        client.send(method="textDocument/didChange", params={"nothing": 1})
        into = client.process.stdin
        assert into is not None
        into.write(b"Content-Length: 5\r\n\r\n{oops")
        assert client.ask("textDocument/documentSymbol", textDocument={"uri": uri})
        assert client.end() == 0
        errors.seek(0)
        assert "Traceback" not in errors.read()


def test_a_storm_of_edits_requests_and_cancels_is_outlived(client: Client, main: str) -> None:
    """Each request has one answer, and in the end the reports are those of the text."""
    methods = ("hover", "completion", "semanticTokens/full", "inlayHint", "documentSymbol", "rename")
    asked: list[int] = []
    for i in range(60):
        more = {"newName": "zz", "range": replaced((0, 0), (9, 0), "")["range"]}
        asked.append(client.begin(f"textDocument/{methods[i % 6]}", **client.at(main, i % 20, 5), **more))
        if i % 3 == 0:
            client.tell("$/cancelRequest", id=asked[-1])
        client.change(main, replaced((i % 20, 0), (i % 20, 0), "x {\n"[i % 4]))
    answers = [client.answers[number].get(timeout=PATIENCE) for number in asked]
    assert {a.get("error", {}).get("code", 0) for a in answers} <= {0, -32800, -32801, -32602}
    client.change(main, {"text": MAIN})
    assert client.reports(main, settled=True) == []


def test_a_file_that_is_taken_away_or_is_none_is_reported_at_its_import(client: Client, tmp_path: Path) -> None:
    (tmp_path / "model.dfl").write_text(MODEL, encoding="utf-8")
    uri = opened_in(client, tmp_path, MAIN)
    for codes, change in (
        ({"DL0720"}, (tmp_path / "model.dfl").unlink),
        ({"DL0720"}, (tmp_path / "model.dfl").mkdir),
        (set[str](), lambda: ((tmp_path / "model.dfl").rmdir(), (tmp_path / "model.dfl").write_text(MODEL))),
        ({"DL0703"}, lambda: (tmp_path / "model.dfl").write_bytes(b"\xff\xfe\x00")),
    ):
        change()
        client.told.queue.clear()
        client.change(uri, replaced((0, 0), (0, 0), ""))
        found = client.reports(uri, settled=True)
        assert len({r["code"] for r in found}) == len(codes), found
        assert all(r["range"]["start"]["line"] == 0 for r in found)
        assert not any("did you mean `./model.dfl`" in r["message"] for r in found)  # it is that already
    client.close(uri)


def opened_in(client: Client, folder: Path, text: str) -> str:
    uri = client.open(folder / "main.dfl", text)
    assert client.reports(uri, settled=True) == []
    return uri


def test_lines_that_end_in_two_characters_and_halves_of_characters(client: Client, main: str) -> None:
    text = MAIN.replace("\n", "\r\n")
    client.change(main, {"text": text})
    assert client.reports(main, settled=True) == []
    edit = client.ask("textDocument/rename", **client.at(main, *spot(MAIN, "far", 1)), newName="off")
    assert {e["range"]["start"]["line"] for e in edit["changes"][main]} == {5, 6}
    client.change(main, {"text": 'let x = "𝛼𝛽"\n'})
    client.change(main, replaced((0, 10), (0, 11), "z"))  # in the middle of a character: nothing breaks
    assert client.reports(main, settled=True) == []


def test_an_editor_that_is_closed_waits_for_no_check(folder: Path) -> None:
    """The file takes seconds to be checked; shutting down, and vanishing, end the server all the same."""
    block = (Path(__file__).parent / "block.dfl").read_text(encoding="utf-8")
    text = "".join(block.replace("Net", f"Net{i}").replace("_a", f"_{i}") for i in range(15))
    client = Client(folder)
    client.open(folder / "long.dfl", text)
    client.ask("textDocument/documentSymbol", textDocument={"uri": (folder / "long.dfl").as_uri()})
    assert client.end() == 0
    client = Client(folder)
    client.open(folder / "long.dfl", text)
    assert client.process.stdin is not None
    client.process.stdin.close()
    assert client.process.wait(timeout=PATIENCE) == 0


def test_an_editor_is_closed_while_a_derivative_is_written(folder: Path) -> None:
    client = Client(folder)
    uri = client.open(folder / "trained.dfl", TRAINED)
    waiting = client.begin("workspace/executeCommand", command="difflang.derive", arguments=[uri, "loss"])
    assert client.end() == 0
    assert client.answers[waiting].get(timeout=PATIENCE)["error"]["code"] == -32800


def test_a_body_of_thousands_of_lines_at_the_margin_is_read_in_time(folder: Path) -> None:
    """Each was tried together with those below it, which took the square of the time."""
    from difflang.lsp.incremental_parse import bracket_balance, parse_parts

    bracket_balance.cache_clear()
    text = "fn f(x: f32) -> f32 {\n" + "if x > 0.0 {\n" * 400
    start = time.process_time()
    parse_parts("deep.dfl", text, None)
    assert bracket_balance.cache_info().misses < 10 and time.process_time() - start < 20


def test_what_a_derivative_takes_is_found_without_jax() -> None:
    program = """
import sys, json
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.tools.cost import cost_formulas
text = '''fn f(x: f32[n]) -> f32 {
  var s = 0.0
  for i in 0..n { s = s + sin(x[i]) }
  s
}
fn g(a: f64[n, n], b: f64[n]) -> f64 = sum(solve(a, b))
fn h(x: f32) -> f32 {
  var s = x
  while s > 0.1 { s = s * 0.5 }
  s
}
fn k(x: f32) -> f32 = if x > 0.0 { sin(x) * x } else { x }
'''
checked = check_program(Source("f.dfl", text), None)
found = {}
for name, decl in checked.module.fns.items():
    both = cost_formulas(checked, decl, lambda: None)
    found[name] = [str(both[0]), both[0].per_step]
assert "jax" not in sys.modules
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "f": ["2*n", False], "g": ["n^3 + 2*n^2 + n", False], "h": ["2", True], "k": ["3", False]}  # fmt: skip
