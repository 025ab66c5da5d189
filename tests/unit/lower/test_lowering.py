"""Compiled is interpreted, for every construct; what cannot be compiled yet says so at its place."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import difflang.ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  fills the registry
from difflang.base.diagnostics import DifflangError, InternalError
from difflang.base.source import Source, Span
from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS, Inactive, Op
from difflang.ir.tensor_types import BOOL, F32, F64, I32, Tensor
from difflang.lower import graph_to_jax
from difflang.lower.graph_to_jax import Lowering
from difflang.runtime.compile import compile_graph, lower_for_platform
from support.graphs import arguments, random_graph

SCALAR, INDEX, VECTOR = Tensor(F64), Tensor(I32), Tensor(F64, (4,))


def same(graph: Graph, *given: Any, rel: float = 1e-12) -> list[Any]:
    """Run by both engines."""
    wanted = evaluate(graph, *[np.asarray(x) for x in given])
    found = [np.asarray(x) for x in compile_graph(graph)(*given)]
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=rel)
    return found


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs(seed: int) -> None:
    graph = random_graph(seed)
    given = arguments(graph, seed)
    wanted = evaluate(graph, *given)
    for found, value in zip(compile_graph(graph)(*given), wanted, strict=True):
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        narrow = value.dtype == np.float32
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(
                np.asarray(found), value, rtol=2e-5 if narrow else 1e-12, atol=1e-6 if narrow else 1e-14
            )


def counting(go: bool, length: int | None, reverse: bool = False, exact: bool = False) -> Graph:
    """sum of (i + 1) * a while it stays under 20, and the partial sums."""

    def step(i: Value, a: Value, s: Value) -> list[Value]:
        new = s + OPS["convert"].one(i, dtype=F64) * a + a
        return [new, new] if length is not None else [new]

    builder = Builder()
    limit, a, s = builder.param(INDEX), builder.param(SCALAR), builder.param(SCALAR)
    stop = build_region([INDEX, SCALAR, SCALAR], lambda i, a, s: [OPS["lt"].one(s, s.home.const(20.0, SCALAR))])
    body = build_region([INDEX, SCALAR, SCALAR], step)
    out = builder.emit(
        OPS["loop"], [limit, a, s], (body, stop) if go else (body,),
        consts=1, carry=1, length=length, exact=exact, reverse=reverse,
    )  # fmt: skip
    return builder.finish(out)


@pytest.mark.parametrize("limit", [0, 1, 5, 9])
@pytest.mark.parametrize(("go", "reverse"), [(False, False), (True, False), (False, True)])
def test_loops_with_a_bound(limit: int, go: bool, reverse: bool) -> None:
    same(counting(go, 9, reverse), np.int32(limit), 1.5, 0.25)


@pytest.mark.parametrize("limit", [0, 4, 1000])
def test_loops_without_a_bound(limit: int) -> None:
    count, _ = same(counting(True, None), np.int32(limit), 1.5, 0.25)
    assert count == min(limit, 5)


@pytest.mark.parametrize("length", [0, 1, 9])
@pytest.mark.parametrize("reverse", [False, True])
def test_exact_loops(length: int, reverse: bool) -> None:
    same(counting(False, length, reverse, exact=True), np.int32(length), 1.5, 0.25)


def test_branches() -> None:
    builder = Builder()
    p, x = builder.param(Tensor(BOOL)), builder.param(SCALAR)
    then, other = build_region([SCALAR], lambda x: [x * x]), build_region([SCALAR], lambda x: [OPS["sin"].one(x)])
    graph = builder.finish(builder.emit(OPS["cond"], [p, x], (then, other)))
    assert same(graph, True, 3.0) == [9.0]
    same(graph, False, 3.0)


def test_maps() -> None:
    builder = Builder()
    c, xs = builder.param(SCALAR), builder.param(VECTOR)
    body = build_region([SCALAR, SCALAR], lambda c, x: [c * x, c])
    graph = builder.finish(builder.emit(OPS["map"], [c, xs], (body,), consts=1, length=4))
    same(graph, 2.0, np.arange(4.0))


@pytest.mark.parametrize("numbers", [(0, 2), (1,), (0, 1), (2,), (0, 1, 2)], ids=str)
def test_a_clamp_of_numbers_and_arrays(numbers: tuple[int, ...]) -> None:
    """XLA takes a number as the bound of an array, but no array as the bound of a number."""
    builder = Builder()
    x = builder.param(VECTOR)
    operands = [builder.const(i - 0.5, VECTOR) if i in numbers else x for i in range(3)]
    same(builder.finish(builder.emit(OPS["clamp"], operands)), np.array([-2.0, 0.25, 0.75, 3.0]))


def calling(times: int, length: int) -> Graph:
    def body(x: Value) -> list[Value]:
        for _ in range(length):
            x = OPS["sin"].one(x)
        return [x]

    function, builder = build_region([SCALAR], body, "sines"), Builder()
    x = builder.param(SCALAR)
    for _ in range(times):
        (x,) = builder.emit(OPS["call"], [x], (function,), name="sines")
    return builder.finish([x])


def test_a_function_called_often_is_lowered_once() -> None:
    same(calling(3, 10), 0.5)
    text = lower_for_platform(calling(3, 10), "tpu")
    assert text.count("stablehlo.sine") == 10
    assert text.count("call @sines") == 3
    assert "call @" not in lower_for_platform(calling(1, 10), "tpu"), "called once: no function"
    assert "call @" not in lower_for_platform(calling(3, 2), "tpu"), "tiny: no function"


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_programs_lower_for_machines_that_are_not_here(platform: str) -> None:
    text = lower_for_platform(counting(True, 9), platform)
    assert "stablehlo.while" in text
    assert "f64" in text


def test_a_history_read_over_other_steps_is_refused_at_its_place() -> None:
    source = Source("loop.dfl", "while x < 20 { }")
    span = Span(source, 0, 5)
    builder = Builder()
    limit, y_count, x = builder.param(INDEX), builder.param(INDEX), builder.param(SCALAR)
    body = build_region([INDEX, SCALAR], lambda i, x: [x * x, x])
    _, y, saved = builder.emit(
        OPS["loop"], [limit, x], (body,), span=span, consts=0, carry=1, length=None, exact=False, reverse=False
    )
    back = build_region([INDEX, SCALAR, SCALAR], lambda i, ct, x: [ct * x])
    _, ct = builder.emit(
        OPS["loop"], [y_count, y, saved], (back,), span=span, consts=0, carry=1, length=None, exact=False, reverse=True
    )
    with pytest.raises(InternalError, match="history"):
        compile_graph(builder.finish([ct])).build()


def test_a_program_too_large_is_refused_before_anything_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_to_jax, "MAX_PROGRAM_SIZE", 25)
    with pytest.raises(DifflangError, match="32 equations") as caught:
        compile_graph(calling(2, 15)).build()
    assert caught.value.diagnostics[0].code == "DL1010"
    compile_graph(calling(2, 11)).build()


def test_doubling_functions_are_counted_without_writing_them_out() -> None:
    body = build_region([VECTOR], lambda x: [OPS["sin"].one(x)])
    for _ in range(150):
        body = twice(body)
    with pytest.raises(DifflangError, match="more than 10¹² equations") as caught:
        compile_graph(body).build()
    assert caught.value.diagnostics[0].code == "DL1010"


def twice(f: Graph) -> Graph:
    def body(x: Value) -> list[Value]:
        (y,) = x.home.emit(OPS["call"], [x], (f,), name="f")
        return list(x.home.emit(OPS["call"], [y], (f,), name="f"))

    return build_region([VECTOR], body)


def test_a_rule_that_gives_too_few_results_is_our_fault() -> None:
    op = Op("pair", lambda same, x: (x, x), lambda x: (x, x), lambda jax, x: [x], "Gives one.", Inactive())
    builder = Builder()
    x = builder.param(Tensor(F32))
    out = builder.emit(op, [x])
    with pytest.raises(InternalError, match="pair lowered to 1 results, not 2"):
        Lowering(jax).graph(builder.finish(out), np.float32(1.0))
