"""NaN provenance: finds the operation that made the first NaN or infinity that reaches a result.

The graph is interpreted, recording each operation that makes a non-finite number from finite ones. Then it runs again
with all such numbers made after some time replaced by ones. The earliest time with which a result is still not finite
is found by bisection. So a NaN that `where` leaves out, or an infinity that is divided by, is no fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.interpreter import StepLimitExceeded, evaluate_eqn, run_equations
from difflang.ops.control.map import map_
from difflang.ops.loop.loop_op import loop

FLOATS = "fcV"  # V is bfloat16
TOO_LONG = 4  # a rerun may take so many times the steps of the first: a replaced number may keep a loop running


class NonFiniteOrigin(Struct, frozen=True):
    """An operation that makes a non-finite number, its operands and result, and the index of the first such number.

    `steps` are the loops and maps around it, innermost last, with the number of the step in each, from 1.
    """

    eqn: Eqn
    operands: tuple[Any, ...]
    result: Any
    index: tuple[int, ...]
    steps: tuple[tuple[Eqn, int], ...]

    @property
    def value(self) -> Any:
        return self.result[self.index]

    def operand(self, number: int) -> Any:
        """The operand's number at that index; None if the result there depends on more than one of its numbers."""
        x = self.operands[number]
        if not isinstance(x, np.ndarray) or (x.shape and not self.eqn.op.elementwise):
            return None
        return x[self.index] if x.shape else x[()]


class NonFiniteRun:
    """One run in which non-finite numbers made after a time are replaced.

    With `nan_only` only NaN counts: made from infinities too, or given by a rule where no derivative exists.
    """

    def __init__(self, after: int | None = None, most: int | None = None, nan_only: bool = False) -> None:
        self.after, self.most, self.nan_only = after, most, nan_only
        self.time = 0
        self.origins: dict[int, NonFiniteOrigin] = {}
        self.of_rules: set[Value] = set()  # NaN constants of rules, which are not in the user's source
        self.enclosing: list[list[Any]] = []  # equations with regions, and the number of runs of the first region

    def run_graph(self, graph: Graph, *arrays: Any) -> list[Any]:
        if self.enclosing and self.enclosing[-1][0].regions[0] is graph:
            self.enclosing[-1][1] += 1
        return run_equations(graph, arrays, self.step)

    def step(self, eqn: Eqn, operands: list[Any]) -> list[Any]:
        self.time += 1
        if self.most is not None and self.time > self.most:
            raise StepLimitExceeded
        if eqn.regions:
            self.enclosing.append([eqn, 0])
            try:
                return evaluate_eqn(eqn, operands, run=self.run_graph)
            finally:
                self.enclosing.pop()
        found = evaluate_eqn(eqn, operands)
        if operands:
            return [self.record_or_replace(eqn, operands, x) for x in found]
        if self.nan_only and "nan" not in eqn.span.text and all(map(is_nan, found)):
            self.of_rules.update(eqn.results)
        return found

    def record_or_replace(self, eqn: Eqn, operands: list[Any], x: Any) -> Any:
        """A result, recorded or replaced where it is not finite but its operands are."""
        array = np.asarray(x)
        known = [y for v, y in zip(eqn.operands, operands, strict=True) if v not in self.of_rules]
        bad = newly_nonfinite(array, known, self.nan_only)
        if not bad.any():
            return x
        # By one, as zero would make new infinities by division.
        if self.after is not None and self.time > self.after:
            return np.where(bad, np.ones_like(array), array)
        place = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), array.shape))
        enclosing = tuple((e, count) for e, count in self.enclosing if e.op in (loop, map_))
        self.origins.setdefault(self.time, NonFiniteOrigin(eqn, tuple(operands), array, place, enclosing))
        return x


def newly_nonfinite(x: Any, operands: Sequence[Any], nan_only: bool) -> Any:
    """Where a result is not finite but its operands are; with `nan_only`, where it is NaN and they are not."""
    # Operands of the same shape are compared element by element, others as a whole.
    if x.dtype.kind not in FLOATS or np.isfinite(x).all():
        return np.zeros(x.shape, bool)
    bad = np.isnan if nan_only else not_finite
    found = bad(x)
    for operand in operands:
        if isinstance(operand, np.ndarray) and operand.dtype.kind in FLOATS:
            had = bad(operand)
            found = found & ~(had if operand.shape in ((), x.shape) else had.any())
    return found


def is_nan(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind in FLOATS and bool(np.isnan(x).all() and x.size)


def not_finite(x: Any) -> Any:
    return ~np.isfinite(x)


def count_nonfinite(results: Sequence[Any]) -> int:
    """The number of non-finite numbers in results."""
    arrays = [np.asarray(r) for r in results if not isinstance(r, list)]
    return sum(int(not_finite(a).sum()) for a in arrays if a.dtype.kind in FLOATS)


def find_nonfinite_origin(graph: Graph, *arrays: Any) -> NonFiniteOrigin | None:
    """The first operation to blame for a non-finite result of a finished graph; None if there is none.

    Non-finite arguments and literals are no fault, but an operation that makes NaN from them is.
    Cost: a logarithmic number of runs in the number of such operations.
    """
    with np.errstate(all="ignore"):
        return search_origin(graph, arrays, nan_only=False) or search_origin(graph, arrays, nan_only=True)


def search_origin(graph: Graph, arrays: Sequence[Any], nan_only: bool) -> NonFiniteOrigin | None:
    first = NonFiniteRun(nan_only=nan_only)
    first.run_graph(graph, *arrays)
    times = list(first.origins)

    def count_remaining(after: int) -> int:
        """The number of non-finite results if none is made after a time."""
        try:
            return count_nonfinite(NonFiniteRun(after, TOO_LONG * first.time, nan_only).run_graph(graph, *arrays))
        except StepLimitExceeded:
            return 0

    # What remains with every such number replaced comes from arguments and literals.
    least = count_remaining(0)
    if not times or count_remaining(times[-1]) <= least:
        return None
    # The later the time, the more non-finite numbers remain: so the first relevant time is found by bisection.
    low, high = 0, len(times) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if count_remaining(times[middle]) > least else (middle + 1, high)
    return first.origins[times[low]]
