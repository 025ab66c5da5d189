"""Loops, branches and functions that are written give the bits of those that JAX traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.core import ShapedArray

import difflang
from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.tensor_types import F64, I32, Tensor
from difflang.lower.source_locations import SourceFrames
from difflang.lower.stablehlo.graph_primitive import PrimitiveBody, bind_graph, graph_p
from difflang.runtime.compile import trace_graph

Function = Callable[..., list[Any]]  # (jax or what stands in for it, *arrays) -> arrays
X = np.array([[0.5, -1.5, 2.0], [3.0, -0.0, 1e-3]])
N = np.array(3, np.int32)


def a_loop_with_numbers_and_what_stands_around(jax: Any, x: Any, n: Any) -> list[Any]:
    twice = x * 2.0

    def body(at: Any) -> Any:
        i, (y, kept) = at
        return jax.lax.add(i, np.int32(1)), (y * 0.5 + twice, jax.lax.select(i < 1, y, kept))

    start = (np.int32(0), (x, x))
    return jax.tree.leaves(jax.lax.while_loop(lambda at: jax.lax.lt(at[0], n), body, start))


def loops_in_loops(jax: Any, x: Any, n: Any) -> list[Any]:
    lax = jax.lax

    def inner(y: Any, i: Any) -> Any:
        return lax.while_loop(lambda at: at[0] < i, lambda at: (at[0] + 1, at[1] + x * 0.25), (np.int32(0), y))[1]

    return [lax.while_loop(lambda at: at[0] < n, lambda at: (at[0] + 1, inner(at[1], at[0])), (np.int32(0), x))[1]]


def branches(jax: Any, x: Any, n: Any) -> list[Any]:
    def small(y: Any) -> Any:
        return y + 1.0, (n, jax.lax.neg(y))

    def large(y: Any) -> Any:
        return y * x, (np.int32(7), y)

    return jax.tree.leaves([jax.lax.cond(n < limit, small, large, x - 1.0) for limit in (2, 9)])


def branches_in_loops(jax: Any, x: Any, n: Any) -> list[Any]:
    def body(at: Any) -> Any:
        i, y = at
        return i + 1, jax.lax.cond(i < 1, lambda: y * x, lambda: y - x)

    return [jax.lax.while_loop(lambda at: at[0] < n, body, (np.int32(0), x))[1]]


def functions(jax: Any, x: Any, n: Any) -> list[Any]:
    def half(y: Any, k: Any) -> list[Any]:
        return [y * 0.5, k + 1]

    half = jax.jit(half)
    y, k = half(x, n)
    z, _ = half(y, k)
    (row, _) = half(jax.lax.reshape(z, (6,)), k)
    return [y, k, z, row]


def functions_in_functions(jax: Any, x: Any, n: Any) -> list[Any]:
    twice = jax.jit(lambda y: [y + y])
    four = jax.jit(lambda y: [jax.lax.mul(twice(y)[0], twice(y)[0])])
    return [jax.lax.while_loop(lambda at: at[0] < n, lambda at: (at[0] + 1, *four(at[1])), (np.int32(0), x))[1]]


def places(jax: Any, x: Any, n: Any) -> list[Any]:
    lax = jax.lax
    row = lax.dynamic_slice(x, (np.int32(1), np.int32(0)), (1, 3), allow_negative_indices=False)
    beyond = lax.dynamic_slice(x, (n, n), (1, 2), allow_negative_indices=False)
    new = lax.dynamic_update_slice(x, row, (np.int32(0), np.int32(0)), allow_negative_indices=False)
    table = lax.dynamic_slice(np.arange(12, dtype=np.int32), (n,), (4,), allow_negative_indices=False)
    wide = lax.expand_dims(x, (0, 3))
    return [row, beyond, new, table, wide, lax.squeeze(wide, (0,))]


def parts(jax: Any, x: Any, n: Any) -> list[Any]:
    np_, row = jax.numpy, jax.lax.squeeze(x[1:], (0,))
    counts = jax.lax.convert_element_type(row, np.int32)
    return [
        x[0], x[-1], x[:1], row[1:], row[:-1], row[::2], row[::-1], np_.append(row, row[0]), np_.append(counts, n),
        np_.sum(row <= 1.0, dtype=np.int32), np_.min(row), np_.max(row), np_.min(counts), np_.max(counts),
        np_.max(row, initial=5.0), np_.argmin(row), np_.expand_dims(row, -1) - row, np_.clip(counts, 1, n - 1),
        np_.sum(np_.maximum(np_.expand_dims(counts, -1) - counts, 0), axis=-1, dtype=np.int32),
        jax.lax.clamp(0.0, x, 1.0), jax.lax.clamp(row, row + 1.0, row * 2.0), jax.lax.rem(n, np.int32(2)),
        jax.lax.div(n, np.int32(2)), jax.lax.convert_element_type(x > 0.0, np.int32), x * row,
        x * jax.lax.expand_dims(row, (0,)),
        jax.lax.add(np.int32(1), np.int32(2)), jax.lax.select(np.asarray(True), n, np.int32(4)), len(row) + n,
    ]  # fmt: skip


def ours(function: Function, *arrays: Any) -> list[Any]:
    """What is written, in a trace of JAX."""
    known = jax.make_jaxpr(lambda *xs: function(jax, *xs))(*arrays).out_avals

    class Found(PrimitiveBody):
        def avals(self) -> list[Any]:
            return [ShapedArray(a.shape, a.dtype) for a in known]

    body = Found(Builder().finish([]), lambda module, frames, graph, given: function(module, *given), SourceFrames())
    return graph_p.bind(*arrays, body=body)


@pytest.mark.parametrize(
    "function",
    [
        a_loop_with_numbers_and_what_stands_around, loops_in_loops, branches, branches_in_loops, functions,
        functions_in_functions, places, parts,
    ],
)  # fmt: skip
def test_what_is_written_is_what_is_traced(function: Function) -> None:
    with jax.enable_x64(True):
        found, wanted = (
            [np.asarray(y) for y in jax.jit(run)(X, N)]
            for run in (lambda *xs: ours(function, *xs), lambda *xs: function(jax, *xs))
        )
    assert len(found) == len(wanted) > 0
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()


def test_a_region_that_gives_another_type_is_a_fault_of_the_compiler() -> None:
    def widening(jax: Any, x: Any, n: Any) -> list[Any]:
        return [jax.lax.while_loop(lambda n: n < 9, lambda n: jax.lax.convert_element_type(n, np.float64), n)]

    graph = Builder()
    x, n = graph.param(Tensor(F64, X.shape)), graph.param(Tensor(I32))
    body = PrimitiveBody(
        graph.finish([n], params=(x, n)), lambda module, frames, graph, given: widening(module, *given), SourceFrames()
    )
    with jax.enable_x64(True), pytest.raises(InternalError, match="other types"):
        jax.jit(lambda *xs: bind_graph(body, xs)).lower(X, N)


SOURCE = """
fn stepped(x: f64[n], w: f64[n, n]) -> f64 {
  var y = x
  var k = 0
  while sum(y * y) < 100.0 and k < 40 {
    y = if sum(y) > 0.0 { tanh(w @ y) + y } else { y * 1.1 }
    k += 1
  }
  sum(y)
}
"""


def test_a_program_with_loops_is_one_step_to_jax() -> None:
    gradient = difflang.loads(SOURCE, name="one").stepped.grad("w")
    x, w = np.array([0.5, 0.1, -0.2]), np.eye(3) * 0.3
    with jax.enable_x64(True):
        steps = trace_graph(gradient.lower(x, w).graph, "cpu").jaxpr.eqns
    assert [str(step.primitive) for step in steps] == ["straight"]
    np.testing.assert_allclose(gradient(x, w), gradient.interpret(x, w), rtol=1e-12)


SHARED = """
fn g(a: f64[3, 3], b: f64[3]) -> f64[3] {
  var x = solve(a + 3.0 * eye(3), b)
  x = sin(x) * cos(x) + exp(x) * tanh(x) - x * x + sqrt(abs(x) + 1.0) * b
  x = sin(x) + cos(x) * b
  x
}
fn h(a: f64[3, 3], b: f64[3]) -> f64[3] = g(a, g(a, g(a, b)))
"""


def test_functions_are_exported_for_several_platforms_at_once() -> None:
    """Which platform it is stands in the operands of every function of the program."""
    m: Any = difflang.loads("float f64\n" + SHARED, name="shared")
    a, b = np.eye(3) * 0.5, np.array([0.1, 0.2, 0.3])
    with jax.enable_x64(True):
        exported = jax.export.export(jax.jit(lambda a, b: m.h(a, b)), platforms=("cpu", "cuda"))(a, b)
        np.testing.assert_allclose(exported.call(a, b), m.h.interpret(a, b), rtol=1e-12)
