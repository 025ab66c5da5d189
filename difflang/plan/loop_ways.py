"""Ways to keep states of a loop, and what its steps are read for, and how many steps each takes again."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import count
from math import comb
from typing import Any

import numpy as np
from msgspec.structs import replace

from difflang.ops.loop.binomial_schedule import advances, reach, reaches
from difflang.plan.save_policies import Way

Array = Any

FEWEST = 2  # states
SLOTS = tuple(dict.fromkeys([round(FEWEST * 1.04**i) for i in range(200)]))  # up to some thousands, a twentieth apart
FEW = 64  # slots, of which it is counted what is taken again
UNITS = 4096  # of steps for which there is a plan: see `schedule.MOST_LEGS`
PARTS = 16  # of a loop, of which the last ones may be kept in another way
NEAR = 0.995  # of the time of another way: what is no quicker is as quick


def ways_of_loop(steps: int, *, known: bool) -> list[tuple[Way, float]]:
    """Ways to keep states of a loop, and how many steps each takes beside those that are taken where all is kept."""
    slots = [n for n in SLOTS if not known or n < steps]
    found = [(Way(n), float(taken_again(np.array([steps], np.int32), n + 1)[0])) for n in slots]
    taped = np.array([n for n in (1, *SLOTS) if known and UNITS * n >= steps and n < steps], np.int32)
    units = -(-(steps - taped) // taped)
    for n in (1, *slots):
        fits = units >= n  # each unit has its own state where there are as many
        again = taped[fits] * np.float64(taken_again(units[fits], n)) + (steps - taped[fits])
        found += [(Way(n, taped=int(r)), float(a)) for r, a in zip(taped[fits], again, strict=True)]
    return found


def late_ways(way: Way, steps: int) -> list[Way]:
    """The same way for all steps but the last ones, of which all is kept."""
    return [replace(way, last=n) for n in sorted({round(steps * i / PARTS) for i in range(1, PARTS)} - {0, steps})]


def least_slots(state: int, *, known: bool) -> int:
    """With how many states of so many bytes a loop takes the least room.

    Where nobody knows its length it has the tables by which states are kept: the fewer slots, the longer they are.
    """
    return FEWEST if known else min(SLOTS[:FEW], key=lambda n: n * state + 2 * reaches(n + 1).nbytes)


def taken_again(steps: Array, slots: int) -> Array:
    """How many steps are taken on the way back, beside those that are differentiated, of each number of steps."""
    whole = advances(np, np.minimum(steps, 2**30), reach(slots))
    return np.maximum(whole - np.array([first_way(int(n), slots) for n in steps]), 0)


@lru_cache(maxsize=1 << 14)
def first_way(steps: int, slots: int) -> int:
    """The last state that is kept on the way forward, as of `placed`: with many slots that of the last step."""
    if slots > FEW:
        return steps - 1
    at, free = 0, slots
    while free > 1 and steps - at > 1:
        far = steps - at
        times = next(r for r in count(1) if comb(free + r, free) >= far)
        near = comb(free + times - 2, free) if times > 1 else 1
        at += min(max(1, near, far - comb(free - 1 + times, free - 1)), far - 1)
        free -= 1
    return at


def fewer(ways: Iterable[tuple[float, float, Way]]) -> list[tuple[float, float, Way]]:
    """Without those that take no less time than one of fewer bytes."""
    found: list[tuple[float, float, Way]] = []
    for way in sorted(ways, key=lambda way: way[:2]):
        if not found or way[1] < NEAR * found[-1][1]:
            found.append(way)
    return found
