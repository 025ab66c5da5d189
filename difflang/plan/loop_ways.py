"""Ways to keep states of a loop, and what its steps are read for, and how many steps each takes again."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import count
from math import comb
from typing import Any

import numpy as np
from msgspec.structs import replace

from difflang.ops.loop.binomial_schedule import min_forward_steps, reach_row, reach_table
from difflang.plan.save_policies import SavePolicy

Array = Any

MIN_SLOTS = 2  # states
SLOT_COUNTS = tuple(
    dict.fromkeys([round(MIN_SLOTS * 1.04**i) for i in range(200)])
)  # up to some thousands, a twentieth apart
MAX_EXACT_SLOTS = 64  # slots, of which it is counted what is taken again
MAX_UNITS = 4096  # of steps for which there is a plan: see `schedule.MOST_LEGS`
LAST_FRACTIONS = 16  # of a loop, of which the last ones may be kept in another way
TIME_TOLERANCE = 0.995  # of the time of another way: what is no quicker is as quick


def loop_policies(steps: int, *, is_static: bool) -> list[tuple[SavePolicy, float]]:
    """Ways to keep states of a loop, and how many steps each takes beside those that are taken where all is kept."""
    slots = [n for n in SLOT_COUNTS if not is_static or n < steps]
    found = [(SavePolicy(n), float(recomputed_steps(np.array([steps], np.int32), n + 1)[0])) for n in slots]
    taped = np.array([n for n in (1, *SLOT_COUNTS) if is_static and MAX_UNITS * n >= steps and n < steps], np.int32)
    units = -(-(steps - taped) // taped)
    for n in (1, *slots):
        fits = units >= n  # each unit has its own state where there are as many
        again = taped[fits] * np.float64(recomputed_steps(units[fits], n)) + (steps - taped[fits])
        found += [(SavePolicy(n, segment_steps=int(r)), float(a)) for r, a in zip(taped[fits], again, strict=True)]
    return found


def partial_policies(way: SavePolicy, steps: int) -> list[SavePolicy]:
    """The same way for all steps but the last ones, of which all is kept."""
    return [
        replace(way, last=n)
        for n in sorted({round(steps * i / LAST_FRACTIONS) for i in range(1, LAST_FRACTIONS)} - {0, steps})
    ]


def min_memory_slots(state: int, *, is_static: bool) -> int:
    """With how many states of so many bytes a loop takes the least room.

    Where nobody knows its length it has the tables by which states are kept: the fewer slots, the longer they are.
    """
    return (
        MIN_SLOTS
        if is_static
        else min(SLOT_COUNTS[:MAX_EXACT_SLOTS], key=lambda n: n * state + 2 * reach_table(n + 1).nbytes)
    )


def recomputed_steps(steps: Array, slots: int) -> Array:
    """How many steps are taken on the way back, beside those that are differentiated, of each number of steps."""
    whole = min_forward_steps(np, np.minimum(steps, 2**30), reach_row(slots))
    return np.maximum(whole - np.array([last_forward_checkpoint(int(n), slots) for n in steps]), 0)


@lru_cache(maxsize=1 << 14)
def last_forward_checkpoint(steps: int, slots: int) -> int:
    """The last state that is kept on the way forward, as of `placed`: with many slots that of the last step."""
    if slots > MAX_EXACT_SLOTS:
        return steps - 1
    at, free = 0, slots
    while free > 1 and steps - at > 1:
        far = steps - at
        times = next(r for r in count(1) if comb(free + r, free) >= far)
        near = comb(free + times - 2, free) if times > 1 else 1
        at += min(max(1, near, far - comb(free - 1 + times, free - 1)), far - 1)
        free -= 1
    return at


def pareto_front(ways: Iterable[tuple[float, float, SavePolicy]]) -> list[tuple[float, float, SavePolicy]]:
    """Without those that take no less time than one of fewer bytes."""
    found: list[tuple[float, float, SavePolicy]] = []
    for way in sorted(ways, key=lambda way: way[:2]):
        if not found or way[1] < TIME_TOLERANCE * found[-1][1]:
            found.append(way)
    return found
