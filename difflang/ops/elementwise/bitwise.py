"""Integers as rows of bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from difflang.ir.op import Op, OpRule
from difflang.ir.tensor_types import INTEGERS
from difflang.ops.op_factories import Array, UniformSamples, elementwise_op

ANY_INTEGERS = UniformSamples(-100.0, 100.0)
SHIFT_SAMPLES = (ANY_INTEGERS, UniformSamples(0.0, 9.0))


def bitwise_op(
    name: str, reference: OpRule, lower: OpRule, doc: str, samples: Any = (ANY_INTEGERS, ANY_INTEGERS)
) -> Op:
    return elementwise_op(
        name, inactive=True, reference=reference, lower=lower, doc=doc, accepts=INTEGERS, samples=samples
    )


def shift_right_lower(jax: Any, x: Any, y: Any) -> Any:
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
