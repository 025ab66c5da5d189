"""Optimizers differentiated through: the gradient of a loop whose steps take the gradient of a loop that data ends.

The oracle is forward mode, in itself where the order is higher, which saves nothing; and differences.
"""

# ruff: noqa: E501 - small programs stand in a row

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ops.loop import checkpoint_store

INNER = """
float f64
fn relaxed(w: f64, h: f64) -> f64 {
  var x = w
  while x * x > 0.1 { x -= h * sin(x) }
  x * x + x
}
fn counted(w: f64, h: f64, n: i32) -> f64 {
  var x = w
  for i in 0..n { x -= h * sin(x) }
  x * x + x
}
fn twofold(w: f64, h: f64) -> f64 {
  var x = w
  while x > 0.3 {
    var y = x
    while y > 0.5 { y -= h * sin(y) * x }
    x -= h * (y + 0.7)
  }
  x * x
}
"""
# Each takes the learning rate, with which everything moves.
TUNED = {
    "a counted loop": "var w = 1.3\nfor i in 0..4 { w -= h * grad[0](relaxed)(w, h) }\nw * w",
    "a while": "var w = 1.3\nwhile w > 0.3 { w -= h * grad[0](relaxed)(w, h) }\nw * w",
    "a length of the run": "var w = 1.3\nfor i in 0..n { w -= h * grad[0](counted)(w, h, i + 2) }\nw * w",
    "a comprehension": "sum([for w in [1.3, 0.9, 0.4] => grad[0](relaxed)(w, h)])",
    "lanes in a while": "var w = [1.3, 0.9, 1.7]\nwhile w[0] > 0.5 { w = [for v in w => v - h * grad[0](relaxed)(v, h)] }\ndot(w, w)",
    "a branch": "var w = 1.3\nfor i in 0..5 {\nif w > 0.5 { w -= h * grad[0](relaxed)(w, h) } else { w *= 1.05 }\n}\nw * w",
    "a while in a while": "var w = 1.3\nwhile w > 0.6 {\nvar u = w\nwhile u > 0.5 { u -= h * grad[0](relaxed)(u, h) }\nw -= h * (u + 1.0)\n}\nw * w",
    "the gradient of nested loops": "var w = 1.3\nwhile w > 0.4 { w -= h * grad[0](twofold)(w, h) + 0.1 }\nw * w",
    "a pullback": "let (y, pull) = vjp(|w: f64| relaxed(w, h))(1.3)\nvar s = h\nwhile s < 2.0 { s += sin(pull(s)) + 0.1 }\ns + y",
    "a pullback in lanes": "let (y, pull) = vjp(|w: f64| relaxed(w, h))(1.3)\nsum(vmap(|s: f64| sin(pull(s * h)))([1.0, 0.4])) + y",
    "a map turned round twice": "let (_, pull) = vjp(|w: f64| relaxed(w, h))(1.3)\ntranspose(linear |v: f64| 2 * transpose(pull)(v))(0.5)",
    "rows of a Jacobian": "sum(jacrev(|v: f64[2]| [relaxed(v[0], h) * v[1], relaxed(v[1], h)])([1.3, 0.8]))",
}  # fmt: skip


def module(body: str) -> Any:
    """`tuned`, its derivatives by reverse mode and by forward mode, to the second."""
    return difflang.loads(
        f"""{INNER}
fn tuned(h: f64, n: i32) -> f64 {{
{body}
}}
fn slope(h: f64, n: i32) -> f64 = grad[0](tuned)(h, n)
fn second(h: f64, n: i32) -> f64 = grad[0](slope)(h, n)
fn pushed(h: f64, n: i32) -> f64 {{
  let (_, d) = jvp(|t: f64| tuned(t, n))(h, 1.0)
  d
}}
fn twice(h: f64, n: i32) -> f64 {{
  let (_, d) = jvp(|t: f64| pushed(t, n))(h, 1.0)
  d
}}
""",
        name="tuned",
    )


@contextmanager
def tapes(slots: int, steps: int) -> Iterator[None]:
    """Tapes of that size: a few steps fill them many times."""
    with pytest.MonkeyPatch.context() as patch:
        for name, number in (("SLOTS", slots), ("INTERVAL", steps)):
            patch.setattr(checkpoint_store, f"MAX_{name}", number)
            patch.setattr(checkpoint_store, f"MIN_{name}", number)
        yield


QUICK = {"a counted loop", "a while", "a length of the run", "a branch", "a pullback", "a map turned round twice"}
EACH = [pytest.param(b, id=n, marks=() if n in QUICK else pytest.mark.nightly) for n, b in TUNED.items()]


@pytest.mark.parametrize("body", EACH)
def test_reverse_through_reverse_is_forward_through_reverse(body: str) -> None:
    m = module(body)
    slope = float(m.slope(0.11, 3))
    assert slope == pytest.approx(float(m.pushed(0.11, 3)), rel=1e-12)
    e = 1e-5  # no number of steps changes in between
    far, near, ahead, beyond = [float(m.tuned(0.11 + k * e, 3)) for k in (-2, -1, 1, 2)]
    assert slope == pytest.approx((far - beyond + 8 * (ahead - near)) / (12 * e), rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"), [*((n, (2, 1)) for n in sorted(QUICK)), ("a while", (4, 3)), ("a branch", (4, 3))]
)
@pytest.mark.nightly_except("a map turned round twice-size3", "a length of the run-size2")
def test_small_tapes_give_the_same(name: str, size: tuple[int, int]) -> None:
    with tapes(*size):
        m = module(TUNED[name])
        assert float(m.slope(0.03, 7)) == pytest.approx(float(m.pushed(0.03, 7)), rel=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a while", "a comprehension", "a pullback in lanes"])
@pytest.mark.nightly
def test_reverse_once_more(name: str) -> None:
    m = module(TUNED[name])
    assert float(m.second(0.11, 3)) == pytest.approx(float(m.twice(0.11, 3)), rel=1e-11)


LEARNED = """
float f64
# Ridge regression, solved by gradient steps until they are short; the penalty is learned by the error on other data.
fn fitted(p: f64, x: f64[n, k], y: f64[n]) -> f64[k] {
  var w = zeros(k)
  var g = ones(k)
  while dot(g, g) > 1e-4 {
    g = transpose(x) @ (x @ w - y) + exp(p) * w
    w -= 0.1 * g
  }
  w
}
fn held_out(p: f64, x: f64[n, k], y: f64[n], u: f64[m, k], v: f64[m]) -> f64 {
  let r = u @ fitted(p, x, y) - v
  dot(r, r)
}
fn learned(rate: f64, x: f64[n, k], y: f64[n], u: f64[m, k], v: f64[m]) -> f64 {
  var p = -1.0
  for i in 0..6 { p -= rate * grad[0](held_out)(p, x, y, u, v) }
  held_out(p, x, y, u, v)
}
"""


def test_what_a_learned_penalty_depends_on() -> None:
    """The gradient in every array, through six gradients of a solver: against the change along one direction each."""
    m: Any = difflang.loads(LEARNED, name="learned")
    rng = np.random.default_rng(3)
    x, u = rng.normal(size=(6, 3)) / 2, rng.normal(size=(4, 3))
    arguments = (0.05, x, x @ [1.0, -2.0, 0.5] + 0.1, u, u @ [0.8, -1.5, 0.2])
    slopes = m.learned.grad(0, 1, 2, 3, 4)(*arguments)
    pushed = m.learned.jvp(0, 1, 2, 3, 4)
    for place in range(5):
        ways = [rng.normal(size=np.shape(a)) * (i == place) for i, a in enumerate(arguments)]
        _, change = pushed(*arguments, *ways)
        assert float(np.sum(np.asarray(getattr(slopes, f"_{place}")) * ways[place])) == pytest.approx(
            float(change), rel=1e-10
        ), place


LONG = """
float f64
fn inner(w: f64, h: f64) -> f64 {
  var x = w
  while x > 0.9 * w { x -= h * x * w }
  x * x
}
fn long(h: f64, n: i32) -> f64 {
  var w = 1.0
  for i in 0..n { w += 0.001 * sin(w) - h * grad[0](inner)(w, 0.03) * w }
  w
}
"""


@pytest.mark.nightly
def test_one_program_for_any_number_of_steps() -> None:
    m: Any = difflang.loads(LONG, name="long")
    gradient = m.long.grad("h")
    most = 60_000
    for n in (0, 1, most):
        _, change = m.long.jvp("h")(0.0001, n, 1.0)
        assert float(gradient(0.0001, n)) == pytest.approx(float(change), rel=1e-10)
    program = gradient.lower("f64", "i32").compile()
    assert program.memory_analysis().temp_size_in_bytes < most * 8 * 3 // 4  # less than a number for each step
