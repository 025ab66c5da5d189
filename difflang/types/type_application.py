"""A record or an enum applied to sizes and types: as many as it takes, and each of the kind that its fields need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import DType
from difflang.syntax import tree
from difflang.types.dtype_variables import DTYPE_BOUNDS, DTypeParam, DTypeVar, prune_dtype
from difflang.types.type_errors import declaration_kind, make_error

if TYPE_CHECKING:
    from difflang.types.annotations import AnnotationResolver, TypeBinding
    from difflang.types.language_types import LangType

KIND_ERROR_CODES = (
    "DL0202",
    "DL0203",
    "DL0301",
)  # what a name in a field is reported as that stands for something else


def apply_type(names: AnnotationResolver, written: tree.TypeApply, decl: tree.Record | tree.Enum) -> LangType:
    """`Name[a, b]`. Errors: DL0302 for another number of arguments, DL0301 for one of another kind."""
    if len(decl.generics) != len(written.args):
        message = f"the {declaration_kind(decl)} `{decl.name}` takes {len(decl.generics)} in brackets, not {len(written.args)}"
        raise make_error("DL0302", message, (written.span, ""), (decl.name_span, f"it is {declaration_head(decl)}"))
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
    """Whether what stands for a generic name keeps its bound, where that asks for an element type."""
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
    """What stands in brackets is no such thing as the name there: a size for an element type, i32 for a float."""
    is_a = "a size" if isinstance(found, (int, Poly)) else "an element type" if isinstance(found, DType) else "a type"
    accepted = next((DTYPE_BOUNDS.get(g.bound or "", ()) for g in decl.generics if g.span == use), ())
    asked = f"here it is one of {', '.join(map(str, accepted))}" if accepted else "it is used here"
    message = f"the {declaration_kind(decl)} `{decl.name}` does not take `{given.text}` here"
    return make_error(
        "DL0301", message, (given, f"this is {is_a}"), (use, asked), help=f"it is `{declaration_head(decl)}`"
    )


def declaration_head(decl: tree.Record | tree.Enum) -> str:
    """A declaration's name with what it takes, as it is written."""
    args = ", ".join(g.name for g in decl.generics)
    return f"{decl.name}[{args}]" if args else decl.name
