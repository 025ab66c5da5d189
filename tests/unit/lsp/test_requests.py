"""What is answered about places of a text, asked in this process; `tests/editor` has a client ask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from difflang.base.source import Source
from difflang.lsp import completion_items, hover_and_hints, language_server, rename_symbol
from difflang.lsp.code_actions import apply_edits
from difflang.lsp.incremental_check import CheckCancelled
from difflang.lsp.language_server import DifflangServer
from difflang.lsp.name_resolution import occurrence_at
from difflang.lsp.positions import PositionMap, utf16_length
from difflang.lsp.request_handlers import formatting, rename
from difflang.lsp.workspace import Document, Workspace

SHAPES = "pub enum Shape { Circle(r: f32), Empty }\n"
AREA = """\
import "./shapes.dfl" as shapes

fn area(s: shapes.Shape) -> f32 {
  match s {
    shapes.Circle(r) => 3.0 * r * r
    shapes.Empty => 0.0
  }
}
"""
ADDED = """\
fn add(v: f32[n], w: f32[n]) -> f32[n] = v + w

fn f(x: f32[n], y: f32[n]) -> f32[n] {
  let wide = 1.0
  let what = y
"""


def opened(workspace: Workspace, text: str, path: Path = Path("/main.dfl")) -> Document:
    document = workspace.document(path, path.name)
    document.version = 1
    document.set_text(text)
    workspace.check(document, lambda: None, lambda: None)
    return document


@pytest.mark.parametrize("name", ["Circle", "Empty"])
def test_a_variant_of_a_module_is_renamed_in_a_case(name: str, tmp_path: Path) -> None:
    (tmp_path / "shapes.dfl").write_text(SHAPES, encoding="utf-8")
    workspace = Workspace()
    shapes, main = opened(workspace, SHAPES, tmp_path / "shapes.dfl"), opened(workspace, AREA, tmp_path / "main.dfl")
    assert main.analysis is not None and main.analysis.diagnostics() == []
    for document in (shapes, main):  # from where it is declared, and from the case
        found = occurrence_at(document, document.text.index(name) + 1)
        assert found is not None
        edits = rename_symbol.rename_edits(found, "Other", [shapes, main])
        rename_symbol.verify_rename(workspace, found, edits, lambda: None)
        assert apply_edits(main.text, edits[main]) == AREA.replace(name, "Other")
        assert apply_edits(shapes.text, edits[shapes]) == SHAPES.replace(name, "Other")


RULED = "record Rod { a: f64 }\n\nfn f(r: Rod) -> f64 = r.a\n\nrule f(r: Rod) { (f(r), |d| 1.0 * d.a) }\n"
INNER = "fn f(x: f32[n]) -> f32 {\n  fn part(z: f32[n]) -> f32 = sum(z)\n  part(x) + x.part() + x.abs().part()\n}\n"

CAPTURED = """\
record Pair[n] { left: f32[n], right: f32[n] }

fn total(p: Pair[n]) -> f32 {
  fn part(z: f32[n]) -> f32 = sum(z) + sum(p.left)
  part(p.right)
}

print(total(Pair(left = [1.0, 2.0], right = [3.0, 4.0])))
"""


def renamed(text: str, old: str, nth: int, new: str) -> str:
    """A text after the name at a place of it got another, which is proved to be right. Errors: Refused."""
    workspace = Workspace()
    document = opened(workspace, text)
    at = -1
    for _ in range(nth + 1):
        at = text.index(old, at + 1)
    found = occurrence_at(document, at)
    assert found is not None
    edits = rename_symbol.rename_edits(found, new, [document])
    rename_symbol.verify_rename(workspace, found, edits, lambda: None)
    return apply_edits(text, edits[document])


AXES = "axes data, model\n\nfn f(x: f32[n @data]) -> f32[n] = reshard(x, @data)\n\nlet data = 2.0\nprint(data)\n"


def test_an_axis_of_a_mesh_is_no_value() -> None:
    assert renamed(AXES, "data", 0, "rows") == AXES.replace("axes data", "axes rows").replace("@data", "@rows")
    assert renamed(AXES, "data", 3, "d") == AXES.replace("let data", "let d").replace("print(data)", "print(d)")
    found = occurrence_at(opened(Workspace(), AXES), AXES.index("@data") + 1)
    assert found is not None and "axes data" in hover_and_hints.name_hover(found)


@pytest.mark.parametrize(
    ("text", "old", "nth", "new"),
    [
        (RULED, "Rod", 0, "Bar"),  # in the types of a rule, which the checker does not read
        (RULED, "r:", 0, "whole:"),  # the parameters of a rule are called as those of its function
        (RULED, "r:", 1, "whole:"),
        (INNER, "part", 0, "sum_of"),  # what is declared in a block is called behind a dot too
        (INNER, "part", 2, "sum_of"),
        (CAPTURED, "left", 0, "first"),  # of what a function in a block has from around it
    ],
)
def test_a_name_is_changed_where_the_language_repeats_it(text: str, old: str, nth: int, new: str) -> None:
    after = renamed(text, old, nth, new.rstrip(":"))
    assert after == text.replace(old, new).replace("f(r)", "f(whole)" if old == "r:" else "f(r)").replace(
        "= r.a", "= whole.a" if old == "r:" else "= r.a"
    )


def test_a_refusal_names_the_mistake_that_would_be_new() -> None:
    text = "fn f(e: f64, m: f64) -> f64 = e * m\nlet wrong = 1.0.nothing\nlet d = grad[e, m](f)(1.0, 2.0)\nprint(d.e)\n"
    with pytest.raises(rename_symbol.RenameRefused, match=r"in line 4: .*`e`"):
        renamed(text, "e:", 0, "rest")


@pytest.mark.parametrize(
    ("typed", "label", "active"),
    [
        ("x.add(", "fn add(v: f32[n], w: f32[n]) -> f32[n]", 1),  # `x.add(y)` is `add(x, y)`
        ("(x + y).add(", "fn add(v: f32[n], w: f32[n]) -> f32[n]", 1),
        ("x.add(w = ", "fn add(v: f32[n], w: f32[n]) -> f32[n]", 1),
        ("add(x, ", "fn add(v: f32[n], w: f32[n]) -> f32[n]", 1),
        ("fn add(", None, None),  # nothing is called there
    ],
)
def test_what_a_call_takes_next_is_shown(typed: str, label: str | None, active: int | None) -> None:
    document = opened(Workspace(), ADDED + "  " + typed)
    told = hover_and_hints.signature_help(document, len(document.text))
    assert (told.signatures[0].label if told else None, told.active_parameter if told else None) == (label, active)


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("x.add(w", ["what", "wide"]),  # of the type that is needed first
        ("1.0.add(w", ["what", "wide"]),
        ('print("{w', ["what", "while"]),
        ('print("{{w', []),
        ('print("{x} w', []),
        ('print("{x:w', []),
        ('print("{x}")  # {w', []),
    ],
)
def test_names_are_proposed_where_an_expression_stands(typed: str, first: list[str]) -> None:
    document = opened(Workspace(), ADDED + "  x\n}\n")
    document.set_text(ADDED + "  " + typed)
    places = PositionMap(Source("main.dfl", document.text))
    found = [item.label for item in completion_items.complete_at(document, len(document.text), places)]
    assert found[:1] == first[:1] and set(first) <= set(found)


def test_a_result_is_hinted_behind_what_is_taken_not_in_a_comment() -> None:
    text = "fn f(\n  x: f32,  # a slope (in m)\n  y: f32  # a place (in m)\n) = x * y\n"
    places = PositionMap(Source("main.dfl", text))
    (hint,) = hover_and_hints.inlay_hints(opened(Workspace(), text), 0, len(text), places)
    assert (hint.label, hint.position.line, hint.position.character) == (" -> f32", 3, 1)


def test_a_file_is_laid_out_while_another_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who saves a file does not wait for the thread that checks, which may be at something long."""
    monkeypatch.setattr(DifflangServer, "units", property(lambda _: utf16_length))
    server, checked = DifflangServer(), threading.Event()
    server.worker.submit(checked.wait)
    document = opened(server.files, "let   x = 1.0\n")
    server.opened[document.uri] = document
    options = lsp.FormattingOptions(tab_size=2, insert_spaces=True)
    asked = lsp.DocumentFormattingParams(lsp.TextDocumentIdentifier(document.uri), options)
    try:
        (edit,) = asyncio.run(asyncio.wait_for(formatting(server, asked), 60))
    finally:
        checked.set()
    assert edit.new_text == "let x = 1.0\n"


CHAINED = """record A {
  w: f32
}
record B {
  w: f32
}
fn made(a: A, k: f32) = B(k * a.w + nowhere)

fn g(a: A) -> f32 {
  a.made(2.0).w
}
"""


def test_a_field_of_what_an_unknown_call_gives_is_nobody_s() -> None:
    """What `a` is says nothing of what `a.made(2.0)` is."""
    document = opened(Workspace(), CHAINED)
    found = occurrence_at(document, document.text.index("w: f32"))
    assert found is not None
    assert apply_edits(document.text, rename_symbol.rename_edits(found, "v", [document])[document]).endswith(
        "a.made(2.0).w\n}\n"
    )


def test_a_hint_is_placed_at_once_whatever_the_comments_hold() -> None:
    """A declaration that is not closed, with comments: each may be read in one way only."""
    assert hover_and_hints.PARAMETER_LIST_END.match("(a: f32," + "# twenty letters long.\n" * 60) is None


def deep_document(server: DifflangServer) -> Document:
    document = opened(server.files, "let x = " + "(" * 3000 + "1.0" + ")" * 3000 + "\n")
    server.opened[document.uri] = document
    return document


def formatting_of(document: Document) -> lsp.DocumentFormattingParams:
    options = lsp.FormattingOptions(tab_size=2, insert_spaces=True)
    return lsp.DocumentFormattingParams(lsp.TextDocumentIdentifier(document.uri), options)


def test_formatting_ends_once_its_document_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DifflangServer, "units", property(lambda _: utf16_length))
    server = DifflangServer()
    document = deep_document(server)

    async def change() -> None:
        request = asyncio.ensure_future(formatting(server, formatting_of(document)))
        await asyncio.sleep(0.01)
        document.set_text("let x = 2.0\n")
        await request

    with pytest.raises(JsonRpcException) as refused:
        asyncio.run(change())
    assert refused.value.code == lsp.LSPErrorCodes.ContentModified.value


def test_formatting_ends_once_its_request_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DifflangServer, "units", property(lambda _: utf16_length))
    server, ends = DifflangServer(), list[BaseException]()

    def watched(source: Source, pause: Callable[[], None]) -> list[tuple[int, int, str]]:
        try:
            while True:
                pause()
        except BaseException as end:
            ends.append(end)
            raise

    monkeypatch.setattr(language_server, "formatting_edits", watched)
    document = deep_document(server)

    async def cancel() -> None:
        request = asyncio.ensure_future(formatting(server, formatting_of(document)))
        await asyncio.sleep(0.01)
        request.cancel()
        await request

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel())
    server.formatter.shutdown(wait=True)
    assert [type(end) for end in ends] == [CheckCancelled]


def test_a_position_in_a_text_that_has_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DifflangServer, "units", property(lambda _: utf16_length))
    server = DifflangServer()
    document = opened(server.files, "let one = 1.0\nlet two = 2.0\n")
    server.opened[document.uri] = document

    async def change() -> None:
        checked = asyncio.Event()

        async def check() -> None:
            await checked.wait()

        server.task = asyncio.ensure_future(check())
        where = lsp.TextDocumentIdentifier(document.uri)
        request = asyncio.ensure_future(rename(server, lsp.RenameParams(where, lsp.Position(1, 4), "new")))
        await asyncio.sleep(0.01)
        document.set_text("let one = 1.0\nlet zero = 0.0\nlet two = 2.0\n")
        checked.set()
        await request

    with pytest.raises(JsonRpcException) as refused:
        asyncio.run(change())
    assert refused.value.code == lsp.LSPErrorCodes.ContentModified.value


def test_a_document_that_does_not_fit_in_memory_has_one_diagnostic(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace()
    document = opened(workspace, "let one = 1.0\n")

    def exhausted(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("difflang.lsp.workspace.parse_parts", exhausted)
        document.set_text("let one = 1.0\nlet two = nowhere\n")
    workspace.check(document, lambda: None, lambda: None)
    assert document.analysis is not None and [d.code for d in document.analysis.diagnostics()] == ["DL1006"]
    document.set_text("let one = 1.0\n")
    workspace.check(document, lambda: None, lambda: None)
    assert document.analysis is not None and document.analysis.diagnostics() == []


def test_a_builtin_is_explained_by_its_entry() -> None:
    """Hover and signature help show the entry of the page, not the op behind it."""
    text = "fn f(x: f32[n], k: i32[m]) -> f32[m] = gather(x, k)\n"
    document = opened(Workspace(), text)
    found = occurrence_at(document, text.index("gather") + 1)
    assert found is not None
    shown = hover_and_hints.name_hover(found)
    assert shown.startswith("```difflang\nfn gather[T: any](x: T[..s], places: int[..p], axis: dim = 0) -> T[..r]\n```")
    assert "a position out of range ends the run, DL0902" in shown and "> gather([4, 5, 6], [2, 0])\n[6, 4]" in shown
    told = hover_and_hints.signature_help(opened(Workspace(), "let y = gather([1], axis = "), 27)
    assert told is not None and told.active_parameter == 2
    assert [p.label for p in told.signatures[0].parameters or ()][2] == "axis: dim = 0"


BROKEN = """\
fn f(x: f32) -> f32 {
  let y = x
  y + x
}

fn g(z: f32) -> f32 {
  let q = f(z
  q + f(1.0)
}

print(f(2.0))
"""


@pytest.mark.parametrize(
    ("text", "old", "line"),
    [
        (BROKEN, "f(x", 7),  # another declaration does not parse
        (BROKEN.replace("print(f(2.0))", "print(f(2.0)"), "f(x", 7),
        ("fn f(x: f32) -> f32 {\n  let y = x +\n  let z = = x\n  y\n}\n", "x:", 1),  # its own does not
        ('import "./shapes.dfl" as s\n\nlet a = s.Empty\nlet b = (s.Empty\n', "s\n", 4),
    ],
)
def test_a_name_in_text_with_a_syntax_error_is_not_renamed(text: str, old: str, line: int, tmp_path: Path) -> None:
    (tmp_path / "shapes.dfl").write_text(SHAPES, encoding="utf-8")
    document = opened(Workspace(), text, tmp_path / "main.dfl")
    found = occurrence_at(document, text.index(old))
    assert found is not None
    with pytest.raises(rename_symbol.RenameRefused, match=rf"in line {line} of main\.dfl"):
        rename_symbol.rename_edits(found, "other", [document])


def test_a_name_in_another_file_with_a_syntax_error_is_not_renamed(tmp_path: Path) -> None:
    workspace = Workspace()
    shapes = opened(workspace, SHAPES, tmp_path / "shapes.dfl")
    main = opened(workspace, AREA.replace("=> 0.0", "=> (0.0"), tmp_path / "main.dfl")
    found = occurrence_at(shapes, SHAPES.index("Circle"))
    assert found is not None
    with pytest.raises(rename_symbol.RenameRefused, match=r"in line 5 of main\.dfl"):
        rename_symbol.rename_edits(found, "Other", [shapes, main])


def test_a_local_name_is_renamed_beside_a_syntax_error_elsewhere() -> None:
    document = opened(Workspace(), BROKEN)
    found = occurrence_at(document, BROKEN.index("y = x"))
    assert found is not None
    edits = rename_symbol.rename_edits(found, "other", [document])
    assert apply_edits(BROKEN, edits[document]) == BROKEN.replace("y", "other")


def test_inferred_splits_are_shown() -> None:
    """In hints beside names without a type, and on hover with what each device has."""
    text = """axes data, model
fn score(w: f32[d, h @model], x: f32[n @data, d]) -> f32[n @data, h @model] {
  let z = x @ w
  let whole = reshard(z, _, _)
  let total = sum(z)
  tanh(z)
}
"""
    document, places = opened(Workspace(), text), PositionMap(Source("main.dfl", text))
    hints = [hint.label for hint in hover_and_hints.inlay_hints(document, 0, len(text), places)]
    assert hints == [": f32[n @data, h @model]", ": f32[n, h]", ": f32"]
    found = occurrence_at(document, text.index("z)"))
    assert found is not None
    shown = hover_and_hints.name_hover(found)
    assert "z: f32[n @data, h @model]" in shown and "`4*h*n / data / model` bytes on each device" in shown
    told = hover_and_hints.expression_hover(document, text.index("@ w"))
    assert told is not None and "x @ w: f32[n @data, h @model]" in told[0]
