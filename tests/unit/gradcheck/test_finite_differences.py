"""Differences know how far they can be trusted, and graphs in extended precision are what the program means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from derivatives import op
from difflang.gradcheck.decision_replay import PathDiverged
from difflang.gradcheck.directional_derivatives import PreciseRun
from difflang.gradcheck.extended_precision import EPSILON, GraphWidening
from difflang.gradcheck.finite_differences import estimate_slopes
from difflang.ir.builder import build_region
from difflang.ir.graph import Eqn
from difflang.ir.interpreter import evaluate
from difflang.ir.tensor_types import BF16, F32, I32, Tensor

Row = Any
CONST: Any = build_region([Tensor(F32)], lambda x: [x.home.const(1.0, x.type)]).eqns[0]
EXTENDED = pytest.mark.skipif(EPSILON > 1e-18, reason="long doubles are doubles here")


def along(f: Callable[[Any], Any], at: float = 0.7) -> Callable[[float, bool], Row]:
    return lambda t, watch: np.array([f(np.longdouble(at) + np.longdouble(t))])


@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (np.exp, mpmath.exp),
        (np.sin, mpmath.cos),
        (lambda x: x**7, lambda x: 7 * x**6),
        (lambda x: np.sin(1000 * x), lambda x: 1000 * mpmath.cos(1000 * x)),
        (lambda x: np.exp(-x / 1e-3), lambda x: -mpmath.exp(-x / mpmath.mpf(1e-3)) / mpmath.mpf(1e-3)),
        (lambda x: 1e12 + np.sin(x), mpmath.cos),
        (lambda x: np.longdouble(np.float64(np.sin(np.float64(x)))), mpmath.cos),
        (np.sqrt, lambda x: 0.5 / mpmath.sqrt(x)),
    ],
)
def test_the_error_of_a_slope_is_within_its_estimate(f: Any, slope: Any) -> None:
    found = estimate_slopes(along(f), np.array([abs(float(f(0.7)))]), 2.0**-63)
    with mpmath.workdps(40):
        want = slope(mpmath.mpf(0.7))
        off = abs(mpmath.mpf(str(found.values[0])) - want)
    assert off <= 16 * found.errors[0] + 1e-12 * abs(want)
    assert not found.kinked[0]


@EXTENDED
@pytest.mark.parametrize("slope", [0.0, 3e13])
def test_of_a_cliff_between_the_smallest_steps_nothing_is_said(slope: float) -> None:
    """All the samples of a steep function may lie where it is flat: their agreement is no slope."""
    middle = np.longdouble(0.7)
    found = estimate_slopes(along(lambda x: np.tanh(1e14 * (x - middle)) + slope * x), np.array([1.0 + slope]), EPSILON)
    assert not found.usable[0]


@EXTENDED
def test_slopes_of_smooth_functions_are_nearly_exact() -> None:
    found = estimate_slopes(along(np.exp), np.array([2.0]), EPSILON)
    assert abs(found.values[0] - np.exp(np.longdouble(0.7))) < 1e-15


@pytest.mark.parametrize(
    ("f", "ahead", "behind"),
    [(np.abs, 1.0, -1.0), (lambda x: np.maximum(x, 0) + x, 2.0, 1.0), (lambda x: np.abs(x) + 3 * np.sin(x), 4.0, 2.0)],
)
def test_a_kink_is_seen_with_its_sides(f: Any, ahead: float, behind: float) -> None:
    found = estimate_slopes(along(f, at=0.0), np.zeros(1), EPSILON)
    assert found.kinked[0]
    assert found.sides[0][0] == pytest.approx(ahead, abs=1e-9)
    assert found.sides[1][0] == pytest.approx(behind, abs=1e-9)
    inside, outside = np.array([(ahead + behind) / 2]), np.array([ahead + 0.1])
    assert found.between_sides(inside).all() and not found.between_sides(outside).any()


@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-9])
def test_a_kink_nearby_is_not_taken_for_one_here(distance: float) -> None:
    found = estimate_slopes(along(np.abs, at=distance), np.array([distance]), EPSILON)
    assert not found.kinked[0]
    assert found.values[0] == pytest.approx(1.0, rel=1e-6)


def test_what_has_an_end_has_no_slope_there() -> None:
    with np.errstate(invalid="ignore"):
        found = estimate_slopes(along(np.sqrt, at=0.0), np.zeros(1), EPSILON)
    assert not found.usable[0]


def test_a_path_that_turns_nearby_is_kept_by_smaller_steps() -> None:
    turns = 1e-4

    def at(t: float, watch: bool) -> Row:
        if watch and abs(t) > turns:
            raise PathDiverged(CONST)
        return np.array([np.exp(np.longdouble(t)) + (abs(t) > turns)])

    found = estimate_slopes(at, np.ones(1), EPSILON)
    assert found.crossed is None
    assert found.values[0] == pytest.approx(1.0, rel=1e-9)


def test_a_path_that_turns_at_once_is_named() -> None:
    def at(t: float, watch: bool) -> Row:
        if watch and t:
            raise PathDiverged(CONST)
        return np.array([np.exp(np.longdouble(t))])

    found = estimate_slopes(at, np.ones(1), EPSILON)
    assert isinstance(found.crossed, Eqn)
    assert found.values[0] == pytest.approx(1.0, rel=1e-12)


# ---- graphs in extended precision


@EXTENDED
def test_wide_numbers_have_more_digits() -> None:
    graph = build_region([Tensor(F32)], lambda x: [op("exp", op("sin", x * 0.1))])
    (found,) = PreciseRun.evaluate(graph, [np.asarray(np.float32(0.3))]).results
    with mpmath.workdps(30):
        x = mpmath.mpf(float(np.float32(0.3))) * mpmath.mpf(0.1)
        off = abs(mpmath.mpf(str(found)) / mpmath.exp(mpmath.sin(x)) - 1)
    assert off < 1e-18


def test_draws_and_integers_stay_what_they_are() -> None:
    """A draw of a narrow float is that number, made wide."""
    graph = build_region(
        [Tensor(I32), Tensor(BF16)], lambda i, x: [op("convert", i, dtype=BF16), op("truncate", x, dtype=I32)]
    )
    arrays = [np.asarray(257, np.int32), np.asarray(2.5).astype("bfloat16")]
    widening = GraphWidening()
    wide = PreciseRun.evaluate(graph, arrays)
    narrow = evaluate(graph, *arrays)
    assert [float(x) for x in wide.results] == [float(x) for x in narrow] == [256.0, 2.0]
    assert widening.graph(graph) is widening.graph(graph)
