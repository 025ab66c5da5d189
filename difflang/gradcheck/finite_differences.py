"""Numerical derivatives by extrapolated central differences (Ridders 1982), with an error estimate for every element.

Several tables begin at different step sizes; each element takes the entry with the smallest error estimate. An element
whose one-sided slopes differ however small the step has a kink.
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
# Powers of two, so that the steps themselves are exact.
STARTS = (2.0**-5, 2.0**-11, 2.0**-17, 2.0**-23, 2.0**-29)  # as fractions of the size of the arguments
HALVINGS = 6
GOOD = 2.0**-40  # a table with this relative error ends the search
DOUBLE = 2.0**-53  # assumed as the least rounding error, since some step may compute in f64


class Slopes(Struct, frozen=True):
    """The derivative along one direction, one number for each number of the results."""

    values: Row
    errors: Row
    kinked: Row  # where the slopes ahead and behind differ
    sizes: Row  # of the terms of the results
    results: Row  # the numbers that have these slopes
    sides: tuple[Row, Row]  # the slopes ahead and behind at the smallest step
    crossed: Eqn | None = None  # the equation whose decision differs at every step, however small

    @property
    def usable(self) -> Row:
        return np.isfinite(self.values) & np.isfinite(self.errors) & ~self.kinked

    def between_sides(self, slopes: Row) -> Row:
        """Whether slopes lie between those ahead and behind, as any convention for a kink requires."""
        low, high = np.minimum(*self.sides), np.maximum(*self.sides)
        tolerance = 1e-6 * (np.abs(low) + np.abs(high) + self.sizes)
        return (slopes >= low - tolerance) & (slopes <= high + tolerance)


def estimate_slopes(at: Callable[[float, bool], Row], size: Row, epsilon: float) -> Slopes:
    """The derivative at 0 of `at(t, watch)`, which raises PathDiverged if it watches and leaves its path.

    `size` is the size of the terms of each result, `epsilon` the relative error with which these are computed.
    """
    # An element that moves otherwise over the smallest step than the table says is unknown: a cliff lies in between.
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
    """The same from the first table that is good enough, or else from the best entries of all."""
    middle = at(0.0, False)
    crossed: Eqn | None = None
    best = unknown_slopes(middle, size)
    # First with steps that stay on the path; if all of them leave it, along the recorded path.
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
    """For each element the estimate with the smaller error; for kinks, the table with smaller steps decides."""
    wins = new.errors < old.errors
    kinked = new.kinked & ~(np.isfinite(old.errors) & ~old.kinked)
    values = np.where(wins | old.kinked, new.values, old.values)
    return Slopes(
        values, np.where(wins | old.kinked, new.errors, old.errors), kinked, old.sizes, old.results, new.sides
    )


def ridders_table(middle: Row, ahead: list[Row], behind: list[Row], steps: Row, size: Row, epsilon: float) -> Slopes:
    """Ridders' table for one start: the entry that differs least from its neighbours, with that difference as error."""
    # The rounding error of the terms is added to each difference, as neighbours may agree by accident.
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
                difference = np.maximum(np.abs(entry - fine), np.abs(entry - coarse)) + noise
                wins = difference < errors
                best, errors = np.where(wins, entry, best), np.where(wins, difference, errors)
                current.append((entry, noise))
            before = current
        bends = [np.abs(a - b) for a, b in sides]
        # With a continuous slope, the difference of both sides shrinks with the step, here to a 32nd.
        constant = bends[-1] > 0.4 * bends[0]
        kinked = constant & (bends[-1] > np.maximum(1e-6 * np.abs(rows[-1]), 64 * noises[-1]))
    return Slopes(best, np.where(np.isnan(best), np.inf, errors), kinked, size, middle, sides[-1])


def zero_safe_difference(a: Row, b: Row) -> Row:
    """`a - b`, but 0 where they are equal, even at infinity."""
    return np.where(a == b, 0, a - b)
