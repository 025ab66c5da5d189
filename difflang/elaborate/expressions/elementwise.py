"""Elementwise ops: on arrays with broadcasting and folding, on structured values leaf by leaf.

Tangents of records, tuples and enums are vectors, and `value + tangent` is a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.base.wording import with_article
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.expressions.broadcasting import as_array, broadcast_shape, broadcast_to
from difflang.elaborate.expressions.constant_folding import (
    EXTREMUM_TESTS,
    FOLDS,
    emit_folded,
    fold_arrays,
    fold_host_numbers,
    propagate_bounds,
)
from difflang.elaborate.host_sizes import record_host_size
from difflang.elaborate.patterns.structured_arrays import is_sum_array, map_sum_items
from difflang.elaborate.patterns.sum_types import check_same_option, refuse_undecided
from difflang.elaborate.reports.op_messages import surface_name
from difflang.elaborate.reports.operand_mismatches import dtype_mismatch_error
from difflang.elaborate.statements.branches import MatchArm, switch_on_tag
from difflang.elaborate.terms import (
    Array,
    Closure,
    OpaqueTerm,
    RecordTerm,
    SumTerm,
    Term,
    TextTerm,
    Tuple,
    VariantTerm,
    child_terms,
    record_of_fields,
    type_of,
    variant_of_fields,
)
from difflang.elaborate.trampoline import Walk, run_walk
from difflang.ir.op import TypeMismatch
from difflang.ir.tensor_types import REAL_DTYPE_OF
from difflang.types.dtype_variables import DTypeVar, prune_dtype
from difflang.types.join_types import least_common_type, same_option
from difflang.types.language_types import LangType, SumType, show_type
from difflang.types.type_errors import DeferCheck, declaration_kind
from difflang.types.unify import unify_dtypes

COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
JOIN_HELP = 'join texts by interpolation: `"{a}{b}"`'
MIXED_DTYPES = ("select", "discrete")  # ops on operands of different element types
# Real ops extended to complex numbers, computed from the real and imaginary parts.
COMPLEX_EXTENSIONS: dict[str, Callable[[ElabContext, Span, Array], Term]] = {}


def elementwise(
    cx: ElabContext, name: str, span: Span, terms: Sequence[Term], spans: Sequence[Span] = (), **attrs: Any
) -> Term:
    """An elementwise op with broadcasting; on tangents of records and tuples it applies leaf by leaf."""
    if any(isinstance(t, (RecordTerm, Tuple, VariantTerm, SumTerm)) for t in terms):
        return apply_structural(cx, name, span, terms, spans, **attrs)
    places = spans or [span] * len(terms)
    way = JOIN_HELP if name == "add" else ""
    arrays = [
        as_array(cx, t, s, way=way if isinstance(t, TextTerm) else "") for t, s in zip(terms, places, strict=True)
    ]
    for other in arrays[1:]:
        if name not in MIXED_DTYPES and not unify_dtypes(arrays[0].tensor.dtype, other.tensor.dtype):
            raise dtype_mismatch_error(name, span, arrays, spans)
    if name in COMPLEX_EXTENSIONS and arrays[0].tensor.dtype.is_complex:
        return COMPLEX_EXTENSIONS[name](cx, span, arrays[0])
    static = fold_arrays(name, arrays, named=cx.root.definition_only)
    if static is not None and not attrs:
        return emit_folded(cx, name, span, arrays, static)
    shape = broadcast_shape(cx, arrays, spans, span)
    wide = [broadcast_to(cx, a, shape, span) for a in arrays]
    try:
        result = Array(cx.emit(name, span, *[w.value for w in wide], **attrs))
    except TypeMismatch as refused:
        raise cx.op_error(refused, name, span, tuple(arrays), tuple(spans)) from None
    if cx.root.demand is not None and (name in FOLDS or name in EXTREMUM_TESTS or name == "neg"):
        record_host_size(cx, result, lambda *numbers: fold_host_numbers(cx, name, result, span, *numbers), arrays)
    return propagate_bounds(name, arrays, result)


# ---- Structured values


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


def promote_for_leaf(cx: ElabContext, name: str, number: Array, leaf: Term, span: Span) -> Array:
    """A scalar operand for one leaf of a vector.

    A literal takes the leaf's type. A real number scales complex leaves, which are vectors over the real numbers.
    """
    if not isinstance(leaf, Array):
        return number
    dtype, other = prune_dtype(number.tensor.dtype), prune_dtype(leaf.tensor.dtype)
    if number.literal and isinstance(dtype, DTypeVar) and isinstance(number.static, (int, float)):
        return cx.literal_array(
            number.static, span, DTypeVar(dtype.candidates, dtype.default, dtype.default_real), number.static
        )
    if name in ("mul", "div") and REAL_DTYPE_OF.get(other) is dtype:
        return Array(cx.emit("convert", span, number.value, dtype=other))
    return number


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
    if isinstance(change, Tuple) and not change.items:
        return value
    if is_sum_array(value) or is_sum_array(change):
        return map_sum_items(cx, (value, change), span, lambda items: add_tangent(cx, name, span, *items))
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
