"""The in-memory cache of executables, one per specialization. The caller's key must hold all that decides the code."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class ExecutableCache(Generic[T]):
    """A cache that makes each value once, also when several threads ask for it at the same time."""

    def __init__(self) -> None:
        self.made: dict[Hashable, T] = {}
        self.locks: dict[Hashable, Lock] = {}
        self.guard = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of `make` for this key, now or earlier. If `make` raises, the next call tries again."""
        found = self.made.get(key)
        if found is not None:
            return found
        # One lock per key, so that compiling one specialization does not block the others.
        with self.guard:
            lock = self.locks.setdefault(key, Lock())
        with lock:
            if key not in self.made:
                self.made[key] = make()
        with self.guard:
            self.locks.pop(key, None)
        return self.made[key]

    def clear(self) -> None:
        self.made.clear()

    def __len__(self) -> int:
        return len(self.made)
