"""Helpers for matrix ops: batched matrices as values, as arrays, and as types. Declares no op.

A matrix is the last two axes of an array `[*b, n, m]`; the axes before them are batch axes, and every op applies to
each matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from difflang.ir.array_types import Array, ArrayT, Jax, JaxArray
from difflang.ir.graph import Attr, Value
from difflang.ir.op import (
    OPS,
    JvpRule,
    LowerRule,
    Op,
    OperandRules,
    ReferenceRule,
    Trait,
    TransposeRule,
    TypeRule,
    TypeSolver,
)
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import COMPLEXES, FLOATS, I32, DType, Tensor
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.arrays.shape_manipulation import transpose as transpose_op
from difflang.ops.elementwise.comparison_and_logic import eq
from difflang.ops.elementwise.linear_arithmetic import conj_if_complex, real, select
from difflang.ops.elementwise.linear_arithmetic import convert as convert_op
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.op_factories import OpSamples, PerOperandRules, along_new_axis, tensor_type, zeros_of_type

# ---- Types

MATRIX_DTYPES = FLOATS + COMPLEXES


def matrix_type(same: TypeSolver, a: Tensor, accepts: tuple[DType, ...] = FLOATS) -> tuple[Dim, Dim]:
    """The numbers of rows and columns."""
    same.accepts(a, accepts)
    same.require(a.rank >= 2, "takes a matrix or a stack of them, not {}" if a.rank else "takes a matrix, not {}", a)
    return a.shape[-2], a.shape[-1]


def square_type(same: TypeSolver, a: Tensor, accepts: tuple[DType, ...] = FLOATS) -> Dim:
    """The number of rows, which equals that of columns."""
    rows, columns = matrix_type(same, a, accepts)
    same.size(rows, columns, "size of a square matrix")
    return rows


def same_square_type(same: TypeSolver, a: Tensor, *xs: Tensor, of: tuple[DType, ...] = FLOATS) -> Tensor:
    """The type of an op on a square matrix and directions of the same type."""
    square_type(same, a, of)
    for x in xs:
        same.dtype(a, x)
        same.shape(a, x)
    return a


def magnitude_dtype(same: TypeSolver, a: Tensor) -> DType:
    """The dtype of a matrix's absolute values."""
    return same.real_dtype(a) if a.dtype.is_complex else a.dtype


def batched_stack_attrs(n: Dim) -> dict[str, Attr]:
    """The attributes of an op on matrices under a batch: its axis is one more leading axis."""
    return {}


def smaller_dim(rows: Dim, columns: Dim) -> Dim:
    """The smaller of two sizes that are equal or known."""
    return rows if rows == columns else min(rows, columns)  # pyright: ignore[reportArgumentType, reportCallIssue]


def cubic_flops(a: Tensor, *_: Tensor, **how: Attr) -> Dim:
    """The flops of an algorithm that passes over a matrix once per row, up to a constant: the `cost` of an op."""
    return a.shape[-2] * prod(a.shape)


# ---- Declarations


def matrix_op(
    name: str,
    *,
    type: TypeRule,
    jvp: JvpRule,
    reference: ReferenceRule,
    lower: LowerRule,
    samples: OpSamples,
    doc: str,
    accepts: tuple[DType, ...] = FLOATS,
    traits: tuple[Trait, ...] = (),
    phase_invariants: Callable[..., Sequence[Value]] | None = None,
) -> Op:
    """A function of each matrix in a batch. 16-bit floats are computed in f32."""
    op = Op(
        name, type, upcast_matrix_reference(reference), upcast_matrix_lowering(lower), doc,
        derivative=OperandRules(jvp=(jvp,)), traits=(*traits, "whole matrices"),
        batch_rule=along_new_axis(batched_stack_attrs), accepts=accepts, samples=samples,
        phase_invariants=phase_invariants, cost=cubic_flops,
    )  # fmt: skip
    return OPS.declare(op)


def directional_matrix_op(
    name: str,
    *,
    transpose: Callable[[int], TransposeRule | None],
    reference: ReferenceRule,
    lower: LowerRule,
    samples: OpSamples,
    doc: str,
    accepts: tuple[DType, ...] = FLOATS,
) -> Op:
    """A function of a square matrix and, with more operands, its derivative in these directions.

    `transpose(i)` is the rule of operand i, `None` for the matrix itself.
    """

    def type(same: TypeSolver, a: Tensor, *xs: Tensor) -> Tensor:
        return same_square_type(same, a, *xs, of=accepts)

    op = Op(
        name, type, upcast_matrix_reference(reference), upcast_matrix_lowering(lower), doc,
        derivative=OperandRules(jvp=next_direction_jvp(name), transpose=PerOperandRules(transpose), directional=True),
        traits=("whole matrices",), accepts=accepts, samples=samples, cost=cubic_flops,
    )  # fmt: skip
    return OPS.declare(op)


# ---- Values


def swap_last_axes(x: Value) -> Value:
    """Every matrix transposed."""
    rank = tensor_type(x).rank
    return transpose_op.one(x, perm=(*range(rank - 2), rank - 1, rank - 2))


def adjoint(x: Value) -> Value:
    """Every matrix transposed, and conjugated where it is complex."""
    return swap_last_axes(conj_if_complex(x))


def matmul(x: Value, y: Value) -> Value:
    """Matrix products over the batch axes."""
    rank = tensor_type(x).rank
    stack = tuple(range(rank - 2))
    return dot_general.one(x, y, contract=((rank - 1,), (rank - 2,)), batch=(stack, stack))


def complex_like(x: Value, like: Value) -> Value:
    """Real numbers converted to complex where `like` is complex."""
    dtype = tensor_type(like).dtype
    return convert_op.one(x, dtype=dtype) if dtype.is_complex else x


def real_part(x: Value) -> Value:
    return real.one(x) if tensor_type(x).dtype.is_complex else x


def phase_free_product(x: Value, y: Value) -> Value:
    """`x diag(1, 2, …) yᴴ`: a function of columns that does not depend on the phase that each pair of them shares."""
    type = tensor_type(x)
    numbers = x.home.one("iota", type=Tensor(I32, type.shape), axis=type.rank - 1)
    return matmul(x * convert_op.one(numbers + 1, dtype=type.dtype), adjoint(y))


def hermitian_part(x: Value) -> Value:
    """The symmetric part, for complex matrices the Hermitian one."""
    return (x + adjoint(x)) * 0.5


def triangle_mask(x: Value, kept: Op) -> Value:
    """Where `kept(row, column)` holds: `ge` the lower triangle, `gt` without the diagonal, `eq` the diagonal."""
    type = Tensor(I32, tensor_type(x).shape)
    rows, columns = (x.home.one("iota", type=type, axis=type.rank - axis) for axis in (2, 1))
    return kept.one(rows, columns)


def triangle_part(x: Value, kept: Op) -> Value:
    """The elements where `kept(row, column)` holds; zeros elsewhere, even in place of NaN."""
    return select.one(triangle_mask(x, kept), x, zeros_of_type(x, x.type))


def matrix_diagonal(x: Value) -> Value:
    """The diagonals of square matrices."""
    return reduce_sum.one(triangle_part(x, eq), axes=(tensor_type(x).rank - 1,))


def matrix_trace(x: Value) -> Value:
    rank = tensor_type(x).rank
    return reduce_sum.one(triangle_part(x, eq), axes=(rank - 2, rank - 1))


def broadcast_rows(d: Value, rows: Dim) -> Value:
    """A matrix with the vector in every row: multiplying by it scales columns."""
    lead, rank = tensor_type(d).shape[:-1], tensor_type(d).rank
    axes = (*range(rank - 1), rank)
    return broadcast.one(d, shape=(*lead, rows, tensor_type(d).shape[-1]), axes=axes)


def broadcast_columns(d: Value, columns: Dim) -> Value:
    """A matrix with the vector in every column: multiplying by it scales rows."""
    return broadcast.one(d, shape=(*tensor_type(d).shape, columns), axes=tuple(range(tensor_type(d).rank)))


def next_direction_jvp(name: str) -> PerOperandRules[JvpRule]:
    """The jvp of a directional derivative at `a` in any number of directions `xs`."""

    def rule(position: int) -> JvpRule:
        def jvp_rule(d: Value, y: Value, a: Value, *xs: Value) -> Value:
            # A tangent of `a` is one more direction; in each direction the op is linear.
            if position == 0:
                return OPS[name].one(a, *xs, d)
            return OPS[name].one(a, *xs[: position - 1], d, *xs[position:])

        return jvp_rule

    return PerOperandRules(rule)


# ---- Arrays


def apply_per_matrix(
    function: Callable[..., Sequence[Array]], arrays: Sequence[Array], *shapes: tuple[int, ...]
) -> tuple[Array, ...]:
    """A function from matrices to arrays of these shapes, applied to each matrix; NaN where it raises LinAlgError."""
    lead = arrays[0].shape[:-2]
    outs = tuple([np.full((*lead, *shape), np.nan, arrays[0].dtype) for shape in shapes])
    for place in np.ndindex(lead):
        try:
            found = function(*[x[place] for x in arrays])
        except np.linalg.LinAlgError:
            continue
        for out, y in zip(outs, found, strict=True):
            out[place] = y
    return outs


def require_finite(a: Array) -> Array:
    """The same matrix. Errors: LinAlgError for one that is not finite: LAPACK's SVD may never terminate on it."""
    if not np.isfinite(a).all():
        raise np.linalg.LinAlgError
    return a


def nan_unless_finite(jax: Jax, a: JaxArray) -> JaxArray:
    """The matrices, with all of a matrix NaN if any of it is not finite."""
    finite = jax.numpy.all(jax.numpy.isfinite(a), axis=(-2, -1), keepdims=True)
    return jax.numpy.where(finite, a, np.nan).astype(a.dtype)


def is_16_bit_float(x: JaxArray) -> bool:
    """Whether an array, NumPy's or JAX's, holds 16-bit floats."""
    return x.dtype.itemsize == 2 and x.dtype.kind in "fV"


def upcast_matrix_reference(reference: ReferenceRule) -> ReferenceRule:
    """A reference that computes 16-bit floats in f32 and rounds its results."""

    def rounded(*arrays: Array, **attrs: Attr) -> Array | tuple[Array, ...]:
        if not is_16_bit_float(arrays[0]):
            return reference(*arrays, **attrs)
        return map_results(
            reference(*[x.astype(np.float32) for x in arrays], **attrs), lambda y: y.astype(arrays[0].dtype)
        )

    return rounded


def upcast_matrix_lowering(lower: LowerRule) -> LowerRule:
    """A lowering that computes 16-bit floats in f32 and rounds its results."""

    def rounded(jax: Jax, *arrays: JaxArray, **attrs: Attr) -> JaxArray | tuple[JaxArray, ...]:
        if not is_16_bit_float(arrays[0]):
            return lower(jax, *arrays, **attrs)
        convert, dtype = jax.lax.convert_element_type, arrays[0].dtype
        wide = [convert(x, np.float32) for x in arrays]
        return map_results(lower(jax, *wide, **attrs), lambda y: convert(y, dtype))

    return rounded


def map_results(found: ArrayT | tuple[ArrayT, ...], change: Callable[[ArrayT], ArrayT]) -> ArrayT | tuple[ArrayT, ...]:
    return tuple(map(change, found)) if isinstance(found, tuple) else change(found)
