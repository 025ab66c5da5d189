"""Operators on values with parts: changes of records, tuples and enums, and values that changes move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.context import Context, Reported
from difflang.elaborate.derivatives.tangents import tags_of
from difflang.elaborate.expressions.number_promotion import beside
from difflang.elaborate.expressions.operators import COMPARISONS, elementwise
from difflang.elaborate.patterns.sum_type_arrays import each, is_array_of_sums
from difflang.elaborate.patterns.sum_types import recounted, to_be_told
from difflang.elaborate.reports.op_messages import spelled
from difflang.elaborate.terms import (
    Array,
    Closure,
    Opaque,
    Record,
    Sum,
    Term,
    Tuple,
    Variant,
    children,
    leaves,
    rebuilt_record,
    rebuilt_variant,
    type_of,
)
from difflang.elaborate.trampoline import Walk, run
from difflang.ir.graph import Value
from difflang.types.join_types import joint, of_one_option
from difflang.types.language_types import LangType, SumType, VariantType, show_type
from difflang.types.type_errors import Undecided, kind_of


def leafwise(cx: Context, name: str, span: Span, terms: Sequence[Term], spans: Sequence[Span], **attrs: Any) -> Term:
    """The op on every leaf of values of one structure; a number goes with each."""
    if any(map(is_array_of_sums, terms)):
        return each(cx, terms, span, lambda items: elementwise(cx, name, span, items, spans, **attrs))
    if any(isinstance(t, Sum) for t in terms):
        return by_option(cx, name, span, terms, spans, **attrs)
    whole = next(t for t in terms if isinstance(t, (Record, Tuple, Variant)))
    if name in ("add", "sub") and len(terms) == 2 and moves(terms[0], terms[1]):
        return moved(cx, name, span, terms[0], terms[1])
    if (
        isinstance(whole, Record)
        and not whole.type.tangent
        and any(t != u for t, u in zip(whole.type.fields, map(type_of, whole.fields), strict=True))
    ):
        raise Reported
    if isinstance(whole, (Record, Variant)) and not whole.type.tangent and name in COMPARISONS.values():
        raise undefined(cx, name, span, whole)
    for term, at in zip(terms, spans or [span] * len(terms), strict=True):
        if not isinstance(term, Array) and not of_one_structure(cx, whole, term):
            raise cx.error(
                "DL0314",
                f"`{spelled(name)}` takes values of one structure",
                at,
                f"this is {show_type(type_of(term))}, the other {show_type(type_of(whole))}",
            )
        if isinstance(term, Array) and term.tensor.shape:
            raise cx.error(
                "DL0314", "only a number goes with a record or a tuple", at, f"this is {show_type(term.tensor)}"
            )
    if isinstance(whole, (Record, Variant)) and not whole.type.tangent:
        raise undefined(cx, name, span, whole)

    def child(index: int) -> Term:
        leaf = children(whole)[index]
        parts = [beside(cx, name, t, leaf, span) if isinstance(t, Array) else children(t)[index] for t in terms]
        return elementwise(cx, name, span, parts, spans, **attrs)

    parts = tuple(child(i) for i in range(len(children(whole))))
    if isinstance(whole, Variant):
        return rebuilt_variant(whole.type, parts)
    return Tuple(parts, whole.of) if isinstance(whole, Tuple) else rebuilt_record(whole.type, parts)


def of_one_structure(cx: Context, a: Term, b: Term) -> bool:
    """Whether two values agree leaf by leaf, but for enums and functions in them that the run chooses."""
    both = joint(cx.unifier, type_of(a), type_of(b))
    if both is None:
        to_be_told(cx, type_of(a), type_of(b))
    return both is not None and not isinstance(both, SumType)


def undefined(cx: Context, name: str, span: Span, whole: Record | Variant) -> DifflangError:
    """An operation on values of which only the changes are vectors, and which have neither order nor equality."""
    kind, names = kind_of(whole.type.decl), whole.type.names
    way = f"a change of {with_article(kind)}, D(…), is a vector: `value + change` gives a value"
    if name in COMPARISONS.values():
        field = f"`a.{names[0]} {spelled(name)} b.{names[0]}`" if names else "its fields"
        way = "ask with `match`" if isinstance(whole, Variant) else f"compare what it holds: {field}"
    return cx.error("DL0314", f"`{spelled(name)}` is not defined on the {kind} {whole.type}", span, "", way)


def with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def moves(value: Term, change: Term) -> bool:
    """Whether `value + change` is a value and a change of it, of which some part stays as it is."""
    match value, change:
        case Record(), Record():
            return change.type.tangent and not value.type.tangent and value.type.decl is change.type.decl
        case Variant(), Variant():
            of_one = value.type.decl is change.type.decl and value.type.index == change.type.index
            return change.type.tangent and not value.type.tangent and of_one
        case Tuple(), Tuple():
            return len(value.items) == len(change.items) and type_of(value) != type_of(change)
        case Closure(captures=captures), Tuple(items=items):
            return len(captures) == len(items)
        case _:
            return False


def moved(cx: Context, name: str, span: Span, value: Term, change: Term) -> Term:
    """`value + D(value)`: moves what has a tangent and keeps the rest."""
    if isinstance(value, Sum) or isinstance(change, Sum):
        return by_option(cx, name, span, (value, change), ())
    if isinstance(value, Variant) and isinstance(change, Variant) and moves(value, change):
        changes = dict(zip(change.type.names, change.fields, strict=True))
        pairs = zip(value.type.names, value.fields, strict=True)
        return rebuilt_variant(
            value.type, tuple([moved(cx, name, span, f, changes[n]) if n in changes else f for n, f in pairs])
        )
    if isinstance(value, Record) and isinstance(change, Record):
        parts = [
            moved(cx, name, span, f, change.field(n)) if n in change.type.names else f
            for n, f in zip(value.type.names, value.fields, strict=True)
        ]
        return rebuilt_record(value.type, tuple(parts))
    if isinstance(value, Tuple) and isinstance(change, Tuple) and len(value.items) == len(change.items):
        return Tuple(moved_parts(cx, name, span, value.items, change.items), value.of)
    if isinstance(value, Closure) and isinstance(change, Tuple) and moves(value, change):
        return Closure(value.code, moved_parts(cx, name, span, value.captures, change.items))
    if isinstance(change, Tuple) and not change.items:
        return value
    if isinstance(value, Opaque):
        raise Undecided
    result = elementwise(cx, name, span, [value, change])
    if isinstance(value, Array) and isinstance(result, Array) and result.tensor.shape != value.tensor.shape:
        raise cx.error(
            "DL0310",
            "the change has another shape than the value",
            span,
            f"{show_type(type_of(change))} moves {show_type(value.tensor)}",
        )
    return result


def moved_parts(
    cx: Context, name: str, span: Span, values: Sequence[Term], changes: Sequence[Term]
) -> tuple[Term, ...]:
    return tuple([moved(cx, name, span, v, c) for v, c in zip(values, changes, strict=True)])


# ---- One of several


def by_option(cx: Context, name: str, span: Span, terms: Sequence[Term], spans: Sequence[Span], **attrs: Any) -> Term:
    """The op on the option that the values are; of another option nothing is computed. They must be of one option."""
    from difflang.elaborate.patterns.match_expressions import Arm, by_tag

    whole = next(t for t in terms if isinstance(t, Sum))
    chosen = [t for t in terms if not isinstance(t, Array)]
    both = [
        (mark, [option(cx, t, type) if not isinstance(t, Array) else t for t in terms])
        for mark, type in zip(whole.type.marks, whole.type.options, strict=True)
    ]
    arms = [(mark, [p for p in parts if p is not None]) for mark, parts in both if None not in parts]
    if not arms:
        shown = ", ".join(show_type(type_of(t)) for t in terms)
        raise cx.error("DL0314", f"`{spelled(name)}` takes values of one structure", span, f"these are {shown}")
    for term in chosen:
        of_one(cx, whole, term, span)

    def arm(parts: list[Term]) -> Arm:
        def body() -> Walk[Term]:
            return elementwise(cx, name, span, parts, spans, **attrs)
            yield

        return Arm(body, span)

    marks = [mark for mark, _ in arms]
    found = run(by_tag(cx, whole.tag, marks, [arm(p) for _, p in arms], [cx.word], f"`{spelled(name)}`"))
    return Sum(whole.tag, found.parts) if isinstance(found, Sum) and found.type.marks == whole.type.marks else found


def option(cx: Context, term: Term, type: LangType) -> Term | None:
    """What a value is if it is that option, or a change of it; nothing where it cannot be."""
    parts = term.parts if isinstance(term, Sum) else (term,)
    return next((p for p in parts if of_one_option(cx.unifier, type_of(p), type)), None)


def of_one(cx: Context, a: Sum, b: Term, span: Span, there: Value | None = None) -> None:
    """A check that two values are of one variant, or of one function, where nothing proves it: if they are `there`."""
    from difflang.elaborate.runtime_checks import check

    if isinstance(b, Sum) and b.tag is a.tag:
        return
    options = b.parts if isinstance(b, Sum) else (b,)
    marks = [mark_of(cx, a.type, type_of(o)) for o in options]
    cx.builder.span = span
    if isinstance(b, Sum):
        tag = recounted(cx.builder, b.tag, [*zip(b.type.marks, marks, strict=True)])
    else:
        tag = cx.emit("const", span, value=marks[0], type=a.type.tag)
    what, same = "variants" if a.type.variants else "functions", cx.emit("eq", span, a.tag, tag)
    if there is not None:
        same = cx.emit("logical_or", span, cx.emit("logical_not", span, there), same)
    if axes := tuple(range(len(a.type.tag.shape))):
        same = cx.emit("reduce_all", span, same, axes=axes)
    check(cx, Array(same), f"these values are of two {what}", span)


def mark_of(cx: Context, type: SumType, option: LangType) -> int:
    """What the tag of a type is for an option, -1 for what is none of its."""
    if isinstance(option, VariantType):
        return option.index
    pairs = zip(type.marks, type.options, strict=True)
    return next((mark for mark, other in pairs if of_one_option(cx.unifier, other, option)), -1)


def changes_along(cx: Context, value: Term, change: Term, span: Span, there: Value | None = None) -> list[Value]:
    """The numbers of a tangent, after checks that it is of the variants and functions that the value is of."""
    match value, change:
        case Sum(), Sum():
            of_one(cx, value, change, span, there)
            pairs = zip(value.type.marks, value.parts, change.parts, strict=True)
            return [n for m, v, c in pairs for n in changes_along(cx, v, c, span, chosen(cx, value, m, span, there))]
        case ((Record() | Variant()), (Record() | Variant())):
            fields = dict(zip(value.type.names, value.fields, strict=True))
            pairs = [(fields[n], c) for n, c in zip(change.type.names, change.fields, strict=True)]
        case ((Tuple(items=parts) | Closure(captures=parts)), Tuple()):
            pairs = zip(parts, change.items, strict=True)
        case _:
            return leaves(change)
    return [number for v, c in pairs for number in changes_along(cx, v, c, span, there)]


def chosen(cx: Context, value: Sum, mark: int, span: Span, there: Value | None) -> Value | None:
    """Whether that option of a value is there, if anything in it has a tag that asks."""
    part = value.parts[value.type.marks.index(mark)]
    if not tags_of(part):
        return None
    here = cx.emit("eq", span, value.tag, cx.emit("const", span, value=mark, type=value.type.tag))
    return here if there is None else cx.emit("logical_and", span, there, here)
