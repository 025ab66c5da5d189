"""Waiting for a number: asleep or awake, whichever has been found to take less."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from difflang.runtime import waiting
from difflang.runtime.waiting import ENOUGH, LONG, OFTEN, RARELY, Waiter


class Clock:
    """Seconds, and a result that is there after some: others to who looks for it than to who sleeps."""

    def __init__(self, awake: float, asleep: float) -> None:
        self.now, self.awake, self.asleep = 0.0, awake, asleep
        self.ways: list[str] = []  # how each result was waited for

    def __call__(self) -> float:
        return self.now

    def result(self) -> Late:
        return Late(self)


class Late:
    def __init__(self, clock: Clock) -> None:
        self.clock, self.there, self.looks = clock, False, 0

    def is_ready(self) -> bool:
        """Looking takes all the time there is for it."""
        self.looks += 1
        self.clock.now += min(self.clock.awake, 1.1 * LONG)
        self.there = self.clock.awake < LONG
        return self.there

    def block_until_ready(self) -> None:
        self.clock.now += 0.0 if self.there else self.clock.asleep
        self.there = True

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self.clock.ways.append("awake" if self.looks else "asleep")
        return np.array(7)


def ways(monkeypatch: pytest.MonkeyPatch, waiter: Waiter, clock: Clock, calls: int) -> list[str]:
    monkeypatch.setattr(waiting, "perf_counter", clock)
    assert [waiter.item(clock.result()) for _ in range(calls)] == [7] * calls
    return clock.ways


def test_the_number_is_the_results() -> None:
    waiter = Waiter()
    assert [waiter.item(jnp.asarray(k)) for k in range(2 * RARELY)] == list(range(2 * RARELY))


def test_a_program_that_takes_less_awake_is_soon_waited_for_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ways(monkeypatch, Waiter(), Clock(awake=20e-6, asleep=50e-6), 1000)
    settled = ENOUGH * OFTEN
    assert found[:settled] == ["asleep", "awake"] * ENOUGH
    assert found[settled:].count("asleep") < 1000 / RARELY + 10


def test_a_program_that_wants_all_cores_is_slept_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ways(monkeypatch, Waiter(), Clock(awake=150e-6, asleep=100e-6), 1000)
    assert found.count("awake") < 1000 / RARELY + 10


def test_it_takes_several_trials_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    waiter = Waiter()
    for _ in range(10):
        ways(monkeypatch, waiter, Clock(awake=10e-6, asleep=50e-6), (ENOUGH - 1) * OFTEN)
        assert not waiter.awake and waiter.wins == ENOUGH - 1
        ways(monkeypatch, waiter, Clock(awake=60e-6, asleep=50e-6), waiter.due)
        assert not waiter.awake and waiter.wins == 0
        waiter.due = waiter.interval = OFTEN


def test_what_has_changed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    waiter = Waiter()
    ways(monkeypatch, waiter, Clock(awake=20e-6, asleep=50e-6), 500)
    assert waiter.awake
    ways(monkeypatch, waiter, Clock(awake=150e-6, asleep=100e-6), (ENOUGH + 1) * RARELY)
    assert not waiter.awake


def test_a_long_program_is_always_slept_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waiter, long = Waiter(), Clock(awake=1.0, asleep=1.0)
    assert set(ways(monkeypatch, waiter, long, 4 * RARELY)) == {"asleep"}
    waiter.awake = True
    assert ways(monkeypatch, waiter, Clock(awake=1.0, asleep=1.0), 10)[1:] == ["asleep"] * 9


def test_without_sched_yield_it_sleeps_for_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[Any] = []
    monkeypatch.delattr(waiting.os, "sched_yield", raising=False)
    monkeypatch.setattr(waiting, "sleep", slept.append)
    waiting.step_aside()
    assert slept == [0]
