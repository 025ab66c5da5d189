"""No text makes the parser raise, however it is cut, mixed or damaged; and what it says can be shown."""

from __future__ import annotations

import os
import random

import pytest

from difflang.base.diagnostics import render, to_json
from difflang.base.error_codes import CODE_TITLES
from difflang.base.source import Source
from difflang.syntax.lexer import tokenize
from difflang.syntax.parse import ParsedModule, parse, parse_expression
from support.programs import programs

COUNT = int(os.environ.get("DIFFLANG_FUZZ", "600"))
SEED = os.environ.get("DIFFLANG_SEED", "0")
STRANGE = (
    *";!&|?$\\\"'~`{}()[]@^:",
    *("\n", "\n  ", "\r\n", "\t", "elif", "def", '"{', '}"', '"{x:', "##d\n", "1.", ".5", "…", "é", "😀"),
    *('test "a"', "\x0b", "\u202e", "max=", "-o", "linear |x|"),
)


def read(text: str) -> ParsedModule:
    parsed = parse(Source("test", text))
    assert len(parsed.diagnostics) <= 60
    for report in parsed.diagnostics:
        assert report.code in CODE_TITLES
        for label in report.labels:
            assert 0 <= label.span.start <= label.span.end <= len(text)
    render(parsed.diagnostics)
    to_json(parsed.diagnostics)
    return parsed


def pool() -> list[str]:
    found = [token.text for text in programs().values() for token in tokenize(Source("test", text))]
    return found + [*STRANGE] * 20


def test_token_soup() -> None:
    rng = random.Random(SEED)
    tokens = pool()
    for _ in range(COUNT):
        text = "".join(rng.choice(tokens) + rng.choice((" ", " ", "", "\n")) for _ in range(rng.randint(1, 60)))
        read(text)
        parse_expression(Source("test", text))


@pytest.mark.parametrize("name", programs())
def test_cut_at_any_token(name: str) -> None:
    """A beginning of a good program is a good program or an unfinished one: at most one report."""
    text = programs()[name]
    for token in tokenize(Source("test", text)):
        if text[: token.start].endswith(("max", "min")):
            continue  # half of `max=`
        parsed = read(text[: token.start])
        assert len(parsed.diagnostics) <= 1
        assert parsed.incomplete == bool(parsed.diagnostics)


def test_damaged_programs() -> None:
    rng = random.Random(SEED)
    texts = list(programs().values())
    tokens = pool()
    for _ in range(COUNT):
        text = rng.choice(texts)
        start, end = sorted(rng.randrange(len(text)) for _ in range(2))
        read(text[:start] + text[end:])
        read(text[:start] + rng.choice(tokens) + text[start:])


@pytest.mark.parametrize(
    "text",
    ["(" * 10_000, "{" * 10_000, "{f(" * 5_000, "[" * 10_000 + ")" * 10_000, "x " * 10_000, "fn f() {\n" * 5_000,
     "\n" * 100_000, "## x\n" * 20_000, '"' * 10_001, "if x { " * 5_000, "'" * 10_001, "@a\n" * 5_000, "|x| " * 5_000,
     "let x = [" * 3_000, "x = 1" + "0" * 100_000, "match x { A => " * 2_000, '"' + "{x" * 20_000 + '"'],
    ids=lambda text: ascii(text[:10]),
)  # fmt: skip
def test_what_is_long_and_broken(text: str) -> None:
    read(text)
