"""Linear recurrences: the two ways in which they are computed, of which a machine takes one."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from difflang.ops.arrays.cumulative_and_sort import associative_recurrence, recurrence_reference, sequential_recurrence


@pytest.mark.parametrize("how", [sequential_recurrence, associative_recurrence])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 13, 64])
def test_one_after_the_other_and_as_a_tree(how: Any, reverse: bool, size: int) -> None:
    """What a fresh place forgets may be NaN or Inf, on either way."""
    rng = np.random.default_rng(size)
    a, b = rng.normal(size=(3, size)), rng.normal(size=(3, size))
    fresh = rng.random((3, size)) < 0.3
    a[fresh] = np.inf
    b[0, rng.integers(size)] = np.nan
    want = recurrence_reference(fresh, a, b, axis=1, reverse=reverse)
    with jax.enable_x64(True):
        got = jax.jit(lambda *xs: how(jax, *xs, axis=1, reverse=reverse))(fresh, a, b)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


def test_the_factor_of_the_first_place_counts_for_nothing() -> None:
    a, b = np.array([np.inf, 2.0]), np.array([1.0, 3.0])
    for how in (sequential_recurrence, associative_recurrence):
        with jax.enable_x64(True):
            got = how(jax, np.zeros(2, bool), a, b, axis=0, reverse=False)
        assert np.asarray(got).tolist() == [1.0, 5.0]
