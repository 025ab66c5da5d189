"""The concrete syntax tree: every token of a program's text, with the comments and empty lines around it.

The abstract tree is in `tree`; this one serves tools that rewrite text, such as the formatter.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from msgspec import Struct, field

from difflang.base.diagnostics import Diagnostic
from difflang.base.source import Source
from difflang.syntax.lalr_parser import LalrParser, Reduction
from difflang.syntax.lexer import CLOSER_OF, CLOSERS, Lexer, Token
from difflang.syntax.parse import text_start
from difflang.syntax.parser_tables import load_tables


class LeadingComment(Struct, frozen=True):
    """A comment on lines of its own; `blank_before` marks an empty line above it."""

    text: str
    blank_before: bool


class ConcreteLeaf(Token, eq=False):
    """A token with the comments around it."""

    # Comments on lines of their own above the token.
    leading_comments: list[LeadingComment] = field(default_factory=list[LeadingComment])
    trailing_comment: str = ""  # the comment after it on its line
    blank: bool = False  # an empty line stands above it
    newline_after: bool = False  # the next token stands on a later line
    # A line that ends here may end a statement: the innermost bracket is a brace.
    in_braces: bool = True


class ConcreteNode(Struct, eq=False):
    """A grammar rule applied to its children, all of them. `start` and `end` are -1 if it has none."""

    kind: str  # the name of the rule, or the name that it gives this form
    origin: str  # the name of the rule
    children: list[ConcretePart]
    start: int
    end: int
    comments: int = 0  # the number of comments between its first token and its last
    has_inner_comments: bool = False  # one of them lies between two of its children


ConcretePart = ConcreteNode | ConcreteLeaf


class ConcreteTree(Struct, frozen=True, eq=False):
    """A whole text. `nodes` is in post-order; `end_of_file` holds the comments after all tokens."""

    nodes: list[ConcreteNode]
    end_of_file: ConcreteLeaf


def parse_concrete_tree(source: Source) -> ConcreteTree:
    """The concrete tree of a text without errors. Errors: AssertionError for another text; call `parse` first."""
    reports: list[Diagnostic] = []
    reader = _ConcreteParser(source, reports)
    whole = reader.run("start", lambda kind: False)
    assert whole is not None and not reports, "only a program that parses has a concrete tree"
    size = len(source.text)
    end = ConcreteLeaf("$END", "", size, size)
    comments = sorted(reader.lexer.comments.items())
    _attach_comments(source.text, reader.leaves, comments, end)
    places = [start for start, _ in comments]
    for node in reader.nodes:
        node.comments = bisect_left(places, node.end) - bisect_left(places, node.start)
        node.has_inner_comments = node.comments > sum(
            part.comments for part in node.children if isinstance(part, ConcreteNode)
        )
    return ConcreteTree(reader.nodes, end)


class _ConcreteParser(LalrParser):
    """The LALR parser, recording every token."""

    def __init__(self, source: Source, reports: list[Diagnostic]) -> None:
        super().__init__(Lexer(source, text_start(source), len(source.text)), reports, self, _ConcreteCallbacks())
        self.nodes: list[ConcreteNode] = []
        self.leaves: list[ConcreteLeaf] = []

    def shift(self, token: Token, state: int) -> None:
        leaf = ConcreteLeaf(token.kind, token.text, token.start, token.end)
        self.leaves.append(leaf)
        super().shift(leaf, state)


class _ConcreteCallbacks(dict[int, Reduction]):
    def __missing__(self, number: int) -> Reduction:
        rule = load_tables().rules[number]

        def splice(reader: _ConcreteParser, children: list[Any], start: int, end: int) -> list[ConcretePart]:
            return _splice_lists(children)

        def made(reader: _ConcreteParser, children: list[Any], start: int, end: int) -> ConcreteNode:
            parts = _splice_lists(children)
            first = next((part.start for part in parts if _is_visible(part)), -1)
            last = next((part.end for part in reversed(parts) if _is_visible(part)), -1)
            node = ConcreteNode(rule.callback, rule.origin, parts, first, last)
            reader.nodes.append(node)
            return node

        # Lark names helper rules with an underscore: their children belong to the parent.
        found = self[number] = splice if rule.origin.startswith("_") else made
        return found


def _is_visible(part: ConcretePart) -> bool:
    return part.kind != "_NL" and part.end >= 0


def _splice_lists(children: list[Any]) -> list[ConcretePart]:
    """The children with repetitions spliced in; a list that comes first is extended in place."""
    if not children or not isinstance(children[0], list):
        parts, rest = list[ConcretePart](), children
    else:
        parts, rest = children[0], children[1:]
    for child in rest:
        if isinstance(child, list):
            parts += child
        else:
            parts.append(child)
    return parts


def _attach_comments(text: str, leaves: list[ConcreteLeaf], comments: list[tuple[int, int]], end: ConcreteLeaf) -> None:
    """Attach each comment and empty line to the token beside it."""
    # The top level counts as a block: a newline ends a statement there.
    brackets = ["LBRACE"]
    left = iter([*comments, (len(text) + 1, 0)])
    begin, stop = next(left)
    before: ConcreteLeaf | None = None
    at = 0
    for leaf in [leaf for leaf in leaves if leaf.kind != "_NL"] + [end]:
        while begin < leaf.start:
            comment, newlines = text[begin:stop].rstrip(), text.count("\n", at, begin)
            if before is not None and newlines == 0:
                before.trailing_comment = comment
            else:
                leaf.leading_comments.append(LeadingComment(comment, newlines > 1))
            if before is not None:
                before.newline_after = True
            at = stop
            begin, stop = next(left)
        newlines = text.count("\n", at, leaf.start)
        leaf.blank = newlines > 1
        if before is not None:
            before.newline_after = before.newline_after or newlines > 0
        if leaf.kind in CLOSER_OF:
            brackets.append(leaf.kind)
        elif leaf.kind in CLOSERS:
            brackets.pop()
        leaf.in_braces = brackets[-1] == "LBRACE"
        before, at = leaf, leaf.end
