"""Values that are compared by some of their fields."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct
from msgspec.structs import astuple


class PartialEquality(Struct, frozen=True, eq=False):
    """A value that its last fields, `BESIDE` of them, do not make another: where it was found, say."""

    IGNORED_FIELDS: ClassVar[int] = 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartialEquality) or type(other) is not type(self):
            return False
        return astuple(self)[: -self.IGNORED_FIELDS] == astuple(other)[: -self.IGNORED_FIELDS]

    def __ne__(self, other: object) -> bool:  # a struct has one of its own, which does not ask `__eq__`
        return not self == other

    def __hash__(self) -> int:
        return hash(astuple(self)[: -self.IGNORED_FIELDS])
