"""An extremum of which one number is NaN is NaN, also where XLA takes a library that leaves NaN out."""

from __future__ import annotations

import numpy as np
import pytest

import difflang


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("shape", [(4, 3), (64, 64), (700, 61)])
def test_nan_reaches_extrema_of_arrays_of_all_sizes(name: str, dtype: str, shape: tuple[int, int]) -> None:
    module = difflang.loads(
        f"fn rows(x: {dtype}[n, k]) -> {dtype}[n] where k > 0 = [for i => {name}(x[i])]\n"
        f"fn columns(x: {dtype}[n, k]) -> {dtype}[k] where n > 0 = {name}(x, axis = 0)\n"
        f"fn all(x: {dtype}[n, k]) -> {dtype} where n > 0, k > 0 = {name}(x)\n"
        f"fn total(x: {dtype}[n, k]) -> {dtype} where k > 0 = sum(for i => {name}(for j => x[i, j]^2))\n"
    )
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32 if dtype == "f32" else np.float64)
    x[2, 1] = np.nan
    reduce = np.min if name == "min" else np.max
    np.testing.assert_array_equal(module.rows(x), reduce(x, axis=1))
    np.testing.assert_array_equal(module.columns(x), reduce(x, axis=0))
    assert np.isnan(module.all(x)) and np.isnan(module.total(x))


@pytest.mark.parametrize("name", ["min", "max"])
def test_infinities_of_both_signs_are_no_nan(name: str) -> None:
    """Their sum is NaN, by which a large array is known to hold one perhaps."""
    f = difflang.loads(f"fn f(x: f64[n, k]) -> f64[n] where k > 0 = {name}(x, axis = 1)").f
    x = np.random.default_rng(0).standard_normal((700, 61))
    x[0, :2] = x[1, 5:7] = -np.inf, np.inf
    reduce = np.min if name == "min" else np.max
    np.testing.assert_array_equal(f(x), reduce(x, axis=1))
    x[2, 1] = x[1, 1] = np.nan
    np.testing.assert_array_equal(f(x), reduce(x, axis=1))
