"""Adaptive waiting for a small result of a program: spinning or sleeping, whichever measures faster.

Waking from sleep takes longer than a short program runs. But spinning holds a core that the program's own threads may
need; a program with many threads then takes half as long again. Which is faster depends on the program, the machine and
its load, so it is measured. The first calls spin, which is faster for most short programs.
"""

from __future__ import annotations

import os
from math import log
from time import perf_counter, sleep
from typing import Any

import numpy as np

# Spinning saves some 30 µs, which is little for longer programs, and trials slow them down.
MAX_SPIN_SECONDS = 8e-4
CALLS_PER_TRIAL = 8  # calls in a row that are timed: the first ones after a change are slower
MIN_TRIAL_INTERVAL, MAX_TRIAL_INTERVAL = 2, 512  # from one trial to the next, in groups of that many calls
# The summed log-ratios of times at which the other mode is better, or worse, for sure.
LEAD_TO_SWITCH, LAG_TO_STOP = 0.6, -0.2
MAX_TRIAL_WEIGHT = 0.5  # bounds the effect of one trial, which noise may decide
TICK = 1e-9  # seconds; avoids a division by zero if the clock stands still, as in tests


class AdaptiveWaiter:
    """Reads results of one program. Now and then it tries the mode that it believes slower for a few calls."""

    __slots__ = ("awake", "calls", "done", "interval", "lead", "times", "usual")

    def __init__(self) -> None:
        self.awake = True
        self.interval = MIN_TRIAL_INTERVAL  # from the end of a trial to the end of the next
        self.calls = MIN_TRIAL_INTERVAL * CALLS_PER_TRIAL  # calls left until then
        self.lead = 0.0  # the summed log-ratios in favour of the other mode
        self.done = 0.0  # when the last timed call ended
        # From end to end of calls, not from start to end: a program may delay the start of the next call.
        self.times: list[float] = []
        self.usual = MAX_SPIN_SECONDS  # the median time before the trial

    def read_item(self, result: Any) -> int:
        """The number in a JAX array of one element, once it is computed."""
        self.calls -= 1
        trial = self.calls < CALLS_PER_TRIAL
        if self.awake is not trial:
            soon = spin_until_ready(result)
            if self.awake and not soon:  # the program takes longer now, or was delayed: measure soon
                self.calls = min(self.calls, 2 * CALLS_PER_TRIAL)
        # This waits, and on the CPU it is a view: faster than JAX's own `item`.
        found = np.asarray(result).item()
        if self.calls < 2 * CALLS_PER_TRIAL:
            self.record_call(trial=trial)
        return found

    def record_call(self, *, trial: bool) -> None:
        """Record the time of a call; after every `CALLS_PER_TRIAL` calls, evaluate their median."""
        before, self.done = self.done, perf_counter()
        self.times.append(self.done - before)
        if self.calls % CALLS_PER_TRIAL:
            return
        times, self.times = self.times, []
        if len(times) < CALLS_PER_TRIAL // 2 + 1:  # another thread took some of the times
            return
        took = sorted(times)[len(times) // 2]
        if trial:
            self.judge_trial(took)
        elif took < MAX_SPIN_SECONDS:
            self.usual = took
        else:  # too long for spinning, at least the first calls
            self.awake, self.interval = False, MIN_TRIAL_INTERVAL
            self.ask_later()

    def judge_trial(self, took: float) -> None:
        """Switch modes once the other is clearly faster; stop trying for a while once it is slower; else try on."""
        self.lead += max(-MAX_TRIAL_WEIGHT, min(MAX_TRIAL_WEIGHT, log((self.usual + TICK) / (took + TICK))))
        self.calls = MIN_TRIAL_INTERVAL * CALLS_PER_TRIAL
        if self.lead > LEAD_TO_SWITCH:
            self.awake, self.lead, self.interval = not self.awake, 0.0, MIN_TRIAL_INTERVAL
        elif self.lead < LAG_TO_STOP:
            self.ask_later()

    def ask_later(self) -> None:
        """Schedule the next trial, each time after a longer interval."""
        self.lead, self.calls = 0.0, self.interval * CALLS_PER_TRIAL
        self.interval = min(4 * self.interval, MAX_TRIAL_INTERVAL)


def spin_until_ready(result: Any) -> bool:
    """Poll for a short while, yielding the processor between polls. False if the result is not ready by then."""
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
