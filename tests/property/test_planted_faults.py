"""Each of several independent mistakes, in separate functions or statements, is reported once."""

from __future__ import annotations

import random

import pytest

from difflang.base.source import Source
from difflang.driver.checked_program import check_program

# A program's pieces: right, and wrong in one place. `§` is a number that makes names different.
PIECES = (
    (
        "fn f§(x: f32[n]) -> f32 {\n  let y = x * 2\n  sum(y) + y[0]\n}",
        "fn f§(x: f32[n]) -> f32 {\n  let y = z * 2\n  sum(y) + y[0]\n}",
    ),
    (
        "fn g§(x: f32[n], y: f32[n]) -> f32[n] = x + y",
        "fn g§(x: f32[n], y: f32[m]) -> f32[n] = x + y",
    ),
    (
        "fn h§(w: f32[h, d], x: f32[d]) -> f32[h] = w @ x",
        "fn h§(w: f32[h, d], x: f32[k]) -> f32[h] = w @ x",
    ),
    (
        "let a§ = 1.0\nlet b§ = a§ * 2",
        "let a§ = exp(1.0, 2.0)\nlet b§ = a§ * 2",
    ),
    (
        "var v§ = 1.0\nv§ += 1.0\nprint(v§)",
        "let v§ = 1.0\nv§ += 1.0\nprint(v§)",
    ),
    (
        "record R§ { x: f32 }\nfn r§(p: R§) -> f32 = p.x * p.x",
        "record R§ { x: f32 }\nfn r§(p: R§) -> f32 = p.xx * p.x",
    ),
    (
        "fn c§(x: f32) -> f32 = if x > 0 { x } else { 0.0 }",
        "fn c§(x: f32) -> f32 = if x { x } else { 0.0 }",
    ),
    (
        "fn s§(x: f32[n]) -> f32 {\n  var t = 0.0\n  for i in 0..n { t += x[i] }\n  t\n}",
        "fn s§(x: f32[n]) -> f32 {\n  var t = 0.0\n  for i in n { t += x[i] }\n  t\n}",
    ),
    (
        "fn m§(x: f32[n]) -> f32 = sum(x) / f32(n)\nprint(m§([1.0, 2.0]))",
        "fn m§(x: f32[n]) -> f32 = sum(x) / n\nprint(m§([1.0, 2.0]))",
    ),
    (
        "fn d§(x: f32[n]) -> f32 = sum(x * x)\nprint(grad(d§)([1.0]))",
        "fn d§(x: f32[n]) -> f32 = sum(x * x)\nprint(grad[z](d§)([1.0]))",
    ),
    (
        "let i§ = [1.0, 2.0]\nprint(i§[1])",
        "let i§ = [1.0, 2.0]\nprint(i§[2])",
    ),
)


@pytest.mark.parametrize("count", range(6))
def test_as_many_reports_as_mistakes(count: int) -> None:
    rng = random.Random(count)
    for _ in range(40):
        wrong = set(rng.sample(range(10), count))
        text = "".join(rng.choice(PIECES)[i in wrong].replace("§", str(i)) + "\n" for i in range(10))
        found = check_program(Source("planted", text)).diagnostics
        assert len(found) == count, text
