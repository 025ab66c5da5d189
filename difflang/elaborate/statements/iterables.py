"""Iterables of loops and comprehensions: ranges, arrays, `zip`, histories."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate, elaborates
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.expressions.operators import elementwise
from difflang.elaborate.reports.op_messages import quote_source
from difflang.elaborate.statements.yield_histories import history_source
from difflang.elaborate.terms import (
    Array,
    HistoryTerm,
    PoisonTerm,
    RangeTerm,
    SumTerm,
    Term,
    Tuple,
    YieldSteps,
    ZipTerm,
    leaves,
    term_from_leaves,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim, Poly, floor_div
from difflang.ir.tensor_types import I32, Tensor
from difflang.syntax import tree
from difflang.types.language_types import LangType, RecordType, map_tensors, show_type

INDEX_TYPE = Tensor(I32)


class LoopIterable(Struct, frozen=True):
    """An iterable: its length if that is a size, its run-time `limit`, the arrays it reads, and its items.

    A history iterates over the `steps` that made it, possibly `backwards`. A loop of run-time length that yields has a
    `capacity` for its items.
    """

    length: Dim | None
    limit: Array
    arrays: list[Value]
    item: Callable[[Array, list[Value]], Term]
    steps: YieldSteps | None = None
    backwards: bool = False
    capacity: Dim | None = None

    @property
    def row_count(self) -> Dim | None:
        """The number of rows in the arrays that a loop reads and in those that it yields."""
        return self.steps.capacity if self.steps is not None else self.capacity if self.length is None else self.length


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
        # An array of enums or functions: all its leaves have the same first axis.
        case SumTerm(type=type) if type.tag.shape:
            length, item = type.tag.shape[0], map_tensors(type, lambda t: Tensor(t.dtype, t.shape[1:]))
            return LoopIterable(
                length, cx.integer_array(length, span), leaves(term), lambda _, rows: term_from_leaves(item, rows)
            )
        case ZipTerm():
            return zip_iterable(cx, term, span)
        case HistoryTerm():
            return history_source(term)
        case PoisonTerm():
            raise AlreadyReported
        case _:
            found, way = f"this is {show_type(type_of(term))}", iteration_help(term, span)
            raise cx.error("DL0329", "a loop iterates over a range or an array", span, found, way)


def iteration_help(term: Term, span: Span) -> str:
    """The help for a value that is not iterable."""
    if isinstance(term, Array) and term.tensor.dtype.is_integer:
        return f"write a range as `0..{quote_source(span, 'n')}`"
    if isinstance(term, Tuple) and len(term.items) > 1:
        return "destructure the tuple and iterate over its parts together: `for (a, b) in zip(a, b)`"
    return field_iteration_help(type_of(term))


def field_iteration_help(type: LangType) -> str:
    """The help for a record of arrays."""
    if not isinstance(type, RecordType) or len(type.names) < 2:
        return ""
    (a, b, *_) = type.names
    return f"iterate over its fields: `for ({a}, {b}) in zip(r.{a}, r.{b})`"


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


def same_length(cx: ElabContext, a: LoopIterable, b: LoopIterable) -> bool:
    """Whether two iterables are known to have equal lengths: equal sizes, or the same steps of a loop."""
    if a.length is None or b.length is None:
        return a.steps is not None and a.steps is b.steps and a.backwards == b.backwards
    return cx.unifier.equal(a.length, b.length)


def zip_error(cx: ElabContext, first: LoopIterable, part: LoopIterable, span: Span) -> DifflangError:
    """The report of iterables that a loop cannot read side by side."""
    if first.steps is not None and first.steps is part.steps:
        message, label = "a loop reads the values of another loop in one direction", "these go in both directions"
        way = "use two loops; or give the loop that yields a known length, so that it makes an array"
        return cx.error("DL0330", message, span, label, way)
    if first.length is None and part.length is None:
        message, label = "`zip` must know that its arguments have the same length", "both are known only at run time"
        way = "yield both values in one loop: `yield (u, v)`"
        return cx.error("DL0330", message, span, label, way)
    lengths = ["one known only at run time" if p.length is None else str(p.length) for p in (first, part)]
    return cx.error("DL0330", "the arguments of `zip` must have the same length", span, " and ".join(lengths))


def zip_iterable(cx: ElabContext, term: ZipTerm, span: Span) -> LoopIterable:
    parts = [as_iterable(cx, item, span) for item in term.items]
    first = parts[0]
    for part in parts[1:]:
        if not same_length(cx, first, part):
            raise zip_error(cx, first, part, span)

    def zip_item(index: Array, items: list[Value]) -> Term:
        found: list[Term] = [index] if term.counted else []
        rest = iter(items)
        for part in parts:
            found.append(part.item(index, [next(rest) for _ in part.arrays]))
        return Tuple(tuple(found))

    return replace(first, arrays=[a for p in parts for a in p.arrays], item=zip_item)
