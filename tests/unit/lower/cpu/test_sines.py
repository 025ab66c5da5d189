"""Sines and cosines of many numbers are polynomials on the CPU, and the library's where an argument is far from 0."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from mpmath import mp

import difflang
from difflang.gradcheck.op_calls import OpCall
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F32, F64
from difflang.lower.cpu.polynomial_sines import MAX_BRANCHES
from difflang.ops.elementwise import vectorized_sincos
from difflang.ops.elementwise.vectorized_sincos import MAX_ARGUMENT
from difflang.runtime.compile import compile_graph

SOURCE = """float {0}
fn wave(w: {0}[n]) -> {0} {{
  var x = w
  for i in 0..5 {{ x = x + 0.1 * sin(3.0 * x) }}
  sum(x * x)
}}
fn turned(w: {0}[n]) -> {0} = sum(sin(w) * cos(w))
"""
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def near(dtype: Any) -> np.ndarray[Any, Any]:
    """Numbers of every size up to the farthest, multiples of a quarter turn among them, and zeros."""
    far = 0.999 * MAX_ARGUMENT[F32 if dtype == np.float32 else F64]
    rng = np.random.default_rng(0)
    parts = (
        rng.uniform(-4, 4, 300), rng.uniform(-far, far, 300), np.exp(rng.uniform(-80, np.log(far), 300)),
        np.trunc(rng.uniform(-far, far, 2000) * 2 / np.pi) * np.pi / 2, [0.0, -0.0, 1e-310, -3e-39],
        [642615.9188844458, 321307.9594422229] if dtype == np.float64 else [],  # nearest to quarter turns of all
    )  # fmt: skip
    return np.concatenate(parts).astype(dtype)


def named(dtype: Any) -> str:
    return f"f{8 * np.dtype(dtype).itemsize}"


def ulps(got: Any, x: Any, function: Any) -> Any:
    with mp.workprec(200):
        want = [function(mp.mpf(float(v))) for v in x]
        unit = np.spacing(np.abs(np.array([float(w) for w in want]).astype(x.dtype)))
        return np.array(
            [abs(float((mp.mpf(float(g)) - w) / float(u))) for g, w, u in zip(got, want, unit, strict=True)]
        )


def compiled(x: Any, **attrs: Any) -> list[Any]:
    return compile_graph(OpCall(OPS["sin_and_cos"], (x,), attrs).graph())(x)


@DTYPES
def test_digits(dtype: Any) -> None:
    x = near(dtype)
    sine, cosine = map(np.asarray, compiled(x, gives=("sin", "cos")))
    assert ulps(sine, x, mp.sin).max() < 2.5 and ulps(cosine, x, mp.cos).max() < 2.5
    np.testing.assert_array_equal(np.signbit(sine[x == 0]), np.signbit(x[x == 0]))


@DTYPES
@pytest.mark.parametrize("far", [1e6, -1e22, np.finfo(np.float32).max, np.inf, -np.inf, np.nan])
def test_one_argument_that_is_far_away(dtype: Any, far: float) -> None:
    """The library is asked for all of them; nothing comes of what the polynomials would give."""
    f = difflang.loads("fn f(x: f32[n]) -> (f32[n], f32[n]) = (sin(x), cos(-x))".replace("f32", named(dtype))).f
    x = near(dtype)
    x[7] = far
    sine, cosine = [np.asarray(y)[: x.size] for y in f(np.tile(x, 30))]
    if np.isfinite(far):
        assert ulps(sine, x, mp.sin).max() < 4 and ulps(cosine, x, mp.cos).max() < 4
    else:
        assert np.isnan(sine[7]) and np.isnan(cosine[7]) and np.isnan(sine).sum() == np.isnan(cosine).sum() == 1


@DTYPES
def test_gradients_are_those_of_small_arrays(dtype: Any) -> None:
    module = difflang.loads(SOURCE.format(named(dtype)), name="sines")
    x = np.random.default_rng(0).normal(size=2400).astype(dtype)
    for f in (module.wave, module.turned):
        whole = np.asarray(f.grad("w")(x))
        parts = np.concatenate([np.asarray(f.grad("w")(part)) for part in np.split(x, 20)])
        np.testing.assert_allclose(whole, parts, rtol=0, atol=20 * np.finfo(dtype).eps * np.abs(parts).max())
        np.testing.assert_allclose(whole, f.grad("w").interpret(x), rtol=0, atol=1e-4 if dtype == np.float32 else 1e-12)


def test_both_of_one_argument_are_made_at_once_on_the_cpu_alone() -> None:
    gradient = difflang.loads(SOURCE.format("f64"), name="sines").turned.grad("w")
    here, there = (gradient.lower("f64[40_000]", platform=p).as_text() for p in ("cpu", "cuda"))
    assert here.count("stablehlo.case") == 1 and here.count("stablehlo.sine") == here.count("stablehlo.cosine") == 1
    assert "stablehlo.case" not in there and "stablehlo.sine" in there


@pytest.mark.parametrize(
    ("function", "size", "branches"),
    [
        ("wave", "f64[2047]", 0),
        ("wave", "f64[2048]", 1),
        ("wave", "f32[2047]", 0),
        ("wave", "f32[2048]", 1),
        ("turned", "f64[32767]", 0),
        ("turned", "f64[2097152]", 1),
        ("turned", "f64[2097153]", 0),
    ],
)
def test_how_many_pay(function: str, size: str, branches: int) -> None:
    """In a step of a loop, and elsewhere."""
    f = getattr(difflang.loads(SOURCE.format(size[:3]), name="sines"), function)
    assert f.lower(size, platform="cpu").as_text().count("stablehlo.case") == branches


def test_so_many_that_they_would_be_compiled_for_long_are_the_librarys() -> None:
    calls = " + ".join([f"sin({i}.0 * x)" for i in range(2, 2 + MAX_BRANCHES + 1)])
    f = difflang.loads(f"fn f(x: f32[n]) -> f32[n] = {calls}", name="many").f
    text = f.lower("f32[100_000]", platform="cpu").as_text()
    assert text.count("stablehlo.sine") == MAX_BRANCHES + 1 and "stablehlo.case" not in text


BODIES = {  # of a step on x, y and t, with a and b between: what is computed, and of how many arguments sines are taken
    "sin(0.9 * x) + 0.1 * cos(x), y": 2,
    "0.5 * sin(sin(x) + 1.0), y": 2,
    "x + 0.01 * sin(y) * cos(x), y - 0.01 * sin(x)": 2,
    "x + 0.01 * sin(x), y + 0.01 * sin(x)": 1,
    "x + 0.01 * sin(x - mean(sin(x))), y": 2,
    "x + 0.01 * sin(t * x + 1.0) * y, y * 0.5": 1,
    "clamp(sin(x), -0.5, 0.5) + where(y > 0.0, cos(x), y), y": 1,
}


@pytest.mark.parametrize("body", BODIES)
def test_each_argument_has_a_branch(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients are the interpreter's, of near arguments and of far ones."""
    source = f"""float f64
    fn f(p: f64[n], q: f64[n], t: f64) -> f64 {{
      var x = p
      var y = q
      for i in 0..3 {{
        let (a, b) = ({body})
        x = a
        y = b
      }}
      sum(x * y)
    }}"""
    monkeypatch.setattr(vectorized_sincos, "MIN_BYTES_IN_LOOP", {F64: 64})
    f = difflang.loads(source, name="steps").f
    assert f.lower("f64[40]", "f64[40]", "f64", platform="cpu").as_text().count("stablehlo.case") == BODIES[body]
    x, y = np.random.default_rng(0).normal(size=(2, 40))
    gradient = f.value_and_grad("p", "q")
    for far in (0.0, 3e7):
        at = (x, y + np.eye(40)[3] * far, 0.7)
        got, want = gradient(*at), gradient.interpret(*at)
        for here, there in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(here, there, rtol=1e-11, atol=1e-11)
