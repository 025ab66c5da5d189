"""Calls of declared functions: each is a graph of its own, elaborated once for each specialization."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.calls import extern_calls, recursion
from difflang.elaborate.calls.application import applies, placeholder_term
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.calls.checked_calls import checked_call
from difflang.elaborate.calls.lambdas import infer_sizes_from_bodies, prove_linear_arguments
from difflang.elaborate.calls.signatures import (
    default_value,
    has_open_names,
    has_static_sizes,
    match_arguments,
    match_parameters,
    signature_annotations,
)
from difflang.elaborate.context import ElabContext
from difflang.elaborate.derivatives.custom_rules import call_with_rule, rule_of
from difflang.elaborate.host_sizes import retry_with_host_sizes
from difflang.elaborate.instance_keys import instance_key
from difflang.elaborate.mesh_axes import lay_out_arguments, lay_out_result
from difflang.elaborate.reports.name_errors import hidden_builtin_help
from difflang.elaborate.specialization import emit_call, instantiate
from difflang.elaborate.statements.decorators import apply_memory_limit
from difflang.elaborate.terms import Term
from difflang.elaborate.trampoline import Walk
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.function_code import FnCode
from difflang.types.language_types import FnType
from difflang.types.suggested_fixes import add_helps
from difflang.types.type_errors import make_error


@applies(FnCode)
def call_function(cx: ElabContext, code: FnCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    """A call: match the arguments, then call the instance for their types and sizes."""
    decl = code.decl
    if decl.host:
        if cx.host is None:
            raise make_error(
                "DL0322",
                f"`{decl.name}` is a host function: a compiled function cannot call it",
                (args.span, ""),
                (decl.name_span, "declared with `host fn`"),
                help="call it at the top level, and pass its result as an argument",
            )
        return (yield cx.host.call(cx, code, args))
    # Defaults are evaluated at each call, in the module of the declaration.
    defaults = {p.name: p.default for p in decl.params if p.default is not None}
    with mention_hidden_builtin(cx, decl):
        given = match_arguments(cx, args, decl.name, [p.name for p in decl.params], defaults, decl.name_span)
    for name, default in defaults.items():
        if name not in given:
            given[name] = ((yield default_value(cx, code, default)), default.span)
    annotations = signature_annotations(cx, code, captures)
    with mention_hidden_builtin(cx, decl):
        terms = match_parameters(cx, decl, given, annotations)
    yield infer_sizes_from_bodies(cx, decl, terms, {name: span for name, (_, span) in given.items()}, annotations)
    yield prove_linear_arguments(cx, list(terms.values()))

    def call_with(terms: dict[str, Term]) -> Walk[Term]:
        return call_specialized(cx, code, captures, terms, annotations, args.span)

    if cx.root.definition_only and cx.host is not None and has_static_sizes(annotations, captures, terms):
        # While host code is checked, a call with static sizes is specialized as it will be when it runs.
        cx.root.definition_only = False
        try:
            return (yield retry_with_host_sizes(cx, terms, call_with))
        finally:
            cx.root.definition_only = True
    declared = None if isinstance(decl.result, tree.TypeFn) or has_open_names(decl) else decl.result
    if cx.root.definition_only and not cx.root.follows_calls and declared is not None:
        result = annotations.type(declared)
        if not isinstance(result, FnType):
            cx.root.calls.add(decl)
            apply_memory_limit(cx, decl.attributes)
            lay_out_arguments(cx, code.module, decl, given)
            found = yield checked_call(cx, code, captures, terms, annotations, result, args.span)
            return lay_out_result(cx, code.module, decl, found)
    return (yield retry_with_host_sizes(cx, terms, call_with))


@contextmanager
def mention_hidden_builtin(cx: ElabContext, decl: tree.Fn) -> Generator[None]:
    """Add to a report of arguments that do not fit that the function has the name of a built-in, which they may fit."""
    try:
        yield
    except DifflangError as error:
        raise add_helps(error, [hidden_builtin_help(cx, decl)]) from None


def call_specialized(
    cx: ElabContext,
    code: FnCode,
    captures: tuple[Term, ...],
    terms: dict[str, Term],
    annotations: AnnotationResolver,
    span: Span,
) -> Walk[Term]:
    """Call the instance for these types and sizes, by its derivative rule if it has one."""
    decl = code.decl
    terms = recursion.widen_variant_arguments(cx, code, captures, terms, annotations)
    given = [*captures, *terms.values()]
    making = cx.session.in_progress.find(instance_key(cx, code, captures, terms, annotations))
    start = cx.session.unreachable_from
    if start is not None and (making or any(m.code.decl is decl for m in cx.session.in_progress.stack[start:])):
        return placeholder_term(cx, recursion.declared_result_type(cx, code, annotations, span))
    if making is not None and not cx.root.definition_only:
        return recursion.open_recursive_call(cx, making, given, annotations, span)
    if cx.root.definition_only and cx.session.in_progress.is_left_out(decl):
        return placeholder_term(cx, recursion.declared_result_type(cx, code, annotations, span))
    rule = rule_of(code)
    if rule is not None and (not cx.root.definition_only or cx.root.follows_calls):
        return (yield call_with_rule(cx, code, rule, terms, annotations, span))
    if isinstance(decl.body, tree.Foreign):
        return extern_calls.call_extern(cx, decl, code.module, terms, annotations, span)
    instance = yield instantiate(cx, code, captures, terms, annotations, span)
    # Elaborating the instance may have found that its group is to be generalized.
    if recursion.widen_variant_arguments(cx, code, captures, terms, annotations) is not terms:
        return (yield call_specialized(cx, code, captures, terms, annotations, span))
    making = cx.session.in_progress.incomplete_for(instance)
    if making is not None and not cx.root.definition_only:
        return recursion.open_recursive_call(cx, making, given, annotations, span)
    return emit_call(cx, code, instance, given, span)
