"""Waiting for a number: asleep or awake, whichever has been found to take less."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from difflang.runtime import adaptive_wait
from difflang.runtime.adaptive_wait import (
    CALLS_PER_TRIAL,
    LEAD_TO_SWITCH,
    MAX_SPIN_SECONDS,
    MAX_TRIAL_INTERVAL,
    MAX_TRIAL_WEIGHT,
    MIN_TRIAL_INTERVAL,
    AdaptiveWaiter,
)

TRIALS = 1000 // MAX_TRIAL_INTERVAL + 10 * CALLS_PER_TRIAL  # calls in a thousand that are on trial, at most


class Machine:
    """Its clock, and programs that take some seconds: others if who waits for them stays awake."""

    def __init__(self, awake: float, asleep: float) -> None:
        self.now, self.awake, self.asleep = 0.0, awake, asleep
        self.ways: list[str] = []  # how each result was waited for

    def calls(self, waiter: AdaptiveWaiter, count: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """How so many calls are waited for."""
        monkeypatch.setattr(adaptive_wait, "perf_counter", lambda: self.now)
        self.ways = []
        assert [waiter.read_item(Late(self)) for _ in range(count)] == [7] * count
        return self.ways


class Late:
    """The result of a program that has just been started."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.there, self.looked = machine, False, False

    def is_ready(self) -> bool:
        """Looking takes all the time there is for it."""
        self.machine.now += min(self.machine.awake, 1.1 * MAX_SPIN_SECONDS)
        self.looked, self.there = True, self.machine.awake < MAX_SPIN_SECONDS
        return self.there

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """Waits for it."""
        self.machine.now += 0.0 if self.there else self.machine.asleep
        self.machine.ways.append("awake" if self.looked else "asleep")  # or awake for as long as may be
        return np.array(7)


def test_the_number_is_the_results() -> None:
    waiter = AdaptiveWaiter()
    assert [waiter.read_item(jnp.asarray(k)) for k in range(10 * CALLS_PER_TRIAL)] == list(range(10 * CALLS_PER_TRIAL))


def test_a_program_that_takes_less_awake_is_waited_for_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Machine(awake=20e-6, asleep=50e-6).calls(AdaptiveWaiter(), 1000, monkeypatch).count("asleep") < TRIALS


def test_a_program_that_wants_all_cores_is_soon_slept_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Machine(awake=200e-6, asleep=100e-6).calls(AdaptiveWaiter(), 1000, monkeypatch)
    trials = int(LEAD_TO_SWITCH / MAX_TRIAL_WEIGHT) + 1
    settled = trials * MIN_TRIAL_INTERVAL * CALLS_PER_TRIAL
    assert found[:settled] == (["awake"] * CALLS_PER_TRIAL + ["asleep"] * CALLS_PER_TRIAL) * trials
    assert found[settled:].count("awake") < TRIALS


def test_luck_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    waiter = AdaptiveWaiter()
    for _ in range(20):
        for awake in (75e-6, 33e-6):
            Machine(awake, asleep=50e-6).calls(waiter, waiter.calls, monkeypatch)
            assert waiter.awake


def test_what_has_changed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    waiter = AdaptiveWaiter()
    Machine(awake=20e-6, asleep=50e-6).calls(waiter, 2000, monkeypatch)
    assert waiter.awake
    Machine(awake=150e-6, asleep=100e-6).calls(waiter, 2 * MAX_TRIAL_INTERVAL * CALLS_PER_TRIAL, monkeypatch)
    assert not waiter.awake


def test_a_little_less_is_found_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten parts in a hundred, beside luck that is as large."""
    waiter = AdaptiveWaiter()
    for turn in range(30):
        luck = 6e-6 * (-1) ** turn
        Machine(awake=100e-6, asleep=90e-6 + luck).calls(waiter, MIN_TRIAL_INTERVAL * CALLS_PER_TRIAL, monkeypatch)
    assert not waiter.awake


def test_a_slow_first_stretch_puts_little_off(monkeypatch: pytest.MonkeyPatch) -> None:
    waiter = AdaptiveWaiter()
    Machine(awake=2 * MAX_SPIN_SECONDS, asleep=2 * MAX_SPIN_SECONDS).calls(waiter, CALLS_PER_TRIAL, monkeypatch)
    assert not waiter.awake
    Machine(awake=20e-6, asleep=50e-6).calls(waiter, 10 * CALLS_PER_TRIAL, monkeypatch)
    assert waiter.awake


def test_a_long_program_is_soon_slept_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waiter, machine = AdaptiveWaiter(), Machine(awake=1.0, asleep=1.0)
    found = machine.calls(waiter, 4 * MAX_TRIAL_INTERVAL * CALLS_PER_TRIAL, monkeypatch)
    assert found == ["awake"] * CALLS_PER_TRIAL + ["asleep"] * (len(found) - CALLS_PER_TRIAL)


def test_one_slow_call_changes_nothing_and_many_do(monkeypatch: pytest.MonkeyPatch) -> None:
    waiter, short, long = AdaptiveWaiter(), Machine(awake=20e-6, asleep=50e-6), Machine(awake=1.0, asleep=1.0)
    short.calls(waiter, 1000, monkeypatch)
    long.calls(waiter, 1, monkeypatch)
    assert short.calls(waiter, 1000, monkeypatch).count("asleep") < TRIALS
    assert long.calls(waiter, 100, monkeypatch).count("awake") <= CALLS_PER_TRIAL + 1


def test_a_clock_that_stands_still_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive_wait, "perf_counter", lambda: 0.0)
    waiter = AdaptiveWaiter()
    assert [waiter.read_item(jnp.asarray(k)) for k in range(10 * CALLS_PER_TRIAL)] == list(range(10 * CALLS_PER_TRIAL))


def test_without_sched_yield_it_sleeps_for_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[Any] = []
    monkeypatch.delattr(adaptive_wait.os, "sched_yield", raising=False)
    monkeypatch.setattr(adaptive_wait, "sleep", slept.append)
    adaptive_wait.yield_cpu()
    assert slept == [0]
