"""Derivatives that are zero for every argument: what is warned of, at which line, with which steps; and what is not."""

# ruff: noqa: E501 - a program is a line

from __future__ import annotations

import numpy as np
import pytest

from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from support.language import answer, codes, warnings

NET = (
    "record Net { w: f64[2], b: f64, unused: f64, k: i32 }\nlet m = Net(w = [1.0, 2.0], b = 3.0, unused = 1.0, k = 2)\n"
)
LOST = {
    "nothing of it": ("let y = grad[b](|a, b| a^2)(1.0, 2.0)", ["b"]),
    "a captured value of the same name": ("let x = 2.0\nlet y = grad(|z| x * x)(x)", ["z"]),
    "floor": ("let y = grad(|x| floor(x))(1.5)", ["floor(x)"]),
    "two in a row": ("let y = grad(|x| round(floor(x)))(1.5)", ["floor(x)"]),
    "an integer": ("let y = grad(|x| f64(i32(x)))(1.5)", ["i32(x)"]),
    "a condition": ("let y = grad(|x| if x > 0.0 { 1.0 } else { 2.0 })(1.5)", ["x > 0.0"]),
    "a choice": ("let y = grad(|x| where(x > 0.0, 1.0, 2.0))(1.5)", ["x > 0.0"]),
    "inside a branch": ("fn f(x: f64, p: bool) -> f64 { if p { let k = sign(x)\n k * 2.0 } else { 3.0 } }\nlet y = grad(f)(1.5, true)", ["sign(x)"]),
    "a loop": ("fn f(x: f64, n: i32) -> f64 {\n var s = 0.0\n for i in 0..n { s += ceil(x) * f64(i) }\n s\n}\nlet y = grad(f)(1.5, 3)", ["ceil(x)"]),
    "what a loop carries": ("fn f(x: f64, n: i32) -> f64 {\n var (s, t) = (x, 0.0)\n for i in 0..n { t += floor(s)\n s = s * 2.0 }\n t\n}\nlet y = grad(f)(1.5, 3)", ["floor(s)"]),
    "how often": ("fn f(x: f64) -> f64 {\n var (s, t) = (1.0, x)\n while s < x { s = s * 2.0 }\n s\n}\nlet y = f'(1.5)", ["s < x"]),
    "how far": ("fn f(x: f64) -> f64 {\n var s = 1.0\n for i in 0..i32(x) { s = s * 2.0 }\n s\n}\nlet y = f'(1.5)", ["i32(x)"]),
    "a comprehension": ("let y = grad(|x| sum(for i in 0..3 => floor(x[i])))([1.0, 2.0, 3.0])", ["floor(x[i])"]),
    "map": ("fn up(x: f64) -> f64 = ceil(x)\nlet y = grad(|v| sum(map(up, v)))([1.0, 2.0])", ["ceil(x)", "map(up, v)"]),
    "vmap": ("let y = vmap(grad(|x| floor(x)))([1.0, 2.0])", ["floor(x)"]),
    "a call": ("fn g(t: f64) -> f64 = round(t)\nfn f(x: f64) -> f64 = g(x) + 1.0\nlet y = grad(f)(1.5)", ["round(t)", "g(x)"]),
    "calls of calls": ("fn h(s: f64) -> f64 = round(s)\nfn g(t: f64) -> f64 = h(t)\nfn f(x: f64) -> f64 = g(x)\nlet y = grad(f)(1.5)", ["round(s)", "g(x)", "h(t)"]),
    "steps before": ("let y = grad(|x| { let a = 2.0 * x\n floor(a) })(1.5)", ["floor(a)", "2.0 * x"]),
    "a lambda that a function applies": ("fn twice(g: (f64) -> f64, x: f64) -> f64 = g(g(x))\nlet y = grad(|x| twice(|t| floor(t), x))(1.5)", ["floor(t)"]),
    "an index": ("let a = [1.0, 2.0]\nlet y = grad(|x| a[argmax(x)])([1.0, 2.0])", ["argmax(x)"]),
    "some by stop, some not": ("let y = grad(|x| stop(x) * floor(x))(1.5)", ["floor(x)"]),
    "a field that is used": (NET + "let y = grad(|n: Net| sum(n.w) * floor(n.b))(m)", ["floor(n.b)"]),
    "a field asked for": (NET + "let y = grad[n.unused](|n: Net| sum(n.w) * n.b)(m)", ["n: Net"]),
    "a whole record": (NET + "let y = grad(|n: Net| f64(n.k))(m)", ["n: Net"]),
    "two parameters": ("let y = grad[a, b](|a, b, c| c * floor(a))(1.0, 2.0, 3.0)", ["floor(a)"]),
    "vjp": ("let (y, pull) = vjp(|x| floor(x))(1.5)", ["floor(x)"]),
    "linearize": ("let (y, push) = linearize(|x| floor(x))(1.5)", ["floor(x)"]),
    "jvp of several results": ("let y = jvp(|x| (floor(x), i32(x)))(1.5, 1.0)", ["floor(x)"]),
    "a prime": ("fn f(x: f64) -> f64 = floor(x)\nlet y = f'(1.5)", ["floor(x)"]),
    "a second derivative of it": ("fn f(x: f64) -> f64 = floor(x)\nlet y = f''(1.5)", ["floor(x)"]),
    "jacobian": ("let y = jacobian(|x| floor(x))([1.5, 2.5])", ["floor(x)"]),
    "hessian": ("let y = hessian(|x| sum(floor(x)))([1.5, 2.5])", ["floor(x)"]),
    "hvp": ("let y = hvp(|x| sum(floor(x)))([1.5, 2.5], [1.0, 0.0])", ["floor(x)"]),
    "jet": ("let y = jet(|x| floor(x), order = 2)(1.5)", ["floor(x)"]),
    "a derivative inside": ("let y = grad(|x| x * grad(|t| floor(t) * x)(1.5))(2.0)", ["floor(t)"]),
    "a step of the standard library": ("let y = grad(|x| floor(log2(x)))(1.5)", ["floor(log2(x))"]),
    "an assertion besides": ("fn f(x: f64) -> f64 {\n assert x > 0.0, \"no\"\n 2.0\n}\nlet y = grad(f)(1.5)", ["x: f64"]),
}  # fmt: skip
KEPT = {
    "by its name": "let y = (floor'(1.5), grad(sign)(2.0), vmap(grad(round))([1.0]), floor''(1.5))",
    "stop on every way": "let y = grad(|x| floor(stop(x)) * stop(x))(1.5)",
    "stop as a factor": "let y = grad[b](|a, b| a + 0 * stop(b))(1.0, 2.0)",
    "a branch": "fn f(x: f64) -> f64 = if x > 0.0 { x } else { 0.0 }\nlet y = grad(f)(1.5)",
    "a linear function, twice": "fn f(x: f64) -> f64 = 3.0 * x\nlet y = (f''(1.0), grad(grad(f))(1.0), hessian(|v| sum(v))([1.0]), hvp(|v| sum(v))([1.0], [1.0]))",
    "a linear map in a derivative": "let y = grad(|x| { let (v, pull) = vjp(|t| 3.0 * t)(x)\n pull(1.0) })(2.0)",
    "a size that leaves it out": "fn power(x: f64, n: dim) -> f64 = if n == 0 { 1.0 } else { x * power(x, n - 1) }\nlet y = grad(|x| power(x, 0))(2.0)",
    "a loop over a size of 0": "fn power(x: f64, n: dim) -> f64 {\n var p = 1.0\n for _ in 0..n { p = p * x }\n p\n}\nlet y = grad(|x| power(x, 0))(2.0)",
    "a power of 0": "let y = grad(|x| x^0)(2.0)",
    "a field that nothing uses": NET + "let y = grad(|n: Net| sum(n.w) * n.b)(m)",
    "a rule": "fn step(x: f64) -> f64 = floor(x)\nrule step(x) { (step(x), linear |dx| dx) }\nlet y = grad(step)(1.5)",
    "the first guess of a rule": "fn root(p: f64, x0: f64) -> f64 = sqrt(p)\nrule root(p, x0) by implicit |x| x * x - p\nlet y = grad(root)(2.0, 1.0)",
    "straight through": "let y = grad(|x| x + stop(round(x) - x))(1.5)",
    "a function that a definition does not look into": "fn f(x: f64) -> f64 = x\nfn g(x: f64) -> f64 = grad(f)(x)",
    "what the library takes for itself": "import ode (rosenbrock23)\nlet y = rosenbrock23(|t, y| -y, [1.0], 0.0, 1.0)",
    "a function parameter": "fn slope(g: (f64) -> f64, x: f64) -> f64 = grad(g)(x)\nlet y = slope(|t| t * t, 2.0)",
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_a_derivative_that_is_always_zero_is_told_with_the_steps_that_lose_it(name: str) -> None:
    source, steps = LOST[name]
    (found,) = warnings(source)
    assert found.code == "DL0409" and found.severity == "warning"
    assert [label.span.text for label in found.labels[1:]] == steps
    asked = found.labels[0].span
    assert asked.text in ("f'(1.5)", "f''(1.5)") or asked.text.startswith(
        ("grad", "vmap", "vjp", "jvp", "linearize", "jacobian", "hessian", "hvp", "jet")
    )


@pytest.mark.parametrize("name", KEPT)
def test_nothing_is_said_of_others(name: str) -> None:
    assert not warnings(KEPT[name])


def test_the_value_is_zero() -> None:
    assert codes("float f64\n" + LOST["calls of calls"][0]) == []
    assert answer("grad(|x| floor(x) * sign(x))(2.5)") == 0
    assert np.array_equal(answer("grad(|x| sum(round(x)))([2.5, 1.0])"), [0, 0])


def test_parts_are_named_as_the_program_names_them() -> None:
    def said(source: str) -> str:
        return warnings(source)[0].message

    assert said(LOST["a field that is used"][0]).startswith("the derivative with respect to `n.b` is 0")
    assert said(LOST["a field asked for"][0]) == "the result does not depend on `n.unused`: its derivative is 0"
    assert said("let y = grad[a, b](|a, b, c| c)(1.0, 2.0, 3.0)").startswith(
        "the result does not depend on `a` and `b`: th"
    )
    assert said("let y = grad(|(a, b)| 1.0)((1.0, 2.0))").startswith("the result does not depend on `argument 0`")


def test_a_place_is_told_once_however_often_it_is_walked() -> None:
    both = "fn slope(x: f64[n]) -> f64[n] = grad(|v| sum(floor(v)))(x)\nlet a = slope([1.0])\nlet b = slope([1.0, 2.0])"
    (found,) = warnings(both)
    assert found.labels[0].span.position[0] == 2


def test_a_chain_of_calls_is_walked_once_for_each_function() -> None:
    """Each function calls the one before twice: as many ways as 2 to the number of functions."""
    lines = ["fn f0(x: f64, y: f64) -> f64 = floor(x) * y"]
    lines += [f"fn f{i}(x: f64, y: f64) -> f64 = f{i - 1}(x, f{i - 1}(y, x))" for i in range(1, 40)]
    (found,) = warnings("\n".join([*lines, "let y = grad(|t| f39(floor(t), 2.0))(1.5)"]))
    assert found.labels[1].span.text == "floor(t)"
    (found,) = warnings("\n".join([*lines, "let y = grad(|t| f39(t, 2.0))(1.5)"]))
    assert (found.code, found.labels[0].span.text) == ("DL0414", "floor(x)")


def test_a_function_given_to_the_library_is_told_where_it_stands() -> None:
    text = "float f64\nimport minimize (lbfgs)\nlet fit = lbfgs(|b: f64[2]| 3.0, [1.0, 2.0])\nprint(fit.steps)\n"
    (warning,) = check_program(Source("mine.dfl", text)).diagnostics
    assert warning.code == "DL0409" and warning.span is not None
    assert (warning.span.source.name, warning.span.text) == ("mine.dfl", "b: f64[2]")
