"""Vectorized sine and cosine on the CPU, by polynomials.

XLA calls the C library there, one number at a time: 2 to 4 ns each in single precision, 10 in double. Polynomials are
vectorized, and for one argument both functions share everything but these. The argument is reduced to [-pi/4, pi/4] by
a multiple of a quarter turn. `lower/cpu/polynomial_sines` decides which sines and cosines of a program use this op.

Sources: Cody and Waite, Software Manual for the Elementary Functions (1980), for the reduction; the polynomials of
`k_sin.c` and `k_cos.c` in FreeBSD's msun (Sun Microsystems, 1993) and of `sinf.c` in Cephes (S. L. Moshier).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from difflang.ir.array_types import Array, ArrayT, Jax, JaxArray, NumpyModule
from difflang.ir.graph import Eqn, Value, Values
from difflang.ir.op import OPS, Op, OperandRules, TypeSolver
from difflang.ir.tensor_types import F32, F64, Tensor
from difflang.numerics.accurate_elementary import horner
from difflang.ops.elementwise.elementary_functions import cos, sin
from difflang.ops.op_factories import OpExample, along_new_axis, same_type_rule, tensor_type

# The largest |x| for which the reduction is accurate.
MAX_ARGUMENT = {F32: 1e4, F64: 1e6}
# Sizes of an argument, in bytes. A branch takes a millisecond to emit and some 50 to compile: it pays for smaller
# arguments in a loop's body than outside, where it runs once. A larger argument costs too much to materialize.
MIN_BYTES_IN_LOOP = {F32: 1 << 13, F64: 1 << 14}
MIN_BYTES_OUTSIDE_LOOP = 1 << 18
MAX_BYTES = 1 << 24
# pi/2 as a sum, by the bytes of a number as in the tables below. All parts but the last are so short that products with
# the count are exact: 11 bits for counts of 13 bits, 33 bits for counts of 20.
QUARTER_TURN_PARTS = {
    4: tuple(map(float.fromhex, ("0x1.92p+0", "0x1.fb4p-12", "0x1.444p-24", "0x1.68c234p-39"))),
    8: tuple(map(float.fromhex, ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2ep-69", "0x1.b839a252049c1p-104"))),
}
# (sin(r) / r - 1) / z in z = r^2.
SINE_COEFFICIENTS = {
    4: (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    8: (
        1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
        -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01,
    ),
}  # fmt: skip
# (cos(r) - 1 + z / 2) / z^2 in z.
COSINE_COEFFICIENTS = {
    4: (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
    8: (
        -1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
        2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02,
    ),
}  # fmt: skip
# Up to here sin(x) rounds to x.
MAX_IDENTITY_ARGUMENT = {4: 2.0**-12, 8: 2.0**-27}
Result = TypeVar("Result")
OPS_BY_NAME = {"sin": sin, "cos": cos}
# The phase of each function, in quarter turns from the sine.
QUARTERS_BEHIND = {"sin": 0, "cos": 1}


def sincos_by_polynomials(m: NumpyModule[ArrayT], x: ArrayT, gives: Sequence[str]) -> ArrayT | tuple[ArrayT, ...]:
    """For arguments up to `MAX_ARGUMENT`."""
    width = x.dtype.itemsize
    rest, count = x, m.round(x * (2 / math.pi))
    for part in QUARTER_TURN_PARTS[width]:
        rest = rest - count * part
    square = rest * rest
    sine = rest + rest * (square * horner(SINE_COEFFICIENTS[width], square))
    # Also -0.0, and subnormal numbers, which arithmetic may flush to 0.
    sine = m.where(m.abs(x) < MAX_IDENTITY_ARGUMENT[width], x, sine)
    cosine = 1.0 + (square * -0.5 + square * square * horner(COSINE_COEFFICIENTS[width], square))
    turns = count.astype(np.int32)
    return unwrap_single_result(
        [
            rotate_by_quarters(m, turns + QUARTERS_BEHIND[name], (turns & 1) == QUARTERS_BEHIND[name], sine, cosine)
            for name in gives
        ]
    )


def rotate_by_quarters(m: NumpyModule[ArrayT], turns: ArrayT, even: ArrayT, sine: ArrayT, cosine: ArrayT) -> ArrayT:
    """The sine after that many quarter turns; `even` selects the sine over the cosine polynomial."""
    size = m.where(even, sine, cosine)
    return m.where((turns & 2) == 2, -size, size)


def sincos_lower(jax: Jax, x: JaxArray, *, gives: tuple[str, ...]) -> JaxArray | tuple[JaxArray, ...]:
    return unwrap_single_result([OPS_BY_NAME[name].lower(jax, x) for name in gives])


def sincos_cpu_lower(jax: Jax, x: JaxArray, *, gives: tuple[str, ...]) -> JaxArray | tuple[JaxArray, ...]:
    return sincos_by_polynomials(jax.numpy, x, gives)


def unwrap_single_result(results: Sequence[Result]) -> Result | tuple[Result, ...]:
    """The results as an op returns them: a single one bare, several as a tuple."""
    return results[0] if len(results) == 1 else tuple(results)


def sincos_type(same: TypeSolver, x: Tensor, *, gives: tuple[str, ...]) -> Tensor | tuple[Tensor, ...]:
    same.require(bool(gives) and OPS_BY_NAME.keys() >= {*gives}, "sin_and_cos: cannot give {}", gives)
    return unwrap_single_result([same_type_rule((F32, F64), 1)(same, x)] * len(gives))


def sincos_reference(x: Array, *, gives: tuple[str, ...]) -> Array | tuple[Array, ...]:
    return unwrap_single_result([OPS_BY_NAME[name].reference(x) for name in gives])


def sincos_jvp(dx: Value, ys: Value | Values, x: Value, *, gives: tuple[str, ...]) -> Value | Values:
    return unwrap_single_result([dx * cos.one(x) if name == "sin" else dx * -sin.one(x) for name in gives])


sin_and_cos = OPS.declare(
    Op(
        "sin_and_cos",
        sincos_type,
        sincos_reference,
        sincos_lower,
        """Those of `sin(x)` and `cos(x)` that it `gives`, by polynomials on the CPU, where no |x| is more than
        1e4 (f32) or 1e6 (f64). Units: radians -> 1. Kinks: none.""",
        traits=("fusion barrier",),
        derivative=OperandRules(jvp=(sincos_jvp,)),
        batch_rule=along_new_axis(lambda n, **attrs: attrs),
        cpu_lower_rule=sincos_cpu_lower,
        accepts=(F32, F64),
        samples=tuple(
            [
                OpExample((shape,), {"gives": gives})
                for gives in (("sin", "cos"), ("sin",), ("cos",))
                for shape in ((3,), (2, 3), (), (0,), (1,))
            ]
        ),
    )
)


def is_worth_vectorizing(eqn: Eqn, in_loop: bool) -> bool:
    """Whether an equation is a sine or cosine of so many elements that testing their sizes first pays off."""
    if eqn.op is not sin and eqn.op is not cos:
        return False
    x = tensor_type(eqn.operands[0])
    if x.dtype not in MIN_BYTES_IN_LOOP or not all([isinstance(n, int) for n in x.shape]):
        return False
    return (MIN_BYTES_IN_LOOP[x.dtype] if in_loop else MIN_BYTES_OUTSIDE_LOOP) <= x.bytes <= MAX_BYTES


def slopes_sharing_work(eqns: Sequence[Eqn]) -> list[Eqn]:
    """The sines and cosines among these equations whose slope is computed too, or which are such a slope, in order.

    Of one argument both are made for little more than one.
    """
    waves = [e for e in eqns if e.op is sin or e.op is cos]
    made = {(e.op, e.operands[0]) for e in waves}
    return [
        e
        for e in waves
        if (cos if e.op is sin else sin, e.operands[0]) in made and tensor_type(e.operands[0]).dtype in (F32, F64)
    ]
