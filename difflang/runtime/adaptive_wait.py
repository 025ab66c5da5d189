"""Waiting for one small result: asleep or awake, whichever takes less.

To sleep and be woken takes longer than a short program runs. But who stays awake holds a core that the program's own
threads may want, and then a program of many threads takes half as long again. Which of the two it is depends on the
program, the machine and what else runs there, so it is found out. At first it is to stay awake, which of most short
programs takes less.
"""

from __future__ import annotations

import os
from math import log
from time import perf_counter, sleep
from typing import Any

import numpy as np

LONG = 8e-4  # seconds; some 30 µs less is little beside longer programs, and trials hold them up
STRETCH = 8  # calls in a row that are timed: the first after the other way are slower
OFTEN, RARELY = 2, 512  # stretches from one trial to the next
AHEAD, BEHIND = 0.6, -0.2  # the other way surely is: logarithms of what it took less, in all trials of this question
AT_MOST = 0.5  # of one trial, which luck may have decided
TICK = 1e-9  # seconds; a clock may stand still, as in tests that stop it


class Waiter:
    """Reads results of one program, now and then for a stretch in the way that it does not hold for the faster one."""

    __slots__ = ("awake", "calls", "done", "interval", "lead", "times", "usual")

    def __init__(self) -> None:
        self.awake = True
        self.interval = OFTEN  # stretches from the end of a trial to the end of the next
        self.calls = OFTEN * STRETCH  # until then
        self.lead = 0.0  # of the other way
        self.done = 0.0  # when the last call that was timed was done
        self.times: list[float] = []  # from there to the next, in this stretch: a program may hold up its own start
        self.usual = LONG  # the middle one of those before the trial

    def item(self, result: Any) -> int:
        """The number in a JAX array of one element, once it is computed."""
        self.calls -= 1
        trial = self.calls < STRETCH
        if self.awake is not trial:
            soon = is_soon_ready(result)
            if self.awake and not soon:  # it takes longer now, or something else held it up
                self.calls = min(self.calls, 2 * STRETCH)
        found = np.asarray(result).item()  # it waits; on the CPU a view, sooner there than by the own `item`
        if self.calls < 2 * STRETCH:
            self.time(trial=trial)
        return found

    def time(self, *, trial: bool) -> None:
        """Note when a call is done; at the end of a stretch, how long one took."""
        before, self.done = self.done, perf_counter()
        self.times.append(self.done - before)
        if self.calls % STRETCH:
            return
        times, self.times = self.times, []
        if len(times) < STRETCH // 2 + 1:  # another thread was here first
            return
        took = sorted(times)[len(times) // 2]
        if trial:
            self.judge(took)
        elif took < LONG:
            self.usual = took
        else:  # or only the first calls were
            self.awake, self.interval = False, OFTEN
            self.ask_later()

    def judge(self, took: float) -> None:
        """Change over to the other way once it is well ahead; ask again later once it is behind; else go on trying."""
        self.lead += max(-AT_MOST, min(AT_MOST, log((self.usual + TICK) / (took + TICK))))
        self.calls = OFTEN * STRETCH
        if self.lead > AHEAD:
            self.awake, self.lead, self.interval = not self.awake, 0.0, OFTEN
        elif self.lead < BEHIND:
            self.ask_later()

    def ask_later(self) -> None:
        """Which of the two takes less, and from time to time more rarely."""
        self.lead, self.calls = 0.0, self.interval * STRETCH
        self.interval = min(4 * self.interval, RARELY)


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
