"""Runtime checks of a program as the host knows them: the source span of each, and what its failure means.

A running program reports a failed check by its number, which counts from 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from difflang.base.source import Span

# A failure reports an index as an i32. These stand for indices that do not fit.
UNDER_I32, OVER_I32 = -(1 << 31), (1 << 31) - 1

# The span where a loop binds its variable, and the constant added to it in an index (None for another form).
LoopCounter = tuple[Span, int | None]


class IndexTarget(Struct, frozen=True):
    """What is indexed: the array's span in the program, and the axis if the array has several.

    `range_length` is the length of a range that starts at the index. `is_index_array` marks an array of indices.
    `counters` are the loop variables in the index.
    """

    array: Span
    axis: int | None = None
    range_length: int | None = None
    is_index_array: bool = False
    counters: tuple[LoopCounter, ...] = ()


class CheckSite(Struct, frozen=True):
    """A runtime check of the program: its span, and what a failure means."""

    span: Span
    # Empty for an index: its report is built from the numbers in the failure word.
    message: str = ""
    # The capacity that ran out: `frames` or `steps` of the functions in the message, or `items`.
    capacity: str = ""
    # The limit exceeded by a loop, or by the functions in the message.
    max_steps: int = 0
    index_target: IndexTarget | None = None  # for a check of an index


class CheckTable(Protocol):
    """A program's checks by number, and whether it asks for sums in a fixed order."""

    @property
    def sites(self) -> Sequence[CheckSite]: ...

    @property
    def deterministic(self) -> bool: ...
