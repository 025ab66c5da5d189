"""What is linear element by element: sums, products, selection, conversion, the parts of complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from difflang.ir.graph import Value
from difflang.ir.op import OPS, Op, Solver, Unknown
from difflang.ir.tensor_types import (
    BOOL,
    BOOLS,
    C64,
    C128,
    COMPLEXES,
    F32,
    F64,
    FLOATS,
    I8,
    I32,
    I64,
    INTEGERS,
    NUMBERS,
    REALS,
    U8,
    U32,
    DType,
    Tensor,
)
from difflang.ops.op_factories import (
    Array,
    Example,
    Fixed,
    Rules,
    Uniform,
    array_dtype,
    inactive,
    linear,
    multilinear,
    same_type,
    tensor,
    widened,
    zeros_at,
)

PAIR = (Uniform(), Uniform())


def conjugate(y: Value) -> Value:
    """`y`, conjugated where it is complex: the adjoint of multiplication by `y` multiplies by this."""
    return conj.one(y) if tensor(y).dtype.is_complex else y


add = linear(
    "add",
    type=same_type(NUMBERS),
    jvp=(lambda d, z, x, y: d, lambda d, z, x, y: d),
    transpose=(lambda ct, x, y: ct, lambda ct, x, y: ct),
    reference=widened(np.add),
    lower=lambda jax, x, y: jax.lax.add(x, y),
    splats=True,
    accepts=NUMBERS,
    elementwise=True,
    samples=PAIR,
    doc="""Sum; integers wrap. Units: u, u -> u. Kinks: none.""",
)
sub = linear(
    "sub",
    type=same_type(NUMBERS),
    jvp=(lambda d, z, x, y: d, lambda d, z, x, y: -d),
    transpose=(lambda ct, x, y: ct, lambda ct, x, y: -ct),
    reference=widened(np.subtract),
    lower=lambda jax, x, y: jax.lax.sub(x, y),
    splats=True,
    accepts=NUMBERS,
    elementwise=True,
    samples=PAIR,
    doc="""Difference; integers wrap. Units: u, u -> u. Kinks: none.""",
)
neg = linear(
    "neg",
    type=same_type(NUMBERS),
    transpose=(lambda ct, x: -ct,),
    reference=widened(np.negative),
    lower=lambda jax, x: jax.lax.neg(x),
    accepts=NUMBERS,
    elementwise=True,
    samples=Uniform(),
    doc="""Negation; integers wrap. Units: u -> u. Kinks: none.""",
)
mul = multilinear(
    "mul",
    type=same_type(NUMBERS),
    transpose=(lambda ct, x, y: ct * conjugate(y), lambda ct, x, y: ct * conjugate(x)),
    reference=widened(np.multiply),
    lower=lambda jax, x, y: jax.lax.mul(x, y),
    splats=True,
    accepts=NUMBERS,
    elementwise=True,
    samples=PAIR,
    doc="""Product; integers wrap. Units: u, v -> u v. Kinks: none.""",
)
div = OPS.declare(
    Op(
        "div",
        type=same_type(FLOATS + COMPLEXES),
        jvp=(
            lambda d, z, x, y: d / y,
            lambda d, z, x, y: d * (-z / y),
        ),  # neither `z / y`, of which XLA makes a quotient by a square, that overflows or vanishes before it; nor
        # `d / y * z`, of which `d / y` may overflow on one way round and `ct * z` on the other
        transpose=(lambda ct, x, y: ct / conjugate(y), None),
        reference=widened(np.divide),
        lower=lambda jax, x, y: jax.lax.div(x, y),
        splats=True,
        accepts=FLOATS + COMPLEXES,
        elementwise=True,
        samples=(Uniform(), Uniform(0.5, 2.0)),
        doc="""Quotient, linear in the first operand. Units: u, v -> u / v. Kinks: none; x / 0 as in IEEE 754.""",
    )
)


def select_type(same: Solver, p: Tensor, x: Tensor, y: Tensor) -> Tensor:
    same.accepts(p, BOOLS)
    same.dtype(x, y)
    same.shape(x, y)
    same.shape(p, x)
    return x


select = linear(
    "select",
    type=select_type,
    transpose=(
        None,
        lambda ct, p, x, y: select.one(p, ct, zeros_at(ct, ct.type)),
        lambda ct, p, x, y: select.one(p, zeros_at(ct, ct.type), ct),
    ),
    reference=np.where,
    lower=lambda jax, p, x, y: jax.lax.select(p, x, y),
    elementwise=True,
    chooses=True,
    same_bits=True,
    samples=(
        Example((Fixed((True, False, True), BOOL), (3,), (3,))),
        Example((Fixed(False, BOOL), (), ())),
    ),
    doc="""Element by element `x` where `p`, else `y`. The tangent of the side not selected is dropped, not multiplied
    by zero, so an Inf or NaN in it does no harm. Units: u, u -> u.""",
)


# ------------------------------------------------------------------------------------------------- conversion


def convert_type(same: Solver, x: Tensor, *, dtype: DType) -> Tensor:
    same.require(dtype not in BOOLS + INTEGERS, "`convert` gives floats; `truncate` gives integers")
    if dtype in FLOATS:
        same.accepts(x, BOOLS + REALS)
    return Tensor(dtype, x.shape)


def convert_transpose(ct: Value, x: Value | Unknown, *, dtype: DType) -> Value:
    real_part = real.one(ct) if dtype.kind == "complex" and not tensor(x).dtype.is_complex else ct
    return real_part if tensor(real_part).dtype is tensor(x).dtype else convert.one(real_part, dtype=tensor(x).dtype)


convert = linear(
    "convert",
    type=convert_type,
    transpose=(convert_transpose,),
    reference=lambda x, dtype: x.astype(array_dtype(dtype)),
    lower=lambda jax, x, dtype: jax.lax.convert_element_type(x, array_dtype(dtype)),
    elementwise=True,
    samples=(
        *(Example(((2, 3),), {"dtype": d}) for d in FLOATS),
        *(Example((Fixed((0, 1, 100), d),), {"dtype": F32}) for d in (BOOL, I8, U8, I32, I64)),
        Example((Fixed((0, -1, 2**40), I64),), {"dtype": F64}),
        Example((Fixed((0.5, -1.5), F32),), {"dtype": C64}),
        Example((Fixed((0.5, 1 - 1.5j), C64),), {"dtype": C128}),
    ),
    accepts=FLOATS,
    doc="""The same numbers in another float or complex type, rounded to nearest. Linear where the operand has a
    tangent, so an integer or a truth value contributes exactly 0. Units: u -> u.""",
)


def truncate_type(same: Solver, x: Tensor, *, dtype: DType) -> Tensor:
    same.accepts(x, BOOLS + REALS)
    same.require(dtype not in FLOATS + COMPLEXES, "`truncate` gives integers; `convert` gives floats")
    return Tensor(dtype, x.shape)


def truncate_reference(x: Array, *, dtype: DType) -> Array:
    """Floats outside the range of an integer type go to its end, NaN to 0."""
    if dtype.kind == "bool" or x.dtype.kind in "biu":
        return x.astype(array_dtype(dtype))
    info = np.iinfo(array_dtype(dtype))
    wide = np.trunc(x.astype(np.float64))
    above, below = wide >= float(info.max), wide <= float(info.min)
    inside = np.where(above | below | np.isnan(wide), 0.0, wide).astype(array_dtype(dtype))
    return np.where(above, info.max, np.where(below, info.min, inside)).astype(array_dtype(dtype))


truncate = inactive(
    "truncate",
    type=truncate_type,
    reference=truncate_reference,
    lower=lambda jax, x, dtype: jax.lax.convert_element_type(x, array_dtype(dtype)),
    elementwise=True,
    same_bits=True,
    samples=(
        *(Example(((2, 3),), {"dtype": d}, Uniform(-5.0, 5.0)) for d in (BOOL, I8, I32, I64)),
        *(Example(((2, 3),), {"dtype": d}, Uniform(0.0, 5.0)) for d in (U8, U32)),
        Example((Fixed((1e20, -1e20, float("nan"), float("inf"), -0.9), F32),), {"dtype": I32}),
        Example((Fixed((3e9, -3e9, float("nan"), 1.9, -1.9), F64),), {"dtype": I32}),
        Example((Fixed((300, -300, 255, -1), I32),), {"dtype": I8}),
        Example((Fixed((300, -300, 255, -1), I32),), {"dtype": U8}),
        Example((Fixed((300, 0, 255, -1), I32),), {"dtype": BOOL}),
        Example((Fixed((True, False), BOOL),), {"dtype": I64}),
    ),
    accepts=FLOATS,
    doc="""To an integer type or bool: floats toward zero, those out of range to the nearest end and NaN to 0;
    integers wrap; a truth value is `x != 0`. Kinks: the derivative is 0 everywhere.""",
)


# -------------------------------------------------------------------------------------------- complex numbers


def complex_type(same: Solver, re: Tensor, im: Tensor) -> Tensor:
    same.accepts(re, (F32, F64))
    same.dtype(re, im)
    same.shape(re, im)
    return Tensor(same.whole(re), re.shape)


def part_type(same: Solver, z: Tensor) -> Tensor:
    same.accepts(z, COMPLEXES)
    return Tensor(same.part(z), z.shape)


def part(name: str, *, transpose: Rules, reference: Any, lower: Any, doc: str) -> Op:
    return linear(
        name, type=part_type, transpose=transpose, reference=reference, lower=lower, doc=doc,
        accepts=COMPLEXES, elementwise=True, conjugates=True,
        samples=(Example(((2, 3),)), Example(((),)), Example(((1, 0),))),
    )  # fmt: skip


def complex_reference(re: Array, im: Array) -> Array:
    """Part by part: a product with 1j is NaN of infinite ones and loses the sign of a zero."""
    z = np.empty(np.shape(re), np.result_type(re, np.complex64))
    z.real, z.imag = re, im
    return z


complex_ = linear(
    "complex",
    type=complex_type,
    transpose=(lambda ct, re, im: real.one(ct), lambda ct, re, im: imag.one(ct)),
    reference=complex_reference,
    lower=lambda jax, re, im: jax.lax.complex(re, im),
    accepts=(F32, F64),
    elementwise=True,
    samples=(Example(((2, 3), (2, 3))), Example(((), ())), Example(((1, 0), (1, 0)))),
    doc="""`re + i im`. Adjoints, here and everywhere, are those of the inner product Re(conj(a) b), so a gradient
    points in the direction of steepest ascent. Units: u, u -> u.""",
)
real = part(
    "real",
    transpose=(lambda ct, z: complex_.one(ct, zeros_at(ct, ct.type)),),
    reference=np.real,
    lower=lambda jax, z: jax.lax.real(z),
    doc="""Real part. Units: u -> u. Kinks: none.""",
)
imag = part(
    "imag",
    transpose=(lambda ct, z: complex_.one(zeros_at(ct, ct.type), ct),),
    reference=np.imag,
    lower=lambda jax, z: jax.lax.imag(z),
    doc="""Imaginary part. Units: u -> u. Kinks: none.""",
)
conj = linear(
    "conj",
    type=same_type(COMPLEXES),
    transpose=(lambda ct, z: conj.one(ct),),
    reference=np.conj,
    lower=lambda jax, z: jax.lax.conj(z),
    accepts=COMPLEXES,
    conjugates=True,
    elementwise=True,
    samples=(Example(((2, 3),)),),
    doc="""Complex conjugate: linear over the reals. Units: u -> u. Kinks: none.""",
)
