"""Sums of exponentials are measured from the greatest; a NaN makes the sums NaN."""

import numpy as np
import pytest
import scipy.special as sp

import difflang

SOURCE = """float {0}
fn whole(x: {0}[n, m]) -> {0} = logsumexp(x)
fn down(x: {0}[n, m]) -> {0}[m] = logsumexp(x, axis = 0)
fn along(x: {0}[n, m]) -> {0}[n] = logsumexp(x, axis = 1)
fn weights(x: {0}[n, m]) -> {0}[n, m] = softmax(x, axis = 1)
fn logs(x: {0}[n, m]) -> {0}[n, m] = log_softmax(x, axis = 0)
fn slopes(x: {0}[n, m]) -> {0}[n, m] = grad(|x| sum(logsumexp(x, axis = 0)))(x)
"""


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Along the first axis, with the digits of a result near 0: SciPy subtracts the logarithm of a sum near 1."""
    others = np.exp(x[:, None].astype(np.float64) - x[None])
    others[np.arange(len(x)), np.arange(len(x))] = 0.0
    return -np.log1p(others.sum(axis=0))


REFERENCES = {
    "whole": sp.logsumexp,
    "down": lambda x: sp.logsumexp(x, axis=0),
    "along": lambda x: sp.logsumexp(x, axis=1),
    "weights": lambda x: sp.softmax(x, axis=1),
    "logs": log_softmax,
    "slopes": lambda x: sp.softmax(x, axis=0),
}
SHAPES = ((1, 1), (3, 5), (16, 16), (5, 32), (5, 33), (40, 2))


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", REFERENCES)
def test_long_and_short_axes(name: str, dtype: str) -> None:
    f = getattr(difflang.loads(SOURCE.format(dtype), name="tops"), name)
    kind = np.dtype(dtype.replace("f", "float"))
    for shape in SHAPES:
        x = np.random.default_rng(0).normal(size=shape).astype(kind) * 10
        np.testing.assert_allclose(f(x), REFERENCES[name](x), rtol=1e3 * np.finfo(kind).eps, atol=1e-40)


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("place", [0, 1, 3])
def test_nan_in_any_place(name: str, place: int) -> None:
    """Elements are NaN where those of the interpreter are, which looks for the greatest in NumPy's way."""
    f = getattr(difflang.loads(SOURCE.format("f64"), name="tops"), name)
    x = np.array([[1.0, 800.0, -5.0], [np.inf, -2.0, 0.5], [3.0, 1.0, 900.0], [-np.inf, 4.0, 0.0]])
    x[place, 1] = np.nan
    np.testing.assert_array_equal(np.isnan(f(x)), np.isnan(f.interpret(x)))
    assert np.isnan(np.asarray(f(x))).any()
