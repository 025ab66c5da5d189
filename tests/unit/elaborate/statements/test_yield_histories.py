"""Loops that yield as often as only the run knows, and loops that read that: values, derivatives, lanes."""

# ruff: noqa: E501 - a row of a table is a line

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import sin
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.lower import capacity
from support.language import codes

RISING = "var t = x\n let h = while t < 9.0 { t = t * 1.3\n yield t }\n"


def rising(x: float, factor: float = 1.3) -> list[float]:
    found: list[float] = []
    while x < 9:
        x = x * factor
        found.append(x)
    return found


def folded(values: list[float], start: float, step: Callable[[float, float], float]) -> float:
    for v in values:
        start = step(start, v)
    return start


def before(x: float, *, late: bool) -> list[float]:
    """What a loop yields before it breaks, `late` also in the step that does."""
    t, found = x, list[float]()
    for _ in range(6):
        t = t * 1.7
        if t > 5 and not late:
            break
        found.append(t * x)
        if t > 5:
            break
    return found


def without_some(x: float) -> list[float]:
    return [t for t in rising(x) if not 2 < t < 3.5]


def later(x: float) -> list[float]:
    c, found = 0.0, list[float]()
    for v in reversed(rising(x)):
        c = 0.5 * c + v
        if c > 6:
            found.append(c * x)
    return found


def until(values: list[float], stop: Callable[[float], bool]) -> list[float]:
    return values[: next((i for i, v in enumerate(values) if stop(v)), len(values))]


def some(x: float) -> list[tuple[float, int]]:
    return [(x * i, i) for i in range(int(x * 4) + 1) if i != 2]


def again_and_again(x: float) -> float:
    s, k = x, 0
    while s < 50:
        k += 1
        for v in reversed(rising(x)):
            s += 0.1 * v * k + 0.01 * sin(s)
    return s


def made_further_in(x: float) -> float:
    s = x
    for _ in range(2):
        if s > 0.5:
            h = [t * x for t in rising(s)]
            for v in [*h, *h]:
                s += 0.1 * sin(v)
    return s


BREAK = "var t = x\n let h = for i in 0..6 { t = t * 1.7\n"
HALVED = "var s = 0.0\n for v in reverse(h) { s = 0.5 * s + v^2 }\n s"
# The body of a function of x, what it gives, and whether all that reads a history stands beside its maker.
PROGRAMS: dict[str, tuple[str, Callable[[float], float], bool]] = {
    "a while": (RISING + "var s = 1.0\n for v in h { s = 0.5 * s + v * sin(v) }\n s", lambda x: folded(rising(x), 1.0, lambda s, v: 0.5 * s + v * sin(v)), True),
    "from the end": (RISING + HALVED, lambda x: folded(rising(x)[::-1], 0.0, lambda s, v: 0.5 * s + v * v), True),
    "read twice": (RISING + "var s = 1.0\n for v in h { s += v }\n for v in h { s = 0.5 * s + sin(v) }\n s", lambda x: folded(rising(x), 1.0 + sum(rising(x)), lambda s, v: 0.5 * s + sin(v)), True),
    "steps that do not yield": ("let h = for i in 0..6 { if sin(x * f64(i)) > 0.0 { yield x * f64(i) } }\n var s = 1.0\n for v in h { s = s * sin(v) + v }\n s", lambda x: folded([x * i for i in range(6) if sin(x * i) > 0], 1.0, lambda s, v: s * sin(v) + v), True),
    "break before it": (BREAK + "if t > 5.0 { break }\n yield t * x }\n var s = 1.0\n for (k, v) in enumerate(h) { s += f64(k + 1) * v^2 }\n s", lambda x: 1.0 + sum((k + 1) * v * v for k, v in enumerate(before(x, late=False))), True),
    "break after it": (BREAK + "yield t * x\n if t > 5.0 { break } }\n var s = 1.0\n for (k, v) in enumerate(reverse(h)) { s = 0.5 * s + f64(k + 1) * v^2 }\n s", lambda x: folded([(k + 1) * v * v for k, v in enumerate(before(x, late=True)[::-1])], 1.0, lambda s, v: 0.5 * s + v), True),
    "continue, and two at a time": ("var t = x\n let (a, b) = while t < 9.0 { t = t * 1.3\n if t > 2.0 and t < 3.5 { continue }\n yield (t, sin(t)) }\n var s = 0.0\n for (k, (u, v)) in enumerate(zip(a, b)) { s = 0.9 * s + u * v * f64(k) }\n s", lambda x: folded([t * sin(t) * k for k, t in enumerate(without_some(x))], 0.0, lambda s, v: 0.9 * s + v), True),
    "a history of a history": (RISING + "var c = 0.0\n let g = for v in reverse(h) { c = 0.5 * c + v\n if c > 6.0 { yield c * x } }\n var s = 0.0\n for v in g { s = 0.3 * s + v^2 }\n for v in reverse(g) { s = 0.3 * s + v }\n s", lambda x: folded([*[v * v for v in later(x)], *later(x)[::-1]], 0.0, lambda s, v: 0.3 * s + v), True),
    "a reader that is left": (RISING + "var s = 0.0\n for v in h { if v > 4.0 { break }\n s += v^2 }\n for v in reverse(h) { if v < 4.0 { break }\n s += sin(v) }\n s", lambda x: sum(v * v for v in until(rising(x), lambda v: v > 4)) + sum(map(sin, until(rising(x)[::-1], lambda v: v < 4))), True),
    "records of a run-time range": ("let n = i32(x * 4.0) + 1\n let h = for i in 0..n { if i == 2 { continue }\n yield P(a = x * f64(i), n = i) }\n var s = 0.0\n for p in h { s += p.a^2 * f64(p.n) }\n s + reduce(|s, p| s * 0.5 + p.a, 0.0, reverse(h))", lambda x: sum(a * a * k for a, k in some(x)) + folded([a for a, _ in some(x)][::-1], 0.0, lambda s, v: 0.5 * s + v), True),
    "arrays, inside a loop": ("var s = 0.0\n for i in 0..3 {\n var t = [x, 2.0 * x + f64(i)]\n let h = while t[0] < 9.0 { t = t * 1.5\n yield t }\n for v in reverse(h) { s = 0.5 * s + v[0] * sin(v[1]) }\n }\n s", lambda x: folded([u * sin(v) for i in range(3) for u, v in [(t, t / x * (2 * x + i)) for t in rising(x, 1.5)][::-1]], 0.0, lambda s, v: 0.5 * s + v), True),
    "a lambda reads it": (RISING + "let total = |k| { var z = 0.0\n for v in h { z += v^k }\n z }\n total(2.0) * total(x)", lambda x: sum(v * v for v in rising(x)) * sum(v**x for v in rising(x)), True),
    "a gradient in the reader": (RISING + "var s = x\n for v in h { s -= 0.01 * grad(|w| w^2 * sin(v))(s) }\n s", lambda x: folded(rising(x), x, lambda s, v: s - 0.02 * s * sin(v)), True),
    "a branch and a loop read it": (RISING + "var s = 0.0\n if x > 0.5 { for v in h { s += v^2 } }\n for i in 0..3 { for v in h { s += sin(v * f64(i)) } }\n s", lambda x: (x > 0.5) * sum(v * v for v in rising(x)) + sum(sin(v * i) for i in range(3) for v in rising(x)), False),
    "a while loop reads it": (RISING + "var (s, k) = (x, 0)\n while s < 50.0 { k += 1\n for v in reverse(h) { s += 0.1 * v * f64(k) + 0.01 * sin(s) } }\n s", lambda x: again_and_again(x), False),
    "a branch on a part of it": (RISING + "let g = for v in h { if v > 2.0 { yield v * x } }\n if x < 1.5 { var s = 0.0\n for v in reverse(g) { s = 0.5 * s + v^2 }\n s } else { x }", lambda x: folded([v * x for v in rising(x) if v > 2][::-1], 0.0, lambda s, v: 0.5 * s + v * v) if x < 1.5 else x, False),
    "a comprehension reads it": (RISING + "sum(for i in 0..3 => { var s = x * f64(i)\n for v in h { s = 0.3 * sin(s) + v }\n s })", lambda x: sum(folded(rising(x), x * i, lambda s, v: 0.3 * sin(s) + v) for i in range(3)), False),
    "made and read further in": ("var s = x\n for i in 0..2 { if s > 0.5 { var t = s\n let h = while t < 9.0 { t = t * 1.3\n yield t * x }\n for j in 0..2 { for v in h { s += 0.1 * sin(v) } } } }\n s", lambda x: made_further_in(x), False),
    "both sides yield: an array": ("let a = for i in 0..5 { if i % 2 == 0 { yield x * f64(i) } else { yield sin(x) } }\n sum(a^2) + a[3]", lambda x: 20 * x * x + 2 * sin(x) ** 2 + sin(x), True),
    "every case yields: an array": ("let a = for i in 0..5 { match i % 3 { 0 => { yield x }\n 1 => { yield x^2 }\n _ => { yield 1.0 } } }\n sum(a)", lambda x: 2 * x + 2 * x * x + 1, True),
}  # fmt: skip


@cache
def module(name: str) -> Any:
    body = PROGRAMS[name][0]
    return difflang.loads(
        f"""float f64
record P {{ a: f64, n: i32 }}
fn f(x: f64) -> f64 {{
 {body}
}}
fn back(x: f64) -> f64 = grad(f)(x)
fn ahead(x: f64) -> f64 = f'(x)
fn ahead_of_back(x: f64) -> f64 = hvp(f)(x, 1.0)
fn back_of_back(x: f64) -> f64 = grad(back)(x)
fn lanes(x: f64[3]) -> (f64[3], f64[3]) = (vmap(f)(x), vmap(back)(x))
""",
        name="histories",
    )


X = 1.1


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_derivatives(name: str) -> None:
    """Values, both modes against differences to fourth order, and the second order, interpreted."""
    program, twin = module(name), PROGRAMS[name][1]
    assert float(program.f.interpret(X)) == pytest.approx(twin(X), rel=1e-13)
    h = 1e-5
    slope = (8 * (twin(X + h) - twin(X - h)) - (twin(X + 2 * h) - twin(X - 2 * h))) / (12 * h)
    ahead, back = float(program.ahead.interpret(X)), float(program.back.interpret(X))
    assert ahead == pytest.approx(slope, rel=1e-8)
    assert back == pytest.approx(ahead, rel=1e-12)
    h = 1e-3
    bend = (-twin(X + 2 * h) + 16 * twin(X + h) - 30 * twin(X) + 16 * twin(X - h) - twin(X - 2 * h)) / (12 * h * h)
    ahead, back = (float(f.interpret(X)) for f in (program.ahead_of_back, program.back_of_back))
    assert ahead == pytest.approx(bend, rel=1e-5, abs=1e-5)
    assert back == pytest.approx(ahead, rel=1e-11)


@pytest.mark.parametrize(
    "name", ["from the end", "break after it", pytest.param("a history of a history", marks=pytest.mark.slow)]
)
@pytest.mark.nightly_cases("a history of a history")
def test_compiled_and_in_lanes(name: str) -> None:
    program = module(name)
    xs = np.array([X, 0.4, 2.3])
    for f in (program.f, program.back):
        assert float(f(X)) == pytest.approx(float(f.interpret(X)), rel=1e-12)
    for found, f in zip(program.lanes(xs), (program.f, program.back), strict=True):
        np.testing.assert_allclose(found, [float(f.interpret(x)) for x in xs], rtol=1e-12)


FURTHER_IN = [name for name, (_, _, beside) in PROGRAMS.items() if not beside]


@pytest.mark.parametrize("name", FURTHER_IN)
def test_a_reader_further_in_is_compiled_in_both_modes(name: str) -> None:
    """Reverse mode holds what the loop yields in arrays there."""
    program = module(name)
    for f in (program.f, program.ahead, program.back):
        assert float(f(X)) == pytest.approx(float(f.interpret(X)), rel=1e-12)


def test_the_second_order_and_lanes_of_a_reader_further_in() -> None:
    program = module(FURTHER_IN[0])
    for f in (program.ahead_of_back, program.back_of_back):
        assert float(f(X)) == pytest.approx(float(f.interpret(X)), rel=1e-11)
    xs = np.array([X, 0.4, 2.3])
    for found, f in zip(program.lanes(xs), (program.f, program.back), strict=True):
        np.testing.assert_allclose(found, [float(f.interpret(x)) for x in xs], rtol=1e-12)


@pytest.mark.parametrize(
    "loop", ["while k < n { k += 1\n yield x * f64(k) }", "for j in 0..n { yield x * f64(j + 1) }"]
)
def test_there_is_room_for_any_number_of_items(loop: str) -> None:
    """More than there is room for at first, twice over: the derivative is made anew, and what was printed stays once."""
    program: Any = difflang.loads(
        f"""float f64
fn f(x: f64, n: i32) -> f64 {{
  var k = 0
  let h = {loop}
  var s = 0.0
  for i in 0..2 {{ for v in h {{ s += v^2 }} }}
  s
}}
fn back(x: f64, n: i32) -> f64 = grad(f)(x, n)
""",
        name="room",
    )
    for n in (0, 1, 255, 256, 3000):
        want = 4 * 1.5 * n * (n + 1) * (2 * n + 1) / 6
        assert float(program.back(1.5, n)) == pytest.approx(want, rel=1e-13)
        assert float(program.back.interpret(1.5, n)) == pytest.approx(want, rel=1e-13)


def test_memory_for_items_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(capacity.MAX_CAPACITY, "items", 256)
    source = """fn f(x: f32, n: i32) -> f32 {
  let h = for j in 0..n { yield x * f32(j) }
  var s = 0.0
  for i in 0..2 { for v in h { s += v^2 } }
  s
}
"""
    program: Any = difflang.loads(source, name="end")
    assert float(program.f(1.0, 10_000)) > 0
    with pytest.raises(difflang.DifflangError, match="DL1006"):
        program.f.grad("x")(1.0, 10_000)


@pytest.mark.parametrize("value", ["0..i", "fold_in(k, i)", "(x, 0..i)"])
def test_what_no_array_holds(value: str) -> None:
    assert codes(f"fn f(k: key, x: f32) {{\n  for i in 0..3 {{ yield {value} }}\n}}\nprint(f(key(1), 1.0))\n") == [
        ("DL0313", 2)
    ]


def test_nothing_is_yielded() -> None:
    program: Any = difflang.loads(
        """fn f(x: f32[n], least: f32) -> (f32, i32) {
  let h = for v in x {
    if v < least { continue }
    yield v
  }
  var (s, count) = (0.0, 0)
  for v in reverse(h) {
    s = 0.5 * s + v
    count += 1
  }
  (s, count)
}
""",
        name="nothing",
    )
    for f in (program.f, program.f.interpret):
        for given, least, want in (([], 0.0, (0, 0)), ([1.0, 2.0], 3.0, (0, 0)), ([4.0, 1.0, 2.0], 1.5, (5.0, 2))):
            assert tuple(map(float, f(np.array(given, np.float32), least))) == want


def test_a_check_that_fails_on_the_way_is_reported() -> None:
    source = """fn f(x: f32[n], k: i32) -> f32 {
  var i = 0
  let h = while i < k {
    i += 1
    yield x[i]
  }
  var s = 0.0
  for v in h { s += v }
  s
}
"""
    program: Any = difflang.loads(source, name="checked")
    assert float(program.f(np.ones(4, np.float32), 3)) == 3.0
    for f in (program.f, program.f.interpret):
        with pytest.raises(difflang.IndexFailure, match="index 4 is out of range"):
            f(np.ones(4, np.float32), 7)
