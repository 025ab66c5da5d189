"""A record or an enum applied to sizes and types: as many as it takes, and each of the kind that its fields need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import DType
from difflang.syntax import tree
from difflang.types.dtype_variables import BOUNDS, DTypeParam, DTypeVar, pruned
from difflang.types.type_errors import kind_of, mistake

if TYPE_CHECKING:
    from difflang.types.annotations import Annotations, Binding
    from difflang.types.language_types import LangType

OTHER_KIND = ("DL0202", "DL0203", "DL0301")  # what a name in a field is reported as that stands for something else


def applied_type(names: Annotations, written: tree.TypeApply, decl: tree.Record | tree.Enum) -> LangType:
    """`Name[a, b]`. Errors: DL0302 for another number of arguments, DL0301 for one of another kind."""
    if len(decl.generics) != len(written.args):
        message = f"the {kind_of(decl)} `{decl.name}` takes {len(decl.generics)} in brackets, not {len(written.args)}"
        raise mistake("DL0302", message, (written.span, ""), (decl.name_span, f"it is {head(decl)}"))
    places = {g.name: arg.span for g, arg in zip(decl.generics, written.args, strict=True)}
    args = {g.name: names.argument(arg) for g, arg in zip(decl.generics, written.args, strict=True)}
    for generic in decl.generics:
        if not within(args[generic.name], generic.bound):
            raise other_kind(decl, places[generic.name], args[generic.name], generic.span)
    try:
        return names.declared(decl, args)
    except DifflangError as error:
        wrong = error.diagnostics[0]
        use = wrong.span
        if wrong.code not in OTHER_KIND or use is None or use.source is not decl.span.source or use.text not in args:
            raise
        raise other_kind(decl, places[use.text], args[use.text], use) from None


def within(found: Binding, bound: str | None) -> bool:
    """Whether what stands for a generic name keeps its bound, where that asks for an element type."""
    accepted = BOUNDS.get(bound or "")
    if accepted is None or not isinstance(found, DType):
        return accepted is None
    match pruned(found):
        case DTypeVar(candidates=some):
            return any(dtype in accepted for dtype in some)
        case DTypeParam(candidates=some):
            return all(dtype in accepted for dtype in some)
        case dtype:
            return dtype in accepted


def other_kind(decl: tree.Record | tree.Enum, given: Span, found: Binding, use: Span) -> DifflangError:
    """What stands in brackets is no such thing as the name there: a size for an element type, i32 for a float."""
    is_a = "a size" if isinstance(found, (int, Poly)) else "an element type" if isinstance(found, DType) else "a type"
    accepted = next((BOUNDS.get(g.bound or "", ()) for g in decl.generics if g.span == use), ())
    asked = f"here it is one of {', '.join(map(str, accepted))}" if accepted else "it is used here"
    message = f"the {kind_of(decl)} `{decl.name}` does not take `{given.text}` here"
    return mistake("DL0301", message, (given, f"this is {is_a}"), (use, asked), help=f"it is `{head(decl)}`")


def head(decl: tree.Record | tree.Enum) -> str:
    """A declaration's name with what it takes, as it is written."""
    args = ", ".join(g.name for g in decl.generics)
    return f"{decl.name}[{args}]" if args else decl.name
