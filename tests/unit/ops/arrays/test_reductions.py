"""Reductions of many truths and integers to one: laid in rows, they leave out no place, and XLA reduces them fast."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang.ir.op import OPS
from difflang.ops.arrays.axis_reductions import HALVING_STEPS, SMALL_SIZE, VECTOR_ROWS

SHAPES = {
    "reduce_any": [
        (VECTOR_ROWS + 1,),
        (SMALL_SIZE,),
        (2003,),
        (64 * VECTOR_ROWS,),
        (35, 31),
        (1, 1031),
        (1031, 1),
        (3, 3, 3, 41),
    ],
    "reduce_all": [(1500,), (4, 257)],
    "reduce_max": [(1500,), (13, 1, 81)],
}
# What one element is, among others that are all something else.
ODD = {"reduce_any": (True, False), "reduce_all": (False, True), "reduce_max": (7, -3)}


def lowered(name: str) -> Callable[[Any], Any]:
    return jax.jit(lambda x: OPS[name].lower(jax, x, axes=tuple(range(x.ndim))))


@pytest.mark.parametrize(("name", "shape"), [(name, n) for name, shapes in SHAPES.items() for n in shapes])
def test_each_element_counts(name: str, shape: tuple[int, ...]) -> None:
    odd, others = ODD[name]
    reduce, x = lowered(name), np.full(shape, others)
    assert reduce(x) == others
    for place in np.ndindex(shape):
        x[place] = odd
        assert reduce(x) == odd, place
        x[place] = others


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float32])
def test_extremes_of_many(dtype: Any) -> None:
    x = (200 * np.random.default_rng(0).normal(size=(3, 5, 101))).astype(np.int64).astype(dtype)
    with jax.enable_x64(True):
        for name, want in (("reduce_max", x.max()), ("reduce_min", x.min())):
            found = lowered(name)(x)
            assert found == want and found.dtype == dtype and found.shape == ()


def test_lanes_of_many_are_reduced_lane_by_lane() -> None:
    x = np.zeros((3, 2 * SMALL_SIZE), bool)
    x[1, 1999] = True
    assert jax.vmap(lowered("reduce_any"))(x).tolist() == [False, True, False]


def test_an_array_is_halved_as_it_stands() -> None:
    """In rows of other lengths than its own, each element of what is fused into the reduction would be looked for."""
    x = jax.ShapeDtypeStruct((64, 4, 4, 32), np.bool_)
    program = lowered("reduce_any").lower(x).as_text()  # pyright: ignore[reportFunctionMemberAccess]  jitted
    assert "reshape" not in program and program.count("stablehlo.or %") == HALVING_STEPS


def test_rows_that_leave_nothing_over_are_not_cut() -> None:
    program = lowered("reduce_any").lower(jax.ShapeDtypeStruct((64 * VECTOR_ROWS,), np.bool_)).as_text()  # pyright: ignore[reportFunctionMemberAccess]  jitted
    assert program.count("stablehlo.slice") == 2  # 64 of 2048, 2 of 64


def test_a_check_of_many_indices_is_reduced_in_rows() -> None:
    """Windows of the indices, as XLA would have them, take three times as long, and a kernel for each level of them."""
    source = "fn f(t: f32[n], p: i32[m]) -> f32[m] = [for i => t[p[i]]]"
    f = difflang.loads(source, name="rows").f
    program = f.lower("f32[100]", "i32[20000]").compile().as_text()
    assert re.search(r"= pred\[625\]\S* reduce\(", program) and "reduce-window" not in program
