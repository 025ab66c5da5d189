"""Declared types in annotations: the sum of an enum's variants, and records and enums against a value's type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from difflang.ir.symbolic_dims import Dim
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes
from difflang.types.language_types import LangType, RecordType, SumType, VariantType
from difflang.types.type_errors import DeferCheck

if TYPE_CHECKING:
    from difflang.types.annotations import AnnotationResolver, TypeBinding


def declared_bounds(decl: tree.Record | tree.Enum) -> dict[str, str | None]:
    """The generics of a declaration with their bounds."""
    return {g.name: g.bound for g in decl.generics}


def enum_type(names: AnnotationResolver, decl: tree.Enum, args: Mapping[str, TypeBinding]) -> LangType:
    """The type of an enum for these arguments: the sum of its variants."""
    if not decl.variants:
        raise DeferCheck  # the parser has reported it
    inner = names.for_fields_of(decl, args)
    fields = [tuple(inner.type(f.type) for f in v.fields) for v in decl.variants]
    order = tuple(inner.bound.get(g.name, args.get(g.name)) for g in decl.generics)
    options = tuple(
        VariantType(decl, i, tuple(f.name for f in v.fields), types, order, home=inner.records)
        for i, (v, types) in enumerate(zip(decl.variants, fields, strict=True))
    )
    return SumType(options) if options[1:] else options[0]


def match_enum(
    names: AnnotationResolver, written: tree.TypeExpr, type: VariantType, waiting: list[tuple[tree.TypeExpr, Dim]]
) -> bool:
    """Match an annotation against an enum type, as far as its arguments are known."""
    match written:
        case tree.TypeName(path=path) | tree.TypeApply(path=path):
            args = written.args if isinstance(written, tree.TypeApply) else ()
            if names.records(".".join(path)) is not type.decl or type.tangent or len(args) != len(type.args):
                return False
            return match_args(names, args, type, waiting)
        case _:
            return False


def match_args(
    names: AnnotationResolver,
    written: Sequence[tree.TypeExpr | tree.AnyShape],
    type: RecordType | VariantType,
    waiting: list[tuple[tree.TypeExpr, Dim]],
) -> bool:
    """Match written arguments against those of a record or an enum, as far as these are known."""
    if len(written) != len(type.args):
        return False
    return all([t is None or names.match_argument(a, t, waiting) for a, t in zip(written, type.args, strict=True)])


def match_fields(names: AnnotationResolver, type: RecordType | VariantType) -> bool:
    """Whether each field has the type that it is declared with: in a stack of records it has more axes."""
    decl = type.decl
    declared = type.decl.fields if isinstance(type, RecordType) else type.decl.variants[type.index].fields
    written = {f.name: f.type for f in declared}
    args = {g.name: a for g, a in zip(decl.generics, type.args, strict=True) if a is not None}
    inner = names.for_fields_of(decl, cast("Mapping[str, TypeBinding]", args))
    pairs = [(written[name], t) for name, t in zip(type.names, type.fields, strict=True)]
    if type.tangent:
        # The tangent of a function is that of its captures, of which the declaration says nothing.
        known = [(w, t) for w, t in pairs if not any(isinstance(part, tree.TypeFn) for part in all_nodes(w))]
        pairs = [(tree.TypeCall(w.span, ("D",), (w,)), t) for w, t in known]
    return all([inner.match(w, t) for w, t in pairs])
