"""The context of a syntax error: the parser's state, the tokens around it, and the open constructs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from msgspec import Struct

from difflang.syntax.lalr_parser import LalrParser
from difflang.syntax.lexer import CLOSER_OF, CLOSERS, Token
from difflang.syntax.parser_tables import END_OF_TEXT, load_tables

_OPERATOR_SIGNS = re.compile(r"[-+*/%@^=<>!&|.:;?~\\$`]+")
_TOKEN_CLASSES = {"NAME", "INT", "FLOAT", "STRING", "_NL", END_OF_TEXT}


class ErrorContext(Struct, frozen=True):
    """A token that the parser cannot accept. Adjacent operator signs count as one token: `&&`, `++`."""

    state: int
    kind: str
    # Its text, or its kind for a class of tokens: NAME, INT, FLOAT, STRING, _NL, $END.
    at: str
    before: str  # the same for the token before it
    text: str  # its source text
    word: str  # the text of the token before it
    opener: str  # the nearest unfinished keyword, bracket or `=`
    operand: bool  # an operand could stand here
    first: bool  # it is the first on its line
    wrapped: bool  # the token before it is the first on its line
    start: int
    stop: int
    before_start: int


def error_context_of(parser: LalrParser, kind: str) -> ErrorContext:
    """The context of a parser that cannot accept the token its lexer has just read."""
    lexer, text = parser.lexer, parser.source.text
    before = parser.recent[-1] if parser.recent else Token("", "", 0, 0)
    stop = lexer.stop
    at = text[lexer.start : stop]
    if kind in _TOKEN_CLASSES:
        at = kind
    # Signs of other languages, such as `&&`, are one mistake and not two.
    elif signs := _OPERATOR_SIGNS.match(text, lexer.start, lexer.end):
        at, stop = signs[0], signs.end()
    return ErrorContext(
        state=parser.states[-1],
        kind=kind,
        at=at,
        before=before.kind if before.kind in _TOKEN_CLASSES else before.text,
        text=text[lexer.start : lexer.stop],
        word=before.text,
        opener=_nearest_opener(parser.values),
        operand=accepts_tokens(parser.states, "NAME") and accepts_tokens(parser.states, "LPAR"),
        first=is_first_on_line(text, lexer.start),
        wrapped=is_first_on_line(text, before.start),
        start=lexer.start,
        stop=stop,
        before_start=before.start,
    )


def is_first_on_line(text: str, offset: int) -> bool:
    """Whether nothing but space stands before `offset` on its line."""
    return not text[text.rfind("\n", 0, offset) + 1 : offset].strip()


def open_brackets(values: Sequence[object]) -> list[Token]:
    """The unclosed brackets on the stack."""
    opened: list[Token] = []
    for value in values:
        if isinstance(value, Token):
            if value.kind in CLOSER_OF:
                opened.append(value)
            elif value.kind in CLOSERS and opened:
                opened.pop()
    return opened


@cache
def _opener_kinds() -> frozenset[str]:
    words = set(load_tables().lexis.words.values()) - {"IN", "TRUE", "FALSE", "AND", "OR", "NOT"}
    return frozenset(words | set(CLOSER_OF) | {"EQUAL", "EXTERN"})


def _nearest_opener(values: Sequence[object]) -> str:
    closed = 0
    for value in reversed(values):
        if not isinstance(value, Token):
            continue
        if value.kind in CLOSERS:
            closed += 1
        elif closed and value.kind in CLOSER_OF:
            closed -= 1
        elif not closed and value.kind in _opener_kinds():
            return value.text
    return ""


# ---- Tokens that could come next


def advance_states(states: list[int], kind: str) -> bool:
    """Advance a stack of states over a token; False if the token is not accepted."""
    rows, rules = load_tables().rows, load_tables().rules
    while True:
        action = rows[states[-1]].get(kind)
        if action is None:
            return False
        if action >= 0:
            states.append(action)
            return True
        rule = rules[~action]
        if rule.size:
            del states[-rule.size :]
        states.append(rows[states[-1]][rule.origin])


def accepts_tokens(states: Sequence[int], *kinds: str) -> bool:
    """Whether these tokens could come next, one after the other."""
    # LALR merges lookaheads, so the last state's row may list tokens that the stack rejects: simulate on a copy.
    if kinds[0] not in load_tables().rows[states[-1]]:
        return False
    trial = list(states)
    return all(advance_states(trial, kind) for kind in kinds)


_TOKEN_NAMES = {
    "LPAR": "`(`", "RPAR": "`)`", "LSQB": "`[`", "RSQB": "`]`", "LBRACE": "`{`", "RBRACE": "`}`", "COMMA": "`,`",
    "COLON": "`:`", "EQUAL": "`=`", "GIVES": "`=>`", "ARROW": "`->`", "IN": "`in`", "_BY": "`by`", "ELSE": "`else`",
    "BAR": "`|`", "STRING": "a string", "_NL": "a new line", END_OF_TEXT: "the end", "NAME": "a name", "FN": "`fn`",
}  # fmt: skip


def describe_expected(states: Sequence[int]) -> str:
    """What could come next, in words: a few alternatives at most. Empty if there are too many to name."""
    rows = load_tables().rows
    could = {kind for kind in rows[states[-1]] if kind in _TOKEN_NAMES and accepts_tokens(states, kind)}
    if accepts_tokens(states, "NAME") and accepts_tokens(states, "LPAR"):
        things = ["an expression" if "STRING" in could else "a type" if accepts_tokens(states, "INT") else "a pattern"]
        could -= {"NAME", "LPAR", "LSQB", "LBRACE", "STRING", "BAR", "FN"}
    else:
        things = []
        could -= {"LPAR", "LSQB"}  # a call or an index can follow nearly everything
    things += [_TOKEN_NAMES[kind] for kind in _TOKEN_NAMES if kind in could]
    if not things or len(things) > 5:
        return ""
    return things[0] if len(things) == 1 else f"{', '.join(things[:-1])} or {things[-1]}"


_TOKEN_DESCRIPTIONS = {
    "NAME": "the name `{}`",
    "INT": "the number `{}`",
    "FLOAT": "the number `{}`",
    "STRING": "the string {}",
    "_NL": "the end of the line",
}


def describe_token(situation: ErrorContext) -> str:
    """The unexpected token, in words."""
    return _TOKEN_DESCRIPTIONS.get(situation.kind, "`{}`").format(situation.text)
