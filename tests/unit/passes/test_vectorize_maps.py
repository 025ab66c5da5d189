"""Maps are widened: the same numbers, and what whole arrays can do is no longer done lane by lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from derivative_programs import Program, programs
from derivatives import composed
from difflang.ir.builder import build_region
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, I32, Tensor
from difflang.ir.verify import verify
from difflang.ops.control.map import map_
from difflang.passes.maps.vectorize_maps import vectorize_maps

HEADER = "float f64\n"
GONE = {
    "elementwise": "[for i => sin(x[i]) * y[i] + 2.0]",
    "a shared number": "[for i => x[i] * y[0] + norm(y)]",
    "a result that all lanes share": "[for i in 0..3 => y[1] * y[1]]",
    "reductions": "[for i => sum(m[i] * y) + max(m[i]) + prod(m[i])]",
    "shapes": "[for i => sum(transpose(reshape(m[i], [1, 3]))[1..]^2) + sum(reverse(m[i]) * y)]",
    "two indices": "[for i => sum(for j => m[i, j] * x[j] - y[i])]",
    "a branch by values": "[for i => where(x[i] > 0.0, x[i], y[i])]",
    "positions": "[for i => x[i] * f64(argmax(m[i]) + argsort(m[i])[0])]",
    "an index of the lane's own": "[for i => y[k[i]] * x[i] + exp(x[i])]",
    "a row and an item of a row": "[for i => sum(m[k[i]]) + m[i, k[i]] + m[k[i], k[2 - i]]]",
    "a window": "[for i => sum(y[k[i] // 2..k[i] // 2 + 2] * x[i..i + 1])]",
    "a product": "[for i => m[i] @ y + (m @ m[i])[0]]",
    "products": "[for i => sum((m[k] @ m)[i]) * x[i]]",
    "running": "[for i => sum(cumsum(m[i]) * y) + cumprod(m[i], reverse = true)[0]]",
    "a branch": "[for i => if x[i] > 0.0 { sqrt(x[i]) } else { y[i] } + exp(x[i])]",
    "a branch that all take": "[for i => if y[0] > 0.0 { sqrt(y[0]) } else { x[i] } + exp(x[i])]",
    "a filter": "[for i => sum(for j if j < i => x[i] * y[j])]",
    "a loop": "[for i => { var s = x[i]\n for v in y { s = sin(s + v) }\n s * y[i] }]",
    "a loop over items of the lane": "[for i => { var s = x[i]\n for v in m[i] { s = sin(s + v) }\n s * y[i] }]",
    "a branch in a loop": "[for i => { var s = x[i]\n for v in y { if v > 0.0 { s = s * v } }\n s }]",
    "a branch of the lane's own in a loop": "[for i => { var s = x[i]\n for v in y { if s > 0.0 { s = s * v } }\n s }]",
    "outputs of a loop": "[for i => { var s = m[i]\n for j in 1..3 { s[j] = s[j - 1] * y[j] + x[i] }\n sum(s) }]",
}
KEPT = {
    "a branch with an open end": (
        "[for i => { var s = x[i]\n if x[i] > 0.5 { while s < 10.0 { s = s * 2.0 } }\n s * y[i] + exp(x[i]) }]"
    ),
}
X, Y = np.array([0.3, -1.2, 2.0]), np.array([0.7, 0.1, -0.4])
M, K = np.outer(X, Y) + np.arange(9.0).reshape(3, 3), np.array([2, 0, 2], np.int32)


def module(body: str) -> Any:
    parameters = "x: f64[3], y: f64[3], m: f64[3, 3], k: i32[3]"
    source = f"fn f({parameters}) -> f64[3] = {body}\nfn g({parameters}) -> f64 = sum(f(x, y, m, k)^2)\n"
    return difflang.loads(HEADER + source, name="widen")


def maps(text: str) -> int:
    return text.count(" = map ")


@pytest.mark.parametrize("body", GONE.values(), ids=GONE)
def test_the_map_is_gone(body: str) -> None:
    m = module(body)
    for f in (m.f, m.g.grad("y")):
        assert maps(f.ir("optimized", X, Y, M, K)) == 0
        np.testing.assert_allclose(f(X, Y, M, K), f.interpret(X, Y, M, K), rtol=1e-12, atol=1e-15)


def test_a_number_written_at_a_place_of_the_lanes_own_is_chosen_element_by_element() -> None:
    """Such is the derivative of a lookup. A place outside is moved inside, along each axis, as without lanes."""
    grid = Tensor(F64, (3, 4))
    types = [grid, Tensor(F64, (1, 1)), Tensor(I32), Tensor(I32)]
    body = build_region(types, lambda x, u, i, j: OPS["dynamic_update"](x, u, i, j))
    outer = [grid, Tensor(F64, (5, 1, 1)), Tensor(I32, (5,)), Tensor(I32, (5,))]
    graph = build_region(outer, lambda *xs: xs[0].home.emit(map_, xs, (body,), consts=1, length=5))
    wide = vectorize_maps(graph)
    verify(wide)
    assert "map" not in [eqn.op.name for eqn in wide.eqns]
    xs = [np.arange(12.0).reshape(3, 4), -1.0 - np.arange(5.0).reshape(5, 1, 1)]
    places = [np.array(p, np.int32) for p in ((0, 2, -3, 9, 1), (3, 0, 1, 7, -1))]
    np.testing.assert_array_equal(evaluate(wide, *xs, *places)[0], evaluate(graph, *xs, *places)[0])


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_only_what_needs_lanes_stays_in_them(body: str) -> None:
    m = module(body)
    text = m.f.ir("optimized", X, Y, M, K)
    assert maps(text) == 1
    assert "exp" not in text or "exp" not in text.split(" = map ")[1].split("}")[0]
    for f in (m.f, m.g.grad("x")):
        np.testing.assert_allclose(f(X, Y, M, K), f.interpret(X, Y, M, K), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("order", ["", "J", "V", "JV"])
@pytest.mark.parametrize("program", [p for p in programs() if p.name.startswith(("lanes", "table"))], ids=str)
def test_programs_with_maps_compute_the_same(program: Program, order: str) -> None:
    graph = composed(order, program.graph)
    wide = vectorize_maps(graph)
    verify(wide)
    rng = np.random.default_rng(0)
    xs = [np.asarray(x, np.float64) for x in program.arguments]
    xs += [rng.normal(size=p.type.shape) for p in graph.params[len(xs) :]]
    for got, want in zip(evaluate(wide, *xs), evaluate(graph, *xs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_a_graph_without_maps_stays_itself() -> None:
    graph = next(p.graph for p in programs() if p.name == "rotation-exact-7")
    assert vectorize_maps(graph) is graph
