"""Eigenvalues of symmetric and Hermitian matrices, and singular values.

Notes at the end say what equal ones do to derivatives, and which phases complex vectors have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ml_dtypes import finfo

from difflang.ir.graph import Value
from difflang.ir.op import OPS, Solver
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.axis_reductions import reduce_max
from difflang.ops.elementwise.comparison_and_logic import eq, le, ne
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.linalg.batched_matrices import (
    FIELDS,
    adjoint,
    along_columns,
    along_rows,
    blank_unless_finite,
    diagonal,
    in_field,
    matmul,
    matrix_type,
    of_a_matrix,
    of_finite,
    one_by_one,
    paired,
    part,
    part_type,
    places,
    real_part,
    square_type,
    symmetric,
    thinner,
)
from difflang.ops.linalg.factorizations import SQUARE
from difflang.ops.op_factories import Array, Example, Graded, array_dtype, known, like, tensor, zeros_at


def differences(values: Value) -> tuple[Value, Value]:
    """[i, j] -> value j minus value i, NaN where they are equal to rounding, and whether i is j."""
    n = tensor(values).shape[-1]
    gaps = along_rows(values, n) - along_columns(values, n)
    same = places(gaps, eq)
    return select.one(equal_to_rounding(values, gaps), like(gaps, np.nan), gaps), same


def equal_to_rounding(values: Value, gaps: Value) -> Value:
    """Where a gap is within `n ε` of the largest value: what a factorization leaves between equal ones."""
    type = tensor(gaps)
    sizes = OPS["abs"].one(values)
    greatest = reduce_max.one(sizes, axes=(type.rank - 2,))
    bound = greatest * (known(type.shape[-1]) * float(finfo(array_dtype(type.dtype)).eps))
    whole = OPS["broadcast"].one(bound, shape=type.shape, axes=tuple(range(type.rank - 2)))
    return le.one(OPS["abs"].one(gaps), whole)


def over(x: Value, gaps: Value, same: Value) -> Value:
    """`x / gaps` off the diagonal, 0 on it."""
    rates = 1.0 / select.one(same, like(gaps, 1.0), gaps)
    return part(x * in_field(rates, x), ne)


# -------------------------------------------------------------------------------------------- eigenvalues


def eigh_type(same: Solver, a: Tensor) -> tuple[Tensor, Tensor]:
    square_type(same, a, FIELDS)
    return Tensor(part_type(same, a), a.shape[:-1]), a


def eigh_reference(a: Array) -> tuple[Array, ...]:
    def found(a: Array) -> tuple[Array, Array]:
        return np.linalg.eigh((of_finite(a) + a.conj().T) / 2)

    values, vectors = one_by_one(found, (a,), a.shape[-1:], a.shape[-2:])
    return values.real, vectors


def eigh_lower(jax: Any, a: Any) -> tuple[Any, Any]:
    """LAPACK makes NaN of the vectors of a matrix that is not finite, and not always of its values."""
    lax = jax.lax
    vectors, values = lax.linalg.eigh(a, symmetrize_input=True)
    finite = lax.reduce(jax.numpy.isfinite(a), np.True_, lax.bitwise_and, (a.ndim - 2, a.ndim - 1))

    def there(x: Any) -> Any:
        whole = lax.broadcast_in_dim(finite, x.shape, tuple(range(finite.ndim)))
        return lax.select(whole, x, lax.full_like(x, np.nan))

    return there(values), there(vectors)


def eigh_jvp(da: Value, found: tuple[Value, Value], a: Value) -> tuple[Value, Value]:
    """With `X = Vᴴ dA V`: `dw = diag X`, and `dV = V Y` for `Y[i, j] = X[i, j] / (w[j] - w[i])`.

    Source: Giles 2008, Collected matrix derivative results.
    """
    values, vectors = found
    x = matmul(adjoint(vectors), matmul(symmetric(da), vectors))
    return real_part(diagonal(x)), matmul(vectors, over(x, *differences(values)))


eigh = of_a_matrix(
    "eigh",
    type=eigh_type,
    accepts=FIELDS,
    conjugates=True,
    phases=lambda w, v: (w, paired(v, v)),
    jvp=eigh_jvp,
    reference=eigh_reference,
    lower=eigh_lower,
    samples=SQUARE,
    doc="""(w, V) with `a = V diag(w) Vᵀ` for the symmetric part of `a`: eigenvalues in rising order, eigenvectors
    in the columns; of complex matrices `a = V diag(w) Vᴴ` for the Hermitian part. NaN where `a` is not finite.
    Units: u -> u, 1. Kinks: where eigenvalues are equal, the derivative of a function that is symmetric in them is
    right, that of their eigenvectors NaN. Complex eigenvectors turn without a change of phase.""",
)


# ---------------------------------------------------------------------------------------- singular values


def svd_type(same: Solver, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """svd(a[*b, n, m]) -> [*b, n, k], [*b, k], [*b, k, m] for the smaller k of n and m."""
    rows, columns = matrix_type(same, a, FIELDS)
    k = thinner(rows, columns)
    values = Tensor(part_type(same, a), (*a.shape[:-2], k))
    return a.resized(a.rank - 1, k), values, a.resized(a.rank - 2, k)


def svd_reference(a: Array) -> tuple[Array, ...]:
    rows, columns = a.shape[-2:]
    k = min(rows, columns)
    shapes = (rows, k), (k,), (k, columns)
    u, s, vh = one_by_one(lambda a: np.linalg.svd(of_finite(a), full_matrices=False), (a,), *shapes)
    return u, s.real, vh


def svd_jvp(da: Value, found: tuple[Value, Value, Value], a: Value) -> tuple[Value, Value, Value]:
    """With `P = Uᴴ dA V`: `ds = diag P`; U and V turn within what they span, and toward what they do not.

    Source: Townsend 2016, Differentiating the singular value decomposition; Wan and Zhang 2019, Automatic
    differentiation for complex valued SVD.
    """
    u, s, vh = found
    v = adjoint(vh)
    p = matmul(adjoint(u), matmul(da, v))
    within_u, within_v = turns(p, s), turns(adjoint(p), s)
    du = matmul(u, within_u + phases(p, s) if tensor(p).dtype.is_complex else within_u)
    du = du + outward(u, matmul(da, v), s)
    dv = matmul(v, within_v) + outward(v, matmul(adjoint(da), u), s)
    still = eq.one(s, like(s, 0.0))
    return du, select.one(still, zeros_at(s, s.type), real_part(diagonal(p))), adjoint(dv)


def turns(p: Value, s: Value) -> Value:
    """`(P S + S Pᴴ)[i, j] / (s[j]² - s[i]²)`"""
    k = tensor(s).shape[-1]
    columns, rows = along_rows(s, k), along_columns(s, k)
    gaps, same = differences(s)
    return over(p * in_field(columns, p) + in_field(rows, p) * adjoint(p), gaps * (columns + rows), same)


def phases(p: Value, s: Value) -> Value:
    """How the phase of U moves against that of V: the imaginary part of the diagonal of P, over the singular values."""
    away = part((p - adjoint(p)) * 0.5, eq)
    return part(away / in_field(along_rows(s, tensor(s).shape[-1]), p), eq)


def outward(q: Value, moved: Value, s: Value) -> Value:
    """What of a move leaves the space that the columns of `q` span, over the singular values."""
    n, k = tensor(q).shape[-2:]
    if n == k:
        return zeros_at(moved, moved.type)
    away = moved - matmul(q, matmul(adjoint(q), moved))
    return away / in_field(along_rows(s, n), q)


svd = of_a_matrix(
    "svd",
    type=svd_type,
    accepts=FIELDS,
    conjugates=True,
    phases=lambda u, s, vh: (paired(u, u), s, paired(u, adjoint(vh))),
    jvp=svd_jvp,
    reference=svd_reference,
    lower=lambda jax, a: tuple(jax.lax.linalg.svd(blank_unless_finite(jax, a), full_matrices=False)),
    samples=(*SQUARE, *(Example((shape,), {}, Graded()) for shape in ((4, 2), (2, 3), (2, 0), (2, 3, 1)))),
    doc="""(U, s, Vᵀ) with `a = U diag(s) Vᵀ`: singular values in falling order, as many columns of U and rows of
    Vᵀ; of complex matrices `a = U diag(s) Vᴴ`; NaN of NaN and Inf. Units: u -> 1, u, 1. Kinks: the derivative of a
    singular value of 0 is 0, as that of `abs`; where some are equal, that of a function symmetric in them is right,
    that of their vectors NaN. Complex vectors turn without a change of phase, but for what U and V have in common.""",
)

# Note [Phases]
#
# Each complex eigenvector may be multiplied by a number of size 1, each pair of singular vectors by one for both. Which
# number it is, is up to LAPACK, and may jump where the matrix does not. So eigenvectors have the derivative of the
# least length, that with vᴴ dv = 0; so has V of singular vectors, and U what V leaves. Functions in which the phases
# cancel (projections, V f(w) Vᴴ, sizes of components) have the right derivatives, of every order; others have none.

# Note [Equal eigenvalues]
#
# A function of the eigenvalues that is symmetric in equal ones has a derivative, and the rule for the values alone
# gives it, in any basis of their eigenspace. The eigenvectors in that basis have none, and no rule for them can make up
# for it: of V diag(f(w)) Vᵀ at the identity, in a direction off the diagonal, all that V meets is f(1) and all that w
# meets is 0, so that f = log and f = 2 log look the same and have different derivatives. Were such pairs left out, the
# derivative there would be a wrong number, and so would second derivatives of functions of the eigenvalues. It is NaN.
