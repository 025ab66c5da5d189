"""Extended precision: graphs and arrays converted to NumPy's `longdouble`, which only the interpreter runs.

It has 64 bits of mantissa on x86, elsewhere perhaps the 53 of f64. So derivative rules can be compared with differences
without much rounding, for programs in bf16 as well as in f64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.interpreter import evaluate_eqn, run_equations
from difflang.ir.tensor_types import DType, History, Tensor, Type
from difflang.ops.elementwise.linear_arithmetic import convert

Array = Any  # np.ndarray, or a list of them for a history
WIDE = DType("wide", "float", 128, "longdouble")
WIDE_COMPLEX = DType("wide complex", "complex", 256, "clongdouble")
EPSILON = float(np.finfo(np.longdouble).eps)
DOUBLE_EPSILON = float(np.finfo(np.float64).eps)


def wide_dtype(dtype: DType) -> DType:
    if not dtype.differentiable:
        return dtype
    return WIDE_COMPLEX if dtype.kind == "complex" else WIDE


def wide_type(type: Type) -> Type:
    if isinstance(type, History):
        return History(wide_type(type.item))
    return Tensor(wide_dtype(type.dtype), type.shape)


class GraphWidening:
    """Converts graphs to wide numbers. `origin` maps each wide equation to the one that it copies."""

    def __init__(self) -> None:
        self.origin: dict[Eqn, Eqn] = {}
        self.converted: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        """The same graph on wide numbers; regions that are shared stay shared."""
        if graph not in self.converted:
            self.converted[graph] = self.convert_graph(graph)
        return self.converted[graph]

    def convert_graph(self, graph: Graph) -> Graph:
        env = {p: wide_value(p) for p in graph.params}
        eqns: list[Eqn] = []
        for eqn in graph.eqns:
            eqns += self.convert_equation(eqn, env)
        return Graph(tuple([env[p] for p in graph.params]), tuple(eqns), tuple([env[r] for r in graph.results]))

    def convert_equation(self, eqn: Eqn, env: dict[Value, Value]) -> list[Eqn]:
        """The equation on wide numbers."""
        # One that makes floats from integers (a draw, a conversion) runs as before, and its result is widened.
        operands = tuple([env[v] for v in eqn.operands])
        if eqn.regions or not operands or any(v.type.tangent is not None for v in eqn.operands):
            results = [wide_value(r) for r in eqn.results]
            regions = tuple(map(self.graph, eqn.regions))
            attrs = {name: wide_attr(a) for name, a in eqn.attrs.items()}
            step = Eqn(eqn.op, operands, tuple(results), attrs, regions, eqn.span)
            converted: list[Eqn] = []
        else:
            step = Eqn(eqn.op, operands, tuple([Value(r.type, r.home) for r in eqn.results]), eqn.attrs, (), eqn.span)
            pairs = [widen_result(r) for r in step.results]
            results = [result for result, _ in pairs]
            converted = [e for _, e in pairs if e is not None]
        self.origin[step] = eqn
        env.update(zip(eqn.results, results, strict=True))
        return [step, *converted]


def wide_value(value: Value) -> Value:
    return Value(wide_type(value.type), value.home, value.hint)


def widen_result(value: Value) -> tuple[Value, Eqn | None]:
    """A value in wide numbers, and the equation that converts it, if it needs one."""
    if not isinstance(value.type, Tensor) or value.type.tangent is None:
        return value, None
    result = wide_value(value)
    assert isinstance(result.type, Tensor)
    return result, Eqn(convert, (value,), (result,), {"dtype": result.type.dtype})


def wide_attr(attr: Any) -> Any:
    if isinstance(attr, DType):
        return wide_dtype(attr)
    return wide_type(attr) if isinstance(attr, Tensor | History) else attr


def evaluate_wide(graph: Graph, *arrays: Array) -> list[Array]:
    """The results of a wide graph, by f64 where a reference has no wide numbers.

    Errors: TypeError where a reference computes in less than f64.
    """

    def step(eqn: Eqn, operands: list[Array]) -> list[Array]:
        try:
            found = evaluate_eqn(eqn, operands, evaluate_wide)
        except TypeError as error:
            if eqn.regions or getattr(error, "epsilon", 0.0) > DOUBLE_EPSILON:
                raise
            found = evaluate_eqn(eqn, [x.astype(np.float64) if x.dtype == np.longdouble else x for x in operands])
        return [cast(x, r.type) for x, r in zip(found, eqn.results, strict=True)]

    with np.errstate(all="ignore"):
        return run_equations(graph, arrays, step)


# ---- Arrays


def cast(array: Array, type: Type) -> Array:
    """An array or a history with the element type of `type`."""
    if isinstance(type, History):
        return [cast(item, type.item) for item in array]
    wanted = np.dtype(type.dtype.numpy)
    array = np.asarray(array)
    if array.dtype == wanted:
        return array
    if "V" in (array.dtype.kind, wanted.kind):  # bfloat16 converts to f32, but not to longdouble
        return array.astype(np.float32).astype(wanted)
    return array.astype(wanted)


def flatten_numbers(arrays: Sequence[Array]) -> np.ndarray[Any, Any]:
    """All numbers in one row; of a complex array the real parts, then the imaginary ones."""
    rows: list[Any] = [np.zeros(0, np.longdouble)]
    todo = list(reversed(arrays))
    while todo:
        array = todo.pop()
        if isinstance(array, list):
            todo += reversed(array)
        elif array.dtype.kind == "c":
            rows += [array.real.ravel(), array.imag.ravel()]
        else:
            rows.append(array.ravel())
    return np.concatenate(rows)


def align_history(array: Array, like: Array) -> Array:
    """A history with as many items as `like`, zero beyond its end."""
    if not isinstance(array, list):
        return array
    return [align_history(array[i], item) if i < len(array) else history_zeros(item) for i, item in enumerate(like)]


def history_zeros(like: Array) -> Array:
    return [history_zeros(item) for item in like] if isinstance(like, list) else np.zeros_like(like)


def random_direction(rng: np.random.Generator, like: Array) -> Array:
    """A random direction at a wide array: of the size of the array, and never small in any element."""
    if isinstance(like, list):
        return [random_direction(rng, item) for item in like]
    finite = np.where(np.isfinite(like), np.abs(like), 0)
    size = np.sqrt(np.mean(finite * finite)) if like.size else 0.0
    size = size if size > 0 else np.longdouble(1)

    # Uneven, so that two errors in different elements do not cancel.
    def numbers() -> Any:
        signs = rng.choice([-1.0, 1.0], like.shape)
        return (signs * rng.uniform(0.25, 1.0, like.shape)).astype(np.longdouble) * size

    if like.dtype.kind == "c":
        return np.asarray(numbers() + numbers() * np.clongdouble(1j))
    return np.asarray(numbers())


def step_along(array: Array, direction: Array, step: float) -> Array:
    """The array moved by a step along a direction."""
    if isinstance(array, list):
        return [step_along(x, d, step) for x, d in zip(array, direction, strict=True)]
    return np.asarray(array + np.longdouble(step) * direction)
