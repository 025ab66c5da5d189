"""The grammar of messages: articles and plurals."""

from __future__ import annotations

import re

# By sound: `an f64`, but `a u8`.
VOWEL = re.compile(r"[AEIOaeio]|[Uu](?!\d)|f\d")


def with_article(noun: str) -> str:
    """`a bool`, `an f64`."""
    return f"{'an' if VOWEL.match(noun) else 'a'} {noun}"


def count_of(count: int, noun: str, plural: str = "") -> str:
    """`1 argument`, `2 arguments`; `plural` for words that do not take an s."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"
