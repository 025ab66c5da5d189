"""Derivative operators in programs: which parameter, what they give, nesting, closures, branches, loops, randomness."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import math

import numpy as np
import pytest

from difflang.base.diagnostics import DifflangError
from difflang.execution.engine import Engine
from support.language import INTERPRETER, answer, codes, ran
from support.values import compare

F = "fn f(x: f64, y: f64) -> f64 = x^2 * y + sin(y)\n"
NET = """record Net { w: f64[2], b: f64, name: str }
record Model { net: Net, scale: f64, k: i32 }
fn loss(m: Model, x: f64[2]) -> f64 = m.scale * (sum(m.net.w * x) + m.net.b)^2
let m = Model(net = Net(w = [1, 2], b = 3, name = "n"), scale = 0.5, k = 7)
let x: f64[2] = [4, 5]
"""
# Of what comes with a loss one item has an infinite derivative, which must not reach the gradient.
AUX = "fn f(x: f64, y: f64) -> (f64, (f64, f64), i32) = (x^2 * y, (x * y, log(x - x)), 7)\n"
OUTER = """fn outer(x: f64) -> f64 {
  let ((loss, (product, _), _), slope) = value_and_grad(f)(x, 3)
  loss + product + slope
}
"""
S, C = math.sin, math.cos
OPERATORS = [
    (F, "grad(f)(2, 3)", 12), (F, "grad[x](f)(2, 3)", 12), (F, "grad[y](f)(2, 3)", 4 + C(3)), (F, "grad[1](f)(2, 3)", 4 + C(3)),
    (F, "grad[x, y](f)(2, 3)", (12, 4 + C(3))), (F, "grad[x, y](f)(2, 3).y", 4 + C(3)), (F, "grad[y, x](f)(2, 3)", (4 + C(3), 12)),
    (F, "grad[y](f)(y = 3, x = 2)", 4 + C(3)), (F, "grad[0, 1](f)(2, 3)", (12, 4 + C(3))),
    (F, "value_and_grad(f)(2, 3)", (12 + S(3), 12)), (F, "value_and_grad[x, y](f)(2, 3)", (12 + S(3), 12, 4 + C(3))),
    (AUX, "value_and_grad(f)(2, 3)", (12, 6, -math.inf, 7, 12)),
    (AUX, "value_and_grad[x, y](f)(2, 3)", (12, 6, -math.inf, 7, 12, 4)), (AUX + OUTER, "(outer(2), grad(outer)(2))", (12 + 6 + 12, 12 + 3 + 6)),
    (AUX + OUTER, "(outer'(2), outer''(2))", (21, 6)), (AUX + OUTER, "vmap(outer)([1, 2])", [12, 30]),
    (F, "jvp(f)(2, 3, 0.5)", (12 + S(3), 6)), (F, "jvp[y](f)(2, 3, 2)", (12 + S(3), 2 * (4 + C(3)))),
    (F, "jvp[x, y](f)(2, 3, 1, 10)", (12 + S(3), 12 + 10 * (4 + C(3)))),
    (F + "fn g(x: f64) -> f64 {\n let (v, pull) = vjp(f)(x, 3)\n v + pull(2)\n}", "g(2)", 12 + S(3) + 24),
    (F + "fn g(x: f64) -> f64 {\n let (_, pull) = vjp[x, y](f)(x, 3)\n let p = pull(2)\n p.x + p.y\n}", "g(2)", 24 + 2 * (4 + C(3))),
    (F + "fn g(x: f64) -> f64 {\n let (_, pull) = vjp(f)(x, 3)\n pull(1) + 10 * pull(2)\n}", "g(2)", 12 * 21),
    ("fn f(x: f64) -> (f64, f64[2]) = (x^2, [x, x^3])\nfn g(x: f64) -> f64 {\n let (_, pull) = vjp(f)(x)\n pull((1, [10, 100]))\n}", "g(2)", 4 + 10 + 1200),
    ("fn f(x: f64) -> (f64, i32) = (x^2, 3)", "jvp(f)(3, 1)", (9, 3, 6)),
    ("fn f(x: f64) -> f64 = x^3", "deriv(f)(2)", 12), ("fn f(x: f64) -> f64 = x^3", "(f'(2), f''(2), f'''(2), f''''(2))", (12, 12, 6, 0)),
    ("", "(|t| t^5)'''(2)", 240), ("", "grad(|v| sum(v^2))([1.0, 2.0])", [2, 4]), ("fn g(x: f64) -> f64 = (|t| t^2 * x)'(x)", "g(3)", 18),
    (NET, "grad(loss)(m, x)", (17 * np.array([4.0, 5]), 17, 17**2)), (NET, "grad[m.net](loss)(m, x)", (17 * np.array([4.0, 5]), 17)),
    (NET, "grad[m.net.b](loss)(m, x)", 17), (NET, "grad[m.scale, x](loss)(m, x).x", [17, 34]), (NET, "(m + grad(loss)(m, x)).k", 7),
    (NET, "(m + -0.1 * grad(loss)(m, x)).net.b", 1.3), (NET, "grad[x](loss)(m, x)", [17, 34]),
    ("", "grad(|x| x * stop(x))(3.0)", 3), ("", "grad(|x| stop(x^2) + x)(3.0)", 1), ("", "grad(|x| sum(stop([x, x])) * x)(3.0)", 6),
    ("", "grad(|x| x * grad(|y| x * y^2)(2.0))(3.0)", 24), ("", "grad(|x| grad(|y| x + y)(1.0) * x)(3.0)", 1),
    ("", "grad(|x| x * grad(|y| x + y)(x))(5.0)", 1), ("", "(|x| (|y| x * y^2)'(x))'(3.0)", 12),
    ("fn f(x: f64) -> f64 = grad(|y| grad(|z| x * y * z^3)(y))(x)", "grad(f)(2)", 108),
    ("fn f(x: f64) -> f64 = x^4", "(grad(grad(f))(2), grad(f')(2), jvp(grad(f))(2, 1), grad(|t| value_and_grad(f)(t) |> |(a, b)| a + b)(2))",
     (48, 48, 32, 48, 80)),
    ("fn f(x: f64[n]) -> f64 = sum(x^3)\nfn h(x: f64[n], v: f64[n]) -> f64[n] = jvp(grad(f))(x, v) |> |(g, hv)| hv", "h([1, 2], [1, 10])", [6, 120]),
    ("fn f(x: f64[n]) -> f64 = sum(x^3)\nfn h(x: f64[n], v: f64[n]) -> f64[n] = grad(|y| dot(grad(f)(y), v))(x)", "h([1, 2], [1, 10])", [6, 120]),
    ("fn newton(f: (f64) -> f64, x0: f64) -> f64 {\n var x = x0\n while abs(f(x)) > 1e-13 { x -= f(x) / f'(x) }\n x\n}\nfn root(a: f64) -> f64 = newton(|x| x^2 - a, 1)",
     "(root(2), root'(2), grad(root)(2))", (2**0.5, 0.5 / 2**0.5, 0.5 / 2**0.5)),
    ("fn f(x: f64, k: i32) -> f64 = x * f64(k)", "grad(f)(2, 3)", 3), ("fn f(x: f64, p: (f64, i32)) -> f64 = p |> |(a, b)| a * a * x", "grad[p](f)(2, (3, 1))", (12,)),
    ("fn f(g: (f64) -> f64, x: f64) -> f64 = grad(g)(x)", "f(|t| t^3, 2)", 12), ("fn f(x: f64) -> f64 = x |> grad(|t| t^3)", "f(2)", 12),
    ("fn d(g: (f64) -> f64) -> (f64) -> f64 = |x| g'(x)\nfn f(x: f64) -> f64 = d(d(|t| t^3))(x)", "(f(2), f'(2))", (12, 6)),
    ("fn f(x: f64) -> f64[2] = [x^2, x^3]", "jvp(f)(2, 1)", ([4, 8], [4, 12])), ("", "vmap(grad(|x| x^2))([1.0, 2.0])", [2, 4]),
    ("fn f(x: f64) -> f64 = sum([for i in 0..3 => grad(|y| y^2 * x)(f64(i))])", "(f(2), grad(f)(2))", (12, 6)),
    ("fn f(x: f64) -> f64 {\n let g = |y| x * y\n grad(|h| h * g(h))(3)\n}", "grad(f)(2)", 6),
    ("fn f(x: f64) -> f64 {\n fn inner(y: f64) -> f64 = x * y^2\n grad(inner)(3)\n}", "grad(f)(2)", 6),
    ("fn f[T: float](x: T) -> T = x^3", "(grad(f)(2.0), grad(f)(f32(2)))", (np.float64(12), np.float32(12))),
    ("fn f(x: f64) -> f64 = f64(i32(x)) * x", "grad(f)(2.5)", 2), ("fn f(x: f64) -> f64 = f64(f32(x)) * 2", "grad(f)(2.5)", 2),
    ("let k = [2.0, 3.0]\nfn f(x: f64) -> f64 = sum(k * x^2)", "grad(f)(3)", 30),
]  # fmt: skip


@pytest.mark.parametrize(
    ("declarations", "expression", "value"),
    OPERATORS,
    ids=[f"{d[:30]} {e}".replace("\n", " ") for d, e, _ in OPERATORS],
)
def test_operator(declarations: str, expression: str, value: object) -> None:
    got = answer(expression, declarations)
    compare(got, value if not isinstance(value, tuple) or len(value) > 1 else value[0])


# A function of x, points, and its derivative there: nothing of a path not taken.
BRANCHES = [
    ("if x > 0 { x^2 } else { sqrt(-x) }", {2.0: 4.0, -4.0: -0.25}),
    ("if x > 0 { x } else { sqrt(x) }", {2.0: 1.0}),
    ("if x != 0 { x * log(abs(x)) } else { 0 }", {0.0: 0.0, 1.0: 1.0}),
    ("sum([for i in 0..2 => if x > f64(i) { x } else { sqrt(f64(i) - x) }])", {2.0: 2.0, 0.75: 1 - 1.0}),
    ("sum(for i in 0..3 if f64(i) < x => x^2)", {1.5: 6.0, 0.0: 0.0}),
    ("max(for i in 0..3 if f64(i) < x => x * f64(i))", {1.5: 1.0, 2.5: 2.0}),
    ("where(x > 0, x, 1 / x)", {2.0: 1.0, 0.0: -math.inf}),
    ("where(x > 0, sqrt(x), 0)", {-1.0: 0.0, 0.0: 0.0, 4.0: 0.25}),
    ("where(x > 0, x * log(x), 0) + where(x != 0, sin(x) / x, 1)", {0.0: 0.0}),
    ("where(x > 0, where(x < 2, sqrt(2 - x), 0), sqrt(-x))", {3.0: 0.0, 1.0: -0.5, -4.0: -0.25}),
    ("{ let s = sum([x, x]^2)\n where(s > 0, sqrt(s), 0) }", {0.0: 0.0, 1.0: math.sqrt(2)}),
    ("clamp(x, 0, 1) + max(x, 5) + min(x, -5)", {0.5: 1.0, 0.0: 1.0, 6.0: 1.0, -6.0: 1.0}),
    ("max(x, 0) + relu(x) + abs(x)", {0.0: 0.5, 1.0: 3.0, -1.0: -1.0}),
    ("max([x, x, 1])", {2.0: 1.0, 0.0: 0.0}),
    ("if x == 3 { 9 } else { x * x }", {3.0: 0.0, 2.0: 4.0}),
    ("floor(x) * x + sign(x)", {2.5: 2.0}),
    ("norm([x, 0]) + norm([x, x])", {0.0: 0.0}),
    ("x % 3", {4.0: 1.0}),
    ("3 ^ x", {2.0: 9 * math.log(3)}),
    ("x ^ x", {2.0: 4 * (1 + math.log(2)), 0.0: 0.0}),
    ("prod([x, x, 0])", {2.0: 0.0}),
    ("prod([x, 0, 3]) + prod([x, 2])", {5.0: 2.0}),
]


@pytest.mark.parametrize(("order", "slope"), [(1, 0.0), (2, -(math.pi**2) / 3), (3, 0.0), (4, math.pi**4 / 5)])
@pytest.mark.parametrize("x", [0.0, 1e-9, 2e-7])
def test_sinc_near_zero(order: int, slope: float, x: float) -> None:
    """Of its series, not of a number that stands in for it."""
    found = float(answer(f"sinc{chr(39) * order}({x})", ""))
    assert found == pytest.approx(slope, abs=5e-6, rel=1e-9)


@pytest.mark.parametrize(("body", "points"), BRANCHES, ids=[b for b, _ in BRANCHES])
def test_branch(body: str, points: dict[float, float]) -> None:
    for x, slope in points.items():
        declarations = f"fn f(x: f64) -> f64 = {body}\n"
        compare(
            answer(f"(f'({x}), grad(f)({x}), vmap(f')([{x}])[0], vmap(grad(f))([{x}])[0])", declarations), (slope,) * 4
        )


LOOPS = [
    ("var s = x\n for _ in 0..{n} { s = s * x }", lambda x, n: (n + 1) * x**n),
    ("var s = 0.0\n for i in 0..{n} { s += x * f64(i) }", lambda x, n: sum(range(n))),
    ("var s = 1.0\n for v in fill({n}, x) { s *= v }", lambda x, n: n * x ** (n - 1) if n else 0.0),
    ("let ys = for i in 0..{n} { yield x * x }\n let s = sum(ys)", lambda x, n: 2 * n * x),
    (
        "var s = x\n let ys = for i in 0..{n} { s = s * x\n yield s }\n s = sum(ys)",
        lambda x, n: sum((k + 2) * x ** (k + 1) for k in range(n)),
    ),
    ("var s = x\n var k = 0\n while k < {n} { s = s * x\n k += 1 }", lambda x, n: (n + 1) * x**n),
    (
        "var a = zeros({n} + 1)\n a[0] = x\n for i in 0..{n} { a[i + 1] = a[i] * x }\n let s = a[{n}]",
        lambda x, n: (n + 1) * x**n,
    ),
    ("var s = x\n for i in 0..k { s = s * x }", lambda x, n: (n + 1) * x**n),
    ("let s = prod([for i in 0..{n} => x])", lambda x, n: n * x ** (n - 1) if n else 0.0),
]


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize(("body", "slope"), LOOPS, ids=[b[:40].replace("\n", " ") for b, _ in LOOPS])
def test_loop(body: str, slope: object, n: int) -> None:
    declarations = f"fn f(x: f64, k: i32) -> f64 {{\n {body.replace('{n}', str(n))}\n s\n}}\n"
    want = float(slope(1.25, n))  # type: ignore[operator]
    compare(
        answer(
            f"(grad(f)(1.25, {n}), jvp(f)(1.25, {n}, 1) |> |(a, b)| b, vmap(|x| grad(f)(x, {n}))([1.25])[0])",
            declarations,
        ),
        (want,) * 3,
    )


REFUSED = [
    ("fn f(k: i32) -> f64 = 1.0\nlet r = grad(f)(3)", "DL0401"), ("fn f(x: f64) -> f64[2] = [x, x]\nlet r = grad(f)(3)", "DL0402"),
    ("fn f(x: f64) -> i32 = 3\nlet r = grad(f)(3)", "DL0402"), ("fn f(x: f64) -> f64 = x\nlet r = grad[z](f)(3)", "DL0403"),
    ("fn f(x: f64) -> f64 = x\nlet r = grad[1](f)(3)", "DL0403"), ("fn f(x: f64) -> f64 = x\nlet r = jvp(f)(3)", "DL0404"),
    ("fn f(x: f64) -> f64 = x\nlet r = jvp(f)(3, [1.0])", "DL0404"), ("fn f(x: f64[n]) -> f64 = x[0]\nlet r = f'([3.0])", "DL0405"),
    ('fn f(s: str) -> f64 = 1.0\nlet r = grad(f)("a")', "DL0401"), ("fn f(x: f64) -> f64 = grad(x)", "DL0320"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "code"), REFUSED)
def test_refused(source: str, code: str) -> None:
    assert [c for c, _ in codes(f"float f64\n{source}\n")] == [code]


@pytest.mark.parametrize(("ask", "value"), [
    ("grad[y](f)(3)", 324.0), ("grad[y, z](f)(3)", (324.0, 324.0)), ("grad[y](f)(3, z = 1)", 12.0),
    ("grad(f)(3, z = 1)", 4.0), ("grad[y](grad(f))(3)", 108.0), ("jvp[y](f)(3, 1)", (324.0, 324.0)),
    ("hvp[y](f)(3, 1)", 162.0), ("hessian[z](f)(3)", 216.0), ("jacrev[2](f)(3)", 324.0),
])  # fmt: skip
def test_in_a_parameter_that_stands_at_its_default(ask: str, value: object) -> None:
    compare(answer(ask, "fn f(x: f64, y: f64 = 2.0, z: f64 = 3.0) -> f64 = x * y^2 * z^3"), value)


@pytest.mark.parametrize(("source", "said"), [
    ("print(hessian(|x| x^2)([1.0]))", "`hessian` takes a function whose result is a real number"),
    ("print(hvp(|x| x^2)([1.0], [1.0]))", "`hvp` takes a function whose result is a real number"),
    ("print(hessian(|z| abs(z)^2)(1j))", "`hessian` takes functions of real numbers"),
])  # fmt: skip
def test_a_second_derivative_is_called_by_its_name(source: str, said: str) -> None:
    with pytest.raises(DifflangError, match=said):
        ran(source)


# ---- Randomness


RANDOM = {
    "two calls": ("fn f() -> f64[2] = [normal(), normal()]", "f()"),
    "two calls of a function": ("fn g() -> f64 = normal()\nfn f() -> f64[2] = [g(), g()]", "f()"),
    "a call in a function and one beside it": ("fn g() -> f64 = normal()\nfn f() -> f64[3] = [normal(), g(), normal()]", "f()"),
    "steps of a loop": ("fn f() -> f64[5] {\n for _ in 0..5 { yield normal() }\n}", "f()"),
    "steps of a loop, twice": ("fn f() -> f64[4] {\n for _ in 0..4 { yield normal() + 0 * normal() }\n}", "f()"),
    "nested loops": ("fn f() -> f64[6] {\n let a = for _ in 0..2 {\n let b = for _ in 0..3 { yield normal() }\n yield b\n }\n reshape(a, [6])\n}", "f()"),
    "lanes": ("fn f() -> f64[5] = [for _ in 0..5 => normal()]", "f()"),
    "lanes of two": ("fn f() -> f64[6] = reshape([for _ in 0..2 => [for _ in 0..3 => normal()]], [6])", "f()"),
    "vmap": ("fn f(x: f64[n]) -> f64[n] = vmap(|v| v + normal())(x)", "f([0, 0, 0])"),
    "functions in a loop": ("fn g() -> f64 = normal()\nfn f() -> f64[4] {\n for _ in 0..4 { yield g() }\n}", "f()"),
    "while": ("fn f() -> f64[3] {\n var a = zeros(3)\n var k = 0\n while k < 3 {\n a[k] = normal()\n k += 1\n }\n a\n}", "f()"),
    "an array": ("fn f() -> f64[7] = normal(7)", "f()"),
    "branches": ("fn f(x: f64) -> f64[2] = [if x > 0 { normal() } else { 0.0 }, if x > 0 { normal() } else { 0.0 }]", "f(1)"),
    "lambdas": ("fn f() -> f64[2] {\n let g = |x| x + normal()\n [g(0), g(0)]\n}", "f()"),
    "the host": ("fn f() -> f64 = normal()\nlet a = f()\nlet b = f()", "[a, b]"),
    "a host loop": ("fn f() -> f64 = normal()\nvar a = zeros(3)\nfor i in 0..3 { a[i] = f() }", "a"),
}  # fmt: skip


@pytest.mark.parametrize("name", RANDOM)
def test_no_two_draws_are_the_same(name: str) -> None:
    declarations, expression = RANDOM[name]
    drawn = np.asarray(answer(expression, declarations))
    assert len(set(drawn.tolist())) == drawn.size
    assert np.all(np.abs(drawn) < 6)
    again = np.asarray(answer(expression, declarations))
    np.testing.assert_array_equal(drawn, again)
    assert not np.any(drawn == np.asarray(answer(expression, declarations, seed=1)))


@pytest.mark.slow
@pytest.mark.parametrize("name", RANDOM)
def test_a_compiled_program_draws_the_same(name: str) -> None:
    declarations, expression = RANDOM[name]
    drawn, want = (np.asarray(answer(expression, declarations, engine)) for engine in (Engine(), INTERPRETER))
    np.testing.assert_allclose(drawn, want, rtol=1e-12)


DRAWN = [
    "fn f(x: f64) -> f64 = x * normal()",
    "fn f(x: f64) -> f64 {\n var s = x\n for _ in 0..3 { s = s * (1 + 0.1 * normal()) }\n s\n}",
    "fn f(x: f64) -> f64 = x * sum([for _ in 0..3 => normal()])",
    "fn g(x: f64) -> f64 = x * normal()\nfn f(x: f64) -> f64 = g(x) + g(x)",
    "fn f(x: f64) -> f64 = if x > 0 { x * normal() } else { x }",
]


@pytest.mark.parametrize("source", DRAWN)
def test_a_derivative_sees_the_draws_of_its_value(source: str) -> None:
    """All are linear in x: the derivative is the value at 1, from one and the same draw."""
    value, slope = answer("value_and_grad(f)(1)", source)
    compare(slope, value)
    value, slope = answer("jvp(f)(1, 1)", source)
    compare(slope, value)
    pulled = (
        f"{source}\nfn pulled(x: f64) -> (f64, f64, f64) {{\n let (y, pull) = vjp(f)(x)\n (y, pull(1), pull(2) / 2)\n}}"
    )
    value, slope, again = answer("pulled(1)", pulled)
    compare((slope, again), (value, value))
    several = (
        pulled + "\nfn many() -> f64[3, 3] {\n for _ in 0..3 {\n let (y, a, b) = pulled(1)\n yield [y, a, b]\n }\n}"
    )
    drawn = np.asarray(answer("many()", several))
    assert len(set(drawn[:, 0].tolist())) == 3
    compare(drawn, drawn[:, :1] * np.ones((1, 3)))
