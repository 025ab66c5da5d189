"""Exponentials of few numbers in steps of loops on the CPU are written out, about as exact as XLA's."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import difflang
from difflang.ir.op import OPS
from difflang.runtime.compile import compile_graph
from support.op_calls import Call

STEP = "s = 0.01 * sum(exp(-(s * change)), axis = 0)"
SOURCE = """float {0}
fn chain(score: {0}[k], change: {0}[j, k]) -> {0} {{
  var s = score
  var total = 0.0 * score
  for i in 0..7 {{
    {1}
  }}
  sum(s + total)
}}
"""
VECTOR, DIFFERENCES = "s = exp(-s)", "s = logsumexp(s + change, axis = 0)"
DTYPES = pytest.mark.parametrize("dtype", ["f32", "f64"])
RANGES = {"f32": (-87.3365, 88.7228), "f64": (-708.3964, 709.7827)}  # where the exponential is a normal number


def rounded(x: Any, dtype: str) -> np.ndarray[Any, Any]:
    return np.asarray(x, np.float64).astype(dtype.replace("f", "float"))


def given(j: int, k: int, dtype: str = "f64") -> list[np.ndarray[Any, Any]]:
    draws = np.random.default_rng(0)
    return [rounded(draws.normal(size=shape), dtype) for shape in ((k,), (j, k))]


def exponentials(step: str, *sizes: int, dtype: str = "f64", platform: str = "cpu", outside: bool = False) -> int:
    """How many are left as XLA's own."""
    text = SOURCE.format(dtype, step)
    if outside:
        text = text.replace("for i in 0..7", "if sum(s) > 0.0")
    return difflang.loads(text, name="few").chain.lower(*given(*sizes, dtype), platform=platform).as_text().count(
        "stablehlo.exponential"
    )  # fmt: skip


@DTYPES
@pytest.mark.parametrize(("length", "left"), [(8, 1), (9, 0), (16, 0), (32, 0), (33, 1)])
def test_of_vectors_that_are_short(dtype: str, length: int, left: int) -> None:
    assert exponentials(VECTOR, 1, length, dtype=dtype) == left
    assert exponentials(VECTOR, 1, length, dtype=dtype, platform="cuda") == 1
    assert exponentials(VECTOR, 1, length, dtype=dtype, outside=True) == 1


@pytest.mark.parametrize(("sizes", "left"), [((16, 16), 0), ((16, 32), 0), ((17, 32), 1), ((16, 8), 1), ((16, 33), 1)])
def test_of_differences_up_to_4_kib(sizes: tuple[int, int], left: int) -> None:
    assert exponentials(DIFFERENCES, *sizes) == left
    assert exponentials(DIFFERENCES, *sizes, dtype="f32") == 1  # vectors of eight fit


def test_of_rows_that_are_no_vectors() -> None:
    rows = "s = 0.1 * sum(exp(-(s * change)), axis = 0)"
    assert exponentials(rows, 12, 12) == 0
    assert exponentials(rows, 16, 16) == 1


def test_not_where_xla_would_make_them_again() -> None:
    """One that follows on another, or that is read twice and goes on number by number."""
    assert exponentials("s = exp(-exp(-s))", 1, 16) == 1
    assert exponentials("s = exp(-sum(exp(-s)) + s)", 1, 16) == 0  # a sum is an array
    assert exponentials("s = softmax(s, axis = 0)", 1, 16) == 1
    assert exponentials("s = 2.0 * exp(-s)", 1, 16) == 0  # one reader
    assert exponentials("let e = exp(-s)\n    s = max(e) * s + sum(e)", 1, 16) == 0  # two, which give numbers
    assert exponentials("let e = exp(-s)\n    total += e\n    s = e", 1, 16) == 1  # two, the next step and a sum
    assert exponentials("\n    ".join(["s = sinh(0.5 * s)"] * 3), 1, 16) == 3


@DTYPES
@pytest.mark.parametrize("step", [STEP, VECTOR, DIFFERENCES])
def test_values_and_gradients(dtype: str, step: str) -> None:
    f = difflang.loads(SOURCE.format(dtype, step), name="few").chain
    score, change = given(12, 12, dtype)
    near = 1e-13 if dtype == "f64" else 1e-5
    np.testing.assert_allclose(f(score, change), f.interpret(score, change), rtol=near)
    ours, theirs = f.grad("score")(score, change), f.grad("score").interpret(score, change)
    assert np.isfinite(theirs).all() and np.any(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=near, atol=near)


def test_where_something_is_said_they_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """Such a program is not written by a stand-in: JAX traces it."""
    silent, speaking = (difflang.loads(SOURCE.format("f64", s), name="few").chain for s in (VECTOR, SAID))
    assert speaking(*given(1, 16)) == silent(*given(1, 16))
    assert exponentials(SAID, 1, 16) == 0
    assert capsys.readouterr().out.split() == list("0123456")


SAID = f'print("{{i}}")\n    {VECTOR}'


@DTYPES
def test_digits(dtype: str) -> None:
    """Within 2.1 units in the last place, next to the largest and the smallest normal numbers too."""
    low, high = RANGES[dtype]
    draws = np.random.default_rng(2)
    near_edges = [np.linspace(low, low + 0.5, 200), np.linspace(high - 0.5, high, 200)]
    farthest = [-215.20712135347017, 267.9186307545053] if dtype == "f64" else []  # of many that were looked at
    parts = [draws.uniform(low + 0.5, high, 3000), draws.normal(size=3000), *near_edges, farthest]
    x = rounded(np.concatenate(parts), dtype)
    with mpmath.workdps(30):
        exact = [mpmath.exp(mpmath.mpf(float(v))) for v in x]
        spacing = np.spacing(rounded(exact, dtype))
        off = [abs(mpmath.mpf(float(y)) - e) / float(s) for y, e, s in zip(compiled(x), exact, spacing, strict=True)]
    assert max(off) <= 2.1


@DTYPES
def test_edges(dtype: str) -> None:
    low, high = RANGES[dtype]
    far = rounded(np.geomspace(high * 1.001, float(np.finfo(rounded(0.0, dtype).dtype).max) / 2, 5000), dtype)
    for infinite in (far, rounded([np.inf], dtype)):
        assert np.all(compiled(infinite) == np.inf) and np.all(compiled(-infinite) == 0.0)
    assert np.all(compiled(rounded([low - 0.01, low - 1.0, low - 20.0], dtype)) == 0.0)
    assert np.all(compiled(rounded([0.0, -0.0, 1e-300], dtype)) == 1.0)
    assert np.isnan(compiled(rounded([np.nan], dtype))[0])


@DTYPES
def test_of_what_is_alike_the_difference_is_none(dtype: str) -> None:
    x = rounded([np.inf, -np.inf, 3.0, -np.inf], dtype)
    y = rounded([np.inf, -np.inf, 3.0, 1.0], dtype)
    assert compiled(x, y).tolist() == [1.0, 1.0, 1.0, 0.0]


def compiled(*given: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    op = OPS["vectorized_exp" if len(given) == 1 else "vectorized_exp_sub"]
    return np.asarray(compile_graph(Call(op, given, {}).graph())(*given)[0])
