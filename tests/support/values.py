"""Comparing what a program gave with what it should give: element type, shape, and every element."""

from __future__ import annotations

import numpy as np


def compare(got: object, want: object, rtol: float = 1e-12) -> None:
    """A wanted NumPy value fixes the element type too, a plain Python number or list does not."""
    if isinstance(want, tuple):
        assert isinstance(got, tuple)
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            compare(a, b, rtol)
        return
    assert np.shape(got) == np.shape(want)
    if isinstance(want, (np.ndarray, np.generic)):
        assert np.asarray(got).dtype == want.dtype
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=rtol, atol=1e-14)
