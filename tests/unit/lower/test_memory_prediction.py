"""What is predicted of a program's memory is within a tenth of what XLA says of it when it has compiled it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.pallas import pallas_call, run_state

from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.ir.graph import Graph
from difflang.lower import fusion_model as kernels_module
from difflang.lower.buffer_assignment import Buffer, BufferAssignment, reuse_result_buffers
from difflang.lower.jaxpr_reader import read_jaxpr
from difflang.lower.lowering_pipeline import finalize_graph
from difflang.runtime.compile import compile_graph
from difflang.runtime.predict_memory import predict_memory
from difflang.tools.emit import EmitRequest, function_graph

PROGRAMS = {
    "layers": """fn f(w: f32[n, n], v: f32[n, n], x: f32[2 * n, n]) -> f32 {
      let h = tanh(tanh(x @ w) @ v)
      sum(h * h)
    }""",
    "residual": """fn f(w: f32[n, n], x: f32[3 * n, n]) -> f32 {
      let a = relu(x @ w) * 0.9 + x
      let b = relu(a @ w) * 0.9 + a
      let c = relu(b @ w) * 0.9 + b
      sum(c * c)
    }""",
    "normalized": """fn f(w: f32[n, n], x: f32[n, n]) -> f32 {
      let c = x @ w
      let d = c - mean(c, axis = 1, keepdims = true)
      let h = d / sqrt(mean(d * d, axis = 1, keepdims = true) + 0.01)
      sum(gelu(h @ w))
    }""",
    "pairs": """fn f(w: f32[n], y: f32[n]) -> f32 = sum([for i in 0..n, j in 0..n => exp(-(w[i] - y[j])^2) * y[j]])""",
    "recurrent": """fn f(w: f32[n, n], xs: f32[30, 8, n]) -> f32 {
      var h = zeros(8, n)
      for x in xs {
        let z = sigmoid(x @ w + h @ w)
        h = z * h + (1.0 - z) * tanh(x + h)
      }
      sum(h * h)
    }""",
    "stencil": """fn f(w: f32[100 * n]) -> f32 {
      var u = w
      for i in 0..50 { u[1..100 * n - 1] += 0.1 * (u[2..] - 2.0 * u[1..100 * n - 1] + u[0..100 * n - 2]) }
      sum(u * u)
    }""",
    "nested": """fn f(w: f32[n, n], x: f32[n, n]) -> f32 {
      var h = x
      for i in 0..5 { for j in 0..6 { h = tanh(h @ w) + h } }
      sum(h * h)
    }""",
    "chosen": """fn f(w: f32[n, n], x: f32[n, n]) -> f32 {
      let h = if sum(x) > 0.0 { tanh(x @ w) @ w } else { sin(x) * w }
      sum(h * h)
    }""",
    "few_states": """fn f(w: f32[100 * n]) -> f32 {
      var x = w
      @checkpoint(revolve, slots = 10)
      for i in 0..100 { x = sin(0.9 * x) + 0.1 * cos(x) }
      sum(x)
    }""",
    "few_states_of_many_steps": """fn f(w: f32[2 * n]) -> f32 {
      var x = w
      @checkpoint(revolve, slots = 12)
      for i in 0..1000 { x = sin(0.9 * x) + 0.1 * cos(x) }
      sum(x)
    }""",
    "read_by_two": """fn f(w: f32[7, n], x: f32[8 * n, 3]) -> f32 {
      var h = x
      @checkpoint(revolve, slots = 2)
      for i in 0..20 { h = h + tanh(h @ w[0..3] + w[3]) @ transpose(w[4..7]) }
      sum(h * h)
    }""",
    "images": """fn f(w: f32[3, 3, 4, 4], x: f32[2, n, n, 4]) -> f32 {
      let h = relu(conv2d(relu(conv2d(x, w)), w))
      sum(h * h)
    }""",
}


def graph(name: str, size: int) -> Graph:
    """The gradient of a program in its first parameter."""
    checked = check_program(Source(name, PROGRAMS[name]), None, Path(), ())
    assert not checked.diagnostics
    return finalize_graph(
        function_graph(checked, checked.module.fns["f"], EmitRequest("ir", "f", {"n": str(size)}, "0"))
    )


def off(graph: Graph) -> float:
    """How far the prediction is from what XLA takes."""
    return predict_memory(graph).peak / compile_graph(graph).memory_bytes - 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_predicted_is_what_xla_takes(name: str) -> None:
    assert abs(off(graph(name, 64))) <= 0.1


@pytest.mark.parametrize("size", [24, 100])
def test_at_other_sizes_too(size: int) -> None:
    assert abs(off(graph("recurrent", size))) <= 0.01
    assert off(graph("layers", size)) == 0


def test_without_fusion_the_prediction_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of which each step is a kernel is caught."""
    whole = graph("normalized", 64)

    def every(self: Any, step: Any, where: Any) -> bool:
        return True

    monkeypatch.setattr(kernels_module.FusionModel, "has_own_kernel", every)
    assert abs(off(whole)) > 0.1


def test_every_line_is_accounted_for() -> None:
    found = predict_memory(graph("layers", 32))
    places = {b.source_line for b in found.live_at_peak() if b.role == "between" and b.bytes}
    assert places and all(place is not None and place[0] == "layers" for place in places)
    assert sum(b.bytes for b in found.live_at_peak()) == found.peak


def pallas_kernel(x: jax.Array) -> jax.Array:
    def kernel(x: Any, out: Any) -> None:
        out[...] = x[...] * x[...]

    return pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(2,), interpret=True)(x)


@jax.custom_jvp
def called(x: jax.Array) -> jax.Array:
    return x * x


called.defjvp(lambda primals, tangents: (called(*primals), 2.0 * primals[0] * tangents[0]))


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (pallas_kernel, ["array"]),
        (lambda x: run_state(lambda ref: ref.__setitem__(0, 1.0))(x), ["array"]),
        (called, ["fused"]),
        (jax.checkpoint(called), ["fused"]),
    ],
    ids=["kernel", "references", "custom derivative", "checkpoint"],
)
def test_only_calls_are_inlined(function: Callable[[jax.Array], Any], kinds: list[str]) -> None:
    """A kernel has references for params, and gives nothing."""
    read = read_jaxpr(jax.make_jaxpr(function)(jnp.ones(4)).jaxpr)
    assert [step.kind for step in read.steps] == kinds
    assert [value.bytes for value in (*read.takes, *read.gives)] == [16, 16]


def test_the_room_of_a_result_is_lent_to_one_after_the_other() -> None:
    result = Buffer(100, None, 10, 20, "result")
    early, too_large, at_once, later = (
        Buffer(n, None, *when) for n, when in ((80, (0, 4)), (101, (0, 4)), (60, (3, 6)), (50, (5, 9)))
    )
    buffers = [result, early, too_large, at_once, later]
    taken = frozenset(reuse_result_buffers(buffers))
    assert taken == {early, later}
    assert BufferAssignment(tuple(buffers), taken, 20).peak == 100 + 161
