"""Completion candidates while a person types: names and fields, ranked by the type expected at the cursor."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from difflang.base.source import Source
from difflang.syntax.lexer import CLOSER_OF, CLOSERS, Token, tokenize
from difflang.syntax.parser_tables import load_tables

# The end of a string inside an unclosed interpolation.
OPEN_INTERPOLATION = re.compile(r"(?<!\{)(?:\{\{)*\{[^{}:]*$")
DECLARATION_WORDS = ("fn", "rule")
RANKS = ("value", "function", "record", "variant", "module", "word", "builtin")


class CompletionCandidate(Struct, frozen=True):
    """A candidate: the word, the offset where it begins, and the detail shown beside it."""

    word: str
    start: int
    detail: str


class CompletionNames(Struct, frozen=True):
    """The names that can be completed, each with its kind and the text of its type."""

    in_scope: Mapping[str, tuple[str, str]]
    fields: Callable[[str], Mapping[str, tuple[str, str]]]
    parameters: Callable[[str], tuple[str, ...]]


def complete(text: str, names: CompletionNames) -> list[CompletionCandidate]:
    """Candidates for the word at the end of a text, those of the expected type first, then values."""
    found = re.search(r"(?:((?:\w+\s*\.\s*)*\w+)\s*\.\s*)?(\w*)$", text)
    assert found is not None
    owner, begun = found[1], found[2]
    if begun[:1].isdigit() or (owner is None and not begun) or in_string(text):
        return []
    words = dict.fromkeys(load_tables().lexis.words, ("word", ""))
    known = names.fields(owner) if owner is not None else {**words, **names.in_scope}
    expected = expected_argument_type(text[: len(text) - len(begun)], names)
    fitting = [(name, kind, shown) for name, (kind, shown) in known.items() if name.startswith(begun) and name != begun]
    fitting.sort(key=lambda each: (not expected or each[2] != expected, RANKS.index(each[1]), each[0]))
    return [CompletionCandidate(name, len(text) - len(begun), shown) for name, _, shown in fitting]


def in_string(text: str) -> bool:
    """Whether a text ends inside a string or a comment; an interpolated expression does not count."""
    line = text.rsplit("\n", 1)[-1]
    # Drop complete strings; what remains after a quote or `#` is open.
    quotes = re.sub(r'\\.|"(?:[^"\\]|\\.)*"', "", line)
    inside = re.search(r'["#].*', quotes)
    return inside is not None and (inside[0].startswith("#") or OPEN_INTERPOLATION.search(inside[0]) is None)


def expected_argument_type(text: str, names: CompletionNames) -> str:
    """The type of the next argument: in `f(x, ` the type of the second parameter of `f`."""
    call = unfinished_call(text)
    types = names.parameters(call.name) if call is not None else ()
    return types[call.arg_index] if call is not None and call.arg_index < len(types) else ""


class UnfinishedCall(Struct, frozen=True):
    """A call whose end is not typed yet: the callee, its offset, and the index of the next argument.

    `name` begins with a dot after an expression that is not a name. `arg_name` is the name of the argument, if given.
    """

    name: str
    start: int
    arg_index: int
    arg_name: str = ""


def unfinished_call(text: str) -> UnfinishedCall | None:
    """The innermost open call at the end of a text: in `f(x, m.g(` the call of `m.g`."""
    tokens = [t for t in tokenize(Source("<input>", text)) if t.kind not in ("COMMENT", "_NL")]
    place, depth = 0, 0
    for i in range(len(tokens) - 1, 0, -1):
        token = tokens[i]
        if token.kind in CLOSERS:
            depth += 1
        elif token.kind in CLOSER_OF and depth:
            depth -= 1
        elif token.kind in CLOSER_OF:
            return callee_before(tokens, i, place) if token.kind == "LPAR" else None
        elif token.kind == "COMMA" and not depth:
            place += 1
    return None


def callee_before(tokens: Sequence[Token], opened: int, place: int) -> UnfinishedCall | None:
    """The name before the opening bracket of a call, possibly after a dot; None in a declaration."""
    first = opened - 1
    if tokens[first].kind != "NAME" or (first and tokens[first - 1].text.endswith(DECLARATION_WORDS)):
        return None
    if first and tokens[first - 1].kind == "DOT":
        first -= 2 if first > 1 and tokens[first - 2].kind == "NAME" else 1
    name = "".join(t.text for t in tokens[first:opened])
    last = next((i for i in range(len(tokens) - 1, opened, -1) if tokens[i].kind == "COMMA"), opened)
    given = tokens[last + 1 : last + 3]
    named = given[0].text if [t.kind for t in given] == ["NAME", "EQUAL"] else ""
    return UnfinishedCall(name, tokens[first].start, place, named)
