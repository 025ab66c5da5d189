"""Iterables of loops and comprehensions: ranges, arrays, `zip`, histories."""

from __future__ import annotations

from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate, elaborates
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.expressions.elementwise import elementwise
from difflang.elaborate.reports.op_messages import quote_source
from difflang.elaborate.statements.loop_iterable import INDEX_TYPE, LoopIterable, item_iterable, zip_iterables
from difflang.elaborate.terms import (
    Array,
    HistoryTerm,
    PoisonTerm,
    RangeTerm,
    RecordTerm,
    SumTerm,
    Term,
    TextTerm,
    Tuple,
    ZipTerm,
    term_from_leaves,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim, Poly, floor_div
from difflang.syntax import tree
from difflang.types.language_types import LangType, RecordType, array_axes, show_type


@elaborates(tree.Range)
def range_expression(cx: ElabContext, e: tree.Range) -> Walk[Term]:
    start = as_array(cx, (yield elaborate(cx, e.start)), e.start.span, "the start of a range")
    stop = as_array(cx, (yield elaborate(cx, e.stop)), e.stop.span, "the end of a range")
    step = as_array(cx, (yield elaborate(cx, e.step)), e.step.span, "the step of a range") if e.step else None
    for end, part in ((start, e.start), (stop, e.stop), *(((step, e.step),) if step and e.step else ())):
        if not cx.unifier.same(end.tensor, INDEX_TYPE):
            raise cx.error("DL0313", "the ends of a range must be i32", part.span, f"this is {show_type(end.tensor)}")
    if step is not None and e.step is not None:
        range_stride(cx, step, e.step.span)
    return RangeTerm(start, stop, None if step is None or step.static == 1 else step)


def range_stride(cx: ElabContext, step: Array, span: Span) -> Dim:
    """The step of a range as a size. Errors: DL0328 for one below 1, or that only a run computes."""
    stride = step.static
    if isinstance(stride, Poly) or (isinstance(stride, int) and stride > 0):
        return stride
    found = show_type(step.tensor) if stride is None else stride
    way = "a parameter that is a size may be a step: `k: dim`" if stride is None else ""
    if isinstance(stride, int) and stride < 0:
        way = "a range counts upwards: for the opposite order, index with `n - 1 - i`"
    message = "the step of a range must be a positive number or size, known at compile time"
    raise cx.error("DL0328", message, span, f"this is {found}", way)


def range_length(start: Dim, stop: Dim, step: Dim) -> Dim:
    """The number of elements of `start..stop`."""
    # Rounded up: a last partial step counts.
    length = floor_div(stop - start + (step - 1), step)
    return max(length, 0) if isinstance(length, int) else length


def as_iterable(cx: ElabContext, term: Term, span: Span) -> LoopIterable:
    """The iterable of a term. Errors: DL0329 for other values."""
    match term:
        case RangeTerm():
            return range_iterable(cx, term, span)
        case Array() if term.tensor.shape:
            length = term.tensor.shape[0]
            return LoopIterable(length, cx.integer_array(length, span), [term.value], lambda _, items: Array(items[0]))
        case RecordTerm() | SumTerm() | TextTerm() if array_axes(term.type):
            return item_iterable(cx, term, span)
        case ZipTerm():
            return zip_iterables(cx, [as_iterable(cx, item, span) for item in term.items], span, counted=term.counted)
        case HistoryTerm():
            return history_source(term)
        case PoisonTerm():
            raise AlreadyReported
        case _:
            found, way = f"this is {show_type(type_of(term))}", iteration_help(term, span)
            raise cx.error("DL0329", "a loop iterates over a range or an array", span, found, way)


def history_source(past: HistoryTerm) -> LoopIterable:
    """The iterable of a history."""
    return LoopIterable(
        None,
        Array(past.steps.count),
        list(past.values),
        lambda _, values: term_from_leaves(past.type, values),
        past.steps,
        past.backwards,
    )


def iteration_help(term: Term, span: Span) -> str:
    """The help for a value that is not iterable."""
    if isinstance(term, Array) and term.tensor.dtype.is_integer:
        return f"write a range as `0..{quote_source(span, 'n')}`"
    if isinstance(term, Tuple) and len(term.items) > 1:
        return "destructure the tuple and iterate over its parts together: `for (a, b) in zip(a, b)`"
    return field_iteration_help(type_of(term))


def field_iteration_help(type: LangType) -> str:
    """The help for one record: an array of such records, or its fields if they have equal lengths."""
    if not isinstance(type, RecordType):
        return ""
    way = f"`{show_type(type)}[k]` declares an array of such records"
    lengths = {
        name: array_axes(field)[0] for name, field in zip(type.names, type.fields, strict=True) if array_axes(field)
    }
    if len(lengths) < 2 or len(set(lengths.values())) > 1:
        return way
    (a, b, *_) = lengths
    return f"iterate over its fields: `for ({a}, {b}) in zip(r.{a}, r.{b})`; {way}"


def range_iterable(cx: ElabContext, term: RangeTerm, span: Span) -> LoopIterable:
    step = term.step.static if term.step is not None else 1
    assert isinstance(step, (int, Poly))
    start, stop = term.start.static, term.stop.static

    def range_item(index: Array, _: list[Value]) -> Term:
        if step != 1:
            scaled = elementwise(cx, "mul", span, (index, cx.integer_array(step, span)))
            index = Array(scaled.value) if isinstance(scaled, Array) else index
        elif start == 0:
            return index
        moved = elementwise(cx, "add", span, (index, term.start))
        # Items below `stop` need no index check for an axis of that size.
        below = stop if isinstance(start, int) and start >= 0 and isinstance(stop, (int, Poly)) else None
        return replace(moved, upper_bound=below) if isinstance(moved, Array) else moved

    if isinstance(start, (int, Poly)) and isinstance(stop, (int, Poly)):
        length = range_length(start, stop, step)
        return LoopIterable(length, cx.integer_array(length, span), [], range_item)
    distance = elementwise(cx, "sub", span, (term.stop, term.start))
    if step != 1:
        distance = elementwise(cx, "add", span, (distance, cx.integer_array(step - 1, span)))
        distance = elementwise(cx, "floor_div", span, (distance, cx.integer_array(step, span)))
    limit = elementwise(cx, "max", span, (distance, cx.integer_array(0, span)))
    assert isinstance(limit, Array)
    return LoopIterable(None, limit, [], range_item)
