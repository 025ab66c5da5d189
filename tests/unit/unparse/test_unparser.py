"""Every op has a spelling, or a reason why it has none."""

from __future__ import annotations

import math

import pytest

import difflang.ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  fills the registry
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BF16, BOOL, C64, F16, F32, F64, I32, I64, Tensor
from difflang.unparse.fragments import CannotUnparse, broadcast_shape, name_fragment, number_fragment, with_full_shape
from difflang.unparse.unparser import NOT_UNPARSED, UNPARSE_RULES, NamePool


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_op_is_spelled_or_says_why_not(op: str) -> None:
    assert (op in UNPARSE_RULES) != (op in NOT_UNPARSED)


def test_nothing_else_is_listed() -> None:
    assert {*UNPARSE_RULES, *NOT_UNPARSED} == set(OPS)
    assert all(len(reason) > 10 for reason in NOT_UNPARSED.values())


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, F64, "0.1"),
        (0.1, F32, "0.1"),
        (-2.0, F64, "-2.0"),
        (3, F64, "3.0"),
        (math.inf, F32, "inf"),
        (-math.inf, F32, "-inf"),
        (math.nan, F16, "nan"),
        (-0.0, F64, "-0.0"),
        (1e300, F64, "1e+300"),
        (7, I32, "7"),
        (True, BOOL, "true"),
        (1 + 2j, C64, "complex(f32(1.0), f32(2.0))"),
    ],
)
def test_numbers_as_written(value: object, dtype: object, text: str) -> None:
    assert number_fragment(value, Tensor(dtype, (3,))).text == text  # pyright: ignore[reportArgumentType]


def test_a_number_says_its_type_where_nothing_else_does() -> None:
    assert with_full_shape(number_fragment(1.0, Tensor(BF16)), Tensor(BF16)).text == "bf16(1.0)"
    assert with_full_shape(number_fragment(1, Tensor(I64)), Tensor(I64)).text == "i64(1)"
    assert with_full_shape(number_fragment(0, Tensor(F64, (2, 3))), Tensor(F64, (2, 3))).text == "fill(2, 3, f64(0.0))"
    row = name_fragment("x", Tensor(F64, (3,)))
    assert with_full_shape(row, Tensor(F64, (2, 3))).text == "fill(2, 3, x)"


def test_shapes_broadcast_as_in_the_language() -> None:
    assert broadcast_shape((), (3,), (2, 1)) == (2, 3)
    with pytest.raises(CannotUnparse, match="broadcast"):
        broadcast_shape((2,), (3,))


def test_names_are_fresh() -> None:
    names = NamePool({"let", "x"})
    assert [names.fresh(n) for n in ("x", "x", "t", "t", "m.w", "let", "1")] == [
        "x_2", "x_3", "t1", "t2", "m_w", "let_2", "t_1"]  # fmt: skip
