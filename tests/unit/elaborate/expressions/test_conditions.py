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
