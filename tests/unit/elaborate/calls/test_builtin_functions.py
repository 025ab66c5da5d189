"""Arguments of built-ins by position and by name, and constants that are converted."""

from __future__ import annotations

import pytest

from support.language import answer, codes


def test_elementwise_functions_take_their_arguments_by_name() -> None:
    assert answer("atan2(x = -1.0, y = 0.0)") == pytest.approx(3.141592653589793)
    assert answer("shift_left(n = 3, x = 1)") == 8
    assert codes("print(sin(z = 1.0))\n") == [("DL0319", 1)]
    assert codes("print(hypot(1.0, x = 2.0))\n") == [("DL0319", 1)]


@pytest.mark.parametrize(
    ("expression", "wanted"), [("i32(nan)", 0), ("i8(inf)", 127), ("u8(-inf)", 0), ("i64(-inf)", -(2**63))]
)
def test_constants_that_are_not_finite_are_converted_as_in_a_run(expression: str, wanted: int) -> None:
    assert answer(expression) == wanted == answer(f"{expression.replace('(', '([')[:-1]}])")[0]


def test_a_wrong_element_type_is_a_diagnostic() -> None:
    assert codes("print(trace([[true, false], [true, true]]))\n") == [("DL0311", 1)]
    assert codes("let x = c64(ones(1, 2, 1))\nprint(conv1d_transpose(x, x))\n") == [("DL0311", 2)]
    assert codes("let x = ones(1, 2, 1) > 0.0\nprint(conv1d_transpose(x, x))\n") == [("DL0311", 2)]


def test_zip_ignores_nothing() -> None:
    assert codes("fn f() -> i32 = sum(for (x, y) in zip([1], [2], strict = true) => x)\n") == [("DL0319", 1)]
    assert codes("fn f() -> i32 = sum(for x in zip() => 1)\n") == [("DL0319", 1)]
