"""Warnings of the language in Python: as a DifflangWarning, at the caller's line, once for each place."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

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


def test_a_strict_file_refuses_what_it_shows() -> None:
    with pytest.raises(difflang.CheckError, match="DL0409"):
        difflang.loads(PROGRAM, strict=True)


@pytest.mark.parametrize("name", ["slope", "f"])
def test_a_strict_program_refuses_what_a_call_shows(name: str) -> None:
    """Each call is refused, and the values of others are not."""
    m: Any = difflang.loads(PROGRAM.replace("grad(|t| round(t))(x)", "x"), strict=True)
    function = m.slope if name == "slope" else m.f.grad()
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error", difflang.DifflangWarning)
            with pytest.raises(difflang.DifflangError, match="DL0409"):
                function(X)
    assert float(m.f(X)) == 3


def test_a_strict_program_without_warnings_runs(tmp_path: Path) -> None:
    (tmp_path / "smooth.dfl").write_text("fn f(x: f64) -> f64 = x * x\n")
    assert float(difflang.load(tmp_path / "smooth.dfl", strict=True)["f"].grad()(2.0)) == 4
