"""The lexer: tokens on demand. The terminals that the parser can accept next decide the contextual keywords.

It also decides which newlines end a statement, attaches doc comments and splits the contents of strings.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from functools import cache

from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.source import Source, Span
from difflang.syntax.parser_tables import END_OF_TEXT, TerminalSet, load_tables

BAD_TOKEN = "$BAD"  # no terminal begins here
CLOSER_OF = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
CLOSERS = frozenset(CLOSER_OF.values())
# A newline after one of these ends a statement.
STATEMENT_ENDERS = frozenset(
    ("NAME", "INT", "FLOAT", "STRING", "TRUE", "FALSE", "BREAK", "CONTINUE", "RETURN", "QUOTE", *CLOSER_OF.values())
)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", '"': '"', "\\": "\\", "{": "{", "}": "}"}
_PLAIN_TEXT = re.compile(r"[^\\{}]+")
_UNICODE = re.compile(r"u\{([0-9a-fA-F]{1,6})\}")
_BRACKET_DEPTH = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


class Token(Struct, eq=False):
    """A terminal in the text."""

    kind: str
    text: str
    start: int
    end: int


@cache
def token_patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Patterns for the next token with contextual terminals, and without them; and for a continued line."""
    lexis = load_tables().lexis
    symbols = "|".join(map(re.escape, lexis.symbols))
    plain = "|".join(f"(?P<{name}>{pattern})" for name, pattern in lexis.patterns)
    plain = f"{plain}|(?P<SYMBOL>{symbols})"
    contextual = "|".join(f"(?P<{name}>{pattern})" for name, pattern in lexis.contextual)
    space = f"(?:{lexis.space})?"
    return (
        re.compile(f"{space}(?:{contextual}|{plain})"),
        re.compile(f"{space}(?:{plain})"),
        re.compile(lexis.join),
    )


class Lexer:
    """Reads `source` from `pos` to `end`. After `next`, the token lies from `start` to `stop`."""

    __slots__ = (
        "brackets", "comments", "docs", "end", "last", "lexis", "pending", "pos", "scanners", "source", "start", "stop"
    )  # fmt: skip

    def __init__(self, source: Source, pos: int, end: int) -> None:
        self.source = source
        self.pos = pos
        self.end = end
        self.start = self.stop = pos
        self.last = ""
        self.brackets: list[str] = ["LBRACE"]
        self.lexis: TerminalSet = load_tables().lexis
        self.scanners = token_patterns()
        self.comments: dict[int, int] = {}
        # Start of a token -> its doc comment.
        self.docs: dict[int, tuple[int, int]] = {}
        self.pending: tuple[int, int] | None = None

    def next(self, accepted: Container[str]) -> str:
        """The kind of the next token, given the terminals that the parser can accept."""
        text, end = self.source.text, self.end
        full, plain, join = self.scanners
        pos = self.pos
        while True:
            match = full.match(text, pos, end)
            if match is None:
                return self._nothing(pos)
            kind: str = match.lastgroup  # type: ignore[assignment]
            # Keywords match as names first, so that `format` is not `for` and a rest.
            if kind == "NAME":
                kind = self.lexis.words.get(match["NAME"], kind)
            elif kind == "SYMBOL":
                kind = self.lexis.symbols[match["SYMBOL"]]
            elif kind == "_NL":
                pos = match.end()
                if self.last not in STATEMENT_ENDERS or self.brackets[-1] != "LBRACE":
                    continue
                start = match.start("_NL")
                if join.match(text, start, end):
                    # So the other newlines before the next token do not count either.
                    self.last = ""
                    continue
                self.last, self.start, self.stop, self.pos = kind, start, pos, pos
                return kind
            elif kind == "COMMENT":
                pos = match.end()
                self._record_comment(match.start("COMMENT"), pos)
                continue
            elif kind not in accepted:
                # A contextual terminal that the parser cannot accept here is an ordinary name.
                match = plain.match(text, pos, end)
                if match is None:
                    return self._nothing(pos)
                kind = match.lastgroup  # type: ignore[assignment]
                if kind == "SYMBOL":
                    kind = self.lexis.symbols[match["SYMBOL"]]
            return self._accept_token(kind, match)

    def _accept_token(self, kind: str, match: re.Match[str]) -> str:
        start, stop = match.span(match.lastindex)  # type: ignore[arg-type]
        if kind in CLOSER_OF:
            self.brackets.append(kind)
        elif kind in CLOSERS and len(self.brackets) > 1:
            self.brackets.pop()
        if self.pending is not None:
            self.docs[start] = self.pending
            self.pending = None
        self.last, self.start, self.stop, self.pos = kind, start, stop, stop
        return kind

    def _nothing(self, pos: int) -> str:
        """The end of the text, or a character that begins no token."""
        text = self.source.text
        while pos < self.end and text[pos] in " \t":
            pos += 1
        self.start = self.pos = pos
        self.stop = min(pos + 1, self.end)
        return BAD_TOKEN if pos < self.end else END_OF_TEXT

    def _record_comment(self, start: int, stop: int) -> None:
        """Record a comment; a doc comment on lines of its own may belong to the next token."""
        text = self.source.text
        self.comments[start] = stop
        # Only a comment on its own line documents; consecutive ones form a block.
        if not text.startswith("##", start):
            return
        line = text.rfind("\n", 0, start) + 1
        if text[line:start].strip():
            return
        if self.pending is not None and text.count("\n", self.pending[1], start) == 1:
            self.pending = (self.pending[0], stop)
        else:
            self.pending = (start, stop)

    def restarted_at(self, pos: int, last: str, brackets: list[str]) -> Lexer:
        """A lexer of the same text at another position, sharing the recorded comments."""
        other = Lexer(self.source, pos, self.end)
        other.last, other.brackets = last, brackets
        other.comments, other.docs = self.comments, self.docs
        return other

    def doc_comment(self, start: int) -> str | None:
        """The text of the doc comment above the token that begins at `start`."""
        if start not in self.docs:
            return None
        lines = self.source.text[slice(*self.docs[start])].split("\n")
        return "\n".join(line.strip().removeprefix("##").removeprefix(" ") for line in lines)


def tokenize(source: Source) -> tuple[Token, ...]:
    """Every token and comment in order, contextual keywords as names: for highlighting and completeness."""
    lexer = Lexer(source, 0, len(source.text))
    found: list[Token] = []
    while (kind := lexer.next(())) != END_OF_TEXT:
        found.append(Token(kind, source.text[lexer.start : lexer.stop], lexer.start, lexer.stop))
        if kind == BAD_TOKEN:
            lexer.pos = lexer.stop
    found += (Token("COMMENT", source.text[a:b], a, b) for a, b in lexer.comments.items())
    return tuple(sorted(found, key=lambda token: token.start))


def comment_spans(lexer: Lexer) -> tuple[Span, ...]:
    """The comments seen so far, in order."""
    return tuple(Span(lexer.source, start, stop) for start, stop in sorted(lexer.comments.items()))


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
