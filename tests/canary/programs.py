"""Programs that hurt XLA on the CPU, built directly, each run in a process of its own:

    python programs.py NAME SIZE ELEMENTS [uncut]

prints one line of JSON: equations, CPU seconds to build and compile, CPU milliseconds to run, whether it is right.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import difflang.ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  fills the registry
from difflang.ad.expand_derivatives import differentiate
from difflang.base.diagnostics import DifflangError
from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F32, Tensor
from difflang.lower.cpu import split_fusion_chains
from difflang.lower.graph_to_jax import count_equations
from difflang.passes.cse import cse
from difflang.passes.dce import dce
from difflang.runtime.compile import compile_graph, shape_struct


def step(x: Value, y: Value) -> Value:
    return OPS["sin"].one(y * 1.01) * x + y


def line(equations: int, type: Tensor, one: Callable[[Value, Value], Value] = step) -> Graph:
    """y = step(x, y), again and again: about that many equations."""
    builder = Builder()
    x, y = builder.param(type, "x"), builder.param(type, "y")
    y = one(x, y)
    for _ in range(equations // len(builder.eqns) - 1):
        y = one(x, y)
    return builder.finish([y], name="line")


def gradient(graph: Graph) -> Graph:
    """The graph with its vjp: both cotangents of the one result."""
    builder = Builder()
    xs = [builder.param(p.type) for p in graph.params]
    ct = builder.param(graph.results[0].type)
    out = builder.emit(OPS["vjp"], [*xs, ct], (graph,), wrt=(True,) * len(xs))
    return cse(dce(differentiate(builder.finish(out, name="gradient"))))


def gradient_of_line(size: int, type: Tensor) -> Graph:
    """Size counts the equations of the gradient: eleven for a step, which is five where each has its own constant."""
    return gradient(line(size * 5 // 11, type))


def nested(size: int, type: Tensor) -> Graph:
    return line(size, type, lambda x, y: OPS["sin"].one(y))


def tanh_cos(size: int, type: Tensor) -> Graph:
    return gradient(line(size // 3, type, lambda x, y: OPS["tanh"].one(y) * OPS["cos"].one(y)))


def reductions(size: int, type: Tensor) -> Graph:
    """Normalized again and again: reductions and broadcasts among elementwise steps."""

    def one(x: Value, y: Value) -> Value:
        total = OPS["reduce_sum"].one(y * y, axes=(0,))
        return y / OPS["broadcast"].one(total, shape=type.shape, axes=()) + x

    return line(size, type, one)


def wide(size: int, type: Tensor) -> Graph:
    """Many independent terms, added in a tree: shallow."""
    builder = Builder()
    x, y = builder.param(type), builder.param(type)
    terms = [OPS["sin"].one(x * (1.0 + i / size)) * y for i in range(size // 5)]
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)] + ([terms[-1]] if len(terms) % 2 else [])
    return builder.finish(terms, name="wide")


def long_sum(size: int, type: Tensor) -> Graph:
    builder = Builder()
    x, y = builder.param(type), builder.param(type)
    total = x
    for _ in range(size // 2):
        total = total + x * y
    return builder.finish([total], name="long_sum")


def matrices(size: int, type: Tensor) -> Graph:
    """Products of small matrices: nothing to fuse, only long."""
    square = Tensor(F32, (4, 4))
    builder = Builder()
    x, y = builder.param(square), builder.param(square)
    for _ in range(size):
        y = OPS["dot_general"].one(x, y, contract=((1,), (0,)), batch=((), ()))
    return builder.finish([y], name="matrices")


def small_calls(size: int, type: Tensor) -> Graph:
    """A short function called in a row: copied where it is called."""
    body = build_region([type, type], lambda x, y: [step(x, y)], "step")
    builder = Builder()
    x, y = builder.param(type), builder.param(type)
    for _ in range(size // 4):
        (y,) = builder.emit(OPS["call"], [x, y], (body,), name="step")
    return builder.finish([y], name="small_calls")


def doubling(size: int, type: Tensor) -> Graph:
    """Each function calls the one before it twice: `size` equations stand for 2 ** (size / 10)."""
    body = line(12, type)
    for _ in range(size // 10):

        def twice(x: Value, y: Value, f: Graph = body) -> list[Value]:
            (y,) = y.home.emit(OPS["call"], [x, y], (f,), name="f")
            (y,) = y.home.emit(OPS["call"], [x, y], (f,), name="f")
            for _ in range(3):
                y = OPS["sin"].one(y) + x
            return [y]

        body = build_region([type, type], twice, "f")
    return body


PROGRAMS: dict[str, Callable[[int, Tensor], Graph]] = {
    f.__name__: f
    for f in (gradient_of_line, nested, tanh_cos, reductions, wide, long_sum, matrices, small_calls, doubling)
}


def main(name: str, size: int, elements: int) -> dict[str, Any]:
    type = Tensor(F32, (elements,)) if elements else Tensor(F32)
    start = time.process_time()
    graph = PROGRAMS[name](size, type)
    built = time.process_time()
    executable = compile_graph(graph)
    try:
        executable.build()
    except DifflangError as error:
        return {"refused": error.diagnostics[0].code}
    made = time.process_time()
    draw = np.random.default_rng(0)
    shapes = [shape_struct(p.type, None).shape for p in graph.params]
    xs = [draw.uniform(0.1, 0.4, shape).astype(np.float32) for shape in shapes]
    arrays = [jax.device_put(x) for x in xs]
    found = jax.block_until_ready(executable(*arrays))
    times: list[float] = []
    for _ in range(10):
        again = time.process_time()
        jax.block_until_ready(executable(*arrays))
        times.append(time.process_time() - again)
    counted = count_equations(graph)
    right = counted.expanded > 100_000 or all(
        np.allclose(a, b, rtol=1e-2, atol=1e-3, equal_nan=True)
        for a, b in zip(found, evaluate(graph, *xs), strict=True)
    )
    return {
        "equations": counted.size, "build": round(built - start, 2), "compile": round(made - built, 2),
        "run": round(min(times) * 1e3, 3), "right": right,
    }  # fmt: skip


if __name__ == "__main__":
    if sys.argv[4:] == ["uncut"]:
        split_fusion_chains.MAX_CHAIN_DEPTH = split_fusion_chains.MAX_GRAPH_LENGTH = 10**9
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
