"""Functions as arguments, sizes told by tangents, loops that only their condition ends."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import jax
import numpy as np
import pytest

import difflang
from difflang.base.diagnostics import DifflangError
from difflang.ir.builder import Builder
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.runtime.compile import compile_graph
from support.documents import run_program
from support.language import answer, checked, codes
from support.values import compare


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("fn twice(f: (f64) -> f64, x: f64) -> f64 = grad(f)(x)\nprint(twice(|x| x^3, 2))\n", "12.0"),
        (
            "fn a(f: (f64) -> f64, x: f64) -> f64 = f(x)\nfn b(f: (f64) -> f64, x: f64) -> f64 = a(|t| f(t), a(f, x))\n"
            "fn c(x: f64, k: dim) -> f64 = b(|t| t * sum(ones(k)), x)\nprint(c(2, 3), c(2, 4), grad(c)(2, 3))\n",
            "18.0 32.0 9.0",
        ),
        ("fn a(f: (f64) -> f64, x: f64) -> f64 = f(x)\nfn b(f: (f64) -> f64) -> f64 = a(f, 2)\nprint(b(sin))\n", "0.9"),
        (
            "fn first(x: f32[n], k: dim) -> f32 = sum(x[0..min(n, k)])\nfn room(x: f32[n], k: dim) -> f32 {\n let m = max(n, k)\n"
            " sum(ones(m)) + sum(ones(m) * [for i in 0..m => f32(i)])\n}\n"
            "fn all_of(x: f32[n]) -> f32[4] = [first(x, 1), first(x, 9), room(x, 1), room(x, 3)]\nprint(all_of([4.0, 2.0]))\n",
            "[4.0, 6.0, 3.0, 6.0]",
        ),
        ("fn f(g: D(f32[n])) -> f32[n] = 2.0 * g\nprint(f([1.0, 2.0]))\n", "[2.0, 4.0]"),
        (
            "record P[i] { w: f32[i] }\nfn f(g: D(P[i]), p: P[i]) -> P[i] = p + g\n"
            "let p = P(w = [1.0])\nprint(f(zeros_like(p), p).w)\n",
            "[1.0]",
        ),
        (
            "record P[i] { w: f32[i] }\nrecord S[i] { m: D(P[i]), t: i32 }\n"
            "fn new(p: P[i]) -> S[i] = S(m = zeros_like(p), t = 3)\nprint(new(P(w = [1.0])).t)\n",
            "3",
        ),
    ],
)
def test_what_is_shown(program: str, shown: str) -> None:
    assert run_program(program).strip().startswith(shown)


def test_a_gradient_of_a_record_of_floats_has_its_class() -> None:
    """So that `jax.tree.map` and optimizers take parameters and gradients together."""
    module = difflang.loads(
        "record P { a: f32, b: f32[2] }\nfn f(p: P) -> f32 = p.a * sum(p.b)\n"
        "fn move(p: P, g: D(P)) -> P = p + -0.5 * g\n"
    )
    p = module.P(a=2.0, b=np.ones(2, np.float32))
    g = module.f.grad("p")(p)
    assert type(g) is module.P
    moved = jax.tree.map(lambda x, d: x - 0.5 * d, p, g)
    again = module.move(p, g)
    np.testing.assert_array_equal(moved.b, again.b)
    assert float(moved.a) == float(again.a) == 1.0


def endless(stop: int) -> Builder:
    """A loop without a limit that counts to `stop`."""
    builder = Builder()
    limit, start = builder.const(-1, Tensor(I32)), builder.param(Tensor(I32))
    step, go = Builder(), Builder()
    _, x = step.param(Tensor(I32)), step.param(Tensor(I32))
    body = step.finish([x + 1])
    _, y = go.param(Tensor(I32)), go.param(Tensor(I32))
    ask = go.finish([go.one("lt", y, go.const(stop, Tensor(I32)))])
    attrs = {"consts": 0, "carry": 1, "length": None, "exact": False, "reverse": False}
    builder.emit(OPS["loop"], [limit, start], (body, ask), **attrs)
    return builder


def test_a_loop_without_a_limit_ends_by_its_condition_alone() -> None:
    builder = endless(7)
    graph = builder.finish(builder.eqns[-1].results)
    assert graph.eqns[-1].regions[1].results[0].type == Tensor(BOOL)
    assert [int(x) for x in evaluate(graph, np.int32(3))] == [4, 7]
    assert [int(x) for x in compile_graph(graph)(np.int32(3))] == [4, 7]


def test_a_while_loop_has_no_limit() -> None:
    text = difflang.loads("fn f(x: f32) -> f32 {\n  var y = x\n  while y > 1.0 { y /= 2.0 }\n  y\n}\n").f.ir("ir", 1.0)
    assert "value = -1" in text


def test_what_only_a_mistake_would_give_is_refused() -> None:
    with pytest.raises(DifflangError, match="returns f32, not f32"):
        checked("fn s(f: (f32[d]) -> f32[d], x: f32[d]) -> f32[d] = x + f(x)\nprint(s(|x| sum(x), [1.0, 2.0]))\n")


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        (  # what a nested function captures is part of what it is specialized to
            "record C { k: i32, s: f32 }\n"
            "fn st(k: dim, x: f32) -> f32 {\n  let c = C(k, 2.0)\n"
            "  fn inner(y: f32) -> f32 { if c.k == 2 { y } else { y * 100.0 } }\n  inner(x)\n}\n"
            "print(st(2, 1.0), st(3, 1.0))\n",
            "1.0 100.0",
        ),
        (
            "fn mk(k: dim) { |x: f32| sum(zeros(k) + x) }\n"
            "fn outer(k: dim, y: f32) -> f32 {\n  let f = mk(k)\n  fn inner(x: f32) -> f32 { f(x) }\n  inner(y)\n}\n"
            "print(outer(2, 1.0), outer(3, 1.0))\n",
            "2.0 3.0",
        ),
        (  # the target of an update is evaluated once
            "fn u() -> i32[3] {\n  var a = [1, 2, 3]\n  var k = 0\n  a[{ k += 1\n  k }] *= 10\n  a\n}\nprint(u())\n",
            "[1, 20, 3]",
        ),
        (  # a name bound again in a block is another one
            "var s = 1.0\nif s > 0.0 {\n  s += 1.0\n  let s = 9.0\n  print(s)\n}\nprint(s)\n",
            "9.0\n2.0",
        ),
        (  # a host function sees the names of the file
            "let a = 1.0\nhost fn h() { print(a) }\nhost fn g(a: f32) { h() }\ng(7.0)\nh()\n",
            "1.0\n1.0",
        ),
        (  # what stands right of `and` and `or` is evaluated only where it matters
            "fn f(x: f64[n]) -> i32 {\n  var i = 0\n  while i < n and x[i] > 0.0 { i += 1 }\n  i\n}\n"
            "fn g(x: f64[n], i: i32) -> bool = i >= n or x[i] > 0.0\n"
            "print(f([1.0, 2.0]), f([1.0, -2.0]), g([1.0], 1), g([-1.0], 0))\n",
            "2 1 true false",
        ),
        (  # a division and a function may fail too
            "fn f(k: i32) -> bool = k != 0 and 100 // k > 7\nfn g(k: i32) -> bool = k == 0 or (k |> f)\n"
            "fn h(k: i32) -> bool = k > 0 and 100 % k % 2 == 0\nfor k in 0..3 { print(f(k), g(k), h(k)) }\n",
            "false true false\ntrue true true\ntrue true true",
        ),
        (  # one condition for all of an array; a function that has the name of an op
            "fn f(c: bool, x: i32[n], k: i32) -> bool[n] = c and 6 // x > x[k]\nfn sign(k: i32) -> i32 = 6 // k\n"
            "fn g(k: i32) -> bool = k != 0 and sign(k) > 2\n"
            "print(f(false, [0, 1], 9), f(true, [1, 3], 0), g(0), g(2))\n",
            "[false, false] [true, true] false true",
        ),
    ],
)
def test_scopes_and_evaluation(program: str, shown: str) -> None:
    assert run_program(program).strip() == shown


def test_a_check_is_not_lost_between_specializations() -> None:
    source = """fn outer(k: dim, x: f32[5]) -> f32 {
  var s = 0.0
  for i in 0..k {
    fn h() -> f32 { x[i] }
    s += h()
  }
  s
}
"""
    outer = difflang.loads(source).outer
    x = np.arange(1, 6, dtype=np.float32)
    assert float(outer(3, x)) == 6.0
    with pytest.raises(IndexError, match="index 5 is out of range"):
        outer(9, x)


def test_each_draw_has_a_key_of_its_own() -> None:
    """In a condition each step draws anew; a loop's first draw is not a called function's second."""
    source = """fn count() -> i32 {
  var n = 0
  while uniform() < 0.9 { n += 1 }
  n
}
fn two() -> f32[2] = [uniform(), uniform()]
fn both() -> (f32[2], f32[3], f32[3]) {
  let a = two()
  var b = zeros(3)
  for i in 0..3 { b[i] = uniform() }
  (a, b, [for i in 0..3 => uniform()])
}
"""
    module = difflang.loads(source)
    assert len({int(module.count(key=k)) for k in range(8)}) > 2
    draws = np.concatenate([np.asarray(x) for x in module.both(key=0)])
    assert len(np.unique(draws)) == 8


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("fn f(x: f32) -> f32 {\n  var y = x\n  while { y *= 2.0\n  y < 9.0 } { y += 1.0 }\n  y\n}\n", "DL0505"),
        ("fn f(x: f32[n]) -> f32 {\n  var s = 0.0\n  sum([for i => { s += x[i]\n  s }])\n}\n", "DL0208"),
        ("fn sq[T: num](x: T) -> T = x * x\nprint(sq([1.0, 2.0]))\n", "DL0304"),
        ("fn f(x: f32, y: f32) -> f32 = x * y\nprint(grad[x, x](f)(1.0, 2.0))\n", "DL0403"),
        ("record P { a: f32 }\nfn f(p: P, q: P) -> f32 = p.a * q.a\n"
         "print(grad[p.a, q.a](f)(P(a = 1.0), P(a = 2.0)))\n", "DL0403"),
    ],
)  # fmt: skip
def test_what_is_refused(program: str, code: str) -> None:
    with pytest.raises(DifflangError, match=code):
        checked(program)


@pytest.mark.parametrize("outside", ["var total = 0.0", "let total = 0.0"])
@pytest.mark.parametrize("inside", ["total += a", "total = a"])
def test_a_lambda_assigns_to_nothing_outside_it(outside: str, inside: str) -> None:
    program = f"fn f(x: f32) -> f32 {{\n  {outside}\n  let g = |a: f32| {{ {inside}\n  a }}\n  g(x) + total\n}}\n"
    with pytest.raises(DifflangError, match=r"DL0208.*a lambda cannot assign to `total`, which stands outside it"):
        checked(program)


CHOSEN = [
    ("fn f(n: dim, x: f64) -> f64 {\n let (g, k) = if n > 2 { (|t| t + x, 1) } else { (|t| t * x, 2) }\n g(k)\n}", "(f(3, 5), f(1, 5))", (6, 10)),
    ("fn f(n: dim, x: f64) -> f64 {\n let g = if n > 2 { |t| t + x } else { |t| t * x }\n g(x)\n}", "(f(3, 5), f(1, 5))", (10, 25)),
    ("fn f(x: f64[n]) -> f64 {\n let (a, b) = if n % 2 == 0 and n > 1 { (x[0], |t| t) } else { (1, |t| 2 * t) }\n b(a)\n}", "(f([5, 6]), f([5]))", (5, 2)),
    ("record P[T] { g: T, k: f64 }\nfn f(n: dim, x: f64) -> f64 {\n let p = if not (n > 2) { P(|t| t + x, 1) } else { P(|t| t * x, 2) }\n p.g(p.k)\n}", "(f(1, 5), f(3, 5))", (6, 10)),
    ("fn f(x: f64[n]) -> f64[n] = if n > 2 { x } else { [1, 2] }", "(f([5, 6, 7]), f([5, 6]))", ([5, 6, 7], [1, 2])),
]  # fmt: skip


@pytest.mark.parametrize(("source", "ask", "value"), CHOSEN, ids=range(len(CHOSEN)))
def test_sizes_choose_between_values_of_different_types(source: str, ask: str, value: tuple[object, ...]) -> None:
    """A definition does not know which side is taken; every use does, and takes that side alone."""
    compare(answer(ask, source), value)


WRONG_CHOICES = [
    ("fn f(c: bool) -> f64 {\n let (g, k) = if c { (|t| t, true) } else { (|t| 2 * t, 2.0) }\n g(k)\n}", "DL0327", 2),
    ("fn f(x: f64[n]) -> f64[n] = if n > 2 { x } else { [1, 2] }\nprint(f([1]))", "DL0304", 1),
]


@pytest.mark.parametrize(("source", "code", "line"), WRONG_CHOICES)
def test_what_the_run_chooses_is_of_one_type(source: str, code: str, line: int) -> None:
    assert codes(f"{source}\n".replace("f64", "f32")) == [(code, line)]


@pytest.mark.parametrize(
    "made", ["zeros(k)", "fill(k, 1.0)", "iota(k)", "eye(k)", "linspace(0.0, 1.0, k)", "uniform(k)", "permutation(k)",
             "repeat([1.0], k)", "pad([1.0, 2.0], k, 0)", "reshape([1.0], [-2, -1])"],
)  # fmt: skip
def test_a_size_that_the_run_tells_is_not_negative(made: str) -> None:
    assert codes(f"var k = 1\nk -= 2\nprint({made})\n") == [("DL0303", 3)]


DEEPER = "fn f(g: f32 -> f32, k: dim, x: f32) -> f32 = if k > 0 {{ f(|y| g(y) + 1.0, k - 1, x) }} else {{ g(x) }}\n{}"


def test_functions_may_be_made_of_one_another() -> None:
    compare(answer("f(|y| y, 90, 0.5)", DEEPER.format("")), 90.5)


@pytest.mark.parametrize("source", [
    "fn f(g: f32 -> f32, x: f32) -> f32 = if x > 0.0 { f(|y| g(y) + 1.0, x - 1.0) } else { g(x) }\nprint(f(|y| y, 3.0))\n",
    "fn f(g: f32 -> f32, x: f32) -> f32 {\n let h = |y: f32| g(y) * g(sin(y))\n f(h, x - 1.0)\n}\nprint(f(|y| y, 3.0))\n",
    DEEPER.format("print(f(|y| y, 120, 1.0))\n"),
    "fn f(p: (f32 -> f32, f32), x: f32) -> f32 {\n let (g, a) = p\n f((|y: f32| g(y) + 1.0, a), x)\n}\nprint(f((|y: f32| y, 1.0), 3.0))\n",
    "fn f(g: f32 -> f32, x: f32) -> f32 {\n fn h(y: f32) -> f32 = g(y) + 1.0\n f(h, x - 1.0)\n}\nprint(f(|y| y, 3.0))\n",
])  # fmt: skip
def test_a_function_made_of_the_one_before_without_end_is_reported(source: str) -> None:
    line = 3 if "{\n" in source else 1
    assert codes(source) == [("DL1003", line)]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("max(n, m) == min(n, m)", []),
        ("max(n, m) <= 3 and min(n, m) >= 3", []),
        ("sqrt(f32(n)) == sqrt(f32(m))", []),
        ("T(n) / T(m) == 1", []),
        ("i32(sqrt(f64(n))) == 3 and abs(n - m) < 1", []),
        ("sqrt(f32(n)) > sqrt(f32(m))", ["DL0310"]),
        ("max(k, 2) == 3", ["DL0310"]),
    ],
)
def test_a_condition_on_sizes_refutes_only_what_differs(condition: str, found: list[str]) -> None:
    """Its numbers are of the types that it computes with; the greater of two sizes follows from both."""
    program = f"fn f[T: float](x: T[n], y: T[m], k: dim) -> T[n] where {condition} = x + y\n"
    assert [code for code, _ in codes(program)] == found


def test_a_remainder_by_a_size() -> None:
    """In a definition the size is a name."""
    assert answer("f([1, 2, 3])", "fn f(x: f64[n]) -> f64 = x[7 % n] + f64(7 % n)") == 3.0
