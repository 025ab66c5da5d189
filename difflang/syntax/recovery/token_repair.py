"""Token repairs of a syntax error: insertions and deletions, simulated on the parser's states before they are applied.

`error_recovery` and `common_mistakes` decide which repairs to try.
"""

from __future__ import annotations

from msgspec import Struct

from difflang.syntax.lalr_parser import LalrParser
from difflang.syntax.lexer import BAD_TOKEN, CLOSER_OF, CLOSERS, Lexer, Token
from difflang.syntax.parser_tables import END_OF_TEXT, load_tables
from difflang.syntax.recovery.error_context import advance_states, open_brackets

MIN_LOOKAHEAD = 4  # tokens that must parse after a repair for it to count
MAX_LOOKAHEAD = 16  # tokens that are tried to rank repairs


class TokenRepair(Struct, frozen=True):
    """Tokens to insert at `start`, and where to resume reading."""

    inserted: tuple[str, ...]
    start: int
    resume: int


def first_repair(parser: LalrParser, *mends: TokenRepair) -> TokenRepair | None:
    """The first repair after which the text parses on."""
    return next((mend for mend in mends if repair_works(parser, mend)), None)


def best_repair(parser: LalrParser, *mends: TokenRepair, least: int = MIN_LOOKAHEAD) -> TokenRepair | None:
    """The repair after which most tokens parse, and at least `least`; the first among equals."""
    # Compare by how far each repair gets; `max` takes the first of equals.
    reach = {mend: _tokens_after_repair(parser, mend, MAX_LOOKAHEAD) for mend in mends}
    found = max(mends, key=lambda mend: reach[mend], default=None)
    return found if found is not None and reach[found] >= least else None


def repair_works(parser: LalrParser, mend: TokenRepair) -> bool:
    """Whether the text parses on after a repair."""
    return _tokens_after_repair(parser, mend, MIN_LOOKAHEAD) >= MIN_LOOKAHEAD


def _tokens_after_repair(parser: LalrParser, mend: TokenRepair, far: int) -> int:
    """How many tokens, up to `far`, parse after a repair; `far` if the line or the text ends before that."""
    states = list(parser.states)
    if not all(advance_states(states, kind) for kind in mend.inserted):
        return 0
    rows, text = load_tables().rows, parser.source.text
    lexer = _lexer_after_repair(parser, mend)
    for ahead in range(far):
        kind = lexer.next(rows[states[-1]])
        if kind == BAD_TOKEN:
            return far if ahead or mend.inserted else 0  # a separate mistake
        if not advance_states(states, kind):
            # The repair is not to blame for the end of the text, nor for a mistake on a later line.
            later = ahead > 0 and "\n" in text[mend.resume : lexer.start]
            return far if later or (kind == END_OF_TEXT and ahead > 1) else ahead
        if kind == END_OF_TEXT or (kind == "_NL" and ahead > 0):
            return far
    return far


def _lexer_after_repair(parser: LalrParser, mend: TokenRepair) -> Lexer:
    lexer = parser.lexer
    opened = ["LBRACE", *(token.kind for token in open_brackets(parser.values))]
    for kind in mend.inserted:
        if kind in CLOSER_OF:
            opened.append(kind)
        elif kind in CLOSERS and len(opened) > 1:
            opened.pop()
    last = mend.inserted[-1] if mend.inserted else ""
    if not mend.inserted and mend.resume > mend.start and lexer.last != "_NL" and parser.recent:
        last = parser.recent[-1].kind
    return lexer.restarted_at(mend.resume, last, opened)


def apply_repair(parser: LalrParser, mend: TokenRepair) -> None:
    """Continue as if the repair's tokens stood there."""
    parser.lexer = _lexer_after_repair(parser, mend)
    for kind in mend.inserted:
        state = parser.reduced(kind)
        assert state is not None, "a repair is simulated before it is applied"
        parser.shift(Token(kind, sample_text(kind), mend.start, mend.resume), state)


_SAMPLE_TEXTS = {"NAME": "_", "INT": "0", "FLOAT": "0.0", "STRING": '""', "COMPARE": "==", "_BY": "by", "_NL": "\n"}


def sample_text(kind: str) -> str:
    """A text that lexes as a token of this kind."""
    if kind in _SAMPLE_TEXTS:
        return _SAMPLE_TEXTS[kind]
    lexis = load_tables().lexis
    return next(text for text, name in {**lexis.symbols, **lexis.words}.items() if name == kind)
