"""Source text and places in it. What is shown to a person about a place lives in `diagnostics`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from msgspec import Struct

LIBRARY_PREFIX = "stdlib/"  # so begin the names of its modules


class Source:
    """A named text. `name` is what messages call it: a path as the user wrote it, or `<stdin>`, `<string>`.

    `library` says that it is of the standard library, not a text of the user's.
    """

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
        """The text that this is, or is a part of: by identity."""
        return self

    @property
    def document_offset(self) -> int:
        """How many characters of the whole stand before this."""
        return 0

    def line(self, number: int) -> str:
        """The text of a 1-based line, without its newline."""
        start = self.starts[number - 1]
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")


class Place(Struct, eq=False):
    """Where in its whole a part begins by now. `asked` is set when somebody wants to know."""

    offset: int = 0
    line: int = 0
    was_read: bool = False


class Part(Source):
    """A part of a text, of whole lines, that is read by itself: what is known of it holds wherever it comes to stand.

    Offsets count from its own beginning, lines from that of the whole.
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
    def in_library(self) -> bool:
        """Whether it stands in the standard library, not in a text of the user's."""
        return self.source.library

    def contains(self, other: Span) -> bool:
        """Whether another one begins within it."""
        return other.source is self.source and self.start <= other.start < self.end

    def starts_after(self, other: Span) -> bool:
        """Whether this begins where another does or after it, if they stand in one text."""
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


def line_numbers(positions: Sequence[tuple[str, int] | None], nowhere: str = "") -> list[str]:
    """The lines of a table, given as the names of sources and lines of them: with the files, unless all are in one."""
    files = {place[0] for place in positions if place}
    one_file = len(files) <= 1 and not any(f.startswith(LIBRARY_PREFIX) for f in files)

    def line_text(file: str, line: int) -> str:
        return str(line) if one_file else f"{PurePath(file).name}:{line}"

    return [line_text(*place) if place else nowhere for place in positions]


BUILTIN_SOURCE = Source("<builtin>", "")
NO_SPAN = Span(BUILTIN_SOURCE, 0, 0)
