"""Bounded caches of compiled programs: what was used least recently goes first."""

from __future__ import annotations

from collections.abc import Hashable
from operator import index
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

DEFAULT_PROGRAMS = 256  # a program of a line takes 0.3 MiB
PROGRAM_LIMITS = [DEFAULT_PROGRAMS]


def set_program_cache_size(programs: int) -> None:
    """Keep at most so many compiled programs for each loaded file, one for each function and types of its arguments.

    Those used least recently are dropped, and compiled again when they are needed. The default is 256.
    Errors: ValueError for less than 1, TypeError for what is no whole number.
    """
    count = index(programs)
    if count < 1:
        raise ValueError(f"a cache keeps at least 1 program, not {count}")
    PROGRAM_LIMITS[0] = count


class RecentlyUsed(Generic[K, V]):
    """A dictionary with at most as many entries as `set_program_cache_size` allows."""

    def __init__(self) -> None:
        self.entries: dict[K, V] = {}  # in the order of use

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, key: K) -> V | None:
        """The value, which is used now; None if there is none."""
        found = self.entries.pop(key, None)
        if found is not None:
            self.entries[key] = found
        return found

    def add(self, key: K, value: V) -> list[V]:
        """Add an entry; the values that had to go."""
        self.entries.pop(key, None)
        self.entries[key] = value
        return [self.entries.pop(next(iter(self.entries))) for _ in range(len(self.entries) - PROGRAM_LIMITS[0])]
