"""Examples in doc comments: the code after `>` is a line of a program, and its expected output stands below it.

Examples stand in the `##` comment above a declaration or a field, or at the top of a file. The lines of one comment
share their names. The output of a line ends at a blank line of the comment, the next `>`, or the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.source import Source, Span
from difflang.host.statement_walk import DECLARATIONS
from difflang.syntax import tree
from difflang.syntax.parse import parse_span

DOC_COMMENT = re.compile(r"[ \t]*## ?(.*?)[ \t]*\r?$")
PROMPT = "> "
DOCUMENTED = (tree.Fn, tree.Record, tree.Enum, tree.Rule, tree.Let, tree.Import)
WITH_FIELDS = (tree.Record, tree.Enum)


class ExampleLine(Struct, frozen=True, eq=False):
    """The code after one `>`, and the expected output below it."""

    span: Span
    stmts: tuple[tree.Stmt, ...]
    expected: str
    expected_span: Span | None


class DocExamples(Struct, frozen=True, eq=False):
    """The examples of one comment, named for what it documents; `diagnostics` are its syntax errors."""

    name: str
    span: Span
    lines: tuple[ExampleLine, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def block(self) -> tree.Block:
        """All examples as one block to run."""
        whole = self.lines[0].span.to(self.lines[-1].span)
        return tree.Block(whole, tuple(s for line in self.lines for s in line.stmts))


class DocLine(Struct, frozen=True):
    """A line of a doc comment: its text without the `##`, and the offset of that text."""

    number: int
    start: int
    text: str


def find_examples(source: Source, items: Sequence[tree.Item]) -> tuple[DocExamples, ...]:
    """Every comment with examples, in order, with its syntax errors."""
    found: list[DocExamples] = []
    rest = iter(items)
    item = next(rest, None)
    first = item.span.start if item is not None else len(source.text)
    for comment in example_comments(source):
        start = comment[0].start
        while item is not None and item.span.end <= start:
            item = next(rest, None)
        inside = item is not None and item.span.start < start
        above = item is not None and item.span.position[0] == comment[-1].number + 1
        # A comment before the first item, with an empty line after it, documents the file.
        if start < first and not above:
            found.append(parse_examples(source, comment, PurePath(source.name).stem))
        elif item is not None and isinstance(item, WITH_FIELDS if inside else DOCUMENTED):
            found.append(parse_examples(source, comment, documented_name(item)))
    return tuple(found)


def example_comments(source: Source) -> Iterator[list[DocLine]]:
    """The doc comments that hold an example, line by line."""
    # No string spans lines, so `##` at the start of a line always begins a comment.
    lines: list[DocLine] = []
    first, _ = source.position(0)
    for i in range(len(source.starts) + 1):
        doc = DOC_COMMENT.match(source.line(first + i)) if i < len(source.starts) else None
        if doc is not None:
            lines.append(DocLine(first + i, source.starts[i] + doc.start(1), doc[1]))
            continue
        if any(line.text.startswith(PROMPT) for line in lines):
            yield lines
        lines = []


def documented_name(item: tree.Item) -> str:
    """The name that the comment documents."""
    match item:
        case tree.Let(pattern=tree.NamePattern(name=name)):
            return name
        case tree.Let(pattern=pattern):
            return pattern.span.text
        case tree.Import(module=module):
            return module
        case _:
            return getattr(item, "name", "")


def parse_examples(source: Source, comment: Sequence[DocLine], name: str) -> DocExamples:
    lines: list[ExampleLine] = []
    reports: list[Diagnostic] = []
    for i, line in enumerate(comment):
        if not line.text.startswith(PROMPT):
            continue
        start = line.start + len(PROMPT)
        span = Span(source, start, line.start + len(line.text))
        parsed = parse_span(span)
        reports += parsed.diagnostics
        for item in parsed.module.items:
            if isinstance(item, DECLARATIONS):
                way = "move the declaration into the file, and use it here"
                reports.append(Diagnostic("DL0101", "an example cannot declare anything", (Label(item.span),), (way,)))
        below = list(expected_lines(comment[i + 1 :]))
        place = Span(source, below[0].start, below[-1].start + len(below[-1].text)) if below else None
        stmts = tuple(item for item in parsed.module.items if not isinstance(item, DECLARATIONS))
        lines.append(ExampleLine(span, stmts, "\n".join(b.text for b in below), place))
    return DocExamples(name, lines[0].span, tuple(lines), tuple(reports))


def example_mismatch(line: ExampleLine, shown: str) -> Diagnostic:
    """The report on an example whose output differs from the expected one."""
    labels = [Label(line.span, "" if "\n" in shown else f"the result is {shown}" if shown else "this prints nothing")]
    if line.expected_span is not None:
        labels.append(Label(line.expected_span, "the expected result is this"))
    ways = (f"the result is\n{shown}",) if "\n" in shown else ()
    what = "has a different result than shown" if line.expected else "returns a value, but no expected result is shown"
    return Diagnostic("DL0907", f"this example {what}", tuple(labels), ways)


def expected_lines(lines: Sequence[DocLine]) -> Iterator[DocLine]:
    for line in lines:
        if not line.text or line.text.startswith(PROMPT):
            return
        yield line
