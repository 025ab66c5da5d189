"""Derivatives by differences, with an error estimate for every element: what rules are held against.

Central differences are extrapolated (Ridders 1982) from several first steps; each element takes the estimate that its
table trusts most. What moves differently ahead and behind however small the step is a kink.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.gradcheck.decision_replay import PathDiverged
from difflang.ir.graph import Eqn

Row = np.ndarray[Any, Any]
STARTS = (2.0**-5, 2.0**-11, 2.0**-17, 2.0**-23, 2.0**-29)  # as fractions of the size of the arguments
HALVINGS = 6
GOOD = 2.0**-40  # a relative error with which a table is done
DOUBLE = 2.0**-53  # what is not known to be rounded may be, once, on the way


class Slopes(Struct, frozen=True):
    """The derivative along one direction, one number for each number of the results."""

    values: Row
    errors: Row
    kinked: Row  # where it is another ahead than behind
    sizes: Row  # of the terms of the results
    results: Row  # the numbers that have these slopes
    sides: tuple[Row, Row]  # the slopes ahead and behind at the smallest step
    crossed: Eqn | None = None  # what decides otherwise at every step, however small

    @property
    def usable(self) -> Row:
        return np.isfinite(self.values) & np.isfinite(self.errors) & ~self.kinked

    def between_sides(self, slopes: Row) -> Row:
        """Whether slopes are between those ahead and behind, as any convention for a kink has it."""
        low, high = np.minimum(*self.sides), np.maximum(*self.sides)
        room = 1e-6 * (np.abs(low) + np.abs(high) + self.sizes)
        return (slopes >= low - room) & (slopes <= high + room)


def estimate_slopes(at: Callable[[float, bool], Row], size: Row, epsilon: float) -> Slopes:
    """The derivative at 0 of `at(t, watch)`, which raises Crossed where it watches its path and would leave it.

    `size` is the size of the terms of each result, `epsilon` the relative error with which these are computed. Of what
    moves otherwise over the smallest step than over the others, as it does at a cliff between them, nothing is known.
    """
    found, h = extrapolate(at, size, epsilon), STARTS[-1] / 2.0 ** (HALVINGS - 1)
    if found.crossed is not None:
        return found
    try:
        ahead, behind = at(h, True), at(-h, True)
    except PathDiverged:
        return found
    with np.errstate(all="ignore"):
        noise = max(epsilon, DOUBLE) * np.maximum(size, np.maximum(np.abs(ahead), np.abs(behind))) / h
        off = np.abs(zero_safe_difference(ahead, behind) / (2 * h) - found.values)
    hidden = found.usable & (off > 8 * found.errors + 64 * noise)
    return replace(found, errors=np.where(hidden, np.inf, found.errors))


def extrapolate(at: Callable[[float, bool], Row], size: Row, epsilon: float) -> Slopes:
    """The same by the first of the tables that is good enough, or by the best."""
    middle = at(0.0, False)
    crossed: Eqn | None = None
    best = unknown_slopes(middle, size)
    for watch in (True, False):
        for start in STARTS:
            steps = start / 2.0 ** np.arange(HALVINGS)
            try:
                ahead = [at(float(h), watch) for h in steps]
                behind = [at(-float(h), watch) for h in steps]
            except PathDiverged as found:
                crossed = found.eqn
                continue
            crossed = None if watch else crossed
            best = merge_estimates(best, ridders_table(middle, ahead, behind, steps, size, epsilon))
            done = best.errors <= GOOD * np.maximum(np.abs(best.values), size)
            if bool(np.all((done & ~best.kinked) | ~np.isfinite(middle))):
                return replace(best, crossed=crossed)
        if crossed is None:
            break
    return replace(best, crossed=crossed)


def unknown_slopes(like: Row, size: Row) -> Slopes:
    unknown = np.full_like(like, np.nan)
    return Slopes(unknown, np.full_like(like, np.inf), np.zeros(like.shape, np.bool_), size, like, (unknown, unknown))


def merge_estimates(old: Slopes, new: Slopes) -> Slopes:
    """Element by element the estimate with the smaller error. What the smaller steps say of kinks counts."""
    wins = new.errors < old.errors
    kinked = new.kinked & ~(np.isfinite(old.errors) & ~old.kinked)
    values = np.where(wins | old.kinked, new.values, old.values)
    return Slopes(
        values, np.where(wins | old.kinked, new.errors, old.errors), kinked, old.sizes, old.results, new.sides
    )


def ridders_table(middle: Row, ahead: list[Row], behind: list[Row], steps: Row, size: Row, epsilon: float) -> Slopes:
    """Ridders' table of one start: the entry that differs least from its neighbours, and by how much.

    What rounding of the terms comes to is added to each: neighbours may agree by accident.
    """
    with np.errstate(all="ignore"):
        pairs = list(zip(ahead, behind, steps, strict=True))
        rows = [zero_safe_difference(a, b) / (2 * h) for a, b, h in pairs]
        sides = [(zero_safe_difference(a, middle) / h, zero_safe_difference(middle, b) / h) for a, b, h in pairs]
        terms = np.maximum(size, np.abs(middle))
        noises = [epsilon * np.maximum(terms, np.maximum(np.abs(a), np.abs(b))) / h for a, b, h in pairs]
        best, errors = rows[-1], np.full_like(middle, np.inf)
        before = [(rows[0], noises[0])]
        for k in range(1, len(rows)):
            current = [(rows[k], noises[k])]
            for j in range(1, k + 1):
                (fine, here), (coarse, there) = current[j - 1], before[j - 1]
                entry, noise = fine + (fine - coarse) / (4.0**j - 1), np.maximum(here, there)
                apart = np.maximum(np.abs(entry - fine), np.abs(entry - coarse)) + noise
                wins = apart < errors
                best, errors = np.where(wins, entry, best), np.where(wins, apart, errors)
                current.append((entry, noise))
            before = current
        bends = [np.abs(a - b) for a, b in sides]
        constant = bends[-1] > 0.4 * bends[0]  # where the slope is continuous, it is a 32nd
        kinked = constant & (bends[-1] > np.maximum(1e-6 * np.abs(rows[-1]), 64 * noises[-1]))
    return Slopes(best, np.where(np.isnan(best), np.inf, errors), kinked, size, middle, sides[-1])


def zero_safe_difference(a: Row, b: Row) -> Row:
    """`a - b`, 0 where they are equal, at infinity too."""
    return np.where(a == b, 0, a - b)
