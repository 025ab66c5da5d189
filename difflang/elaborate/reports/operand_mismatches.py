"""Reports of operands that do not fit together: shapes, element types, indexing, tuple patterns, sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from difflang.base.diagnostics import DifflangError, Fix
from difflang.base.source import Span
from difflang.elaborate.reports.op_messages import DIVISION, expects_float, quote_source, refusal_help
from difflang.elaborate.terms import (
    Array,
    Closure,
    HistoryTerm,
    KeyTerm,
    OpaqueTerm,
    RecordTerm,
    SumTerm,
    Term,
    Tuple,
    VariantTerm,
    type_of,
)
from difflang.ir.tensor_types import BOOL, C64, COMPLEX_DTYPE_OF, INTEGERS, DType
from difflang.syntax import tree
from difflang.types.dtype_variables import DTypeVar, dtype_text, prune_dtype
from difflang.types.function_code import DerivativeCode, FnCode
from difflang.types.language_types import show_type
from difflang.types.suggested_fixes import conversion_fix, is_widening, widening_fix
from difflang.types.type_errors import make_error

# Operations on bools.
BOOLEAN_OPS = frozenset({"logical_and", "logical_or", "assignment"})


def broadcast_error(terms: Sequence[Array], spans: Sequence[Span], span: Span, i: int, j: int) -> DifflangError:
    a, b = terms[i].tensor, terms[j].tensor
    rank = min(a.rank, b.rank)
    differ = [(m, n) for m, n in zip(a.shape[-rank:], b.shape[-rank:], strict=True) if m != n and 1 not in (m, n)]
    m, n = differ[0] if differ else (a.shape, b.shape)
    first, second = (spans[i], spans[j]) if spans else (span, span)
    labels = [
        (at, f"{quote_or_this(at)} is {show_type(term.items or term.tensor)}, so this axis is {size}")
        for at, term, size in ((second, terms[j], n), (first, terms[i], m))
    ]
    return make_error(
        "DL0310",
        f"sizes {m} and {n} are incompatible",
        *labels,
        *declaration_labels([terms[i], terms[j]]),
        help="trailing axes must be equal or the literal 1; different names are different sizes",
    )


def declaration_labels(terms: Sequence[Array]) -> list[tuple[Span, str]]:
    """Where the types of the operands were declared."""
    return [(t.origin, "declared here") for t in terms if t.origin is not None]


def quote_or_this(span: Span) -> str:
    text = span.text
    return f"`{text}`" if len(text) <= 24 and "\n" not in text else "this"


def dtype_mismatch_error(name: str, span: Span, arrays: list[Array], spans: Sequence[Span]) -> DifflangError:
    first, other = (
        arrays[0],
        next(a for a in arrays if prune_dtype(a.tensor.dtype) is not prune_dtype(arrays[0].tensor.dtype)),
    )
    at = spans[arrays.index(other)] if spans else span
    labels = [
        (at, f"{quote_or_this(at)} is {show_type(other.tensor)}"),
        (
            spans[0] if spans else span,
            f"{quote_or_this(spans[0]) if spans else 'the other'} is {show_type(first.tensor)}",
        ),
    ]
    one, two = dtype_text(first.tensor.dtype), dtype_text(other.tensor.dtype)
    way, fixes = "convert one of them", tuple[Fix, ...]()
    if spans:
        way, fixes = dtype_conversion_help(first, other, spans[0], at, of_truths=name in BOOLEAN_OPS)
    return make_error("DL0311", f"element types differ: {one} and {two}", *labels, help=way, fixes=fixes)


def not_indexable_error(e: tree.Index, base: Term) -> DifflangError:
    """The report of an index into a value that is not an array, with a help for its type."""
    span, text, way = e.base.span, quote_source(e.base.span), ""
    match base:
        case Tuple(items=items) if len(items) > 1:
            names = ", ".join("abcdefgh"[: len(items)]) + ", …" * (len(items) > 8)
            way = f"destructure the tuple: `let ({names}) = {text}`"
        case RecordTerm(type=type) if type.names:
            way = f"access a field by its name: `{text}.{type.names[0]}`"
        case VariantTerm() | SumTerm() if not isinstance(base, SumTerm) or base.type.variants:
            way = f"read the contents of an enum with `match {text} {{ … }}`"
        case Closure(code=DerivativeCode(operator=operator), captures=(f,)):
            taken_in = ", ".join(quote_source(s.span) for s in e.subscripts)
            shown = f"`{operator}[{taken_in}]({function_name(f)})`"
            way = f"write the parameter of the derivative before the function: {shown}"
        case HistoryTerm():
            way = f"a history has no indices: iterate with `for v in {text}`, or fold it with `reduce`"
        case Closure() | OpaqueTerm() | SumTerm():
            way = f"call a function with parentheses, without sizes and types: `{text}(…)`"
        case _:
            pass
    return make_error("DL0313", "only arrays can be indexed", (span, f"this is {show_type(type_of(base))}"), help=way)


def function_name(f: Term) -> str:
    """A function's name in the program, or `f`."""
    return str(f.code) if isinstance(f, Closure) and isinstance(f.code, FnCode) else "f"


def refused_operand_help(
    name: str, refused: str, arrays: Sequence[Array], spans: Sequence[Span], span: Span, float: DType
) -> tuple[str, tuple[Fix, ...]]:
    """The help and fixes for operands that an op rejects; `float` is the default float of the file."""
    if not refused.startswith("element types"):
        place = spans[0] if spans else span
        certain = spans and name != DIVISION  # `//` may be meant for integers
        return refusal_help(name, refused, place, float), float_conversion_fix(
            refused, arrays[0], place, float
        ) if certain else ()
    first, *others = zip(arrays, spans or [span] * len(arrays), strict=True)
    other = next(o for o in others if prune_dtype(o[0].tensor.dtype) is not prune_dtype(first[0].tensor.dtype))
    way, fixes = dtype_conversion_help(first[0], other[0], first[1], other[1], of_truths=name in BOOLEAN_OPS)
    return way, fixes if spans else ()


def float_conversion_fix(refused: str, given: Array, span: Span, float: DType) -> tuple[Fix, ...]:
    """A fix that converts an integer to a float for an op that takes only floats."""
    whole = given.tensor.dtype.is_integer and not isinstance(prune_dtype(given.tensor.dtype), DTypeVar)
    return conversion_fix(span, float.name) if whole and expects_float(refused) else ()


def dtype_conversion_help(
    first: Array, other: Array, first_span: Span, other_span: Span, *, of_truths: bool = False
) -> tuple[str, tuple[Fix, ...]]:
    """The help for two different element types, and a fix if a conversion loses nothing."""
    truth = prune_dtype(first.tensor.dtype) is BOOL or prune_dtype(other.tensor.dtype) is BOOL
    if truth and not (of_truths or is_assignment_target(first_span)):
        made, place = bool_conversion(first, other, first_span, other_span)
        fixes = conversion_fix(place, made)
    else:
        made, place, fixes = conversion_target(first, other, first_span, other_span)
    shown = quote_source(place)
    way = fixes[0].title if fixes and shown == place.text else f"write `{made}({shown})`"
    return f"there is no implicit conversion: {way}", fixes


def is_assignment_target(span: Span) -> bool:
    """Whether a span is the target of an assignment, whose type is fixed."""
    return re.match(r"(\[[^\n]*\])?[ \t]*[-+*/]?=(?!=)", span.source.text[span.end :]) is not None


def bool_conversion(first: Array, other: Array, first_span: Span, other_span: Span) -> tuple[str, Span]:
    """The type to which a bool among numbers is converted, and the span of that operand."""
    a, b = prune_dtype(first.tensor.dtype), prune_dtype(other.tensor.dtype)
    number, span = (b, first_span) if a is BOOL else (a, other_span)
    if not isinstance(number, DTypeVar):
        return dtype_text(number), span
    return "i32" if any(c in INTEGERS for c in number.candidates) else number.default_real.name, span


def conversion_target(
    first: Array, other: Array, first_span: Span, other_span: Span
) -> tuple[str, Span, tuple[Fix, ...]]:
    """The conversion for two different element types: the target type, the operand's span, and a fix if lossless.

    The operand that loses nothing is converted, else the second one.
    """
    a, b = prune_dtype(first.tensor.dtype), prune_dtype(other.tensor.dtype)
    if a.is_complex != b.is_complex:
        real, span = (b, other_span) if a.is_complex else (a, first_span)
        other_one = a if a.is_complex else b
        wanted = COMPLEX_DTYPE_OF.get(real, C64) if isinstance(other_one, DTypeVar) else other_one
        return str(wanted), span, widening_fix(span, real, wanted)
    if a.is_float and b.is_integer and isinstance(a, DTypeVar):
        return a.default_real.name, other_span, conversion_fix(other_span, a.default_real.name)
    if a.is_integer and (b.is_float or isinstance(b, DTypeVar)):
        made = b.default_real.name if isinstance(b, DTypeVar) else dtype_text(b)
        return made, first_span, conversion_fix(first_span, made)
    if is_widening(a, b) and not is_widening(b, a) and not is_assignment_target(first_span):
        return dtype_text(b), first_span, widening_fix(first_span, a, b)
    wanted = (a.default_real.name if a.is_float else "i32") if isinstance(a, DTypeVar) else dtype_text(a)
    return wanted, other_span, widening_fix(other_span, b, a)


def tuple_pattern_error(pattern: tree.TuplePattern, parts: int | None, found: tuple[Span, str]) -> DifflangError:
    """The report of a tuple pattern for a value that is not a tuple of that length: DL0321."""
    count = len(pattern.items)
    if parts is None:
        return make_error("DL0321", f"expected a tuple of {count} here", (pattern.span, ""), found)
    names = [item.span.text for item in pattern.items[:parts]] + ["_"] * (parts - count)
    message = f"this pattern expects a tuple of {count}, but the tuple has {parts}"
    return make_error("DL0321", message, (pattern.span, ""), found, help=f"destructure it with `({', '.join(names)})`")


def not_a_size_error(term: Term, span: Span, what: str) -> DifflangError:
    """The report of a value that is not a size: it is known only at run time, or is not an integer."""
    found, way = show_type(type_of(term)), "make it a parameter `k: dim`, or express it in the sizes of arrays"
    if may_be_integer(term):
        message = f"{what} must be known at compile time"
        return make_error("DL0305", message, (span, f"this {found} is known only at run time"), help=way)
    if isinstance(term, Array):
        way = "combine sizes with `+ - * //` and `%`: half of n is `n // 2`"
    elif isinstance(term, KeyTerm):
        way = "use a key around the draw: `with_key(k) { normal(3) }`"
    return make_error("DL0305", f"{what} must be an integer", (span, f"this is {found}"), help=way)


def may_be_integer(term: Term) -> bool:
    """Whether a value is an integer or, with an open element type, may become one."""
    if not isinstance(term, Array) or term.tensor.shape:
        return False
    dtype = prune_dtype(term.tensor.dtype)
    return any(each in INTEGERS for each in getattr(dtype, "candidates", (dtype,)))
