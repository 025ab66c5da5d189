"""Binomial checkpoint schedules (treeverse, revolve): which loop states to store when slots are fewer than steps.

With states in `slots` slots (the initial state in one of them), the steps between two stored states are recomputed from
the earlier one, in slots that are free by then. If each step is recomputed at most `r` times, they reach β(slots, r) =
C(slots + r, slots) steps. Everything else follows from that table without branches, so the same code plans a loop of
known length, where `np` is NumPy, and decides inside a compiled program, where it is `jax.numpy`.

A loop of unknown length can store a state only when it passes it, and drops one that it has stored: the one without
which the reverse sweep would be shortest if the loop ended now (online checkpointing).

Source: Griewank 1992, Achieving logarithmic growth of temporal and spatial complexity in reverse automatic
        differentiation; Griewank and Walther 2000, Algorithm 799: revolve (reach, cost and split); Stumm and Walther
        2010 (dropping while the length is unknown; up to β(slots, 2) steps the rule here decides as their first
        algorithm does).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import comb
from typing import Generic, NamedTuple, TypeVar

import numpy

from difflang.ir.array_types import NUMPY, Array, ArrayT, JaxArray, NumpyModule

# Of steps and slots: known, or in a compiled program.
Number = TypeVar("Number", int, JaxArray)

# Larger numbers are as good as infinite.
INT32_MAX = 2**31 - 1
# A longer plan takes as much memory as the states that it saves.
MAX_SEGMENTS = 8192
# The most times that a plan repeats a step; one or two slots in long loops exceed it and get no plan.
MAX_REPEATS = 512


@lru_cache(maxsize=256)
def reach_table(slots: int) -> Array:
    """β(s, r) for s = 0 … slots + 1, one row each, and r = 0, 1, … until all of them reach any number of steps."""
    times = next((r for r in range(MAX_REPEATS) if comb(slots + r, slots) >= INT32_MAX), MAX_REPEATS)
    rows = [[min(comb(s + r, s), INT32_MAX) for r in range(times + 1)] for s in range(slots + 2)]
    return numpy.array(rows, numpy.int32)


@lru_cache(maxsize=1024)
def reach_row(slots: int) -> Array:
    """β(slots, r) for r = 0, 1, …: one row of `reach_table`."""
    times = next((r for r in range(MAX_REPEATS) if comb(slots + r, slots) >= INT32_MAX), MAX_REPEATS)
    return numpy.array([min(comb(slots + r, slots), INT32_MAX) for r in range(times + 1)], numpy.int32)


def min_forward_steps(np: NumpyModule[ArrayT], steps: ArrayT, reach: ArrayT) -> ArrayT:
    """The fewest forward steps to recompute the states of `steps` steps one by one, from the last to the first.

    `reach` is the row of the free slots. Taking a step in order to differentiate it does not count. The closed form is
    r steps - β(slots + 1, r - 1) with the least r that reaches; here it is a sum over that row.
    Shapes: steps[...], reach[..., times] -> [...].
    """
    return np.sum(np.maximum(np.expand_dims(steps, -1) - reach, 0), axis=-1, dtype=numpy.int32)


def first_advance(np: NumpyModule[ArrayT], steps: ArrayT | int, reach: ArrayT, fewer: ArrayT) -> ArrayT:
    """How many of `steps` > 1 steps to advance before storing the next state; `fewer` is the row for one slot less."""
    near = np.max(np.where(reach[1:] < steps, reach[:-1], 0))
    far = steps - np.min(np.where(reach >= steps, fewer, INT32_MAX))
    return np.clip(np.maximum(near, far), 1, steps - 1)


def free_slot_rows(slots: int) -> Array:
    """For each stored state the row of the slots that are free after it: all for the first one, one for the last."""
    return reach_table(slots)[slots:0:-1]


def checkpoint_gaps(np: NumpyModule[JaxArray], kept: JaxArray, end: JaxArray) -> JaxArray:
    """The number of steps from each stored state to the next one or the end."""
    return np.append(kept[1:], end) - kept


def remaining_forward_steps(np: NumpyModule[JaxArray], kept: JaxArray, end: JaxArray) -> JaxArray:
    """The fewest forward steps for the reverse sweep from `end`, with as many slots as states in `kept`."""
    return np.sum(min_forward_steps(np, checkpoint_gaps(np, kept, end), free_slot_rows(len(kept))), dtype=numpy.int32)


def choose_dropped(
    np: NumpyModule[JaxArray], kept: JaxArray, end: JaxArray, sums: Callable[[JaxArray], JaxArray]
) -> JaxArray:
    """Which state to drop of one more than there are slots: the one without which the reverse sweep from `end` is
    shortest.

    The first of several equals, and neither the first state nor the last: there are two slots at least. The states
    after the dropped one have one slot more. `sums` computes suffix sums.
    Cost: a few sums over slots times repeats.
    """
    slots = len(kept) - 1
    table, steps = free_slot_rows(slots), checkpoint_gaps(np, kept, end)
    as_is = min_forward_steps(np, steps, numpy.concatenate([table, table[-1:]]))
    freer = min_forward_steps(np, steps, numpy.concatenate([reach_table(slots)[slots + 1 :], table]))
    joined = min_forward_steps(np, steps[1:] + steps[:-1], table)
    behind = np.append(sums(freer - as_is)[2:], numpy.int32(0))
    return 1 + np.argmin((joined - as_is[:-1] - as_is[1:] + behind)[:-1]).astype(numpy.int32)


def choose_dropped_fast(np: NumpyModule[JaxArray], joined: JaxArray, place: JaxArray, slots: int) -> JaxArray:
    """As `choose_dropped`, where `end` < β(slots, 2) - 1: the first state without which no step is repeated twice.

    That is at `place`, the previous result (1 at first), or the next one if the gap between its neighbours (`joined`)
    has become longer than the slots after it can sweep without repeating a step twice.
    """
    return np.where(joined > slots + 2 - place, place + 1, place)


def suffix_sums(x: Array) -> Array:
    """For each element the sum of it and all after it."""
    return numpy.cumsum(x[::-1], dtype=numpy.int32)[::-1]


def plan_checkpoints(steps: int, slots: int) -> tuple[int, ...]:
    """The states to store on the forward sweep of a loop of known length, for the shortest reverse sweep."""
    table, kept, free = reach_table(slots), [0], slots
    while free > 1 and steps - kept[-1] > 1:
        kept.append(kept[-1] + int(first_advance(NUMPY, steps - kept[-1], table[free], table[free - 1])))
        free -= 1
    return tuple(kept)


class TreeverseSegment(NamedTuple, Generic[Number]):
    """One segment of the reverse sweep through a loop: start from a stored state, advance, and reverse some steps.

    Slots are a stack with a spare one on top: the state after `skipped` steps goes into the next slot. Of the `stored`
    steps after those each state is stored, and `back` steps are reversed from there.
    """

    slot: Number
    first: Number  # the number of the first step
    skipped: Number
    stored: Number
    back: Number


@lru_cache(maxsize=256)
def plan_segments(steps: int, slots: int) -> Array | None:
    """The reverse sweep through a loop whose states `plan_checkpoints` stores, one row per segment; None if too long.

    The states of `stored` steps go into the next slots.
    """
    table, held, end, found = (
        reach_table(slots),
        list(plan_checkpoints(steps, slots)),
        steps,
        list[TreeverseSegment[int]](),
    )
    while held and len(found) < MAX_SEGMENTS:
        top, first, free = len(held) - 1, held[-1], slots - len(held)
        far = end - first
        if far == 1:
            # A run of adjacent stored states is reversed without recomputing any step.
            run = next((i for i in range(top) if held[top - 1 - i] != first - 1 - i), top)
            del held[top - run :]
            end = first - run
            found.append(TreeverseSegment(top - run, end, 0, 0, run + 1))
        elif far <= free + 2:
            held.pop()
            end = first
            found.append(TreeverseSegment(top, first, 0, far - 1, far))
        else:
            skipped = int(first_advance(NUMPY, far, table[free + 1], table[free])) if free else far - 1
            found.append(TreeverseSegment(top, first, skipped, 0, 0))
            held.append(first + skipped)
    return None if held else numpy.array(found, numpy.int32)


@lru_cache(maxsize=256)
def plan_residual_segments(steps: int, slots: int, each: int) -> Array | None:
    """The same, with buffers for the residuals of `each` steps, which first hold those of the last steps.

    Residuals of the `stored` steps are saved instead of states. States are stored `each` steps apart.
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
            far - 1 if free == 0 else 0 if far == 1 else int(first_advance(NUMPY, far, table[free + 1], table[free]))
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
