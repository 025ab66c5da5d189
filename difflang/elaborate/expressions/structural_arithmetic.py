"""Vector-space arithmetic on structured values: tangents of records, tuples and enums, and `value + tangent`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.base.wording import with_article
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.derivatives.tangents import tags_of
from difflang.elaborate.expressions.number_promotion import promote_for_leaf
from difflang.elaborate.expressions.operators import COMPARISONS, elementwise
from difflang.elaborate.patterns.sum_type_arrays import is_sum_array, map_sum_items
from difflang.elaborate.patterns.sum_types import refuse_undecided, renumber_tag
from difflang.elaborate.reports.op_messages import surface_name
from difflang.elaborate.runtime_checks import emit_check
from difflang.elaborate.statements.branches import MatchArm, switch_on_tag
from difflang.elaborate.terms import (
    Array,
    Closure,
    OpaqueTerm,
    RecordTerm,
    SumTerm,
    Term,
    Tuple,
    VariantTerm,
    child_terms,
    leaves,
    record_of_fields,
    type_of,
    variant_of_fields,
)
from difflang.elaborate.trampoline import Walk, run_walk
from difflang.ir.graph import Value
from difflang.types.join_types import least_common_type, same_option
from difflang.types.language_types import LangType, SumType, VariantType, show_type
from difflang.types.type_errors import DeferCheck, declaration_kind


def apply_structural(
    cx: ElabContext, name: str, span: Span, terms: Sequence[Term], spans: Sequence[Span], **attrs: Any
) -> Term:
    """Apply an op leaf by leaf to values of one structure; a scalar combines with each leaf."""
    # Arrays of sums map over their items first; each item is then a scalar sum.
    if any(map(is_sum_array, terms)):
        return map_sum_items(cx, terms, span, lambda items: elementwise(cx, name, span, items, spans, **attrs))
    if any(isinstance(t, SumTerm) for t in terms):
        return apply_per_option(cx, name, span, terms, spans, **attrs)
    whole = next(t for t in terms if isinstance(t, (RecordTerm, Tuple, VariantTerm)))
    # `value + tangent` is no leafwise sum: parts without a tangent are kept.
    if name in ("add", "sub") and len(terms) == 2 and is_tangent_update(terms[0], terms[1]):
        return add_tangent(cx, name, span, terms[0], terms[1])
    if (
        isinstance(whole, RecordTerm)
        and not whole.type.tangent
        and any(t != u for t, u in zip(whole.type.fields, map(type_of, whole.fields), strict=True))
    ):
        raise AlreadyReported
    if isinstance(whole, (RecordTerm, VariantTerm)) and not whole.type.tangent and name in COMPARISONS.values():
        raise undefined_operation(cx, name, span, whole)
    for term, at in zip(terms, spans or [span] * len(terms), strict=True):
        if not isinstance(term, Array) and not same_structure(cx, whole, term):
            raise cx.error(
                "DL0314",
                f"`{surface_name(name)}` takes values of the same structure",
                at,
                f"this is {show_type(type_of(term))}, but the other is {show_type(type_of(whole))}",
            )
        if isinstance(term, Array) and term.tensor.shape:
            raise cx.error(
                "DL0314",
                "only a number can be combined with a record or a tuple",
                at,
                f"this is {show_type(term.tensor)}",
            )
    if isinstance(whole, (RecordTerm, VariantTerm)) and not whole.type.tangent:
        raise undefined_operation(cx, name, span, whole)

    def child_term(index: int) -> Term:
        leaf = child_terms(whole)[index]
        parts = [
            promote_for_leaf(cx, name, t, leaf, span) if isinstance(t, Array) else child_terms(t)[index] for t in terms
        ]
        return elementwise(cx, name, span, parts, spans, **attrs)

    parts = tuple(child_term(i) for i in range(len(child_terms(whole))))
    if isinstance(whole, VariantTerm):
        return variant_of_fields(whole.type, parts)
    return Tuple(parts, whole.function_type) if isinstance(whole, Tuple) else record_of_fields(whole.type, parts)


def same_structure(cx: ElabContext, a: Term, b: Term) -> bool:
    """Whether two values have the same leaves, apart from enums and functions that the run selects."""
    both = least_common_type(cx.unifier, type_of(a), type_of(b))
    if both is None:
        # Functions known only by type may agree in a specialization.
        refuse_undecided(cx, type_of(a), type_of(b))
    return both is not None and not isinstance(both, SumType)


def undefined_operation(cx: ElabContext, name: str, span: Span, whole: RecordTerm | VariantTerm) -> DifflangError:
    """The report of an operator on a record or enum: only its tangents are vectors, and it has no comparison."""
    kind, names = declaration_kind(whole.type.decl), whole.type.names
    way = f"a tangent of {with_article(kind)}, D(…), is a vector: `value + tangent` gives a value"
    if name in COMPARISONS.values():
        field = f"`a.{names[0]} {surface_name(name)} b.{names[0]}`" if names else "its fields"
        way = "test it with `match`" if isinstance(whole, VariantTerm) else f"compare its contents: {field}"
    return cx.error("DL0314", f"`{surface_name(name)}` is not defined for the {kind} {whole.type}", span, "", way)


def is_tangent_update(value: Term, change: Term) -> bool:
    """Whether `value + change` adds a tangent to a value that has other parts too."""
    match value, change:
        case RecordTerm(), RecordTerm():
            return change.type.tangent and not value.type.tangent and value.type.decl is change.type.decl
        case VariantTerm(), VariantTerm():
            of_one = value.type.decl is change.type.decl and value.type.index == change.type.index
            return change.type.tangent and not value.type.tangent and of_one
        case Tuple(), Tuple():
            return len(value.items) == len(change.items) and type_of(value) != type_of(change)
        case Closure(captures=captures), Tuple(items=items):
            return len(captures) == len(items)
        case _:
            return False


def add_tangent(cx: ElabContext, name: str, span: Span, value: Term, change: Term) -> Term:
    """`value + D(value)`: adds to the parts that have a tangent and keeps the others."""
    if isinstance(value, SumTerm) or isinstance(change, SumTerm):
        return apply_per_option(cx, name, span, (value, change), ())
    if isinstance(value, VariantTerm) and isinstance(change, VariantTerm) and is_tangent_update(value, change):
        changes = dict(zip(change.type.names, change.fields, strict=True))
        pairs = zip(value.type.names, value.fields, strict=True)
        return variant_of_fields(
            value.type, tuple([add_tangent(cx, name, span, f, changes[n]) if n in changes else f for n, f in pairs])
        )
    if isinstance(value, RecordTerm) and isinstance(change, RecordTerm):
        parts = [
            add_tangent(cx, name, span, f, change.field(n)) if n in change.type.names else f
            for n, f in zip(value.type.names, value.fields, strict=True)
        ]
        return record_of_fields(value.type, tuple(parts))
    if isinstance(value, Tuple) and isinstance(change, Tuple) and len(value.items) == len(change.items):
        return Tuple(add_tangent_parts(cx, name, span, value.items, change.items), value.function_type)
    if isinstance(value, Closure) and isinstance(change, Tuple) and is_tangent_update(value, change):
        return Closure(value.code, add_tangent_parts(cx, name, span, value.captures, change.items))
    if isinstance(change, Tuple) and not change.items:
        return value
    if isinstance(value, OpaqueTerm):
        raise DeferCheck
    result = elementwise(cx, name, span, [value, change])
    if isinstance(value, Array) and isinstance(result, Array) and result.tensor.shape != value.tensor.shape:
        raise cx.error(
            "DL0310",
            "the tangent has a different shape than the value",
            span,
            f"{show_type(type_of(change))} is added to {show_type(value.tensor)}",
        )
    return result


def add_tangent_parts(
    cx: ElabContext, name: str, span: Span, values: Sequence[Term], changes: Sequence[Term]
) -> tuple[Term, ...]:
    return tuple([add_tangent(cx, name, span, v, c) for v, c in zip(values, changes, strict=True)])


# ---- Values with run-time tags


def apply_per_option(
    cx: ElabContext, name: str, span: Span, terms: Sequence[Term], spans: Sequence[Span], **attrs: Any
) -> Term:
    """Apply an op to the option that the tag selects, as a switch. All values must have the same option."""
    whole = next(t for t in terms if isinstance(t, SumTerm))
    chosen = [t for t in terms if not isinstance(t, Array)]
    # Only options that every operand can have get an arm; a check at run time rules out the rest.
    both = [
        (mark, [as_option(cx, t, type) if not isinstance(t, Array) else t for t in terms])
        for mark, type in zip(whole.type.tag_values, whole.type.options, strict=True)
    ]
    arms = [(mark, [p for p in parts if p is not None]) for mark, parts in both if None not in parts]
    if not arms:
        shown = ", ".join(show_type(type_of(t)) for t in terms)
        raise cx.error(
            "DL0314", f"`{surface_name(name)}` takes values of the same structure", span, f"these are {shown}"
        )
    for term in chosen:
        check_same_option(cx, whole, term, span)

    def option_arm(parts: list[Term]) -> MatchArm:
        def body() -> Walk[Term]:
            return elementwise(cx, name, span, parts, spans, **attrs)
            yield

        return MatchArm(body, span)

    marks = [mark for mark, _ in arms]
    found = run_walk(
        switch_on_tag(
            cx, whole.tag, marks, [option_arm(p) for _, p in arms], [cx.failure_word], f"`{surface_name(name)}`"
        )
    )
    return (
        SumTerm(whole.tag, found.parts)
        if isinstance(found, SumTerm) and found.type.tag_values == whole.type.tag_values
        else found
    )


def as_option(cx: ElabContext, term: Term, type: LangType) -> Term | None:
    """The part of a value for an option, or a tangent of it; None if the value cannot have that option."""
    parts = term.parts if isinstance(term, SumTerm) else (term,)
    return next((p for p in parts if same_option(cx.unifier, type_of(p), type)), None)


def check_same_option(cx: ElabContext, a: SumTerm, b: Term, span: Span, there: Value | None = None) -> None:
    """A run-time check that two values have one variant or function, unless proved; only where `there` is true."""
    if isinstance(b, SumTerm) and b.tag is a.tag:
        return
    options = b.parts if isinstance(b, SumTerm) else (b,)
    marks = [option_tag(cx, a.type, type_of(o)) for o in options]
    cx.builder.span = span
    if isinstance(b, SumTerm):
        tag = renumber_tag(cx.builder, b.tag, [*zip(b.type.tag_values, marks, strict=True)])
    else:
        tag = cx.emit("const", span, value=marks[0], type=a.type.tag)
    what, same = "variants" if a.type.variants else "functions", cx.emit("eq", span, a.tag, tag)
    if there is not None:
        same = cx.emit("logical_or", span, cx.emit("logical_not", span, there), same)
    if axes := tuple(range(len(a.type.tag.shape))):
        same = cx.emit("reduce_all", span, same, axes=axes)
    emit_check(cx, Array(same), f"these values have two different {what}", span)


def option_tag(cx: ElabContext, type: SumType, option: LangType) -> int:
    """The tag of an option in a type, or -1 if the type does not have it."""
    if isinstance(option, VariantType):
        return option.index
    pairs = zip(type.tag_values, type.options, strict=True)
    return next((mark for mark, other in pairs if same_option(cx.unifier, other, option)), -1)


def tangent_numbers_along(
    cx: ElabContext, value: Term, change: Term, span: Span, there: Value | None = None
) -> list[Value]:
    """The numbers of a tangent, after checks that it has the variants and functions of the value."""
    match value, change:
        case SumTerm(), SumTerm():
            check_same_option(cx, value, change, span, there)
            pairs = zip(value.type.tag_values, value.parts, change.parts, strict=True)
            return [
                n
                for m, v, c in pairs
                for n in tangent_numbers_along(cx, v, c, span, option_holds(cx, value, m, span, there))
            ]
        case ((RecordTerm() | VariantTerm()), (RecordTerm() | VariantTerm())):
            fields = dict(zip(value.type.names, value.fields, strict=True))
            pairs = [(fields[n], c) for n, c in zip(change.type.names, change.fields, strict=True)]
        case ((Tuple(items=parts) | Closure(captures=parts)), Tuple()):
            pairs = zip(parts, change.items, strict=True)
        case _:
            return leaves(change)
    return [number for v, c in pairs for number in tangent_numbers_along(cx, v, c, span, there)]


def option_holds(cx: ElabContext, value: SumTerm, mark: int, span: Span, there: Value | None) -> Value | None:
    """The flag whether a value has that option, or None if the option contains no tags to check."""
    part = value.parts[value.type.tag_values.index(mark)]
    if not tags_of(part):
        return None
    here = cx.emit("eq", span, value.tag, cx.emit("const", span, value=mark, type=value.type.tag))
    return here if there is None else cx.emit("logical_and", span, there, here)
