"""Structs that compare by some of their fields only."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct
from msgspec.structs import astuple


class PartialEquality(Struct, frozen=True, eq=False):
    """A value whose last `IGNORED_FIELDS` fields do not take part in equality: a source span, say."""

    IGNORED_FIELDS: ClassVar[int] = 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartialEquality) or type(other) is not type(self):
            return False
        return astuple(self)[: -self.IGNORED_FIELDS] == astuple(other)[: -self.IGNORED_FIELDS]

    # A struct has its own `__ne__`, which does not call `__eq__`.
    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(astuple(self)[: -self.IGNORED_FIELDS])
