"""Conversion between offsets and editor positions: lines and columns from 0, in the negotiated encoding."""

from __future__ import annotations

from collections.abc import Callable

from lsprotocol import types as lsp
from msgspec import Struct

from difflang.base.source import Source

LengthFunction = Callable[[str], int]  # the length of a text in code units


def utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


ENCODING_LENGTHS: dict[str, LengthFunction] = {
    "utf-8": lambda text: len(text.encode("utf-8", "surrogatepass")), "utf-16": utf16_length, "utf-32": len,
}  # fmt: skip


class PositionMap(Struct, frozen=True):
    """Converts the positions of one text."""

    source: Source
    units: LengthFunction = utf16_length

    def position(self, offset: int) -> lsp.Position:
        """The position of an offset."""
        line, column = self.source.position(offset)
        return lsp.Position(line - 1, self.units(self.source.text[offset - column + 1 : offset]))

    def range(self, start: int, end: int) -> lsp.Range:
        return lsp.Range(self.position(start), self.position(end))

    def offset(self, position: lsp.Position) -> int:
        """The offset of a position; a position past the end of a line gives the line's end."""
        starts = self.source.starts
        if position.line >= len(starts):
            return len(self.source.text)
        start = starts[position.line]
        line = self.source.line(position.line + 1)
        # One unit per character in every encoding.
        if line.isascii():
            return start + min(position.character, len(line))
        count = 0
        for i, character in enumerate(line):
            count += self.units(character)
            if count > position.character:
                return start + i
        return start + len(line)


def apply_change(text: str, change: lsp.TextDocumentContentChangeEvent, units: LengthFunction) -> str:
    """A text after an editor's change."""
    if isinstance(change, lsp.TextDocumentContentChangeWholeDocument):
        return change.text
    places = PositionMap(Source("", text), units)
    return text[: places.offset(change.range.start)] + change.text + text[places.offset(change.range.end) :]
