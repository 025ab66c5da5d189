"""What a session proposes while a person types: names and fields, those of the type that is needed first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from difflang.base.source import Source
from difflang.syntax.lexer import CLOSER_OF, CLOSERS, Token, tokenize
from difflang.syntax.parser_tables import load_tables

OPEN_INTERPOLATION = re.compile(
    r"(?<!\{)(?:\{\{)*\{[^{}:]*$"
)  # what a string ends in where an expression in braces is not closed
DECLARATION_WORDS = ("fn", "rule")
RANKS = ("value", "function", "record", "variant", "module", "word", "builtin")


class CompletionCandidate(Struct, frozen=True):
    """A proposal: the word, where in the text it begins, what is shown beside it."""

    word: str
    start: int
    detail: str


class CompletionNames(Struct, frozen=True):
    """What can be proposed. Each name goes with its kind and the text of its type."""

    in_scope: Mapping[str, tuple[str, str]]
    fields: Callable[[str], Mapping[str, tuple[str, str]]]
    parameters: Callable[[str], tuple[str, ...]]


def complete(text: str, names: CompletionNames) -> list[CompletionCandidate]:
    """Proposals for the word that a text ends with: what begins like it, the type that is needed first, then values."""
    found = re.search(r"(?:((?:\w+\s*\.\s*)*\w+)\s*\.\s*)?(\w*)$", text)
    assert found is not None
    owner, begun = found[1], found[2]
    if begun[:1].isdigit() or (owner is None and not begun) or in_string(text):
        return []
    words = dict.fromkeys(load_tables().lexis.words, ("word", ""))
    known = names.fields(owner) if owner is not None else {**words, **names.in_scope}
    needed = expected_argument_type(text[: len(text) - len(begun)], names)
    fitting = [(name, kind, shown) for name, (kind, shown) in known.items() if name.startswith(begun) and name != begun]
    fitting.sort(key=lambda each: (not needed or each[2] != needed, RANKS.index(each[1]), each[0]))
    return [CompletionCandidate(name, len(text) - len(begun), shown) for name, _, shown in fitting]


def in_string(text: str) -> bool:
    """Whether a text ends inside a string or a comment; an expression in braces in a string is outside of it."""
    line = text.rsplit("\n", 1)[-1]
    quotes = re.sub(r'\\.|"(?:[^"\\]|\\.)*"', "", line)
    inside = re.search(r'["#].*', quotes)
    return inside is not None and (inside[0].startswith("#") or OPEN_INTERPOLATION.search(inside[0]) is None)


def expected_argument_type(text: str, names: CompletionNames) -> str:
    """The type of the argument that stands next: in `f(x, `, that of the second parameter of `f`."""
    call = unfinished_call(text)
    types = names.parameters(call.name) if call is not None else ()
    return types[call.arg_index] if call is not None and call.arg_index < len(types) else ""


class UnfinishedCall(Struct, frozen=True):
    """A call of which the end is not written yet: what is called, where that begins, and which argument stands next.

    What is called begins with a dot where it stands after another expression than a name. `named` is the name of that
    argument, where it is given by name.
    """

    name: str
    start: int
    arg_index: int
    arg_name: str = ""


def unfinished_call(text: str) -> UnfinishedCall | None:
    """The innermost call that a text ends in: in `f(x, m.g(`, that of `m.g`."""
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
    """What stands before the bracket of a call: a name, or one after a dot. What is being declared is not called."""
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
