"""Numbers in csv and json files are taken as written or refused: rounded once, never silently infinite."""

from __future__ import annotations

import csv
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data.file_access import FileAccess
from difflang.ir.tensor_types import DTYPES, numpy_dtype
from difflang.numerics.decimal_numbers import is_decimal, nearest_floats

NARROW = ("f16", "bf16", "f32")


def ran(folder: Path, program: str) -> list[str]:
    lines: list[str] = []
    run_program(check_program(Source("t.dfl", program)), Engine("interpret"), FileAccess(folder), 0, lines.append)
    return lines


def wrong(folder: Path, program: str) -> str:
    with pytest.raises(DifflangError) as raised:
        ran(folder, program)
    return raised.value.render()


def exactly_nearest(text: str, target: np.dtype) -> Fraction:
    """By exact fractions, from the neighbours of a first guess; ties to even."""
    exact = Fraction(text)
    guess = np.array(float(text)).astype(target)[()]
    zero, many = type(guess)(0), [guess]
    for limit in (np.inf, -np.inf):
        at = guess
        for _ in range(2):
            at = np.nextafter(at, type(guess)(limit))
            many.append(at)
    bits = f"u{target.itemsize}"
    finite = [x for x in many if np.isfinite(x)] or [zero]
    best = min(finite, key=lambda x: (abs(Fraction(float(x)) - exact), int(np.array(x).view(bits)) & 1))
    return Fraction(float(best))


@pytest.mark.parametrize("name", NARROW)
def test_a_decimal_is_rounded_once(name: str) -> None:
    """At, just above and just below the middles between neighbours, where rounding twice goes wrong."""
    target, draw = numpy_dtype(DTYPES[name]), random.Random(3)
    texts: list[str] = []
    for _ in range(200):
        x = np.array(draw.gauss(0.0, 1.0) * 2.0 ** draw.randint(-8, 8)).astype(target)[()]
        y = np.nextafter(x, type(x)(np.inf))
        middle = Fraction(float(x)) / 2 + Fraction(float(y)) / 2
        for nudge in (0, 1, -1):
            scaled = (middle + nudge * Fraction(1, 10**40)) * 10**90
            digits = f"{abs(scaled.numerator // scaled.denominator)}".rjust(91, "0")
            texts.append(f"{'-' if scaled < 0 else ''}{digits[:-90]}.{digits[-90:]}")
    found = nearest_floats(texts, np.array([float(text) for text in texts]), target)
    assert [Fraction(float(x)) for x in found] == [exactly_nearest(text, target) for text in texts]


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        *[(text, True) for text in ("1", "+1.", "-.5", " 1e3 ", "1E-3", "inf", "-Infinity", "NaN")],
        *[(text, False) for text in ("1_000", "１２", "", ".", "1e", "e3", "0x1p3", "1,5", "1d3", "٣")],
    ],
)
def test_what_is_a_number(text: str, ok: bool) -> None:
    assert is_decimal(text) == ok


@pytest.mark.parametrize(("dtype", "right"), [("f32", "16777218.0"), ("f64", "16777217.0"), ("c64", "16777218.0")])
@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_file_is_rounded_once(format: str, dtype: str, right: str, tmp_path: Path) -> None:
    text = "16777217.0000000001"
    (tmp_path / "a.csv").write_text(f"{text}\n1\n")
    (tmp_path / "a.json").write_text(f"[{text}, 1]")
    shown = "f64(real(x[0]))" if dtype == "c64" else "f64(x[0])"
    assert ran(tmp_path, f'let x: {dtype}[n] = read_{format}("a.{format}")\nprint({shown})') == [right]


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "c64"])
@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_finite_number_never_becomes_infinite(format: str, dtype: str, tmp_path: Path) -> None:
    text = "1e400" if dtype == "f64" else "3.5e38"
    (tmp_path / "a.csv").write_text(f"1\n{text}\n")
    (tmp_path / "a.json").write_text(f"[1, {text}]")
    report = wrong(tmp_path, f'let x: {dtype}[n] = read_{format}("a.{format}")')
    assert text in report and dtype in report
    (tmp_path / "a.csv").write_text("1\ninf\n")
    (tmp_path / "a.json").write_text('[1, "Infinity"]')
    assert "inf" in ran(tmp_path, f'let x: {dtype}[n] = read_{format}("a.{format}")\nprint(x)')[0]


@pytest.mark.parametrize("cell", ["1_000", "１２", "1e400"])
@pytest.mark.parametrize("dtype", ["f64", "f32", "i32", "i64", "bool"])
def test_cells_that_are_no_numbers_are_named(cell: str, dtype: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"x,y\n1,0\n1,{cell}\n", encoding="utf-8")
    assert f"a.csv:3: column 2: `{cell}` is not" in wrong(tmp_path, f'let x: {dtype}[n, 2] = read_csv("a.csv")')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"x\n1\n2\n', "line 1: a quote is not closed"),
        ('x\n1\n"2\n3\n', "line 3: a quote is not closed"),
        ('x\n"1"2\n', "line 2: "),
    ],
)
def test_a_quote_without_an_end_is_an_error(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert said in wrong(tmp_path, 'let x: f64[n] = read_csv("a.csv")')


def test_quoted_cells_of_several_lines_keep_the_numbers_of_lines(tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["first\nsecond", "b"], [1, 2], [3, "no"]])
    assert "a.csv:4: column 2: `no`" in wrong(tmp_path, 'let x: f64[n, 2] = read_csv("a.csv")')
