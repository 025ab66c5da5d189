"""Streams of random keys for host statements: one key for each call that draws, in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from difflang.ops.arrays.threefry_random import fold_in

# Substreams are numbered downwards from here, so that they do not collide with the calls of a stream.
LAST_STREAM = 2**32 - 1


class KeyStream:
    """A lazy sequence of keys: most programs draw nothing, so the root key is computed at the first draw."""

    __slots__ = ("count", "root", "start")

    def __init__(self, start: Callable[[], np.ndarray]) -> None:
        self.start = start
        self.root: np.ndarray | None = None
        self.count = 0  # keys drawn so far

    def next(self) -> np.ndarray:
        self.count += 1
        return self.fold(self.count - 1)

    def substream(self, number: int) -> KeyStream:
        """The independent stream of that number, whatever was drawn from this one before."""
        return KeyStream(partial(self.fold, LAST_STREAM - number))

    def fold(self, number: int) -> np.ndarray:
        if self.root is None:
            self.root = self.start()
        return fold_in.reference(self.root, np.uint32(number))


def key_stream(seed: int) -> KeyStream:
    return KeyStream(partial(seed_to_key, seed))


def seed_to_key(seed: int) -> np.ndarray:
    """A seed as a key."""
    return np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)
