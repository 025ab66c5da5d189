"""What each character of a program is, by our own parser: what every highlighter is held against."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from difflang.base.source import Source
from difflang.pygments import keyword_lists
from difflang.syntax.formatter.concrete_tree import ConcreteLeaf, parse_concrete_tree
from difflang.syntax.lexer import InterpolationSpan, Lexer, split_literal, tokenize
from difflang.syntax.parser_tables import END_OF_TEXT, load_tables

ROOT = Path(__file__).resolve().parents[2]
# One file of all that is hard, and every program that is in the repository to be read.
PROGRAMS = [
    ROOT / "tests" / "editor" / "corpus.dfl",
    *sorted((ROOT / "stdlib").glob("*.dfl")),
    *sorted((ROOT / "examples").rglob("*.dfl")),
]
PLAIN, HOLE = "", "hole"
BRACKETS = frozenset("()[]{},.:")
DTYPES, TYPES, CONSTANTS = (
    frozenset(keyword_lists.DTYPES),
    frozenset(keyword_lists.TYPES),
    frozenset(keyword_lists.CONSTANTS),
)
FUNCTIONS, TRANSFORMS = frozenset(keyword_lists.FUNCTIONS), frozenset(keyword_lists.TRANSFORMS)
SIGNS = {"UPDATE", "_LOLLI"}  # the contextual terminals that are operators
DECLARED = {"signature", "record", "enum", "rule", "extern"}  # their first name is the one declared
ESCAPE = re.compile(r"\\u\{[0-9a-fA-F]+\}|\\.|\{\{|\}\}")
Piece = tuple[int, int, str]


@cache
def classes(text: str) -> list[str]:
    """The class of each character, for a program without mistakes; of names and brackets PLAIN."""
    source = Source("<corpus>", text)
    found = [PLAIN] * len(text)
    for start, end, kind in all_pieces(source):
        found[start:end] = [kind] * (end - start)
    return found


def all_pieces(source: Source) -> Iterator[Piece]:
    for token in tokenize(source):
        if token.kind == "COMMENT":
            yield token.start, token.end, "doc" if token.text.startswith("##") else "comment"
    for node in parse_concrete_tree(source).nodes:
        leaves = [child for child in node.children if isinstance(child, ConcreteLeaf)]
        name = next((leaf for leaf in leaves if leaf.kind == "NAME"), None)
        for leaf in leaves:
            if leaf is name and node.kind in DECLARED:
                yield leaf.start, leaf.end, "declared"
            elif node.kind == "attribute_name":
                yield leaf.start - 1, leaf.end, "attribute"
            elif not (node.kind == "attribute" and leaf.kind == "AT"):
                yield from of_token(source, leaf.kind, leaf.start, leaf.end)


def of_token(source: Source, kind: str, start: int, end: int) -> Iterator[Piece]:
    """The class of a token, and of what a string holds."""
    if kind == "STRING":
        yield from of_string(source, start, end)
    elif kind == "NAME":
        yield start, end, of_name(source.text, start, end)
    elif kind in ("INT", "FLOAT"):
        yield start, end, "number"
    elif kind in ("TRUE", "FALSE"):
        yield start, end, "literal"
    elif kind in keywords():
        yield start, end, "keyword"
    elif source.text[start:end] not in BRACKETS and kind != "_NL":
        yield start, end, "operator"


@cache
def keywords() -> frozenset[str]:
    """The terminals that are words, reserved or contextual."""
    lexis = load_tables().lexis
    return frozenset({*lexis.words.values(), *dict(lexis.contextual)} - SIGNS)


def of_name(text: str, start: int, end: int) -> str:
    """A dtype; a function of the language where it is called; else nothing in particular."""
    name, before, after = text[start:end], text[max(0, start - 3) : start], text[end : end + 1]
    if name in DTYPES or (name in TYPES and before.endswith((": ", "-> "))):
        return "dtype"
    called = (name in FUNCTIONS and after in "('") or (name in TRANSFORMS and after in "([")
    return "builtin" if (called and after) or name in CONSTANTS else PLAIN


def of_string(source: Source, start: int, end: int) -> Iterator[Piece]:
    yield start, end, "string"
    yield from ((m.start(), m.end(), "escape") for m in ESCAPE.finditer(source.text, start + 1, end - 1))
    for piece in split_literal(source, start + 1, end - 1, []):
        if isinstance(piece, InterpolationSpan):
            yield piece.span.start, piece.span.end, HOLE
            yield piece.expression.start, piece.expression.end, PLAIN
            lexer = Lexer(source, piece.expression.start, piece.expression.end)
            while (kind := lexer.next(())) != END_OF_TEXT:
                yield from of_token(source, kind, lexer.start, lexer.stop)


def holes(text: str) -> list[bool]:
    """Which characters stand in a hole of a string, braces included."""
    found = [False] * len(text)
    for token in tokenize(Source("<corpus>", text)):
        if token.kind == "STRING":
            for piece in split_literal(Source("<corpus>", text), token.start + 1, token.end - 1, []):
                if isinstance(piece, InterpolationSpan):
                    found[piece.span.start : piece.span.end] = [True] * (piece.span.end - piece.span.start)
    return found


def differences(text: str, got: list[str], want: list[str]) -> list[str]:
    """Where two readings differ, each run of characters on its own line, without the space between tokens."""
    lines: list[str] = []
    at = 0
    while at < len(text):
        end = at + 1
        if got[at] != want[at] and not text[at].isspace():
            while end < len(text) and (got[end], want[end]) == (got[at], want[at]) and text[end] != "\n":
                end += 1
            row = text.count("\n", 0, at) + 1
            lines.append(f"line {row}: {text[at:end]!r} is {got[at] or 'plain'}, not {want[at] or 'plain'}")
        at = end
    return lines
