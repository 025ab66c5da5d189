"""Calls of lambdas, which are inlined, and their limits."""

from __future__ import annotations

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.calls.signatures import closure_sizes, count_arguments
from difflang.elaborate.context import ElabContext, elaborate
from difflang.elaborate.expressions.names import bind_host_constants, bind_pattern
from difflang.elaborate.instance_keys import MAX_LAMBDA_DEPTH, RECOMPILED_HELP
from difflang.elaborate.scope import BlockScope
from difflang.elaborate.statements.desugar_jumps import desugar_function
from difflang.elaborate.terms import Closure, Term, type_of
from difflang.elaborate.trampoline import Walk
from difflang.syntax.tree_queries import mentioned_names
from difflang.types.function_code import LambdaCode, bind_generics
from difflang.types.type_errors import declared_type_error, make_error

# Lambdas are inlined, so nested calls can grow a graph exponentially: this many in one graph is an error.
MAX_LAMBDA_CALLS = 50_000


def lambda_limit_error(cx: ElabContext, span: Span) -> DifflangError:
    message = f"lambdas are expanded here more than {MAX_LAMBDA_CALLS:,} times"
    way = "replace lambdas that call others with functions: a `fn` is compiled once"
    if (why := nested_closures_note(cx)) is not None:
        message, way = f"{message}: {why}", RECOMPILED_HELP
    return cx.error("DL1010", message, span, "", way)


def nested_closures_note(cx: ElabContext) -> str | None:
    """The note for a function that calls itself with ever new closures, each a new instance; else None."""
    makings = cx.session.in_progress.stack
    same = [m for m in makings if m.code.decl is makings[-1].code.decl]
    return f"`{same[-1].code}` is called with functions built from one another" if len(same) > 1 else None


def call_lambda(cx: ElabContext, code: LambdaCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    params = code.decl.params
    if len(args.items) != len(params) or args.named:
        raise make_error(
            "DL0319",
            f"this lambda takes {count_arguments(len(params))}, not {len(args.items)}",
            (args.span, ""),
            (code.decl.span, "defined here"),
        )
    if cx.lambda_depth >= MAX_LAMBDA_DEPTH:
        message, way = (
            f"lambdas call each other deeper than {MAX_LAMBDA_DEPTH} levels",
            "turn an inner part into a `fn`",
        )
        if (why := nested_closures_note(cx)) is not None:
            message, way = f"{message}: {why}", RECOMPILED_HELP
        elif code.decl.span.contains(args.span) and not any(isinstance(t, Closure) for t in captures):
            message = "this lambda calls itself, so it may never end"
            way = (
                "a recursive function must be declared: `fn f(x: f64) -> f64 { … }`, with a branch that "
                "does not call itself"
            )
        raise cx.error("DL1002", message, args.span, "", way)
    # Counted per graph: a lambda inside a `fn` is inlined once for each of its instances.
    cx.root.lambda_calls += 1
    if cx.root.lambda_calls > MAX_LAMBDA_CALLS:
        raise lambda_limit_error(cx, args.span)
    outer, module, result = cx.scope, cx.module, cx.root.result
    # A lambda sees its captures, not the scope of the call.
    scope = BlockScope()
    for name, term in zip(code.names, captures, strict=True):
        scope.bind(name, term)
    bind_host_constants(cx, scope, code)
    cx.scope, cx.module, cx.lambda_depth, cx.root.result = BlockScope(scope), code.module, cx.lambda_depth + 1, None
    try:
        with bind_generics(cx.annotations, code.enclosing_generics, closure_sizes(code, captures)):
            for param, (term, span) in zip(params, args.items, strict=True):
                if param.type is not None and not cx.annotations.match(param.type, type_of(term)):
                    way = "a size in the type of a lambda stands for one fixed size: leave out the type, or use a `fn`"
                    way = way if set(mentioned_names(param.type)).intersection(cx.annotations.bound) else ""
                    raise declared_type_error(param.type, type_of(term), span, "the argument", way)
                bind_pattern(cx, param.pattern, term, span)
            return (yield elaborate(cx, desugar_function(code.decl.body)))
    finally:
        cx.scope, cx.module, cx.lambda_depth, cx.root.result = outer, module, cx.lambda_depth - 1, result
