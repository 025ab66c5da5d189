"""Warnings of the language in Python: as a DifflangWarning, at the caller's line, once for each place."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import difflang

PROGRAM = """
fn f(x: f64[n]) -> f64 = sum(floor(x))
fn slope(x: f64[n]) -> f64[n] = grad(f)(x)
fn told(x: f64) -> f64 = grad(|t| round(t))(x)
"""
X = np.array([1.5, 2.5])


@pytest.fixture
def quiet() -> difflang.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", difflang.DifflangWarning)
        return difflang.loads(PROGRAM, name="quiet")


def test_what_the_file_shows_is_told_as_it_is_loaded() -> None:
    with pytest.warns(
        difflang.DifflangWarning, match=r"warning\[DL0409\]: the derivative with respect to `t` is 0"
    ) as seen:
        m = difflang.loads(PROGRAM)
    assert len(seen) == 1 and seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", difflang.DifflangWarning)
        assert float(m.told(1.5)) == 0, "a place is told once"


def test_what_a_call_shows_is_told_at_the_call(quiet: difflang.Module) -> None:
    with pytest.warns(difflang.DifflangWarning, match="the derivative with respect to `x` is 0") as seen:
        assert np.array_equal(quiet.slope(X), [0, 0])
    assert len(seen) == 1 and seen[0].filename == __file__
    assert ":3:33\n" in str(seen[0].message), "where the program asks"
    with warnings.catch_warnings():
        warnings.simplefilter("error", difflang.DifflangWarning)
        quiet.slope(X)
        quiet.slope(X[:1])


@pytest.mark.parametrize("operator", ["grad", "value_and_grad", "vjp", "hessian"])
def test_a_derivative_asked_for_in_python(quiet: difflang.Module, operator: str) -> None:
    with pytest.warns(difflang.DifflangWarning, match="`floor` has derivative 0") as seen:
        getattr(quiet.f, operator)()(X)
    assert len(seen) == 1 and seen[0].filename == __file__
    assert f"{operator}_f(f64[2])" in str(seen[0].message)


def test_a_warning_can_be_an_error(quiet: difflang.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", difflang.DifflangWarning)
        with pytest.raises(difflang.DifflangWarning, match="DL0409"):
            quiet.f.grad().interpret(X)
    assert np.array_equal(quiet.f.grad().interpret(X), [0, 0])


def test_the_steps_to_an_integer_are_told() -> None:
    m = difflang.loads("fn f(x: f64) -> i32 {\n  let y = 2.0 * x\n  i32(y)\n}")
    with pytest.raises(difflang.DifferentiationError) as error:
        m.f.grad()(1.5)
    assert "depends on `x`" in str(error.value) and "an integer has no derivative" in str(error.value)
