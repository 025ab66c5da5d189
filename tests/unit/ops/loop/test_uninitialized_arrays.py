"""The arrays that a loop's steps write: none is copied at first, and what they hold before is never read."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ir.tensor_types import Tensor
from difflang.ops.loop import loop_execution

SOURCE = """float f64
fn f(x: f64[n], y: f64[n]) -> f64 {
  var a = x
  var b = y
  for _ in 0..50 { (a, b) = (sin(a * b), tanh(a + b)) }
  sum(a * b)
}
"""
X, Y = np.linspace(0.1, 0.9, 32), np.linspace(0.5, 1.5, 32)


def histories_copied(f: Any) -> int:
    text = f.lower("f64[32]", "f64[32]").compile().as_text()
    return len(re.findall(r"f64\[50,32\]\S* copy\(", text))


def test_no_array_of_a_loop_of_known_length_begins_as_a_copy_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert histories_copied(difflang.loads(SOURCE, name="b").f.grad(0)) == 0
    monkeypatch.setattr(loop_execution, "initial_fill", lambda type, number: np.zeros((), np.float64))
    assert histories_copied(difflang.loads(SOURCE, name="c").f.grad(0)) > 0, "arrays that begin alike are copied"


def test_what_it_holds_before_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    want = difflang.loads(SOURCE, name="b").f.grad(0)(X, Y)

    def poisoned(type: Tensor, number: int) -> Any:
        return np.full((), np.nan)

    monkeypatch.setattr(loop_execution, "initial_fill", poisoned)
    found = difflang.loads(SOURCE, name="c").f.grad(0)(X, Y)
    np.testing.assert_array_equal(found, want)


def test_beyond_the_last_step_there_are_zeros() -> None:
    source = """float f64
    fn f(x: f64[n], k: f64) -> f64 {
      var s = 1.0
      for v in x {
        if s > k { break }
        s += v * s
      }
      s
    }"""
    f: Any = difflang.loads(source, name="b").f
    np.testing.assert_allclose(f.grad(0)(np.ones(6), 3.0), [2.0, 2.0, 0.0, 0.0, 0.0, 0.0])
