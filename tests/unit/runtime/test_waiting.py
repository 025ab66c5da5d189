"""Waiting for a number: awake as long as that pays."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

from difflang.runtime import waiting
from difflang.runtime.waiting import TRIES, Waiter


class Late:
    """A result that is never ready in time."""

    looks = 0

    def is_ready(self) -> bool:
        self.looks += 1
        return False

    def item(self) -> int:
        return 7


def test_the_number_is_the_results() -> None:
    assert Waiter().item(jnp.asarray(3)) == 3


def test_a_long_program_is_soon_slept_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "AWAKE", 0.0)
    waiter, results = Waiter(), [Late() for _ in range(TRIES + 2)]
    assert [waiter.item(r) for r in results] == [7] * len(results)
    assert [r.looks > 0 for r in results] == [True] * TRIES + [False, False]


def test_what_is_ready_at_once_is_waited_for_awake_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "AWAKE", 0.0)
    waiter = Waiter()
    for result in (*[Late()] * (TRIES - 1), jnp.asarray(0)):
        waiter.item(result)
    assert waiter.tries == TRIES


def test_without_sched_yield_it_sleeps_for_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[Any] = []
    monkeypatch.delattr(waiting.os, "sched_yield", raising=False)
    monkeypatch.setattr(waiting, "sleep", slept.append)
    waiting.step_aside()
    assert slept == [0]
