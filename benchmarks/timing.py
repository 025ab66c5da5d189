"""How things are timed: interleaved in one process, as medians of ratios within a round, with their spread."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Run = Callable[[], Any]
Clock = Callable[[], float]  # seconds


@dataclass(frozen=True, slots=True)
class Spread:
    """A median; the values that nine in ten lie between; and where the median itself lies, 19 times in 20."""

    median: float
    low: float
    high: float
    surely_from: float
    surely_to: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        ordered = sorted(values)
        last = len(ordered) - 1
        edge = round(0.05 * last)
        # The ranks between which a median lies, whatever the distribution: n/2 ± 0.98 √n.
        first = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
        sure = (ordered[first], ordered[last - first])
        return cls(statistics.median(ordered), ordered[edge], ordered[last - edge], *sure)

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def repeats(run: Run, at_least: float, clock: Clock = time.perf_counter) -> int:
    """How often to run for a block of `at_least` seconds."""
    count = 1
    while True:
        taken = block(run, count, clock)
        if taken >= at_least or count >= 1 << 20:
            return count
        count = max(count + 1, int(count * min(10.0, 1.2 * at_least / max(taken, 1e-9))))


def block(run: Run, count: int, clock: Clock = time.perf_counter) -> float:
    """Seconds for `count` runs."""
    start = clock()
    for _ in range(count):
        run()
    return clock() - start


def interleaved(
    runs: Mapping[str, Run], rounds: int, at_least: float = 0.005, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds a run in each round. Every round measures all of them, in an order that rotates from round to round.

    What drifts (clock, neighbours, heat) then hits all alike, and a ratio within a round is free of it.
    """
    names = list(runs)
    counts = {name: repeats(run, at_least, clock) for name, run in runs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                seconds[name].append(block(runs[name], counts[name], clock) / counts[name])
    finally:
        gc.enable()
    return seconds


def ratio(a: Sequence[float], b: Sequence[float]) -> Spread:
    """a/b, round by round."""
    return Spread.of([x / y for x, y in zip(a, b, strict=True)])


def best(seconds: Mapping[str, Sequence[float]]) -> str:
    """The name with the least median."""
    return min(seconds, key=lambda name: statistics.median(seconds[name]))
