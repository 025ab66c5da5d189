"""The types of changes as they are written: whether a value's type fits `D(…)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.types.enums import match_enum
from difflang.types.join_types import is_array_of_sums, least_common_type, sum_options
from difflang.types.language_types import LangType, RecordType, SumType, TupleType, VariantType
from difflang.types.type_errors import make_error

if TYPE_CHECKING:
    from difflang.types.annotations import AnnotationResolver


def match_tangent(
    names: AnnotationResolver,
    written: tree.TypeCall,
    of: tree.TypeExpr,
    type: LangType,
    waiting: list[tuple[tree.TypeExpr, Dim]],
) -> bool:
    """Whether a type is `written`, `D(of)`. What the functions in a record have captured stands in no written type."""
    match of, type:
        case _, Tensor():
            return names.matched(of, type, waiting)
        case tree.TypeName(path=path), RecordType(tangent=True) if type.decl is names.records(".".join(path)):
            return not type.args
        case tree.TypeApply(), RecordType(tangent=True):
            args = type.args or infer_record_args(names, type)
            return names.matched(of, replace(type, tangent=False, args=args), waiting)
        case tree.TypeTuple(items=parts), TupleType(items=items) if len(parts) == len(items):
            changes = [replace(written, args=(part,)) for part in parts]
            return all([names.matched(w, t, waiting) for w, t in zip(changes, items, strict=True)])
        case tree.TypeName(path=(name,)), _ if name in names.generics and (name in names.bound or not names.rigid):
            return match_generic_tangent(names, written, name, type)
        case _, (VariantType() | SumType()) if variants := [o for o in sum_options(type) if isinstance(o, VariantType)]:
            value = replace(variants[0], tangent=False)
            return variants[0].tangent and not is_array_of_sums(type) and match_enum(names, of, value, waiting)
        case _:
            return names.unifier.same(names.type(written), type)


def match_generic_tangent(names: AnnotationResolver, written: tree.TypeCall, name: str, type: LangType) -> bool:
    """Whether a type is that of changes of what a generic name stands for, if of another variant or function.

    Errors: DL0204 where nothing has told what that is: a change does not tell which of its value do not change.
    """
    if name not in names.bound:
        way = f"take the value too, of type `{name}`, or the change as one of any type, `{name}: vec`"
        raise make_error("DL0204", f"`{name}` cannot be told from a change alone", (written.span, ""), help=way)
    return least_common_type(names.unifier, names.type(written), type) is not None


def infer_record_args(names: AnnotationResolver, type: RecordType) -> tuple[object, ...]:
    """What a record is applied to, by the types of the fields that are there."""
    generics = {g.name: g.bound for g in type.decl.generics}
    inner = replace(names, records=names.lookup_for(type.decl), bound={}, generics=generics, rigid=False, within=())
    written = {f.name: f.type for f in type.decl.fields}
    for name, found in zip(type.names, type.fields, strict=True):
        inner.match(tree.TypeCall(written[name].span, ("D",), (written[name],)), found)
    return tuple(inner.bound.get(name) for name in generics)
