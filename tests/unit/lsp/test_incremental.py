"""A text that is changed bit by bit is known as well as one that is read anew, and as well as by `difflang check`."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from difflang.base.diagnostics import Diagnostic, to_json
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.lsp import code_actions, completion_items, hover_and_hints, symbols_and_folding
from difflang.lsp.incremental_check import CheckCancelled
from difflang.lsp.incremental_parse import split_into_parts
from difflang.lsp.name_resolution import definition_of, occurrence_at, references
from difflang.lsp.positions import ENCODING_LENGTHS, PositionMap
from difflang.lsp.semantic_tokens import encode_tokens
from difflang.lsp.workspace import Document, Workspace, document_range
from support.seeds import SEED

ROOT = Path(__file__).resolve().parents[3]


def nothing() -> None:
    """No pause is needed, and nobody waits."""


def opened(path: Path, text: str, workspace: Workspace | None = None) -> tuple[Workspace, Document]:
    workspace = workspace or Workspace()
    workspace.documents.pop((path, ""), None)  # what it imports is known, it is not
    document = workspace.document(path, path.name)
    document.version = 1
    document.set_text(text)
    workspace.check(document, nothing, nothing)
    return workspace, document


def said(document: Document) -> list[str]:
    """All that is reported of a document: codes, messages, helps, and where in the whole text."""
    assert document.analysis is not None
    return sorted(map(spelled, document.analysis.diagnostics()))


def spelled(d: Diagnostic) -> str:
    places = []
    for label in d.labels:
        there = document_range(label.span)
        at = there[1:] if there is not None else (label.span.start, label.span.end)
        places.append((label.span.source.name, at, label.text))
    return repr((d.code, d.severity, d.message, places, d.helps))


def edited(rng: random.Random, text: str, original: str) -> str:
    """One change, as fingers and accidents make them."""
    at = rng.randrange(len(text) + 1)
    lines = text.split("\n")
    line = rng.randrange(len(lines))
    match rng.randrange(7):
        case 0:
            return text[:at] + rng.choice('(){}[]=x1\n ,:+*"#') + text[at:]
        case 1:
            return text[:at] + text[at + rng.randrange(1, 6) :]
        case 2:
            return "\n".join([*lines[:line], *lines[line + 1 :]])
        case 3:
            return "\n".join([*lines[:line], lines[line], *lines[line:]])
        case 4:
            return text.replace("f32", "f64", 1)
        case 5:
            return "\n".join([*lines[:line], "", *lines[line:]])
        case _:
            return original


@pytest.mark.parametrize("name", ["logistic.dfl", "digits.dfl"])
@pytest.mark.nightly_except("logistic.dfl")
def test_random_edits_leave_what_reading_anew_finds(name: str) -> None:
    path = ROOT / "examples" / name
    original = text = path.read_text(encoding="utf-8")
    workspace, document = opened(path, text)
    rng = random.Random(f"{SEED} {name}")
    for step in range(8):
        text = edited(rng, text, original)
        document.set_text(text)
        workspace.check(document, nothing, nothing)
        assert "".join(p.text for p in document.parts) == text
        assert said(document) == said(opened(path, text, workspace)[1]), f"after {step + 1} edits:\n{text}"


@pytest.mark.parametrize("name", ["examples/digits.dfl", "stdlib/losses.dfl"])
@pytest.mark.parametrize("wrong", ["", "nowhere"])
def test_a_file_in_parts_is_told_the_same_as_by_the_command_line(name: str, wrong: str) -> None:
    path = ROOT / name
    text = path.read_text(encoding="utf-8").replace("mean(", f"{wrong}mean(") + wrong
    _, document = opened(path, text)
    whole = check_program(Source(path.name, text), None, path, examples=True)
    assert said(document) == sorted(map(spelled, whole.diagnostics))
    assert bool(said(document)) == bool(wrong)


def test_where_a_line_stands_is_known_after_lines_above_it() -> None:
    text = "let a = 1.0\n\nfn f(x: f32) -> f32 {\n  x + y\n}\n"
    workspace, document = opened(Path("/main.dfl"), text)
    document.set_text("\n\n# more\n" + text)
    workspace.check(document, nothing, nothing)
    assert document.analysis is not None
    (report,) = document.analysis.diagnostics()
    assert report.span is not None and report.span.position == (7, 7)
    assert to_json([report])[0]["labels"][0]["start"]["line"] == 7


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        # A name that a function begins to read is bound again below.
        ("let k = 1.0\nfn f(x: f32) -> f32 = x\nlet k = 2.0\n", "x\n|x * k\n", {"DL0212"}),
        # What is missing may have been meant to be what is there by now.
        ("fn f(x: f32) -> f32 = halt(x)\n", "halt(x)\n|halt(x)\nfn half(x: f32) -> f32 = x\n", {"DL0201"}),
        # A function of a function changes what it gives.
        ("fn g(x: f32) = x\nfn f(x: f32) -> f32 = g(x)\n", "fn g(x: f32) = x|fn g(x: f32) = (x, x)", {"DL0304"}),
        # A variable that a function of the host assigns.
        ("var t = 1.0\nhost fn up() { t = t + 1.0 }\nup()\nprint(t)\n", "t + 1.0|true", {"DL0304"}),
    ],
)
def test_a_change_reaches_all_that_it_concerns(before: str, after: str, codes: set[str]) -> None:
    old, _, new = after.partition("|")
    workspace, document = opened(Path("/main.dfl"), before)
    document.set_text(before.replace(old, new, 1))
    workspace.check(document, nothing, nothing)
    assert document.analysis is not None
    assert said(document) == said(opened(Path("/main.dfl"), document.text)[1])
    assert {d.code for d in document.analysis.diagnostics()} == codes


def test_a_body_at_the_margin_is_one_part_with_its_head() -> None:
    text = "fn f(x: f32) -> f32 {\nlet y = x\ny * y\n}\n\nprint(f(2.0))\n"
    assert len(split_into_parts(text)) > 2
    _, document = opened(Path("/main.dfl"), text)
    assert [len(p.items) for p in document.parts] == [1, 1] and said(document) == []


@pytest.mark.parametrize("patience", [1, 40, 400, 900, 1200])
@pytest.mark.nightly_cases("40")
def test_a_check_that_is_given_up_is_taken_up_again(patience: int) -> None:
    """Wherever that happens, its end included."""
    path = ROOT / "examples" / "fit_curve.dfl"
    right = path.read_text(encoding="utf-8")
    workspace, document = opened(path, right)
    document.set_text(right.replace("sum(", "sun("))
    left = [patience]

    def pause() -> None:
        left[0] -= 1
        if not left[0]:
            raise CheckCancelled

    with contextlib.suppress(CheckCancelled):
        workspace.check(document, pause, nothing)
    workspace.check(document, nothing, nothing)
    assert said(document) == said(opened(path, document.text, workspace)[1])


def test_a_module_of_which_the_check_was_given_up_at_its_end_is_new_to_who_imports_it(tmp_path: Path) -> None:
    main, module = tmp_path / "main.dfl", tmp_path / "module.dfl"
    text = "## > half(2.0)\n## 1.0\npub fn half(x: f32) -> f32 = x / 2.0\n"
    module.write_text(text, encoding="utf-8")
    workspace, document = opened(main, 'import "./module.dfl" (half)\nprint(half(1.0))\n')
    other = workspace.document(module, "module.dfl")
    other.version = 1
    other.set_text(text.replace("half", "third"))

    def pause() -> None:
        if other.analysis is not None and other.parts[0].result is not None:
            raise CheckCancelled  # only its examples are left

    with pytest.raises(CheckCancelled):
        workspace.check(other, pause, nothing)
    workspace.check(document, nothing, nothing)
    assert document.analysis is not None
    assert [d.code for d in document.analysis.diagnostics()] == ["DL0723"]


def test_a_declaration_that_is_taken_away_is_gone() -> None:
    workspace, document = opened(Path("/main.dfl"), "fn f(x: f32) -> f32 = x\n\nfn g(x: f32) -> f32 = x\n")
    document.set_text("fn g(x: f32) -> f32 = x\n")
    workspace.check(document, nothing, nothing)
    assert document.module is not None and list(document.module.fns) == ["g"]


@pytest.mark.nightly
def test_a_program_typed_key_by_key_is_never_too_much() -> None:
    """Every state of a text on its way, and everything that can be asked of it."""
    text = (ROOT / "examples" / "logistic.dfl").read_text(encoding="utf-8")
    text = text[: text.index("## The share")].replace("Model", "Mo𝛼el")
    workspace, document = opened(Path("/typed.dfl"), "")
    for i in range(len(text)):
        document.set_text(text[: i + 1])
        workspace.check(document, nothing, nothing)
        places = PositionMap(Source("typed.dfl", document.text))
        completion_items.complete_at(document, i + 1, places)
        hover_and_hints.signature_help(document, i + 1)
        if i % 7 == 0:
            ask_everything(document, places, i)
    assert said(document) == []


STRANGE = [
    "",
    "\x00",
    "\ufefffloat f64\nlet x = 1.0\n",
    "let x = 1.0\nfloat f64\n",
    "(" * 3000,
    "fn f(",
    "a\u2028b\n",
    "\ud7ff",
    "let x = 1.0\r\nfn f(y: f32) -> f32 = x * y\r\n",
    "##\n" * 50,
    "let x = " + "+".join(["1.0"] * 3000),
    'import "./typed.dfl"\n',
    'import "./nowhere.dfl" as n\nimport nope\nprint(n.x)\n',
    "enum E { A, B(x: f32) }\nfn f(e: E) -> f32 = match e { A => 0.0, B(x) => x }\n",
]


@pytest.mark.nightly
def test_a_strange_text_is_no_fault_of_ours() -> None:
    """One after the other in one document, as when a file is overwritten."""
    workspace, document = opened(Path("/typed.dfl"), "")
    for text in STRANGE:
        document.set_text(text)
        workspace.check(document, nothing, nothing)
        places = PositionMap(Source("typed.dfl", text))
        for offset in {0, len(text) // 2, len(text)}:
            ask_everything(document, places, offset)
            completion_items.complete_at(document, offset, places)
            hover_and_hints.signature_help(document, offset)
            hover_and_hints.expression_hover(document, offset)
        assert said(document) == said(opened(Path("/typed.dfl"), text)[1])


@pytest.mark.parametrize(("encoding", "columns"), [("utf-8", 18), ("utf-16", 14), ("utf-32", 12)])
def test_columns_are_counted_as_was_agreed(encoding: str, columns: int) -> None:
    text = 'let y = 1.0\nprint("𝛼𝛽", oops)\n'
    places = PositionMap(Source("main.dfl", text), ENCODING_LENGTHS[encoding])
    at = places.position(text.index("oops"))
    assert (at.line, at.character) == (1, columns) and places.offset(at) == text.index("oops")


def ask_everything(document: Document, places: PositionMap, offset: int) -> None:
    assert document.analysis is not None
    document.analysis.diagnostics()
    found = occurrence_at(document, offset)
    if found is not None:
        hover_and_hints.name_hover(found)
        goal = definition_of(found)
        assert goal is None or goal.binding is None or list(references(goal, [document]))
    list(hover_and_hints.inlay_hints(document, 0, len(document.text), places))
    symbols_and_folding.document_symbols(document, places)
    list(symbols_and_folding.folding_ranges(document))
    assert len(encode_tokens(document, places)) % 5 == 0
    code_actions.formatting_edits(places.source, nothing)


def test_what_is_known_of_a_part_outlasts_its_mistakes() -> None:
    text = "fn f(x: f32[n]) -> f32[n] {\n  let there = x + 1.0\n  there\n}\n"
    workspace, document = opened(Path("/main.dfl"), text)
    document.set_text(text.replace("\n  there\n", "\n  the"))
    workspace.check(document, nothing, nothing)
    places = PositionMap(Source("main.dfl", document.text))
    found = completion_items.complete_at(document, document.text.index("\n  the") + 6, places)
    assert [(p.label, p.detail) for p in found][:1] == [("there", "f32[n]")]
