"""Sine and cosine on the CPU, several numbers at a time.

XLA asks the C library there, number by number: 2 to 4 ns for each in single precision, 10 in double. Polynomials go
through vector units, and of one argument both functions share all but these. An argument is brought into
[-pi/4, pi/4] by a whole number of quarter turns. A quarter is written as a sum of numbers, all but the last so short
that products with the count are exact; for arguments too far for that, or not finite, it is not.
`lower/cpu/polynomial_sines` says which sines and cosines of a program are this op.

Sources: Cody and Waite, Software Manual for the Elementary Functions (1980), for the reduction; the polynomials of
`k_sin.c` and `k_cos.c` in FreeBSD's msun (Sun Microsystems, 1993) and of `sinf.c` in Cephes (S. L. Moshier).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from difflang.ir.graph import Eqn
from difflang.ir.op import OPS, Op, TypeSolver
from difflang.ir.tensor_types import F32, F64, Tensor
from difflang.numerics.accurate_elementary import horner
from difflang.ops.elementwise.elementary_functions import cos, sin
from difflang.ops.op_factories import Array, OpExample, same_type_rule, tensor_type

MAX_ARGUMENT = {F32: 1e4, F64: 1e6}  # from 0, of an argument
# Bytes of an argument. A branch takes a millisecond to write and some 50 to compile.
MIN_BYTES_IN_LOOP = {F32: 1 << 13, F64: 1 << 14}  # in a step of a loop these are worth one
MIN_BYTES_OUTSIDE_LOOP = 1 << 18  # and elsewhere, where a branch is gone through once in a run
MAX_BYTES = 1 << 24  # more is not written down where it might not be
QUARTER_TURN_PARTS = {  # by the bytes of a number, as what follows. Of 11 bits, for a count of 13; of 33 bits, for one of 20
    4: tuple(map(float.fromhex, ("0x1.92p+0", "0x1.fb4p-12", "0x1.444p-24", "0x1.68c234p-39"))),
    8: tuple(map(float.fromhex, ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2ep-69", "0x1.b839a252049c1p-104"))),
}
SINE_COEFFICIENTS = {  # of z = r^2: (sin(r) / r - 1) / z
    4: (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    8: (
        1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
        -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01,
    ),
}  # fmt: skip
COSINE_COEFFICIENTS = {  # of z: (cos(r) - 1 + z / 2) / z^2
    4: (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
    8: (
        -1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
        2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02,
    ),
}  # fmt: skip
MAX_IDENTITY_ARGUMENT = {4: 2.0**-12, 8: 2.0**-27}  # is its own sine
OPS_BY_NAME = {"sin": sin, "cos": cos}
QUARTERS_BEHIND = {"sin": 0, "cos": 1}  # by how many quarters it is behind the sine


def sincos_by_polynomials(m: Any, x: Any, gives: Sequence[str]) -> Any:
    """Of arguments that are at most `FARTHEST` from 0."""
    width = x.dtype.itemsize
    rest, count = x, m.round(x * (2 / math.pi))
    for part in QUARTER_TURN_PARTS[width]:
        rest = rest - count * part
    square = rest * rest
    sine = rest + rest * (square * horner(SINE_COEFFICIENTS[width], square))
    sine = m.where(m.abs(x) < MAX_IDENTITY_ARGUMENT[width], x, sine)  # also -0.0, and what arithmetic takes for 0
    cosine = 1.0 + (square * -0.5 + square * square * horner(COSINE_COEFFICIENTS[width], square))
    turns = count.astype(np.int32)
    return unwrap_single_result(
        [
            rotate_by_quarters(m, turns + QUARTERS_BEHIND[name], (turns & 1) == QUARTERS_BEHIND[name], sine, cosine)
            for name in gives
        ]
    )


def rotate_by_quarters(m: Any, turns: Any, even: Any, sine: Any, cosine: Any) -> Any:
    """The sine after so many quarter turns: `even` says that it is one, not a cosine."""
    size = m.where(even, sine, cosine)
    return m.where((turns & 2) == 2, -size, size)


def sincos_lower(jax: Any, x: Any, *, gives: tuple[str, ...]) -> Any:
    return unwrap_single_result([OPS_BY_NAME[name].lower(jax, x) for name in gives])


def sincos_cpu_lower(jax: Any, x: Any, *, gives: tuple[str, ...]) -> Any:
    return sincos_by_polynomials(jax.numpy, x, gives)


def unwrap_single_result(results: Sequence[Any]) -> Any:
    """What an op gives: one result by itself, several together."""
    return results[0] if len(results) == 1 else tuple(results)


def sincos_type(same: TypeSolver, x: Tensor, *, gives: tuple[str, ...]) -> Any:
    same.require(bool(gives) and OPS_BY_NAME.keys() >= {*gives}, "sin_and_cos: cannot give {}", gives)
    return unwrap_single_result([same_type_rule((F32, F64))(same, x)] * len(gives))


def sincos_reference(x: Array, *, gives: tuple[str, ...]) -> Any:
    return unwrap_single_result([OPS_BY_NAME[name].reference(x) for name in gives])


def sincos_jvp(dx: Any, ys: Any, x: Any, *, gives: tuple[str, ...]) -> Any:
    return unwrap_single_result([dx * cos.one(x) if name == "sin" else dx * -sin.one(x) for name in gives])


sin_and_cos = OPS.declare(
    Op(
        "sin_and_cos",
        sincos_type,
        sincos_reference,
        sincos_lower,
        """Those of `sin(x)` and `cos(x)` that it `gives`, by polynomials on the CPU, where no |x| is more than
        1e4 (f32) or 1e6 (f64). Units: radians -> 1. Kinks: none.""",
        jvp=(sincos_jvp,),
        cpu_lower_rule=sincos_cpu_lower,
        direct=True,
        fusion_barrier=True,
        accepts=(F32, F64),
        batch_attrs=lambda n, **attrs: attrs,
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
    """Whether an equation is a sine or a cosine of so many numbers that a look at all of them first pays, `inside` a
    loop or not.
    """
    if eqn.op is not sin and eqn.op is not cos:
        return False
    x = tensor_type(eqn.operands[0])
    if x.dtype not in MIN_BYTES_IN_LOOP or not all([isinstance(n, int) for n in x.shape]):
        return False
    return (MIN_BYTES_IN_LOOP[x.dtype] if in_loop else MIN_BYTES_OUTSIDE_LOOP) <= x.bytes <= MAX_BYTES
