"""Eigendecomposition of symmetric and Hermitian matrices (`eigh`), and singular value decomposition (`svd`).

Notes at the end explain derivatives at equal eigenvalues, and the phases of complex vectors.
"""

from __future__ import annotations

import numpy as np
from ml_dtypes import finfo

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Value
from difflang.ir.op import TypeSolver
from difflang.ir.tensor_types import Tensor, numpy_dtype
from difflang.ops.arrays.axis_reductions import reduce_max
from difflang.ops.arrays.constants import stop
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.elementwise.comparison_and_logic import eq, le, ne
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.elementwise.nonlinear_arithmetic import absolute
from difflang.ops.elementwise.roots_and_distances import binade, one_if_zero
from difflang.ops.linalg.batched_matrices import (
    MATRIX_DTYPES,
    adjoint,
    apply_per_matrix,
    broadcast_columns,
    broadcast_rows,
    complex_like,
    hermitian_part,
    magnitude_dtype,
    matmul,
    matrix_diagonal,
    matrix_op,
    matrix_type,
    nan_unless_finite,
    phase_free_product,
    real_part,
    require_finite,
    smaller_dim,
    square_type,
    swap_last_axes,
    triangle_mask,
    triangle_part,
)
from difflang.ops.linalg.factorizations import SQUARE_EXAMPLES
from difflang.ops.op_factories import (
    GradedMatrices,
    OpExample,
    full_like,
    static_size,
    tensor_type,
    zeros_of_type,
)


def eigenvalue_gaps(values: Value) -> tuple[Value, Value]:
    """[i, j] -> value j minus value i, NaN where they are equal up to rounding; and whether i is j."""
    n = tensor_type(values).shape[-1]
    gaps = broadcast_rows(values, n) - broadcast_columns(values, n)
    same = triangle_mask(gaps, eq)
    return select.one(equal_within_rounding(values, gaps), full_like(gaps, np.nan), gaps), same


def equal_within_rounding(values: Value, gaps: Value) -> Value:
    """Where a gap is within `n ε` of the largest value, as a factorization leaves between equal ones."""
    type = tensor_type(gaps)
    sizes = absolute.one(values)
    greatest = reduce_max.one(sizes, axes=(type.rank - 2,))
    bound = greatest * (static_size(type.shape[-1]) * float(finfo(numpy_dtype(type.dtype)).eps))
    whole = broadcast.one(bound, shape=type.shape, axes=tuple(range(type.rank - 2)))
    return le.one(absolute.one(gaps), whole)


def reciprocal_unit(values: Value) -> Value:
    """One over a power of two near the largest value of each matrix, a constant: vectors depend on ratios alone.

    Powers of the values themselves, which derivatives of higher order divide by, would overflow or underflow.
    """
    rank = tensor_type(values).rank
    return 1.0 / binade.one(reduce_max.one(absolute.one(stop.one(values)), axes=(rank - 1,)))


def scale_vectors(x: Value, factors: Value) -> Value:
    """Every vector, times the number that belongs to it."""
    type = tensor_type(x)
    return x * broadcast.one(factors, shape=type.shape, axes=tuple(range(type.rank - 1)))


def scale_matrices(x: Value, factors: Value) -> Value:
    """Every matrix, times the real number that belongs to it."""
    type = tensor_type(x)
    whole = broadcast.one(factors, shape=type.shape, axes=tuple(range(type.rank - 2)))
    return x * complex_like(whole, x)


def divide_by_gaps(x: Value, gaps: Value, same: Value) -> Value:
    """`x / gaps` off the diagonal, 0 on it."""
    rates = 1.0 / select.one(same, full_like(gaps, 1.0), gaps)
    return triangle_part(x * complex_like(rates, x), ne)


# ---- Eigenvalues


def eigh_type(same: TypeSolver, a: Tensor) -> tuple[Tensor, Tensor]:
    square_type(same, a, MATRIX_DTYPES)
    return Tensor(magnitude_dtype(same, a), a.shape[:-1]), a


def eigh_reference(a: Array) -> tuple[Array, ...]:
    def decompose(a: Array) -> tuple[Array, Array]:
        return np.linalg.eigh((require_finite(a) + a.conj().T) / 2)

    values, vectors = apply_per_matrix(decompose, (a,), a.shape[-1:], a.shape[-2:])
    return values.real, vectors


def eigh_lower(jax: Jax, a: JaxArray) -> tuple[JaxArray, JaxArray]:
    """LAPACK returns NaN vectors for a matrix that is not finite, but not always NaN values."""
    lax = jax.lax
    vectors, values = lax.linalg.eigh(a, symmetrize_input=True)
    finite = lax.reduce(jax.numpy.isfinite(a), np.True_, lax.bitwise_and, (a.ndim - 2, a.ndim - 1))

    def nan_unless_finite(x: JaxArray) -> JaxArray:
        whole = lax.broadcast_in_dim(finite, x.shape, tuple(range(finite.ndim)))
        return lax.select(whole, x, lax.full_like(x, np.nan))

    return nan_unless_finite(values), nan_unless_finite(vectors)


def eigh_jvp(da: Value, found: tuple[Value, Value], a: Value) -> tuple[Value, Value]:
    """With `X = Vᴴ dA V`: `dw = diag X`, and `dV = V Y` for `Y[i, j] = X[i, j] / (w[j] - w[i])`.

    Source: Giles 2008, Collected matrix derivative results.
    """
    values, vectors = found
    x = matmul(adjoint(vectors), matmul(hermitian_part(da), vectors))
    per_unit = reciprocal_unit(values)
    scaled, relative = scale_matrices(x, per_unit), scale_vectors(values, per_unit)
    return real_part(matrix_diagonal(x)), matmul(vectors, divide_by_gaps(scaled, *eigenvalue_gaps(relative)))


eigh = matrix_op(
    "eigh",
    type=eigh_type,
    accepts=MATRIX_DTYPES,
    traits=("not holomorphic",),
    phase_invariants=lambda w, v: (w, phase_free_product(v, v)),
    jvp=eigh_jvp,
    reference=eigh_reference,
    lower=eigh_lower,
    samples=SQUARE_EXAMPLES,
    doc="""(w, V) with `a = V diag(w) Vᵀ` for the symmetric part of `a`: eigenvalues in rising order, eigenvectors
    in the columns; of complex matrices `a = V diag(w) Vᴴ` for the Hermitian part. NaN where `a` is not finite.
    Units: u -> u, 1. Kinks: where eigenvalues are equal, the derivative of a function that is symmetric in them is
    right, that of their eigenvectors NaN. Complex eigenvectors turn without a change of phase.""",
)


# ---- Singular values


def svd_type(same: TypeSolver, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """svd(a[*b, n, m]) -> [*b, n, k], [*b, k], [*b, k, m] for the smaller k of n and m."""
    rows, columns = matrix_type(same, a, MATRIX_DTYPES)
    k = smaller_dim(rows, columns)
    values = Tensor(magnitude_dtype(same, a), (*a.shape[:-2], k))
    return a.resized(a.rank - 1, k), values, a.resized(a.rank - 2, k)


def svd_reference(a: Array) -> tuple[Array, ...]:
    rows, columns = a.shape[-2:]
    k = min(rows, columns)
    shapes = (rows, k), (k,), (k, columns)
    u, s, vh = apply_per_matrix(lambda a: np.linalg.svd(require_finite(a), full_matrices=False), (a,), *shapes)
    return u, s.real, vh


def svd_jvp(da: Value, found: tuple[Value, Value, Value], a: Value) -> tuple[Value, Value, Value]:
    """With `P = Uᴴ dA V`: `ds = diag P`; U and V rotate within their span, and leave it.

    Source: Townsend 2016, Differentiating the singular value decomposition; Wan and Zhang 2019, Automatic
            differentiation for complex valued SVD.
    """
    u, s, vh = found
    v = adjoint(vh)
    moved_v, moved_u = matmul(da, v), matmul(adjoint(da), u)
    p = matmul(adjoint(u), moved_v)
    still = eq.one(s, full_like(s, 0.0))
    ds = select.one(still, zeros_of_type(s, s.type), real_part(matrix_diagonal(p)))
    per_unit = reciprocal_unit(s)
    s = scale_vectors(s, per_unit)
    p, moved_v, moved_u = (scale_matrices(x, per_unit) for x in (p, moved_v, moved_u))
    within_u, within_v = svd_rotation_rates(p, s), svd_rotation_rates(adjoint(p), s)
    du = matmul(u, within_u + svd_phase_rates(p, s) if tensor_type(p).dtype.is_complex else within_u)
    du = du + component_outside_span(u, moved_v, s)
    dv = matmul(v, within_v) + component_outside_span(v, moved_u, s)
    return du, ds, adjoint(dv)


def svd_rotation_rates(p: Value, s: Value) -> Value:
    """`(P S + S Pᴴ)[i, j] / (s[j]² - s[i]²)`, without the squares, which overflow and underflow."""
    k = tensor_type(s).shape[-1]
    columns, rows = broadcast_rows(s, k), broadcast_columns(s, k)
    gaps, same = eigenvalue_gaps(s)
    share = columns / one_if_zero.one(columns + rows)
    return divide_by_gaps(p * complex_like(share, p) + complex_like(swap_last_axes(share), p) * adjoint(p), gaps, same)


def svd_phase_rates(p: Value, s: Value) -> Value:
    """The change of U's phase relative to V's: the imaginary part of the diagonal of P, over the singular values."""
    away = triangle_part((p - adjoint(p)) * 0.5, eq)
    return triangle_part(away / complex_like(broadcast_rows(s, tensor_type(s).shape[-1]), p), eq)


def component_outside_span(q: Value, moved: Value, s: Value) -> Value:
    """The component of a change outside the span of `q`'s columns, over the singular values."""
    n, k = tensor_type(q).shape[-2:]
    if n == k:
        return zeros_of_type(moved, moved.type)
    away = moved - matmul(q, matmul(adjoint(q), moved))
    return away / complex_like(broadcast_rows(s, n), q)


svd = matrix_op(
    "svd",
    type=svd_type,
    accepts=MATRIX_DTYPES,
    traits=("not holomorphic",),
    phase_invariants=lambda u, s, vh: (phase_free_product(u, u), s, phase_free_product(u, adjoint(vh))),
    jvp=svd_jvp,
    reference=svd_reference,
    lower=lambda jax, a: tuple(jax.lax.linalg.svd(nan_unless_finite(jax, a), full_matrices=False)),
    samples=(
        *SQUARE_EXAMPLES,
        *(OpExample((shape,), {}, GradedMatrices()) for shape in ((4, 2), (2, 3), (2, 0), (2, 3, 1))),
    ),
    doc="""(U, s, Vᵀ) with `a = U diag(s) Vᵀ`: singular values in falling order, as many columns of U and rows of
    Vᵀ; of complex matrices `a = U diag(s) Vᴴ`; NaN of NaN and Inf. Units: u -> 1, u, 1. Kinks: the derivative of a
    singular value of 0 is 0, as that of `abs`; where some are equal, that of a function symmetric in them is right,
    that of their vectors NaN. Complex vectors turn without a change of phase, but for what U and V have in common.""",
)

# Note [Phases]
#
# Each complex eigenvector may be multiplied by a number of modulus 1, each pair of singular vectors by one for both.
# LAPACK chooses that number, and it may jump where the matrix is continuous. So eigenvectors get the derivative of
# least norm, with vᴴ dv = 0; so does V of singular vectors, and U gets what remains. Functions in which the phases
# cancel (projections, V f(w) Vᴴ, moduli of components) have the right derivatives, of every order; others have none.

# Note [Equal eigenvalues]
#
# A function of the eigenvalues that is symmetric in equal ones has a derivative, and the rule for the values alone
# gives it, in any basis of their eigenspace. The eigenvectors in that basis have none, and no rule for them can make up
# for it: in V diag(f(w)) Vᵀ at the identity, in a direction off the diagonal, dV is multiplied by f(1) only and dw is
# 0, so that f = log and f = 2 log look the same and have different derivatives. Leaving such pairs out would make the
# derivative a wrong number, and also second derivatives of functions of the eigenvalues. So it is NaN.
