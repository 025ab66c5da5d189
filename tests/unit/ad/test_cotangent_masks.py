"""What a choice leaves out contributes exactly nothing in reverse mode, whatever stands between it and an Inf.

The square root at 0 has an infinite slope there. Forward mode drops the tangent of what is not chosen; in reverse the
cotangent of zero must not meet the slope, past moves, sums, loops, branches, maps and calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import difflang
import difflang.ad.transpose
from difflang.ad.derivative_cache import DerivativeCache
from difflang.gradcheck.op_calls import calls_of
from difflang.ir.graph import Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import Op
from difflang.ir.tensor_types import C128, F64
from difflang.ops.ad_interface import Cotangent, choice_type
from support.op_calls import DIFFERENTIABLE

# Each is a body of `f(x: f64[3]) -> f64`, at a point with a 0 in it.
X = np.array([0.25, 4.0, 0.0])
BODIES = {
    "an element": "sum(where(x > 0.0, sqrt(x), 0.0))",
    "reversed": "sum(where(reverse(x) > 0.0, reverse(sqrt(x)), 0.0))",
    "a part": "sum(where(x[1..] > 0.0, sqrt(x)[1..], 0.0))",
    "two parts": "let y = sqrt(x)\n where(x[2] > 0.0, y[2], 0.0) + sum(where(x[..2] > 0.0, y[..2], 0.0))",
    "parts that overlap": "let y = sqrt(x)\n sum(where(x[1..] > 0.0, y[1..], 0.0)) + where(x[2] > 0.0, y[2], y[0])",
    "steps": "sum(where(x[0.. by 2] > 0.0, sqrt(x)[0.. by 2], 0.0))",
    "in a row": "let y = concat(x, x)\n sum(where(y > 0.0, concat(sqrt(x), sqrt(x)), 0.0))",
    "another shape": "let y = reshape(x, [1, 3])\n sum(where(y > 0.0, reshape(sqrt(x), [1, 3]), 0.0))",
    "turned axes": "let y = reshape(x, [1, 3])\n sum(where(transpose(y) > 0.0, transpose(sqrt(y)), 0.0))",
    "in a frame": "sum(where(pad(x, 1, 2) > 0.0, pad(sqrt(x), 1, 2), 0.0))",
    "the frame": "sum(where(x[2] > 0.0, pad(x, 1, 2, value = sqrt(x[2])), zeros(6)))",
    "one place": "where(x[2] > 0.0, sqrt(x)[2], 0.0)",
    "a place of the run": "let k = argmin(x)\n where(x[k] > 0.0, sqrt(x)[k], 0.0)",
    "places": "let p = [2, 1, 0, 2]\n sum(where(x[p] > 0.0, sqrt(x)[p], 0.0))",
    "spread": "sum(where(x[2] > 0.0, fill(3, sqrt(x[2])), x))",
    "summed": "where(min(x) > 0.0, sum(sqrt(x)), 0.0)",
    "summed along an axis": "sum(where(x > 0.0, sum(stack(sqrt(x), sqrt(x), axis = 1), axis = 1), 0.0))",
    "multiplied": "where(min(x) > 0.0, prod(sqrt(x)), 0.0)",
    "running": "sum(where(min(x) > 0.0, cumsum(sqrt(x)), x))",
    "sorted": "sum(where(sort(x) > 0.0, sort(sqrt(x)), 0.0))",
    "a norm": "where(min(x) > 0.0, norm(sqrt(x)), 0.0)",
    "logarithms": "where(min(x) > 0.0, logsumexp(log(x)), 0.0)",
    "a product of vectors": "where(min(x) > 0.0, dot(sqrt(x), x), x[0])",
    "rows of a product": "let a = reshape(sqrt(x), [3, 1]) @ reshape([1.0, 2.0], [1, 2])\n"
    " sum(where(x[.., newaxis] > 0.0, a, 0.0))",
    "a convolution": "let y = reshape(sqrt(x), [1, 3, 1])\n"
    " where(min(x) > 0.0, sum(conv1d(y, reshape(x[..2], [2, 1, 1]))), 0.0)",
    "a solution": "where(min(x) > 0.0, sum(solve(eye(3) + outer(x, x), sqrt(x))), x[1])",
    "a solver's right-hand side": "let y = stepped(linear |v| 2.0 * v, sqrt(x))\n where(min(x) > 0.0, sum(y), x[0])",
    "a solver's map": "let r = sqrt(x)\n where(min(x) > 0.0, sum(stepped(linear |v| (2.0 + r) * v, x)), x[0])",
    "a masked softmax": "sum(softmax(where(x > 0.0, sqrt(x), -inf)) * x)",
    "the greatest": "max(reverse(sqrt(x)))",
    "the greater": "sum(max(reverse(sqrt(x)), 0.1))",
    "clamped": "sum(clamp(reverse(sqrt(x)), 0.1, 10.0))",
    "rectified": "sum(relu(reverse(sqrt(x)) - 0.5))",
    "written": "var a = x\n a[0] = sqrt(x[2])\n where(min(x) > 0.0, a[0], x[1])",
    "the greatest written": "var m = fill(2, 0.1)\n for i in 0..3 { m[i % 2] max= sqrt(x[i]) }\n sum(m)",
    "a comprehension": "sum(where(x > 0.0, [for i => sqrt(x[i])], 0.0))",
    "a comprehension's loop": "sum(where(x > 0.0, [for v in x => twice_rooted(v)], 0.0))",
    "a filter": "let y = sqrt(x)\n sum(for i if x[i] > 0.0 => y[i])",
    "a product's filter": "let y = sqrt(x)\n prod(for i if x[i] > 0.0 => y[i])",
    "a loop": "var s = 0.0\n for v in x { s += sqrt(v) }\n where(min(x) > 0.0, s, 0.0)",
    "a loop's outputs": "let y = for v in x { yield sqrt(v) }\n sum(where(x > 0.0, y, 0.0))",
    "a loop's running outputs": "var t = 1.0\n let y = for v in x { t *= sqrt(v)\n yield t }\n"
    " sum(where(x > 0.0, y, 0.0))",
    "a step forgets": "var s = x[2]\n for i in 0..3 { s = if i == 1 { 2.0 + x[0] } else { sqrt(s) } }\n s",
    "a step of arrays forgets": "var s = x\n for i in 0..3 { s = where(i == 1, 2.0 + x, sqrt(s)) }\n sum(s)",
    "a loop that only the run ends": "var s = 0.0\n var i = 0\n while i < 3 { s += sqrt(x[i])\n i += 1 }\n"
    " where(min(x) > 0.0, s, 0.0)",
    "a step of it forgets": "var s = x[2]\n var i = 0\n"
    " while i < 3 { s = if i == 1 { 2.0 + x[0] } else { sqrt(s) }\n i += 1 }\n s",
    "a function": "where(min(x) > 0.0, sum([for v in x => twice_rooted(v)]), 0.0)",
    "a branch": "let s = sqrt(x)\n if min(x) > 0.0 { sum(s) } else { x[0] }",
    "both branches": "let s = sqrt(x[2])\n let t = sqrt(x[0])\n if x[2] > 0.0 { s * t } else { t * t }",
    "a branch in lanes": "let s = sqrt(x)\n sum(for i => if x[i] > 0.0 { s[i] } else { 0.0 })",
    "a branch in a choice": "where(min(x) > 0.0, if x[0] > 100.0 { 0.0 } else { sum(sqrt(x)) }, 0.0)",
    "a branch in a loop": "let s = sqrt(x)\n var t = 0.0\n for i in 0..3 { if x[i] > 0.0 { t += s[i]^3 } }\n t",
    "a loop that is left": "let s = sqrt(x)\n var t = 0.0\n for i in 0..3 { if x[i] == 0.0 { break }\n t += s[i] }\n t",
    "a step that is left": "let s = sqrt(x)\n var t = 0.0\n"
    " for i in 0..3 { if x[i] == 0.0 { continue }\n t += s[i] }\n t",
    "a function that is left": "let s = sqrt(x)\n if x[2] == 0.0 { return x[0] * x[1] }\n sum(s)",
    "a derivative": "let g = grad(|v| sum(where(v > 0.0, reverse(v^1.5), 0.0)))(x)\n sum(where(x > 0.0, g, x))",
    "a pullback": "let (y, pull) = vjp(sqrt)(x)\n sum(where(reverse(x) > 0.0, reverse(y), 0.0))",
}  # fmt: skip
HEADER = """float f64
fn twice_rooted(v: f64) -> f64 {
  var y = v
  for i in 0..2 { y = sqrt(y) }
  y
}
fn stepped(A: f64[n] -o f64[n], b: f64[n]) -> f64[n] {
  var x = zeros_like(b)
  for _ in 0..4 { x += 0.1 * (b - A(x)) }
  x
}
@unchecked rule stepped(A, b) by linear_solve A
"""


def source(name: str, body: str) -> str:
    return f"fn {name}(x: f64[3]) -> f64 {{\n {body}\n}}\n"


def slopes(push: Callable[..., Any]) -> np.ndarray[Any, Any]:
    """The derivative, direction by direction."""
    return np.array([float(push(X, np.eye(3)[i])[1]) for i in range(3)])


def agree(found: Any, want: np.ndarray[Any, Any]) -> bool:
    return bool(np.isfinite(want).all()) and np.allclose(found, want, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("name", BODIES)
def test_what_is_not_chosen_contributes_nothing(name: str) -> None:
    f = difflang.loads(HEADER + source("f", BODIES[name]), name="choices").f
    want = slopes(f.jvp("x").interpret)
    assert agree(f.grad("x").interpret(X), want), want


def test_compiled_it_is_the_same() -> None:
    functions = "".join(source(f"f{i}", body) for i, body in enumerate(BODIES.values()))
    gradients = ", ".join(f"grad(f{i})(x)" for i in range(len(BODIES)))
    module = difflang.loads(f"{HEADER}{functions}fn all(x: f64[3]) = ({gradients})\n", name="choices")
    for i, found in enumerate(module.all(X)):
        want = slopes(getattr(module, f"f{i}").jvp("x").interpret)
        assert agree(found, want), (list(BODIES)[i], found, want)


def test_without_choices_it_would_be_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control: past ops and loops the programs do depend on where a cotangent is zero by a choice."""
    monkeypatch.setattr(difflang.ad.transpose, "propagate_mask", lambda *given: (given[4], all_of(given[4])))
    broken = [name for name in BODIES if not finite(name)]
    assert len(broken) > 40, broken


def all_of(ct: Value) -> Value:
    return ct.home.const(True, choice_type(ct.type))


def finite(name: str) -> bool:
    f = difflang.loads(HEADER + source("f", BODIES[name]), name="choices").f
    return bool(np.isfinite(f.grad("x").interpret(X)).all())


def test_second_derivatives_too() -> None:
    bodies = (
        "where(min(x) > 0.0, sum(reverse(sqrt(x))), sum(x^3))",
        "sum(where(x > 0.0, reverse(reverse(sqrt(x))), x^3))",
    )
    for body in bodies:
        f = difflang.loads(HEADER + source("f", body), name="choices").f
        over = f.hvp("x").interpret(X, np.ones(3))
        assert np.isfinite(over).all()


OVERFLOWING = {
    "a state": "var s = x\n while s < 10.0 and s > -1.0 { s = 2.0 * s / x }\n where(x > 100.0, s, x * x)",
    "what a state is made of": "var s = 1.0\n var i = 0\n while i < 3 { s = s / x + sqrt(s)\n i += 1 }\n"
    " where(x > 100.0, s, x * x)",
    "states that grow": "var s = [x, x]\n var i = 0\n while i < 3 { s = exp(s * s[1] * 1000.0)\n i += 1 }\n"
    " where(x > 100.0, s[0], x * x)",
    "a loop in a loop": "var s = 1.0\n var i = 0\n while i < 2 { var j = 0\n while j <= i { s = s / x + sqrt(s)\n"
    " j += 1 }\n i += 1 }\n where(x > 100.0, s, x * x)",
}  # fmt: skip


@pytest.mark.parametrize("name", OVERFLOWING)
@pytest.mark.nightly_cases("a loop in a loop")
def test_a_loop_of_run_time_length_that_is_not_chosen(name: str) -> None:
    """In reverse of reverse what a loop has kept, one item a step, gets cotangents too."""
    text = f"""float f64
fn f(x: f64) -> f64 {{
 {OVERFLOWING[name]}
}}
fn second(x: f64) -> f64 = grad(grad(f))(x)
fn third(x: f64) -> f64 = grad(grad(grad(f)))(x)
"""
    module: Any = difflang.loads(text, name="overflowing")
    for x in (0.0, 1.5):
        assert float(module.second.interpret(x)) == float(module.second(x)) == 2.0
        assert float(module.third.interpret(x)) == 0.0
        assert float(module.f.hvp("x").interpret(x, 1.0)) == 2.0


IN_BRANCHES = """
float f64
fn left(x: f64, y: f64, k: i32) -> f64 {
  if k > 1 {
    var s = x
    var c = 0
    while s < 2.0 and c < k {
      s = 1.2 * clamp(s, -0.9, 1.9) * y^2 + 0.5
      c += 1
    }
    s
  } else { x * y }
}
fn stepped(x: f64, y: f64, k: i32) -> f64 {
  var s = x
  for i in 0..k {
    if s < y { for j in 0..k { s = 0.7 * sin(s) + clamp(s * y, -0.9, 0.8) } } else { s *= 0.9 * y }
  }
  s
}
"""


@pytest.mark.parametrize("name", ["left", "stepped"])
def test_choices_at_each_step_of_a_loop_in_one_branch(name: str) -> None:
    """Reverse mode of reverse mode: the other branch gives nothing to what the loop kept, and no choice."""
    f = getattr(difflang.loads(IN_BRANCHES, name="branches"), name)
    for k in (1, 3):
        at = 0.3, 0.9, np.int32(k)
        twice = f.grad("x").grad("x").interpret(*at)
        np.testing.assert_allclose(twice, f.hvp("x").interpret(*at, 1.0), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("op", [op for op in DIFFERENTIABLE if op.operand_rules.transpose], ids=str)
def test_every_linear_op_keeps_choices(op: Op) -> None:
    """Where the choice that leaves does not hold, the cotangent is exactly zero; of nothing chosen, nothing is."""
    rng = np.random.default_rng(0)
    rules = op.operand_rules.transpose or ()
    for call in calls_of(op, (F64, C128)):
        for place in [i for i, here in enumerate(call.wrt) if here and rules[min(i, len(rules) - 1)] is not None]:
            linear = tuple(i == place for i in range(len(call.arrays)))
            graph = call.graph()
            arriving = (Cotangent.PRESENT,) * len(graph.results)
            back = DerivativeCache().transpose(graph, linear, (Cotangent.CHOSEN,) * len(graph.results))
            known = [x for x, here in zip(call.arrays, linear, strict=True) if not here]
            ys = evaluate(graph, *call.arrays)
            for share in (0.0, 0.5, 1.0):
                choices = [np.asarray(rng.uniform(size=y.shape) < share) for y in ys]
                cts = [
                    np.where(c, rng.normal(size=c.shape), 0.0).astype(y.dtype) for c, y in zip(choices, ys, strict=True)
                ]
                found = evaluate(back.graph, *known, *cts, *choices)
                (plain,) = evaluate(DerivativeCache().transpose(graph, linear, arriving).without_choices, *known, *cts)
                np.testing.assert_array_equal(found[0], plain)
                assert back.chosen[place]
                assert not np.any(found[0][~found[1]])
                assert share or not np.any(found[1])
