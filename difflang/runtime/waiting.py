"""Waiting for one small result. A short program is waited for awake: to sleep and be woken takes longer than it runs."""

from __future__ import annotations

from time import perf_counter
from typing import Any

AWAKE = 100e-6  # seconds; about what sleeping and waking cost, and a thread that computes may want this processor
TRIES = 4


class Waiter:
    """Reads results of one program, and stays awake as long as that has paid lately."""

    __slots__ = ("tries",)

    def __init__(self) -> None:
        self.tries = TRIES

    def item(self, result: Any) -> int:
        """The number in a JAX array of one element, once it is computed."""
        if self.tries:
            self.tries = TRIES if is_soon_ready(result) else self.tries - 1
        return result.item()


def is_soon_ready(result: Any) -> bool:
    """Look again and again for a short while."""
    ready, until = result.is_ready, perf_counter() + AWAKE
    while not ready():
        if perf_counter() > until:
            return False
    return True
