"""A literal is rounded once, to its element type; what is computed from it starts from that number, on both engines."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import file_access, run_program
from difflang.execution.engine import Engine
from difflang.ir.tensor_types import DTYPES
from difflang.types.literal_numbers import DecimalLiteral, float_literal, round_literal

ENGINES = ("interpret", "xla")
# Just above the middle between two f32, f16 or bf16 numbers: the nearest f64 is the middle itself.
ABOVE = {"f32": "16777217.0000000001", "f16": "2049.00000000000001", "bf16": "257.000000000000001"}
RIGHT = {"f32": "16777218.0", "f16": "2050.0", "bf16": "258.0"}


def ran(program: str, engine: str = "interpret") -> list[str]:
    lines: list[str] = []
    run_program(check_program(Source("t.dfl", program)), Engine(engine), file_access(None), 0, lines.append)
    return lines


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("within", ["host", "function"])
@pytest.mark.parametrize(
    ("dtype", "shown"),
    [("f32", "0.10000000149011612"), ("f16", "0.0999755859375"), ("bf16", "0.10009765625"), ("f64", "0.1")],
)
def test_a_typed_literal_is_rounded(dtype: str, shown: str, within: str, engine: str) -> None:
    text = f"let x: {dtype} = 0.1\nf64(x)"
    program = f"print({{ {text} }})" if within == "host" else f"fn f() -> f64 {{\n{text}\n}}\nprint(f())"
    assert ran(program, engine) == [shown]
    assert ran(f"let x: {dtype} = 0.1\nlet y = f64(x)\nprint(y, f64(-x) + y)", engine) == [f"{shown} 0.0"]


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("let x = 0.1\nprint(f64(x))", "0.10000000149011612"),
        ("fn f() -> f64 {\nlet x = 0.1\nf64(x)\n}\nprint(f())", "0.1"),
        ("print(f64(0.1), f64(-0.1), f64((0.1)), c128(0.1))", "0.1 -0.1 0.1 0.1+0.0j"),
        ("let x: f64 = 0.1\nprint(f64(f32(x)))", "0.10000000149011612"),
        ("let n: f32 = 16777217\nprint(f64(n), i32(n))", "16777216.0 16777216"),
        ("let n: f32 = 16777217\nprint(n == 16777216.0, n - 16777216, n + 1)", "true 0.0 1.6777216e+07"),
        ("let n: f32 = 4097\nprint(f64(n^2))", "16785408.0"),
        ("let z: f32 = 0\nprint(1.0 / -z, 1 / z)", "-inf inf"),
        ("let h: f16 = 300\nprint(h * h, h^2)", "inf inf"),
        ('let x: f32 = 2\nprint("{x} {-x}")', "2.0 -2.0"),
        ("print(i32(2.9999999999))", "3"),
        ("print(1e-1000000000000000000, -0e1000000000000000000, 1e-1000000000000000000j)", "0.0 -0.0 0.0+0.0j"),
        ("let x: c64 = 0.1\nprint(c128(x), c128(-x))", "0.10000000149011612+0.0j -0.10000000149011612+0.0j"),
        ("let x: c64 = 16777217\nprint(c128(x))", "16777216.0+0.0j"),
        ("let x: c64 = complex(0.1, 0.2)\nprint(c128(x))", "0.10000000149011612+0.20000000298023224j"),
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_numbers_computed_from_literals(program: str, shown: str, engine: str) -> None:
    assert ran(program, engine) == [shown]


@pytest.mark.filterwarnings("error")
def test_an_integer_of_a_great_literal_is_an_error_without_a_warning_of_numpy() -> None:
    (report,) = check_program(Source("t.dfl", "print(i32(1e300))")).diagnostics
    assert (report.code, report.message) == ("DL0316", "1e+300 does not fit in f32")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ABOVE)
def test_a_literal_beside_a_middle_is_rounded_from_its_text(dtype: str, engine: str) -> None:
    text, right = ABOVE[dtype], RIGHT[dtype]
    lines = ran(
        f"let x: {dtype} = {text}\nlet a: {dtype}[2] = [{text}, -{text}]\nprint(f64(x), f64(-x), f64(a))", engine
    )
    assert lines == [f"{right} -{right} [{right}, -{right}]"]
    assert ran(f"let x: f64 = {text}\nprint(x)", engine) == [str(float(text))]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_imaginary_literal_beside_a_middle_is_rounded_from_its_text(engine: str) -> None:
    text, right = ABOVE["f32"], RIGHT["f32"]
    lines = ran(
        f"let z: c64 = {text}j\nlet w: c64 = -{text}j\nlet a: c64[2] = [{text}j, 1.0 - {text}j]\n"
        f"fn f(x: c64) -> c64 = x * {text}j\n"
        "print(f64(imag(z)), f64(imag(w)), f64(imag(a)), f64(imag(f(1.0))))",
        engine,
    )
    assert lines == [f"{right} -{right} [{right}, -{right}] {right}"]
    assert ran(f"let z: c128 = {text}j\nprint(imag(z))", engine) == [str(float(text))]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("let z: c64 = 1e39j", "1e+39 does not fit in c64"),
        ("fn f() -> c64 = exp(-1e39j)", "1e+39 does not fit in c64"),
        ("let z: c128 = 1e400j", "this number does not fit in any float type"),
    ],
)
def test_an_imaginary_literal_out_of_range_is_an_error(program: str, message: str) -> None:
    (report,) = check_program(Source("t.dfl", program)).diagnostics
    assert (report.code, report.message) == ("DL0316", message)
    assert all("c128" in way for way in report.helps)


@pytest.mark.parametrize("engine", ENGINES)
def test_bf16_numbers_are_not_rounded_to_f32_on_the_way(engine: str) -> None:
    value = 1 + 2.0**-8 + 2.0**-40
    assert float(np.asarray(value, ml_dtypes.bfloat16)) == 1.0  # NumPy rounds twice
    lines = ran(f"let x: bf16 = {value!r}\nlet a: bf16[2] = [{value!r}, 1.0]\nprint(f64(x), f64(a))", engine)
    assert lines == ["1.0078125 [1.0078125, 1.0]"]


def test_only_literals_that_would_be_rounded_twice_keep_their_text() -> None:
    for text in ("0.1", "0.5", "1e-3", "16777217.0", "1e300", "3.0", "0.0"):
        assert not isinstance(float_literal(float(text), text), DecimalLiteral)
    for dtype, text in ABOVE.items():
        kept = float_literal(float(text), text)
        assert isinstance(kept, DecimalLiteral)
        assert Fraction(round_literal(kept, DTYPES[dtype])) == Fraction(RIGHT[dtype])
        assert round_literal(-kept, DTYPES[dtype]) == -round_literal(kept, DTYPES[dtype])


@pytest.mark.parametrize("engine", ENGINES)
def test_the_largest_integers(engine: str) -> None:
    """Those from 2^63 on are of u64 alone."""
    program = """let x: u64 = 9223372036854775808
let most = u64(18446744073709551615)
fn masked(x: u64) -> u64 = bit_and(x, 18446744073709551614)
fn is_most(x: u64) -> bool = match x { 18446744073709551615 => true, _ => false }
print(x, most - x, masked(most), is_most(most), is_most(x), [most] == 18446744073709551615)
"""
    shown = "9223372036854775808 9223372036854775807 18446744073709551614 true false [true]"
    assert ran(program, engine) == [shown]
