"""Values that come from nothing, `const`, `dense` and `iota`, and `stop`, which cuts a value's derivative."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from difflang.ir.op import Solver
from difflang.ir.tensor_types import BOOL, C64, C128, F32, F64, FLOATS, I32, I64, INTEGERS, Tensor, Type
from difflang.ops.op_factories import Array, Example, array_dtype, inactive, known


def given_type(same: Solver, *, type: Type, **_: Any) -> Type:
    return type


def sizes(type: Tensor) -> tuple[int, ...]:
    return tuple(map(known, type.shape))


def const_reference(*, value: complex, type: Tensor) -> Array:
    return np.full(sizes(type), value, dtype=array_dtype(type.dtype))


def const_lower(jax: Any, *, value: complex, type: Tensor) -> Any:
    """As `lax.full`, without the conversion to the type that the number has already."""
    number = const_splat(value=value, type=type)
    return jax.lax.broadcast(number, type.shape) if type.shape else jax.lax.full((), number)


def const_splat(*, value: complex, type: Tensor) -> Any:
    return np.asarray(value, dtype=array_dtype(type.dtype))[()]


def dense_type(same: Solver, *, data: tuple[Any, ...], type: Tensor) -> Tensor:
    size = 1
    for n in type.shape:
        size = size * n
    same.size(len(data), size, "number of elements")
    return type


def dense_array(data: Iterable[Any], type: Tensor) -> Array:
    return np.asarray(tuple(data), dtype=array_dtype(type.dtype)).reshape(sizes(type))


def iota_reference(*, type: Tensor, axis: int) -> Array:
    shape, whole = [1] * type.rank, sizes(type)
    shape[axis] = whole[axis]
    steps = np.arange(whole[axis]).astype(array_dtype(type.dtype)).reshape(shape)
    return np.broadcast_to(steps, whole)


def iota_type(same: Solver, *, type: Tensor, axis: int) -> Tensor:
    same.accepts(type, INTEGERS + FLOATS)
    same.require(0 <= axis < type.rank, "there is no axis {} in {}", axis, type)
    return type


const = inactive(
    "const",
    type=given_type,
    reference=const_reference,
    lower=const_lower,
    direct=True,
    splat=const_splat,
    same_bits=True,
    samples=tuple(
        Example((), {"value": v, "type": Tensor(d, s)})
        for v, d, s in ((True, BOOL, ()), (-7, I32, (3,)), (1.5, F32, (2, 0)), (2.5, F64, (2, 1)), (1 + 2j, C64, (2,)))
    ),
    doc="""An array filled with one number; `value` may be a dim in a generic graph. Also an empty history.""",
)
dense = inactive(
    "dense",
    direct=True,
    type=dense_type,
    reference=lambda data, type: dense_array(data, type),
    lower=lambda jax, data, type: jax.numpy.asarray(dense_array(data, type)),
    same_bits=True,
    samples=tuple(
        Example((), {"data": v, "type": Tensor(d, s)})
        for v, d, s in (
            ((1, 2, 3, 4, 5, 6), I64, (2, 3)),
            ((0.1, 0.2), F64, (2,)),
            ((), F32, (0, 2)),
            ((1j, 2.0), C128, (2,)),
            ((True, False), BOOL, (2,)),
        )
    ),
    doc="""An array constant; `data` is flat, the last axis fastest.""",
)
iota = inactive(
    "iota",
    direct=True,
    type=iota_type,
    reference=iota_reference,
    lower=lambda jax, type, axis: jax.lax.broadcasted_iota(array_dtype(type.dtype), type.shape, axis),
    same_bits=True,
    samples=tuple(
        Example((), {"type": Tensor(d, s), "axis": a})
        for d, s, a in ((I32, (4,), 0), (I64, (2, 3), 1), (F64, (3, 2), 0), (F32, (2, 0), 1))
    ),
    doc="""0, 1, 2, ... along one axis, the same along all others.""",
)
stop = inactive(
    "stop",
    type=lambda same, x: x,
    reference=lambda x: x,
    lower=lambda jax, x: x,
    elementwise=True,
    ends=True,
    samples=(Example(((2, 3),)),),
    doc="""The operand itself, with zero derivative. Kinks: none, the path contributes exactly 0.""",
)
