"""StableHLO for gather and scatter, which `jax_facade` offers in place of those of `jax.lax`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

from difflang.lower.stablehlo.hlo_array import HloArray, dtype_kind

if TYPE_CHECKING:
    from difflang.lower.stablehlo.jax_facade import JaxFacade

ir = mlir.ir
Mode = jax.lax.GatherScatterMode
# How each scatter combines an item and an update, and the kinds of element types it supports: for complex numbers JAX
# has a rule of its own on some platforms.
SCATTERS: dict[str, tuple[Any, str]] = {
    "scatter": (lambda _, new: new, "biufc"),
    "scatter_add": (stablehlo.add, "iuf"),
    "scatter_mul": (stablehlo.multiply, "iuf"),
    "scatter_min": (stablehlo.minimum, "iuf"),
    "scatter_max": (stablehlo.maximum, "iuf"),
}


def gather(writer: JaxFacade, x: Any, indices: Any, numbers: Any, sizes: tuple[int, ...], *, mode: Any) -> HloArray:
    """As `jax.lax.gather` in the mode that adds nothing to XLA's own, which clamps indices to the range."""
    x, indices = writer.array(x), writer.array(indices)
    if mode != Mode.PROMISE_IN_BOUNDS:
        real = partial(jax.lax.gather, dimension_numbers=numbers, slice_sizes=sizes, mode=mode)
        return writer.lower_with_jax(real, x, indices)
    last = indices.ndim - 1
    attr = stablehlo.GatherDimensionNumbers.get(
        offset_dims=list(numbers.offset_dims), collapsed_slice_dims=list(numbers.collapsed_slice_dims),
        operand_batching_dims=list(numbers.operand_batching_dims),
        start_indices_batching_dims=list(numbers.start_indices_batching_dims),
        start_index_map=list(numbers.start_index_map), index_vector_dim=last,
    )  # fmt: skip
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    lead, rest = iter(indices.shape[:last]), iter([n for i, n in enumerate(sizes) if i not in gone])
    rank = last + len(numbers.offset_dims)
    shape = tuple([next(rest) if i in numbers.offset_dims else next(lead) for i in range(rank)])
    if 0 in shape:  # no slice fits in an axis of size 0
        return writer.full(shape, np.zeros((), x.dtype))
    value = stablehlo.gather(
        x.value, indices.value, attr, writer.int_array_attr(sizes), indices_are_sorted=ir.BoolAttr.get(False)
    )
    return HloArray(writer, value, x.dtype, shape)


def scatter(writer: JaxFacade, name: str, x: Any, indices: Any, updates: Any, numbers: Any, *, mode: Any) -> HloArray:
    """As `jax.lax.scatter` and its variants, in the mode that drops updates out of range."""
    x, indices, updates = [writer.array(a) for a in (x, indices, updates)]
    emit, kinds = SCATTERS[name]
    if mode != Mode.FILL_OR_DROP or dtype_kind(x.dtype) not in kinds:
        real = partial(getattr(jax.lax, name), dimension_numbers=numbers, mode=mode)
        return writer.lower_with_jax(real, x, indices, updates)
    attr = stablehlo.ScatterDimensionNumbers.get(
        update_window_dims=list(numbers.update_window_dims), inserted_window_dims=list(numbers.inserted_window_dims),
        input_batching_dims=list(numbers.operand_batching_dims),
        scatter_indices_batching_dims=list(numbers.scatter_indices_batching_dims),
        scattered_dims_to_operand_dims=list(numbers.scatter_dims_to_operand_dims), index_vector_dim=indices.ndim - 1,
    )  # fmt: skip
    made = stablehlo.ScatterOp(
        [writer.type(x.dtype, x.shape)], [x.value], indices.value, [updates.value], attr,
        indices_are_sorted=ir.BoolAttr.get(False), unique_indices=ir.BoolAttr.get(False),
    )  # fmt: skip
    scalar = writer.type(x.dtype, ())
    with ir.InsertionPoint(made.update_computation.blocks.append(scalar, scalar)) as at:
        stablehlo.return_([emit(*at.block.arguments)])
    return x.like(made.result)
