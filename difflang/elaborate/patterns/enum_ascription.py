"""What a variant does not tell of its enum, told by the type that is written beside it: `let k: Kind[3] = Off`."""

from __future__ import annotations

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.elaborate.terms import Record, Sum, Term, Tuple, Variant, type_of
from difflang.syntax import tree
from difflang.types.annotations import Annotations
from difflang.types.join_types import merged, options_of, unknown
from difflang.types.language_types import LangType, RecordType, SumType, TupleType, VariantType
from difflang.types.type_errors import Undecided


def told(names: Annotations, written: tree.TypeExpr, term: Term) -> Term:
    """A value of a written type, with the sizes and types that this tells and its variants do not."""
    if not unknown(type_of(term)):
        return term
    try:
        type = replace(names, rigid=False).type(written)
    except (DifflangError, Undecided):
        return term  # what it names is open itself
    return of_type(term, with_arguments_of(type_of(term), type))


def with_arguments_of(type: LangType, written: LangType) -> LangType:
    match type, written:
        case SumType(), _:
            return replace(type, options=tuple([with_arguments_of(o, written) for o in type.options]))
        case VariantType(), (VariantType() | SumType()):
            option = next(
                (o for o in options_of(written) if isinstance(o, VariantType) and o.index == type.index), type
            )
            fields = tuple(map(with_arguments_of, type.fields, option.fields))
            return replace(type, fields=fields, args=merged(type.args, option.args))
        case RecordType(), RecordType():
            fields = tuple(map(with_arguments_of, type.fields, written.fields))
            return replace(type, fields=fields, args=merged(type.args, written.args))
        case TupleType(), TupleType():
            return replace(type, items=tuple(map(with_arguments_of, type.items, written.items)))
        case _:
            return type


def of_type(term: Term, type: LangType) -> Term:
    """The value, of a type that tells more of its enums."""
    match term, type:
        case Variant(), VariantType():
            return Variant(type, tuple(map(of_type, term.fields, type.fields)))
        case Record(), RecordType():
            return Record(type, tuple(map(of_type, term.fields, type.fields)))
        case Sum(), SumType():
            return Sum(term.tag, tuple(map(of_type, term.parts, type.options)))
        case Tuple(), TupleType():
            return Tuple(tuple(map(of_type, term.items, type.items)), type.of)
        case _:
            return term
