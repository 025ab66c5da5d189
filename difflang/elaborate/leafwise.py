"""Operators on values with parts: changes of records, tuples and enums, and values that changes move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.check.reports import kind_of
from difflang.check.types import show_type
from difflang.elaborate.context import Context, Reported
from difflang.elaborate.numbers import beside
from difflang.elaborate.operators import COMPARISONS, elementwise
from difflang.elaborate.spelling import spelled
from difflang.elaborate.terms import (
    Array,
    Closure,
    Record,
    Sum,
    Term,
    Tuple,
    Variant,
    leaves,
    rebuilt_record,
    rebuilt_variant,
    type_of,
)
from difflang.elaborate.trampoline import Walk, run
from difflang.ir.graph import Value


def leafwise(cx: Context, name: str, span: Span, terms: Sequence[Term], spans: Sequence[Span], **attrs: Any) -> Term:
    """The op on every leaf of values of one structure; a number goes with each."""
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
        if not isinstance(term, Array) and not cx.unifier.same(type_of(whole), type_of(term)):
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
    return Tuple(parts) if isinstance(whole, Tuple) else rebuilt_record(whole.type, parts)


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


def children(term: Term) -> tuple[Term, ...]:
    match term:
        case Record(fields=parts) | Variant(fields=parts) | Tuple(items=parts):
            return parts
        case _:
            return ()


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
        return Tuple(tuple(moved(cx, name, span, v, c) for v, c in zip(value.items, change.items, strict=True)))
    if isinstance(change, Tuple) and not change.items:
        return value
    result = elementwise(cx, name, span, [value, change])
    if isinstance(value, Array) and isinstance(result, Array) and result.tensor.shape != value.tensor.shape:
        raise cx.error(
            "DL0310",
            "the change has another shape than the value",
            span,
            f"{show_type(type_of(change))} moves {show_type(value.tensor)}",
        )
    return result


# ---- One of several


def by_option(cx: Context, name: str, span: Span, terms: Sequence[Term], spans: Sequence[Span], **attrs: Any) -> Term:
    """The op on the option that the values are; of another option nothing is computed. They must be of one variant."""
    from difflang.elaborate.matching import Arm, by_tag

    whole = next(t for t in terms if isinstance(t, Sum))
    chosen = [t for t in terms if isinstance(t, (Sum, Variant))]
    marks = [m for m in whole.type.marks if all(option(t, m) is not None for t in chosen)]
    if not marks or any(not isinstance(t, (Sum, Variant, Array)) for t in terms):
        shown = ", ".join(show_type(type_of(t)) for t in terms)
        raise cx.error("DL0314", f"`{spelled(name)}` takes values of one structure", span, f"these are {shown}")
    for term in chosen:
        of_one_variant(cx, whole, term, span)

    def arm(mark: int) -> Arm:
        def body() -> Walk[Term]:
            parts = [part if (part := option(t, mark)) is not None else t for t in terms]
            return elementwise(cx, name, span, parts, spans, **attrs)
            yield

        return Arm(body, span)

    return run(by_tag(cx, whole.tag, marks, [arm(m) for m in marks], [cx.word], f"`{spelled(name)}`"))


def option(term: Term, mark: int) -> Term | None:
    """What a value is if it is that option; nothing where it cannot be."""
    match term:
        case Sum(type=type):
            return term.parts[type.marks.index(mark)] if mark in type.marks else None
        case Variant(type=type):
            return term if type.index == mark else None
        case _:
            return None


def of_one_variant(cx: Context, a: Sum, b: Sum | Variant, span: Span) -> None:
    """A check that two values are of one variant, where nothing proves it."""
    from difflang.elaborate.failure import check

    if isinstance(b, Sum) and b.tag is a.tag:
        return
    tag = b.tag if isinstance(b, Sum) else cx.emit("const", span, value=b.type.index, type=a.type.tag)
    check(cx, Array(cx.emit("eq", span, a.tag, tag)), "these values are of two variants", span)


def changes_along(cx: Context, value: Term, change: Term, span: Span) -> list[Value]:
    """The numbers of a tangent, after a check that it is of the variant that the value is of."""
    match value, change:
        case Sum(), Sum():
            of_one_variant(cx, value, change, span)
            pairs = zip(value.parts, change.parts, strict=True)
        case ((Record() | Variant()), (Record() | Variant())):
            fields = dict(zip(value.type.names, value.fields, strict=True))
            pairs = [(fields[n], c) for n, c in zip(change.type.names, change.fields, strict=True)]
        case ((Tuple(items=parts) | Closure(captures=parts)), Tuple()):
            pairs = zip(parts, change.items, strict=True)
        case _:
            return leaves(change)
    return [number for v, c in pairs for number in changes_along(cx, v, c, span)]
