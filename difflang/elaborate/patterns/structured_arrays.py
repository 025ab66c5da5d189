"""Arrays of structured values: of records, of texts by their numbers, and of enum values or functions, which have an
array of tags beside.

Each leaf of an item is one array, whose first axes are those of the array of items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from difflang.base.source import Span
from difflang.elaborate.context import ElabContext
from difflang.elaborate.expressions.map_equations import check_item_type, emit_map
from difflang.elaborate.patterns.sum_types import widen_to_type
from difflang.elaborate.statements.loop_iterable import item_iterable, zip_iterables
from difflang.elaborate.terms import Array, Items, SumTerm, Term, TextTerm, Tuple, leaves, term_from_leaves, type_of
from difflang.elaborate.trampoline import Walk, run_walk
from difflang.ir.graph import Value
from difflang.ir.tensor_types import I32, Tensor
from difflang.types.join_types import least_common_type
from difflang.types.language_types import add_axes, add_tags, array_axes, leaf_types, show_type
from difflang.types.type_errors import make_error


def stack_values(cx: ElabContext, terms: Sequence[Term], spans: Sequence[Span], span: Span) -> Term:
    """`[Circle(1.0), Empty]`, `[p, q]`, `[sin, cos]`: items of one common type. Errors: DL0317 for unrelated types."""
    # Even equal variants and texts get a tag or number: later assignments may store another one.
    type = add_tags(type_of(terms[0]))
    for term, at in zip(terms, spans, strict=True):
        check_item_type(type_of(term), at)
        both = least_common_type(cx.unifier, type, add_tags(type_of(term)))
        if both is None:
            labels = (at, f"this is {show_type(type_of(term))}"), (spans[0], f"this is {show_type(type)}")
            raise make_error("DL0317", "the items of an array must have one type", *labels)
        type = both
    rows = [leaves(widen_to_type(cx.builder, term, type)) for term in terms]
    columns = [stack_column(cx, [row[i] for row in rows], t, span) for i, t in enumerate(leaf_types(type))]
    return term_from_leaves(add_axes(type, (len(terms),)), columns)


def stack_column(cx: ElabContext, values: Sequence[Value], type: Tensor, span: Span) -> Value:
    rows = [cx.emit("reshape", span, v, shape=(1, *type.shape)) for v in values]
    return rows[0] if len(rows) == 1 else cx.emit("concat", span, *rows, axis=0)


def is_structured_array(term: Term) -> bool:
    """Whether it is an array of texts, records, enums or functions."""
    return isinstance(term, Items) and bool(array_axes(term.type))


def is_sum_array(term: Term) -> bool:
    """Whether it is an array of enums or functions."""
    return isinstance(term, SumTerm) and is_structured_array(term)


def item_grid(cx: ElabContext, term: Items, span: Span) -> Array:
    """An array of numbers with the axes of an array of items, to read subscripts against."""
    if isinstance(term, SumTerm):
        return Array(term.tag)
    if isinstance(term, TextTerm):
        return Array(leaves(term)[0])
    return Array(cx.emit("const", span, value=0, type=Tensor(I32, term.type.axes)))


def map_sum_items(cx: ElabContext, terms: Sequence[Term], span: Span, body: Callable[[list[Term]], Term]) -> Term:
    """Map a body over the items of arrays of sums; other terms are shared by all items."""
    parts = [item_iterable(cx, t, span) for t in terms if isinstance(t, SumTerm) and t.type.tag.shape]
    over = zip_iterables(cx, parts, span)

    def item_body(index: Array, rows: list[Value]) -> Walk[Term]:
        found = over.item(index, rows)
        rest = iter(found.items if isinstance(found, Tuple) else ())
        return body([next(rest) if is_sum_array(t) else t for t in terms])
        yield

    return run_walk(emit_map(cx, span, over, item_body))
