"""Waiting for one small result: asleep or awake, whichever takes less.

To sleep and be woken takes longer than a short program runs. But who stays awake holds a core that the program's own
threads may want, and then a program of many threads takes half as long again. Which of the two it is depends on the
program, the machine and what else runs there, so it is found out.
"""

from __future__ import annotations

import os
from time import perf_counter, sleep
from typing import Any

import numpy as np

LONG = 1e-3  # seconds; what is gained by not sleeping, some 30 µs, is little beside longer programs
ENOUGH = 3  # trials in a row that the other way must win
OFTEN, RARELY = 2, 64  # calls from one trial to the next


class Waiter:
    """Reads results of one program, now and then in the way that it does not hold for the faster one."""

    __slots__ = ("awake", "due", "interval", "usual", "wins")

    def __init__(self) -> None:
        self.awake = False
        self.usual = LONG  # seconds that the last call took which was timed and was no trial
        self.due = self.interval = OFTEN  # calls to the next trial, and between trials
        self.wins = 0

    def item(self, result: Any) -> int:
        """The number in a JAX array of one element, once it is computed."""
        self.due -= 1
        if self.due < 2:
            self.timed(result)
        elif self.awake:
            self.awake = is_soon_ready(result)
        else:
            result.block_until_ready()
        return np.asarray(result).item()  # of an array on the CPU a view, in half the time of its own `item`

    def timed(self, result: Any) -> None:
        """Wait as usual, for the last time before a trial, or in the other way."""
        trial, start = self.due < 1, perf_counter()
        if self.awake is not trial:
            is_soon_ready(result)
        result.block_until_ready()
        took = perf_counter() - start
        if trial:
            self.judge(took)
        elif took < LONG:
            self.usual = took
        else:
            self.awake, self.due = False, RARELY

    def judge(self, took: float) -> None:
        """Change over to the other way once it has won often enough; try it more and more rarely while it loses."""
        if took >= self.usual:
            self.wins, self.interval = 0, min(2 * self.interval, RARELY)
        elif self.wins + 1 < ENOUGH:
            self.wins += 1
        else:
            self.awake, self.wins, self.interval = not self.awake, 0, OFTEN
        self.due = self.interval


def is_soon_ready(result: Any) -> bool:
    """Look again and again for a short while, leaving the processor to whoever computes."""
    ready, until = result.is_ready, perf_counter() + LONG
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
