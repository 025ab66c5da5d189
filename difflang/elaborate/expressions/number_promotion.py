"""Promotion of numbers: complex arguments of real ops, and a scalar combined with each leaf of a vector."""

from __future__ import annotations

from collections.abc import Callable

from difflang.base.source import Span
from difflang.elaborate.context import ElabContext
from difflang.elaborate.terms import Array, Term
from difflang.ir.tensor_types import REAL_DTYPE_OF
from difflang.types.dtype_variables import DTypeVar, prune_dtype

# Real ops extended to complex numbers, computed from the real and imaginary parts.
COMPLEX_EXTENSIONS: dict[str, Callable[[ElabContext, Span, Array], Term]] = {}


def promote_for_leaf(cx: ElabContext, name: str, number: Array, leaf: Term, span: Span) -> Array:
    """A scalar operand for one leaf of a vector.

    A literal takes the leaf's type. A real number scales complex leaves, which are vectors over the real numbers.
    """
    if not isinstance(leaf, Array):
        return number
    dtype, other = prune_dtype(number.tensor.dtype), prune_dtype(leaf.tensor.dtype)
    if number.literal and isinstance(dtype, DTypeVar) and isinstance(number.static, (int, float)):
        return cx.literal_array(
            number.static, span, DTypeVar(dtype.candidates, dtype.default, dtype.default_real), number.static
        )
    if name in ("mul", "div") and REAL_DTYPE_OF.get(other) is dtype:
        return Array(cx.emit("convert", span, number.value, dtype=other))
    return number
