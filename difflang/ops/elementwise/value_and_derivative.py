"""Functions that share work with their derivative, as `sin` and `cos` do, and the op `tanh_and_slope`.

The derivative `sech2` is accurate to the last digits, which `1 - y*y` is not, and takes an exponential. The same
exponential and one division also give `tanh`, for less than XLA's own takes in double precision.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from difflang.ir.graph import Eqn
from difflang.ir.op import OPS, Op, OperandRules
from difflang.ir.tensor_types import F32, F64, DType
from difflang.numerics import accurate_elementary
from difflang.ops.elementwise.elementary_functions import cos, sech2, sin, tanh
from difflang.ops.op_factories import Array, UniformSamples, along_new_axis, same_type_rule, tensor_type

MAX_RATIONAL_ARGUMENT = 0.625
NUMERATOR = (-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3)
DENOMINATOR = (1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3)


def tanh_and_slope_formula(m: Any, x: Any) -> tuple[Any, Any]:
    """With `e = exp(-2|x|)`: `(1 - e) / (1 + e)` and `e (1 + y)^2`; near 0, where that cancels, a rational function.

    Source: the rational approximation in `tanh.c` of the Cephes library, S. L. Moshier.
    """
    size, square = m.abs(x), x * x
    e, small = m.exp(-2.0 * size), size < MAX_RATIONAL_ARGUMENT
    above = m.where(small, size * square * accurate_elementary.horner(NUMERATOR, square), 1.0 - e)
    below = m.where(small, accurate_elementary.horner(DENOMINATOR, square), 1.0 + e)
    y = copy_sign_bit(m.where(small, size, 0.0) + above / below, x)
    # From the result, so that XLA may divide where it computes that.
    whole = 1.0 + m.abs(y)
    return y, e * (whole * whole)


def copy_sign_bit(size: Any, x: Any) -> Any:
    """`size`, which is not negative, with the sign of `x`, -0.0 included."""
    # Two operations where JAX's `copysign` takes six: if it counts more operations than bytes, XLA splits a kernel of
    # 1,024 numbers between two threads, at a loss.
    bits = np.dtype(f"i{x.dtype.itemsize}")
    return (size.view(bits) | (x.view(bits) & bits.type(np.iinfo(bits).min))).view(x.dtype)


def tanh_and_slope_reference(x: Array) -> tuple[Array, Array]:
    return np.tanh(x), accurate_elementary.sech2(np, x)


tanh_and_slope = OPS.declare(
    Op(
        "tanh_and_slope",
        lambda same, x: (same_type_rule((F64,))(same, x),) * 2,
        tanh_and_slope_reference,
        lambda jax, x: (tanh.lower(jax, x), sech2.lower(jax, x)),
        """`tanh(x)` and `1 / cosh(x)^2`, for one exponential on the CPU. Units: 1 -> 1, 1. Kinks: none.""",
        derivative=OperandRules(jvp=(lambda dx, ys, x: (dx * ys[1], dx * (ys[0] * ys[1] * -2.0)),)),
        batch_rule=along_new_axis(lambda n, **attrs: attrs),
        cpu_lower_rule=lambda jax, x: tanh_and_slope_formula(jax.numpy, x),
        accepts=(F64,),
        samples=(UniformSamples(),),
    )
)


# For each derivative the function of the same argument that it shares its work with, and in which types.
SLOPES_SHARING_WORK: dict[Op, tuple[Op, tuple[DType, ...]]] = {
    sech2: (tanh, (F64,)), cos: (sin, (F32, F64)), sin: (cos, (F32, F64))
}  # fmt: skip


def slopes_sharing_work(eqns: Sequence[Eqn]) -> list[Eqn]:
    """The derivatives among these equations, in order, whose function of the same argument is computed too."""
    slopes = [e for e in eqns if e.op in SLOPES_SHARING_WORK]
    made = {(e.op, e.operands[0]) for e in eqns if e.op.elementwise and e.operands} if slopes else set[object]()
    return [e for e in slopes if shares_work(e, made)]


def shares_work(eqn: Eqn, made: Container[object]) -> bool:
    function, types = SLOPES_SHARING_WORK[eqn.op]
    return (function, eqn.operands[0]) in made and tensor_type(eqn.operands[0]).dtype in types
