"""Exponentials of few numbers in steps of loops on the CPU are written out, as exact as XLA's."""

from __future__ import annotations

from typing import Any

import jax
import mpmath
import numpy as np
import pytest

import difflang
from difflang.lower.few import written_out

SOURCE = """float {0}
fn chain(score: {0}[k], change: {0}[j, k]) -> {0} {{
  var s = score
  for i in 0..7 {{{1}
    s = 0.1 * sum(exp(s - change), axis = 0)
  }}
  sum(s)
}}
fn once(s: {0}[k], change: {0}[j, k]) -> {0} = sum(exp(s - change))
"""
SCORE = np.random.default_rng(0).normal(size=16)
CHANGE = np.random.default_rng(1).normal(size=(16, 16))
DTYPES = pytest.mark.parametrize("dtype", ["f32", "f64"])
RANGES = {"f32": (-87.3365, 88.7228), "f64": (-708.3964, 709.7827)}  # where the exponential is a normal number


def loaded(dtype: str = "f64", says: str = "") -> Any:
    return difflang.loads(SOURCE.format(dtype, says), name="few")


def exponentials(f: Any, *given: Any, platform: str = "cpu") -> int:
    return f.lower(*given, platform=platform).as_text().count("stablehlo.exponential")


@DTYPES
def test_only_where_xla_asks_one_by_one(dtype: str) -> None:
    f, (score, change) = loaded(dtype).chain, [rounded(x, dtype) for x in (SCORE, CHANGE)]
    assert exponentials(f, score, change) == exponentials(f.grad("score"), score, change) == 0
    assert exponentials(f, score, change, platform="cuda") == 1
    assert exponentials(f, score[:8], change[:, :8]) == 1  # two vector units' worth: XLA's own are as fast
    assert exponentials(f, score, np.tile(change, (5, 1))) == 1  # as many as two threads would share
    assert exponentials(f, np.tile(score, 4), np.tile(change[:4], 4)) == 1  # no short axis
    assert exponentials(loaded(dtype).once, score, change) == 1


def test_values_and_gradients() -> None:
    f = loaded().chain
    np.testing.assert_allclose(f(SCORE, CHANGE), f.interpret(SCORE, CHANGE), rtol=1e-14)
    assert f.check_grad(SCORE, CHANGE)


def test_where_something_is_said_they_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """Such a program is not written by a stand-in: JAX traces it."""
    speaking = loaded(says='\n    print("{i}")').chain
    assert speaking(SCORE, CHANGE) == loaded().chain(SCORE, CHANGE)
    assert exponentials(speaking, SCORE, CHANGE) == 0
    assert capsys.readouterr().out.split() == list("0123456")


@DTYPES
def test_digits(dtype: str) -> None:
    low, high = RANGES[dtype]
    draws = np.random.default_rng(2)
    near_edges = [np.linspace(low, low + 0.5, 200), np.linspace(high - 0.5, high, 200)]
    x = rounded(np.concatenate([draws.uniform(low + 0.5, high, 3000), draws.normal(size=3000), *near_edges]), dtype)
    with mpmath.workdps(30):
        exact = [mpmath.exp(mpmath.mpf(float(v))) for v in x]
        spacing = np.spacing(rounded(exact, dtype))
        off = [abs(mpmath.mpf(float(y)) - e) / float(s) for y, e, s in zip(compiled(x), exact, spacing, strict=True)]
    assert max(off) <= 2.0


@DTYPES
def test_edges(dtype: str) -> None:
    low, high = RANGES[dtype]
    far = rounded(np.geomspace(high * 1.001, float(np.finfo(rounded(0.0, dtype).dtype).max) / 2, 5000), dtype)
    for infinite in (far, rounded([np.inf], dtype)):
        assert np.all(compiled(infinite) == np.inf) and np.all(compiled(-infinite) == 0.0)
    assert np.all(compiled(rounded([low - 0.01, low - 1.0, low - 20.0], dtype)) == 0.0)
    assert np.all(compiled(rounded([0.0, -0.0, 1e-300], dtype)) == 1.0)
    assert np.isnan(compiled(rounded([np.nan], dtype))[0])


def rounded(x: Any, dtype: str) -> np.ndarray[Any, Any]:
    return np.asarray(x, np.float64).astype(dtype.replace("f", "float"))


def compiled(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with jax.enable_x64(True):
        return np.asarray(jax.jit(lambda x: written_out(jax.numpy, x))(x))
