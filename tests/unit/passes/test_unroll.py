"""Short loops within loops, and those of layers, are written out: values and derivatives are those of the loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, I32, Tensor
from difflang.passes import unroll as unrolling
from difflang.passes.unroll import (
    MAX_ELEMENTWISE_DEPTH,
    MAX_INNER_BYTES,
    MAX_LAYER_BYTES,
    MAX_LAYERS,
    MAX_UNROLLED_EQNS,
    unroll,
)

INDEX, VECTOR = Tensor(I32), Tensor(F64, (3,))
TAKES = "(w: f64[3], x: f64[3])"
INNER = {
    "counted": "for j in 0..3 { y = sin(w * y) + 0.1 * f64(j) * y }",
    "a number of steps that is told": "y = many(w, y, 3)",
    "items": "for a in x { y = sin(a * y) + w }",
    "what it yields": "let ys = for j in 0..3 { y = sin(w * y)\nyield y * y }\ny = y + 0.1 * ys[2] - ys[0]",
    "loops within": "for j in 0..2 { for k in 0..2 { y = sin(w * y + f64(j * k)) } }",
    "a check": "for j in 0..3 { y = y * x[j] + w[i % 3] }",
    "a branch": "for j in 0..3 { if sum(y) > 0.3 { y = 0.7 * w * y } else { y = y + w } }",
    "none": "for j in 0..0 { y = w * y }\ny = sin(y)",
}  # fmt: skip


def program(inner: str) -> str:
    return f"""float f64
fn many(w: f64[3], x: f64[3], n: i32) -> f64[3] {{
  var y = x
  for j in 0..n {{ y = sin(w * y) + 0.1 * f64(j) * y }}
  y
}}
fn f{TAKES} -> f64 {{
  var y = x
  for i in 0..5 {{
{inner}
  }}
  sum(y * w)
}}
fn g{TAKES} -> f64[3] = grad(f)(w, x)
fn h{TAKES} -> f64[3] = grad(|w| sum(g(w, x)^2))(w)
"""


def loops(text: str) -> int:
    return text.count(" = loop ")


W, X = np.array([0.7, -1.1, 0.4]), np.array([0.9, 0.3, -0.6])


@pytest.mark.parametrize("name", INNER)
def test_values_and_derivatives_are_those_of_the_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short: Any = difflang.loads(program(INNER[name]), name="short")
    assert loops(short.f.ir("optimized", W, X)) == 1
    for function in (short.f, short.g, short.f.grad(1), short.h):
        np.testing.assert_allclose(function(W, X), function.interpret(W, X), rtol=1e-12, atol=1e-13)
    monkeypatch.setattr(unrolling, "MAX_UNROLLED_EQNS", 0)
    whole: Any = difflang.loads(program(INNER[name]), name="whole")
    if name != "none":
        assert loops(whole.f.ir("optimized", W, X)) > 1


LEFT = {
    "what the program says is kept": "@checkpoint(revolve, slots = 2)\nfor j in 0..3 { y = sin(w * y) }",
    "a deep step": f"for j in 0..2 {{ {'y = sin(w * y)' + chr(10)} {('y = cos(y)' + chr(10)) * (MAX_ELEMENTWISE_DEPTH // 2)} }}",  # noqa: E501
    "a condition": "var j = 0\nwhile j < 3 and sum(y) < 9.0 { y = sin(w * y)\nj += 1 }",
    "too many steps": f"for j in 0..{MAX_UNROLLED_EQNS} {{ y = sin(w * y) }}",
    "a long loop within": f"for j in 0..2 {{ for k in 0..{MAX_UNROLLED_EQNS} {{ y = sin(w * y) }} }}",
    "a derivative": "for j in 0..3 { y = y - 0.1 * grad(|v: f64[3]| sum(sin(w * v)))(y) }",
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_short_or_is_spoken_for_stays_a_loop(name: str) -> None:
    module: Any = difflang.loads(program(LEFT[name]), name="left")
    assert loops(module.f.ir("optimized", W, X)) > 1


def test_a_loop_that_is_in_no_other_stays_one() -> None:
    source = f"float f64\nfn f{TAKES} -> f64 {{\nvar y = x\nfor j in 0..2 {{ y = sin(w * y) }}\nsum(y)\n}}"
    module: Any = difflang.loads(source, name="one")
    assert loops(module.f.ir("optimized", W, X)) == 1


LAYERED = {
    "weights": ("@", 4, 3, False),
    "weights that are transposed": ("@ transpose", 4, 3, False),
    "too many": ("@", MAX_LAYERS + 1, 3, True),
    "large ones": ("@", 4, int((MAX_LAYER_BYTES / 8 / 4 / 2) ** 0.5) + 1, True),
    "no product": ("*", 4, 3, True),
}


@pytest.mark.parametrize("name", LAYERED)
def test_a_few_layers_are_written_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    how, layers, size, stays = LAYERED[name]
    source = f"""float f64
fn f(w: f64[k, n, n], x: f64[n, n]) -> f64 {{
  var y = x
  for layer in w {{ y = tanh(y {how}(layer)) }}
  mean(y^2)
}}
fn g(w: f64[k, n, n], x: f64[n, n]) = grad(|w| sum(grad(f)(w, x)^2))(w)
"""
    draw = np.random.default_rng(0).normal
    given = draw(size=(layers, size, size)) / size**0.5, draw(size=(size, size))
    short: Any = difflang.loads(source, name="short")
    assert loops(short.f.ir("optimized", *given)) == 1
    assert loops(short.f.grad(0).ir("optimized", *given)) == 2 * stays
    monkeypatch.setattr(unrolling, "MAX_LAYERS", 0)
    whole: Any = difflang.loads(source, name="whole")
    assert loops(whole.f.grad(0).ir("optimized", *given)) == 2
    if size < 10:
        for function in (short.f, short.f.grad(0), short.g):
            np.testing.assert_allclose(function(*given), function.interpret(*given), rtol=1e-12, atol=1e-15)


def nested(depth: int, size: int, type: Tensor = VECTOR) -> Graph:
    """Loops of two steps within each other, `size` equations in the innermost, within a loop that stays."""

    def sines(x: Any) -> Any:
        for _ in range(size):
            x = OPS["sin"].one(x)
        return x

    step = build_region([INDEX, type], lambda i, x: [sines(x)])
    for level in range(depth, -1, -1):
        length = 1000 if level == 0 else 2

        def loop(x: Any, step: Graph = step, length: int = length) -> Any:
            attrs = {"consts": 0, "carry": 1, "length": length, "exact": True, "reverse": False}
            return x.home.emit(OPS["loop"], [x.home.const(length, INDEX), x], (step,), **attrs)[1]

        step = (
            build_region([INDEX, type], lambda i, x, loop=loop: [loop(x)])
            if level
            else build_region([type], lambda x: [loop(x)])
        )
    return step


def size_of(graph: Graph) -> int:
    return sum(1 + sum(map(size_of, e.regions)) for e in graph.eqns)


@pytest.mark.parametrize("depth", [1, 3, 6, 9, 12])
def test_loops_within_loops_do_not_multiply(depth: int) -> None:
    small = nested(depth, 3)
    found = size_of(unroll(small))
    assert found <= MAX_UNROLLED_EQNS + size_of(small)
    assert found > 2 * 3


def test_large_steps_and_empty_ones_in_great_number_stay_loops() -> None:
    large = nested(1, 3, Tensor(F64, (MAX_INNER_BYTES // 8,)))
    assert unroll(large) is large
    empty = build_region([INDEX, VECTOR], lambda i, x: [x])
    attrs = {"consts": 0, "carry": 1, "length": 10**6, "exact": True, "reverse": False}

    def many(x: Any, step: Graph) -> Any:
        return x.home.emit(OPS["loop"], [x.home.const(10**6, INDEX), x], (step,), **attrs)[1]

    outer = build_region([INDEX, VECTOR], lambda i, x: [many(x, empty)])
    graph = build_region([VECTOR], lambda x: [many(x, outer)])
    assert unroll(graph) is graph
