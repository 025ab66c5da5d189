"""Calls of `extern fn`, functions bound in Python: one `extern` equation for each call. `extern op` has its own."""

from __future__ import annotations

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.elaborate.calls.extern_op_calls import call_extern_op
from difflang.elaborate.calls.signatures import is_dim
from difflang.elaborate.context import ElabContext, elaborates
from difflang.elaborate.terms import Term, leaves, term_from_leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Poly
from difflang.ops.control.extern_call import ExternFunction, MissingExtern, extern
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.dtype_variables import default_dtype
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
    prune_type,
    show_type,
)
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error


@elaborates(tree.Foreign)
def extern_body(cx: ElabContext, e: tree.Foreign) -> Walk[Term]:
    """The body of an `extern fn` when it is checked or has a derivative rule: a call with its own parameters."""
    decl = cx.module.fns[e.name]
    bindings = [(p.name, cx.scope.find(p.name)) for p in decl.params if not is_dim(p.type)]
    found = [(name, binding.term) for name, binding in bindings if binding is not None]
    terms: dict[str, Term] = {name: term for name, term in found if not isinstance(term, (int, Poly))}
    return call_extern(cx, decl, cx.module, terms, cx.annotations, e.span)
    yield


def call_extern(
    cx: ElabContext,
    decl: tree.Fn,
    module: ModuleScope,
    terms: dict[str, Term],
    annotations: AnnotationResolver,
    span: Span,
) -> Term:
    """The result of a call. Errors: DL0343 for types that do not exchange with Python, and those of the binding."""
    assert decl.result is not None and isinstance(decl.body, tree.Foreign)
    if decl.body.op:
        return call_extern_op(cx, decl, terms, annotations, span)
    result = annotations.type(decl.result)
    types = {name: prune_type(type_of(term)) for name, term in terms.items()}
    check_exchange_types(decl, types, result)
    operands = tuple([cx.builder.capture(v) for term in terms.values() for v in leaves(term)])
    tensors = tuple(leaf_types(result))
    # A missing binding is an error only when the call runs: `check` needs no Python.
    if cx.root.definition_only or module.externs.get(decl.name) is None:
        params = tuple([t for type in types.values() for t in leaf_types(type)])
        function: ExternFunction = MissingExtern(
            decl.name, params, tensors, decl.name_span, unbound_extern_error(decl, span)
        )
    else:
        for leaf in (*[t for type in types.values() for t in leaf_types(type)], *tensors):
            # Python receives concrete arrays, so literals take their default types.
            default_dtype(leaf.dtype)
        function = bind_extern(decl, module, types, annotations, result, span)
    cx.builder.span = span
    results = cx.builder.append(extern, operands, tensors, function=function, linear=0)
    return term_from_leaves(result, list(results))


def bind_extern(
    decl: tree.Fn,
    module: ModuleScope,
    types: dict[str, LangType],
    names: AnnotationResolver,
    result: LangType,
    span: Span,
) -> ExternFunction:
    """The function bound to a declaration, for these argument types."""
    arguments: list[LangType | int] = []
    for param in decl.params:
        size = names.bound.get(param.name) if is_dim(param.type) else None
        arguments.append(size if isinstance(size, int) else types[param.name])
    try:
        return module.externs[decl.name].at(decl, module, tuple(arguments), result)
    except DifflangError as error:
        raise add_call_site(error, span) from error.__cause__


def add_call_site(error: DifflangError, span: Span) -> DifflangError:
    """The same error with a label at the call."""
    (first, *rest) = error.diagnostics
    labels = (*first.labels, Label(span, "for this call"))
    return DifflangError(Diagnostic(first.code, first.message, labels, first.helps, first.severity), *rest)


def unbound_extern_error(decl: tree.Fn, span: Span) -> DifflangError:
    """Errors: DL1231."""
    name, file = decl.name, decl.span.source.name
    way = f'bind it in Python: `difflang.load("{file}", externs={{"{name}": {name}}})`'
    message = f"no Python function is bound to `{name}`"
    return make_error("DL1231", message, (span, "called here"), (decl.name_span, "declared here"), help=way)


def check_exchange_types(decl: tree.Fn, types: dict[str, LangType], result: LangType) -> None:
    """Errors: DL0343 for argument and result types that do not exchange with Python."""
    for param in decl.params:
        if param.name in types and param.type is not None and (what := unsupported_part(types[param.name], text=True)):
            raise exchange_type_error(decl, f"`{decl.name}` takes {what}", param.type.span)
    if decl.result is not None and (what := unsupported_part(result, text=False)):
        raise exchange_type_error(decl, f"`{decl.name}` returns {what}", decl.result.span)


def exchange_type_error(decl: tree.Fn, message: str, span: Span) -> DifflangError:
    way = "only arrays, numbers, and records, tuples and enums of these can be passed to and from Python"
    return make_error("DL0343", f"{message}, but it is a function of Python", (span, ""), help=way)


def unsupported_part(type: LangType, *, text: bool) -> str:
    """The part of a type that does not exchange with Python, in words, or "". A known text does if `text` is set."""
    match type:
        case ClosureType() | FnType():
            return "a function"
        case RangeType() | HistoryType():
            return show_type(type)
        case TextType():
            return "" if text and not type.parts and type.number is None else "a text"
        case TupleType(items=inner) | SumType(options=inner) | RecordType(fields=inner) | VariantType(fields=inner):
            return next((found for t in inner if (found := unsupported_part(t, text=text))), "")
        case _:
            return ""
