"""Sums of contractions leave the loops of derivatives where what is kept for that is no larger than they are."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import difflang

HEADER = "float f64\n"
NETWORK = """
fn f(w: f64[h, h], x0: f64[b, h], seen: f64[5, b, h]) -> f64 {
  var x = x0
  for goal in seen { x = tanh(x @ w) + 0.1 * goal }
  sum(x^2)
}
"""
TWICE = """
fn f(w: f64[h, h], x0: f64[b, h], seen: f64[5, b, h]) -> f64 {
  var x = x0
  for goal in seen { x = tanh(tanh(x @ w) @ transpose(w) + goal) + 0.01 * sum(w) }
  sum(x^2)
}
"""
STACKED = """
fn f(w: f64[h, h], x0: f64[b, h], seen: f64[5, b, h]) -> f64 {
  let ws = stack([w, 2.0 * w])
  var x = stack([x0, -x0])
  for goal in seen { x = tanh(x @ ws) * (goal @ w)[newaxis, .., ..] }
  sum(x^2)
}
"""
ONE_ROW = """
fn f(w: f64[h, h], x0: f64[b, h], seen: f64[5, b, h]) -> f64 {
  var x = x0[0]
  for goal in seen { x = sin(w @ x) + goal[0] }
  sum(x^2)
}
"""
NESTED = """
fn f(w: f64[h, h], x0: f64[b, h], seen: f64[5, b, h]) -> f64 {
  var x = x0
  for goal in seen {
    for k in 0..3 { x = tanh(x @ w + f64(k)) }
    x = x * goal
  }
  sum(x^2)
}
"""
CHECKPOINTED = """
fn f(w: f64[h, h], x0: f64[b, h], seen: f64[5, b, h]) -> f64 {
  var x = x0[0]
  @checkpoint(revolve, slots = 2)
  for goal in seen { x = tanh(w @ x + goal[0]) }
  sum(x^2)
}
"""
PROGRAMS = {
    "network": NETWORK, "twice": TWICE, "stacked": STACKED, "one row": ONE_ROW, "nested": NESTED,
    "checkpointed": CHECKPOINTED,
}  # fmt: skip
draw = np.random.default_rng(0).normal
ARGUMENTS = (draw(size=(4, 4)), draw(size=(3, 4)), draw(size=(5, 3, 4)))


def loops(text: str) -> list[str]:
    """The bodies of the loops in reverse of a graph's text."""
    return re.findall(r"^  \S[^\n]* = loop [^\n]*reverse = true.*?^  }", text, re.MULTILINE | re.DOTALL)


def contracted(text: str) -> list[str]:
    """The types of the contractions outside loops."""
    return re.findall(r"^  %\w+: (\S+ ?\S*\]) = dot_general", text, re.MULTILINE)


def test_the_cotangent_of_a_matrix_is_one_contraction() -> None:
    text = difflang.loads(HEADER + NETWORK, name="n").f.grad(0).ir("optimized", *ARGUMENTS)
    (reverse,) = loops(text)
    assert len(re.findall("dot_general", reverse)) == 1  # what goes on to the step before
    assert contracted(text) == ["f64[4, 4]"]
    assert "contract = ((0, 1), (0, 1))" in text


def test_a_cotangent_larger_than_the_sum_is_not_kept() -> None:
    arguments = (ARGUMENTS[0], draw(size=(9, 4)), draw(size=(5, 9, 4)))
    text = difflang.loads(HEADER + NETWORK, name="n").f.grad(0).ir("optimized", *arguments)
    (reverse,) = loops(text)
    assert len(re.findall("dot_general", reverse)) == 2
    assert not contracted(text)


def test_what_a_program_adds_up_is_left_to_other_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("difflang.passes.pipelines.LEFT_OUT", {"loops_to_maps"})
    source = "fn f(a: f64[5, k], b: f64[5, k]) -> f64 {\n var s = 0.0\n for i in 0..5 { s += a[i] @ b[i] }\n s\n}"
    module: Any = difflang.loads(HEADER + source, name="n")
    text = module.f.ir("optimized", draw(size=(5, 3)), draw(size=(5, 3)))
    assert not contracted(text)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("operator", ["grad(f)", "hessian(f)", "grad(|w, x, s| sum(grad(f)(w, x, s)^2))"])
def test_derivatives_are_those_of_sums_step_by_step(name: str, operator: str) -> None:
    takes = "(w: f64[h, h], x0: f64[b, h], seen: f64[5, b, h])"
    text = f"{HEADER}{PROGRAMS[name]}fn g{takes} = {operator}(w, x0, seen)\n"
    later: Any = difflang.loads(text, name="later").g
    want = later.interpret(*ARGUMENTS)
    np.testing.assert_allclose(later(*ARGUMENTS), want, rtol=1e-12, atol=1e-12)
    assert np.any(np.asarray(want) != 0)


def test_a_loop_of_no_known_length_keeps_its_sums() -> None:
    source = """fn f(w: f64[h, h], x: f64[b, h], n: i32) -> f64 {
      var y = x
      for _ in 0..n { y = tanh(y @ w) }
      sum(y)
    }"""
    f: Any = difflang.loads(HEADER + source, name="n").f
    text = f.grad(0).ir("optimized", ARGUMENTS[0], ARGUMENTS[1], np.int32(3))
    assert not contracted(text)
