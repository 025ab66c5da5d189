"""Fragments of source text with their precedence, shape and element type; literals, calls and operators as fragments.

A fragment may have fewer axes than its value, since the language broadcasts implicitly. `with_full_shape` writes them
out where they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.base.source import NO_SPAN, Span
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import BOOL, I32, DType, Tensor

# Precedence levels of the grammar, loosest first.
OR, AND, NOT, COMPARE, RANGE, SUM, PRODUCT, MINUS, POWER, POSTFIX, ATOM = range(1, 12)

Shape = tuple[Dim, ...]


class CannotUnparse(Exception):
    """Something cannot be written in the language: what, where, and a workaround."""

    def __init__(self, what: str, span: Span = NO_SPAN, way: str = "") -> None:
        super().__init__(what)
        self.reason, self.span, self.help = what, span, way


class CannotUnparseNestedHistory(CannotUnparse):
    """A history is used where only another loop could read it."""


class Fragment(Struct, frozen=True):
    """A fragment of source. `shows_dtype`: its type follows from the text; a number literal may have any float type."""

    text: str
    level: int
    shape: Shape
    dtype: DType
    shows_dtype: bool = True
    integer: int | None = None  # the value of an integer literal
    sliced_from: tuple[str, tuple[str, ...]] | None = None  # for a slice: the array and its ranges
    folded_key: tuple[str, int] | None = None  # for a key of `fold_in`: the key and the number

    def at(self, level: int) -> str:
        """The text as an operand of that precedence, in parentheses if it binds less tightly."""
        return self.text if self.level >= level else f"({self.text})"

    @property
    def is_atomic(self) -> bool:
        """Whether it may be written and computed twice at no cost: a name, a field, a number."""
        return self.text.removeprefix("-").replace(".", "").replace("_", "").isalnum()


def name_fragment(text: str, type: Tensor) -> Fragment:
    return Fragment(text, ATOM, type.shape, type.dtype)


def call_fragment(function: str, *args: Fragment, shape: Shape, dtype: DType, more: str = "") -> Fragment:
    """A call with these arguments, and further ones as text."""
    texts = [a.text for a in args] + ([more] if more else [])
    return Fragment(f"{function}({', '.join(texts)})", POSTFIX, shape, dtype, any(a.shows_dtype for a in args))


def size_text(dim: Dim) -> str:
    """A size as an expression."""
    return str(dim)


def size_factor(dim: Dim) -> str:
    """A size as one factor."""
    return f"({dim})" if isinstance(dim, Poly) and not str(dim).isidentifier() else str(dim)


def broadcast_shape(*shapes: Shape) -> Shape:
    """The common shape of arrays by broadcasting. Errors: CannotUnparse if the language would reject them."""
    whole: list[Dim] = []
    for i in range(1, max(map(len, shapes), default=0) + 1):
        here = {s[-i] for s in shapes if len(s) >= i}
        wide = here - {1}
        if len(wide) > 1:
            raise CannotUnparse(f"arrays of shapes {' and '.join(map(str, shapes))}, which do not broadcast")
        whole.insert(0, next(iter(wide), 1))
    return tuple(whole)


def with_dtype(words: Fragment) -> Fragment:
    """The same with its element type in the text."""
    if words.shows_dtype:
        return words
    return replace(words, text=f"{words.dtype}({words.text})", level=POSTFIX, shows_dtype=True)


def common_dtype(parts: Sequence[Fragment]) -> list[Fragment]:
    """Operands of one element type, which at least one of them shows."""
    if any(p.shows_dtype for p in parts) or not parts:
        return list(parts)
    return [with_dtype(parts[0]), *parts[1:]]


def with_full_shape(words: Fragment, type: Tensor) -> Fragment:
    """A fragment with all axes of the type, which shows its element type."""
    words = with_dtype(words)
    if words.shape == type.shape:
        return words
    if words.shape == () and type.shape == (1,):
        return Fragment(f"[{words.text}]", ATOM, type.shape, type.dtype)
    missing = type.rank - len(words.shape)
    if words.shape == type.shape[missing:]:
        return call_fragment("fill", shape=type.shape, dtype=type.dtype, more=f"{sizes_text(type.shape)}, {words.text}")
    blank = "false" if type.dtype is BOOL else f"{type.dtype}(0)"
    zeros = f"fill({sizes_text(type.shape)}, {blank})"
    joined = f"{words.at(OR)} or {zeros}" if type.dtype is BOOL else f"{words.at(SUM)} + {zeros}"
    return Fragment(joined, OR if type.dtype is BOOL else SUM, type.shape, type.dtype)


def sizes_text(shape: Shape) -> str:
    return ", ".join(map(size_text, shape))


def number_fragment(value: Any, type: Tensor) -> Fragment:
    """A number literal, which stands for an array filled with it."""
    dtype = type.dtype
    if dtype is BOOL:
        return Fragment("true" if value else "false", ATOM, (), dtype)
    if isinstance(value, Poly):
        text = str(value)
        if dtype is I32:
            return Fragment(text, ATOM if text.isidentifier() else SUM, (), dtype)
        return Fragment(f"{dtype}({text})", POSTFIX, (), dtype)
    if dtype.is_complex:
        return complex_literal(complex(value), dtype)
    if dtype.is_integer:
        whole = int(value)
        return Fragment(str(whole), ATOM if whole >= 0 else MINUS, (), dtype, dtype is I32, whole)
    return real_literal(float(value), dtype)


def real_literal(value: float, dtype: DType) -> Fragment:
    # The shortest decimal that gives the same f32, as `0.1` and not `0.10000000149`.
    text = float_text(float(str(np.float32(value))) if dtype.bits < 64 else value)
    return Fragment(text, MINUS if text.startswith("-") else ATOM, (), dtype, shows_dtype=False)


def complex_literal(value: complex, dtype: DType) -> Fragment:
    if value.imag == 0 and math.copysign(1.0, value.imag) > 0:
        return Fragment(f"{dtype}({float_text(value.real)})", POSTFIX, (), dtype)
    part = "f32" if dtype.name == "c64" else "f64"
    text = f"complex({part}({float_text(value.real)}), {part}({float_text(value.imag)}))"
    return Fragment(text, POSTFIX, (), dtype)


def float_text(value: float) -> str:
    """A float literal, always with a point or an exponent."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))


def infix(
    op: str, level: int, left: Fragment, right: Fragment, *, dtype: DType | None = None, chain: bool = True
) -> Fragment:
    """Two operands of a left-associative operator."""
    left, right = common_dtype([left, right])
    text = f"{left.at(level if chain else level + 1)} {op} {right.at(level + 1)}"
    return Fragment(text, level, broadcast_shape(left.shape, right.shape), dtype or left.dtype)


def with_text(words: Fragment, text: str, level: int) -> Fragment:
    return replace(words, text=text, level=level)
