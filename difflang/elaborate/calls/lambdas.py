"""Lambdas: calls are inlined; a linear lambda is proved linear, once for each kind of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from difflang.analysis.linearity import NotLinear, prove_linear
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.calls.application import applies
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.calls.signatures import closure_sizes, constrain_function, count_arguments
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate
from difflang.elaborate.dtype_resolution import resolve_dtypes
from difflang.elaborate.expressions.names import bind_host_constants, bind_pattern
from difflang.elaborate.instance_keys import MAX_LAMBDA_DEPTH, RECOMPILED_HELP, static_facts
from difflang.elaborate.reports.linearity_errors import not_a_vector_error, not_linear_error, unknown_domain_error
from difflang.elaborate.scope import BlockScope
from difflang.elaborate.statements.desugar_jumps import desugar_function
from difflang.elaborate.statements.regions import close_regions
from difflang.elaborate.terms import Closure, PoisonTerm, Term, Tuple, leaves, term_from_leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Graph
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names
from difflang.types.annotations import AnnotationResolver
from difflang.types.dtype_variables import DTypeVar, literal_dtype
from difflang.types.function_code import AscribedCode, LambdaCode, bind_generics
from difflang.types.language_types import FnType, LangType, leaf_types, prune_type, show_type, tangent_type
from difflang.types.type_errors import DeferCheck, declared_type_error, make_error

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
        scope.names[name].is_captured = True
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


@applies(LambdaCode)
def apply_lambda(cx: ElabContext, code: LambdaCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    """Apply a lambda. A linear one also takes the items of a tuple one by one."""
    if code.decl.linear:
        items = args.items
        if len(items) == 1 and len(code.decl.params) > 1 and isinstance(items[0][0], Tuple):
            args = CallArgs(args.span, [(t, args.span) for t in items[0][0].items])
        if len(args.items) == len(code.decl.params) and not args.named:
            yield check_linear(cx, Closure(code, captures), [type_of(t) for t, _ in args.items], args.span)
    return (yield call_lambda(cx, code, captures, args))


# ---- Proofs of linearity


def check_linear(cx: ElabContext, f: Closure, takes: Sequence[LangType], span: Span) -> Walk[None]:
    """Prove a linear lambda linear in arguments of these types. Errors: DL1101 at the nonlinear step."""
    assert isinstance(f.code, LambdaCode)
    types = tuple(map(prune_type, takes))
    captured = tuple([prune_type(type_of(t)) for t in f.captures])
    key: Any = (f.code, types, captured, tuple(map(static_facts, f.captures)), cx.root.definition_only)
    if key in cx.session.proven_linear:
        return
    body: LambdaBody = yield elaborate_lambda(cx, f, types, span)
    graph = body.graph
    if not cx.root.definition_only and contains_derivatives(graph):
        from difflang.ad.expand_derivatives import expand_derivatives

        resolve_dtypes(graph, cx.session.finalized_graphs)
        # The proof knows ordinary ops only.
        graph = expand_derivatives(graph)
    try:
        prove_linear(graph, body.linear_params)
    except NotLinear as fault:
        raise not_linear_error(fault, f.code.decl) from None
    if not any(isinstance(t.dtype, DTypeVar) for type in (*types, *captured) for t in leaf_types(type)):
        cx.session.proven_linear.add(key)


def contains_derivatives(graph: Graph) -> bool:
    """Whether a graph or its regions contain a derivative equation."""
    seen, todo = {graph}, [graph]
    while todo:
        for eqn in todo.pop().eqns:
            if eqn.op.is_derivative:
                return True
            todo += [g for g in eqn.regions if g not in seen]
            seen.update(eqn.regions)
    return False


class LambdaBody(Struct, frozen=True):
    """The graph of a lambda, which of its params are the lambda's own, and its result type."""

    graph: Graph
    linear_params: tuple[bool, ...]
    gives: LangType


def elaborate_lambda(cx: ElabContext, f: Closure, takes: Sequence[LangType], span: Span) -> Walk[LambdaBody]:
    """Elaborate a lambda for arguments of these types, apart from the current graph."""
    assert isinstance(f.code, LambdaCode)
    before, draws = cx.failure_word.term, cx.root.draw_count
    if cx.loop_yields:
        cx.loop_yields.append(None)
    try:
        with cx.nested_graph(span) as builder:
            args = CallArgs(span)
            for type in takes:
                if type != tangent_type(type):
                    raise not_a_vector_error(f.code.decl, show_type(type), span)
                args.items.append((term_from_leaves(type, [builder.param(t) for t in leaf_types(type)]), span))
            result = yield call_lambda(cx, f.code, f.captures, args)
            drawn = cx.root.draw_count > draws
    finally:
        cx.failure_word.term, cx.root.draw_count = before, draws
        if cx.loop_yields:
            cx.loop_yields.pop()
    check_linear_result(f.code, result, drawn)
    params = builder.params
    consts, (graph,) = close_regions([builder], [leaves(result)], [params], [len(params)])
    return LambdaBody(graph, (*[p.type.tangent is not None for p in params], *[False] * len(consts)), type_of(result))


def check_linear_result(code: LambdaCode, result: Term, drawn: bool) -> None:
    """Check that a linear function returns a vector and does not draw. Errors: DL1101."""
    if isinstance(result, PoisonTerm):
        raise AlreadyReported
    place = code.decl.body.span
    if drawn:
        way = "draw before, and use the result in the lambda"
        raise make_error("DL1101", "a linear function cannot draw random numbers", (place, "this draws"), help=way)
    type = type_of(result)
    if tangent_type(type) != type:
        raise make_error(
            "DL1101", "a linear function must return numbers that can be scaled", (place, f"this is {show_type(type)}")
        )


def infer_sizes_from_bodies(
    cx: ElabContext, decl: tree.Fn, terms: dict[str, Term], spans: dict[str, Span], annotations: AnnotationResolver
) -> Walk[None]:
    """Bind sizes in a declared linear type that only the body of the lambda argument determines."""
    for param in decl.params:
        term, type = terms.get(param.name), param.type
        lone = isinstance(term, Closure) and isinstance(term.code, LambdaCode) and term.code.decl.linear
        if not lone or not isinstance(type, tree.TypeFn) or not type.linear:
            continue
        written = type.param.items if isinstance(type.param, tree.TypeTuple) else (type.param,)
        try:
            takes = [annotations.type(w) for w in written]
        except (DifflangError, DeferCheck):
            continue
        assert isinstance(term, Closure)
        body: LambdaBody = yield elaborate_lambda(cx, term, takes, spans[param.name])
        if annotations.match(type.result, body.gives):
            terms[param.name] = constrain_function(type, term, spans[param.name], annotations, f"`{param.name}`")


def lambda_domain(cx: ElabContext, code: LambdaCode, f: Closure, span: Span, *, rigid: bool = False) -> list[LangType]:
    """The declared parameter types of a linear lambda. Errors: DL1103."""
    if any(p.type is None for p in code.decl.params):
        raise unknown_domain_error(code, span)
    bound, generics = {**cx.annotations.bound}, {**cx.annotations.generics}
    inner = AnnotationResolver(cx.unifier, code.module.records.get, bound, generics, rigid)
    with bind_generics(inner, code.enclosing_generics, closure_sizes(code, f.captures)):
        return [inner.type(p.type) for p in code.decl.params if p.type is not None]


def prove_annotated_lambda(cx: ElabContext, f: Closure) -> Walk[None]:
    """Prove a linear lambda with annotated parameters linear, whether it is ever applied or not.

    While a definition is checked, a size that only the arguments determine is a name of its own. A lambda without
    annotations is proved for scalars here, and again at each application.
    """
    assert isinstance(f.code, LambdaCode)
    decl, bound, checking = f.code.decl, dict(cx.annotations.bound), cx.root.definition_only
    if all(p.type is None for p in decl.params):
        return (yield prove_scalar_lambda(cx, f))
    if any(p.type is None for p in decl.params):
        return
    try:
        takes = lambda_domain(cx, f.code, f, decl.span, rigid=checking)
    except (DifflangError, DeferCheck) as error:
        if checking and isinstance(error, DifflangError):
            raise
        return
    try:
        yield check_linear(cx, f, takes, decl.span)
    except DeferCheck:
        return
    finally:  # in place: callers restore their bindings in the same table
        cx.annotations.bound.clear()
        cx.annotations.bound.update(bound)


def prove_scalar_lambda(cx: ElabContext, f: Closure) -> Walk[None]:
    """Report a lambda that accepts scalars and is not linear in them; ignore one that does not accept them."""
    assert isinstance(f.code, LambdaCode)
    decl, session = f.code.decl, cx.session
    reported, errors = len(session.diagnostics), session.errors
    try:
        yield check_linear(cx, f, [Tensor(literal_dtype(0.0, cx.module.default_float)) for _ in decl.params], decl.span)
    except DifflangError as error:
        if error.diagnostics[0].code == "DL1101":
            raise
    except (AlreadyReported, DeferCheck):
        return
    finally:
        del session.diagnostics[reported:]
        session.errors = errors


def prove_linear_arguments(cx: ElabContext, terms: Sequence[Term]) -> Walk[None]:
    """Prove linear the lambdas that are arguments for parameters of linear type."""
    for term in terms:
        match term:
            case Closure(code=AscribedCode(type=FnType(linear=True) as type), captures=(Closure() as f,)):
                if isinstance(f.code, LambdaCode) and f.code.decl.linear:
                    yield check_linear(cx, f, type.params, f.code.decl.span)
            case _:
                pass
