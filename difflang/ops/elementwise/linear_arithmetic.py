"""Linear elementwise ops: sums, products, quotients, selection, conversion, and the parts of complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Value
from difflang.ir.op import (
    OPS,
    ArrayLowerRule,
    ArrayReferenceRule,
    Factors,
    Op,
    OperandTransposeRules,
    TypeSolver,
    UndefinedPrimal,
)
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
    numpy_dtype,
)
from difflang.ops.op_factories import (
    FixedOperand,
    OperandRules,
    OpExample,
    UniformSamples,
    inactive_op,
    linear_op,
    multilinear_op,
    same_type_rule,
    tensor_type,
    upcast_half_reference,
    zeros_of_type,
)

TWO_UNIFORM = (UniformSamples(), UniformSamples())


def conj_if_complex(y: Value) -> Value:
    """`y`, conjugated if complex: the adjoint of multiplication by `y` multiplies by this."""
    return conj.one(y) if tensor_type(y).dtype.is_complex else y


add = linear_op(
    "add",
    type=same_type_rule(NUMBERS, 2),
    jvp=(lambda d, z, x, y: d, lambda d, z, x, y: d),
    transpose=(lambda ct, x, y: ct, lambda ct, x, y: ct),
    reference=upcast_half_reference(np.add),
    lower=lambda jax, x, y: jax.lax.add(x, y),
    accepts=NUMBERS,
    traits=("elementwise", "cheap", "keeps sign", "correctly rounded", "accepts fill"),
    samples=TWO_UNIFORM,
    doc="""Sum; integers wrap. Units: u, u -> u. Kinks: none.""",
)
sub = linear_op(
    "sub",
    type=same_type_rule(NUMBERS, 2),
    jvp=(lambda d, z, x, y: d, lambda d, z, x, y: -d),
    transpose=(lambda ct, x, y: ct, lambda ct, x, y: -ct),
    reference=upcast_half_reference(np.subtract),
    lower=lambda jax, x, y: jax.lax.sub(x, y),
    accepts=NUMBERS,
    traits=("elementwise", "cheap", "correctly rounded", "accepts fill"),
    samples=TWO_UNIFORM,
    doc="""Difference; integers wrap. Units: u, u -> u. Kinks: none.""",
)
neg = linear_op(
    "neg",
    type=same_type_rule(NUMBERS, 1),
    transpose=(lambda ct, x: -ct,),
    reference=upcast_half_reference(np.negative),
    lower=lambda jax, x: jax.lax.neg(x),
    accepts=NUMBERS,
    traits=("elementwise", "cheap", "correctly rounded"),
    samples=UniformSamples(),
    doc="""Negation; integers wrap. Units: u -> u. Kinks: none.""",
)
mul = multilinear_op(
    "mul",
    type=same_type_rule(NUMBERS, 2),
    transpose=(lambda ct, x, y: ct * conj_if_complex(y), lambda ct, x, y: ct * conj_if_complex(x)),
    reference=upcast_half_reference(np.multiply),
    lower=lambda jax, x, y: jax.lax.mul(x, y),
    accepts=NUMBERS,
    traits=("elementwise", "cheap", "keeps sign", "correctly rounded", "accepts fill"),
    powers=Factors(lambda eqn: [(x, 1) for x in eqn.operands]),
    samples=TWO_UNIFORM,
    doc="""Product; integers wrap. Units: u, v -> u v. Kinks: none.""",
)


def div_lower(jax: Jax, x: JaxArray, y: JaxArray | np.floating[Any]) -> JaxArray:
    """A product instead where the divisor is a power of two, which is exact and cheaper."""
    inverse = exact_inverse(y) if isinstance(y, np.floating) else None
    return jax.lax.div(x, y) if inverse is None else jax.lax.mul(x, inverse)


def exact_inverse(y: np.floating[Any]) -> np.floating[Any] | None:
    """The inverse of a power of two, if both are normal numbers."""
    fraction, _ = np.frexp(y)
    tiny = np.finfo(y.dtype).tiny
    # In this order: the inverse of a smaller number overflows.
    return 1 / y if abs(fraction) == 0.5 and abs(y) >= tiny and abs(1 / y) >= tiny else None


div = OPS.declare(
    Op(
        "div",
        type=same_type_rule(FLOATS + COMPLEXES, 2),
        # Not `z / y`, which XLA turns into a quotient by a square that overflows or underflows earlier; nor
        # `d / y * z`, where `d / y` may overflow and, transposed, `ct * z`.
        traits=("elementwise", "cheap", "keeps sign", "correctly rounded", "accepts fill"),
        derivative=OperandRules(
            jvp=(lambda d, z, x, y: d / y, lambda d, z, x, y: d * (-z / y)),
            transpose=(lambda ct, x, y: ct / conj_if_complex(y), None),
        ),
        reference=upcast_half_reference(np.divide),
        lower=div_lower,
        accepts=FLOATS + COMPLEXES,
        samples=(UniformSamples(), UniformSamples(0.5, 2.0)),
        doc="""Quotient, linear in the first operand. Units: u, v -> u / v. Kinks: none; x / 0 as in IEEE 754.""",
    )
)


def select_type(same: TypeSolver, p: Tensor, x: Tensor, y: Tensor) -> Tensor:
    same.accepts(p, BOOLS)
    same.dtype(x, y)
    same.shape(x, y)
    same.shape(p, x)
    return x


select = linear_op(
    "select",
    type=select_type,
    transpose=(
        None,
        lambda ct, p, x, y: select.one(p, ct, zeros_of_type(ct, ct.type)),
        lambda ct, p, x, y: select.one(p, zeros_of_type(ct, ct.type), ct),
    ),
    reference=np.where,
    lower=lambda jax, p, x, y: jax.lax.select(p, x, y),
    traits=("elementwise", "select", "bit exact", "cheap"),
    samples=(
        OpExample((FixedOperand((True, False, True), BOOL), (3,), (3,))),
        OpExample((FixedOperand(False, BOOL), (), ())),
    ),
    doc="""Element by element `x` where `p`, else `y`. The tangent of the side not selected is dropped, not multiplied
    by zero, so an Inf or NaN in it does no harm. Units: u, u -> u.""",
)


# ---- Conversion


def convert_type(same: TypeSolver, x: Tensor, *, dtype: DType) -> Tensor:
    same.require(dtype not in BOOLS + INTEGERS, "`convert` gives floats; `truncate` gives integers")
    if dtype in FLOATS:
        same.accepts(x, BOOLS + REALS)
    return Tensor(dtype, x.shape)


def convert_transpose(ct: Value, x: Value | UndefinedPrimal, *, dtype: DType) -> Value:
    real_part = real.one(ct) if dtype.kind == "complex" and not tensor_type(x).dtype.is_complex else ct
    return (
        real_part
        if tensor_type(real_part).dtype is tensor_type(x).dtype
        else convert.one(real_part, dtype=tensor_type(x).dtype)
    )


convert = linear_op(
    "convert",
    type=convert_type,
    transpose=(convert_transpose,),
    reference=lambda x, dtype: x.astype(numpy_dtype(dtype)),
    lower=lambda jax, x, dtype: jax.lax.convert_element_type(x, numpy_dtype(dtype)),
    traits=("elementwise", "cheap", "view", "correctly rounded"),
    samples=(
        *(OpExample(((2, 3),), {"dtype": d}) for d in FLOATS),
        *(OpExample((FixedOperand((0, 1, 100), d),), {"dtype": F32}) for d in (BOOL, I8, U8, I32, I64)),
        OpExample((FixedOperand((0, -1, 2**40), I64),), {"dtype": F64}),
        OpExample((FixedOperand((0.5, -1.5), F32),), {"dtype": C64}),
        OpExample((FixedOperand((0.5, 1 - 1.5j), C64),), {"dtype": C128}),
    ),
    accepts=FLOATS,
    doc="""The same numbers in another float or complex type, rounded to nearest. Linear where the operand has a
    tangent, so an integer or a truth value contributes exactly 0. Units: u -> u.""",
)


def truncate_type(same: TypeSolver, x: Tensor, *, dtype: DType) -> Tensor:
    same.accepts(x, BOOLS + REALS)
    same.require(dtype not in FLOATS + COMPLEXES, "`truncate` gives integers; `convert` gives floats")
    return Tensor(dtype, x.shape)


def truncate_reference(x: Array, *, dtype: DType) -> Array:
    """Floats outside the range of an integer type saturate, NaN becomes 0."""
    if dtype.kind == "bool" or x.dtype.kind in "biu":
        return x.astype(numpy_dtype(dtype))
    info = np.iinfo(numpy_dtype(dtype))
    wide = np.trunc(x.astype(np.float64))
    above, below = wide >= float(info.max), wide <= float(info.min)
    inside = np.where(above | below | np.isnan(wide), 0.0, wide).astype(numpy_dtype(dtype))
    return np.where(above, info.max, np.where(below, info.min, inside)).astype(numpy_dtype(dtype))


truncate = inactive_op(
    "truncate",
    type=truncate_type,
    reference=truncate_reference,
    lower=lambda jax, x, dtype: jax.lax.convert_element_type(x, numpy_dtype(dtype)),
    traits=("elementwise", "bit exact", "correctly rounded"),
    samples=(
        *(OpExample(((2, 3),), {"dtype": d}, UniformSamples(-5.0, 5.0)) for d in (BOOL, I8, I32, I64)),
        *(OpExample(((2, 3),), {"dtype": d}, UniformSamples(0.0, 5.0)) for d in (U8, U32)),
        OpExample((FixedOperand((1e20, -1e20, float("nan"), float("inf"), -0.9), F32),), {"dtype": I32}),
        OpExample((FixedOperand((3e9, -3e9, float("nan"), 1.9, -1.9), F64),), {"dtype": I32}),
        OpExample((FixedOperand((300, -300, 255, -1), I32),), {"dtype": I8}),
        OpExample((FixedOperand((300, -300, 255, -1), I32),), {"dtype": U8}),
        OpExample((FixedOperand((300, 0, 255, -1), I32),), {"dtype": BOOL}),
        OpExample((FixedOperand((True, False), BOOL),), {"dtype": I64}),
    ),
    accepts=FLOATS,
    doc="""To an integer type or bool: floats toward zero, those out of range to the nearest end and NaN to 0;
    integers wrap; a truth value is `x != 0`. Kinks: the derivative is 0 everywhere.""",
)


# ---- Complex numbers


def complex_type(same: TypeSolver, re: Tensor, im: Tensor) -> Tensor:
    same.accepts(re, (F32, F64))
    same.dtype(re, im)
    same.shape(re, im)
    return Tensor(same.complex_dtype(re), re.shape)


def complex_part_type(same: TypeSolver, z: Tensor) -> Tensor:
    same.accepts(z, COMPLEXES)
    return Tensor(same.real_dtype(z), z.shape)


def complex_part_op(
    name: str, *, transpose: OperandTransposeRules, reference: ArrayReferenceRule, lower: ArrayLowerRule, doc: str
) -> Op:
    return linear_op(
        name, type=complex_part_type, transpose=transpose, reference=reference, lower=lower, doc=doc,
        accepts=COMPLEXES, traits=("elementwise", "not holomorphic", "cheap"),
        samples=(OpExample(((2, 3),)), OpExample(((),)), OpExample(((1, 0),))),
    )  # fmt: skip


def complex_reference(re: Array, im: Array) -> Array:
    """Part by part: a product with 1j makes NaN of Inf and loses the sign of a zero."""
    z = np.empty(np.shape(re), np.result_type(re, np.complex64))
    z.real, z.imag = re, im
    return z


complex_ = linear_op(
    "complex",
    type=complex_type,
    transpose=(lambda ct, re, im: real.one(ct), lambda ct, re, im: imag.one(ct)),
    reference=complex_reference,
    lower=lambda jax, re, im: jax.lax.complex(re, im),
    accepts=(F32, F64),
    traits=("elementwise", "cheap"),
    samples=(OpExample(((2, 3), (2, 3))), OpExample(((), ())), OpExample(((1, 0), (1, 0)))),
    doc="""`re + i im`. Adjoints, here and everywhere, are those of the inner product Re(conj(a) b), so a gradient
    points in the direction of steepest ascent. Units: u, u -> u.""",
)
real = complex_part_op(
    "real",
    transpose=(lambda ct, z: complex_.one(ct, zeros_of_type(ct, ct.type)),),
    reference=np.real,
    lower=lambda jax, z: jax.lax.real(z),
    doc="""Real part. Units: u -> u. Kinks: none.""",
)
imag = complex_part_op(
    "imag",
    transpose=(lambda ct, z: complex_.one(zeros_of_type(ct, ct.type), ct),),
    reference=np.imag,
    lower=lambda jax, z: jax.lax.imag(z),
    doc="""Imaginary part. Units: u -> u. Kinks: none.""",
)
conj = linear_op(
    "conj",
    type=same_type_rule(COMPLEXES, 1),
    transpose=(lambda ct, z: conj.one(ct),),
    reference=np.conj,
    lower=lambda jax, z: jax.lax.conj(z),
    accepts=COMPLEXES,
    traits=("elementwise", "not holomorphic", "cheap"),
    samples=(OpExample(((2, 3),)),),
    doc="""Complex conjugate: linear over the reals. Units: u -> u. Kinks: none.""",
)
