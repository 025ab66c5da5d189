"""Calls of functions that Python gives, `extern fn`: one equation each, at the place of the call."""

from __future__ import annotations

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.elaborate.calls.signatures import is_dim
from difflang.elaborate.context import Context, walks
from difflang.elaborate.terms import Term, leaves, rebuild, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.op import OPS
from difflang.ir.symbolic_dims import Poly
from difflang.ops.control.extern_call import Foreign, Missing
from difflang.syntax import tree
from difflang.types.annotations import Annotations
from difflang.types.dtype_variables import settled
from difflang.types.language_types import (
    ClosureType,
    FnType,
    HistoryType,
    LangType,
    RangeType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    leaf_types,
    pruned_type,
    show_type,
)
from difflang.types.module_scope import Module
from difflang.types.type_errors import mistake


@walks(tree.Foreign)
def body(cx: Context, e: tree.Foreign) -> Walk[Term]:
    """The body of a declaration that is checked by itself, or that has a rule: a call with its own parameters."""
    decl = cx.module.fns[e.name]
    bindings = [(p.name, cx.scope.find(p.name)) for p in decl.params if not is_dim(p.type)]
    found = [(name, binding.term) for name, binding in bindings if binding is not None]
    terms: dict[str, Term] = {name: term for name, term in found if not isinstance(term, (int, Poly))}
    return call(cx, decl, cx.module, terms, cx.annotations, e.span)
    yield


def call(
    cx: Context, decl: tree.Fn, module: Module, terms: dict[str, Term], annotations: Annotations, span: Span
) -> Term:
    """What a call gives. Errors: DL0343 for types that Python does not have, and what the binding refuses."""
    assert decl.result is not None
    result = annotations.type(decl.result)
    types = {name: pruned_type(type_of(term)) for name, term in terms.items()}
    exchanged(decl, types, result)
    operands = tuple([cx.builder.own(v) for term in terms.values() for v in leaves(term)])
    tensors = tuple(leaf_types(result))
    if cx.root.definition or module.externs.get(decl.name) is None:
        params = tuple([t for type in types.values() for t in leaf_types(type)])
        function: Foreign = Missing(decl.name, params, tensors, decl.name_span, unbound(decl, span))
    else:
        for leaf in (*[t for type in types.values() for t in leaf_types(type)], *tensors):
            settled(leaf.dtype)
        function = bound(decl, module, types, annotations, result, span)
    cx.builder.span = span
    results = cx.builder.append(OPS["extern"], operands, tensors, function=function, linear=0)
    return rebuild(result, list(results))


def bound(
    decl: tree.Fn, module: Module, types: dict[str, LangType], names: Annotations, result: LangType, span: Span
) -> Foreign:
    """The function that is bound to a declaration, for these types."""
    arguments: list[LangType | int] = []
    for param in decl.params:
        size = names.bound.get(param.name) if is_dim(param.type) else None
        arguments.append(size if isinstance(size, int) else types[param.name])
    try:
        return module.externs[decl.name].at(decl, module, tuple(arguments), result)
    except DifflangError as error:
        raise called_from(error, span) from error.__cause__


def called_from(error: DifflangError, span: Span) -> DifflangError:
    """The same error, which also says where the call is."""
    (first, *rest) = error.diagnostics
    labels = (*first.labels, Label(span, "for this call"))
    return DifflangError(Diagnostic(first.code, first.message, labels, first.helps, first.severity), *rest)


def unbound(decl: tree.Fn, span: Span) -> DifflangError:
    """Errors: DL1231."""
    name, file = decl.name, decl.span.source.name
    way = f'bind it in Python: `difflang.load("{file}", externs={{"{name}": {name}}})`'
    message = f"`{name}` is a function of Python, and nothing is bound to it"
    return mistake("DL1231", message, (span, "called here"), (decl.name_span, "declared here"), help=way)


def exchanged(decl: tree.Fn, types: dict[str, LangType], result: LangType) -> None:
    """Errors: DL0343 for what Python is not given, and for what it cannot give."""
    for param in decl.params:
        if param.name in types and param.type is not None and (what := strange(types[param.name], text=True)):
            raise refused(decl, f"`{decl.name}` takes {what}", param.type.span)
    if decl.result is not None and (what := strange(result, text=False)):
        raise refused(decl, f"`{decl.name}` gives {what}", decl.result.span)


def refused(decl: tree.Fn, message: str, span: Span) -> DifflangError:
    way = "arrays and numbers, and records, tuples and enums of these, go to Python and come back"
    return mistake("DL0343", f"{message}, and is a function of Python", (span, ""), help=way)


def strange(type: LangType, *, text: bool) -> str:
    """What in a type does not go between the language and Python, in words. A `text` does where it is known."""
    match type:
        case ClosureType() | FnType():
            return "a function"
        case RangeType() | HistoryType():
            return show_type(type)
        case TextType():
            return "" if text and not type.parts else "a text"
        case TupleType(items=inner) | SumType(options=inner) | RecordType(fields=inner) | VariantType(fields=inner):
            return next((found for t in inner if (found := strange(t, text=text))), "")
        case _:
            return ""
