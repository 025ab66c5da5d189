"""The processes that run one program together: who writes, and what they agree on. Alone, one does both."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from difflang.base.diagnostics import DifflangError

LOST_CODE = "DL1262"
MEMBER_VARIABLE = "DIFFLANG_MEMBER"  # in a process that another one started as a member of a run


class GroupMember(msgspec.Struct, frozen=True):
    """One process of a run on several, as it is started: where process 0 listens, which one it is, of how many.

    `seconds` is the time in which all must have come. What libraries in C++ print goes to the file `log`.
    """

    coordinator: str
    number: int
    count: int
    seconds: float
    log: str
    parent: int

    def __str__(self) -> str:
        return f"process {self.number} of {self.count}"

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.coordinator.rpartition(":")
        return host.strip("[]"), int(port)


def this_member() -> GroupMember | None:
    """The member of a run that this process was started as; None if a person started it."""
    text = os.environ.get(MEMBER_VARIABLE)
    return None if text is None else msgspec.json.decode(text, type=GroupMember)


class ProcessGroup:
    """The processes that run a program: here this one alone. All must call each method, in the same order."""

    number = 0
    count = 1

    def agree(self, value: float) -> float:
        """The number that process 0 has."""
        return value

    def run_once(self, action: Callable[[], None], refused: DifflangError) -> None:
        """Run an action in process 0 while the others wait. If it fails there, `refused` is the error of the others."""
        action()

    def require_same(self, text: str, refused: Callable[[int], DifflangError]) -> None:
        """Errors: `refused(number)` in all processes if one of this number has another text than process 0."""


ALONE = ProcessGroup()
