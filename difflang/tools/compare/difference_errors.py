"""The errors of derivatives at a point: of both modes, and of differences for step after step.

Exact is forward mode in extended precision. The error of a difference has two parts, which are measured: truncation is
that of the same difference in extended precision, rounding is how the program's own numbers differ from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, inf, isfinite, log10

import numpy as np
from msgspec import Struct

from difflang.gradcheck.decision_replay import ReplayRun, coarsest_precision
from difflang.gradcheck.directional_derivatives import GraphAtPoint, PreciseRun
from difflang.gradcheck.extended_precision import Array, cast, flatten_numbers, step_along, wide_type
from difflang.gradcheck.finite_differences import Row, zero_safe_difference
from difflang.ir.graph import Eqn, Graph
from difflang.ir.interpreter import StepLimitExceeded

MAX_NUMBERS = 8  # of the arguments and of the results, whose derivatives are compared
MAX_OPERATIONS = 50_000  # of one run
ALL_OPERATIONS = 1_000_000  # of the runs for differences: some ten seconds
MAX_STEPS = 30
FINER = 16  # times, that extended precision must be finer than the program's numbers to tell both errors apart


class DifferenceError(Struct, frozen=True):
    """The relative error of a difference, and its parts where they can be told apart."""

    total: float
    truncation: float | None
    rounding: float | None


class StepErrors(Struct, frozen=True):
    """The errors of differences with one step."""

    step: float
    one_sided: DifferenceError
    central: DifferenceError


class PointErrors(Struct, frozen=True):
    """Relative errors: the largest of the compared partial derivatives, by the size of the largest one.

    `numbers` and `results` are how many real numbers the arguments and results have, `compared` how many of both are
    compared. `absolute`: all derivatives are 0, so that errors are not relative.
    """

    forward: float
    reverse: float
    steps: tuple[StepErrors, ...]
    numbers: int
    results: int
    compared: tuple[int, int]
    absolute: bool
    extended: bool  # the reference has more digits than the program

    def best(self, method: str) -> tuple[float, float] | None:
        """The least error of `one_sided` or `central` differences, and its largest step; None if there is none."""
        found = [(getattr(row, method).total, row.step) for row in self.steps]
        return min([pair for pair in found if isfinite(pair[0])], key=lambda pair: pair[0], default=None)


class BoundedRun(ReplayRun):
    """A run of limited length. Errors: StepLimitExceeded."""

    left: int = 0  # how many equations it may evaluate

    def step(self, eqn: Eqn, operands: list[Array]) -> list[Array]:
        self.left -= 1
        if self.left < 0:
            raise StepLimitExceeded
        return ReplayRun.step(self, eqn, operands)


class Differences:
    """Computes differences of a graph along a direction, in its own numbers or in wide ones, along any path."""

    def __init__(self, at: GraphAtPoint, operations: int, rows: Row) -> None:
        self.at, self.rows = at, rows
        self.limit = 10 * operations + 1000
        self.middle = self.numbers(at.primal.native_results), self.numbers(at.primal.results)

    def numbers(self, results: Sequence[Array]) -> Row:
        wide = widened(self.at.graph, results)
        return flatten_numbers([wide[i] for i in self.at.moving])[self.rows]

    def noise(self, step: float) -> float:
        """The error of a quotient in extended precision if only the results are rounded."""
        return float(np.max(np.abs(self.middle[1]), initial=0)) * self.at.primal.epsilon / step

    def values(self, direction: Sequence[Array], step: float, *, wide: bool) -> Row:
        """The results at a step along a direction; NaN if that takes very long."""
        at, rest = self.at, iter(direction)
        arrays = [step_along(x, next(rest), step) if w else x for x, w in zip(at.exact, at.wrt, strict=True)]
        graph = at.graph
        if wide:
            graph = at.primal.widening.graph(graph)
        else:
            arrays = [cast(x, p.type) for x, p in zip(arrays, graph.params, strict=True)]
        try:
            return self.numbers(BoundedRun(left=self.limit)(graph, *arrays))
        except StepLimitExceeded:
            return np.full(len(self.rows), np.nan, np.longdouble)

    def quotients(self, direction: Sequence[Array], step: float, *, wide: bool) -> tuple[Row, Row]:
        """The one-sided and the central difference quotient."""
        middle = self.middle[wide]
        ahead, behind = (self.values(direction, t, wide=wide) for t in (step, -step))
        with np.errstate(all="ignore"):
            return zero_safe_difference(ahead, middle) / step, zero_safe_difference(ahead, behind) / (2 * step)


def count_operations_at(graph: Graph, arrays: Sequence[Array]) -> int:
    """How many equations a run evaluates. Errors: StepLimitExceeded."""
    run = BoundedRun(left=MAX_OPERATIONS)
    run(graph, *arrays)
    return MAX_OPERATIONS - run.left


def measure_errors(at: GraphAtPoint, operations: int) -> PointErrors:
    """The errors of both modes and of differences at a point, where one run evaluates so many equations."""
    inputs = at.select_wrt(at.exact)
    numbers, results = len(flatten_numbers(inputs)), len(flatten_numbers(at.values))
    own, _ = coarsest_precision(at.graph)
    steps = step_sizes(flatten_numbers(inputs), own)
    # Of a long run fewer steps, and fewer numbers.
    steps = steps[:: -(-4 * operations * len(steps) // ALL_OPERATIONS) or 1]
    columns = sample(numbers, affordable(4 * operations * len(steps)))
    rows = sample(results, affordable(10 * operations))
    directions = [unit_direction(inputs, int(i)) for i in columns]
    forward, exact = forward_derivatives(at, directions, rows)
    scale = float(np.max(np.abs(exact), initial=0))
    extended = at.primal.epsilon * FINER <= own
    errors = RelativeErrors(exact, scale if scale > 0 else 1.0, at.primal.epsilon / own if extended else None)
    differences = Differences(at, operations, rows)
    return PointErrors(
        errors.largest(forward), errors.largest(reverse_derivatives(at, rows, columns)),
        tuple(errors.of_steps(differences, directions, steps)), numbers, results, (len(columns), len(rows)),
        scale == 0, extended,
    )  # fmt: skip


class RelativeErrors(Struct, frozen=True):
    """Errors of derivatives along directions, relative to a scale.

    `finer` is the precision of the exact numbers by that of the program's; None if it is no finer.
    """

    exact: Row
    scale: float
    finer: float | None

    def largest(self, found: Row, exact: Row | None = None) -> float:
        with np.errstate(all="ignore"):
            off = zero_safe_difference(found, self.exact if exact is None else exact)
            return float(np.max(np.abs(off), initial=0)) / self.scale

    def of_steps(
        self, differences: Differences, directions: Sequence[list[Array]], steps: Sequence[float]
    ) -> Iterator[StepErrors]:
        """The errors of differences with steps that fall."""
        known = [self.finer is not None] * 2
        for step in steps:
            own = [differences.quotients(d, step, wide=False) for d in directions]
            wide = [differences.quotients(d, step, wide=True) for d in directions] if self.finer is not None else own
            parts: list[DifferenceError] = []
            for side in (0, 1):
                mine, exactly = (np.array([pair[side] for pair in pairs]) for pairs in (own, wide))
                total, truncation, rounding = self.largest(mine), self.largest(exactly), self.largest(mine, exactly)
                # From some step on, extended precision rounds more than it truncates.
                noise = max(differences.noise(step) / self.scale, rounding * (self.finer or 0.0))
                known[side] = known[side] and not truncation < 8 * noise
                split = (truncation, rounding) if known[side] else (None, total if self.finer is not None else None)
                parts.append(DifferenceError(total, *split))
            yield StepErrors(step, *parts)


def forward_derivatives(at: GraphAtPoint, directions: Sequence[list[Array]], rows: Row) -> tuple[Row, Row]:
    """The derivatives along directions by forward mode, a row for each: in the program's numbers, and exactly."""
    own: list[Row] = []
    exact: list[Row] = []
    for direction in directions:
        push = PreciseRun.evaluate(at.push, [*at.exact, *direction])
        for found, results in ((own, push.native_results), (exact, push.results)):
            found.append(flatten_numbers(widened(at.push, results)[len(at.graph.results) :])[rows])
    return np.array(own), np.array(exact)


def reverse_derivatives(at: GraphAtPoint, rows: Row, columns: Row) -> Row:
    """The same derivatives by reverse mode, in the program's numbers."""
    found: list[Row] = []
    for row in rows:
        pull = PreciseRun.evaluate(at.pull, [*at.exact, *unit_direction(at.values, int(row))])
        found.append(flatten_numbers(widened(at.pull, pull.native_results)[len(at.graph.results) :])[columns])
    return np.array(found).T


def widened(graph: Graph, results: Sequence[Array]) -> list[Array]:
    return [cast(x, wide_type(r.type)) for x, r in zip(results, graph.results, strict=True)]


def affordable(operations: int) -> int:
    """How many numbers may be compared if each takes so many operations: at least one."""
    return min(MAX_NUMBERS, max(1, ALL_OPERATIONS // max(1, operations)))


def sample(count: int, most: int) -> Row:
    """Positions among `count`, evenly spread, at most so many."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def unit_direction(arrays: Sequence[Array], position: int) -> list[Array]:
    """Arrays of zeros with a one at a position among all numbers, in the order of `flatten_numbers`."""
    found: list[Array] = []
    for x in arrays:
        direction = np.zeros_like(x)
        numbers = x.size * (2 if x.dtype.kind == "c" else 1)
        if 0 <= position < numbers:
            direction.flat[position % x.size] = 1 if position < x.size else 1j
        position -= numbers
        found.append(direction)
    return found


def step_sizes(numbers: Row, own: float) -> list[float]:
    """Powers of ten from a tenth, or of large arguments from a tenth of their size, to where steps are lost."""
    largest = float(np.max(np.abs(numbers), initial=0))
    size = max(-200, floor(log10(largest))) if 0 < largest < inf else 0
    top, bottom = max(0, size) - 1, size + floor(log10(own))
    return [10.0**power for power in range(top, max(bottom, top - MAX_STEPS) - 1, -1)]
