"""Linear systems and determinants: `solve`, `det` with its derivatives of every order, `slogdet`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import combinations, permutations
from typing import Any

import numpy as np

from difflang.ir.graph import Value
from difflang.ir.op import OPS, Op, Rule, Solver, Unknown
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.arrays.shape_manipulation import cut
from difflang.ops.elementwise.linear_arithmetic import conjugate
from difflang.ops.linalg.batched_matrices import (
    FIELDS,
    blank_unless_finite,
    in_single,
    lowered_in_single,
    matmul,
    of_a_matrix,
    of_finite,
    one_by_one,
    row_by_row,
    square_type,
    swap,
    trace,
    with_directions,
)
from difflang.ops.linalg.factorizations import SQUARE, scipy, solve_type
from difflang.ops.op_factories import Array, Example, Fixed, Graded, known, tensor, zeros_at

SINGULAR = Example((Fixed(((1.0, 2.0, 3.0), (4.0, 5.0, 6.0), (7.0, 8.0, 9.0))),), {}, Graded())
RANK_ONE = Fixed(((1.0, 2.0, 3.0), (2.0, 4.0, 6.0), (-1.0, -2.0, -3.0)))
NOTHING = Fixed(((0.0, 0.0), (0.0, 0.0)))


# ---------------------------------------------------------------------------------------------------- solve


def solve_reference(a: Array, b: Array, *, transposed: bool) -> Array:
    """By LAPACK without its question whether `a` is singular: then it divides by 0."""
    if not b.size:
        return b
    getrf, getrs = scipy().get_lapack_funcs(("getrf", "getrs"), (a,))

    def one(a: Array, b: Array) -> tuple[Array]:
        packed, pivots, _ = getrf(a)
        return (getrs(packed, pivots, b, trans=transposed)[0],)

    (x,) = one_by_one(one, (a, b), b.shape[-2:])
    return x


def solve_lower(jax: Any, a: Any, b: Any, *, transposed: bool) -> Any:
    """LU with pivots, and two triangular solves. Where `a` is factored again, XLA merges the two."""
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
    return -solve.one(a, matmul(swap(da) if transposed else da, x), transposed=transposed)


def solve_transpose(ct: Value, a: Value, b: Value | Unknown, *, transposed: bool) -> Value:
    return solve.one(conjugate(a), ct, transposed=not transposed)


solve = OPS.declare(
    Op(
        "solve",
        type=solve_type,
        jvp=(solve_jvp, lambda db, x, a, b, transposed: solve.one(a, db, transposed=transposed)),
        transpose=(None, solve_transpose),
        reference=in_single(solve_reference),
        lower=lowered_in_single(solve_lower),
        accepts=FIELDS,
        cost=lambda a, b, **_: row_by_row(a) + 2 * a.shape[-1] * np.prod(b.shape),
        samples=(
            Example(((3, 3), (3, 2)), {"transposed": False}, Graded()),
            Example(((3, 3), (3, 2)), {"transposed": True}, Graded()),
            Example(((2, 2, 2), (2, 2, 1)), {"transposed": False}, Graded()),
            Example(((2, 2, 2), (2, 2, 1)), {"transposed": True}, Graded()),
            Example(((1, 1), (1, 1)), {"transposed": False}, Graded()),
            Example(((0, 0), (0, 2)), {"transposed": False}, Graded()),
            Example(((2, 2), (2, 0)), {"transposed": True}, Graded()),
        ),
        doc="""The x of `a x = b`, or of `aᵀ x = b` if `transposed`. Units: u, v -> v / u.
        Kinks: Inf and NaN where `a` is singular.""",
    )
)


# ------------------------------------------------------------------------------------------------------ det


SMALL = 4  # a determinant of so few rows is written out: exact where products and sums are, and quicker than any LU


def by_minors(a: Value) -> Value:
    """The determinant of a few rows, at least one: minors of the first row, of the first two, and so on to all."""
    n = known(tensor(a).shape[-1])
    minors: dict[tuple[int, ...], Value] = {(j,): element(a, 0, j) for j in range(n)}
    for row in range(1, n):
        elements = [element(a, row, j) for j in range(n)]
        minors = {
            columns: alternating([elements[c] * minors[columns[:k] + columns[k + 1 :]] for k, c in enumerate(columns)])
            for columns in combinations(range(n), row + 1)
        }
    return minors[tuple(range(n))]


def alternating(terms: Sequence[Value]) -> Value:
    """The sum of the last term, less the one before, and so on."""
    total = terms[-1]
    for place, term in enumerate(reversed(terms[:-1])):
        total = total + term if place % 2 else total - term
    return total


def element(a: Value, row: int, column: int) -> Value:
    """One element of every matrix."""
    rank = tensor(a).rank
    only = cut(cut(a, rank - 2, row, row + 1), rank - 1, column, column + 1)
    return OPS["reshape"].one(only, shape=tensor(a).shape[:-2])


def number_type(same: Solver, a: Tensor) -> Tensor:
    square_type(same, a, FIELDS)
    return Tensor(a.dtype, a.shape[:-2])


def det_reference(a: Array) -> Array:
    (found,) = one_by_one(lambda a: (scipy().det(a, check_finite=False),), (a,), ())
    return found


def det_lower(jax: Any, a: Any) -> Any:
    pivots, odd = eliminated(jax, a)
    product = jax.numpy.prod(pivots, axis=-1)
    return jax.numpy.where(odd, -product, product)


def eliminated(jax: Any, a: Any) -> tuple[Any, Any]:
    """The pivots of LU, and whether rows were exchanged an odd number of times."""
    jnp = jax.numpy
    packed, partners, _ = jax.lax.linalg.lu(a)
    exchanges = jnp.sum(partners != jnp.arange(a.shape[-1], dtype=partners.dtype), axis=-1)
    return jnp.diagonal(packed, axis1=-2, axis2=-1), exchanges % 2 == 1


def det_jvp(da: Value, y: Value, a: Value) -> Value:
    """`Σ cofactor * dA`, Jacobi's formula; nothing is divided by the determinant."""
    rank = tensor(a).rank
    return reduce_sum.one(cofactors.one(a) * da, axes=(rank - 2, rank - 1))


det = of_a_matrix(
    "det",
    type=number_type,
    accepts=FIELDS,
    jvp=det_jvp,
    reference=det_reference,
    lower=det_lower,
    samples=(*SQUARE, SINGULAR),
    doc="""Determinant; 1 of an empty matrix. Units: u -> u^n for n rows.
    Kinks: none; the derivatives of a singular matrix are exact, at every order.""",
)


# ------------------------------------------------------------------------------------------------ cofactors


def cofactors_reference(a: Array, *xs: Array) -> Array:
    def one(a: Array, *xs: Array) -> tuple[Array]:
        u, s, vt = np.linalg.svd(of_finite(a))
        sign = np.sign(np.linalg.det(u) * np.linalg.det(vt)).astype(a.dtype)
        return (cofactors_by_svd(np, np.einsum, sign, u, s, vt, xs),)

    (found,) = one_by_one(one, (a, *xs), a.shape[-2:])
    return found


def cofactors_lower(jax: Any, a: Any, *xs: Any) -> Any:
    """By the inverse where all matrices are far from singular, which takes a fourth of the time."""
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


def cofactors_by_svd_lower(jax: Any, a: Any, *xs: Any) -> Any:
    jnp, lax = jax.numpy, jax.lax
    u, s, vt = lax.linalg.svd(blank_unless_finite(jax, a), full_matrices=False)
    sign = lax.sign(det_lower(jax, u) * det_lower(jax, vt))
    return cofactors_by_svd(jnp, partial(jnp.einsum, precision=lax.Precision.HIGHEST), sign, u, s, vt, xs)


def cofactors_by_svd(
    numpy: Any, einsum: Callable[..., Any], sign: Any, u: Any, s: Any, vt: Any, xs: Sequence[Any]
) -> Any:
    """See Note [Cofactors]."""
    u, vt = numpy.conj(u), numpy.conj(vt)  # of real numbers, as they are
    turned = [einsum("...ji,...jk,...lk->...il", u, x, vt) for x in xs]
    rest = left_out(numpy, s, len(xs) + 1)
    eye = numpy.eye(s.shape[-1], dtype=s.dtype)
    inner = sum(term(einsum, eye, rest, turned, order) for order in permutations(range(len(xs) + 1)))
    return sign[..., None, None] * einsum("...ij,...jk,...kl->...il", u, inner, vt)


def term(einsum: Callable[..., Any], eye: Any, rest: Any, turned: Sequence[Any], order: tuple[int, ...]) -> Any:
    """What one permutation of the chosen places adds to the cofactors of a diagonal matrix."""
    letters = "abcdefghijklmnop"
    factors = ",".join("..." + letters[i] + letters[order[i]] for i in range(1, len(order)))
    tail = "," + factors if factors else ""
    chosen = "..." + letters[: len(order)]
    if order[0] == 0:
        row = einsum(f"{chosen}{tail}->...a", rest, *turned)
        return parity(order) * row[..., None] * eye
    return parity(order) * einsum(f"{chosen}{tail}->...a{letters[order[0]]}", rest, *turned)


def parity(order: tuple[int, ...]) -> int:
    inversions = sum(order[i] > order[j] for j in range(len(order)) for i in range(j))
    return -1 if inversions % 2 else 1


def left_out(numpy: Any, s: Any, count: int) -> Any:
    """[i, j, ...] -> the product of all elements of `s` but those at i, j, ..., 0 where two of these are the same."""
    n, lead = s.shape[-1], s.shape[:-1]
    eye = np.eye(n, dtype=np.bool_)
    gone = reduce(
        np.logical_or, [eye.reshape([n if b == axis else 1 for b in range(count)] + [n]) for axis in range(count)]
    )
    factors = numpy.where(gone, numpy.ones((), s.dtype), s.reshape(*lead, *[1] * count, n))
    return numpy.where(gone.sum(-1) == count, numpy.prod(factors, -1), numpy.zeros((), s.dtype))


def cofactors_transpose(position: int) -> Rule | None:
    """In each direction it is its own transpose: all of it is one symmetric form, the cotangent is one more place.

    So of complex matrices the adjoint is that between two conjugations.
    """

    def rule(ct: Value, a: Value, *xs: Any) -> Value:
        return conjugate(cofactors.one(a, *xs[: position - 1], conjugate(ct), *xs[position:]))

    return rule if position else None


cofactors = with_directions(
    "cofactors",
    accepts=FIELDS,
    transpose=cofactors_transpose,
    reference=cofactors_reference,
    lower=cofactors_lower,
    samples=(
        *(Example(e.operands * k, {}, Graded()) for k in (1, 2) for e in SQUARE),
        Example(((3, 3),) * 3, {}, Graded()),
        Example(((3, 3),) * 4, {}, Graded()),
        SINGULAR,
        Example((RANK_ONE, (3, 3), (3, 3)), {}, Graded()),
        Example((NOTHING, (2, 2)), {}, Graded()),
    ),
    doc="""The matrix of cofactors of `a`, the derivative of its determinant: the adjugate transposed. With more
    operands, its derivative in these directions. Units: u, u, ... -> u^(n-1). Kinks: none.""",
)


# -------------------------------------------------------------------------------------------------- slogdet


def slogdet_type(same: Solver, a: Tensor) -> tuple[Tensor, Tensor]:
    sign = number_type(same, a)
    return sign, Tensor(same.part(sign), sign.shape) if sign.dtype.is_complex else sign


def slogdet_reference(a: Array) -> tuple[Array, ...]:
    sign, log = one_by_one(np.linalg.slogdet, (a,), (), ())
    return sign, log.real


def slogdet_lower(jax: Any, a: Any) -> tuple[Any, Any]:
    jnp = jax.numpy
    pivots, odd = eliminated(jax, a)
    sign = jnp.prod(jnp.sign(pivots), axis=-1)
    return jnp.where(odd, -sign, sign), jnp.sum(jnp.log(jnp.abs(pivots)), axis=-1)


def slogdet_jvp(da: Value, found: tuple[Value, Value], a: Value) -> tuple[Value | None, Value]:
    """`trace(A⁻¹ dA)`; of complex matrices its real part, and along the circle of signs its imaginary one."""
    change = trace(solve.one(a, da, transposed=False))
    if not tensor(change).dtype.is_complex:
        return None, change
    size, angle = OPS["real"].one(change), OPS["imag"].one(change)
    turn = OPS["complex"].one(zeros_at(angle, angle.type), angle)
    return found[0] * turn, size


slogdet = of_a_matrix(
    "slogdet",
    type=slogdet_type,
    accepts=FIELDS,
    conjugates=True,
    jvp=slogdet_jvp,
    reference=slogdet_reference,
    lower=slogdet_lower,
    samples=SQUARE,
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
# Its gradient in F₀, turned back by U and V, is the matrix of cofactors of A differentiated in the directions F₁ … F_k.
# The products leave factors out and divide by none, so singular values of 0 are as good as others. The form is
# symmetric in all its places: one op with any number of directions is its own derivative and its own adjoint, at every
# order. It costs an SVD and, with k directions, n^(k+2) products. Without directions it is the determinant times the
# inverse transposed, which is as near where the condition number, to which errors of either way are in proportion, is
# small and the determinant does not underflow.
#
# Source: Stewart 1998, On the adjugate matrix; Magnus and Neudecker 1988, Matrix differential calculus.
