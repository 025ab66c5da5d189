"""Reductions over as many values as only the run knows, and folds from one variant of an enum to another."""

from __future__ import annotations

from functools import cache
from math import prod, sin
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.execution.engine import Engine
from support.language import answer, codes

SOURCE = """float f64
fn series(x: f64, k: i32) -> f64 = sum(for i in 0..k => x^f64(i) / f64(i + 1))
fn several(x: f64, k: i32) -> f64 = sum(for i in 0..k, j in 0..i, m if (i + j) % 2 == 0 => sin(x * f64(i + 2 * j)) * [1, 3][m])
fn inner(x: f64, k: i32) -> f64 = sum(for i in 0..k => prod(for j in 0..i => x + f64(j)))
fn rows(x: f64, k: i32) -> f64 = dot(sum(for i in 0..k => [x, 2.0] * x^f64(i)), [1.0, x])
fn product(x: f64, k: i32) -> f64 = prod(for i in 0..k => x - f64(i))
fn guarded(x: f64, k: i32) -> f64 = sum(for i in 0..k if f64(i) < x => sqrt(x - f64(i)))
fn in_lanes(x: f64, k: i32) -> f64 = sum([for i in 0..3 => sum(for j in 0..k + i => x^f64(j))])
"""  # noqa: E501


def several(x: float, k: int) -> float:
    pairs = [(i, j) for i in range(k) for j in range(i) if (i + j) % 2 == 0]
    return 4 * sum(sin(x * (i + 2 * j)) for i, j in pairs)


TWINS: dict[str, Any] = {
    "series": lambda x, k: sum(x**i / (i + 1) for i in range(k)),
    "several": several,
    "inner": lambda x, k: sum(prod(x + j for j in range(i)) for i in range(k)),
    "rows": lambda x, k: sum(3 * x * x**i for i in range(k)),
    "product": lambda x, k: prod(x - i for i in range(k)),
    "guarded": lambda x, k: sum((x - i) ** 0.5 for i in range(k) if i < x),
    "in_lanes": lambda x, k: sum(x**j for i in range(3) for j in range(k + i)),
}


@cache
def module() -> Any:
    more = "".join(
        f"fn {name}_back(x: f64, k: i32) -> f64 = grad({name})(x, k)\n"
        f"fn {name}_twice(x: f64, k: i32) -> f64 = hvp({name})(x, k, 1)\n"
        for name in TWINS
    )
    return difflang.loads(SOURCE + more, name="totals")


@pytest.mark.parametrize("k", [0, 1, 5])
@pytest.mark.parametrize("name", TWINS)
def test_values_and_derivatives(name: str, k: int) -> None:
    program, twin, x = module(), TWINS[name], 2.3
    value, back, twice = (getattr(program, name + part) for part in ("", "_back", "_twice"))
    assert float(value.interpret(x, k)) == pytest.approx(twin(x, k), rel=1e-14)
    h = 1e-4
    slope = (8 * (twin(x + h, k) - twin(x - h, k)) - (twin(x + 2 * h, k) - twin(x - 2 * h, k))) / (12 * h)
    assert float(back.interpret(x, k)) == pytest.approx(slope, rel=1e-9, abs=1e-9)
    bend = (twin(x + h, k) - 2 * twin(x, k) + twin(x - h, k)) / h**2
    assert float(twice.interpret(x, k)) == pytest.approx(bend, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", ["several", "in_lanes"])
def test_compiled(name: str) -> None:
    for f in (getattr(module(), name), getattr(module(), f"{name}_back")):
        assert float(f(2.3, 5)) == pytest.approx(float(f.interpret(2.3, 5)), rel=1e-12)


def test_element_types_and_truths() -> None:
    source = """fn factorial(k: i64) -> i64 = prod(for i in 1..i32(k) + 1 => i64(i))
fn prime(k: i32) -> bool = k > 1 and all(for i in 2..k if i * i <= k => k % i != 0)
fn composite(k: i32) -> bool = any(for i in 2..k => k % i == 0)
fn turned(k: i32) -> c128 = sum(for i in 0..k => exp(1j * c128(i)))
fn literal(k: i32) -> i32 = sum(for i in 0..k => 2)
"""
    assert int(answer("factorial(15)", source)) == 1307674368000
    assert [bool(answer(f"prime({k})", source)) for k in (1, 2, 91, 97)] == [False, True, False, True]
    assert [bool(answer(f"composite({k})", source)) for k in (2, 91, 97)] == [False, True, False]
    np.testing.assert_allclose(answer("turned(4)", source), np.exp(1j * np.arange(4)).sum(), rtol=1e-14)
    assert int(answer("literal(4)", source)) == 8


def test_a_draw_in_each_step_is_that_of_its_index() -> None:
    """The loop has the draws that a comprehension over a size has, and a derivative has those of the value."""
    source = """fn over_a_size(x: f64, n: dim) -> f64 = sum(for i in 0..n => x * normal())
fn over_a_number(x: f64, n: i32) -> f64 = sum(for i in 0..n => x * normal())
fn slope(x: f64, n: i32) -> f64 = grad(|x| over_a_number(x, n))(x)
"""
    size, number = (answer(f"{f}(2.0, 4)", source, seed=3) for f in ("over_a_size", "over_a_number"))
    assert float(size) == pytest.approx(float(number), rel=1e-15)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("sum([for i in 0..k => x])", "DL0305"),
        ("max(for i in 0..k => x)", "DL0305"),
        ("mean(for i in 0..k => x)", "DL0305"),
        ("sum(for i in 0..k if x => x)", "DL0313"),
        ("f64(any(for i in 0..k => x))", "DL0311"),
        ("sum(for i in 0..k => { s += x\n s })", "DL0208"),
    ],
)
def test_errors(body: str, code: str) -> None:
    assert codes(f"fn f(x: f64, k: i32) -> f64 {{\n  var s = 0.0\n  let y = {body}\n  y\n}}\n")[0][0] == code


FOLDS = """enum Seen { Nothing, Best(x: f64, at: i32) }
fn better(s: Seen, v: f64, i: i32) -> Seen = match s {
  Best(x, _) => if v > x { Best(v, i) } else { s }
  Nothing => Best(v, i)
}
fn best(x: f64[n]) -> Seen = reduce(|s, (i, v)| if v > 0.0 { better(s, v, i) } else { s }, Nothing, enumerate(x))
fn score(x: f64[n]) -> f64 = match best(x) {
  Best(v, at) => v^2 + f64(at)
  Nothing => -1.0
}
fn all_scores(x: f64[n]) -> f64[n] = [for s in scan(|s, v| if v > 0.0 { better(s, v, 0) } else { s }, Nothing, x) =>
  match s { Best(v, _) => v, Nothing => -1.0 }]
fn total(k: i32) -> i32 = reduce(|a, b| a + b, 0, 0..k, associative = true)
"""


def test_a_fold_goes_from_one_variant_to_another() -> None:
    given = "[-1.0, 2.0, 5.0, 3.0]"
    assert float(answer(f"score({given})", FOLDS)) == 27.0
    assert float(answer("score([-1.0])", FOLDS)) == -1.0
    np.testing.assert_array_equal(answer(f"grad(score)({given})", FOLDS), [0, 0, 10, 0])
    np.testing.assert_array_equal(answer(f"all_scores({given})", FOLDS), [-1, 2, 5, 5])


def test_a_fold_may_group_as_it_likes_and_need_not() -> None:
    assert [int(answer(f"total({k})", FOLDS)) for k in (0, 1, 6)] == [0, 0, 15]


@pytest.mark.parametrize("engine", ["interpret", "xla"])
@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("min(for x in [3, 1, 2] if x > 1 => x)", 2),
        ("max(for x in [-3, -1] if x < -1 => x)", -3),
        ("max(for x in [3, 1] if x > 5 => x)", -(2**31)),
        ("min(for x in [u8(3), 1] if x > 5 => x)", 255),
        ("min(for x in [3, 1] if x > 1 => [x, 2 * x])[1]", 6),
        ("min(for x in [3, 1.5] if x > 2 => x)", 3.0),
    ],
)
def test_a_filter_of_numbers_whose_type_is_found_later(engine: Any, expression: str, wanted: float) -> None:
    """The value of an item that is dropped is the least or the greatest number of the type that is found."""
    assert answer(expression, engine=Engine(engine)) == wanted
