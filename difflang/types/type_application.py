"""Generic types in annotations: records and enums applied to sizes and types, and tangent types `D(…)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import DType, Tensor
from difflang.syntax import tree
from difflang.types.dtype_variables import DTYPE_BOUNDS, DTypeParam, DTypeVar, prune_dtype
from difflang.types.enum_annotations import match_args, match_enum, match_fields
from difflang.types.join_types import is_array_of_sums, least_common_type, sum_options
from difflang.types.language_types import LangType, RecordType, SumType, TupleType, VariantType
from difflang.types.type_errors import STACK_HELP, declaration_kind, make_error

if TYPE_CHECKING:
    from difflang.types.annotations import AnnotationResolver, TypeBinding

# The codes for a generic of the wrong kind in a field's type; they are reported at the argument instead.
KIND_ERROR_CODES = ("DL0202", "DL0203", "DL0301")


def apply_type(names: AnnotationResolver, written: tree.TypeApply, decl: tree.Record | tree.Enum) -> LangType:
    """`Name[a, b]`. Errors: DL0302 for another number of arguments, DL0301 for one of another kind."""
    if len(decl.generics) != len(written.args):
        takes = f"{(count := len(decl.generics))} argument{'s' * (count != 1)} in brackets, not {len(written.args)}"
        message = f"the {declaration_kind(decl)} `{decl.name}` takes {takes}"
        way = "" if decl.generics else STACK_HELP
        raise make_error(
            "DL0302", message, (written.span, ""), (decl.name_span, f"it is {declaration_head(decl)}"), help=way
        )
    places = {g.name: arg.span for g, arg in zip(decl.generics, written.args, strict=True)}
    args = {g.name: names.argument(arg) for g, arg in zip(decl.generics, written.args, strict=True)}
    for generic in decl.generics:
        if not satisfies_bound(args[generic.name], generic.bound):
            raise argument_kind_error(decl, places[generic.name], args[generic.name], generic.span)
    try:
        return names.declaration_type(decl, args)
    except DifflangError as error:
        wrong = error.diagnostics[0]
        use = wrong.span
        if (
            wrong.code not in KIND_ERROR_CODES
            or use is None
            or use.source is not decl.span.source
            or use.text not in args
        ):
            raise
        raise argument_kind_error(decl, places[use.text], args[use.text], use) from None


def satisfies_bound(found: TypeBinding, bound: str | None) -> bool:
    """Whether a binding satisfies the bound of its generic, if that is of element types."""
    accepted = DTYPE_BOUNDS.get(bound or "")
    if accepted is None or not isinstance(found, DType):
        return accepted is None
    match prune_dtype(found):
        case DTypeVar(candidates=some):
            return any(dtype in accepted for dtype in some)
        case DTypeParam(candidates=some):
            return all(dtype in accepted for dtype in some)
        case dtype:
            return dtype in accepted


def argument_kind_error(decl: tree.Record | tree.Enum, given: Span, found: TypeBinding, use: Span) -> DifflangError:
    """The report of an argument of the wrong kind: a size for an element type, i32 for a float."""
    is_a = "a size" if isinstance(found, (int, Poly)) else "an element type" if isinstance(found, DType) else "a type"
    bound = next((g.bound for g in decl.generics if g.span == use), None) or ""
    accepted = DTYPE_BOUNDS.get(bound, ())
    reason = f"here it is one of {', '.join(map(str, accepted))}" if accepted else "it is used here"
    message = f"the {declaration_kind(decl)} `{decl.name}` does not take `{given.text}` here"
    way = f"it is `{declaration_head(decl)}`"
    if isinstance(found, Poly) and given.text.isidentifier():  # a name that nothing declares is a size
        way = f"write a type here; or declare `{given.text}` for any: `fn f[{given.text}{bound and f': {bound}'}](…)`"
    return make_error("DL0301", message, (given, f"this is {is_a}"), (use, reason), help=way)


def declaration_head(decl: tree.Record | tree.Enum) -> str:
    """The head of a declaration: its name and generics."""
    args = ", ".join(g.name for g in decl.generics)
    return f"{decl.name}[{args}]" if args else decl.name


# ---- Tangent types


def match_tangent(
    names: AnnotationResolver,
    written: tree.TypeCall,
    of: tree.TypeExpr,
    type: LangType,
    waiting: list[tuple[tree.TypeExpr, Dim]],
) -> bool:
    """Whether a type matches the annotation `D(of)`, written as `written`."""
    match of, type:
        case _, Tensor():
            return names.matched(of, type, waiting)
        case tree.TypeName(path=path), RecordType(tangent=True) if type.decl is names.records(".".join(path)):
            return not type.args and match_fields(names, type)
        case tree.TypeApply(path=path), RecordType(tangent=True) if type.decl is names.records(".".join(path)):
            known = replace(type, args=type.args or infer_record_args(names, type))
            return match_args(names, of.args, known, waiting) and match_fields(names, known)
        case tree.TypeTuple(items=parts), TupleType(items=items) if len(parts) == len(items):
            changes = [replace(written, args=(part,)) for part in parts]
            return all([names.matched(w, t, waiting) for w, t in zip(changes, items, strict=True)])
        case tree.TypeName(path=(name,)), _ if name in names.generics and (name in names.bound or not names.rigid):
            return match_generic_tangent(names, written, name, type)
        case _, (VariantType() | SumType()) if variants := [o for o in sum_options(type) if isinstance(o, VariantType)]:
            value = replace(variants[0], tangent=False)
            fits = variants[0].tangent and not is_array_of_sums(type) and match_enum(names, of, value, waiting)
            return fits and all([match_fields(names, variant) for variant in variants])
        case _:
            return names.unifier.same(names.type(written), type)


def match_generic_tangent(names: AnnotationResolver, written: tree.TypeCall, name: str, type: LangType) -> bool:
    """Whether a type is the tangent of a generic's type, possibly of another variant or function.

    Errors: DL0204 if the generic is unbound: a tangent does not determine the fields that have none.
    """
    if name not in names.bound:
        way = f"take the value too, of type `{name}`, or a tangent of any type, `{name}: vec`"
        raise make_error("DL0204", f"`{name}` cannot be inferred from a tangent alone", (written.span, ""), help=way)
    return least_common_type(names.unifier, names.type(written), type) is not None


def infer_record_args(names: AnnotationResolver, type: RecordType) -> tuple[object, ...]:
    """The arguments of a record, inferred from the fields of its tangent."""
    generics = {g.name: g.bound for g in type.decl.generics}
    inner = replace(names, records=names.lookup_for(type.decl), bound={}, generics=generics, rigid=False, within=())
    written = {f.name: f.type for f in type.decl.fields}
    for name, found in zip(type.names, type.fields, strict=True):
        inner.match(tree.TypeCall(written[name].span, ("D",), (written[name],)), found)
    return tuple(inner.bound.get(name) for name in generics)
