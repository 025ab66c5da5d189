"""Direct matrix factorizations, Cholesky, LU and QR, and triangular solves."""

from __future__ import annotations

from typing import Any

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Attr, Value
from difflang.ir.op import OPS, Op, OperandRules, TypeSolver, UndefinedPrimal
from difflang.ir.tensor_types import Tensor
from difflang.ops.elementwise.comparison_and_logic import eq, ge, gt, le, lt
from difflang.ops.elementwise.linear_arithmetic import conj_if_complex
from difflang.ops.linalg.batched_matrices import (
    MATRIX_DTYPES,
    adjoint,
    apply_per_matrix,
    hermitian_part,
    matmul,
    matrix_op,
    matrix_type,
    phase_free_product,
    same_square_type,
    square_type,
    swap_last_axes,
    triangle_part,
    upcast_matrix_lowering,
    upcast_matrix_reference,
)
from difflang.ops.op_factories import FixedOperand, GradedMatrices, OpExample, tensor_type

SQUARE_EXAMPLES = tuple(OpExample((shape,), {}, GradedMatrices()) for shape in ((3, 3), (1, 1), (0, 0), (2, 2, 2)))


def scipy_linalg() -> Any:
    import scipy.linalg

    return scipy.linalg


# ---- Triangular solves


def solve_type(same: TypeSolver, a: Tensor, b: Tensor, **_: Attr) -> Tensor:
    """solve(a[*b, n, n], b[*b, n, m]) -> [*b, n, m]"""
    rows = square_type(same, a, MATRIX_DTYPES)
    same.dtype(a, b)
    same.require(a.rank == b.rank, "as many axes in {} as in {}", a, b)
    for mine, theirs in zip((*a.shape[:-2], rows), b.shape[:-1], strict=True):
        same.size(mine, theirs, "number of rows")
    return b


def solve_triangular_reference(a: Array, b: Array, *, lower: bool, transposed: bool, unit: bool) -> Array:
    """By BLAS, which divides by the diagonal even if it is 0."""
    if not b.size:
        return b
    (trsm,) = scipy_linalg().get_blas_funcs(("trsm",), (a,))
    (x,) = apply_per_matrix(
        lambda a, b: (trsm(1.0, a, b, lower=lower, trans_a=transposed, diag=unit),), (a, b), b.shape[-2:]
    )
    return x


def solve_triangular_lower(
    jax: Jax, a: JaxArray, b: JaxArray, *, lower: bool, transposed: bool, unit: bool
) -> JaxArray:
    return jax.lax.linalg.triangular_solve(
        a, b, left_side=True, lower=lower, transpose_a=transposed, unit_diagonal=unit
    )


def solve_triangular_jvp(
    da: Value, x: Value, a: Value, b: Value, *, lower: bool, transposed: bool, unit: bool
) -> Value:
    """`-A⁻¹ dA x`, with only the triangle of dA that is read."""
    read = triangle_part(da, (gt if lower else lt) if unit else (ge if lower else le))
    moved = matmul(swap_last_axes(read) if transposed else read, x)
    return -solve_triangular.one(a, moved, lower=lower, transposed=transposed, unit=unit)


def solve_triangular_transpose(
    ct: Value, a: Value, b: Value | UndefinedPrimal, *, lower: bool, transposed: bool, unit: bool
) -> Value:
    return solve_triangular.one(conj_if_complex(a), ct, lower=lower, transposed=not transposed, unit=unit)


TRIANGULAR_CASES = tuple(
    {"lower": bool(lower), "transposed": bool(transposed), "unit": bool(unit)}
    for lower, transposed, unit in (
        (True, False, False),
        (False, False, False),
        (True, True, True),
        (False, True, False),
    )
)

solve_triangular = OPS.declare(
    Op(
        "solve_triangular",
        type=solve_type,
        derivative=OperandRules(
            jvp=(
                solve_triangular_jvp,
                lambda db, x, a, b, **how: solve_triangular.one(a, db, **how),
            ),
            transpose=(None, solve_triangular_transpose),
        ),
        reference=upcast_matrix_reference(solve_triangular_reference),
        lower=upcast_matrix_lowering(solve_triangular_lower),
        traits=("whole matrices",),
        accepts=MATRIX_DTYPES,
        cost=lambda a, b, **_: a.shape[-1] * np.prod(b.shape),
        samples=(
            *(OpExample(((3, 3), (3, 2)), case, GradedMatrices()) for case in TRIANGULAR_CASES),
            OpExample(((2, 2, 2), (2, 2, 1)), TRIANGULAR_CASES[0], GradedMatrices()),
            OpExample(((1, 1), (1, 3)), TRIANGULAR_CASES[0], GradedMatrices()),
            OpExample(((0, 0), (0, 2)), TRIANGULAR_CASES[0], GradedMatrices()),
            OpExample(((2, 2), (2, 0)), TRIANGULAR_CASES[0], GradedMatrices()),
        ),
        doc="""The x of `a x = b`, or `aᵀ x = b` if `transposed`, for a triangular `a`. Only that triangle is read, the
        lower or the upper; if `unit`, its diagonal is not, and stands for ones. Units: u, v -> v / u.
        Kinks: none; a 0 on the diagonal divides as in IEEE 754.""",
    )
)


# ---- Cholesky


def cholesky_reference(a: Array) -> Array:
    (found,) = apply_per_matrix(lambda a: (np.linalg.cholesky((a + a.conj().T) / 2),), (a,), a.shape[-2:])
    return np.tril(found)


def cholesky_jvp(da: Value, y: Value, a: Value) -> Value:
    """`L Φ(L⁻¹ dA L⁻ᴴ)`, where Φ keeps the lower triangle and half of the diagonal.

    Source: Murray 2016, Differentiation of the Cholesky decomposition.
    """
    lower: dict[str, bool] = {"lower": True, "transposed": False, "unit": False}
    left = solve_triangular.one(y, hermitian_part(da), **lower)
    both = solve_triangular.one(y, adjoint(left), **lower)
    return matmul(y, (triangle_part(both, ge) + triangle_part(both, gt)) * 0.5)


cholesky = matrix_op(
    "cholesky",
    type=lambda same, a: same_square_type(same, a, of=MATRIX_DTYPES),
    accepts=MATRIX_DTYPES,
    traits=("not holomorphic",),
    jvp=cholesky_jvp,
    reference=cholesky_reference,
    lower=lambda jax, a: jax.lax.linalg.cholesky(a, symmetrize_input=True),
    samples=SQUARE_EXAMPLES,
    doc="""The lower triangular L with positive diagonal and `L Lᵀ = a`, of the symmetric part of `a`; of complex
    matrices `L Lᴴ = a`, of the Hermitian part. Units: u -> u^(1/2). Kinks: NaN where it is not positive definite.""",
)


# ---- LU


def lu_type(same: TypeSolver, a: Tensor) -> tuple[Tensor, ...]:
    square_type(same, a, MATRIX_DTYPES)
    return a, a, a


def lu_reference(a: Array) -> tuple[Array, ...]:
    return apply_per_matrix(lambda a: scipy_linalg().lu(a, check_finite=False), (a,), *[a.shape[-2:]] * 3)


def lu_lower(jax: Jax, a: JaxArray) -> tuple[JaxArray, ...]:
    jnp, n = jax.numpy, a.shape[-1]
    packed, _, order = jax.lax.linalg.lu(a)
    p = (jax.lax.iota(np.int32, n)[:, None] == order[..., None, :]).astype(a.dtype)
    return p, jnp.tril(packed, -1) + jnp.eye(n, dtype=a.dtype), jnp.triu(packed)


def lu_jvp(da: Value, found: tuple[Value, Value, Value], a: Value) -> tuple[Value | None, ...]:
    """Of `X = L⁻¹ Pᵀ dA U⁻¹`, the part below the diagonal gives dL, the rest dU; P is constant."""
    p, low, up = found
    left = solve_triangular.one(low, matmul(swap_last_axes(p), da), lower=True, transposed=False, unit=True)
    x = divide_by_upper(left, up)
    return None, matmul(low, triangle_part(x, gt)), matmul(triangle_part(x, le), up)


def divide_by_upper(x: Value, upper: Value) -> Value:
    """`X U⁻¹`"""
    return swap_last_axes(solve_triangular.one(upper, swap_last_axes(x), lower=False, transposed=True, unit=False))


lu = matrix_op(
    "lu",
    type=lu_type,
    accepts=MATRIX_DTYPES,
    jvp=lu_jvp,
    reference=lu_reference,
    lower=lu_lower,
    samples=(*SQUARE_EXAMPLES, OpExample((FixedOperand(((0.0, 2.0), (3.0, 1.0))),), {}, GradedMatrices())),
    doc="""(P, L, U) with `a = P L U` for square `a`: a permutation, a lower triangle with ones on its diagonal,
    and an upper one. Units: u -> 1, 1, u. Kinks: P is a constant; Inf and NaN where U is singular.""",
)


# ---- QR


def qr_type(same: TypeSolver, a: Tensor) -> tuple[Tensor, Tensor]:
    """qr(a[*b, n, m]) -> [*b, n, m], [*b, m, m], where n >= m."""
    rows, columns = matrix_type(same, a, MATRIX_DTYPES)
    tall = not (isinstance(rows, int) and isinstance(columns, int)) or rows >= columns
    same.require(tall, "at least as many rows as columns, not {}", a)
    return a, a.resized(a.rank - 2, columns)


def qr_reference(a: Array) -> tuple[Array, ...]:
    n = a.shape[-1]
    return apply_per_matrix(np.linalg.qr, (a,), a.shape[-2:], (n, n))


def qr_jvp(da: Value, found: tuple[Value, Value], a: Value) -> tuple[Value, Value]:
    """With `Z = dA R⁻¹`: `dR = T R` and `dQ = Z - Q T` for the upper triangular T with which Q stays orthogonal.

    The diagonal of R is real, so that of T is.
    Source: Walter, Lehmann, Lamour 2012, On evaluating higher-order derivatives of the QR decomposition.
    """
    q, r = found
    z = divide_by_upper(da, r)
    w = matmul(adjoint(q), z)
    above = triangle_part(w, le)
    if tensor_type(w).dtype.is_complex:
        above = triangle_part(w, lt) + triangle_part(hermitian_part(w), eq)
    t = above + adjoint(triangle_part(w, gt))
    return z - matmul(q, t), matmul(t, r)


qr = matrix_op(
    "qr",
    type=qr_type,
    accepts=MATRIX_DTYPES,
    traits=("not holomorphic",),
    phase_invariants=lambda q, r: (phase_free_product(q, q), phase_free_product(adjoint(r), adjoint(r))),
    jvp=qr_jvp,
    reference=qr_reference,
    lower=lambda jax, a: tuple(jax.lax.linalg.qr(a, full_matrices=False)),
    samples=(*SQUARE_EXAMPLES, *(OpExample((shape,), {}, GradedMatrices()) for shape in ((4, 2), (2, 0), (2, 3, 1)))),
    doc="""(Q, R) with `a = Q R`, for `a` with at least as many rows as columns: Q has orthonormal columns, R is an
    upper triangle with a real diagonal, of the sign that LAPACK gives it. Units: u -> 1, u.
    Kinks: Inf and NaN where the columns are dependent, huge where rounding parts them.""",
)
