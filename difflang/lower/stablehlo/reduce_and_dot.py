"""Reductions and products of a program that is being written, as `jax.lax` and `jax.numpy` have them: see `standin`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import jax
import numpy as np
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

from difflang.lower.stablehlo.hlo_array import BOOL, Cell, DType, kind

if TYPE_CHECKING:
    from difflang.lower.stablehlo.jax_facade import StandIn

ir = mlir.ir
REDUCTIONS = {  # with what they begin with
    "reduce_sum": (stablehlo.add, "fiu", lambda _: 0),
    "reduce_max": (stablehlo.maximum, "fi", lambda dtype: least(dtype)),
    "reduce_min": (stablehlo.minimum, "fi", lambda dtype: -least(dtype) if kind(dtype) == "f" else ~least(dtype)),
    "reduce_or": (stablehlo.or_, "b", lambda _: False),
    "reduce_and": (stablehlo.and_, "b", lambda _: True),
}


def least(dtype: DType) -> Any:
    """The least of all floats or signed integers of a type."""
    return -math.inf if kind(dtype) == "f" else np.iinfo(dtype).min


def reduced(writer: StandIn, name: str, x: Cell, axes: Sequence[int]) -> Cell:
    emit, kinds, first = REDUCTIONS[name]
    axes = tuple(axes)
    if kind(x.dtype) not in kinds:
        return writer.through(partial(getattr(jax.lax, name), axes=axes), x)
    start = mlir.ir_constant(np.asarray(first(x.dtype), x.dtype))
    return folded(writer, x, start, emit, axes)


def reduce(writer: StandIn, x: Cell, start: Any, step: Callable[[Cell, Cell], Cell], axes: Sequence[int]) -> Cell:
    """All elements along axes taken together, beginning with `start`."""

    def emit(*pair: Any) -> Any:
        old, new = [Cell(writer, value, x.dtype, ()) for value in pair]
        return step(old, new).value

    return folded(writer, x, writer.cell(start, x.dtype).value, emit, axes)


def folded(writer: StandIn, x: Cell, start: Any, emit: Callable[..., Any], axes: Sequence[int]) -> Cell:
    """The same where `start` and what `emit` gives of two are values of MLIR."""
    shape, scalar = tuple([n for i, n in enumerate(x.shape) if i not in axes]), writer.type(x.dtype, ())
    made = stablehlo.ReduceOp([writer.type(x.dtype, shape)], [x.value], [start], writer.ints(sorted(axes)))
    with ir.InsertionPoint(made.regions[0].blocks.append(scalar, scalar)) as at:
        stablehlo.return_([emit(*at.block.arguments)])
    return Cell(writer, made.results[0], x.dtype, shape)


def reduce_window(
    writer: StandIn, x: Cell, first: Any, step: Callable[[Cell, Cell], Cell],
    sizes: Sequence[int], strides: Sequence[int], padding: Sequence[tuple[int, int]],
) -> Cell:  # fmt: skip
    """Each window of the padded array taken together, beginning with `first`."""
    number, scalar = writer.cell(first, x.dtype), writer.type(x.dtype, ())
    places = zip(x.shape, sizes, strides, padding, strict=True)
    shape = tuple([max(0, (n + low + high - size) // stride + 1) for n, size, stride, (low, high) in places])
    pairs = ir.DenseElementsAttr.get(cast("Any", np.array(padding, np.int64).reshape(-1, 2)))
    made = stablehlo.ReduceWindowOp(
        [writer.type(x.dtype, shape)], [x.value], [number.value], writer.ints(sizes),
        window_strides=writer.ints(strides),
        padding=pairs,
    )  # fmt: skip
    with ir.InsertionPoint(made.regions[0].blocks.append(scalar, scalar)) as at:
        old, new = [Cell(writer, value, x.dtype, ()) for value in at.block.arguments]
        stablehlo.return_([step(old, new).value])
    return Cell(writer, made.results[0], x.dtype, shape)


def sum(writer: StandIn, x: Cell, axis: int | None = None, dtype: Any = None) -> Cell:
    """Without an element type JAX has rules of its own; narrow floats it adds up in wider ones."""
    if dtype is None or (kind(np.dtype(dtype)) == "f" and np.dtype(dtype).itemsize < 4):
        return writer.through(partial(jax.numpy.sum, axis=axis, dtype=dtype), x)
    axes = range(x.ndim) if axis is None else (axis % x.ndim,)
    return reduced(writer, "reduce_sum", writer.convert(x, dtype), axes)


def extreme(writer: StandIn, name: str, x: Cell, **others: Any) -> Cell:
    """`max` or `min` of all elements."""
    if others:
        return writer.through(partial(getattr(jax.numpy, name), **others), x)
    return reduced(writer, f"reduce_{name}", x, range(x.ndim))


def any(writer: StandIn, x: Cell) -> Cell:
    x = x if x.dtype == BOOL else x != 0
    return reduced(writer, "reduce_or", x, range(x.ndim)) if x.shape else x


def dot_general(writer: StandIn, x: Cell, y: Cell, numbers: Any, **asked: Any) -> Cell:
    (contract, batch), plain = numbers, x.dtype == y.dtype and x.dtype.kind == "f" and x.dtype.itemsize > 2
    if not plain or asked != {"precision": jax.lax.Precision.HIGHEST, "preferred_element_type": x.dtype}:
        return writer.through(partial(jax.lax.dot_general, dimension_numbers=numbers, **asked), x, y)
    (xs, ys), (xb, yb) = [[list(side) for side in pair] for pair in (contract, batch)]
    attr = stablehlo.DotDimensionNumbers.get(
        lhs_batching_dimensions=xb, rhs_batching_dimensions=yb,
        lhs_contracting_dimensions=xs, rhs_contracting_dimensions=ys,
    )  # fmt: skip
    rest = [
        *[x.shape[i] for i in xb],
        *[n for i, n in enumerate(x.shape) if i not in (*xb, *xs)],
        *[n for i, n in enumerate(y.shape) if i not in (*yb, *ys)],
    ]
    highest = ir.ArrayAttr.get([stablehlo.PrecisionAttr.get("HIGHEST")] * 2)
    out = writer.type(x.dtype, tuple(rest))
    value = stablehlo.dot_general(out, x.value, y.value, attr, precision_config=highest)
    return Cell(writer, value, x.dtype, tuple(rest))
