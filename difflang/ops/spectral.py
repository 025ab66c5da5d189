"""Eigenvalues of symmetric matrices, and singular values. A note at the end says what equal ones do to derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
from ml_dtypes import finfo

from difflang.ir.graph import Value
from difflang.ir.op import OPS, Solver
from difflang.ir.types import Tensor
from difflang.ops.compare import eq, le, ne
from difflang.ops.factor import SQUARE
from difflang.ops.families import Array, Example, Graded, array_dtype, known, like, tensor, zeros_at
from difflang.ops.linear import select
from difflang.ops.matrices import (
    along_columns,
    along_rows,
    diagonal,
    matmul,
    matrix_type,
    of_a_matrix,
    one_by_one,
    part,
    places,
    square_type,
    swap,
    symmetric,
    thinner,
)
from difflang.ops.reduce import reduce_max


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
    return part(x * rates, ne)


# -------------------------------------------------------------------------------------------- eigenvalues


def eigh_type(same: Solver, a: Tensor) -> tuple[Tensor, Tensor]:
    square_type(same, a)
    return Tensor(a.dtype, a.shape[:-1]), a


def eigh_reference(a: Array) -> tuple[Array, ...]:
    def of_finite(a: Array) -> tuple[Array, Array]:
        if not np.isfinite(a).all():
            raise np.linalg.LinAlgError
        return np.linalg.eigh((a + a.T) / 2)

    return one_by_one(of_finite, (a,), a.shape[-1:], a.shape[-2:])


def eigh_lower(jax: Any, a: Any) -> tuple[Any, Any]:
    """LAPACK makes NaN of the vectors of a matrix that is not finite, and not always of its values."""
    lax = jax.lax
    vectors, values = lax.linalg.eigh(a, symmetrize_input=True)
    finite = lax.reduce(lax.is_finite(a), np.True_, lax.bitwise_and, (a.ndim - 2, a.ndim - 1))

    def there(x: Any) -> Any:
        whole = lax.broadcast_in_dim(finite, x.shape, tuple(range(finite.ndim)))
        return lax.select(whole, x, lax.full_like(x, np.nan))

    return there(values), there(vectors)


def eigh_jvp(da: Value, found: tuple[Value, Value], a: Value) -> tuple[Value, Value]:
    """With `X = Vᵀ dA V`: `dw = diag X`, and `dV = V Y` for `Y[i, j] = X[i, j] / (w[j] - w[i])`.

    Source: Giles 2008, Collected matrix derivative results.
    """
    values, vectors = found
    x = matmul(swap(vectors), matmul(symmetric(da), vectors))
    return diagonal(x), matmul(vectors, over(x, *differences(values)))


eigh = of_a_matrix(
    "eigh",
    type=eigh_type,
    jvp=eigh_jvp,
    reference=eigh_reference,
    lower=eigh_lower,
    samples=SQUARE,
    doc="""(w, V) with `a = V diag(w) Vᵀ` for the symmetric part of `a`: eigenvalues in rising order, eigenvectors
    in the columns; NaN where `a` is not finite. Units: u -> u, 1. Kinks: where eigenvalues are equal, the derivative of
    a function that is symmetric in them is right, that of their eigenvectors NaN.""",
)


# ---------------------------------------------------------------------------------------- singular values


def svd_type(same: Solver, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """svd(a[*b, n, m]) -> [*b, n, k], [*b, k], [*b, k, m] for the smaller k of n and m."""
    rows, columns = matrix_type(same, a)
    k = thinner(rows, columns)
    return a.resized(a.rank - 1, k), Tensor(a.dtype, (*a.shape[:-2], k)), a.resized(a.rank - 2, k)


def svd_reference(a: Array) -> tuple[Array, ...]:
    rows, columns = a.shape[-2:]
    k = min(rows, columns)
    return one_by_one(lambda a: np.linalg.svd(a, full_matrices=False), (a,), (rows, k), (k,), (k, columns))


def svd_jvp(da: Value, found: tuple[Value, Value, Value], a: Value) -> tuple[Value, Value, Value]:
    """With `P = Uᵀ dA V`: `ds = diag P`; U and V turn within what they span, and toward what they do not.

    Source: Townsend 2016, Differentiating the singular value decomposition.
    """
    u, s, vt = found
    v = swap(vt)
    p = matmul(swap(u), matmul(da, v))
    within_u, within_v = turns(p, s), turns(swap(p), s)
    du = matmul(u, within_u) + outward(u, matmul(da, v), s)
    dv = matmul(v, within_v) + outward(v, matmul(swap(da), u), s)
    still = eq.one(s, like(s, 0.0))
    return du, select.one(still, zeros_at(s, s.type), diagonal(p)), swap(dv)


def turns(p: Value, s: Value) -> Value:
    """`(P S + S Pᵀ)[i, j] / (s[j]² - s[i]²)`"""
    k = tensor(s).shape[-1]
    columns, rows = along_rows(s, k), along_columns(s, k)
    gaps, same = differences(s)
    return over(p * columns + rows * swap(p), gaps * (columns + rows), same)


def outward(q: Value, moved: Value, s: Value) -> Value:
    """What of a move leaves the space that the columns of `q` span, over the singular values."""
    n, k = tensor(q).shape[-2:]
    if n == k:
        return zeros_at(moved, moved.type)
    away = moved - matmul(q, matmul(swap(q), moved))
    return away / along_rows(s, n)


svd = of_a_matrix(
    "svd",
    type=svd_type,
    jvp=svd_jvp,
    reference=svd_reference,
    lower=lambda jax, a: tuple(jax.lax.linalg.svd(a, full_matrices=False)),
    samples=(*SQUARE, *(Example((shape,), {}, Graded()) for shape in ((4, 2), (2, 3), (2, 0), (2, 3, 1)))),
    doc="""(U, s, Vᵀ) with `a = U diag(s) Vᵀ`: singular values in falling order, as many columns of U and rows of
    Vᵀ. Units: u -> 1, u, 1. Kinks: the derivative of a singular value of 0 is 0, as that of `abs`; where some are
    equal, that of a function symmetric in them is right, that of their vectors NaN.""",
)

# Note [Equal eigenvalues]
#
# A function of the eigenvalues that is symmetric in equal ones has a derivative, and the rule for the values alone
# gives it, in any basis of their eigenspace. The eigenvectors in that basis have none, and no rule for them can make up
# for it: of V diag(f(w)) Vᵀ at the identity, in a direction off the diagonal, all that V meets is f(1) and all that w
# meets is 0, so that f = log and f = 2 log look the same and have different derivatives. Were such pairs left out, the
# derivative there would be a wrong number, and so would second derivatives of functions of the eigenvalues. It is NaN.
