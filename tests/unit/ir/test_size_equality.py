"""Sizes that are equal for all numbers are proved to be, and numbers are found for which others differ."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from difflang.ir.size_equality import Samples, SizeCondition, always_equal, differing_numbers, evaluate_dim
from difflang.ir.symbolic_dims import Dim, dim_name, floor_div, substitute_dims

N, K, S = map(dim_name, "nks")
EVEN = SizeCondition(frozenset("n"), lambda samples: samples["n"] % 2 == 0)

EQUAL: list[tuple[Dim, Dim]] = [
    (floor_div(N + 1, 2), N - floor_div(N, 2)),
    (floor_div(N + 5, 2), floor_div(N + 1, 2) + 2),
    (floor_div(floor_div(N, 2), 3), floor_div(N, 6)),
    (floor_div(N - 2, 2) + 1, floor_div(N, 2)),
    (floor_div(3 * N, 2), N + floor_div(N, 2)),
    (floor_div(N + S - 1, S), floor_div(N - 1, S) + 1),
    (floor_div(N * K + K, K), N + 1),
    (floor_div(N + 999, 1000), floor_div(N - 1, 1000) + 1),
    (floor_div(floor_div(N - 1, 1000) + 8, 7), floor_div(N + 999, 7000) + 1),
]
DIFFERENT: list[tuple[Dim, Dim]] = [
    (floor_div(N + 1, 2), N),
    (floor_div(N + 1, 2), floor_div(N, 2) + 1),
    (2 * floor_div(N, 2), N),
    (K * floor_div(N, K), N),
    (floor_div(N, 7), floor_div(N + 1, 7)),
    (floor_div(N, 1000), floor_div(N, 1001)),
]


@pytest.mark.parametrize(("a", "b"), EQUAL, ids=str)
def test_equal_sizes_are_proved(a: Dim, b: Dim) -> None:
    assert a == b or always_equal(a, b)
    assert differing_numbers(a, b) is None


@pytest.mark.parametrize(("a", "b"), DIFFERENT, ids=str)
def test_numbers_tell_other_sizes_apart(a: Dim, b: Dim) -> None:
    assert not always_equal(a, b)
    numbers = differing_numbers(a, b)
    assert numbers is not None
    assert substitute_dims(a, numbers.__getitem__) != substitute_dims(b, numbers.__getitem__)


def test_conditions_exclude_numbers() -> None:
    assert differing_numbers(2 * floor_div(N, 2), N, [EVEN]) is None
    assert differing_numbers(2 * floor_div(K, 2), K, [EVEN]) == {"k": 1}  # a condition on another size
    assert differing_numbers(N, K, [EVEN, SizeCondition(frozenset("nk"), lambda s: s["n"] == s["k"])]) is None


def test_numbers_that_overflow_are_not_tried() -> None:
    high = N * N * N * N
    power = high * high * high * high  # of 16 it is 2^64

    def equal_powers(samples: Samples) -> NDArray[np.bool_]:
        (first, fits), (second, also) = (
            evaluate_dim(power, samples),
            evaluate_dim(substitute_dims(power, lambda _: K), samples),
        )
        return (first == second) & fits & also

    assert differing_numbers(N, K, [SizeCondition(frozenset("nk"), equal_powers)]) is None
    assert not evaluate_dim(2**70 * N, {"n": np.ones(3, np.int64)})[1].any()


def test_a_size_that_stands_for_a_maximum_is_not_free() -> None:
    assert differing_numbers(dim_name("max(n, 3)"), N, [SizeCondition(frozenset("n"), lambda s: s["n"] > 3)]) is None


@pytest.mark.parametrize("divisor", [2, 3, 5])
def test_the_normal_form_keeps_the_number(divisor: int) -> None:
    rng = np.random.default_rng(divisor)
    for _ in range(50):
        a, b, c = (int(x) for x in rng.integers(-6, 7, 3))
        n, k = (int(x) for x in rng.integers(1, 9, 2))
        for by, number in ((divisor, divisor), (K * divisor, k * divisor), (K, k)):
            size = floor_div(N * K * a + K * b + c, by)
            assert substitute_dims(size, {"n": n, "k": k}.__getitem__) == (n * k * a + k * b + c) // number
