"""Executables in memory, one per specialization. The key is the caller's: it says all that decides the code."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class ExecutableCache(Generic[T]):
    """Makes each thing once, also when several threads ask for it at the same time."""

    def __init__(self) -> None:
        self.made: dict[Hashable, T] = {}
        self.locks: dict[Hashable, Lock] = {}
        self.guard = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gave for this key, now or before. A `make` that raises is asked again next time."""
        found = self.made.get(key)
        if found is not None:
            return found
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
