"""The multiple-choice knapsack problem: one option from each table, in the least total time within a byte budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

W = TypeVar("W")


class OptionTable(Struct, Generic[W], frozen=True):
    """The options of one site: the extra bytes and the recomputation time of each."""

    options: list[W]
    bytes: list[float]
    times: list[float]

    def with_extra_bytes(self, pick: int, more: float) -> OptionTable[W]:
        """The same, with one option taking more bytes."""
        return replace(self, bytes=[b + more * (i == pick) for i, b in enumerate(self.bytes)])


def solve_knapsack(tables: Sequence[OptionTable[W]], byte_budget: float) -> tuple[list[int] | None, bool]:
    """One option from each table, in the least time within a byte budget, and whether it was found greedily."""
    # SciPy is slow to import, and only needed where there is a limit.
    from scipy.optimize import Bounds, LinearConstraint, milp

    if not tables or sum([min(t.bytes) for t in tables]) > byte_budget:
        return None, False
    sizes = [len(t.options) for t in tables]
    one = np.zeros((len(tables), sum(sizes)))
    for row, (start, size) in enumerate(zip(np.cumsum([0, *sizes[:-1]]), sizes, strict=True)):
        one[row, start : start + size] = 1
    times, bytes = np.concatenate([t.times for t in tables]), np.concatenate([t.bytes for t in tables])
    # Times relative to the greatest and bytes in KiB: the solver's tolerances are absolute.
    scale = max(1.0, float(np.max(times)))
    within: Any = [LinearConstraint(one, 1, 1), LinearConstraint(bytes[None, :] / 1024, -np.inf, byte_budget / 1024)]
    options = {"time_limit": 5.0, "mip_rel_gap": 1e-3}
    ints, bounds = np.ones(len(times)), Bounds(0, 1)
    found: Any = milp(times / scale, constraints=within, integrality=ints, bounds=bounds, options=options)
    if found.x is None:
        return solve_greedily(tables, byte_budget), True
    picks = np.split(np.round(found.x), np.cumsum(sizes)[:-1])
    return [int(np.argmax(p)) for p in picks], False


def solve_greedily(tables: Sequence[OptionTable[W]], byte_budget: float) -> list[int]:
    """Starting from the fewest bytes, repeatedly the step that saves the most time per byte, while it fits."""
    picks = [int(np.argmin(t.bytes)) for t in tables]
    while True:
        left = byte_budget - sum([t.bytes[i] for t, i in zip(tables, picks, strict=True)])
        steps = [
            ((t.times[i] - t.times[j]) / max(1.0, t.bytes[j] - t.bytes[i]), row, j)
            for row, (t, i) in enumerate(zip(tables, picks, strict=True))
            for j in range(len(t.options))
            if t.times[j] < t.times[i] and t.bytes[j] - t.bytes[i] <= left
        ]
        if not steps:
            return picks
        _, row, j = max(steps)
        picks[row] = j
