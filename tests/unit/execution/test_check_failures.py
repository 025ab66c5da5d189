"""A check of the library that fails names the user's call that led to it, which of several as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.base.errors import DifflangError
from difflang.execution import check_failures

WAYS = """
import interp (linear_interp)
import ode (euler, rk4)
import roots (bisect)

fn at(x: f64, last: f64) -> f64 = sum(linear_interp([x], [0.0, 1.0, last], [1.0, 2.0, 3.0]))
fn straight(x: f64) -> f64 = at(x, 2.0) + sum(linear_interp([x], [0.0, x, x], [1.0, 2.0, 3.0]))
fn inside(x: f64) -> f64 {
  var total = 0.0
  for i in 0..3 {
    total += if i < 2 { at(x, 2.0) } else { sum(linear_interp([x], [0.0, 0.0, x], [1.0, 2.0, 3.0])) }
  }
  total
}
fn lanes(x: f64) -> f64 {
  let first = [for i in 0..3 => at(x, 2.0 + f64(i))]
  let then = [for i in 0..3 => sum(linear_interp([x], [0.0, f64(i), 2.0], [1.0, 2.0, 3.0]))]
  sum(first) + sum(then)
}
fn ruled(x: f64) -> f64 {
  let found = bisect(|t| t^3 - x, f64(-2.0), 2.0)
  found + bisect(|t| t^2 + x, f64(-2.0), 2.0)
}
fn down(x: f64, k: i32) -> f64 {
  if k == 0 { return sum(linear_interp([x], [1.0, 0.0], [1.0, 2.0])) }
  x * down(x, k - 1)
}
fn within(x: f64, k: i32, m: i32) -> f64 =
  euler(|t, y| rk4(|t, z| -z, y, x, x + 1.0, steps = k), x, x, x + 1.0, steps = m)
fn one_only(x: f64) -> f64 = 2.0 * sum(linear_interp([x], [1.0, 0.0], [1.0, 2.0]))
"""
PLACES = {
    "straight": "linear_interp([x], [0.0, x, x]",
    "inside": "linear_interp([x], [0.0, 0.0, x]",
    "lanes": "linear_interp([x], [0.0, f64(i), 2.0]",
    "ruled": "bisect(|t| t^2",
    "down": "linear_interp([x], [1.0, 0.0]",
    "one_only": "linear_interp([x], [1.0, 0.0]",
}


def blamed(run: Any, *args: Any) -> list[str]:
    """The text under each label of the error that a run ends with."""
    with pytest.raises(DifflangError) as caught:
        run(*args)
    (found,) = caught.value.diagnostics
    assert found.labels[0].span.in_library
    assert all(label.text == "called here" for label in found.labels[1:])
    return [label.span.text for label in found.labels[1:]]


@pytest.mark.parametrize("name", PLACES)
def test_the_call_that_failed_is_shown(name: str) -> None:
    m: Any = difflang.loads(WAYS, name="ways")
    f, args = getattr(m, name), (0.5, 2) if name == "down" else (0.5,)
    for run in (f, f.interpret, f.grad("x"), f.grad("x").interpret):
        (call,) = blamed(run, *args)
        assert call.startswith(PLACES[name]), run


@pytest.mark.parametrize(("steps", "call"), [((0, 10), "rk4("), ((10, 0), "euler(")])
def test_a_call_within_what_another_calls_is_shown_itself(steps: tuple[int, int], call: str) -> None:
    m: Any = difflang.loads(WAYS, name="ways")
    for run in (m.within, m.within.interpret, m.within.grad("x")):
        (found,) = blamed(run, 0.5, *steps)
        assert found.startswith(call), run


def test_a_call_that_was_written_out_lays_the_blame_on_no_other() -> None:
    """What `vjp` is asked for is written out where it stands, and so is the check, beside a call that is right."""
    source = """import math (gammainc)
fn f(a: f64) -> f64 = gammainc(a, a) + { let (y, _) = vjp(|x| gammainc(a - 9.0, x))(a)
  y }
"""
    m: Any = difflang.loads(source, name="beside")
    assert blamed(m.f, 5.0) == blamed(m.f.interpret, 5.0) == []


def test_a_folder_of_the_user_s_is_not_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("stdlib").mkdir()
    Path("stdlib/mine.dfl").write_text("import roots (bisect)\nfn f(x: f64) -> f64 = bisect(|t| t - x, x + 1, x + 2)\n")
    m: Any = difflang.load("stdlib/mine.dfl")
    (call,) = blamed(m.f, 0.5)
    assert call.startswith("bisect(")


def test_of_too_many_calls_none_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_failures, "MAX_CALL_SITES", 1)
    m: Any = difflang.loads(WAYS, name="ways")
    assert blamed(m.straight, 0.5) == []
    assert len(blamed(m.one_only, 0.5)) == 1


def test_a_check_of_the_user_s_own_shows_its_line_alone() -> None:
    m: Any = difflang.loads(
        "fn f(x: f64[n], i: i32) -> f64 = x[i]\nfn g(x: f64[n]) -> f64 = f(x, 0) + f(x, 7)", name="g"
    )
    with pytest.raises(DifflangError) as caught:
        m.g(np.ones(3))
    assert len(caught.value.diagnostics[0].labels) == 1
