"""Nonlinear arithmetic: integer powers, floor division, remainder, signs, rounding, and bitwise ops on integers."""

from __future__ import annotations

import numpy as np

from difflang.ir.array_types import NUMPY, Array, ArrayT, Jax, JaxArray, NumpyModule
from difflang.ir.graph import Value
from difflang.ir.op import ArrayLowerRule, ArrayReferenceRule, Factors, Inactive, Op, Root
from difflang.ir.tensor_types import FLOATS, INTEGERS, NUMBERS, REALS, SIGNED
from difflang.numerics import accurate_elementary
from difflang.ops.op_factories import (
    OpExample,
    OpSamples,
    UniformSamples,
    binary_op,
    elementwise_op,
    piecewise_constant_op,
    unary_op,
    zeros_of_type,
)

NONZERO = UniformSamples(0.6, 2.4)


def integer_pow_jvp(dx: Value, y: Value, x: Value, *, n: int) -> Value:
    if n == 0:
        return zeros_of_type(dx, dx.type)
    if n == 1:
        return dx
    power = x if n == 2 else integer_pow.one(x, n=n - 1)
    return dx * (power * float(n))


# From this power on, the rounding at each squaring adds up to more than four units in the last place.
ACCURATE_FROM = 8


def integer_pow_reference(x: Array, *, n: int) -> Array:
    """By repeated squaring, as the lowering does: exact where the power is."""
    if abs(n) >= ACCURATE_FROM and x.dtype == np.float64:
        return accurate_integer_pow(NUMPY, x, n)
    result, square, left = np.ones_like(x), x, abs(n)
    while left:
        result = result * square if left & 1 else result
        square, left = square * square, left >> 1
    return np.ones_like(x) / result if n < 0 else result


def integer_pow_lower(jax: Jax, x: JaxArray, *, n: int) -> JaxArray:
    if abs(n) >= ACCURATE_FROM and x.dtype == np.float64:
        return accurate_integer_pow(jax.numpy, x, n)
    return jax.lax.integer_pow(x, n)


def accurate_integer_pow(m: NumpyModule[ArrayT], x: ArrayT, n: int) -> ArrayT:
    y = accurate_elementary.integer_power(m, x, abs(n))
    return 1.0 / y if n < 0 else y


integer_pow = unary_op(
    "integer_pow",
    jvp=integer_pow_jvp,
    reference=integer_pow_reference,
    lower=integer_pow_lower,
    accepts=NUMBERS,
    powers=Factors(lambda eqn: [(eqn.operands[0], eqn.attrs["n"])] if eqn.attrs["n"] > 0 else []),
    samples=tuple(OpExample(((2, 3),), {"n": n}, NONZERO) for n in (0, 1, 2, 3, 7)),
    traits=("cheap",),
    doc="""`x` to an integer power known at compile time; not negative for integers. Units: u -> u^n.
    Kinks: none; the derivative is exactly `n x^(n-1)`, and `x^0` has derivative 0.""",
)


def one_minus_square_lower(jax: Jax, x: JaxArray) -> JaxArray:
    one = jax.lax.full_like(x, 1)
    return jax.lax.mul(jax.lax.sub(one, x), jax.lax.add(one, x))


one_minus_square = unary_op(
    "one_minus_square",
    jvp=lambda dx, y, x: dx * (x * -2.0),
    reference=lambda x: (1 - x) * (1 + x),
    lower=one_minus_square_lower,
    doc="""`1 - x^2`, accurate near -1 and 1, and its slope near 0. Units: 1 -> 1. Kinks: none.""",
)


# ---- Floor division


def floored_remainder(jax: Jax, x: JaxArray, y: JaxArray) -> tuple[JaxArray, JaxArray, JaxArray]:
    """The truncated remainder of `x / y`, where the floored one differs, and `y` with integer zeros replaced by 1."""
    lax = jax.lax
    zero = lax.full_like(y, 0)
    if not jax.numpy.issubdtype(y.dtype, np.floating):
        y = lax.select(lax.eq(y, zero), lax.full_like(y, 1), y)
    r = lax.rem(x, y)
    opposite = lax.ne(lax.lt(r, zero), lax.lt(y, zero))
    return r, lax.bitwise_and(lax.ne(r, zero), opposite), y


def rem_lower(jax: Jax, x: JaxArray, y: JaxArray) -> JaxArray:
    """An integer modulo 0 is 0, since the divisor is replaced by 1. A zero of floats has the sign of the divisor."""
    r, differs, safe = floored_remainder(jax, x, y)
    found, zero = jax.lax.select(differs, jax.lax.add(r, safe), r), jax.lax.full_like(r, 0)
    if not jax.numpy.issubdtype(y.dtype, np.floating):
        return found
    return jax.lax.select(jax.lax.eq(found, zero), jax.numpy.copysign(zero, y), found)


def floor_div_lower(jax: Jax, x: JaxArray, y: JaxArray) -> JaxArray:
    lax = jax.lax
    r, differs, safe = floored_remainder(jax, x, y)
    if jax.numpy.issubdtype(y.dtype, np.floating):
        zero, one, ratio = lax.full_like(x, 0), lax.full_like(x, 1), lax.div(x, y)
        whole = lax.round(lax.div(lax.sub(x, r), y), lax.RoundingMethod.TO_NEAREST_EVEN)
        whole = lax.select(differs, lax.sub(whole, one), whole)
        whole = lax.select(lax.eq(whole, zero), jax.numpy.copysign(zero, ratio), whole)
        below = lax.bitwise_and(differs, lax.is_finite(x))
        by_infinity = lax.select(below, lax.full_like(x, -1), ratio)
        found = lax.select(lax.eq(lax.abs(y), lax.full_like(y, np.inf)), by_infinity, whole)
        return lax.select(lax.eq(y, lax.full_like(y, 0)), ratio, found)
    quotient = lax.div(x, safe)
    floored = lax.select(differs, lax.sub(quotient, lax.full_like(quotient, 1)), quotient)
    return lax.select(lax.eq(y, lax.full_like(y, 0)), lax.full_like(y, 0), floored)


SIGNED_PAIR = (UniformSamples(-20.0, 20.0), UniformSamples(2.5, 4.5))

floor_div = elementwise_op(
    "floor_div",
    derivative=Inactive(),
    reference=np.floor_divide,
    lower=floor_div_lower,
    accepts=REALS,
    samples=SIGNED_PAIR,
    doc="""`floor(x / y)`. An integer divided by 0 is 0, a float as in `x / 0`; the check is elsewhere.
    Kinks: the derivative is 0 everywhere.""",
)
rem = binary_op(
    "rem",
    jvp=(lambda d, z, x, y: d, lambda d, z, x, y: d * -floor_div.one(x, y)),
    reference=lambda x, y: np.where(y == 0, np.zeros_like(x), np.mod(x, y)) if x.dtype.kind in "iu" else np.mod(x, y),
    lower=rem_lower,
    accepts=REALS,
    samples=SIGNED_PAIR,
    doc="""Remainder of floor division, with the sign of `y`; 0 where an integer is divided by 0. Units: u, u -> u.
    Kinks: the derivative is 1 in x and `-floor(x / y)` in y, at the jumps too.""",
)


# ---- Signs and rounding

sign = piecewise_constant_op(
    "sign",
    reference=lambda x: np.copysign(np.sign(x), x) if x.dtype.kind == "f" else np.sign(x),
    lower=lambda jax, x: jax.lax.sign(x),
    accepts=REALS,
    why="comparison",
    traits=("correctly rounded",),
    doc="""-1, 0 of the same sign, or 1; NaN at NaN. Units: u -> 1. Kinks: the derivative is 0 everywhere.""",
)
absolute = unary_op(
    "abs",
    jvp=lambda dx, y, x: dx * sign.one(x),
    reference=np.abs,
    lower=lambda jax, x: jax.lax.abs(x),
    accepts=SIGNED + FLOATS,
    powers=Root(2, lambda x: integer_pow.one(x, n=2)),
    samples=UniformSamples(-2.0, 2.0, avoid=(0.0,)),
    traits=("cheap", "nonnegative", "correctly rounded"),
    doc="""Absolute value. Units: u -> u. Kinks: 0 at 0.""",
)
floor = piecewise_constant_op(
    "floor",
    reference=np.floor,
    lower=lambda jax, x: jax.lax.floor(x),
    doc="""Greatest integer below. Units: 1 -> 1. Kinks: the derivative is 0 everywhere.""",
)
ceil = piecewise_constant_op(
    "ceil",
    reference=np.ceil,
    lower=lambda jax, x: jax.lax.ceil(x),
    doc="""Least integer above. Units: 1 -> 1. Kinks: the derivative is 0 everywhere.""",
)
round_ = piecewise_constant_op(
    "round",
    reference=np.round,
    lower=lambda jax, x: jax.lax.round(x, jax.lax.RoundingMethod.TO_NEAREST_EVEN),
    doc="""Nearest integer, half to even. Units: 1 -> 1. Kinks: the derivative is 0 everywhere.""",
)


def trunc_lower(jax: Jax, x: JaxArray) -> JaxArray:
    lax = jax.lax
    return lax.select(lax.lt(x, lax.full_like(x, 0)), lax.ceil(x), lax.floor(x))


trunc = piecewise_constant_op(
    "trunc",
    reference=np.trunc,
    lower=trunc_lower,
    doc="""Nearest integer toward zero. Units: 1 -> 1. Kinks: the derivative is 0 everywhere.""",
)


# ---- Bitwise ops
ANY_INTEGERS = UniformSamples(-100.0, 100.0)
SHIFT_SAMPLES = (ANY_INTEGERS, UniformSamples(0.0, 9.0))


def bitwise_op(
    name: str,
    reference: ArrayReferenceRule,
    lower: ArrayLowerRule,
    doc: str,
    samples: OpSamples = (ANY_INTEGERS, ANY_INTEGERS),
) -> Op:
    return elementwise_op(
        name, derivative=Inactive(), reference=reference, lower=lower, doc=doc, accepts=INTEGERS, samples=samples
    )


def shift_right_lower(jax: Jax, x: JaxArray, y: JaxArray) -> JaxArray:
    signed = jax.numpy.issubdtype(x.dtype, np.signedinteger)
    return jax.lax.shift_right_arithmetic(x, y) if signed else jax.lax.shift_right_logical(x, y)


def popcount_reference(x: Array) -> Array:
    return np.bitwise_count(x.view(f"u{x.dtype.itemsize}"))


bit_and = bitwise_op("bit_and", np.bitwise_and, lambda jax, x, y: jax.lax.bitwise_and(x, y), "Bits set in both.")
bit_or = bitwise_op("bit_or", np.bitwise_or, lambda jax, x, y: jax.lax.bitwise_or(x, y), "Bits set in one or both.")
bit_xor = bitwise_op("bit_xor", np.bitwise_xor, lambda jax, x, y: jax.lax.bitwise_xor(x, y), "Bits set in exactly one.")
bit_not = bitwise_op(
    "bit_not", np.bitwise_not, lambda jax, x: jax.lax.bitwise_not(x), "Every bit flipped.", (ANY_INTEGERS,)
)
shift_left = bitwise_op(
    "shift_left",
    np.left_shift,
    lambda jax, x, y: jax.lax.shift_left(x, y),
    """Bits moved to higher places, zeros behind them; 0 if moved by the width or more, or by less than 0.""",
    SHIFT_SAMPLES,
)
shift_right = bitwise_op(
    "shift_right",
    np.right_shift,
    shift_right_lower,
    """Bits moved to lower places, copies of the sign (zeros for unsigned) before them; nothing else is left if moved
    by the width or more, or by less than 0.""",
    SHIFT_SAMPLES,
)
popcount = bitwise_op(
    "popcount",
    popcount_reference,
    lambda jax, x: jax.lax.population_count(x),
    "The number of bits set.",
    (ANY_INTEGERS,),
)
