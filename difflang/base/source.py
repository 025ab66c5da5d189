"""Source texts, spans in them, and line and column positions. How a span is shown to a person is in `diagnostics`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from msgspec import Struct

LIBRARY_PREFIX = "stdlib/"  # the names of library sources begin with it


class Source:
    """A named text. `name` is what messages call it: a path as the user wrote it, or `<stdin>`, `<string>`.

    `library` marks a source of the standard library, as opposed to a text of the user's.
    """

    # A session makes many sources, and spans refer to them: no dict for each.
    __slots__ = ("library", "name", "starts", "text")

    def __init__(self, name: str, text: str, *, library: bool = False) -> None:
        self.name: Final = name
        self.library: Final = library
        self.text: Final = text
        self.starts: Final = (0, *[found.end() for found in re.finditer("\n", text)])

    def position(self, offset: int) -> tuple[int, int]:
        """The 1-based line and 1-based column, in code points, of an offset."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    @property
    def document(self) -> object:
        """The text that this is, or is a part of, compared by identity."""
        return self

    @property
    def document_offset(self) -> int:
        """How many characters of the whole document come before this text."""
        return 0

    def line(self, number: int) -> str:
        """The text of a 1-based line, without its newline."""
        start = self.starts[number - 1]
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")


class Place(Struct, eq=False):
    """Where a part currently begins in its document. `was_read` is set when a position depended on it."""

    offset: int = 0
    line: int = 0
    was_read: bool = False


class Part(Source):
    """A part of a document, of whole lines, that is parsed by itself: its results stay valid when it moves.

    Offsets count from its own beginning, lines from the beginning of the document.
    """

    __slots__ = ("location", "parent")

    def __init__(self, name: str, text: str, of: object, place: Place) -> None:
        super().__init__(name, text)
        self.parent: Final = of
        self.location: Final = place

    @property
    def document(self) -> object:
        return self.parent

    @property
    def document_offset(self) -> int:
        return self.location.offset

    def position(self, offset: int) -> tuple[int, int]:
        self.location.was_read = True
        line, column = super().position(offset)
        return self.location.line + line, column

    def line(self, number: int) -> str:
        return super().line(number - self.location.line)


class Span(Struct, frozen=True):
    """A half-open range of code points in a source."""

    source: Source
    start: int
    end: int

    def __repr__(self) -> str:
        return f"Span({self})"

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def is_known(self) -> bool:
        """Whether it is a position in a text, not one of what no text says."""
        return self.source is not BUILTIN_SOURCE

    @property
    def in_library(self) -> bool:
        """Whether it lies in the standard library, not in a text of the user's."""
        return self.source.library

    def contains(self, other: Span) -> bool:
        """Whether another span begins within this one."""
        return other.source is self.source and self.start <= other.start < self.end

    def starts_after(self, other: Span) -> bool:
        """Whether this begins at or after the start of another span, if both are in one document."""
        mine, its = self.source, other.source
        return (
            mine.document is not its.document or mine.document_offset + self.start >= its.document_offset + other.start
        )

    @property
    def position(self) -> tuple[int, int]:
        """The 1-based line and column of its start."""
        return self.source.position(self.start)

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of `other`."""
        return Span(self.source, self.start, max(self.end, other.end))

    def __str__(self) -> str:
        line, column = self.position
        return f"{self.source.name}:{line}:{column}"


class BackwardSpan(Span, frozen=True):
    """The position of an equation that computes cotangents: that of the equation which it differentiates."""


def backward_span(span: Span) -> BackwardSpan:
    """The same position, of an equation that computes cotangents."""
    return span if isinstance(span, BackwardSpan) else BackwardSpan(span.source, span.start, span.end)


def line_numbers(positions: Sequence[tuple[str, int] | None], nowhere: str = "") -> list[str]:
    """The lines of a table, given as source names and line numbers: with file names unless all are in one file."""
    files = {place[0] for place in positions if place}
    one_file = len(files) <= 1 and not any(f.startswith(LIBRARY_PREFIX) for f in files)

    def line_text(file: str, line: int) -> str:
        return str(line) if one_file else f"{PurePath(file).name}:{line}"

    return [line_text(*place) if place else nowhere for place in positions]


BUILTIN_SOURCE = Source("<builtin>", "")
NO_SPAN = Span(BUILTIN_SOURCE, 0, 0)
