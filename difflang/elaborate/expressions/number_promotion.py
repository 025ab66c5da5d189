"""Numbers that meet something else: complex ones given to ops of real ones, one number beside many leaves."""

from __future__ import annotations

from collections.abc import Callable

from difflang.base.source import Span
from difflang.elaborate.context import ElabContext
from difflang.elaborate.terms import Array, Term
from difflang.ir.tensor_types import REAL_DTYPE_OF
from difflang.types.dtype_variables import DTypeVar, prune_dtype

# What an op of real numbers is of a complex one, made of the number's parts.
COMPLEX_EXTENSIONS: dict[str, Callable[[ElabContext, Span, Array], Term]] = {}


def promote_for_leaf(cx: ElabContext, name: str, number: Array, leaf: Term, span: Span) -> Array:
    """A number that goes with each leaf of a vector, as it goes with this one.

    As written it takes each leaf's type; a real one scales complex leaves, as they are vectors over the real numbers.
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
