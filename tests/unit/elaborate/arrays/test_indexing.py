"""Reading by every kind of index is NumPy's; an index out of range is an error at its line, on the path taken only."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.execution.engine import Engine
from support.language import INTERPRETER, answer, codes

A = np.arange(24.0).reshape(2, 3, 4)
V = np.array([5.0, 7.0, 9.0, 11.0])
READS = [
    ("v[0]", V[0]), ("v[3]", V[3]), ("v[-1]", V[-1]), ("v[-4]", V[0]), ("v[i]", V[2]), ("v[i - 1]", V[1]),
    ("v[1..3]", V[1:3]), ("v[1..]", V[1:]), ("v[..3]", V[:3]), ("v[..]", V), ("v[0.. by 2]", V[::2]), ("v[1..4 by 2]", V[1:4:2]),
    ("v[0..4 by 3]", V[0:4:3]), ("v[2..2]", V[2:2]), ("v[i..i + 2]", V[2:4]), ("v[i - 1..i - 1 + 3]", V[1:4]), ("v[i..2 + i]", V[2:4]),
    ("v[n - 1]", V[3]), ("v[..n - 1]", V[:-1]), ("v[n // 2..]", V[2:]), ("v[j]", V[[0, 2, 2]]), ("v[newaxis, ..]", V[None]),
    ("v[.., newaxis]", V[:, None]), ("v[newaxis, 0]", V[None, 0]), ("v[i, newaxis]", V[2, None]),
    ("a[1]", A[1]), ("a[1, 2]", A[1, 2]), ("a[1, 2, 3]", A[1, 2, 3]), ("a[.., 1]", A[:, 1]), ("a[..., 1]", A[..., 1]),
    ("a[0, ..., 1]", A[0, ..., 1]), ("a[..., 1..3]", A[..., 1:3]), ("a[0, 1.., ..2]", A[0, 1:, :2]), ("a[...]", A),
    ("a[.., i, ..]", A[:, 2, :]), ("a[.., i]", A[:, 2]), ("a[.., .., i]", A[:, :, 2]), ("a[0, i, 1..3]", A[0, 2, 1:3]),
    ("a[1][2][3]", A[1, 2, 3]), ("a[1, j]", A[1][[0, 2, 2]]), ("a[.., j]", A[:, [0, 2, 2]]), ("a[.., .., j]", A[:, :, [0, 2, 2]]),
    ("a[0, j, j]", A[0, [0, 2, 2], [0, 2, 2]]), ("a[.., j, j]", A[:, [0, 2, 2], [0, 2, 2]]), ("a[0, j, 1]", A[0, [0, 2, 2], 1]),
    ("a[.., j, 1..3]", A[:, [0, 2, 2], 1:3]), ("a[1.., j]", A[1:, [0, 2, 2]]), ("a[k]", A[[[0, 1], [1, 0]]]),
    ("a[.., k, 0]", A[:, [[0, 1], [1, 0]], 0]), ("a[..., newaxis]", A[..., None]), ("a[.., newaxis, 0]", A[:, None, 0]),
    ("a[i - 2.. i - 2 + 1, 0]", A[0:1, 0]), ("v[i64(2)]", V[2]), ("v[j + 1]", V[[1, 3, 3]]), ("(v + 2.0)[1]", 9.0),
    ("a[i - 1, .., 0.. by 2]", A[1, :, ::2]), ("a[0.. by 1, i, 1.. by 2]", A[:, 2, 1::2]), ("a[i - 1..i - 1 + 1, 0.. by 2]", A[1:2, ::2]),
    ("a[0, newaxis, j]", A[0, None, [0, 2, 2]]), ("a[.., newaxis, j]", A[:, None, [0, 2, 2]]), ("v[j, newaxis]", V[[0, 2, 2], None]),
    ("a[newaxis, 1.., j, 0.. by 3]", A[None, 1:, [0, 2, 2], ::3]), ("a[0, j, newaxis, j]", A[0, [0, 2, 2], None, [0, 2, 2]]),
    ("v[n..]", V[4:]), ("v[0..0]", V[:0]), ("a[.., 1.., 0.. by 2]", A[:, 1:, ::2]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), READS, ids=[t for t, _ in READS])
def test_read(text: str, value: object) -> None:
    """The value, and a derivative that adds up the cotangents where they came from."""
    body = f"fn f(v: f64[n], a: f64[2, 3, 4], i: i32, j: i32[3], k: i32[2, 2]) = {text}\n"
    call = "([5.0, 7.0, 9.0, 11.0], reshape(linspace(0.0, 23.0, 24), [2, 3, 4]), 2, [0, 2, 2], [[0, 1], [1, 0]])"
    got = answer(f"f{call}", body)
    assert np.shape(got) == np.shape(value)
    np.testing.assert_allclose(got, value)
    loss = f"{body}fn loss(v: f64[n], a: f64[2, 3, 4], i: i32, j: i32[3], k: i32[2, 2]) -> f64 = sum(f(v, a, i, j, k)^2) / 2\n"
    slopes = answer(f"grad[v, a](loss){call}", loss)
    assert sum(float(np.sum(s)) for s in slopes) == pytest.approx(float(np.sum(value)))


# A function of an index and the line that fails, 3 being out of range and 1 not.
FAILS = [
    "fn f(v: f64[3], i: i32) -> f64 {\n v[i]\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n v[-1 - i + 0]\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n sum(v[i..i + 1])\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n sum(v[[0, i]])\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n [v, v][0, i]\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n sum([v, v][.., i])\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n var w = v; w[i] = 1.0\n".replace("; ", "\n ") + " sum(w)\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n var w = v\n w[i] += 1.0\n sum(w)\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n var w = v\n w[i] max= 9.0\n sum(w)\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n var w = v\n w[[i, 0]] += 1.0\n sum(w)\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n var s = 0.0\n for k in 0..i + 1 {\n s += v[k]\n }\n s\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n var s = 0.0\n for k in 0..4 {\n if k <= i {\n s += v[k]\n }\n }\n s\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n var s = 0.0\n var k = 0\n while k <= i {\n s += v[k]\n k += 1\n }\n s\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n var s = 0\n while v[s] < 1.5 + f64(i) {\n s += 1\n }\n f64(s)\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n sum(for k in 0..2 =>\n v[k + i - 1])\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n sum(for k in 0..4 if k <= i =>\n v[k])\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n sum(for a in 0..2, k in 0..4 if k <= i =>\n v[k])\n}",
    "fn g(v: f64[3], i: i32) -> f64 {\n v[i]\n}\nfn f(v: f64[3], i: i32) -> f64 = g(v, i)",
    "fn f(v: f64[3], i: i32) -> f64 {\n let g = |k|\n v[k]\n g(i)\n}".replace("|k|\n", "|k| "),
    "fn g(v: f64[3], i: i32) -> f64 {\n v[i]\n}\nfn f(v: f64[3], i: i32) -> f64 = if i > 0 { g(v, i) } else { 0.0 }",
    "fn f(v: f64[3], i: i32) -> f64 {\n sum(map(|k| v[k], [0, i]))\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n grad(|w| w[i]^2)(v)[0]\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n let (y, _) = jvp(|w| w[i]^2)(v, v)\n y\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n let (y, pull) = vjp(|w| w[i]^2)(v)\n sum(pull(y))\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n (|t| (|s| s * v[i])'(t))'(2.0) + 1.0\n}",
]  # fmt: skip


def line_of(source: str) -> int:
    """The line that holds the last index by a run-time number, as the rows are written."""
    marks = ("[i", "[k", "v[", "w[", "i]", "v[s", "[-1")
    return max(
        n for n, line in enumerate(source.splitlines(), 1) if any(m in line for m in marks) and "f64[3]" not in line
    )


@pytest.mark.parametrize("source", FAILS)
def test_an_index_out_of_range_is_an_error_at_its_line(source: str) -> None:
    call = "let v: f64[3] = [1.0, 2.0, 3.0]\nlet r = f(v, {})\n"
    failing = f"float f64\n{source}\n{call.format(3)}"
    assert codes(failing) == [("DL0902", line_of(source) + 1)]
    assert codes(f"float f64\n{source}\n{call.format(1)}" if "-1 - i" not in source else "") == []


@pytest.mark.parametrize("source", [s for s in FAILS if "while" not in s])
@pytest.mark.parametrize(
    "operator", ["grad(f)(v, {})", "jvp(f)(v, {}, v)", "grad(|u| grad(f)(u, {})[0] + f(u, {}))(v)"]
)
def test_a_derivative_fails_where_the_function_does(source: str, operator: str) -> None:
    program = f"float f64\n{source}\nlet v: f64[3] = [1.0, 2.0, 3.0]\nlet r = {operator}\n"
    assert codes(program.replace("{}", "3")) == [("DL0902", line_of(source) + 1)]


@pytest.mark.slow
@pytest.mark.parametrize("source", FAILS)
def test_a_compiled_program_fails_alike(source: str) -> None:
    program = f"float f64\n{source}\nlet v: f64[3] = [1.0, 2.0, 3.0]\nlet r = f(v, 3)\n"
    assert codes(program, Engine()) == [("DL0902", line_of(source) + 1)]


NOT_TAKEN = [
    "fn f(v: f64[3], i: i32) -> f64 = if i < 3 { v[i] } else { 0.0 }",
    "fn f(v: f64[3], i: i32) -> f64 = sum(for k in 0..5 if k < 3 => v[k])",
    "fn f(v: f64[3], i: i32) -> f64 = sum([for k in 0..5 => if k < 3 { v[k] } else { 0.0 }])",
    "fn f(v: f64[3], i: i32) -> f64 {\n var s = 0.0\n for k in 3..i { s += v[k] }\n s\n}",
    "fn f(v: f64[3], i: i32) -> f64 {\n var s = 0.0\n for k in 0..5 { if k < 3 { s += v[k] } }\n s\n}",
    "fn g(v: f64[3], i: i32) -> f64 = v[i]\nfn f(v: f64[3], i: i32) -> f64 = if i < 3 { g(v, i) } else { g(v, 0) }",
    "fn f(v: f64[3], i: i32) -> f64 {\n let unused = |k| v[k + 7]\n v[0]\n}",
]  # fmt: skip


@pytest.mark.parametrize("source", NOT_TAKEN)
@pytest.mark.parametrize("call", ["f(v, 3)", "grad(f)(v, 3)", "jvp(f)(v, 3, v)"])
@pytest.mark.parametrize(
    "engine", [INTERPRETER, pytest.param(Engine(), marks=pytest.mark.slow)], ids=["interpreter", "compiled"]
)
def test_an_index_on_a_path_not_taken_is_no_error(source: str, call: str, engine: Engine) -> None:
    assert codes(f"float f64\n{source}\nlet v: f64[3] = [1.0, 2.0, 3.0]\nlet r = {call}\n", engine) == []


KNOWN = ["v[3]", "v[-4]", "v[1..4]", "v[2..1]", "v[n]", "v[n + 1]"]


@pytest.mark.parametrize("text", KNOWN)
def test_an_index_known_to_be_out_of_range_is_an_error_before_the_run(text: str) -> None:
    assert [c for c, _ in codes(f"fn f(v: f64[n]) = {text}\nlet r = f([1.0, 2.0, 3.0])\n")] == ["DL0326"]


def test_a_checked_base_of_a_comprehension_is_checked_where_it_is_used() -> None:
    source = "fn f(v: f64[3], i: i32[2]) -> f64[2] = [for k => (v[i])[k] + 1]"
    np.testing.assert_allclose(answer("f([1, 2, 3], [2, 0])", source), [4, 2])
    assert codes(f"float f64\n{source}\nlet r = f([1, 2, 3], [2, 3])\n") == [("DL0902", 2)]


WIDE = """
fn at(x: f64[n], i: i64) -> f64 = x[i]
fn narrow(x: f64[n], i: i8) -> f64 = x[i]
fn far(x: f64[n], i: u64) -> f64[2] = x[i..i + 2]
fn many(x: f64[n], i: i64[m]) -> f64[m] = x[i]
fn few(x: f64[n], i: u32[m]) -> f64[m] = x[i]
fn added(x: f64[n], i: i64[m]) -> f64[n] {
  var y = x
  for k in i { y[k] += 1.0 }
  y[i] += 1.0
  y
}
"""
X = np.array([1.0, 2.0, 3.0])
BILLIONS = 2**32  # as an i32 this is 0


def test_an_index_may_be_of_any_integer_type() -> None:
    module: Any = difflang.loads(WIDE, name="wide")
    assert float(module.at(X, 2)) == float(module.narrow(X, 2)) == 3.0
    np.testing.assert_array_equal(module.far(X, np.uint64(1)), [2.0, 3.0])
    np.testing.assert_array_equal(module.many(X, np.array([2, 0])), [3.0, 1.0])
    np.testing.assert_array_equal(module.few(X, np.array([2, 0], np.uint32)), [3.0, 1.0])
    np.testing.assert_array_equal(module.added(X, np.array([1, 1])), [1.0, 6.0, 3.0])
    np.testing.assert_array_equal(module.at.grad("x")(X, 2), [0.0, 0.0, 1.0])


@pytest.mark.parametrize(("name", "index", "said"), [
    ("at", BILLIONS, "2147483647 or more"), ("at", -BILLIONS, "-2147483648 or less"), ("at", -1, "-1"), ("at", 3, "3"),
    ("narrow", np.int8(-1), "-1"), ("narrow", np.int8(100), "100"), ("far", np.uint64(2), "2..4"),
    ("far", np.uint64(2**64 - 1), "2147483647 or more"), ("many", np.array([0, BILLIONS + 1]), "2147483647 or more"),
    ("many", np.array([0, -3]), "-3"), ("few", np.array([0, 3], np.uint32), "3"),
    ("few", np.array([0, 2**32 - 1], np.uint32), "2147483647 or more"), ("added", np.array([1, BILLIONS]), "2147483647 or more"),
])  # fmt: skip
def test_all_bits_of_an_index_are_checked(name: str, index: Any, said: str) -> None:
    f: Any = getattr(difflang.loads(WIDE, name="wide"), name)
    for run in (f, f.interpret):
        with pytest.raises(
            difflang.IndexFailure,
            match=rf"(index|the range|a range of 2 from) {re.escape(said)} is out of range: `[xy]` has 3",
        ):
            run(X, index)


def test_numbers_in_a_list_are_of_its_type() -> None:
    assert codes("print([1, 4294967297])") == [("DL0316", 1)]
    assert codes("print(u32([1, -4294967297]))") == [("DL0316", 1)]


@pytest.mark.parametrize(
    ("number", "type"), [("3.5e38", "f32"), ("-1e39", "c64"), ("70000", "f16"), ("3.4e38", "bf16"), ("1e400", "f64")]
)
def test_a_float_beyond_its_type_is_not_infinity(number: str, type: str) -> None:
    assert codes(f"let x: {type} = {number}") == [("DL0316", 1)]
    assert codes(f"let x: {type}[2] = [1.0, {number}]") == [("DL0316", 1)]


@pytest.mark.parametrize(
    ("number", "type"), [("3.4028235e38", "f32"), ("65504", "f16"), ("inf", "f16"), ("1e308", "f64")]
)
def test_the_last_float_of_a_type_is_one(number: str, type: str) -> None:
    assert codes(f"let x: {type} = {number}") == []
