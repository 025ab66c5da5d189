"""Integers as rows of bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from difflang.ir.op import Op, Rule
from difflang.ir.tensor_types import INTEGERS
from difflang.ops.op_factories import Array, Uniform, elementwise

ANY = Uniform(-100.0, 100.0)
SHIFTS = (ANY, Uniform(0.0, 9.0))


def bitwise(name: str, reference: Rule, lower: Rule, doc: str, samples: Any = (ANY, ANY)) -> Op:
    return elementwise(
        name, inactive=True, reference=reference, lower=lower, doc=doc, accepts=INTEGERS, samples=samples
    )


def shift_right_lower(jax: Any, x: Any, y: Any) -> Any:
    signed = jax.numpy.issubdtype(x.dtype, np.signedinteger)
    return jax.lax.shift_right_arithmetic(x, y) if signed else jax.lax.shift_right_logical(x, y)


def popcount_reference(x: Array) -> Array:
    return np.bitwise_count(x.view(f"u{x.dtype.itemsize}"))


bit_and = bitwise("bit_and", np.bitwise_and, lambda jax, x, y: jax.lax.bitwise_and(x, y), "Bits set in both.")
bit_or = bitwise("bit_or", np.bitwise_or, lambda jax, x, y: jax.lax.bitwise_or(x, y), "Bits set in one or both.")
bit_xor = bitwise("bit_xor", np.bitwise_xor, lambda jax, x, y: jax.lax.bitwise_xor(x, y), "Bits set in exactly one.")
bit_not = bitwise("bit_not", np.bitwise_not, lambda jax, x: jax.lax.bitwise_not(x), "Every bit flipped.", (ANY,))
shift_left = bitwise(
    "shift_left",
    np.left_shift,
    lambda jax, x, y: jax.lax.shift_left(x, y),
    """Bits moved to higher places, zeros behind them; 0 if moved by the width or more, or by less than 0.""",
    SHIFTS,
)
shift_right = bitwise(
    "shift_right",
    np.right_shift,
    shift_right_lower,
    """Bits moved to lower places, copies of the sign (zeros for unsigned) before them; nothing else is left if moved
    by the width or more, or by less than 0.""",
    SHIFTS,
)
popcount = bitwise(
    "popcount", popcount_reference, lambda jax, x: jax.lax.population_count(x), "The number of bits set.", (ANY,)
)
