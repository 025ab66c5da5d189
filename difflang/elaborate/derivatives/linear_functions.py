"""Linear functions: maps from `vjp` and `linearize`, `transpose`, and linear lambdas with their proof of linearity.

A map is a closure over its residuals, so the primal is computed once for all calls. While a definition is checked,
sizes are names and nothing can be differentiated: a linear function is then known by its type alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec import Struct

from difflang.analysis.linearity import NotLinear, prove_linear
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.calls.function_calls import call_lambda, linear_argument_error, pack_arguments
from difflang.elaborate.calls.signatures import closure_sizes, constrain_function
from difflang.elaborate.context import AlreadyReported, ElabContext, Session
from difflang.elaborate.derivatives.grad_jvp_vjp import TracedFunction, gradient_record_type, trace_function, wrt_part
from difflang.elaborate.derivatives.tangents import (
    build_tangent,
    is_tangent_number,
    number_types,
    numbers_of,
    tag_count,
    tags_of,
    tangent_numbers_along,
)
from difflang.elaborate.derivatives.wrt import WrtPath
from difflang.elaborate.dtype_resolution import resolve_dtypes
from difflang.elaborate.instance_keys import static_facts
from difflang.elaborate.patterns.sum_types import widen_to_type
from difflang.elaborate.reports.derivative_losses import warn_if_lost
from difflang.elaborate.reports.linearity_errors import (
    not_a_vector_error,
    not_linear_error,
    not_proved_linear_error,
    unknown_domain_error,
)
from difflang.elaborate.reports.missing_tangents import require_differentiable_result
from difflang.elaborate.runtime_checks import absorb_failure
from difflang.elaborate.statements.printing import suppress_prints
from difflang.elaborate.statements.regions import close_regions
from difflang.elaborate.terms import (
    Array,
    Closure,
    OpaqueTerm,
    PoisonTerm,
    Term,
    Tuple,
    leaves,
    term_from_leaves,
    type_of,
    with_leaves,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.dtype_variables import DTypeVar, literal_dtype
from difflang.types.function_code import AscribedCode, DerivativeCode, LambdaCode, LinearMapCode, bind_generics
from difflang.types.join_types import least_common_type
from difflang.types.language_types import (
    FnType,
    LangType,
    TupleType,
    default_open_dtypes,
    leaf_types,
    prune_type,
    show_type,
    tangent_type,
)
from difflang.types.type_errors import DeferCheck, make_error

# ---- Maps


def linearize(cx: ElabContext, code: DerivativeCode, f: Term, args: CallArgs, wrt: Sequence[WrtPath]) -> Walk[Term]:
    """`linearize`: the value and the derivative as a linear map; `vjp`: the value and the transpose of that map."""
    traced = yield trace_function(cx, f, args, wrt)
    if traced.memory_limit and not args.span.in_library and not cx.root.implicit_derivative:
        way = (
            f"`grad` obeys the limit; for `{code.operator}`, remove `@memory` from the function and from "
            "the functions it calls"
        )
        message = f"`@memory` cannot limit the result of `{code.operator}`: a linear function keeps its residuals"
        raise make_error("DL1014", message, (args.span, ""), help=way)
    yield require_differentiable_result(cx, code.operator, f, traced, args, wrt)
    warn_if_lost(cx, f, traced, args, wrt)
    parts = [wrt_part(cx, args.items[position], path) for position, path in wrt]
    takes = gradient_record_type(code.wrt, [default_open_dtypes(tangent_type(type_of(part))) for part in parts])
    value, map = linearize_traced(cx, traced, takes, [tag for part in parts for tag in tags_of(part)], args.span)
    return Tuple((value, transpose_map(cx, map, args.span) if code.operator == "vjp" else map))


def linearize_traced(
    cx: ElabContext, traced: TracedFunction, takes: LangType, tags: Sequence[Value], span: Span
) -> tuple[Term, Term]:
    """The function's value at its points, and its derivative there: a map of tangents with the points' `tags`."""
    gives = default_open_dtypes(tangent_type(type_of(traced.result)))
    if cx.root.definition_only:
        # Sizes are names here, so nothing is differentiated: only the types matter.
        nowhere = [Value(v.type, cx.builder) for v in leaves(traced.result)]
        return with_leaves(traced.result, iter(nowhere)), OpaqueTerm(FnType((takes,), gives, linear=True))
    resolve_dtypes(traced.graph, cx.session.finalized_graphs)
    cx.builder.span = span
    # A late import: it loads the passes, which most checks of a file do not need.
    from difflang.ad.linear_maps import linearize_function

    parts = linearize_function(traced.graph, (True,) * len(traced.points) + (False,) * len(traced.consts))
    given = [*traced.points, *traced.consts]
    outs = cx.builder.inline(parts.primal, *given)
    results, residuals = outs[: len(traced.graph.results)], outs[len(traced.graph.results) :]
    if traced.fails:
        absorb_failure(cx, results[-3:], span)
    value, code = (
        with_leaves(traced.result, iter(results)),
        LinearMapCode(intern_graph(cx.session, parts.tangent), takes, gives),
    )
    return value, Closure(code, tuple(map(Array, [*tags, *tags_of(value), *residuals])))


def intern_graph(session: Session, graph: Graph) -> Graph:
    """The representative of structurally equal graphs: maps that compute the same have the same type."""
    return session.linear_maps.setdefault(session.keys.graph_key(graph), graph)


def apply_map(cx: ElabContext, code: LinearMapCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    """Apply a map to a tangent; the parts of a tuple or of a record of gradients may be separate arguments."""
    if not args.items or args.named:
        raise cx.error("DL0404", f"this linear function takes {show_type(code.domain)}", args.span)
    given, span = args.items[0] if len(args.items) == 1 else (pack_arguments(code.domain, args), args.span)
    if not number_types(code.domain) or least_common_type(cx.unifier, code.domain, type_of(given)) != code.domain:
        raise linear_argument_error(code.domain, given, span)
    theirs, ours, residuals = split_captures(code, [v for t in captures for v in leaves(t)])
    given = widen_to_type(cx.builder, given, code.domain)
    numbers = tangent_numbers_along(cx, build_tangent(code.domain, theirs, numbers_of(given)), given, span)
    cx.builder.span = span
    types = tuple([r.type for r in code.graph.results])
    owned = tuple(map(cx.builder.capture, [*residuals, *numbers]))
    results = cx.builder.append(OPS["call"], owned, types, (code.graph,), name="linear")
    return build_tangent(code.gives, ours, results)
    yield


CaptureT = TypeVar("CaptureT")


def split_captures(
    code: LinearMapCode, captures: Sequence[CaptureT]
) -> tuple[Sequence[CaptureT], Sequence[CaptureT], Sequence[CaptureT]]:
    """The captures of a map: the tags of its domain, those of its result, and its residuals."""
    first = tag_count(code.domain)
    second = first + tag_count(code.gives)
    return captures[:first], captures[first:second], captures[second:]


# ---- Transposition


# ---- Transposition


def transpose_function(cx: ElabContext, term: Term, span: Span, tags: Sequence[Value] = ()) -> Walk[Term]:
    """`transpose(L)` of a linear function; `tags` are those of its argument, where they are known.

    Errors: DL1102 for a function not proved linear, DL1103 for one of unknown domain, DL1107 for one of other tags.
    """
    match term:
        case Closure(code=LinearMapCode()) | OpaqueTerm(type=FnType(linear=True)):
            return transpose_map(cx, term, span)
        case Closure(code=AscribedCode(type=FnType(linear=True) as type), captures=(f,)):
            return (yield transpose_at_types(cx, f, type.params, span, tags))
        case Closure(code=LambdaCode() as code) if code.decl.linear:
            return (yield transpose_at_types(cx, term, lambda_domain(cx, code, term, span), span, tags))
        case _:
            raise not_proved_linear_error(term, span, "`transpose` takes a linear function")


def transpose_at_types(
    cx: ElabContext, f: Term, takes: Sequence[LangType], span: Span, tags: Sequence[Value] = ()
) -> Walk[Term]:
    """The transpose of a linear function that takes values of these types."""
    if isinstance(f, Closure) and isinstance(f.code, LambdaCode) and f.code.decl.linear:
        return transpose_map(cx, (yield lambda_as_map(cx, f, takes, span, tags)), span)
    return (yield transpose_function(cx, f, span, tags))


def transpose_map(cx: ElabContext, map: Term, span: Span) -> Term:
    """The transpose of a map. The transpose of the transpose is the map itself."""
    if isinstance(map, OpaqueTerm):
        params = map.type.params
        return OpaqueTerm(FnType((map.type.result,), params[0] if len(params) == 1 else TupleType(params), linear=True))
    assert isinstance(map, Closure) and isinstance(map.code, LinearMapCode)
    from difflang.ad.linear_maps import transpose_map

    code = map.code
    # The transposed map remembers the original graph, so transposing twice gives the same map.
    back = code.transposed or intern_graph(cx.session, transpose_map(code.graph, len(number_types(code.domain))))
    theirs, ours, residuals = split_captures(code, map.captures)
    return Closure(LinearMapCode(back, code.gives, code.domain, code.graph), (*ours, *theirs, *residuals))


def lambda_as_map(
    cx: ElabContext, f: Closure, takes: Sequence[LangType], span: Span, tags: Sequence[Value] = ()
) -> Walk[Term]:
    """A linear lambda as a map: it is its own derivative at any point, here at zero."""
    # Only a proved lambda may be replaced by its derivative at zero.
    yield check_linear(cx, f, takes, span)
    takes = [default_open_dtypes(t) for t in takes]
    whole = takes[0] if len(takes) == 1 else TupleType(tuple(takes))
    if cx.root.definition_only:
        body = yield elaborate_lambda(cx, f, takes, span)
        return OpaqueTerm(FnType(tuple(takes), body.gives, linear=True))
    cx.builder.span = span
    if len(tags) != tag_count(whole):
        raise unknown_variant_error("the parameter of a transposed linear lambda", span, LINEARIZE_HELP)
    rest = iter(tags)
    zeros = [
        term_from_leaves(
            t, [cx.builder.const(0, leaf) if is_tangent_number(leaf) else next(rest) for leaf in leaf_types(t)]
        )
        for t in takes
    ]
    with suppress_prints(cx):  # this is no call of the program
        traced = yield trace_function(
            cx, f, CallArgs(span, [(z, span) for z in zeros]), [(i, ()) for i in range(len(takes))]
        )
    return linearize_traced(cx, traced, whole, tags, span)[1]


def unknown_variant_error(what: str, span: Span, way: str) -> DifflangError:
    """The report of a linear equation whose number of unknowns depends on a variant that only the run selects."""
    message = f"{what} contains an enum or a function whose variant is known only at run time"
    return make_error("DL1107", message, (span, "another variant has different numbers"), help=way)


LINEARIZE_HELP = "take the map from `linearize` at the value: there its variant is known"


# ---- Linear lambdas


def lambda_domain(cx: ElabContext, code: LambdaCode, f: Closure, span: Span, *, rigid: bool = False) -> list[LangType]:
    """The declared parameter types of a linear lambda. Errors: DL1103."""
    if any(p.type is None for p in code.decl.params):
        raise unknown_domain_error(code, span)
    bound, generics = {**cx.annotations.bound}, {**cx.annotations.generics}
    inner = AnnotationResolver(cx.unifier, code.module.records.get, bound, generics, rigid)
    with bind_generics(inner, code.enclosing_generics, closure_sizes(code, f.captures)):
        return [inner.type(p.type) for p in code.decl.params if p.type is not None]


# ---- Linear lambdas


def apply_linear_lambda(cx: ElabContext, code: LambdaCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    """Apply a linear lambda, after proving it linear once for each kind of arguments."""
    items = args.items
    if len(items) == 1 and len(code.decl.params) > 1 and isinstance(items[0][0], Tuple):
        args = CallArgs(args.span, [(t, args.span) for t in items[0][0].items])
    if len(args.items) == len(code.decl.params) and not args.named:
        types = [type_of(t) for t, _ in args.items]
        yield check_linear(cx, Closure(code, captures), types, args.span)
    return (yield call_lambda(cx, code, captures, args))


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


# ---- Proofs that lambdas are linear


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
