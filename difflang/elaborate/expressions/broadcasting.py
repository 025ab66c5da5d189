"""Terms as arrays, and broadcasting: a scalar fits anything; else trailing axes are equal, or literally 1."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.base.source import Span
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.reports.op_messages import quote_source
from difflang.elaborate.reports.operand_mismatches import broadcast_error
from difflang.elaborate.terms import Array, HistoryTerm, PoisonTerm, Term, TextTerm, type_of
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import Tensor
from difflang.types.language_types import AxisSpread, show_type
from difflang.types.type_errors import DeferCheck


def as_array(cx: ElabContext, term: Term, span: Span, what: str = "an array or a number", way: str = "") -> Array:
    """The term as an array. Errors: DL0313 if it is something else."""
    if isinstance(term, Array):
        return term
    if isinstance(term, PoisonTerm):
        raise AlreadyReported
    if isinstance(term, HistoryTerm):
        way = f"fold a history with a comprehension or `reduce`: `sum(for v in {quote_source(span, 'h')} => v)`"
    if isinstance(term, TextTerm) and term.number is not None:
        way = "compare texts by `==`; host statements get numbers for them by `codes`"
    raise cx.error("DL0313", f"expected {what} here", span, f"this is {show_type(type_of(term))}", way)


def require_rank(x: Array) -> Array:
    """An array whose number of axes is known. Errors: DeferCheck."""
    if any(isinstance(size, AxisSpread) for size in x.tensor.shape):
        raise DeferCheck
    return x


def broadcast_shape(cx: ElabContext, terms: Sequence[Array], spans: Sequence[Span], span: Span) -> tuple[Dim, ...]:
    """The common shape: a scalar fits anything; else trailing axes are equal, or literally 1."""
    shape: tuple[Dim, ...] = ()
    owner = 0
    for i, term in enumerate(terms):
        other = term.tensor.shape
        if other == shape or not other:
            continue
        if not shape:
            shape, owner = other, i
            continue
        merged = merge_shapes(cx, shape, other)
        if merged is None:
            raise broadcast_error(terms, spans, span, owner, i)
        if len(other) > len(shape):
            owner = i
        shape = merged
    return shape


def merge_shapes(cx: ElabContext, a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    if any(isinstance(d, AxisSpread) for d in (*a, *b)):
        raise DeferCheck
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    rest = len(long) - len(short)
    merged = list(long)
    for axis, size in enumerate(short, rest):
        if merged[axis] == 1:
            merged[axis] = size
        elif size != 1 and not cx.unifier.equal(merged[axis], size):
            return None
    return tuple(merged)


def broadcast_to(cx: ElabContext, term: Array, shape: tuple[Dim, ...], span: Span) -> Array:
    """The array broadcast to a shape; a literal becomes a constant of that shape."""
    tensor = term.tensor
    if tensor.shape == shape:
        return term
    if term.literal and not tensor.shape:
        value = cx.emit("const", span, value=term.static, type=Tensor(tensor.dtype, shape))
        return Array(value, term.static, literal=True)
    axes = tuple(range(len(shape) - tensor.rank, len(shape)))
    return Array(cx.emit("broadcast", span, term.value, shape=shape, axes=axes))
