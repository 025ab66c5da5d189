"""Type ascription of enum values: fills in sizes and types that a variant leaves open, `let k: Kind[3] = Off`."""

from __future__ import annotations

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.elaborate.terms import RecordTerm, SumTerm, Term, Tuple, VariantTerm, type_of
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.join_types import has_unknown_args, merge_args, sum_options
from difflang.types.language_types import LangType, RecordType, SumType, TupleType, VariantType
from difflang.types.type_errors import DeferCheck


def ascribe_enum(names: AnnotationResolver, written: tree.TypeExpr, term: Term) -> Term:
    """The value with the open arguments of its enums taken from a written type."""
    if not has_unknown_args(type_of(term)):
        return term
    try:
        type = replace(names, rigid=False).type(written)
    except (DifflangError, DeferCheck):
        return term  # the written type has open names itself
    return retype_term(term, merge_type_arguments(type_of(term), type))


def merge_type_arguments(type: LangType, written: LangType) -> LangType:
    match type, written:
        case SumType(), _:
            return replace(type, options=tuple([merge_type_arguments(o, written) for o in type.options]))
        case VariantType(), (VariantType() | SumType()):
            option = next(
                (o for o in sum_options(written) if isinstance(o, VariantType) and o.index == type.index), type
            )
            fields = tuple(map(merge_type_arguments, type.fields, option.fields))
            return replace(type, fields=fields, args=merge_args(type.args, option.args))
        case RecordType(), RecordType():
            fields = tuple(map(merge_type_arguments, type.fields, written.fields))
            return replace(type, fields=fields, args=merge_args(type.args, written.args))
        case TupleType(), TupleType():
            return replace(type, items=tuple(map(merge_type_arguments, type.items, written.items)))
        case _:
            return type


def retype_term(term: Term, type: LangType) -> Term:
    """The same value with a type whose enums have more arguments known."""
    match term, type:
        case VariantTerm(), VariantType():
            return VariantTerm(type, tuple(map(retype_term, term.fields, type.fields)))
        case RecordTerm(), RecordType():
            return RecordTerm(type, tuple(map(retype_term, term.fields, type.fields)))
        case SumTerm(), SumType():
            return SumTerm(term.tag, tuple(map(retype_term, term.parts, type.options)))
        case Tuple(), TupleType():
            return Tuple(tuple(map(retype_term, term.items, type.items)), type.closure)
        case _:
            return term
