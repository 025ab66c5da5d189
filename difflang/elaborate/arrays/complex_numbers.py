"""Complex arithmetic: built-ins that build and split complex numbers, and operations that work on the two parts.

Nothing becomes complex implicitly: a real number becomes complex only by `c64(x)` or `complex(x, y)`.
"""

from __future__ import annotations

from difflang.base.source import Span
from difflang.elaborate.calls.builtin_registry import BuiltinArgs, builtin
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import ElabContext
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.expressions.elementwise import COMPLEX_EXTENSIONS, elementwise
from difflang.elaborate.reports.op_messages import quote_source
from difflang.elaborate.terms import (
    Array,
    RecordTerm,
    SumTerm,
    Term,
    Tuple,
    VariantTerm,
    record_of_fields,
    variant_of_fields,
)
from difflang.ir.tensor_types import Tensor
from difflang.types.dtype_variables import imaginary_dtype
from difflang.types.language_types import show_type


@builtin("complex", takes="real imag")
def complex_(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`complex(x, y)` is x + i y. Two literals give a complex literal."""
    took = BuiltinArgs(cx, args, name)
    x, y = took.array("real"), took.array("imag")
    if x.literal and y.literal and isinstance(x.static, (int, float)) and isinstance(y.static, (int, float)):
        whole = Tensor(imaginary_dtype(cx.module.default_float))
        return Array(cx.emit("const", args.span, value=complex(x.static, y.static), type=whole))
    return elementwise(cx, "complex", args.span, (x, y), (took.span("real"), took.span("imag")))


def real_and_imaginary(cx: ElabContext, z: Array, span: Span) -> tuple[Array, Array]:
    """The real and the imaginary part."""
    return Array(cx.emit("real", span, z.value)), Array(cx.emit("imag", span, z.value))


@builtin("angle", takes="z")
def angle(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The phase angle, in [-pi, pi]; its derivative at 0 is 0."""
    took = BuiltinArgs(cx, args, name)
    z, at = took.array("z"), took.span("z")
    if not z.tensor.dtype.is_complex:
        shown = show_type(z.tensor)
        way = f"convert it: `{'c128' if 'f64' in shown else 'c64'}({quote_source(at)})`"
        raise cx.error("DL0311", f"`angle` takes a complex number, not {shown}", at, f"this is {shown}", way)
    x, y = real_and_imaginary(cx, z, args.span)
    return elementwise(cx, "atan2", args.span, (y, x))


def as_real_pairs(cx: ElabContext, term: Term, span: Span) -> Term:
    """The value as a vector over the real numbers: each complex array becomes the pair of its parts."""
    match term:
        case Array() if term.tensor.dtype.is_complex:
            return Tuple(real_and_imaginary(cx, term, span))
        case Tuple():
            return Tuple(tuple([as_real_pairs(cx, t, span) for t in term.items]), term.function_type)
        case RecordTerm():
            return record_of_fields(term.type, tuple([as_real_pairs(cx, t, span) for t in term.fields]))
        case VariantTerm():
            return variant_of_fields(term.type, tuple([as_real_pairs(cx, t, span) for t in term.fields]))
        case SumTerm():
            return SumTerm(term.tag, tuple([as_real_pairs(cx, t, span) for t in term.parts]))
        case _:
            return term


def abs_squared(cx: ElabContext, x: Array, span: Span, at: Span | None = None) -> Array:
    """The square of the absolute value: a real number, computed without a square root."""
    if not x.tensor.dtype.is_complex:
        return as_array(cx, elementwise(cx, "mul", span, (x, x), (at, at) if at is not None else ()), span)
    products = [elementwise(cx, "mul", span, (part, part)) for part in real_and_imaginary(cx, x, span)]
    return as_array(cx, elementwise(cx, "add", span, products), span)


# ---- Complex versions of ops on real numbers


def complex_abs(cx: ElabContext, span: Span, z: Array) -> Term:
    """The absolute value, without overflow; its derivative at 0 is 0."""
    # `hypot` scales its operands, so the squares cannot overflow.
    return elementwise(cx, "hypot", span, real_and_imaginary(cx, z, span))


def register_part_test(name: str, join: str) -> None:
    """Registers a test such as `isnan` for complex numbers: test both parts and combine the answers with `join`."""

    def test_parts(cx: ElabContext, span: Span, z: Array) -> Term:
        return elementwise(
            cx, join, span, [elementwise(cx, name, span, (part,)) for part in real_and_imaginary(cx, z, span)]
        )

    COMPLEX_EXTENSIONS[name] = test_parts


COMPLEX_EXTENSIONS["abs"] = complex_abs
register_part_test("isnan", "logical_or")
register_part_test("isinf", "logical_or")
register_part_test("isfinite", "logical_and")
