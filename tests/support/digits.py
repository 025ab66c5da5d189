"""Values and slopes of elementwise functions to 50 digits, at points that reach every corner of their domains.

A reference number is kept as the sum of two doubles, so that errors are measured in units in the last place and parts
of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import mpmath as mp
import numpy as np

from support.nightly import by_day

Array = np.ndarray[Any, Any]
Exact = Callable[[Any], Any]

DIGITS = 50
COUNT = by_day(250, 1000)
INF = math.inf
VANISHING = 1e-307  # XLA on the CPU takes numbers below 2.2e-308 for 0, on the way too
HUGE, TINY = float(np.finfo(np.float64).max), float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True)
class Known:
    """A function of one number: its value and its slope exactly, and where to ask for them.

    The domain is from `low` to `high`, ends included. Points lie close to those `near` (zeros and edges), and are
    spread over `dense` evenly, and over all magnitudes.
    """

    value: Exact
    slope: Exact
    low: float = -HUGE
    high: float = HUGE
    near: tuple[float, ...] = ()
    dense: tuple[float, float] = (-4.0, 4.0)
    attrs: dict[str, Any] = field(default_factory=dict[str, Any])
    zero: bool = True  # whether 0 is in the domain

    def points(self) -> Array:
        """As many points, the same each time: a third by magnitude, a third near some point, a third evenly."""
        rng = np.random.default_rng(50)
        low, high = self.low, self.high
        by_size = np.concatenate(
            [signs * sizes for signs, sizes in ((1.0, magnitudes(high)), (-1.0, magnitudes(-low)))]
        )
        edges = [e for e in (low, high, *self.near) if abs(e) != HUGE]
        close = np.concatenate([around(e) for e in edges]) if edges else np.empty(0)
        found = np.unique(
            np.concatenate([inside(by_size, low, high), inside(close, low, high), [0.0] * (low <= 0 <= high)])
        )
        found = found if self.zero else found[found != 0]
        if len(found) > 2 * COUNT // 3:
            found = rng.choice(found, 2 * COUNT // 3, replace=False)
        always = inside(np.array([*edges, *self.near, *[x for x in (low, high) if abs(x) < HUGE]]), low, high)
        spread = rng.uniform(max(low, self.dense[0]), min(high, self.dense[1]), COUNT - len(found) - len(always))
        return np.concatenate([always, found, spread])


def magnitudes(end: float) -> Array:
    """From the least normal number to the end of the domain, more of them between 1e-20 and 1e20; and some denser."""
    if end <= 0:
        return np.empty(0)
    top = min(end, HUGE)
    logs = [
        np.geomspace(TINY, top, 70),
        np.geomspace(1e-20, min(top, 1e20), 130),
        np.geomspace(1e-3, min(top, 1e3), 200),
    ]
    return np.concatenate([s[s <= top] for s in logs])


def around(x: float) -> Array:
    """Numbers beside `x`, at distances from one unit in the last place."""
    if x == 0.0:
        return np.array([0.0, *np.geomspace(TINY, 0.1, 40), *-np.geomspace(TINY, 0.1, 40)])
    ulp = float(np.spacing(abs(x)))
    steps = np.unique(np.round(np.geomspace(1, 2.0**49, 40))) * ulp
    return np.concatenate([[x], x + steps, x - steps])


def inside(x: Array, low: float, high: float) -> Array:
    return x[(low <= x) & (x <= high)]


@dataclass(frozen=True, slots=True)
class Reference:
    """Numbers known to 30 digits: the sum of two doubles."""

    high: Array
    low: Array

    @classmethod
    def of(cls, function: Callable[..., Any], *columns: Iterable[float]) -> Reference:
        pairs = [both(function, *row) for row in zip(*columns, strict=True)]
        return cls(np.array([h for h, _ in pairs]), np.array([low for _, low in pairs]))

    def ulps(self, got: Array) -> Array:
        """How far off, in units in the last place. Numbers that vanish on XLA's CPU count as right if both do."""
        with np.errstate(all="ignore"):
            off = np.abs((got - self.high) - self.low) / np.spacing(np.maximum(np.abs(self.high), TINY))
            alike = (got == self.high) | (np.isnan(got) & np.isnan(self.high))
            vanishing = (np.abs(self.high) < VANISHING) & (np.abs(got) <= VANISHING)
        return np.where(alike | vanishing, 0.0, np.where(np.isnan(off), INF, off))


def both(function: Callable[..., Any], *row: float) -> tuple[float, float]:
    with mp.workdps(DIGITS):
        try:
            exact = function(*map(mp.mpf, map(float, row)))
        except (ZeroDivisionError, ValueError):
            return math.nan, 0.0
        if isinstance(exact, mp.mpc):
            return math.nan, 0.0
        high = float(exact)
        return high, float(exact - mp.mpf(high)) if math.isfinite(high) else 0.0
