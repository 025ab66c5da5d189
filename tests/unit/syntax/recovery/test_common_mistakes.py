"""Mistakes are explained, each once, and what stands around them is understood."""

from __future__ import annotations

import random

import pytest

from difflang.base.error_codes import CODE_TITLES
from difflang.base.source import Source
from difflang.syntax import tree
from difflang.syntax.parse import ParsedModule, parse
from difflang.syntax.recovery.common_mistakes import (
    COMMON_MISTAKES,
    FOREIGN_KEYWORDS,
    CommonMistake,
    context_of_example,
)
from support.mistakes import plant
from support.programs import programs
from support.snippets import forms


def read(text: str) -> ParsedModule:
    return parse(Source("test", text))


def codes(text: str) -> list[str]:
    return [report.code for report in read(text).diagnostics]


def lets(parsed: ParsedModule) -> list[str]:
    patterns = [item.pattern for item in parsed.module.items if isinstance(item, tree.Let)]
    return [pattern.name for pattern in patterns if isinstance(pattern, tree.NamePattern)]


@pytest.mark.parametrize("mistake", COMMON_MISTAKES, ids=lambda mistake: mistake.example)
def test_each_example_is_explained_by_its_own_row(mistake: CommonMistake) -> None:
    parsed = read(f"{mistake.example}\nlet below = 1\n")
    assert [(report.code, report.message) for report in parsed.diagnostics] == [(mistake.code, mistake.message)]
    assert mistake.code in CODE_TITLES
    assert "below" in lets(parsed)


def test_an_example_without_a_mistake_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing is wrong"):
        context_of_example("let x = 1")


@pytest.mark.parametrize("word", sorted(FOREIGN_KEYWORDS))
def test_words_of_other_languages(word: str) -> None:
    assert codes(f"{word} f(x) {{\n  y\n}}\n" if word in ("def", "fun") else f"{word} x\n") in (["DL0108"], [])
    assert codes(f"let {word} = 1\n{word}(x)\n{word} = x.{word}") == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("fro i in 0..3 { x += 1 }", "for"),
        ("whlie x > 0 { x -= 1 }", "while"),
        ("fn f(x: f32) -> f32 {\n  retrun x\n}", "return"),
        ("recrod P { x: f32 }", "record"),
        ("lte x = 3", "let"),
        ("vra x = 3", "var"),
        ("improt optim", "import"),
        ("enmu E { A }", "enum"),
        ("fn f(x: f32) -> f32 {\n  macth x { _ => 1.0 }\n}", "match"),
        ('tset "a" { assert true }', "test"),
        ("for i in 0..3 {\n  yeild i\n}", "yield"),
        ("let y = if c { 1 } esle { 2 }", "else"),
    ],
)
def test_a_misspelt_word_is_named(text: str, word: str) -> None:
    parsed = read(f"{text}\nlet below = 1\n")
    assert [(r.code, r.helps) for r in parsed.diagnostics] == [("DL0101", (f"did you mean `{word}`?",))]
    assert "below" in lets(parsed)


@pytest.mark.parametrize("text", ["lets x", "x y", "fort 3", "rules y", "tests x"])
def test_a_name_near_a_word_is_asked_about_only_where_it_stands_as_a_word(text: str) -> None:
    assert codes(f"f({text.split()[0]})\n{text.split()[0]} = 2") == []
    assert len(codes(text)) == 1


@pytest.mark.parametrize("text", forms())
def test_no_form_of_the_language_is_taken_for_a_mistake(text: str) -> None:
    assert codes(text) == []


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_several_mistakes_are_reported_once_each(count: int) -> None:
    """In 95 files of 100 as many reports as mistakes, and never more than one too many."""
    rng = random.Random(count)
    texts = list(programs().values())
    right = tried = 0
    for _ in range(200):
        text, lines = plant(rng, rng.choice(texts), count)
        found = len(codes(text))
        assert found <= len(lines) + 1, text
        right += found == len(lines)
        tried += 1
    assert right >= 0.95 * tried


def test_reports_stand_on_the_lines_of_their_mistakes() -> None:
    text = "let a = 1;\nlet b = 2\nlet c = = 3\nlet d = 4\nif c = 4 { }\nlet e = f(1, 2\nlet g = 3\n"
    lines = [report.span.position[0] for report in read(text).diagnostics if report.span]
    assert lines == [1, 3, 5, 6]
    assert lets(read(text)) == ["a", "b", "c", "d", "e", "g"]


@pytest.mark.parametrize(
    ("text", "incomplete"),
    [
        ("let x =", True),
        ("fn f() {", True),
        ("fn f() {\n  x\n", True),
        ("f(1,", True),
        ("[1, 2\n", True),
        ("if c { 1 } else", True),
        ("x +", True),
        ("let x = 1", False),
        ("let x = )", False),
        ("let x = 1;\nf(", False),
        ("x y", False),
    ],
)
def test_an_unfinished_text_is_told_from_a_wrong_one(text: str, incomplete: bool) -> None:
    assert read(text).incomplete is incomplete


def test_the_brace_without_a_partner_is_found_by_the_layout() -> None:
    text = "fn f() {\n  if c {\n    x\n  y\n}\n\nfn g() { 1 }\n"
    (report,) = read(text).diagnostics
    assert report.span is not None
    assert (report.code, report.span.position) == ("DL0103", (2, 8))


@pytest.mark.parametrize(
    "text", ["\0", "\x7fELF\x01\x02\0\0", "let x = 1\0;;;", "\x89PNG\r\n\x1a\n" + "\0" * 50, "\ud800"]
)
def test_what_is_no_text_gets_one_report(text: str) -> None:
    assert codes(text) == ["DL0102"]


def test_too_many_mistakes_end_the_reading() -> None:
    found = codes("x y\n" * 1000)
    assert len(found) == 51
    assert found[-1] == "DL1001"
