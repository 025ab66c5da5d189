"""Checks of a program as its host knows them: where each stands, and what failing it means.

A running program says of a failed check its number, which counts from 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from difflang.base.source import Span

UNDER_I32, OVER_I32 = -(1 << 31), (1 << 31) - 1
"""A failure speaks of an index in an i32. These stand for what is beyond them."""


LoopCounter = tuple[
    Span, int | None
]  # where a loop binds a variable, and what is added to it in an index, if that is all


class IndexTarget(Struct, frozen=True):
    """What an index goes into: an array as the program writes it, and which of its axes, if it has several.

    `reach` is how many places a range takes from the index on, `many` whether it is an array of indices; `counters` are
    the loops' variables in the index.
    """

    array: Span
    axis: int | None = None
    range_length: int | None = None
    is_index_array: bool = False
    counters: tuple[LoopCounter, ...] = ()


class CheckSite(Struct, frozen=True):
    """A check in the program: where it stands, and what failing it means."""

    span: Span
    message: str = ""  # none for an index: the numbers in the word are what is said of it
    capacity: str = ""  # what there were too few of: `frames` and `steps` of the functions in the message, or `items`
    max_steps: int = 0  # more steps than these were taken: of a loop, or of the functions in the message
    index_target: IndexTarget | None = None  # of an index


class CheckTable(Protocol):
    """Who knows the checks of a program, by their numbers, and whether it asks to be added up in one order."""

    @property
    def sites(self) -> Sequence[CheckSite]: ...

    @property
    def deterministic(self) -> bool: ...
