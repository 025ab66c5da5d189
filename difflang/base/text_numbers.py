"""Numbers of texts: an array of texts is an array of their numbers. Equal texts of a process have equal numbers."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

# The empty text is 0, as everything is that nothing has been written to.
TEXTS = [""]
NUMBERS = {"": 0}
LOCK = Lock()


def text_number(text: str) -> int:
    """The number of a text, a new one for a new text."""
    number = NUMBERS.get(text)
    if number is not None:
        return number
    with LOCK:
        number = NUMBERS.get(text)
        if number is None:
            TEXTS.append(text)
            number = NUMBERS[text] = len(TEXTS) - 1
        return number


def text_numbers(texts: Iterable[str]) -> list[int]:
    """The number of each text."""
    return [NUMBERS[text] if text in NUMBERS else text_number(text) for text in texts]


def numbered_text(number: int) -> str:
    """The text with this number."""
    return TEXTS[number]
