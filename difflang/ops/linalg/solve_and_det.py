"""Linear systems and determinants: `solve`, `det` with its derivatives of every order (`cofactors`), `slogdet`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import combinations, permutations

import numpy as np

from difflang.ir.array_types import NUMPY, Array, ArrayT, Jax, JaxArray, NumpyModule
from difflang.ir.graph import Value
from difflang.ir.op import OPS, Op, OperandRules, TransposeRule, TypeSolver, UndefinedPrimal
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.arrays.shape_manipulation import reshape, slice_axis
from difflang.ops.elementwise.linear_arithmetic import complex_, conj_if_complex, imag, real
from difflang.ops.linalg.batched_matrices import (
    MATRIX_DTYPES,
    apply_per_matrix,
    cubic_flops,
    directional_matrix_op,
    matmul,
    matrix_op,
    matrix_trace,
    nan_unless_finite,
    require_finite,
    square_type,
    swap_last_axes,
    upcast_matrix_lowering,
    upcast_matrix_reference,
)
from difflang.ops.linalg.factorizations import SQUARE_EXAMPLES, scipy_linalg, solve_type
from difflang.ops.op_factories import (
    FixedOperand,
    GradedMatrices,
    OpExample,
    static_size,
    tensor_type,
    zeros_of_type,
)

SINGULAR_EXAMPLE = OpExample((FixedOperand(((1.0, 2.0, 3.0), (4.0, 5.0, 6.0), (7.0, 8.0, 9.0))),), {}, GradedMatrices())
RANK_ONE = FixedOperand(((1.0, 2.0, 3.0), (2.0, 4.0, 6.0), (-1.0, -2.0, -3.0)))
ZERO_MATRIX = FixedOperand(((0.0, 0.0), (0.0, 0.0)))


# ---- Solve


def solve_reference(a: Array, b: Array, *, transposed: bool) -> Array:
    """By LAPACK without its test whether `a` is singular: then it divides by 0."""
    if not b.size:
        return b
    getrf, getrs = scipy_linalg().get_lapack_funcs(("getrf", "getrs"), (a,))

    def one(a: Array, b: Array) -> tuple[Array]:
        packed, pivots, _ = getrf(a)
        return (getrs(packed, pivots, b, trans=transposed)[0],)

    (x,) = apply_per_matrix(one, (a, b), b.shape[-2:])
    return x


def solve_lower(jax: Jax, a: JaxArray, b: JaxArray, *, transposed: bool) -> JaxArray:
    """LU with pivoting, and two triangular solves. Where `a` is factored a second time, XLA merges the two."""
    jnp, linalg = jax.numpy, jax.lax.linalg
    packed, _, order = linalg.lu(a)
    solve = partial(linalg.triangular_solve, packed, left_side=True, transpose_a=transposed)
    if not transposed:
        moved = jnp.take_along_axis(b, order[..., None], axis=-2)
        return solve(solve(moved, lower=True, unit_diagonal=True), lower=False)
    moved = solve(solve(b, lower=False), lower=True, unit_diagonal=True)
    return jnp.take_along_axis(moved, jnp.argsort(order)[..., None], axis=-2)


def solve_jvp(da: Value, x: Value, a: Value, b: Value, *, transposed: bool) -> Value:
    """`-A⁻¹ dA x`"""
    return -solve.one(a, matmul(swap_last_axes(da) if transposed else da, x), transposed=transposed)


def solve_transpose(ct: Value, a: Value, b: Value | UndefinedPrimal, *, transposed: bool) -> Value:
    return solve.one(conj_if_complex(a), ct, transposed=not transposed)


solve = OPS.declare(
    Op(
        "solve",
        type=solve_type,
        derivative=OperandRules(
            jvp=(solve_jvp, lambda db, x, a, b, transposed: solve.one(a, db, transposed=transposed)),
            transpose=(None, solve_transpose),
        ),
        reference=upcast_matrix_reference(solve_reference),
        lower=upcast_matrix_lowering(solve_lower),
        traits=("whole matrices",),
        accepts=MATRIX_DTYPES,
        cost=lambda a, b, **_: cubic_flops(a) + 2 * a.shape[-1] * np.prod(b.shape),
        samples=(
            OpExample(((3, 3), (3, 2)), {"transposed": False}, GradedMatrices()),
            OpExample(((3, 3), (3, 2)), {"transposed": True}, GradedMatrices()),
            OpExample(((2, 2, 2), (2, 2, 1)), {"transposed": False}, GradedMatrices()),
            OpExample(((2, 2, 2), (2, 2, 1)), {"transposed": True}, GradedMatrices()),
            OpExample(((1, 1), (1, 1)), {"transposed": False}, GradedMatrices()),
            OpExample(((0, 0), (0, 2)), {"transposed": False}, GradedMatrices()),
            OpExample(((2, 2), (2, 0)), {"transposed": True}, GradedMatrices()),
        ),
        doc="""The x of `a x = b`, or of `aᵀ x = b` if `transposed`. Units: u, v -> v / u.
        Kinks: Inf and NaN where `a` is singular.""",
    )
)


# ---- Determinant


# Up to this size a determinant is expanded: exact where products and sums are, and faster than LU.
MAX_MINOR_ROWS = 4


def det_by_minors(a: Value) -> Value:
    """The determinant of a few rows, at least one: minors of the first row, of the first two, and so on."""
    n = static_size(tensor_type(a).shape[-1])
    minors: dict[tuple[int, ...], Value] = {(j,): matrix_element(a, 0, j) for j in range(n)}
    for row in range(1, n):
        elements = [matrix_element(a, row, j) for j in range(n)]
        minors = {
            columns: alternating_sum(
                [elements[c] * minors[columns[:k] + columns[k + 1 :]] for k, c in enumerate(columns)]
            )
            for columns in combinations(range(n), row + 1)
        }
    return minors[tuple(range(n))]


def alternating_sum(terms: Sequence[Value]) -> Value:
    """The last term, minus the one before, plus the one before that, and so on."""
    total = terms[-1]
    for place, term in enumerate(reversed(terms[:-1])):
        total = total + term if place % 2 else total - term
    return total


def matrix_element(a: Value, row: int, column: int) -> Value:
    """One element of every matrix."""
    rank = tensor_type(a).rank
    only = slice_axis(slice_axis(a, rank - 2, row, row + 1), rank - 1, column, column + 1)
    return reshape.one(only, shape=tensor_type(a).shape[:-2])


def one_scalar_per_matrix(same: TypeSolver, a: Tensor) -> Tensor:
    square_type(same, a, MATRIX_DTYPES)
    return Tensor(a.dtype, a.shape[:-2])


def det_reference(a: Array) -> Array:
    (found,) = apply_per_matrix(lambda a: (scipy_linalg().det(a, check_finite=False),), (a,), ())
    return found


def det_lower(jax: Jax, a: JaxArray) -> JaxArray:
    pivots, odd = lu_pivots(jax, a)
    product = jax.numpy.prod(pivots, axis=-1)
    return jax.numpy.where(odd, -product, product)


def lu_pivots(jax: Jax, a: JaxArray) -> tuple[JaxArray, JaxArray]:
    """The pivots of LU, and whether rows were exchanged an odd number of times."""
    jnp = jax.numpy
    packed, partners, _ = jax.lax.linalg.lu(a)
    exchanges = jnp.sum(partners != jnp.arange(a.shape[-1], dtype=partners.dtype), axis=-1)
    return jnp.diagonal(packed, axis1=-2, axis2=-1), jnp.mod(exchanges, 2) == 1


def det_jvp(da: Value, y: Value, a: Value) -> Value:
    """`Σ cofactor * dA`, Jacobi's formula."""
    rank = tensor_type(a).rank
    return reduce_sum.one(cofactors.one(a) * da, axes=(rank - 2, rank - 1))


det = matrix_op(
    "det",
    type=one_scalar_per_matrix,
    accepts=MATRIX_DTYPES,
    jvp=det_jvp,
    reference=det_reference,
    lower=det_lower,
    samples=(*SQUARE_EXAMPLES, SINGULAR_EXAMPLE),
    doc="""Determinant; 1 of an empty matrix. Units: u -> u^n for n rows.
    Kinks: none; the derivatives of a singular matrix are exact, at every order.""",
)


# ---- Cofactors


def cofactors_reference(a: Array, *xs: Array) -> Array:
    def one(a: Array, *xs: Array) -> tuple[Array]:
        u, s, vt = np.linalg.svd(require_finite(a))
        sign = np.sign(np.linalg.det(u) * np.linalg.det(vt)).astype(a.dtype)
        return (cofactors_by_svd(NUMPY, np.einsum, sign, u, s, vt, xs),)

    (found,) = apply_per_matrix(one, (a, *xs), a.shape[-2:])
    return found


def cofactors_lower(jax: Jax, a: JaxArray, *xs: JaxArray) -> JaxArray:
    """By the inverse if all matrices are well-conditioned, in a quarter of the time; else by the SVD."""
    if xs or not a.size:
        return cofactors_by_svd_lower(jax, a, *xs)
    jnp = jax.numpy
    info = jnp.finfo(a.dtype)
    eye = jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    inverse, determinant = solve_lower(jax, a, eye, transposed=True), det_lower(jax, a)
    sizes = [jnp.max(jnp.sum(jnp.abs(x), axis=-1), axis=-1) for x in (a, inverse)]
    well = sizes[0] * sizes[1] <= float(info.eps) ** -0.25
    kept = (jnp.abs(determinant) >= info.tiny / info.eps) & jnp.isfinite(determinant)
    return jax.lax.cond(
        jnp.all(well & kept),
        lambda: determinant[..., None, None] * inverse,
        lambda: cofactors_by_svd_lower(jax, a),
    )


def cofactors_by_svd_lower(jax: Jax, a: JaxArray, *xs: JaxArray) -> JaxArray:
    jnp, lax = jax.numpy, jax.lax
    u, s, vt = lax.linalg.svd(nan_unless_finite(jax, a), full_matrices=False)
    sign = lax.sign(det_lower(jax, u) * det_lower(jax, vt))
    return cofactors_by_svd(jnp, partial(jnp.einsum, precision=lax.Precision.HIGHEST), sign, u, s, vt, xs)


def cofactors_by_svd(
    numpy: NumpyModule[ArrayT],
    einsum: Callable[..., ArrayT],
    sign: ArrayT,
    u: ArrayT,
    s: ArrayT,
    vt: ArrayT,
    xs: Sequence[ArrayT],
) -> ArrayT:
    """See Note [Cofactors]."""
    # For real matrices conjugation changes nothing.
    u, vt = numpy.conj(u), numpy.conj(vt)
    rotated = [einsum("...ji,...jk,...lk->...il", u, x, vt) for x in xs]
    rest = leave_out_products(numpy, s, len(xs) + 1)
    eye = numpy.eye(s.shape[-1], dtype=s.dtype)
    inner = sum(permutation_term(einsum, eye, rest, rotated, order) for order in permutations(range(len(xs) + 1)))
    return sign[..., None, None] * einsum("...ij,...jk,...kl->...il", u, inner, vt)


def permutation_term(
    einsum: Callable[..., ArrayT], eye: ArrayT, rest: ArrayT, rotated: Sequence[ArrayT], order: tuple[int, ...]
) -> ArrayT:
    """The contribution of one permutation of the chosen indices to the cofactors of a diagonal matrix."""
    letters = "abcdefghijklmnop"
    factors = ",".join("..." + letters[i] + letters[order[i]] for i in range(1, len(order)))
    tail = "," + factors if factors else ""
    chosen = "..." + letters[: len(order)]
    if order[0] == 0:
        row = einsum(f"{chosen}{tail}->...a", rest, *rotated)
        return permutation_sign(order) * row[..., None] * eye
    return permutation_sign(order) * einsum(f"{chosen}{tail}->...a{letters[order[0]]}", rest, *rotated)


def permutation_sign(order: tuple[int, ...]) -> int:
    inversions = sum(order[i] > order[j] for j in range(len(order)) for i in range(j))
    return -1 if inversions % 2 else 1


def leave_out_products(numpy: NumpyModule[ArrayT], s: ArrayT, count: int) -> ArrayT:
    """[i, j, ...] -> the product of all elements of `s` but those at i, j, ...; 0 where two of these are equal."""
    n, lead = s.shape[-1], s.shape[:-1]
    eye = np.eye(n, dtype=np.bool_)
    gone = reduce(
        np.logical_or, [eye.reshape([n if b == axis else 1 for b in range(count)] + [n]) for axis in range(count)]
    )
    factors = numpy.where(gone, numpy.ones((), s.dtype), numpy.reshape(s, (*lead, *[1] * count, n)))
    return numpy.where(gone.sum(-1) == count, numpy.prod(factors, -1), numpy.zeros((), s.dtype))


def cofactors_transpose(position: int) -> TransposeRule | None:
    """In each direction the op is its own transpose: the form is symmetric, and the cotangent is one more direction.

    For complex matrices the adjoint conjugates the cotangent and the result.
    """

    def rule(ct: Value, a: Value, *xs: Value) -> Value:
        return conj_if_complex(cofactors.one(a, *xs[: position - 1], conj_if_complex(ct), *xs[position:]))

    return rule if position else None


cofactors = directional_matrix_op(
    "cofactors",
    accepts=MATRIX_DTYPES,
    transpose=cofactors_transpose,
    reference=cofactors_reference,
    lower=cofactors_lower,
    samples=(
        *(OpExample(e.operands * k, {}, GradedMatrices()) for k in (1, 2) for e in SQUARE_EXAMPLES),
        OpExample(((3, 3),) * 3, {}, GradedMatrices()),
        OpExample(((3, 3),) * 4, {}, GradedMatrices()),
        SINGULAR_EXAMPLE,
        OpExample((RANK_ONE, (3, 3), (3, 3)), {}, GradedMatrices()),
        OpExample((ZERO_MATRIX, (2, 2)), {}, GradedMatrices()),
    ),
    doc="""The matrix of cofactors of `a`, the derivative of its determinant: the adjugate transposed. With more
    operands, its derivative in these directions. Units: u, u, ... -> u^(n-1). Kinks: none.""",
)


# ---- Slogdet


def slogdet_type(same: TypeSolver, a: Tensor) -> tuple[Tensor, Tensor]:
    sign = one_scalar_per_matrix(same, a)
    return sign, Tensor(same.real_dtype(sign), sign.shape) if sign.dtype.is_complex else sign


def slogdet_reference(a: Array) -> tuple[Array, ...]:
    sign, log = apply_per_matrix(np.linalg.slogdet, (a,), (), ())
    return np.where(np.isnan(log.real), np.nan, sign).astype(sign.dtype), log.real


def slogdet_lower(jax: Jax, a: JaxArray) -> tuple[JaxArray, JaxArray]:
    jnp = jax.numpy
    pivots, odd = lu_pivots(jax, a)
    sign = jnp.prod(jnp.sign(pivots), axis=-1)
    return jnp.where(odd, -sign, sign), jnp.sum(jnp.log(jnp.abs(pivots)), axis=-1)


def slogdet_jvp(da: Value, found: tuple[Value, Value], a: Value) -> tuple[Value | None, Value]:
    """`trace(A⁻¹ dA)`; for complex matrices its real part, and its imaginary part rotates the sign."""
    change = matrix_trace(solve.one(a, da, transposed=False))
    if not tensor_type(change).dtype.is_complex:
        return None, change
    size, angle = real.one(change), imag.one(change)
    turn = complex_.one(zeros_of_type(angle, angle.type), angle)
    return found[0] * turn, size


slogdet = matrix_op(
    "slogdet",
    type=slogdet_type,
    accepts=MATRIX_DTYPES,
    traits=("not holomorphic",),
    jvp=slogdet_jvp,
    reference=slogdet_reference,
    lower=slogdet_lower,
    samples=SQUARE_EXAMPLES,
    doc="""(sign, log of the absolute value) of the determinant, which itself may overflow. Of complex matrices the
    sign is a number of size 1. Units: 1 -> 1, 1.
    Kinks: (0, -Inf) where `a` is singular, and the derivative Inf or NaN.""",
)

# Note [Cofactors]
#
# The determinant is a polynomial. With A = U S Vᴴ held at the point, det(A + E) = s det(S + UᴴEV) with |s| = 1, and the
# term of det(S + F) that is linear in each of F₀ … F_k is, by Leibniz' formula,
#
#     Σ_π sgn(π) Σ_{i₀ … i_k, all different} (product of the s_j with j ∉ {i₀ … i_k}) Π_a F_a[i_a, i_π(a)].
#
# Its gradient in F₀, rotated back by U and V, is the matrix of cofactors of A differentiated in directions F₁ … F_k.
# The products omit factors and divide by none, so singular values of 0 do no harm. The form is symmetric in all its
# arguments: one op with any number of directions is its own derivative and its own adjoint, at every order. It costs
# an SVD and, with k directions, n^(k+2) products. Without directions it is the determinant times the inverse
# transposed, which is as accurate where the condition number, to which the errors of both are proportional, is small
# and the determinant does not underflow.
#
# Source: Stewart 1998, On the adjugate matrix; Magnus and Neudecker 1988, Matrix differential calculus.
