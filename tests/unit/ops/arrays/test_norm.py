"""The Euclidean length in one pass: right where squares overflow or underflow, for any size, and so is its gradient."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import difflang
from difflang.ir.array_types import Array

SOURCE = """
fn length(x: T[n]) -> T = norm(x)
fn rows(x: T[n, k]) -> T[n] = norm(x, axis=1)
"""


def module(dtype: type) -> difflang.Module:
    name = f"f{8 * np.dtype(dtype).itemsize}"
    return difflang.loads(SOURCE.replace("T", name), name=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_squares_that_overflow_or_underflow(dtype: type) -> None:
    limits, length = np.finfo(dtype), module(dtype).length
    with jax.enable_x64(True):
        in_jax = jax.jit(lambda x: length(x))  # there XLA's algebra is at work
        for size in (limits.max / 16, limits.max**0.5, 1.0, limits.tiny**0.5, limits.tiny * 16):
            x = np.array([3.0, 4.0], dtype) * dtype(size)
            for found in (length(x), length.interpret(x), in_jax(x)):
                np.testing.assert_allclose(found, 5.0 * dtype(size), rtol=4 * limits.eps)
            np.testing.assert_allclose(length.grad()(x), [0.6, 0.8], rtol=4 * limits.eps)


@pytest.mark.parametrize(
    ("x", "expected"),
    [([np.inf, 1.0], np.inf), ([-np.inf, np.inf], np.inf), ([np.nan, 1.0], np.nan), ([0.0, 0.0], 0.0), ([], 0.0)],
)
def test_what_has_no_square(x: list[float], expected: float) -> None:
    length, array = module(np.float64).length, np.array(x)
    assert np.array_equal([length(array), length.interpret(array)], [expected, expected], equal_nan=True)


def test_each_row_by_itself() -> None:
    x: Array = np.array([[3e200, 4e200], [3e-200, 4e-200], [3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(module(np.float64).rows(x), [5e200, 5e-200, 5.0, 0.0], rtol=1e-15)


def test_many_elements() -> None:
    """XLA on the CPU ended the process where a sum of 4,096 or more read the unit by which all were divided."""
    x = np.full(5000, 2.0)
    assert module(np.float64).length(x) == pytest.approx(2.0 * 5000**0.5, rel=1e-12)


@pytest.mark.parametrize("columns", [1, 2, 3, 8, 9, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_arrays_of_any_size(columns: int, dtype: type) -> None:
    """By terms along a short axis, by a branch along a longer one; then with rows whose squares are no floats."""
    limits, rows = np.finfo(dtype), module(dtype).rows
    plain = np.random.default_rng(columns).normal(size=(9000 // columns + 8, columns)).astype(dtype)
    special = plain.copy()
    for row, size in enumerate(
        [limits.max / 64, limits.max**0.5, limits.tiny**0.5, limits.tiny * 64, 0.0, np.inf, np.nan]
    ):
        special[row] *= dtype(size)
    special[7, -1] = limits.max / 2
    with jax.enable_x64(True):
        in_jax = jax.jit(lambda x: rows(x))
        for x in (plain, special):
            expected = rows.interpret(x)
            for found in (rows(x), in_jax(x)):
                np.testing.assert_allclose(found, expected, rtol=4 * limits.eps)
