"""Waiting for one small result: awake if that is soon there, since to sleep and be woken takes longer than it runs."""

from __future__ import annotations

import os
from time import perf_counter, sleep
from typing import Any

AWAKE = 1e-3  # seconds; what is gained by not sleeping, some 30 µs, is little beside longer programs
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
    """Look again and again for a short while, leaving the processor to whoever computes."""
    ready, until = result.is_ready, perf_counter() + AWAKE
    while not ready():
        step_aside()
        if perf_counter() > until:
            return False
    return True


def step_aside() -> None:
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        sleep(0)
