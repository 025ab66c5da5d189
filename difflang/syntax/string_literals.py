"""The contents of string literals: text with escapes resolved, and the spans of interpolated expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.source import Source, Span

ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", '"': '"', "\\": "\\", "{": "{", "}": "}"}
_PLAIN_TEXT = re.compile(r"[^\\{}]+")
_UNICODE = re.compile(r"u\{([0-9a-fA-F]{1,6})\}")
_BRACKET_DEPTH = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


class InterpolationSpan(Struct, frozen=True):
    """`{expression:format}`: the span with its braces, the expression's, and the format."""

    span: Span
    expression: Span
    format: str


def split_literal(source: Source, start: int, end: int, reports: list[Diagnostic]) -> Iterator[str | InterpolationSpan]:
    """The parts between the quotes, in order. Mistakes go to `reports` and are dropped."""
    text = source.text
    pos = start
    while pos < end:
        char = text[pos]
        if plain := _PLAIN_TEXT.match(text, pos, end):
            yield plain[0]
            pos = plain.end()
        elif char == "\\":
            found, pos = _read_escape(source, pos, end, reports)
            yield found
        # A doubled brace stands for itself.
        elif text.startswith((char * 2), pos, end):
            yield char
            pos += 2
        elif char == "{":
            hole = _read_interpolation(source, pos, end, reports)
            if hole is None:
                return
            yield hole
            pos = hole.span.end
        else:
            reports.append(_report("DL0118", "a single `}` in a string", Span(source, pos, pos + 1), "write `}}`"))
            pos += 1


def _read_escape(source: Source, pos: int, end: int, reports: list[Diagnostic]) -> tuple[str, int]:
    """The character of an escape sequence, and where it ends."""
    text = source.text
    letter = text[pos + 1 : pos + 2]
    if letter in ESCAPES and letter:
        return ESCAPES[letter], pos + 2
    if code := _UNICODE.match(text, pos + 1, end):
        number = int(code[1], 16)
        # Surrogates are not characters: UTF-8 cannot encode them.
        if number <= 0x10FFFF and not 0xD800 <= number < 0xE000:
            return chr(number), code.end()
    stop = code.end() if code else min(pos + 2, end)
    known = 'the escapes are \\n \\t \\r \\0 \\" \\\\ \\{ \\} and \\u{3b1}'
    reports.append(_report("DL0117", f"there is no escape `{text[pos:stop]}`", Span(source, pos, stop), "", known))
    return "", stop


def _read_interpolation(source: Source, pos: int, end: int, reports: list[Diagnostic]) -> InterpolationSpan | None:
    """The interpolation from the brace at `pos` to its partner."""
    text = source.text
    depth, colon = 0, -1
    for at in range(pos, end):
        depth += _BRACKET_DEPTH.get(text[at], 0)
        if text[at] == ":" and depth == 1 and colon < 0:
            colon = at
        if depth == 0:
            stop = colon if colon >= 0 else at
            format = text[colon + 1 : at] if colon >= 0 else ""
            return InterpolationSpan(Span(source, pos, at + 1), Span(source, pos + 1, stop), format)
    help = "write `{{` for a brace that does not begin an expression"
    reports.append(_report("DL0118", "`{` in a string is never closed", Span(source, pos, pos + 1), "", help))
    return None


def _report(code: str, message: str, span: Span, label: str, *helps: str) -> Diagnostic:
    return Diagnostic(code, message, (Label(span, label),), helps)
