"""The matrix exponential `expm`, with its directional (Fréchet) derivatives of every order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from difflang.ir.array_types import NUMPY, Array, ArrayT, Jax, JaxArray, NumpyModule
from difflang.ir.graph import Value
from difflang.ir.op import TransposeRule
from difflang.ops.linalg.batched_matrices import MATRIX_DTYPES, adjoint, apply_per_matrix, directional_matrix_op
from difflang.ops.linalg.factorizations import SQUARE_EXAMPLES
from difflang.ops.linalg.solve_and_det import solve_lower
from difflang.ops.op_factories import FixedOperand, GradedMatrices, OpExample

# The Padé approximant of degree 13, and the norm up to which it is exact to double precision. Source: Higham 2005, The
# scaling and squaring method for the matrix exponential revisited.
PADE_COEFFICIENTS = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
PADE_MAX_NORM = 5.371920351148152


def one_norm(numpy: NumpyModule[ArrayT], x: ArrayT) -> ArrayT:
    """The greatest column sum of absolute values; 0 for an empty matrix."""
    return numpy.max(numpy.sum(numpy.abs(x), axis=-2), axis=-1, initial=0)


def frechet_derivative(
    numpy: NumpyModule[ArrayT], a: ArrayT, xs: Sequence[ArrayT], exponential: Callable[[ArrayT], ArrayT]
) -> ArrayT:
    """The exponential's derivative at `a` in directions `xs`, as a block of the exponential of a larger matrix.

    Each direction becomes an off-diagonal block of two copies of the matrix so far; see Note [Exponentials of blocks].
    """
    n, whole, size = a.shape[-1], a, numpy.ones((), a.dtype)
    for doublings, x in enumerate(xs):
        # Directions are scaled to norm 1 and the result back, so that they do not increase the number of squarings.
        length = one_norm(numpy, x)
        length = numpy.where(length == 0, numpy.ones((), a.dtype), length)[..., None, None]
        beside = x / length
        for _ in range(doublings):
            beside = block_triangular(numpy, beside, numpy.zeros_like(beside))
        whole, size = block_triangular(numpy, whole, beside), size * length
    return exponential(whole)[..., :n, whole.shape[-1] - n :] * size


def block_triangular(numpy: NumpyModule[ArrayT], diagonal: ArrayT, beside: ArrayT) -> ArrayT:
    """[[diagonal, beside], [0, diagonal]]"""
    above = numpy.concatenate([diagonal, beside], axis=-1)
    below = numpy.concatenate([numpy.zeros_like(diagonal), diagonal], axis=-1)
    return numpy.concatenate([above, below], axis=-2)


def expm_reference(a: Array, *xs: Array) -> Array:
    (found,) = apply_per_matrix(
        lambda a, *xs: (frechet_derivative(NUMPY, a, xs, expm_by_taylor),), (a, *xs), a.shape[-2:]
    )
    return found


def expm_by_taylor(a: Array) -> Array:
    """The Taylor series of a matrix scaled so that 24 terms suffice, then squared; in long doubles."""
    size = float(one_norm(NUMPY, a))
    if not np.isfinite(size):
        raise np.linalg.LinAlgError
    times = max(int(np.ceil(np.log2(max(size, 0.5)))) + 1, 0)
    # Not SciPy's, which may be off by 400 ε.
    wide = np.clongdouble if a.dtype.kind == "c" else np.longdouble
    small = a.astype(wide) / 2**times
    term = total = np.eye(a.shape[-1], dtype=wide)
    for k in range(1, 25):
        term = term @ small / k
        total = total + term
    for _ in range(times):
        total = total @ total
    return total.astype(a.dtype)


def expm_lower(jax: Jax, a: JaxArray, *xs: JaxArray) -> JaxArray:
    return frechet_derivative(jax.numpy, a, xs, lambda x: expm_by_pade(jax, x))


def expm_by_pade(jax: Jax, a: JaxArray) -> JaxArray:
    """Scaling and squaring: scaled by a power of two, a Padé quotient, and squared as often."""
    # Not `jax.scipy.linalg.expm`: it scales one step too little, which costs half the digits, and gives up after 16.
    jnp, lax = jax.numpy, jax.lax
    size = one_norm(jnp, a)
    size = jnp.where(jnp.isfinite(size), size, 0)
    times = jnp.maximum(jnp.ceil(jnp.log2(jnp.maximum(size, PADE_MAX_NORM) / PADE_MAX_NORM)), 0).astype(np.int32)
    small = scale_by_power_of_two(jax, a, -times[..., None, None])
    even, odd = pade_even_odd(jax, small)
    start = solve_lower(jax, even - odd, even + odd, transposed=False)

    def square(i: JaxArray, x: JaxArray) -> JaxArray:
        product = jnp.matmul(x, x, precision=lax.Precision.HIGHEST)
        return jnp.where((i < times)[..., None, None], product, x)

    return lax.fori_loop(np.int32(0), jnp.max(times, initial=0), square, start)


def scale_by_power_of_two(jax: Jax, a: JaxArray, times: JaxArray) -> JaxArray:
    """`a 2^times`"""
    if a.dtype.kind == "c":
        return jax.lax.complex(
            scale_by_power_of_two(jax, jax.lax.real(a), times), scale_by_power_of_two(jax, jax.lax.imag(a), times)
        )
    return jax.numpy.ldexp(a, times)


def pade_even_odd(jax: Jax, a: JaxArray) -> tuple[JaxArray, JaxArray]:
    """The even and the odd part of the Padé numerator; the denominator has the odd part negated."""
    product = jax.numpy.matmul
    highest = jax.lax.Precision.HIGHEST
    one = jax.numpy.eye(a.shape[-1], dtype=a.dtype)
    a2 = product(a, a, precision=highest)
    a4 = product(a2, a2, precision=highest)
    a6 = product(a4, a2, precision=highest)

    def half(first: int) -> JaxArray:
        high = (
            PADE_COEFFICIENTS[first + 12] * a6 + PADE_COEFFICIENTS[first + 10] * a4 + PADE_COEFFICIENTS[first + 8] * a2
        )
        low = (
            PADE_COEFFICIENTS[first + 6] * a6
            + PADE_COEFFICIENTS[first + 4] * a4
            + PADE_COEFFICIENTS[first + 2] * a2
            + PADE_COEFFICIENTS[first] * one
        )
        return product(a6, high, precision=highest) + low

    return half(0), product(a, half(1), precision=highest)


def expm_transpose(position: int) -> TransposeRule | None:
    """The adjoint is the same derivative at the adjoints of all other operands, in the direction of the cotangent."""

    def rule(ct: Value, a: Value, *xs: Value) -> Value:
        return expm.one(adjoint(a), *[ct if i == position else adjoint(x) for i, x in enumerate(xs, 1)])

    return rule if position else None


expm = directional_matrix_op(
    "expm",
    transpose=expm_transpose,
    accepts=MATRIX_DTYPES,
    reference=expm_reference,
    lower=expm_lower,
    samples=(
        *(OpExample(e.operands * k, {}, GradedMatrices()) for k in (1, 2) for e in SQUARE_EXAMPLES),
        OpExample(((2, 2),) * 3, {}, GradedMatrices()),
        OpExample((FixedOperand(((0.0, 20.0), (-20.0, 0.0))),), {}, GradedMatrices()),
        OpExample((FixedOperand(((0.0, 0.0), (0.0, 0.0))), (2, 2)), {}, GradedMatrices()),
    ),
    doc="""The matrix exponential. With more operands, its derivative in these directions. Units: 1, u, ... -> u.
    Kinks: none.""",
)

# Note [Exponentials of blocks]
#
# With D = [[A, X], [0, A]], f(D) = [[f(A), f'(A)[X]], [0, f(A)]] for every analytic f; repeated with D for A and
# [[Y, 0], [0, Y]] for X, the corner is f''(A)[X, Y]. For f = exp the derivative in k directions is a sum of integrals
# over products e^(s₀A) X₁ e^(s₁A) X₂ …, symmetric in the directions: one op with any number of them is its own
# derivative, and, transposed, its own adjoint. The matrix of k directions has 2^k n rows.
#
# Source: Mathias 1996, A chain rule for matrix functions and applications; Higham and Relton 2014, Higher order Fréchet
# derivatives of matrix functions.
