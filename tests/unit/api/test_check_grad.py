"""`f.check_grad(...)` in Python: at the caller's arguments, of derivatives and closures too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ir.op import OPS
from support.broken import breakages

SOURCE = """
record P[d] { w: f32[d], b: f32 }
fn line(p: P[d], x: f32[n, d], k: i32 = 1) -> f32[n] = x @ p.w + p.b * f32(k)
fn loss(p: P[d], x: f32[n, d]) -> f32 = sum(tanh(line(p, x)))
fn noisy(s: f64) -> f64 = s * normal()
fn at(x: f64[n], i: i32) -> f64 = x[i] * x[i]
fn kinked(x: f64) -> f64 = abs(x)
fn maker(a: f64) -> (f64) -> f64 = |x| a * x * x
let scale: f64 = 3.0
fn scaled(x: f64) -> f64 = scale * x ^ 2
"""


@pytest.fixture(scope="module")
def m() -> difflang.Module:
    return difflang.loads(SOURCE)


def test_records_arrays_and_defaults(m: difflang.Module) -> None:
    p = m.P(w=np.ones(3, np.float32), b=np.float32(0.5))
    report = m.line.check_grad(p, np.ones((2, 3), np.float32), directions=1)
    assert report.right and not report.kinks
    assert report.table()[0]["compared"] == "forward mode, exact"
    assert m.line.check_grad(p, x=np.ones((2, 3), np.float32), k=2, wrt="p.w", compiled=False).right


def test_wrt_is_a_place_or_a_path(m: difflang.Module) -> None:
    p, x = m.P(w=np.ones(3, np.float32), b=np.float32(0.5)), np.ones((2, 3), np.float32)

    def numbers(wrt: int | str | None) -> int:
        rows = m.loss.check_grad(p, x, wrt=wrt, compiled=False, directions=1).table()
        return next(r["numbers"] for r in rows if r["compared"] == "reverse mode, interpreted")

    assert [numbers(w) for w in (None, 0, "p.w", "p.b", 1)] == [1 + 4 + 6, 1 + 4, 1 + 3, 1 + 1, 1 + 6]
    with pytest.raises(difflang.DifferentiationError, match="has no parameter `q`"):
        m.loss.check_grad(p, x, wrt="q")
    with pytest.raises(difflang.DifferentiationError, match="nothing to differentiate with respect to"):
        m.loss.check_grad(p, x, wrt="p.v")


def test_derivatives_random_functions_and_values_of_the_file(m: difflang.Module) -> None:
    p, x = m.P(w=np.ones(3, np.float32), b=np.float32(0.5)), np.ones((2, 3), np.float32)
    rows = m.loss.grad("p.w").check_grad(p, x, compiled=False).table()
    assert {"forward mode inside, exact", "forward mode, exact"} <= {r["compared"] for r in rows}
    assert m.noisy.check_grad(2.0, key=7, compiled=False).right
    assert m.scaled.check_grad(2.0, order=3, compiled=False).right
    assert m.maker(2.0).check_grad(np.float64(1.5), compiled=False).right


def test_a_wrong_derivative_raises_with_the_line(m: difflang.Module) -> None:
    p, x = m.P(w=np.ones(3, np.float32), b=np.float32(0.5)), np.ones((2, 3), np.float32)
    with next(breakages(OPS["tanh"])).done(), pytest.raises(difflang.GradientMismatch, match="at `tanh`") as caught:
        m.loss.check_grad(p, x, compiled=False)
    assert isinstance(caught.value, AssertionError)
    assert "4 | fn loss" in str(caught.value)
    assert caught.value.report is not None and "WRONG" in str(caught.value.report)


def test_a_kink_warns(m: difflang.Module) -> None:
    with pytest.warns(difflang.DifflangWarning, match="there is no derivative at this point: `abs`"):
        assert m.kinked.check_grad(0.0, compiled=False).right


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"order": 4}, "`order` must be an integer from 1 to 3, but 4 was given"),
        ({"order": 0}, "`order` must be an integer from 1 to 3, but 0 was given"),
        ({"order": 2.0}, "`order` must be an integer from 1 to 3, but 2.0 was given"),
        ({"directions": 0}, "`directions` must be an integer from 1 on, but 0 was given"),
        ({"seed": -1}, "`seed` must be an integer from 0 to 18446744073709551615, but -1 was given"),
    ],
    ids=str,
)
def test_options_are_those_of_the_command_line(m: difflang.Module, option: dict[str, Any], said: str) -> None:
    with pytest.raises(difflang.ArgumentError, match=said):
        m.scaled.check_grad(2.0, compiled=False, **option)


def test_wrong_arguments_and_failures_are_those_of_a_call(m: difflang.Module) -> None:
    with pytest.raises(difflang.ArgumentError):
        m.scaled.check_grad()
    with pytest.raises(difflang.IndexFailure, match="index 5 is out of range"):
        m.at.check_grad(np.ones(3), 5)
    assert m.at.check_grad(np.ones(3), 2).right


def test_a_right_derivative_of_a_cliff_is_not_called_wrong() -> None:
    """Where differences see only what is flat beside it, they say nothing, and the report says so."""
    source = "float f64\nfn f(x: f64) -> f64 = tanh(1e14 * (x - 1.0)) + 3e13 * x\n"
    report = difflang.loads(source, name="cliff").f.check_grad(1.0)
    assert report.right
    assert "no step is small enough" in str(report)
