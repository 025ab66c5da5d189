"""The order of the elements along an axis. Sorted arrays and greatest elements are gathered by it, above the IR."""

from __future__ import annotations

from typing import Any

import numpy as np

from difflang.ir.op import TypeSolver
from difflang.ir.tensor_types import F64, I8, I32, REALS, Tensor
from difflang.ops.arrays.axis_reductions import upcast_half_array
from difflang.ops.op_factories import Array, FixedOperand, OpExample, inactive_op

NAN, INF = float("nan"), float("inf")


def argsort_type(same: TypeSolver, x: Tensor, *, axis: int, descending: bool) -> Tensor:
    same.accepts(x, REALS)
    same.require(0 <= axis < x.rank, "there is no axis {} in {}", axis, x)
    return Tensor(I32, x.shape)


def reverse_axis(x: Any, axis: int) -> Any:
    return x[(slice(None),) * axis + (slice(None, None, -1),)]


def argsort_reference(x: Array, *, axis: int, descending: bool) -> Array:
    """In descending order: what a stable sort of the reversed array gives, read backwards."""
    if not descending:
        return np.argsort(upcast_half_array(x), axis=axis, kind="stable").astype(np.int32)
    order = np.argsort(upcast_half_array(reverse_axis(x, axis)), axis=axis, kind="stable")
    return (x.shape[axis] - 1 - reverse_axis(order, axis)).astype(np.int32)


def argsort_lower(jax: Any, x: Any, *, axis: int, descending: bool) -> Any:
    """JAX's stable sort takes zeros of both signs for equal, and NaNs of every kind for greater than all numbers."""
    lax = jax.lax
    places = lax.broadcasted_iota(np.int32, x.shape, axis)
    if x.size == 0:
        return places
    if descending:
        x, places = lax.rev(x, (axis,)), lax.rev(places, (axis,))
    order = lax.sort((x, places), dimension=axis, is_stable=True, num_keys=1)[1]
    return lax.rev(order, (axis,)) if descending else order


TIED_OPERAND = FixedOperand((2.0, NAN, -INF, 0.0, 2.0, -0.0, NAN, INF), F64)

argsort = inactive_op(
    "argsort",
    type=argsort_type,
    reference=argsort_reference,
    lower=argsort_lower,
    accepts=REALS,
    batch_attrs=lambda n, axis, descending: {"axis": axis + 1, "descending": descending},
    samples=(
        OpExample(((3, 4),), {"axis": 1, "descending": False}),
        OpExample(((3, 4),), {"axis": 0, "descending": True}),
        OpExample(((1,),), {"axis": 0, "descending": True}),
        OpExample(((2, 0),), {"axis": 1, "descending": False}),
        OpExample(((0,),), {"axis": 0, "descending": True}),
        OpExample((TIED_OPERAND,), {"axis": 0, "descending": False}),
        OpExample((TIED_OPERAND,), {"axis": 0, "descending": True}),
        OpExample((FixedOperand((1, -3, 1, 7, -3), I8),), {"axis": 0, "descending": True}),
    ),
    doc="""Positions along an axis in the order of their elements; equal elements keep theirs, descending too. NaN is
    greater than every number: last, or first if `descending`.""",
)
