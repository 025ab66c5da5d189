"""Every entry of the hall: both engines, forward and reverse mode, and second order where there is one."""

from __future__ import annotations

from typing import Any

import pytest

import difflang
from hall_of_wrong_gradients import ENGINES, Entry, check_forward, check_gradient, check_second
from hall_of_wrong_gradients.edges import EDGES
from hall_of_wrong_gradients.loops import LOOPS

pytestmark = pytest.mark.daily
HALL = [*LOOPS, *EDGES]
SECOND = [e for e in HALL if e.twin is not None or e.hessian is not None]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("entry", HALL, ids=str)
def test_gradient(entry: Entry, engine: str) -> None:
    check_gradient(entry, engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("entry", HALL, ids=str)
def test_forward(entry: Entry, engine: str) -> None:
    check_forward(entry, engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("entry", SECOND, ids=str)
def test_second_derivative(entry: Entry, engine: str) -> None:
    check_second(entry, engine)


def test_an_integer_has_no_derivative() -> None:
    """A classic: where others cast or give zeros, this is an error before anything runs."""
    module: Any = difflang.loads("fn f(n: i32) -> f64 = 2.0 * f64(n)", name="integer")
    with pytest.raises(difflang.DifferentiationError, match="DL0401"):
        module.f.grad("n")(3)
