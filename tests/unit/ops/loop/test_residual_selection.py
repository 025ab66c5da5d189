"""What a loop keeps for each step: the least from which the rest is computed again, and the same derivatives."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ad import derivative_cache
from difflang.ir.op import OPS
from difflang.ops.loop import loop_op, residual_selection

HEADER = "float f64\n"
BODIES = """
fn f(x0: f64[n, 3], v0: f64[n, 3], mass: f64[n]) -> f64 {
  var x = x0
  var v = v0
  for _ in 0..6 {
    x += 0.1 * v
    let apart = x[newaxis, .., ..] - x[.., newaxis, ..]
    let square = sum(apart^2, axis = 2) + 0.1
    v += 0.1 * sum((mass / (square * sqrt(square)))[.., .., newaxis] * apart, axis = 1)
  }
  sum(x * x)
}
"""
DECIDES = """
fn f(a: f64[n], b: f64) -> f64 {
  var x = a
  for k in 0..5 {
    let y = 2.0 * x - b
    x = if sum(y) > f64(k) { [for i => if y[i] > 0.0 { y[i] * b } else { 0.5 * y[i]^2 }] } else { floor(y) + max(y, x) }
  }
  sum(x * x)
}
"""
INVARIANT = """
fn f(a: f64[n], b: f64) -> f64 {
  var x = a
  for v in [0.5, 0.1, -0.3] {
    x = x * (b * a + v) / (1.0 + x^2) + exp(-x) * v
  }
  sum(x * x)
}
"""
CALLS = """
fn block(x: f64[n, k], w: f64[k]) -> f64[n, k] {
  let middle = mean(x, axis = -1, keepdims = true)
  let y = (x - middle) / sqrt(mean((x - middle)^2, axis = -1, keepdims = true) + 0.1) * w
  let score = where([for i in 0..n, j in 0..n => j <= i], gelu(y) @ transpose(x) / sqrt(f64(k)), -inf)
  y + softmax(score, axis = 1) @ sin(y)
}
fn f(x: f64[n, k], w: f64[k]) -> f64 = sum(block(block(block(x, w), w), w)^2)
"""
X, V, M = (np.random.default_rng(s).normal(size=(5, 3)) for s in (0, 1, 2))
ITEMS = """
fn f(a: f64[n], rows: f64[4, n]) -> f64 {
  var s = a
  var y = 2.0 * a
  for row in rows {
    y = y * (stop(s) * exp(row) * sin(row) * cos(row)) + (stop(s) * tanh(row) * exp(-row)) * y
    s = s + row
  }
  sum(y)
}
"""
PROGRAMS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "bodies": (BODIES, (X, V, np.abs(M[:, 0]))),
    "decides": (DECIDES, (np.array([0.6, -0.4, 1.3]), 0.8)),
    "invariant": (INVARIANT, (np.array([0.6, -0.4, 1.3]), 0.8)),
}


def kept(f: Any, *arguments: Any) -> list[str]:
    """The types of what the loop of a gradient gives for each step."""
    text = f.grad(0).ir("optimized", *arguments)
    (made,) = re.findall(r"^  (.*?) = loop .*reverse = false", text, re.MULTILINE)
    return sorted(re.findall(r"(\w+\[6, .*?\])", made))


def test_positions_are_kept_and_distances_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source, arguments = PROGRAMS["bodies"]
    assert kept(difflang.loads(HEADER + source, name="b").f, *arguments) == ["f64[6, 5, 3]"]
    monkeypatch.setattr(loop_op, "minimize_residuals", lambda lin, *_: lin)
    assert kept(difflang.loads(HEADER + source, name="b").f, *arguments).count("f64[6, 5, 5, 3]") > 1


DETERMINED = """
fn f(a: f64[n, 3]) -> f64 {
  var x = a
  var y = a
  for _ in 0..6 {
    x = sin(x * y) * x
    y = cos(y)
  }
  sum(x * y)
}
"""
LAYERS = """
fn f(a: f64[n, 3], w: f64[3, 3]) -> f64 {
  var x = a
  for _ in 0..6 { x = tanh(x @ w) }
  sum(x)
}
"""


def test_what_other_residuals_determine_is_not_kept() -> None:
    """`x`, `y` and `sin(x * y)`; the product, of which the cosine is the slope, is made again of both."""
    f = difflang.loads(HEADER + DETERMINED, name="d").f
    assert kept(f, X) == ["f64[6, 5, 3]"] * 3


def test_a_slope_that_only_the_derivative_reads_is_computed_there() -> None:
    f = difflang.loads(HEADER + LAYERS.replace("tanh", "sinh"), name="l").f
    assert where(f, "sinh", "cosh") == [(True, False), (False, True)]
    assert kept(f, X, np.eye(3)) == ["f64[6, 5, 3]"]


def test_a_slope_that_shares_its_work_is_made_with_the_function() -> None:
    """It is kept in place of the argument; where that is at hand for the derivative anyway, nothing is."""
    sines = LAYERS.replace("tanh", "sin")
    f = difflang.loads(HEADER + sines, name="l").f
    assert where(f, "sin", "cos") == [(True, True), (False, False)]
    assert kept(f, X, np.eye(3)) == ["f64[6, 5, 3]"]
    outer = sines.replace("sin(x @ w)", "x + w[0, 0] * sum(sin(x[.., newaxis, ..] + x[newaxis, ..]), axis = 1)")
    assert kept(difflang.loads(HEADER + outer, name="o").f, X, np.eye(3)) == ["f64[6, 5, 3]"]
    both = sines.replace("x = sin(x @ w)", "let (p, q) = (x @ w, x @ (w * w))\n  x = sin(p + q) + p * p * q + q * q")
    assert kept(difflang.loads(HEADER + both, name="b").f, X, np.eye(3)) == ["f64[6, 5, 3]"] * 2
    bent = difflang.loads(HEADER + sines.replace("sin(x @ w)", "x * w[0, 0] + sin(x)"), name="l").f
    assert where(bent, "sin", "cos") == [(True, False), (False, True)]
    assert kept(bent, X, np.eye(3)) == ["f64[6, 5, 3]"]


def test_an_argument_that_another_residual_is_made_of_is_kept() -> None:
    """`q` is had again of `x` and `v`, so the slope of `sin` in place of `x` would be one array more."""
    source = """
fn f(a: f64[n, 3], w: f64[3, 3]) -> f64 {
  var (x, v) = (a, a @ w)
  for _ in 0..6 {
    let q = x + v
    v = 0.1 * q * q + 0.1 * v * v
    x = sin(x)
  }
  sum(v)
}
"""
    f = difflang.loads(HEADER + source, name="q").f
    assert kept(f, X, np.eye(3)) == ["f64[6, 5, 3]"] * 2
    np.testing.assert_allclose(f.grad("a")(X, np.eye(3)), f.grad("a").interpret(X, np.eye(3)), rtol=1e-12)


def where(f: Any, *ops: str) -> list[tuple[bool, ...]]:
    """Which of these operations the loops of a gradient hold, there and back."""
    text = f.grad("w").ir("optimized", X, np.eye(3))
    return [tuple(op in loop for op in ops) for loop in re.findall(r" = loop .*?\n  }", text, re.DOTALL)]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("operator", ["grad", "hessian", "grad of grad"])
@pytest.mark.nightly_cases("hessian-.*")
def test_derivatives_are_those_with_everything_kept(name: str, operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, arguments = PROGRAMS[name]
    takes = "a: f64[n], b: f64" if name != "bodies" else "x: f64[n, 3], v: f64[n, 3], m: f64[n]"
    given = "(a, b)" if name != "bodies" else "(x, v, m)"
    first = given[1:].split(",")[0]
    asked = {
        "grad": f"grad(f){given}",
        "hessian": f"hessian(f){given}",
        "grad of grad": f"grad(|z| sum(grad(f)(z{given[given.index(',') : -1]})^2))({first})",
    }[operator]
    text = f"{HEADER}{source}fn g({takes}) = {asked}\n"
    thrifty: Any = difflang.loads(text, name="thrifty").g
    found, interpreted = thrifty(*arguments), thrifty.interpret(*arguments)
    monkeypatch.setattr(loop_op, "minimize_residuals", lambda lin, *_: lin)
    want = difflang.loads(text, name="lavish").g.interpret(*arguments)
    for value in (found, interpreted):
        np.testing.assert_allclose(value, want, rtol=1e-13, atol=1e-13)
    assert np.any(np.asarray(want) != 0)


def test_never_more_is_kept_than_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made of the items that a step reads is not at hand: each would be an array of its own."""
    made: list[tuple[int, int]] = []

    def spied(lin: Any, *at_hand: Any) -> Any:
        found = residual_selection.minimize_residuals(lin, *at_hand)
        made.append((residual_selection.total_bytes(found.made), residual_selection.total_bytes(lin.made)))
        return found

    monkeypatch.setattr(loop_op, "minimize_residuals", spied)
    for source, arguments in [*PROGRAMS.values(), (ITEMS, (np.arange(3.0), np.ones((4, 3))))]:
        difflang.loads(HEADER + source, name="spied").f.grad(0)(*arguments)
    assert made
    assert all(after <= before for after, before in made)


def test_what_jumps_or_decides_is_kept() -> None:
    """A truth, an integer or a whole number computed again might fall on the other side of a rounding."""
    assert not [op.name for op in OPS.values() if "cheap" in op.traits and op.inactive]


UNUSED = {
    "counted": "fn f(x: f64, v: f64[k], n: i32) -> f64 {\n var s = x\n for _ in 0..n { s = s * s * sqrt(x) }\n s\n}",
    "while": "fn f(x: f64, v: f64[k], n: i32) -> f64 {\n var s = x\n var i = 0\n"
    " while i < n { s = s * s * sqrt(x)\n i += 1 }\n s\n}",
    "left": "fn f(x: f64, v: f64[k], n: i32) -> f64 {\n var s = x\n"
    " for i in 0..3 { if i >= n { break }\n s = s * s * sqrt(x) }\n s\n}",
    "of no length": "fn f(x: f64, v: f64[k], n: i32) -> f64 {\n var s = x\n for u in v { s = u * s * sqrt(x) }\n s\n}",
    "lanes": "fn f(x: f64, v: f64[k], n: i32) -> f64 = x + sum([for u in v => u * sqrt(x)])",
}
ORDERS = """
fn second(x: f64, v: f64[k], n: i32) -> f64 = grad(grad(f))(x, v, n)
fn third(x: f64, v: f64[k], n: i32) -> f64 = grad(grad(grad(f)))(x, v, n)
fn over(x: f64, v: f64[k], n: i32) -> f64 = hvp(f)(x, v, n, 1.0)
fn under(x: f64, v: f64[k], n: i32) -> f64 = grad(|x| { let (y, dy) = jvp(f)(x, v, n, 1.0)
  dy })(x)
"""


@pytest.mark.parametrize("name", UNUSED)
@pytest.mark.nightly_cases("counted|while")
def test_what_no_step_computes_has_no_slope(name: str) -> None:
    """Outside the loop the square root of 0 would be differentiated though nothing needs it."""
    module: Any = difflang.loads(HEADER + UNUSED[name] + ORDERS, name="unused")
    for f in (module.second, module.third, module.over, module.under):
        for engine in (f, f.interpret):
            assert float(engine(0.0, np.zeros(0), 0)) == 0.0, f


def test_what_each_step_computes_alike_is_still_computed_once() -> None:
    """In the loop of a gradient that may take no step there is no inverse, and none is kept."""
    source = """fn f(x: f64[n], a: f64[n, n], steps: i32) -> f64 {
      var s = x
      for _ in 0..steps { s = sin(inv(a * a) @ s) }
      sum(s)
    }"""
    f: Any = difflang.loads(HEADER + source, name="inverse").f
    text = f.grad("a").ir("optimized", np.ones(3), np.eye(3), np.int32(2))
    assert len(re.findall(r"^  \S.* = solve .*transposed = false", text, re.MULTILINE)) == 1
    assert not re.findall(r"^    .* = solve .*transposed = false", text, re.MULTILINE)


def test_calls_write_nothing_down_that_repeats_or_that_only_the_tangent_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, Any]] = []

    def spied(lin: Any) -> Any:
        made.append((lin, residual_selection.trim_residuals(lin)))
        return made[-1][1]

    x, w = np.random.default_rng(3).normal(size=(30, 70)), np.linspace(0.5, 1.5, 70)
    asked = {"first": "grad(f)(x, w)", "second": "grad(|z| sum(grad(f)(z, w)^2))(x)"}
    source = HEADER + CALLS + "".join(
        f"fn {name}(x: f64[n, k], w: f64[k]) -> f64[n, k] = {text}\n" for name, text in asked.items()
    )  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(derivative_cache, "trim_residuals", lambda lin: lin)
        lavish: Any = difflang.loads(source, name="lavish")
        want = {name: np.asarray(getattr(lavish, name).interpret(x, w)) for name in asked}
    monkeypatch.setattr(derivative_cache, "trim_residuals", spied)
    thrifty: Any = difflang.loads(source, name="thrifty")
    for name in asked:
        found = getattr(thrifty, name)
        np.testing.assert_allclose(found.interpret(x, w), want[name], rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(thrifty.first(x, w), want["first"], rtol=1e-9, atol=1e-9)
    lin, found = made[0]
    maker = {r: eqn.op.name for eqn in found.primal.eqns for r in eqn.results}
    assert not {"broadcast", "gelu_slope", "neg", "cos"} & {maker[r] for r in found.made}
    assert residual_selection.total_bytes(found.made) < 0.7 * residual_selection.total_bytes(lin.made)
    assert all(
        residual_selection.total_bytes(b.residuals)
        <= residual_selection.SIZE_SLACK * residual_selection.total_bytes(a.residuals)
        for a, b in made
    )


def test_what_is_pulled_through_again_and_again_computes_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(lin: Any) -> Any:
        raise AssertionError("a linear map as a value reads what was computed")

    head = "fn g(x: f64[n, k], w: f64[k]) -> f64[n, k] {\n"
    text = head + "  let (y, pull) = vjp(|z| f(z, w))(x)\n  pull(1.0 + 0.0 * y)\n}\n"
    program: Any = difflang.loads(HEADER + CALLS + text, name="often")
    x, w = np.random.default_rng(3).normal(size=(30, 70)), np.linspace(0.5, 1.5, 70)
    want = program.f.grad(0).interpret(x, w)
    monkeypatch.setattr(derivative_cache, "trim_residuals", never)
    np.testing.assert_allclose(program.g.interpret(x, w), want, rtol=1e-12, atol=1e-12)


def test_stages_are_recomputed_from_the_state() -> None:
    source = """
fn rate(x: f64[n], y: f64[n]) -> f64[n] where n > 0 = x * concat([1.0], y[..n - 1])
fn f(x: f64[n]) -> f64 where n > 0 {
  var y = zeros(n)
  for _ in 0..40 {
    let a = rate(x, y)
    let b = rate(x, y + 0.5 * a)
    let c = rate(x, y + 0.5 * b)
    y += 0.1 * (a + 2.0 * b + c)
  }
  sum(y)
}
"""
    gradient, x = difflang.loads(HEADER + source).f.grad("x"), np.linspace(0.1, 0.9, 30)
    assert len(set(re.findall(r"%\d+(?=: f64\[40, )", gradient.ir("optimized", x)))) == 1
    step = 1e-6 * np.eye(30)[3]
    f = difflang.loads(HEADER + source).f
    slope = (f.interpret(x + step) - f.interpret(x - step)) / 2e-6
    np.testing.assert_allclose(gradient.interpret(x)[3], slope, rtol=1e-7)
