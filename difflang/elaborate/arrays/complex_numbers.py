"""Complex numbers: made of two parts, taken apart, and what is computed of their parts rather than by an op of its own.

Nothing is complex without being so written: a real number becomes complex by `c64(x)` or `complex(x, y)` only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from difflang.base.source import Span
from difflang.elaborate.calls.builtin_functions import Taken, builtin
from difflang.elaborate.context import Context
from difflang.elaborate.expressions.number_promotion import OF_COMPLEX
from difflang.elaborate.expressions.operators import array, elementwise
from difflang.elaborate.reports.op_messages import quoted
from difflang.elaborate.terms import Array, Record, Sum, Term, Tuple, Variant, rebuilt_record, rebuilt_variant
from difflang.ir.tensor_types import Tensor
from difflang.types.dtype_variables import imaginary_dtype
from difflang.types.language_types import show_type

if TYPE_CHECKING:
    from difflang.elaborate.calls.arguments import Args


@builtin("complex")
def complex_(cx: Context, args: Args, name: str) -> Term:
    """`complex(x, y)` is x + i y. Of two numbers as written it is one as written."""
    took = Taken(cx, args, name, "real imag")
    x, y = took.array("real"), took.array("imag")
    if x.literal and y.literal and isinstance(x.static, (int, float)) and isinstance(y.static, (int, float)):
        whole = Tensor(imaginary_dtype(cx.module.default_float))
        return Array(cx.emit("const", args.span, value=complex(x.static, y.static), type=whole))
    return elementwise(cx, "complex", args.span, (x, y), (took.span("real"), took.span("imag")))


def parts(cx: Context, z: Array, span: Span) -> tuple[Array, Array]:
    """The real and the imaginary part."""
    return Array(cx.emit("real", span, z.value)), Array(cx.emit("imag", span, z.value))


@builtin("angle")
def angle(cx: Context, args: Args, name: str) -> Term:
    """The argument, in [-pi, pi]; its derivative at 0 is 0."""
    took = Taken(cx, args, name, "z")
    z, at = took.array("z"), took.span("z")
    if not z.tensor.dtype.is_complex:
        shown = show_type(z.tensor)
        way = f"convert it: `{'c128' if 'f64' in shown else 'c64'}({quoted(at)})`"
        raise cx.error("DL0311", f"`angle` takes a complex number, not {shown}", at, f"this is {shown}", way)
    x, y = parts(cx, z, args.span)
    return elementwise(cx, "atan2", args.span, (y, x))


def in_parts(cx: Context, term: Term, span: Span) -> Term:
    """A vector over the real numbers: every complex array in it as the pair of its parts."""
    match term:
        case Array() if term.tensor.dtype.is_complex:
            return Tuple(parts(cx, term, span))
        case Tuple():
            return Tuple(tuple([in_parts(cx, t, span) for t in term.items]), term.of)
        case Record():
            return rebuilt_record(term.type, tuple([in_parts(cx, t, span) for t in term.fields]))
        case Variant():
            return rebuilt_variant(term.type, tuple([in_parts(cx, t, span) for t in term.fields]))
        case Sum():
            return Sum(term.tag, tuple([in_parts(cx, t, span) for t in term.parts]))
        case _:
            return term


def squared(cx: Context, x: Array, span: Span, at: Span | None = None) -> Array:
    """The square of the absolute value: a real number, without a root on the way."""
    if not x.tensor.dtype.is_complex:
        return array(cx, elementwise(cx, "mul", span, (x, x), (at, at) if at is not None else ()), span)
    products = [elementwise(cx, "mul", span, (part, part)) for part in parts(cx, x, span)]
    return array(cx, elementwise(cx, "add", span, products), span)


# ---- What ops of real numbers are of complex ones


def absolute(cx: Context, span: Span, z: Array) -> Term:
    """Without overflow; its derivative at 0 is 0."""
    return elementwise(cx, "hypot", span, parts(cx, z, span))


def of_either_part(name: str, join: str) -> None:
    """A question about a complex number: asked of both parts."""

    def asked(cx: Context, span: Span, z: Array) -> Term:
        return elementwise(cx, join, span, [elementwise(cx, name, span, (part,)) for part in parts(cx, z, span)])

    OF_COMPLEX[name] = asked


OF_COMPLEX["abs"] = absolute
of_either_part("isnan", "logical_or")
of_either_part("isinf", "logical_or")
of_either_part("isfinite", "logical_and")
