"""Graphs on single numbers as source of Python give the bits of the interpreter."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

from difflang.execution.python_source import compile_python, count_number_ops
from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS, Op, TypeMismatch
from difflang.ir.tensor_types import BOOL, DTYPES, F32, F64, INTEGERS, DType, Tensor, numpy_dtype
from difflang.ops.elementwise.python_rules import PYTHON_RULES

NUMBERS = (BOOL, *INTEGERS, F32, F64)
ATTRS: dict[str, list[dict[str, Any]]] = {
    "convert": [{"dtype": F32}, {"dtype": F64}],
    "truncate": [{"dtype": d} for d in (BOOL, *INTEGERS)],
    "integer_pow": [{"n": n} for n in (-3, -1, 0, 1, 2, 3, 5, 7, 8, 9)],
}
FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 3.0, 0.1, 1e-310, 1e300, -1e300, 16777217.0, 2147483647.0, 2147483648.0,
    -2147483648.0, -2147483649.0, 4294967295.5, 9.223372036854775e18, 9.3e18, -9.3e18, 3.4e38, 3.5e38, 255.5,
    math.inf, -math.inf, math.nan,
)  # fmt: skip


def edges(dtype: DType) -> list[Any]:
    if dtype is BOOL:
        return [False, True]
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return [np.asarray(x).astype(numpy_dtype(dtype)) for x in FLOATS]
    low, high = np.iinfo(numpy_dtype(dtype)).min, np.iinfo(numpy_dtype(dtype)).max
    near = (low, low + 1, high // 2 + 1, high - 1, high, -7, -3, -2, -1, 0, 1, 2, 3, 7, 100)
    return [x for x in near if low <= x <= high]


def bits(array: Any) -> Any:
    """What is compared: the bits, of any NaN the same."""
    array = np.asarray(array)
    return (array.dtype, "nan" if array.dtype.kind == "f" and np.isnan(array) else array.tobytes())


def check_same(graph: Graph, *arrays: Any) -> None:
    program = compile_python(graph)
    expected, found = evaluate(graph, *arrays), program(*arrays)
    assert list(map(bits, found)) == list(map(bits, expected)), (program, arrays, found, expected)


def graph_of(op: Op, dtypes: tuple[DType, ...], attrs: dict[str, Any]) -> Graph | None:
    builder = Builder()
    try:
        return builder.finish(list(builder.emit(op, [builder.param(Tensor(d)) for d in dtypes], **attrs)))
    except TypeMismatch:
        return None


def operand_dtypes(op: Op, dtype: DType) -> tuple[DType, ...]:
    if op.name == "select":
        return BOOL, dtype, dtype
    return (dtype,) * (3 if op.name == "clamp" else 2 if op.name in BINARY else 1)


BINARY = {
    "add", "sub", "mul", "div", "floor_div", "rem", "max", "min", "eq", "ne", "lt", "le", "gt", "ge", "pow", "atan2",
    "hypot", "logical_and", "logical_or", "logical_xor", "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right",
    "discrete",
}  # fmt: skip
OTHERS = (
    "clamp",
    "exp",
    "log",
    "sin",
    "tanh",
    "pow",
    "atan2",
    "hypot",
    "sign",
    "round",
    "trunc",
    "popcount",
    "shift_left",
)


@pytest.mark.parametrize("op", [*PYTHON_RULES, *[OPS[n] for n in OTHERS]], ids=str)
def test_an_op_on_numbers_at_the_edges_of_their_types(op: Op) -> None:
    met = 0
    for dtype, attrs in itertools.product(NUMBERS, ATTRS.get(op.name, [{}])):
        dtypes = operand_dtypes(op, dtype)
        graph = graph_of(op, dtypes, attrs)
        if graph is None or count_number_ops(graph) is None:
            continue
        met += 1
        program = compile_python(graph)
        for numbers in itertools.product(*[edges(d)[:: 2 if len(dtypes) > 2 else 1] for d in dtypes]):
            arrays = [np.asarray(x, numpy_dtype(d)) for x, d in zip(numbers, dtypes, strict=True)]
            expected, found = evaluate(graph, *arrays), program(*arrays)
            assert list(map(bits, found)) == list(map(bits, expected)), (dtype, attrs, numbers, found, expected)
    assert met


def test_a_graph_with_arrays_is_none_of_numbers() -> None:
    builder = Builder()
    x = builder.param(Tensor(F64, (2,)))
    assert count_number_ops(builder.finish([x + x])) is None
    builder = Builder()
    z = builder.param(Tensor(DTYPES["c64"]))
    assert count_number_ops(builder.finish([z + z])) is None


def random_graph(rng: random.Random, dtype: DType) -> Graph:
    """Arithmetic, comparisons, constants at edges, selections and branches in any order."""
    builder = Builder()
    numbers: list[Value] = [builder.param(Tensor(dtype)) for _ in range(3)]
    truths: list[Value] = [builder.param(Tensor(BOOL))]
    arithmetic = ["add", "sub", "mul", "floor_div", "rem", "max", "min", *(["div"] if dtype.is_float else ["bit_xor"])]
    for _ in range(rng.randrange(1, 25)):
        x, y, p = rng.choice(numbers), rng.choice(numbers), rng.choice(truths)
        match rng.randrange(6):
            case 0:
                numbers.append(builder.const(np.asarray(rng.choice(edges(dtype))).item(), Tensor(dtype)))
            case 1:
                truths.append(builder.one(rng.choice(["lt", "le", "eq", "ne"]), x, y))
            case 2:
                numbers.append(builder.one("select", p, x, y))
            case 3:
                name = rng.choice(arithmetic)
                types = [Tensor(dtype), Tensor(dtype)]
                regions = (
                    build_region(types, lambda a, b, name=name: [a.home.one(name, a, b), a]),
                    build_region(types, lambda a, b: [b.home.one("sub", b, a), b]),
                )
                numbers += builder.emit(OPS["cond"], [p, x, y], regions)
            case _:
                numbers.append(builder.one(rng.choice(arithmetic), x, y))
    return builder.finish([*rng.sample(numbers, 2), rng.choice(truths)])


@pytest.mark.parametrize("dtype", NUMBERS[1:], ids=str)
def test_random_graphs_on_numbers(dtype: DType) -> None:
    rng = random.Random(str(dtype))
    for _ in range(60):
        graph = random_graph(rng, dtype)
        for _ in range(8):
            numbers = [np.asarray(rng.choice(edges(dtype)), numpy_dtype(dtype)) for _ in range(3)]
            check_same(graph, *numbers, np.asarray(rng.random() < 0.5))
