"""The place of a mistake as the parser sees it: what stands there, what came before, what is unfinished around it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from difflang.syntax.lexer import CLOSES, OPENS, Token
from difflang.syntax.parser_tables import END, tables

if TYPE_CHECKING:
    from difflang.syntax.parse import Parser

_SIGNS = re.compile(r"[-+*/%@^=<>!&|.:;?~\\$`]+")
_CLASSES = {"NAME", "INT", "FLOAT", "STRING", "_NL", END}


class Situation(Struct, frozen=True):
    """A token that cannot stand where it stands. Signs in a row count as one: `&&`, `++`."""

    state: int
    kind: str
    at: str  # its text, or its kind where there are many: NAME, INT, FLOAT, STRING, _NL, $END
    before: str  # likewise the token before it
    text: str  # what is written there
    word: str  # the text of the token before it
    opener: str  # the nearest unfinished word, bracket or `=`
    operand: bool  # an operand could stand here
    first: bool  # it is the first on its line
    wrapped: bool  # the token before it is the first on its line
    start: int
    stop: int
    before_start: int


def look(parser: Parser, kind: str) -> Situation:
    """The situation of a parser that can do nothing with the token its lexer has just read."""
    lexer, text = parser.lexer, parser.source.text
    before = parser.recent[-1] if parser.recent else Token("", "", 0, 0)
    stop = lexer.stop
    at = text[lexer.start : stop]
    if kind in _CLASSES:
        at = kind
    elif signs := _SIGNS.match(text, lexer.start, lexer.end):
        at, stop = signs[0], signs.end()
    return Situation(
        state=parser.states[-1],
        kind=kind,
        at=at,
        before=before.kind if before.kind in _CLASSES else before.text,
        text=text[lexer.start : lexer.stop],
        word=before.text,
        opener=_opener(parser.values),
        operand=accepts(parser.states, "NAME") and accepts(parser.states, "LPAR"),
        first=is_first(text, lexer.start),
        wrapped=is_first(text, before.start),
        start=lexer.start,
        stop=stop,
        before_start=before.start,
    )


def is_first(text: str, offset: int) -> bool:
    """Whether nothing but space stands before `offset` on its line."""
    return not text[text.rfind("\n", 0, offset) + 1 : offset].strip()


def brackets(values: Sequence[object]) -> list[Token]:
    """The brackets on the stack that are not closed."""
    opened: list[Token] = []
    for value in values:
        if isinstance(value, Token):
            if value.kind in OPENS:
                opened.append(value)
            elif value.kind in CLOSES and opened:
                opened.pop()
    return opened


@cache
def _openers() -> frozenset[str]:
    words = set(tables().lexis.words.values()) - {"IN", "TRUE", "FALSE", "AND", "OR", "NOT"}
    return frozenset(words | set(OPENS) | {"EQUAL", "_EXTERN"})


def _opener(values: Sequence[object]) -> str:
    closed = 0
    for value in reversed(values):
        if not isinstance(value, Token):
            continue
        if value.kind in CLOSES:
            closed += 1
        elif closed and value.kind in OPENS:
            closed -= 1
        elif not closed and value.kind in _openers():
            return value.text
    return ""


# ---- What could stand there


def feed(states: list[int], kind: str) -> bool:
    """Move a stack of states over a token; False if it cannot stand there."""
    rows, rules = tables().rows, tables().rules
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


def accepts(states: Sequence[int], *kinds: str) -> bool:
    """Whether these tokens could come next, one after the other."""
    # Merged lookaheads may promise more than the stack below can keep, so the row of the last state is not enough.
    if kinds[0] not in tables().rows[states[-1]]:
        return False
    trial = list(states)
    return all(feed(trial, kind) for kind in kinds)


_NAMES = {
    "LPAR": "`(`", "RPAR": "`)`", "LSQB": "`[`", "RSQB": "`]`", "LBRACE": "`{`", "RBRACE": "`}`", "COMMA": "`,`",
    "COLON": "`:`", "EQUAL": "`=`", "GIVES": "`=>`", "ARROW": "`->`", "IN": "`in`", "_BY": "`by`", "ELSE": "`else`",
    "BAR": "`|`", "STRING": "a string", "_NL": "a new line", END: "the end", "NAME": "a name", "FN": "`fn`",
}  # fmt: skip


def expected(states: Sequence[int]) -> str:
    """What could stand there, in words: one kind of thing, or a few. Empty if there is too much to say."""
    rows = tables().rows
    could = {kind for kind in rows[states[-1]] if kind in _NAMES and accepts(states, kind)}
    if accepts(states, "NAME") and accepts(states, "LPAR"):
        things = ["an expression" if "STRING" in could else "a type" if accepts(states, "INT") else "a pattern"]
        could -= {"NAME", "LPAR", "LSQB", "LBRACE", "STRING", "BAR", "FN"}
    else:
        things = []
        could -= {"LPAR", "LSQB"}  # a call or an index goes on nearly everywhere
    things += [_NAMES[kind] for kind in _NAMES if kind in could]
    if not things or len(things) > 5:
        return ""
    return things[0] if len(things) == 1 else f"{', '.join(things[:-1])} or {things[-1]}"


_DESCRIBED = {
    "NAME": "the name `{}`",
    "INT": "the number `{}`",
    "FLOAT": "the number `{}`",
    "STRING": "the string {}",
    "_NL": "the end of the line",
}


def described(situation: Situation) -> str:
    """The token at fault, in words."""
    return _DESCRIBED.get(situation.kind, "`{}`").format(situation.text)
