"""Derivatives that lack a part: rounded numbers beside smooth paths, choices by draws; and what is not told."""

# ruff: noqa: E501 - a program is a line

from __future__ import annotations

import pytest

from support.language import warnings

ROUNDED = {
    "round": ("let y = grad(|x| 10.0 * round(x) + x)(2.2)", "round(x)"),
    "an integer, with a term that is 0": ("let y = grad(|x| f64(i32(x * 10.0)) + 0.0 * x)(2.2)", "i32(x * 10.0)"),
    "a factor": ("let y = grad(|x| floor(x) * x)(1.5)", "floor(x)"),
    "a quotient": ("let y = grad(|x| x - x // 2.0)(1.5)", "x // 2.0"),
    "integers on the way": ("let y = grad(|x| { let k = 2 * i32(x) + 1\n f64(k) * x })(1.5)", "i32(x)"),
    "a sum of integers": ("let y = grad(|x| f64(sum([for i in 0..3 => i32(x[i])])) + sum(x))([1.0, 2.0, 3.0])", "i32(x[i])"),
    "a function": ("fn g(t: f64) -> f64 = t * round(t)\nlet y = grad(|x| g(x))(1.5)", "round(t)"),
    "a lambda that a function applies": ("fn twice(g: (f64) -> f64, x: f64) -> f64 = g(g(x))\nlet y = grad(|x| twice(|t| floor(t) + t, x))(1.5)", "floor(t)"),
    "a branch": ("fn f(x: f64, p: bool) -> f64 = if p { ceil(x) + x } else { x }\nlet y = grad(f)(1.5, true)", "ceil(x)"),
    "what a loop carries": ("fn f(x: f64, n: i32) -> f64 {\n var (s, t) = (x, 0.0)\n for _ in 0..n { t += floor(s)\n s = s * 2.0 }\n s + t\n}\nlet y = grad(f)(1.5, 3)", "floor(s)"),
    "a loop that forgets": ("fn f(x: f64, n: i32) -> f64 {\n var (a, b, c) = (x, 0.0, 0.0)\n for _ in 0..n { c = b\n b = a\n a = floor(a) }\n c\n}\nlet y = grad(f)(1.5, 3)", "floor(a)"),
    "one result of two": ("let y = jvp(|x| (x * x, round(x)))(1.5, 1.0)", "round(x)"),
    "a field": ("record P { a: f64, b: f64 }\nlet y = grad(|p: P| p.a * round(p.b) + p.b)(P(a = 1.0, b = 2.0))", "round(p.b)"),
    "a prime": ("fn f(x: f64) -> f64 = x + trunc(x)\nlet y = f'(1.5)", "trunc(x)"),
    "a jacobian": ("let y = jacobian(|x| x * floor(x))([1.5, 2.5])", "floor(x)"),
    "a position as a number": ("let y = grad(|x| f64(argmax(x)) + sum(x))([1.0, 2.0])", "argmax(x)"),
    "a step of the library": ("let y = grad(|x| x * floor(log2(x)))(1.5)", "floor(log2(x))"),
    "a derivative by the library": ("import roots (newton)\nlet y = newton(|x| x + 0.1 * round(x) - 1.0, 0.3)", "round(x)"),
    "in a definition": ("fn f(x: f64) -> f64 = grad(|t| t * round(t))(x)", "round(t)"),
}  # fmt: skip
DRAWN = {
    "a coin": ("fn f(p: f64) -> f64 = (if uniform() < p { 3.0 } else { 0.0 }) + 0.5 * p\nlet y = grad(|p| mean([for _ in 0..9 => f(p)]))(0.3)", "uniform() < p"),
    "a coin alone": ("let y = grad(|p| if uniform() < p { 3.0 } else { 0.0 })(0.3)", "uniform() < p"),
    "where": ("let y = grad(|p| sum(where(uniform(5) < p, 3.0, p)))(0.3)", "uniform(5) < p"),
    "a coin by a number": ("let y = grad(|p| p + f64(uniform() < p))(0.3)", "uniform() < p"),
    "a barrier": ("fn f(m: f64) -> f64 {\n var (x, y) = (0.0, 0.0)\n for _ in 0..9 { x += m + normal()\n if x > 1.0 { y = m } }\n y\n}\nlet y = grad(f)(0.3)", "x > 1.0"),
    "how long": ("fn f(m: f64) -> f64 {\n var (x, k) = (0.0, 0)\n while x < 1.0 { x += m + uniform()\n k += 1 }\n f64(k) * m\n}\nlet y = grad(f)(0.3)", "x < 1.0"),
    "an own key": ("let y = grad(|p| with_key(key(3)) { if uniform() < p { p } else { 0.0 } })(0.3)", "uniform() < p"),
    "a draw handed on": ("fn f(u: f64, p: f64) -> f64 = if u < p { 1.0 } else { p }\nlet y = grad(|p| f(uniform(), p))(0.3)", "u < p"),
    "an index": ("let y = grad(|w| w[argmax(w - log(-log(uniform_like(w))))])([1.0, 2.0])", "argmax(w - log(-log(uniform_like(w))))"),
    "a sign": ("let y = grad(|m| m * sign(m + normal()))(0.3)", "sign(m + normal())"),
    "a rounded draw": ("let y = grad(|m| m + round(m + normal()))(0.3)", "round(m + normal())"),
    "a count": ("import stats (draw, Poisson)\nlet y = grad(|r| mean(min(draw(Poisson(r), 10), 3.0)))(2.0)", "draw(Poisson(r), 10)"),
    "other counts": ("import stats (draw, Bernoulli, Binomial)\nlet y = grad(|p| p * mean(draw(Binomial(9.0, p), 10)))(0.3)", "draw(Binomial(9.0, p), 10)"),
    "successes before": ("import stats (draw, NegativeBinomial)\nlet y = grad(|p| p * mean(draw(NegativeBinomial(2.0, p), 10)))(0.3)", "draw(NegativeBinomial(2.0, p), 10)"),
    "failures": ("import stats (draw, Geometric)\nlet y = grad(|p| p * mean(draw(Geometric(p), 10)))(0.3)", "draw(Geometric(p), 10)"),
    "a category": ("import stats (draw_categorical)\nlet y = grad(|w| w[draw_categorical(w, 1)[0]])([0.1, 0.3])", "draw_categorical(w, 1)"),
    "a rate of dropout": ("import nn (dropout)\nlet y = grad(|r| sum(dropout([1.0, 2.0], r)))(0.5)", "dropout([1.0, 2.0], r)"),
    "steps that are accepted": ("import prob (metropolis)\nlet y = grad(|s| sum(metropolis(|x| -dot(x, x) / s, [0.0], 0.5, 5).x))(1.0)", "metropolis(|x| -dot(x, x) / s, [0.0], 0.5, 5)"),
    "a sampler that marks its draws": ("fn toss(p: f64) -> f64 = discrete(if uniform() < stop(p) { 1.0 } else { 0.0 }, p)\nlet y = grad(|p| p * toss(p))(0.3)", "discrete(if uniform() < stop(p) { 1.0 } else { 0.0 }, p)"),
    "a sampler that is given its draws": ("fn toss(u: f64, p: f64) -> bool = discrete(u < stop(p), p)\nlet u = [0.1, 0.7]\nlet y = grad(|p| mean([for v in u => if toss(v, p) { 3.0 } else { p }]))(0.3)", "discrete(u < stop(p), p)"),
}  # fmt: skip
SILENT = {
    "stop around it": "let y = grad(|x| 10.0 * stop(round(x)) + x)(2.2)",
    "stop inside": "let y = grad(|x| 10.0 * round(stop(x)) + x)(2.2)",
    "stop further on": "let y = grad(|x| x + stop(2.0 * round(x) - x))(2.2)",
    "smooth pieces": "let y = grad(|x| (if x > 1.0 { x * x } else { 2.0 * x - 1.0 }) + where(x < 3.0, x, 3.0))(2.2)",
    "a mask": "let y = grad(|x| x * f64(x > 0.0))(2.2)",
    "a sign": "let y = grad(|x| sign(x) * x * x)(2.2)",
    "an index": "let a = [1.0, 2.0, 3.0]\nlet y = grad(|x| a[i32(x)] * x)(1.5)",
    "an index that a function takes": "let a = [1.0, 2.0, 3.0]\nfn at(i: i32) -> f64 = a[i]\nlet y = grad(|x| at(i32(x)) * x)(1.5)",
    "an integer of a table": "let a = [1, 2, 3]\nlet y = grad(|x| f64(a[i32(x)]) * x)(1.5)",
    "a slice": "let a = [1.0, 2.0, 3.0]\nlet y = grad(|x| { let k = i32(x)\n sum(a[k..k + 2]) * x })(1.2)",
    "an integer that is compared": "let y = grad(|x| if i32(x) > 2 { x } else { 2.0 * x })(1.5)",
    "a length": "fn f(x: f64) -> f64 {\n var s = x\n for _ in 0..i32(x) { s = s * x }\n s\n}\nlet y = f'(2.5)",
    "a loop until it settles": "fn f(x: f64) -> f64 {\n var s = x\n while abs(s * s - x) > 1e-9 { s = 0.5 * (s + x / s) }\n s\n}\nlet y = f'(2.5)",
    "others": "let y = grad(|x| x * max(x, 1.0) + abs(x) + x % 1.0 + clamp(x, 0.0, 1.0))(2.2)",
    "a rule": "fn step(x: f64) -> f64 = round(x)\nrule step(x) { (step(x), linear |dx| dx) }\nlet y = grad(|x| x * step(x))(1.5)",
    "a count of what was chosen": "let y = grad(|x| sum(x) + f64(sum([for i in 0..3 => if x[i] > 0.0 { 1 } else { 0 }])))([1.0, 2.0, 3.0])",
    "another parameter": "let y = grad[x](|x, t| x * round(t))(1.5, 2.5)",
    "a draw that moves": "let y = grad(|m| max(m + normal(), 0.0) + abs(m * normal()) + relu(m + normal()))(0.3)",
    "draws in order": "let y = grad(|m| sort(m + normal(5))[1] + max(m * normal(5)))(0.3)",
    "the greatest by its index": "let y = grad(|m| { let x = m + normal(5)\n x[argmax(x)] })(0.3)",
    "a median of draws": "import stats (median, quantile)\nlet y = grad(|m| median(m + normal(5)) + quantile(m * normal(5), 0.3))(0.3)",
    "a fixed coin": "let y = grad(|p| if uniform() < 0.5 { 3.0 * p } else { p })(0.3)",
    "stop of the parameter": "let y = grad(|p| p + (if uniform() < stop(p) { 3.0 } else { 0.0 }))(0.3)",
    "stop of the condition": "let y = grad(|p| p + (if stop(uniform() < p) { 3.0 } else { 0.0 }))(0.3)",
    "a stopped draw": "import stats (draw, Poisson)\nlet y = grad(|r| r * stop(mean(draw(Poisson(r), 10))))(2.0)",
    "a check": "fn f(m: f64) -> f64 {\n var x = m\n for i in 0..9 { assert x > -100.0, \"no\"\n x += normal() * m }\n x\n}\nlet y = grad(f)(0.3)",
    "an index that is checked": "fn f(m: f64[n], k: i32) -> f64 {\n var s = 0.0\n for i in 0..k { s += m[i] * normal() }\n s\n}\nlet y = grad(f)([0.3, 0.4], 2)",
    "dropout": "import nn (dropout)\nlet y = grad(|x| sum(dropout(x, 0.5)))([1.0, 2.0])",
    "draws that move with their distribution": "import stats (draw, Gamma, Beta, StudentT, Laplace)\nlet y = grad(|a| sum(draw(Gamma(a, a), 3)) + sum(draw(Beta(a, 2.0), 3)) + sum(draw(StudentT(a, a, a), 3)) + sum(draw(Laplace(a, a), 3)))(2.0)",
    "a bound by draws": "import prob (elbo, effective_size)\nlet y = grad(|m| elbo(|x| -sum(abs(x)), [m], [m], 5) + effective_size(m * normal(9)))(0.4)",
    "interpolation": "import interp (linear_interp, nearest, pchip, curve_at, bilinear)\nlet g = [[0.0, 1.0], [2.0, 3.0]]\nlet y = grad(|x| linear_interp([x], [0.0, 1.0], [2.0, 3.0])[0] + x * nearest([x], [0.0, 1.0], [2.0, 3.0])[0] + bilinear(g, [x], [x])[0] + curve_at(pchip([0.0, 1.0, x], [x, 3.0, 4.0]), [x])[0])(0.4)",
    "a quantile": "import stats (quantile)\nlet y = grad(|q| quantile([1.0, 2.0, 4.0], q))(0.4)",
    "a finite draw": "let y = grad(|m| { let x = m * normal()\n if isfinite(x) { x } else { 0.0 } })(0.4)",
    "special functions": "import special (bessel_j, dawson)\nlet y = grad(|x| bessel_j(0, x) + dawson(x))(0.4)",
}  # fmt: skip


@pytest.mark.parametrize("name", ROUNDED)
def test_a_rounded_number_beside_smooth_paths(name: str) -> None:
    source, step = ROUNDED[name]
    (found,) = warnings(source)
    assert (found.code, found.severity, found.labels[0].span.text) == ("DL0414", "warning", step)
    assert found.labels[1].text == "the derivative is taken here"


@pytest.mark.parametrize("name", DRAWN)
def test_a_choice_by_a_draw_that_the_derivative_moves(name: str) -> None:
    source, step = DRAWN[name]
    (found,) = warnings(source)
    assert (found.code, found.severity, found.labels[0].span.text) == ("DL0415", "warning", step)


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_said_of_others(name: str) -> None:
    assert not warnings(SILENT[name])


def test_parts_are_named_as_the_program_names_them() -> None:
    assert "with respect to `p.b` is lost" in warnings(ROUNDED["a field"][0])[0].message
    assert "how `p` changes the probability" in warnings(DRAWN["a coin"][0])[0].message
    assert any("`stop(uniform() < p)`" in way for way in warnings(DRAWN["a coin"][0])[0].helps)


def test_a_loss_is_told_beside_another_derivative_that_is_zero() -> None:
    found = warnings("let y = grad[a, b](|a, b| a * round(a) + floor(b))(1.5, 2.5)")
    assert [d.code for d in found] == ["DL0409", "DL0414"]
