"""Mends of a mistake: a token more or less, tried on the parser's states alone before it is made.

Which mends a mistake suggests is for `recover` and `mistakes` to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from difflang.syntax.lexer import BAD, CLOSES, OPENS, Lexer, Token
from difflang.syntax.parser_tables import END, tables
from difflang.syntax.recovery.error_context import brackets, feed

if TYPE_CHECKING:
    from difflang.syntax.parse import Parser

AHEAD = 4  # so many tokens must follow well for a mend to count
FAR = 16  # so many are tried to tell mends apart


class Mend(Struct, frozen=True):
    """Tokens to put in at `start`, and where to read on."""

    kinds: tuple[str, ...]
    start: int
    resume: int


def first(parser: Parser, *mends: Mend) -> Mend | None:
    """The first mend after which the text goes on well."""
    return next((mend for mend in mends if works(parser, mend)), None)


def best(parser: Parser, *mends: Mend, least: int = AHEAD) -> Mend | None:
    """The mend after which the text goes on well for longest, and for `least` tokens; the first of equals."""
    reach = {mend: _reach(parser, mend, FAR) for mend in mends}
    found = max(mends, key=lambda mend: reach[mend], default=None)
    return found if found is not None and reach[found] >= least else None


def works(parser: Parser, mend: Mend) -> bool:
    """Whether the text goes on well after a mend."""
    return _reach(parser, mend, AHEAD) >= AHEAD


def _reach(parser: Parser, mend: Mend, far: int) -> int:
    """How many tokens, up to `far`, go on well after a mend; `far` if its line or the text ends before that."""
    states = list(parser.states)
    if not all(feed(states, kind) for kind in mend.kinds):
        return 0
    rows, text = tables().rows, parser.source.text
    lexer = _lexer(parser, mend)
    for ahead in range(far):
        kind = lexer.next(rows[states[-1]])
        if kind == BAD:
            return far if ahead or mend.kinds else 0  # a mistake of its own
        if not feed(states, kind):
            # Neither the end of the text nor what is wrong on a later line is the fault of the mend.
            later = ahead > 0 and "\n" in text[mend.resume : lexer.start]
            return far if later or (kind == END and ahead > 1) else ahead
        if kind == END or (kind == "_NL" and ahead > 0):
            return far
    return far


def _lexer(parser: Parser, mend: Mend) -> Lexer:
    lexer = parser.lexer
    opened = ["LBRACE", *(token.kind for token in brackets(parser.values))]
    for kind in mend.kinds:
        if kind in OPENS:
            opened.append(kind)
        elif kind in CLOSES and len(opened) > 1:
            opened.pop()
    last = mend.kinds[-1] if mend.kinds else ""
    if not mend.kinds and mend.resume > mend.start and lexer.last != "_NL" and parser.recent:
        last = parser.recent[-1].kind
    return lexer.at(mend.resume, last, opened)


def make(parser: Parser, mend: Mend) -> None:
    """Go on as if the tokens of a mend stood there."""
    parser.lexer = _lexer(parser, mend)
    for kind in mend.kinds:
        state = parser.reduced(kind)
        assert state is not None, "a mend is tried before it is made"
        parser.shift(Token(kind, spelled(kind), mend.start, mend.resume), state)


_EXAMPLES = {"NAME": "_", "INT": "0", "FLOAT": "0.0", "STRING": '""', "COMPARE": "==", "_BY": "by", "_NL": "\n"}


def spelled(kind: str) -> str:
    """A text that reads as a token of this kind."""
    if kind in _EXAMPLES:
        return _EXAMPLES[kind]
    lexis = tables().lexis
    return next(text for text, name in {**lexis.symbols, **lexis.words}.items() if name == kind)
