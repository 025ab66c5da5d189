"""Incremental parsing: a file is split into parts, one declaration or statement each, so that an edit affects few.

A part begins with an unindented line that continues nothing, with the comments and attributes above it. Text that is
not laid out like that, such as an unindented body, is joined again: a part must parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.source import Part, Place, Span
from difflang.elaborate.elaborated_graphs import CheckedDefinition
from difflang.elaborate.recorded_types import TextRange
from difflang.host.let_dependencies import lone_type_names
from difflang.host.values import HostValue
from difflang.ir.tensor_types import DTYPES
from difflang.ops.arrays.reshard import Split
from difflang.syntax import tree
from difflang.syntax.lexer import token_patterns
from difflang.syntax.parse import CONTROL_CHARACTERS, ParsedModule, parse, parse_span
from difflang.syntax.tree_queries import all_nodes, pattern_names, target_variables
from difflang.types.language_types import LangType
from difflang.types.module_scope import HostVar

ITEM_START = re.compile(r"[^\W\d]|[\d\"(\[-]")  # the first character of an item
LEADING_LINE = re.compile(r"[#@]")  # a comment or attribute above an item
FLOAT_HEADER = re.compile(r"float[ \t]+b?f\d+\b")
WORD = re.compile(r"\w+")
STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|#[^\n]*')
NON_SIZE_NAMES = frozenset((*DTYPES, "bool", "key", "str", "dim"))
MAX_JOINED_CHARS = 4000  # longer text that does not parse is not joined further


class PartResult(Struct, frozen=True, eq=False):
    """The result of checking a part."""

    source: Part
    reports: tuple[Diagnostic, ...]
    types: Mapping[TextRange, LangType]
    tables: Mapping[str, Mapping[str, Any]]
    values: Mapping[str, HostValue]
    used: Mapping[str, Span]
    elaborated: Mapping[tree.Fn, CheckedDefinition]
    checked: Mapping[tree.Fn, bool]
    line: int
    uses_line: bool  # the result depends on the part's line number
    reports_elsewhere: bool  # some diagnostic lies outside the part
    splits: Mapping[TextRange, Split]  # how arrays are split over the axes of a mesh

    def named(self) -> dict[str, LangType]:
        """The type of each name in it, at its last occurrence."""
        text = self.source.text
        return {text[a:b]: t for (a, b), t in self.types.items() if text[a:b].isidentifier()}

    @property
    def has_guesses(self) -> bool:
        """Whether a diagnostic reports a missing name or suggests another one."""
        return any(d.code.startswith("DL02") or "did you mean" in "".join(d.helps) for d in self.reports)

    @property
    def host(self) -> Mapping[str, HostVar]:
        """The top-level names that it binds."""
        return self.tables["host"]


class ParsedPart(Struct, eq=False):
    """A parsed part of a file. It keeps its analysis results while the rest of the file changes."""

    source: Part
    items: tuple[tree.Item, ...]
    diagnostics: tuple[Diagnostic, ...]
    comments: tuple[Span, ...]
    default_float: str
    words: frozenset[str] = frozenset()
    declares: frozenset[str] = frozenset()
    result: PartResult | None = None  # the check result of the current text
    # The result when the part and its dependencies last had no errors.
    last_good: PartResult | None = None
    # Answers of queries.
    cache: dict[str, object] = field(default_factory=dict[str, object])

    @property
    def text(self) -> str:
        return self.source.text

    @property
    def position(self) -> Place:
        return self.source.location

    @property
    def latest_result(self) -> PartResult | None:
        """The latest result, of an earlier text if necessary."""
        return self.result or self.last_good

    @property
    def has_errors(self) -> bool:
        """Whether it has syntax errors or reported errors."""
        found = self.result.reports if self.result is not None else ()
        return bool(self.diagnostics) or any(d.severity == "error" for d in found)

    @property
    def lasting(self) -> PartResult | None:
        """The result that a replacement inherits: while the part has errors, the last good one."""
        return (self.last_good or self.result) if self.has_errors else self.latest_result

    def record_result(self, result: PartResult) -> None:
        """Record a check result. If it has fewer types than before, a dependency has an error: both are kept."""
        old, former = self.result, self.last_good
        if old is not None and len(old.types) > len(result.types):
            same = former is not None and former.source.text == self.text
            if former is None or not same or len(old.types) >= len(former.types):
                self.last_good = old
        self.result = result


# ---- Splitting


def split_into_parts(text: str) -> list[str]:
    """The texts of the parts, which concatenate to the text."""
    join = token_patterns()[2]
    starts: list[int] = []
    headed = False
    at = 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        above, head = LEADING_LINE.match(text, at), ITEM_START.match(text, at)
        if head is not None and at and join.match(text, at - 1):
            head = None  # `else`, `|>` and the like continue the line above
        if head is not None and (headed or len(starts) > 1) and FLOAT_HEADER.match(text, at):
            # `float` is valid only at the top of a file: let the parser report it in context.
            head = None
        if (above or head) and (headed or not starts):
            starts.append(at)
            headed = False
        headed = headed or head is not None
        at = end
    if starts[:1] != [0]:
        starts.insert(0, 0)
    return [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]


@lru_cache(maxsize=10_000)
def bracket_balance(text: str) -> int:
    """How many more brackets are opened than closed."""
    plain = STRING_OR_COMMENT.sub("", text)
    return sum(map(plain.count, "([{")) - sum(map(plain.count, ")]}"))


# ---- Parsing a part


def parse_part(name: str, text: str, document: object, *, first: bool) -> ParsedPart:
    """Parse a part of a file."""
    source = Part(name, text, document, Place())
    whole_text = first or CONTROL_CHARACTERS.search(text)
    return build_part(source, parse(source) if whole_text else parse_span(Span(source, 0, len(text))))


def build_part(source: Part, parsed: ParsedModule) -> ParsedPart:
    items = parsed.module.items
    piece = ParsedPart(source, items, parsed.diagnostics, parsed.comments, parsed.module.default_float)
    piece.words = frozenset(WORD.findall(STRING_OR_COMMENT.sub(words_source, source.text)))
    piece.declares = frozenset(name for item in items for name in declared_names(item))
    return piece


def oversized_part(name: str, text: str, document: object) -> ParsedPart:
    """A text that does not fit in memory, as one part with a diagnostic and no items."""
    source = Part(name, text, document, Place())
    line = Span(source, 0, len(text.split("\n", 1)[0]))
    way = "write it as several files, or start `difflang lsp` with a larger `--memory-limit`"
    report = Diagnostic("DL1006", "there is not enough memory to check this file", (Label(line),), (way,))
    return ParsedPart(source, (), (report,), (), "f32")


def words_source(found: re.Match[str]) -> str:
    """The text of a string or comment that may mention names: a string as a whole, a comment if it holds an example."""
    return found[0] if found[0].startswith(('"', "## >", "##>")) else ""


def declared_names(item: tree.Item) -> Iterator[str]:
    """The names that an item declares or assigns."""
    match item:
        case tree.Record() | tree.Enum() | tree.Rule():
            yield item.name
            if isinstance(item, tree.Enum):
                yield from (v.name for v in item.variants)
        case tree.Import():
            yield from item.names
            yield item.alias or re.split(r"[/\\]", item.module)[-1].removesuffix(".dfl")
        case tree.Axes():
            yield from item.names
        case tree.Test() | tree.Bench():
            pass
        case tree.Fn():
            yield item.name
            if item.host:
                yield from assigned_names(item)
        case _:
            if isinstance(item, (tree.Let, tree.Var)):
                yield from pattern_names(item.pattern)
                yield from (name for name in lone_type_names(item.type) if name not in NON_SIZE_NAMES)
            yield from assigned_names(item)


def assigned_names(item: tree.Item) -> Iterator[str]:
    for node in all_nodes(item):
        if isinstance(node, (tree.Assign, tree.Update)):
            yield from target_variables(node.target)


# ---- Parsing a file again


def parse_parts(name: str, text: str, document: object, old: Sequence[ParsedPart] = ()) -> tuple[ParsedPart, ...]:
    """The parts of a text. Parts of the previous text that still occur are reused at their new positions."""
    texts = split_into_parts(text)
    # An edit usually leaves both ends alone: only the middle is parsed.
    head, tail = common_ends([piece.text for piece in old], texts)
    left: dict[str, list[ParsedPart]] = {}
    for piece in old[head : len(old) - tail]:
        left.setdefault(piece.text, []).append(piece)
    middle: list[ParsedPart] = []
    waiting = texts[head : len(texts) - tail]
    first = head == 0
    while waiting:
        text = waiting.pop(0)
        if text in left and left[text] and not first:
            middle.append(left[text].pop(0))
            continue
        piece = parse_part(name, text, document, first=first)
        if piece.diagnostics and (longer := join_unbalanced(name, text, waiting, document, first=first)) is not None:
            piece, taken = longer
            del waiting[:taken]
        middle.append(piece)
        first = False
    pieces = (*old[:head], *middle, *old[len(old) - tail :])
    carry_over_results(old[head : len(old) - tail], middle)
    offset = line = 0
    for piece in pieces:
        piece.position.offset, piece.position.line = offset, line
        offset, line = offset + len(piece.text), line + piece.text.count("\n")
    return pieces


def common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many texts at the beginning and at the end are unchanged."""
    most = min(len(old), len(new))
    head = tail = 0
    while head < most and old[head] == new[head]:
        head += 1
    while tail < most - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail


def join_unbalanced(
    name: str, text: str, following: Sequence[str], document: object, *, first: bool
) -> tuple[ParsedPart, int] | None:
    """A part joined with those below that close its brackets, if the whole parses; and how many were joined."""
    open_, taken = bracket_balance(text), 0
    # Join until the brackets balance.
    while open_ > 0 and taken < len(following) and len(text) < MAX_JOINED_CHARS:
        text += following[taken]
        open_ += bracket_balance(following[taken])
        taken += 1
    if open_ or not taken:
        return None
    piece = parse_part(name, text, document, first=first)
    return None if piece.diagnostics else (piece, taken)


def carry_over_results(old: Sequence[ParsedPart], new: Sequence[ParsedPart]) -> None:
    """Let new parts inherit results from old ones, by declared name or position, until they are checked."""
    named = {name: piece for piece in old if piece.lasting for name in head_names(piece)}
    for i, piece in enumerate(new):
        if piece.result is None and piece.last_good is None:
            same = [named[name] for name in head_names(piece) if name in named]
            former = same[0] if same else old[i] if len(old) == len(new) else None
            piece.last_good = former.lasting if former is not None else None


def head_names(piece: ParsedPart) -> list[str]:
    heads = (tree.Fn, tree.Record, tree.Enum, tree.Let, tree.Var)
    return [name for item in piece.items if isinstance(item, heads) for name in list(declared_names(item))[:1]]
