"""Values that are compared by some of their fields."""

from __future__ import annotations

from typing import ClassVar

import pytest

from difflang.base.partial_equality import PartialEquality


class Known(PartialEquality, frozen=True, eq=False):
    name: str
    found: int = 0


class Twofold(PartialEquality, frozen=True, eq=False):
    name: str
    found: int = 0
    again: int = 0

    IGNORED_FIELDS: ClassVar[int] = 2


@pytest.mark.parametrize(("a", "b", "same"), [
    (Known("x", 1), Known("x", 2), True),
    (Known("x"), Known("y"), False),
    (Twofold("x", 1, 2), Twofold("x", 2, 3), True),
    (Known("x"), Twofold("x"), False),
])  # fmt: skip
def test_what_comes_last_does_not_count(a: PartialEquality, b: PartialEquality, same: bool) -> None:
    """In `==` and in `!=`, which a struct answers by itself, and in what a dict finds."""
    assert (a == b) is same and (a != b) is not same and (b in {a: 0}) is same
    assert a != "x"
