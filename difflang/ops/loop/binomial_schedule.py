"""Where the states of a loop are kept when there are fewer slots than steps: Griewank's binomial checkpoints.

Of `slots` states (that before the first step is one of them) the steps between two are had again from the earlier one,
in slots that are free by then. With each step taken at most `r` times before its turn, they reach
β(slots, r) = C(slots + r, slots) steps. All else follows from that table, without a branch, so that the same few lines
plan a loop on paper, where `np` is NumPy, and decide inside a compiled program, where it is `jax.numpy`.

A loop whose length nobody knows can keep a state only when it comes by, and drops one of those that it has: the one
without which the way back would be shortest if the loop ended now.

Source: Griewank and Walther 2000, Algorithm 799 (reach, cost and split); Stumm and Walther 2010 (dropping while the end
is unknown; up to β(slots, 2) steps the rule here decides as their first algorithm does).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import comb
from typing import Any, NamedTuple

import numpy

Array = Any

INT32_MAX = 2**31 - 1  # what does not fit is as good as endless
MAX_SEGMENTS = 8192  # a plan of more is as large as the states that it saves
MAX_REPEATS = 512  # times that a step is taken at most by plan; one or two slots in long loops go beyond, without one


@lru_cache(maxsize=256)
def reach_table(slots: int) -> Array:
    """β(s, r) for s = 0 … slots + 1, one row each, and r = 0, 1, … until all of them reach any number of steps."""
    times = next((r for r in range(MAX_REPEATS) if comb(slots + r, slots) >= INT32_MAX), MAX_REPEATS)
    rows = [[min(comb(s + r, s), INT32_MAX) for r in range(times + 1)] for s in range(slots + 2)]
    return numpy.array(rows, numpy.int32)


@lru_cache(maxsize=1024)
def reach_row(slots: int) -> Array:
    """β(slots, r) for r = 0, 1, …: the row of `reaches` for that many."""
    times = next((r for r in range(MAX_REPEATS) if comb(slots + r, slots) >= INT32_MAX), MAX_REPEATS)
    return numpy.array([min(comb(slots + r, slots), INT32_MAX) for r in range(times + 1)], numpy.int32)


def min_forward_steps(np: Any, steps: Array, reach: Array) -> Array:
    """The fewest steps to take so that each of `steps` steps can be had from its own state, from the last to the first.

    `reach` is the row of the free slots. A step is not counted where it is taken to be differentiated. The closed form
    is r steps - β(slots + 1, r - 1) with the least r that reaches; here it is a sum over that row.
    Shapes: steps[...], reach[..., times] -> [...].
    """
    return np.sum(np.maximum(np.expand_dims(steps, -1) - reach, 0), axis=-1, dtype=numpy.int32)


def first_advance(np: Any, steps: Array, reach: Array, fewer: Array) -> Array:
    """How many of `steps` > 1 steps to take before the next state is kept; `fewer` is the row of one slot less."""
    near = np.max(np.where(reach[1:] < steps, reach[:-1], 0))
    far = steps - np.min(np.where(reach >= steps, fewer, INT32_MAX))
    return np.clip(np.maximum(near, far), 1, steps - 1)


def free_slot_rows(slots: int) -> Array:
    """The row of the slots that are free behind each state: all for the first one, one for the last."""
    return reach_table(slots)[slots:0:-1]


def checkpoint_gaps(np: Any, kept: Array, end: Array) -> Array:
    """How many steps follow each state that is kept, up to the next one or the end."""
    return np.append(kept[1:], end) - kept


def remaining_forward_steps(np: Any, kept: Array, end: Array) -> Array:
    """The fewest steps to take on the way back from `end`, where there are as many slots as states are `kept`."""
    return np.sum(min_forward_steps(np, checkpoint_gaps(np, kept, end), free_slot_rows(len(kept))), dtype=numpy.int32)


def choose_dropped(np: Any, kept: Array, end: Array, sums: Callable[[Array], Array]) -> Array:
    """Which state to drop of one more than there are slots: that without which the way back from `end` is shortest.

    Of several the first, and neither the first state nor the last: there are two slots at least. What lies behind the
    one that is dropped has one slot more. `sums` gives the sum of each number and all behind it.
    Cost: a few sums over slots times repeats.
    """
    slots = len(kept) - 1
    table, steps = free_slot_rows(slots), checkpoint_gaps(np, kept, end)
    as_is = min_forward_steps(np, steps, numpy.concatenate([table, table[-1:]]))
    freer = min_forward_steps(np, steps, numpy.concatenate([reach_table(slots)[slots + 1 :], table]))
    joined = min_forward_steps(np, steps[1:] + steps[:-1], table)
    behind = np.append(sums(freer - as_is)[2:], numpy.int32(0))
    return 1 + np.argmin((joined - as_is[:-1] - as_is[1:] + behind)[:-1]).astype(numpy.int32)


def choose_dropped_fast(np: Any, joined: Array, place: Array, slots: int) -> Array:
    """As `dropped`, where `end` < β(slots, 2) - 1: the first state without which no step is taken twice.

    That is at the `place` which this gave when a state was dropped last, 1 at first, or the next one where more steps
    are `joined` there, between its neighbours, than a way back with the slots behind it goes through.
    """
    return np.where(joined > slots + 2 - place, place + 1, place)


def suffix_sums(x: Array) -> Array:
    """Of each number and all behind it."""
    return numpy.cumsum(x[::-1], dtype=numpy.int32)[::-1]


def plan_checkpoints(steps: int, slots: int) -> tuple[int, ...]:
    """The states to keep on the first way through a loop whose length is known, so that the whole takes the fewest."""
    table, kept, free = reach_table(slots), [0], slots
    while free > 1 and steps - kept[-1] > 1:
        kept.append(kept[-1] + int(first_advance(numpy, steps - kept[-1], table[free], table[free - 1])))
        free -= 1
    return tuple(kept)


class TreeverseSegment(NamedTuple):
    """A part of the way back through a loop: begin at the state in a slot, take steps, and go back through some.

    Slots are a stack, with a spare one on top of it: the state after the steps that are skipped goes to the next slot.
    Of those taken then each is kept, and through those and what was kept before the way goes back.
    """

    slot: int
    first: int  # the number of the first step
    skipped: int
    stored: int
    back: int


@lru_cache(maxsize=256)
def plan_segments(steps: int, slots: int) -> Array | None:
    """The way back through a loop of which `placed` states are kept, a row for each leg; None where these are many.

    What is kept of a step that is taken is its state, in the next slot. The last steps whose states are kept one by one
    need none taken.
    """
    table, held, end, found = reach_table(slots), list(plan_checkpoints(steps, slots)), steps, list[TreeverseSegment]()
    while held and len(found) < MAX_SEGMENTS:
        top, first, free = len(held) - 1, held[-1], slots - len(held)
        far = end - first
        if far == 1:
            run = next((i for i in range(top) if held[top - 1 - i] != first - 1 - i), top)
            del held[top - run :]
            end = first - run
            found.append(TreeverseSegment(top - run, end, 0, 0, run + 1))
        elif far <= free + 2:
            held.pop()
            end = first
            found.append(TreeverseSegment(top, first, 0, far - 1, far))
        else:
            skipped = int(first_advance(numpy, far, table[free + 1], table[free])) if free else far - 1
            found.append(TreeverseSegment(top, first, skipped, 0, 0))
            held.append(first + skipped)
    return None if held else numpy.array(found, numpy.int32)


@lru_cache(maxsize=256)
def plan_residual_segments(steps: int, slots: int, each: int) -> Array | None:
    """The same where there is room for what is read back of `each` steps, of the last ones at first.

    What is kept of a step that is taken is what is read back. States are kept `each` steps apart.
    """
    head = max(0, steps - each)
    end = -(-head // each)
    table, held, found = (
        reach_table(slots),
        list(plan_checkpoints(end, slots)) if end else [],
        [TreeverseSegment(0, head, 0, 0, steps - head)],
    )
    while held and len(found) < MAX_SEGMENTS:
        top, first, free = len(held) - 1, held[-1], slots - len(held)
        far = end - first
        skipped = (
            far - 1 if free == 0 else 0 if far == 1 else int(first_advance(numpy, far, table[free + 1], table[free]))
        )
        if skipped == far - 1:
            end -= 1
            taken = min(each, head - end * each)
            found.append(TreeverseSegment(top, first * each, skipped * each, taken, taken))
            if far == 1:
                held.pop()
        else:
            found.append(TreeverseSegment(top, first * each, skipped * each, 0, 0))
            held.append(first + skipped)
    return None if held else numpy.array(found, numpy.int32)
