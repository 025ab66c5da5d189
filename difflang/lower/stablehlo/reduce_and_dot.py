"""StableHLO for reductions and `dot_general`, which `jax_facade` offers in place of JAX's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import jax
import numpy as np
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

from difflang.lower.stablehlo.hlo_array import BOOL, DType, HloArray, dtype_kind

if TYPE_CHECKING:
    from difflang.lower.stablehlo.jax_facade import JaxFacade

ir = mlir.ir
# The operation, the kinds of element types, and the initial value of each reduction.
REDUCTIONS = {
    "reduce_sum": (stablehlo.add, "fiu", lambda _: 0),
    "reduce_max": (stablehlo.maximum, "fi", lambda dtype: lowest_value(dtype)),
    "reduce_min": (
        stablehlo.minimum,
        "fi",
        lambda dtype: -lowest_value(dtype) if dtype_kind(dtype) == "f" else ~lowest_value(dtype),
    ),
    "reduce_or": (stablehlo.or_, "b", lambda _: False),
    "reduce_and": (stablehlo.and_, "b", lambda _: True),
}


def lowest_value(dtype: DType) -> Any:
    """The least of all floats or signed integers of a type."""
    return -math.inf if dtype_kind(dtype) == "f" else np.iinfo(dtype).min


def reduce_named(writer: JaxFacade, name: str, x: HloArray, axes: Sequence[int]) -> HloArray:
    emit, kinds, first = REDUCTIONS[name]
    axes = tuple(axes)
    if dtype_kind(x.dtype) not in kinds:
        return writer.lower_with_jax(partial(getattr(jax.lax, name), axes=axes), x)
    start = mlir.ir_constant(np.asarray(first(x.dtype), x.dtype))
    return emit_reduce(writer, x, start, emit, axes)


def reduce(
    writer: JaxFacade, x: HloArray, start: Any, step: Callable[[HloArray, HloArray], HloArray], axes: Sequence[int]
) -> HloArray:
    """All elements along axes combined, starting from `start`."""

    def emit(*pair: Any) -> Any:
        old, new = [HloArray(writer, value, x.dtype, ()) for value in pair]
        return step(old, new).value

    return emit_reduce(writer, x, writer.as_hlo_array(start, x.dtype).value, emit, axes)


def emit_reduce(writer: JaxFacade, x: HloArray, start: Any, emit: Callable[..., Any], axes: Sequence[int]) -> HloArray:
    """The same where `start` and the result of `emit` are MLIR values."""
    shape, scalar = tuple([n for i, n in enumerate(x.shape) if i not in axes]), writer.type(x.dtype, ())
    made = stablehlo.ReduceOp([writer.type(x.dtype, shape)], [x.value], [start], writer.int_array_attr(sorted(axes)))
    with ir.InsertionPoint(made.regions[0].blocks.append(scalar, scalar)) as at:
        stablehlo.return_([emit(*at.block.arguments)])
    return HloArray(writer, made.results[0], x.dtype, shape)


def reduce_window(
    writer: JaxFacade, x: HloArray, first: Any, step: Callable[[HloArray, HloArray], HloArray],
    sizes: Sequence[int], strides: Sequence[int], padding: Sequence[tuple[int, int]],
) -> HloArray:  # fmt: skip
    """Each window of the padded array combined, starting from `first`."""
    number, scalar = writer.as_hlo_array(first, x.dtype), writer.type(x.dtype, ())
    places = zip(x.shape, sizes, strides, padding, strict=True)
    shape = tuple([max(0, (n + low + high - size) // stride + 1) for n, size, stride, (low, high) in places])
    pairs = ir.DenseElementsAttr.get(cast("Any", np.array(padding, np.int64).reshape(-1, 2)))
    made = stablehlo.ReduceWindowOp(
        [writer.type(x.dtype, shape)], [x.value], [number.value], writer.int_array_attr(sizes),
        window_strides=writer.int_array_attr(strides),
        padding=pairs,
    )  # fmt: skip
    with ir.InsertionPoint(made.regions[0].blocks.append(scalar, scalar)) as at:
        old, new = [HloArray(writer, value, x.dtype, ()) for value in at.block.arguments]
        stablehlo.return_([step(old, new).value])
    return HloArray(writer, made.results[0], x.dtype, shape)


def sum(writer: JaxFacade, x: HloArray, axis: int | None = None, dtype: Any = None) -> HloArray:
    """Without an element type JAX has rules of its own; it sums narrow floats in wider ones."""
    if dtype is None or (dtype_kind(np.dtype(dtype)) == "f" and np.dtype(dtype).itemsize < 4):
        return writer.lower_with_jax(partial(jax.numpy.sum, axis=axis, dtype=dtype), x)
    axes = range(x.ndim) if axis is None else (axis % x.ndim,)
    return reduce_named(writer, "reduce_sum", writer.convert(x, dtype), axes)


def min_or_max(writer: JaxFacade, name: str, x: HloArray, **others: Any) -> HloArray:
    """`max` or `min` of all elements."""
    if others:
        return writer.lower_with_jax(partial(getattr(jax.numpy, name), **others), x)
    return reduce_named(writer, f"reduce_{name}", x, range(x.ndim))


def any(writer: JaxFacade, x: HloArray) -> HloArray:
    x = x if x.dtype == BOOL else x != 0
    return reduce_named(writer, "reduce_or", x, range(x.ndim)) if x.shape else x


def dot_general(writer: JaxFacade, x: HloArray, y: HloArray, numbers: Any, **options: Any) -> HloArray:
    (contract, batch), plain = numbers, x.dtype == y.dtype and x.dtype.kind == "f" and x.dtype.itemsize > 2
    if not plain or options != {"precision": jax.lax.Precision.HIGHEST, "preferred_element_type": x.dtype}:
        return writer.lower_with_jax(partial(jax.lax.dot_general, dimension_numbers=numbers, **options), x, y)
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
    return HloArray(writer, value, x.dtype, tuple(rest))
