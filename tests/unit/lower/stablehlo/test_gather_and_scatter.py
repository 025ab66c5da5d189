"""Lookups and writes at indices, written for XLA as JAX has them: in each mode, for each platform, of nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang.ir.builder import Builder
from difflang.ir.op import OPS, Op
from difflang.ir.tensor_types import F32, Tensor
from difflang.lower.graph_to_jax import lower_eqns_with
from difflang.lower.source_locations import SourceFrames
from difflang.lower.stablehlo.graph_primitive import PrimitiveBody, bind_graph
from support.op_calls import calls_of

Mode = jax.lax.GatherScatterMode
PLACED = [OPS[name] for name in ("gather", "scatter", "scatter_add", "scatter_mul", "scatter_max", "scatter_min")]
AT = np.array([[0], [7], [-1], [2], [2]], np.int32)
ITEMS = np.arange(1, 6, dtype=np.float32)
READS = jax.lax.GatherDimensionNumbers((), (0,), (0,))
WRITES = jax.lax.ScatterDimensionNumbers((), (0,), (0,))
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    **{
        f"gather {mode}": lambda lax, x, mode=mode: lax.gather(x, AT, READS, (1,), mode=mode)
        for mode in (Mode.CLIP, Mode.FILL_OR_DROP)
    },
    **{
        f"{name} {mode}": lambda lax, x, name=name, mode=mode: getattr(lax, name)(x, AT, ITEMS, WRITES, mode=mode)
        for name in ("scatter_add", "scatter_max")
        for mode in (Mode.CLIP, Mode.FILL_OR_DROP)
    },
}


@pytest.mark.parametrize("name", CALLS)
def test_each_mode_is_that_of_jax(name: str) -> None:
    x = np.array([3.0, -1.0, 2.0, 8.0], np.float32)
    theirs = np.asarray(jax.jit(partial(CALLS[name], jax.lax))(x))
    builder = Builder()
    like = builder.finish([builder.const(0, Tensor(F32, theirs.shape))])
    body = PrimitiveBody(like, lambda jax, _, graph, xs: [CALLS[name](jax.lax, *xs)], SourceFrames())
    (ours,) = jax.jit(lambda x: bind_graph(body, [x]))(x)
    assert np.asarray(ours).tobytes() == theirs.tobytes()


@pytest.mark.parametrize("op", PLACED, ids=str)
@pytest.mark.nightly_except("scatter|scatter_min")
def test_other_platforms_get_what_jax_would_give_them(op: Op) -> None:
    """In any order, any index more than once: on a GPU writes that were promised to be apart would race."""

    def attributes(text: str) -> list[str]:
        return sorted(re.findall(r'"stablehlo\.(?:gather|scatter)"\(.*?<\{(.*?)\}>', text))

    for call in calls_of(op):
        builder = Builder()
        graph = builder.finish(builder.emit(op, [builder.param(t) for t in call.types], **call.attrs))
        body = PrimitiveBody(graph, partial(lower_eqns_with, "cuda", False), SourceFrames())
        with jax.enable_x64(True):
            texts = [
                jax.jit(f).trace(*call.arrays).lower(lowering_platforms=("cuda",)).as_text()
                for f in (lambda *xs, body=body: bind_graph(body, xs), call.lower)
            ]
        ours, theirs = map(attributes, texts)
        assert ours == theirs, str(call)


@pytest.mark.parametrize(
    "body",
    ["x[b][k[b, i]]", "grad(|v| sum([for j => v[k[b, j]]]))(x[b])[0] * x[b][k[b, i]]"],
)
def test_an_empty_batch_of_lookups(body: str) -> None:
    f = difflang.loads(f"fn f(x: f32[q, n], k: i32[q, m]) -> f32[q, m] = [for b => [for i => {body}]]", name="f").f
    assert f(np.zeros((0, 4), np.float32), np.zeros((0, 5), np.int32)).shape == (0, 5)


def test_no_lanes_of_writes() -> None:
    source = "fn f(x: f32[n], k: i32[m]) -> f32[m] {\n  var y = x\n  y[k] = sin(y[k])\n  y[k] max= 0.5\n  y[k] * 2.0\n}"
    f = difflang.loads(source, name="f").f
    x, k = np.zeros((0, 4), np.float32), np.zeros((0, 5), np.int32)
    assert jax.vmap(f)(x, k).shape == (0, 5)
    assert jax.jit(jax.vmap(jax.grad(lambda x, k: f(x, k).sum())))(x, k).shape == (0, 4)
