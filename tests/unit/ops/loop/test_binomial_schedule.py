"""Schedules of kept states, counted step by step: the fewest steps where the length is known, hardly more where not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest

from difflang.ops.loop.binomial_schedule import (
    choose_dropped,
    choose_dropped_fast,
    first_advance,
    min_forward_steps,
    plan_checkpoints,
    reach_table,
    remaining_forward_steps,
    suffix_sums,
)


@cache
def fewest(steps: int, slots: int) -> int:
    """By trying every first advance."""
    if steps <= 1:
        return 0
    if slots == 1:
        return steps * (steps - 1) // 2
    return min(m + fewest(m, slots) + fewest(steps - m, slots - 1) for m in range(1, steps))


def closed_form(steps: int, slots: int) -> int:
    return int(min_forward_steps(np, np.int32(steps), reach_table(slots)[slots]))


def taken_back(kept: Sequence[int], end: int, slots: int) -> int:
    """How many steps are taken on the way back from `end`, one after the other, with these states kept at first."""
    held, count, table = list(kept), 0, reach_table(slots)
    for due in reversed(range(end)):
        while held[-1] > due:
            held.pop()
        at = held[-1]
        while at < due:
            free = slots - len(held) + 1
            far = due - at
            if free > 1:
                far = int(first_advance(np, np.int32(far + 1), table[free], table[free - 1]))
                held.append(at + far)
            at, count = at + far, count + far
    return count


def followed(slots: int, steps: int, quick: bool = False) -> Iterator[tuple[int, np.ndarray]]:
    """What is kept when a loop ends after each number of steps, from as many as there are slots on."""
    kept, place = np.arange(slots, dtype=np.int32), 1
    for end in range(slots, steps + 1):
        yield end, kept
        more, then = np.append(kept, np.int32(end)), np.int32(end + 1)
        if quick and then < reach_table(slots)[slots, 2] - 1:
            place = int(choose_dropped_fast(np, more[place + 1] - more[place - 1], place, slots))
            kept = np.delete(more, place)
        else:
            kept = np.delete(more, int(choose_dropped(np, more, then, suffix_sums)))


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
def test_the_closed_form_is_the_minimum(slots: int) -> None:
    for steps in range(60):
        assert closed_form(steps, slots) == fewest(steps, slots)


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 7, 16, 40])
@pytest.mark.parametrize("steps", [1, 2, 3, 10, 41, 500])
def test_what_is_placed_beforehand_takes_the_fewest(steps: int, slots: int) -> None:
    kept = plan_checkpoints(steps, slots)
    assert kept[0] == 0 and len(kept) <= slots and list(kept) == sorted(set(kept)) and kept[-1] < max(steps, 1)
    assert kept[-1] + taken_back(kept, steps, slots) == closed_form(steps, slots)


@pytest.mark.parametrize("slots", [4, 8, 16, 32])
def test_without_knowing_the_end_hardly_more(slots: int) -> None:
    """Beside the slots there is room for the state before the newest step: offline that is the working state."""
    excess: list[float] = []
    for end, kept in followed(slots + 1, 2000):
        if end >= 50:
            taken = end - 1 + int(remaining_forward_steps(np, kept, np.int32(end)))
            excess.append(taken / closed_form(end, slots) - 1)
    assert max(excess) < 0.03 and np.mean(excess) < 0.007


@pytest.mark.parametrize("slots", [3, 6, 17])
def test_the_way_back_takes_what_was_planned(slots: int) -> None:
    for end, kept in followed(slots, 400):
        if end % 37 == 0 or end < 60:
            assert taken_back(kept.tolist(), end, slots) == int(remaining_forward_steps(np, kept, np.int32(end)))


@pytest.mark.parametrize("slots", [3, 6, 17])
def test_the_quick_rule_is_as_good_as_far_as_it_goes(slots: int) -> None:
    pairs = zip(followed(slots, 250), followed(slots, 250, quick=True), strict=True)
    assert all(
        remaining_forward_steps(np, a, np.int32(n)) == remaining_forward_steps(np, b, np.int32(n))
        for (n, a), (_, b) in pairs
    )


def test_dropping_every_second_state_is_caught() -> None:
    """The measure tells a good rule from a bad one."""
    kept = np.arange(8, dtype=np.int32)
    for end in range(8, 500):
        more = np.append(kept, np.int32(end))
        kept = np.delete(more, 1 + int(np.argmin(more[2:] - more[:-2])))
    assert 499 + int(remaining_forward_steps(np, kept, np.int32(500))) > 1.05 * closed_form(500, 8)
