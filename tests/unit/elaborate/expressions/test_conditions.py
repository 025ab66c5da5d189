"""`and` and `or` of a single condition and of one for each element: the result has the axes of both."""

from __future__ import annotations

import pytest

from support.language import answer

SETUP = """let xs = [1, 2, 3]
let yes = true
fn many(x: f32[n]) -> bool[n] = n > 3 and x > 0.0
fn few(x: f32[n]) -> bool[n] = n == 3 or x > 0.0
"""


@pytest.mark.parametrize("left", ["true", "yes"])
def test_a_condition_beside_one_for_each_element(left: str) -> None:
    """Also where the left one, known before the run, decides."""
    for source, expected in [
        (f"{left} or xs % 2 == 0", [True, True, True]),
        (f"not {left} and xs % 2 == 0", [False, False, False]),
        (f"{left} and xs % 2 == 0", [False, True, False]),
        (f"xs % 2 == 0 or {left}", [True, True, True]),
    ]:
        assert answer(source, SETUP).tolist() == expected
    assert answer(f"{left} or xs[0] == 1", SETUP).tolist() is True


def test_a_size_decides_for_each_element() -> None:
    assert answer("many([1.0, -1.0])", SETUP).tolist() == [False, False]
    assert answer("few([1.0, -1.0, 2.0])", SETUP).tolist() == [True, True, True]


@pytest.mark.parametrize("right", ["x[i] > 0.0", "f64(x[i]) > 0.0", "(7 // i) % 2 == 1"])
def test_a_decided_condition_beside_elements_that_are_taken(right: str) -> None:
    """The right side, which could fail, is not evaluated, but counts as many."""
    setup = f"fn count(x: f32[n], i: i32[m]) -> i32 = sum(where(n < 3 or {right}, 1, 0))"
    assert answer("count([1.0, 2.0], [0, 9, 0, 9, 0])", setup).tolist() == 5
    assert answer("count([1.0, -2.0, 3.0], [2, 1, 1])", setup).tolist() == (1 if "x" in right else 3)


@pytest.mark.parametrize("right", ["above(x, 0.0)", "isfinite(x)", "(x |> near)", "map(|v| v > 0.0, x)", "odd(n + 3)"])
def test_a_decided_condition_beside_calls(right: str) -> None:
    """Of functions that are there, and of those that call the one that asks."""
    setup = f"""fn above(x: f32[n], y: f32) -> bool[n] = [for i => n // (i - i) > 2 and x[i] > y]
fn near(x: f32[n]) -> bool[n] = abs(x) < 1.0
fn odd(n: dim) -> bool = n == 1 or (n > 0 and even(n - 1))
fn even(n: dim) -> bool = n == 0 or not odd(n)
fn count(x: f32[n]) -> i32 = sum(where(x > -9.0 and (n < 4 or {right}), 1, 0))
fn one(x: f32[n]) -> i32 = sum(where(n < 4 or {right}, 1, 0))
"""
    assert answer("count([1.0, 2.0, 3.0])", setup).tolist() == 3
    assert answer("one([1.0, 2.0, 3.0])", setup).tolist() == (1 if "odd" in right else 3)


@pytest.mark.parametrize("right", ["stepped(x, 3)", "halved(x, n)"])
def test_a_decided_condition_beside_calls_of_functions_that_call_themselves(right: str) -> None:
    """With the axes that they declare, whether a number or a size ends them."""
    setup = f"""fn stepped(x: f32[n], k: i32) -> bool[n] = if k == 0 {{ x > 0.0 }} else {{ stepped(x + 1.0, k - 1) }}
fn halved(x: f32[n], k: dim) -> bool[n] = if k == 0 {{ x > 0.0 }} else {{ halved(x + 1.0, k // 2) }}
fn count(x: f32[n]) -> i32 = sum(where(n < 4 or {right}, 1, 0))
"""
    assert answer("count([1.0, 2.0, 3.0])", setup).tolist() == 3


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_a_decided_condition_has_the_same_axes_whoever_asks_first(order: tuple[str, str]) -> None:
    """What `second` is found to be for `first`, without the body of that, is not what it is by itself."""
    calls = " + ".join([f"sum(where({name}(x, 1), 1, 0))" for name in order])
    setup = f"""fn first(x: f32[n], k: dim) -> bool[..s] = if k == 0 {{ x > 0.0 }} else {{ k > 0 or second(x, k) }}
fn second(x: f32[n], k: dim) -> bool[..s] = k > 0 or first(x, k - 1)
fn both(x: f32[n]) -> i32 = {calls}
"""
    assert answer("both([1.0, 2.0, 3.0])", setup).tolist() == 6


def test_a_decided_condition_ends_a_recursion() -> None:
    setup = """fn even(n: dim) -> bool = n == 0 or not even(n - 1)
fn third(x: f32[n]) -> bool = n > 3 and x[3] > 0.0
"""
    assert answer("even(6)", setup).tolist() is True
    assert answer("third([1.0, 2.0])", setup).tolist() is False
