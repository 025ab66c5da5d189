"""Formulas are written as JAX would lower them step by step: the same bits, at the same place of the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from msgspec.structs import replace

import difflang
from difflang.ir.builder import Builder
from difflang.ir.op import OPS, Op
from difflang.ir.tensor_types import F32, FLOATS, I32, DType, Tensor, Type, numpy_dtype
from difflang.lower.graph_to_jax import lower_eqns_with
from difflang.lower.source_locations import SourceFrames
from difflang.lower.stablehlo.equation_runs import EqnRun, group_runs
from difflang.lower.stablehlo.graph_primitive import PrimitiveBody, bind_graph
from support.nightly import by_day
from support.op_calls import DRAWN, DTYPE_OF, calls_of

FORMULAS = [op for op in OPS.values() if op.formula_dtypes]
ATTRS: dict[str, list[dict[str, Any]]] = {
    "gaussian": [{"scale": 1.0}, {"scale": 0.5}],
    "integer_pow": [{"n": n} for n in (0, 2, 3, -5, -11)],
    "polygamma": [{"n": 1}, {"n": 4}],
}
MANY = 16  # steps that take longer to trace than to write


def run_of(op: Op, types: Sequence[Type], attrs: dict[str, Any]) -> PrimitiveBody:
    builder = Builder()
    results = builder.emit(op, [builder.param(t) for t in types], **attrs)
    return PrimitiveBody(builder.finish(results), partial(lower_eqns_with, "cpu", False), SourceFrames())


def alone(op: Op, x: Any, **attrs: Any) -> Any:
    """An op of one array, written."""
    (found,) = bind_graph(run_of(op, [Tensor(DTYPE_OF[np.dtype(x.dtype)], x.shape)], attrs), [x])
    return found


def numbers(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.0, 30.0, 1e-30, 709.5, -745.0]
    with np.errstate(over="ignore"):
        return np.concatenate([3 * rng.normal(size=150), 50 * rng.normal(size=45), edges]).astype(dtype).reshape(4, -1)


@pytest.mark.parametrize(
    ("op", "dtype", "attrs"),
    [
        pytest.param(op, dtype, attrs, id=f"{op}-{dtype}{''.join(f'-{v}' for v in attrs.values())}")
        for op in FORMULAS
        for dtype in op.formula_dtypes
        for attrs in ATTRS.get(op.name, [{}])
    ],
)
@pytest.mark.nightly_cases("(digamma|polygamma|gamma)-f64.*", "polygamma-.*-4", ".*-(f16|bf16).*")
def test_what_is_written_is_what_is_traced(op: Op, dtype: DType, attrs: dict[str, Any]) -> None:
    def both(x: jax.Array) -> list[jax.Array]:
        return [alone(op, x, **attrs), op.lower(jax, x, **attrs)]

    x = numbers(numpy_dtype(dtype))
    with jax.enable_x64(True):
        ours, theirs = [np.asarray(y) for y in jax.jit(both)(x)]
    assert ours.dtype == x.dtype
    assert ours.tobytes() == theirs.tobytes()


UNARY = [op for op in OPS.values() if op.elementwise and len(op.operand_rules.jvp or ()) == 1]


@pytest.mark.parametrize("op", UNARY, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_takes_many_steps_is_written(op: Op, dtype: DType) -> None:
    aval = jax.ShapeDtypeStruct((2, 3), numpy_dtype(dtype))
    with jax.enable_x64(True):
        steps = jax.make_jaxpr(partial(op.lower, jax, **ATTRS.get(op.name, [{}])[-1]))(aval).jaxpr
    assert (dtype in op.formula_dtypes) or count(steps) < MANY


def count(jaxpr: Any) -> int:
    inner = [p for e in jaxpr.eqns for p in e.params.values() if hasattr(p, "jaxpr")]
    return len(jaxpr.eqns) + sum(count(p.jaxpr) for p in inner)


def test_lanes() -> None:
    x = numbers(np.dtype(np.float32))
    for way in (0, 1):
        found = jax.jit(jax.vmap(lambda row: alone(OPS["gelu"], row), in_axes=way, out_axes=way))(x)
        assert np.array_equal(found, jax.jit(lambda x: alone(OPS["gelu"], x))(x), equal_nan=True)


def test_each_step_stands_at_the_line_of_the_program() -> None:
    source = "float f32\nfn f(x: f32[4]) -> f32[4] {\n  let a = gelu(x)\n  gelu(a * 2.0)\n}\n"
    text = difflang.loads(source, name="two").f.lower(np.ones(4, np.float32)).as_text(debug_info=True)
    assert text.count("stablehlo.exponential") == 2
    assert '"two":3:' in text and '"two":4:' in text


def test_a_formula_of_two_types_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = replace(OPS["gelu"], name="mixed", lower=lambda _, x: x + x.astype(np.float64))
    monkeypatch.setitem(OPS, "mixed", mixed)
    with pytest.raises(TypeError, match="operands of different types"):
        jax.jit(lambda x: alone(mixed, x)).lower(np.float32(1))


# ---- runs


STRAIGHT = [op for op in DRAWN if op.elementwise or op.direct]


@pytest.mark.parametrize("op", STRAIGHT, ids=str)
@pytest.mark.nightly_cases(
    "digamma|gamma|polygamma|erfinv_slope|sin_and_cos|lgamma|erfc", "scatter_.*|first_claims|last_writes"
)
def test_every_straight_op_is_written_as_it_is_traced(op: Op) -> None:
    """All its calls in one executable, by day the first few, step by step and on cells."""
    calls = calls_of(op)[: by_day(2, None)]

    def both(given: list[list[Any]]) -> list[Any]:
        pairs = zip(calls, given, strict=True)
        return [(*call.lower(*xs), *bind_graph(run_of(call.op, call.types, call.attrs), xs)) for call, xs in pairs]

    with jax.enable_x64(True):
        found = jax.jit(both)([[*call.arrays] for call in calls])
    for call, results in zip(calls, found, strict=True):
        half = len(results) // 2
        for theirs, ours in zip(results[:half], results[half:], strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), str(call)
            assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes(), str(call)


def test_arrays_of_different_shapes_are_repeated_as_in_numpy() -> None:
    def formula(m: Any, x: Any, y: Any) -> Any:
        table = np.arange(4, dtype=np.float32)
        return m.where(x > y, x + y * table, m.maximum(x, 2.0) - y)

    x, y = np.ones((3, 1), np.float32), np.linspace(0, 2, 4, dtype=np.float32)
    builder = Builder()
    like = builder.finish([builder.const(0.0, Tensor(F32, (3, 4)))])
    body = PrimitiveBody(like, lambda jax, _, graph, xs: [formula(jax.numpy, *xs)], SourceFrames())
    assert np.array_equal(jax.jit(lambda *xs: bind_graph(body, xs))(x, y)[0], formula(np, x, y))


SOURCE = """
float f64
fn newton(a: f64) -> f64 {
  var x = a
  while abs(x * x - a) > 1e-9 { x = 0.5 * (x + a / x) + 0.0 * sum([x, a] * 2.0) }
  x
}
fn f(a: f64[n]) -> f64[n] = [for i => newton(a[i])]
"""


def test_runs_in_lanes() -> None:
    a = np.array([2.0, 9.0, 100.0])
    assert np.allclose(difflang.loads(SOURCE, name="lanes").f(a), np.sqrt(a), rtol=1e-9)


def test_a_move_that_is_read_after_a_run_is_put_off() -> None:
    """A product reads axes in any order; within the run they are moved."""
    builder = Builder()
    x = builder.param(Tensor(F32, (3, 4)))
    y = builder.one("sin", builder.one("neg", x))
    moved = builder.one("transpose", y, perm=(1, 0))
    z = builder.one("exp", moved)
    graph = builder.finish([z, moved])
    first, after = group_runs(graph.eqns, graph.results)
    assert isinstance(first, EqnRun)
    assert first.results == (y, z)
    assert len(first.eqns) == 4
    assert after is graph.eqns[2]


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "copysign of -1": lambda m, x: m.copysign(-1.0, x),
    "copysign of 0": lambda m, x: m.copysign(0, x),
    "isinf": lambda m, x: m.isinf(x),
    "any": lambda m, x: m.where(m.any(x), 1.0, x.astype(np.float32)),
    "shifted": lambda m, x: x.view(np.uint32) >> 1,
    "shifted with its sign": lambda m, x: x.view(np.int32) >> 1,
    "clip": lambda m, x: m.clip(x, -1.0, 2.0),
    "round": lambda m, x: m.round(x),
    "zeros_like": lambda m, x: m.zeros_like(x) - x,
    "isnan": lambda m, x: m.isnan(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_stand_in_are_those_of_jax(name: str) -> None:
    x = np.array([-2.5, -0.0, 0.0, 1.5, 3.5, np.inf, -np.inf, np.nan], np.float32)
    theirs = jax.jit(lambda x: FUNCTIONS[name](jax.numpy, x))(x)
    builder = Builder()
    like = builder.finish([builder.const(0, Tensor(DTYPE_OF[np.dtype(theirs.dtype)], theirs.shape))])
    body = PrimitiveBody(like, lambda jax, _, graph, xs: [FUNCTIONS[name](jax.numpy, *xs)], SourceFrames())
    (ours,) = jax.jit(lambda x: bind_graph(body, [x]))(x)
    assert ours.dtype == theirs.dtype
    assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


@pytest.mark.parametrize(
    "formula",
    [
        lambda m, x: m.where(x < 0.5, x, x + 1),
        lambda m, x: x * 2.5,
        lambda m, x: x + np.float32(1),
        lambda m, x: x if x > 0 else -x,
    ],
)
def test_numbers_that_an_array_cannot_hold_and_decisions_are_refused(formula: Any) -> None:
    builder = Builder()
    like = builder.finish([builder.const(0, Tensor(I32, (3,)))])
    body = PrimitiveBody(like, lambda jax, _, graph, xs: [formula(jax.numpy, *xs)], SourceFrames())
    with pytest.raises(TypeError):
        jax.jit(lambda x: bind_graph(body, [x])).lower(np.arange(3, dtype=np.int32))


CONVERTED = ["bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("source", CONVERTED)
@pytest.mark.nightly_except("bfloat16|int32|bool")
def test_element_types_are_converted_as_by_jax(source: str) -> None:
    """From the ends of each type, and back from what does not fit."""
    start = jax.numpy.dtype(source)
    numbers = [-np.inf, -3e9, -2.5, -1, -0.0, 0, 0.5, 1, 2.5, 127, 200, 70_000, 3e9, 1e19, np.inf, np.nan]
    with jax.enable_x64(True), np.errstate(all="ignore"):
        x = np.array(numbers).astype(start)
        for name in CONVERTED:
            end = jax.numpy.dtype(name)
            theirs = jax.jit(lambda x, end=end: jax.lax.convert_element_type(x, end))(x)
            builder = Builder()
            like = builder.finish([builder.const(0, Tensor(DTYPE_OF[np.dtype(end)], theirs.shape))])
            body = PrimitiveBody(
                like, lambda jax, _, graph, xs, end=end: [jax.lax.convert_element_type(*xs, end)], SourceFrames()
            )
            (ours,) = jax.jit(lambda x, body=body: bind_graph(body, [x]))(x)
            assert ours.dtype == theirs.dtype
            assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes(), f"{source} to {name}"


def test_a_number_between_a_number_and_an_array() -> None:
    f = difflang.loads("float f64\nfn f(h: f64) -> f64 = clamp(0.89, -0.9, h)", name="clamped").f
    assert [float(f(h)) for h in (0.5, 2.0)] == [0.5, 0.89]
