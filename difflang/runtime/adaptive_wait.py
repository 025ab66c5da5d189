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

MAX_SPIN_SECONDS = 8e-4  # seconds; some 30 µs less is little beside longer programs, and trials hold them up
CALLS_PER_TRIAL = 8  # calls in a row that are timed: the first after the other way are slower
MIN_TRIAL_INTERVAL, MAX_TRIAL_INTERVAL = 2, 512  # stretches from one trial to the next
LEAD_TO_SWITCH, LAG_TO_STOP = (
    0.6,
    -0.2,
)  # the other way surely is: logarithms of what it took less, in all trials of this question
MAX_TRIAL_WEIGHT = 0.5  # of one trial, which luck may have decided
TICK = 1e-9  # seconds; a clock may stand still, as in tests that stop it


class AdaptiveWaiter:
    """Reads results of one program, now and then for a stretch in the way that it does not hold for the faster one."""

    __slots__ = ("awake", "calls", "done", "interval", "lead", "times", "usual")

    def __init__(self) -> None:
        self.awake = True
        self.interval = MIN_TRIAL_INTERVAL  # stretches from the end of a trial to the end of the next
        self.calls = MIN_TRIAL_INTERVAL * CALLS_PER_TRIAL  # until then
        self.lead = 0.0  # of the other way
        self.done = 0.0  # when the last call that was timed was done
        self.times: list[float] = []  # from there to the next, in this stretch: a program may hold up its own start
        self.usual = MAX_SPIN_SECONDS  # the middle one of those before the trial

    def read_item(self, result: Any) -> int:
        """The number in a JAX array of one element, once it is computed."""
        self.calls -= 1
        trial = self.calls < CALLS_PER_TRIAL
        if self.awake is not trial:
            soon = spin_until_ready(result)
            if self.awake and not soon:  # it takes longer now, or something else held it up
                self.calls = min(self.calls, 2 * CALLS_PER_TRIAL)
        found = np.asarray(result).item()  # it waits; on the CPU a view, sooner there than by the own `item`
        if self.calls < 2 * CALLS_PER_TRIAL:
            self.record_call(trial=trial)
        return found

    def record_call(self, *, trial: bool) -> None:
        """Note when a call is done; at the end of a stretch, how long one took."""
        before, self.done = self.done, perf_counter()
        self.times.append(self.done - before)
        if self.calls % CALLS_PER_TRIAL:
            return
        times, self.times = self.times, []
        if len(times) < CALLS_PER_TRIAL // 2 + 1:  # another thread was here first
            return
        took = sorted(times)[len(times) // 2]
        if trial:
            self.judge_trial(took)
        elif took < MAX_SPIN_SECONDS:
            self.usual = took
        else:  # or only the first calls were
            self.awake, self.interval = False, MIN_TRIAL_INTERVAL
            self.ask_later()

    def judge_trial(self, took: float) -> None:
        """Change over to the other way once it is well ahead; ask again later once it is behind; else go on trying."""
        self.lead += max(-MAX_TRIAL_WEIGHT, min(MAX_TRIAL_WEIGHT, log((self.usual + TICK) / (took + TICK))))
        self.calls = MIN_TRIAL_INTERVAL * CALLS_PER_TRIAL
        if self.lead > LEAD_TO_SWITCH:
            self.awake, self.lead, self.interval = not self.awake, 0.0, MIN_TRIAL_INTERVAL
        elif self.lead < LAG_TO_STOP:
            self.ask_later()

    def ask_later(self) -> None:
        """Which of the two takes less, and from time to time more rarely."""
        self.lead, self.calls = 0.0, self.interval * CALLS_PER_TRIAL
        self.interval = min(4 * self.interval, MAX_TRIAL_INTERVAL)


def spin_until_ready(result: Any) -> bool:
    """Look again and again for a short while, leaving the processor to whoever computes."""
    ready, until = result.is_ready, perf_counter() + MAX_SPIN_SECONDS
    while not ready():
        yield_cpu()
        if perf_counter() > until:
            return False
    return True


def yield_cpu() -> None:
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        sleep(0)
