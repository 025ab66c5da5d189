"""Source locations for XLA: Python frames that JAX takes to lie in the program's own text.

JAX locates a primitive at the innermost Python frame that is not its own. A frame here is a tiny function whose code
object carries the `.dfl` source and the span of an equation; the compiler's own folders are excluded through
`jax.extend.source_info_util`. So tracebacks, StableHLO, HLO and profiles all point at the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import jax.extend.source_info_util

from difflang.base.source import Source, Span

SourceFrame = Callable[[Callable[..., Any], Any, Sequence[Any], Mapping[str, Any]], Any]

# The name of such a function.
FRAME_NAME = "<difflang>"
PACKAGE = Path(__file__).resolve().parents[1]


def exclude_own_frames() -> None:
    """Exclude the compiler's own Python files from JAX's search for the origin of an operation.

    The library's sources, which are next to them in an installed package, are not excluded.
    """
    for init in PACKAGE.glob("*/__init__.py"):
        jax.extend.source_info_util.register_exclusion(f"{init.parent}/")


exclude_own_frames()


def call_template(rule: Callable[..., Any], first: Any, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    return rule(first, *arrays, **attrs)


TEMPLATE_CODE: CodeType = call_template.__code__
CODE_UNITS = len(TEMPLATE_CODE.co_code) // 2


class SourceFrames:
    """One function per span, `frame(rule, first, arrays, attrs)`, that calls `rule(first, *arrays, **attrs)`."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made: dict[tuple[Source, int, int], SourceFrame] = {}

    def at(self, span: Span) -> SourceFrame:
        key = (span.source, span.start, span.end)
        frame = self.made.get(key)
        if frame is None:
            frame = self.made[key] = make_frame(span)
        return frame


def make_frame(span: Span) -> SourceFrame:
    """The template function, located at that span. Cost: about 5 µs."""
    line, column = utf8_position(span.source, span.start)
    last, end = utf8_position(span.source, span.end)
    code = TEMPLATE_CODE.replace(
        co_filename=span.source.name,
        co_firstlineno=line,
        co_linetable=single_location_table(last - line, column, end),
        co_name=FRAME_NAME,
        co_qualname=FRAME_NAME,
    )
    return FunctionType(code, {})


def utf8_position(source: Source, offset: int) -> tuple[int, int]:
    """The 1-based line and the 0-based column in bytes, as Python counts them."""
    line, column = source.position(offset)
    start = source.starts[line - 1]
    text = source.text[start : start + column - 1]
    return line, column - 1 if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def single_location_table(lines: int, column: int, end: int) -> bytes:
    """A location table (CPython's `Objects/locations.md`) that gives every instruction the same location.

    Entries cover at most 8 code units; each is in the long form: first-line delta 0, lines to the last one, column and
    end column, both counted from 1.
    """
    place = b"\0" + varint(lines) + varint(column + 1) + varint(end + 1)
    full, rest = divmod(CODE_UNITS, 8)
    table = (bytes([0xF0 | 7]) + place) * full
    return table + (bytes([0xF0 | rest - 1]) + place if rest else b"")


def varint(n: int) -> bytes:
    """Six bits a byte, the lowest first; bit 6 says that more follow."""
    digits = bytearray()
    while n >= 64:
        digits.append(64 | n & 63)
        n >>= 6
    digits.append(n)
    return bytes(digits)
