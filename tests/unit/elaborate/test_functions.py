"""Functions as arguments, sizes told by tangents, loops that only their condition ends."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import difflang
from difflang.base.diagnostics import DifflangError
from difflang.ir.builder import Builder
from difflang.ir.evaluate import evaluate
from difflang.ir.op import OPS
from difflang.ir.types import BOOL, I32, Tensor
from difflang.runtime.compile import compile
from support.documents import run_program
from support.language import checked


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("fn twice(f: (f64) -> f64, x: f64) -> f64 = grad(f)(x)\nprint(twice(|x| x^3, 2))\n", "12.0"),
        ("fn a(f: (f64) -> f64, x: f64) -> f64 = f(x)\nfn b(f: (f64) -> f64) -> f64 = a(f, 2)\nprint(b(sin))\n", "0.9"),
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
    assert [int(x) for x in compile(graph)(np.int32(3))] == [4, 7]


def test_a_while_loop_has_no_limit() -> None:
    text = difflang.loads("fn f(x: f32) -> f32 {\n  var y = x\n  while y > 1.0 { y /= 2.0 }\n  y\n}\n").f.ir("ir", 1.0)
    assert "value = -1" in text


def test_what_only_a_mistake_would_give_is_refused() -> None:
    with pytest.raises(DifflangError, match="gives f32, not f32"):
        checked("fn s(f: (f32[d]) -> f32[d], x: f32[d]) -> f32[d] = x + f(x)\nprint(s(|x| sum(x), [1.0, 2.0]))\n")
