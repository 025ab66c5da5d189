"""The grammar of messages: articles and plurals."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Any

# By sound: `an f64`, but `a u8`.
VOWEL = re.compile(r"[AEIOaeio]|[Uu](?!\d)|f\d")


def with_article(noun: str) -> str:
    """`a bool`, `an f64`."""
    return f"{'an' if VOWEL.match(noun) else 'a'} {noun}"


def count_of(count: Any, noun: str, plural: str = "") -> str:
    """`1 argument`, `2 arguments`, of symbolic sizes too; `plural` for words that do not take an s."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def aligned_rows(rows: Sequence[Sequence[str]], left: Container[int]) -> list[str]:
    """Rows of cells as lines with aligned columns: those in `left` at their left edge, the others at their right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        ).rstrip()
        for row in rows
    ]


def length_text(size: Any) -> str:
    """What an axis has: `has 3 elements, 0 to 2`, of symbolic sizes too."""
    if isinstance(size, int) and size <= 0:
        return "is empty"
    return "has one element, 0" if size == 1 else f"has {size} elements, 0 to {size - 1}"
