"""Splits tangents into numbers, which are linear, and tags, which select variants and functions.

A tangent has the same tags as its primal value, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from difflang.base.source import Span
from difflang.elaborate.context import ElabContext
from difflang.elaborate.patterns.sum_types import check_same_option
from difflang.elaborate.terms import (
    UNIT_TERM,
    Array,
    Closure,
    KeyTerm,
    RecordTerm,
    SumTerm,
    Term,
    Tuple,
    VariantTerm,
    child_terms,
    closure_type,
    leaves,
    record_of_fields,
    type_of,
    variant_of_fields,
)
from difflang.ir.graph import Value
from difflang.ir.tensor_types import Tensor
from difflang.types.dtype_variables import prune_dtype
from difflang.types.language_types import (
    LangType,
    RecordType,
    SumType,
    TupleType,
    VariantType,
    leaf_types,
    tangent_type,
)


def tags_of(term: Term) -> list[Value]:
    """The tags in a value, in order."""
    own = [term.tag] if isinstance(term, SumTerm) else []
    parts = term.captures if isinstance(term, Closure) else child_terms(term)
    return own + [tag for part in parts for tag in tags_of(part)]


def number_types(tangent: LangType) -> list[Tensor]:
    """The types of the numbers in a tangent."""
    return [t for t in leaf_types(tangent) if is_tangent_number(t)]


def tag_count(tangent: LangType) -> int:
    """The number of tags in a tangent."""
    return sum(not is_tangent_number(t) for t in leaf_types(tangent))


def is_tangent_number(type: Tensor) -> bool:
    """Whether a leaf of a tangent is a number: all others are tags."""
    return prune_dtype(type.dtype).differentiable


def has_tangent(term: Term) -> bool:
    """Whether a value contains a number that has a tangent."""
    return any(map(is_tangent_number, leaf_types(type_of(term))))


def numbers_of(tangent: Term) -> list[Value]:
    """The numbers in a tangent, in order."""
    return [v for v in leaves(tangent) if isinstance(v.type, Tensor) and is_tangent_number(v.type)]


def build_tangent(type: LangType, tags: Iterable[Value], parts: Iterable[Term]) -> Term:
    """A term of a tangent type with these tags, and `parts` in the places of its numbers."""
    tag, part = iter(tags), iter(parts)

    def build(type: LangType) -> Term:
        match type:
            case Tensor():
                return next(part)
            case TupleType():
                return Tuple(tuple(map(build, type.items)), type.closure)
            case RecordType():
                return record_of_fields(type, tuple(map(build, type.fields)))
            case VariantType():
                return variant_of_fields(type, tuple(map(build, type.fields)))
            case SumType():
                return SumTerm(next(tag), tuple(map(build, type.options)))
            case _:
                raise AssertionError(type)

    return build(type)


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


def tangent_term(term: Term, parts: Iterator[Value]) -> Term:
    """A term of type `D(type_of(term))` whose leaves are these values."""
    match term:
        case Array():
            return Array(next(parts)) if prune_dtype(term.tensor.dtype).differentiable else UNIT_TERM
        case Tuple():
            return Tuple(tuple([tangent_term(t, parts) for t in term.items]), term.function_type)
        case Closure():
            return Tuple(tuple([tangent_term(t, parts) for t in term.captures]), closure_type(term))
        case SumTerm():
            return SumTerm(term.tag, tuple([tangent_term(t, parts) for t in term.parts]))
        case VariantTerm():
            inside = [(n, tangent_term(t, parts)) for n, t in zip(term.type.names, term.fields, strict=True)]
            of_variant = tangent_type(term.type)
            assert isinstance(of_variant, VariantType)
            return variant_of_fields(of_variant, tuple(t for n, t in inside if n in of_variant.names))
        case RecordTerm():
            type = tangent_type(term.type)
            assert isinstance(type, RecordType)
            pairs = [(n, tangent_term(t, parts)) for n, t in zip(term.type.names, term.fields, strict=True)]
            return record_of_fields(type, tuple(t for n, t in pairs if n in type.names))
        case KeyTerm():
            return UNIT_TERM
        case _:
            return UNIT_TERM
