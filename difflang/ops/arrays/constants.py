"""Ops without operands, `const`, `dense` and `iota`, and `stop` and `discrete`, which stop the gradient."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.builder import Builder
from difflang.ir.graph import Attr, Value
from difflang.ir.op import Fill, TypeSolver
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import (
    BF16,
    BOOL,
    C64,
    C128,
    F32,
    F64,
    FLOATS,
    I32,
    I64,
    INTEGERS,
    DType,
    Tensor,
    Type,
    numpy_dtype,
)
from difflang.numerics.decimal_numbers import round_f64
from difflang.ops.op_factories import FixedOperand, OpExample, inactive_op, static_size


def const_type(same: TypeSolver, *, type: Type, value: Attr) -> Type:
    if not isinstance(value, (int, float, complex, Poly)):
        same.require(False, "{} is not a number", repr(value))
    return type


def static_shape(type: Tensor) -> tuple[int, ...]:
    return tuple(map(static_size, type.shape))


def const_reference(*, value: complex, type: Tensor) -> Array:
    return np.full(static_shape(type), const_fill_value(value=value, type=type))


def const_lower(jax: Jax, *, value: complex, type: Tensor) -> JaxArray:
    """As `lax.full`, without converting a number that already has the type."""
    number = const_fill_value(value=value, type=type)
    return jax.lax.broadcast(number, type.shape) if type.shape else jax.lax.full((), number)


def const_fill_value(*, value: complex, type: Tensor) -> JaxArray:
    return numbers_of_dtype(value, type.dtype)[()]


def numbers_of_dtype(numbers: complex | Iterable[complex], dtype: DType) -> Array:
    """Numbers of a program as an array, each rounded once."""
    return (
        round_f64(np.asarray(numbers, np.float64), numpy_dtype(dtype))
        if dtype is BF16
        else np.asarray(numbers, numpy_dtype(dtype))
    )


def dense_type(same: TypeSolver, *, data: tuple[complex, ...], type: Tensor) -> Tensor:
    size = 1
    for n in type.shape:
        size = size * n
    same.size(len(data), size, "number of elements")
    return type


def dense_array(data: Iterable[complex], type: Tensor) -> Array:
    return numbers_of_dtype(tuple(data), type.dtype).reshape(static_shape(type))


def iota_reference(*, type: Tensor, axis: int) -> Array:
    shape, whole = [1] * type.rank, static_shape(type)
    shape[axis] = whole[axis]
    steps = np.arange(whole[axis]).astype(numpy_dtype(type.dtype)).reshape(shape)
    return np.broadcast_to(steps, whole)


def iota_type(same: TypeSolver, *, type: Tensor, axis: int) -> Tensor:
    same.accepts(type, INTEGERS + FLOATS)
    same.require(0 <= axis < type.rank, "there is no axis {} in {}", axis, type)
    return type


const = inactive_op(
    "const",
    type=const_type,
    reference=const_reference,
    lower=const_lower,
    movement=Fill(const_fill_value),
    traits=("bit exact",),
    samples=tuple(
        OpExample((), {"value": v, "type": Tensor(d, s)})
        for v, d, s in ((True, BOOL, ()), (-7, I32, (3,)), (1.5, F32, (2, 0)), (2.5, F64, (2, 1)), (1 + 2j, C64, (2,)))
    ),
    doc="""An array filled with one number; `value` may be a dim in a generic graph. Also an empty history.""",
)
dense = inactive_op(
    "dense",
    type=dense_type,
    reference=lambda data, type: dense_array(data, type),
    lower=lambda jax, data, type: jax.numpy.asarray(dense_array(data, type)),
    traits=("bit exact",),
    samples=tuple(
        OpExample((), {"data": v, "type": Tensor(d, s)})
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
iota = inactive_op(
    "iota",
    type=iota_type,
    reference=iota_reference,
    lower=lambda jax, type, axis: jax.lax.broadcasted_iota(numpy_dtype(type.dtype), type.shape, axis),
    traits=("bit exact",),
    samples=tuple(
        OpExample((), {"type": Tensor(d, s), "axis": a})
        for d, s, a in ((I32, (4,), 0), (I64, (2, 3), 1), (F64, (3, 2), 0), (F32, (2, 0), 1))
    ),
    doc="""0, 1, 2, ... along one axis, the same along all others.""",
)
stop = inactive_op(
    "stop",
    type=lambda same, x: x,
    reference=lambda x: x,
    lower=lambda jax, x: x,
    traits=("elementwise",),
    why="stop",
    samples=(OpExample(((2, 3),)),),
    doc="""The operand itself, with zero derivative. Kinks: none, the path contributes exactly 0.""",
)


def discrete_type(same: TypeSolver, value: Tensor, by: Tensor) -> Tensor:
    same.shape(value, by)
    return value


discrete = inactive_op(
    "discrete",
    type=discrete_type,
    reference=lambda value, by: value,
    lower=lambda jax, value, by: value,
    traits=("elementwise", "bit exact"),
    why="drawn",
    samples=(OpExample(((2, 3), (2, 3))), OpExample((FixedOperand((True, False, True), BOOL), (3,)))),
    doc="""The first operand, drawn from a distribution that the second determines, with derivative 0: what is lost is
    the derivative of its mean. Units: u, v -> u. Kinks: none, the path contributes exactly 0.""",
)


def array_constant(home: Builder, numbers: Array, type: Tensor) -> Value:
    """A constant of these numbers: `const` if all have the same bits, else `dense`."""
    flat = np.ascontiguousarray(numbers).reshape(-1)
    bits = flat.view(np.dtype((np.void, flat.dtype.itemsize)))
    if not flat.size or (bits == bits[0]).all():
        return home.const(flat[0].item() if flat.size else 0, type)
    return home.one("dense", data=tuple(flat.tolist()), type=type)
