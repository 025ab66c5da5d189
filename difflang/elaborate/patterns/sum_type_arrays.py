"""Arrays of values that the run chooses: of an enum of any variant, of functions. A tag and every option, stacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from difflang.base.diagnostics import InternalError
from difflang.base.source import Span
from difflang.elaborate.arrays.indexing import Subscripts, read, whole
from difflang.elaborate.context import Context
from difflang.elaborate.patterns.sum_types import held_as
from difflang.elaborate.terms import Array, Sum, Term, Tuple, Zip, leaves, rebuild, type_of
from difflang.elaborate.trampoline import Walk, run
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import Tensor
from difflang.types.join_types import joint, tagged
from difflang.types.language_types import LangType, leaf_types, mapped, show_type
from difflang.types.type_errors import mistake


def stacked(cx: Context, terms: Sequence[Term], spans: Sequence[Span], span: Span) -> Term:
    """`[Circle(1.0), Empty]`, `[sin, cos]`: what may be any of the items. Errors: DL0317 for items of other types."""
    type: LangType = type_of(terms[0])
    for term, at in zip(terms, spans, strict=True):
        both = joint(cx.unifier, type, type_of(term))
        if both is None:
            labels = (at, f"this is {show_type(type_of(term))}"), (spans[0], f"this is {show_type(type)}")
            raise mistake("DL0317", "the items of an array have one type", *labels)
        type = both
    type = tagged(type)
    rows = [leaves(held_as(cx.builder, term, type)) for term in terms]
    columns = [column(cx, [row[i] for row in rows], t, span) for i, t in enumerate(leaf_types(type))]
    return rebuild(mapped(type, lambda t: Tensor(t.dtype, (len(terms), *t.shape))), columns)


def column(cx: Context, values: Sequence[Value], type: Tensor, span: Span) -> Value:
    rows = [cx.emit("reshape", span, v, shape=(1, *type.shape)) for v in values]
    return rows[0] if len(rows) == 1 else cx.emit("concat", span, *rows, axis=0)


def is_array_of_sums(term: Term) -> bool:
    return isinstance(term, Sum) and bool(term.type.tag.shape)


def tags(term: Term) -> Array:
    """The tags of an array of sums: an array of its shape."""
    if not isinstance(term, Sum):
        raise InternalError("no array of sums")
    return Array(term.tag)


def each(cx: Context, terms: Sequence[Term], span: Span, body: Callable[[list[Term]], Term]) -> Term:
    """What a body gives of the items of arrays of sums, of each place by itself; other terms are the same for all."""
    from difflang.elaborate.expressions.comprehensions import mapping
    from difflang.elaborate.statements.iterables import source

    over = source(cx, Zip(tuple([t for t in terms if is_array_of_sums(t)])), span)

    def lane(index: Array, rows: list[Value]) -> Walk[Term]:
        found = over.item(index, rows)
        rest = iter(found.items if isinstance(found, Tuple) else ())
        return body([next(rest) if is_array_of_sums(t) else t for t in terms])
        yield

    return run(mapping(cx, span, over, lane))


def items(cx: Context, term: Term, subs: Subscripts) -> Term:
    """What stands at these places of the tags, of every option."""
    axes = len(subs.base.tensor.shape)

    def of(leaf: Value) -> Array:
        assert isinstance(leaf.type, Tensor)
        rest = [whole(cx, size, subs.span) for size in leaf.type.shape[axes:]]
        return read(cx, replace(subs, base=Array(leaf), parts=(*subs.parts, *rest)))

    found = [of(leaf) for leaf in leaves(term)]
    lead = found[0].tensor.shape
    return rebuild(inner(type_of(term), axes, lead), [f.value for f in found])


def inner(type: LangType, axes: int, lead: tuple[Dim, ...] = ()) -> LangType:
    """The type with other axes in the place of the first ones."""
    return mapped(type, lambda t: Tensor(t.dtype, (*lead, *t.shape[axes:])))
