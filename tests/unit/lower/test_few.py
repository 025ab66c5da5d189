"""Exponentials of few numbers in double precision, in steps of loops on the CPU: as exact as XLA's, and written out."""

from __future__ import annotations

from typing import Any

import jax
import mpmath
import numpy as np
import pytest

import difflang
from difflang.lower.few import INFINITE, NOTHING, written_out
from support.digits import Reference

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


def loaded(dtype: str = "f64", says: str = "") -> Any:
    return difflang.loads(SOURCE.format(dtype, says), name="few")


def exponentials(f: Any, *given: Any, platform: str = "cpu") -> int:
    return f.lower(*given, platform=platform).as_text().count("stablehlo.exponential")


def test_only_where_xla_asks_one_by_one() -> None:
    f = loaded().chain
    assert exponentials(f, SCORE, CHANGE) == exponentials(f.grad("score"), SCORE, CHANGE) == 0
    assert exponentials(f, SCORE, CHANGE, platform="cuda") == 1
    assert exponentials(f, SCORE[:8], CHANGE[:, :8]) == 1  # two vector units' worth: XLA's own are as fast
    assert exponentials(f, SCORE, np.tile(CHANGE, (2, 1))) == 1  # as many as two threads would share
    assert exponentials(f, np.tile(SCORE, 4), np.tile(CHANGE[:4], 4)) == 1  # no short axis
    assert exponentials(loaded().once, SCORE, CHANGE) == 1
    assert exponentials(loaded("f32").chain, SCORE.astype(np.float32), CHANGE.astype(np.float32)) == 1


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


def test_digits() -> None:
    draws = np.random.default_rng(2)
    near_edges = [np.linspace(NOTHING + 1e-13, NOTHING + 0.5, 200), np.linspace(709.0, 709.782712893384, 200)]
    x = np.concatenate([draws.uniform(-708.0, 709.0, 3000), draws.normal(size=3000), *near_edges])
    assert Reference.of(mpmath.exp, x).ulps(compiled(x)).max() <= 2.0


def test_edges() -> None:
    nothing = np.array([-np.inf, -1e308, -1e5, -720.0, NOTHING - 1e-12])
    infinite = np.array([709.7827128933841, INFINITE, 711.0, 1e5, 1e308, np.inf])
    assert np.all(compiled(nothing) == 0.0) and np.all(compiled(infinite) == np.inf)
    assert np.all(compiled(np.array([0.0, -0.0, 1e-300])) == 1.0) and np.isnan(compiled(np.array([np.nan]))[0])
    assert np.all(compiled(np.geomspace(710.0, 1e308, 5000)) == np.inf)
    assert np.all(compiled(-np.geomspace(709.0, 1e308, 5000)) == 0.0)


def compiled(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with jax.enable_x64(True):
        return np.asarray(jax.jit(lambda x: written_out(jax.numpy, x))(x))
