"""The concrete syntax tree: every token of a text that is a program, with the comments and empty lines around it.

What the tokens mean lives in `tree`; this one is for tools that write a text again, such as the formatter.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from msgspec import Struct, field

from difflang.base.diagnostics import Diagnostic
from difflang.base.source import Source
from difflang.syntax.lexer import CLOSES, OPENS, Token
from difflang.syntax.parse import Callback, Parser, beginning
from difflang.syntax.parser_tables import tables


class Comment(Struct, frozen=True):
    """A comment on lines of its own; `blank` says that an empty line stands above it."""

    text: str
    blank: bool


class Leaf(Token, eq=False):
    """A token with the comments around it."""

    above: list[Comment] = field(default_factory=list[Comment])  # the comments on lines of their own before it
    after: str = ""  # the comment behind it on its line
    blank: bool = False  # an empty line stands above it
    broken: bool = False  # the next token stands on a later line
    braced: bool = True  # a line that ends here may end a statement: the innermost bracket is a brace


class Node(Struct, eq=False):
    """What a rule of the grammar made of its children, all of them. `start` and `end` are -1 if it has none."""

    kind: str  # the name of the rule, or the name that it gives this form
    origin: str  # the name of the rule
    children: list[Part]
    start: int
    end: int
    comments: int = 0  # how many stand between its first token and its last
    commented: bool = False  # one of them stands between two of its children


Part = Node | Leaf


class Concrete(Struct, frozen=True, eq=False):
    """A whole text. `nodes` has each after those below it; `end` holds the comments after all tokens."""

    nodes: list[Node]
    end: Leaf


def concrete(source: Source) -> Concrete:
    """The concrete tree of a text without mistakes. Errors: AssertionError for another text; ask `parse` first."""
    reports: list[Diagnostic] = []
    reader = _Reader(source, reports)
    whole = reader.run("start", lambda kind: False)
    assert whole is not None and not reports, "only what parses has a concrete tree"
    size = len(source.text)
    end = Leaf("$END", "", size, size)
    comments = sorted(reader.lexer.comments.items())
    _settle(source.text, reader.leaves, comments, end)
    places = [start for start, _ in comments]
    for node in reader.nodes:
        node.comments = bisect_left(places, node.end) - bisect_left(places, node.start)
        node.commented = node.comments > sum(part.comments for part in node.children if isinstance(part, Node))
    return Concrete(reader.nodes, end)


class _Reader(Parser):
    """The parser, keeping every token."""

    def __init__(self, source: Source, reports: list[Diagnostic]) -> None:
        super().__init__(source, beginning(source), len(source.text), reports, self, _Callbacks())
        self.nodes: list[Node] = []
        self.leaves: list[Leaf] = []

    def shift(self, token: Token, state: int) -> None:
        leaf = Leaf(token.kind, token.text, token.start, token.end)
        self.leaves.append(leaf)
        super().shift(leaf, state)


class _Callbacks(dict[int, Callback]):
    def __missing__(self, number: int) -> Callback:
        rule = tables().rules[number]

        def spliced(reader: _Reader, children: list[Any], start: int, end: int) -> list[Part]:
            return _flat(children)

        def made(reader: _Reader, children: list[Any], start: int, end: int) -> Node:
            parts = _flat(children)
            first = next((part.start for part in parts if _stands(part)), -1)
            last = next((part.end for part in reversed(parts) if _stands(part)), -1)
            node = Node(rule.callback, rule.origin, parts, first, last)
            reader.nodes.append(node)
            return node

        found = self[number] = spliced if rule.origin.startswith("_") else made
        return found


def _stands(part: Part) -> bool:
    return part.kind != "_NL" and part.end >= 0


def _flat(children: list[Any]) -> list[Part]:
    """The children, repetitions spliced in; the list of one that comes first is extended in place."""
    if not children or not isinstance(children[0], list):
        parts, rest = list[Part](), children
    else:
        parts, rest = children[0], children[1:]
    for child in rest:
        if isinstance(child, list):
            parts += child
        else:
            parts.append(child)
    return parts


def _settle(text: str, leaves: list[Leaf], comments: list[tuple[int, int]], end: Leaf) -> None:
    """Give each comment and empty line to the token beside it."""
    brackets = ["LBRACE"]
    left = iter([*comments, (len(text) + 1, 0)])
    begin, stop = next(left)
    before: Leaf | None = None
    at = 0
    for leaf in [leaf for leaf in leaves if leaf.kind != "_NL"] + [end]:
        while begin < leaf.start:
            comment, newlines = text[begin:stop].rstrip(), text.count("\n", at, begin)
            if before is not None and newlines == 0:
                before.after = comment
            else:
                leaf.above.append(Comment(comment, newlines > 1))
            if before is not None:
                before.broken = True
            at = stop
            begin, stop = next(left)
        newlines = text.count("\n", at, leaf.start)
        leaf.blank = newlines > 1
        if before is not None:
            before.broken = before.broken or newlines > 0
        if leaf.kind in OPENS:
            brackets.append(leaf.kind)
        elif leaf.kind in CLOSES:
            brackets.pop()
        leaf.braced = brackets[-1] == "LBRACE"
        before, at = leaf, leaf.end
