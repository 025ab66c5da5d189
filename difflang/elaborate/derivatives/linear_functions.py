"""Linear functions: maps from `vjp` and `linearize`, and `transpose`.

A map is a closure over its residuals, so the primal is computed once for all calls. While a definition is checked,
sizes are names and nothing can be differentiated: a linear function is then known by its type alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from difflang.base.source import Span
from difflang.elaborate.calls.application import applies, linear_argument_error, pack_arguments
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.calls.lambdas import check_linear, elaborate_lambda, lambda_domain
from difflang.elaborate.context import ElabContext, Session
from difflang.elaborate.derivatives.tangents import (
    build_tangent,
    is_tangent_number,
    number_types,
    numbers_of,
    tag_count,
    tags_of,
    tangent_numbers_along,
)
from difflang.elaborate.derivatives.traced_functions import TracedFunction, trace_function, wrt_part
from difflang.elaborate.derivatives.wrt import WrtPath, gradient_record_type
from difflang.elaborate.dtype_resolution import resolve_dtypes
from difflang.elaborate.patterns.sum_types import widen_to_type
from difflang.elaborate.reports.derivative_losses import warn_if_lost
from difflang.elaborate.reports.linearity_errors import not_proved_linear_error, unknown_variant_error
from difflang.elaborate.reports.missing_result_tangents import require_differentiable_result
from difflang.elaborate.runtime_checks import absorb_failure
from difflang.elaborate.statements.printing import suppress_prints
from difflang.elaborate.terms import (
    Array,
    Closure,
    OpaqueTerm,
    Term,
    Tuple,
    leaves,
    term_from_leaves,
    type_of,
    with_leaves,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Graph, Value
from difflang.ops.control.call import call as call_op
from difflang.types.function_code import AscribedCode, DerivativeCode, LambdaCode, LinearMapCode
from difflang.types.join_types import least_common_type
from difflang.types.language_types import (
    FnType,
    LangType,
    TupleType,
    default_open_dtypes,
    leaf_types,
    show_type,
    tangent_type,
)
from difflang.types.type_errors import make_error

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


@applies(LinearMapCode)
def apply_map(cx: ElabContext, code: LinearMapCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    """Apply a map to a tangent; the parts of a tuple or of a record of gradients may be separate arguments."""
    if not args.items or args.named:
        raise cx.error("DL0404", f"this linear function takes {show_type(code.domain)}", args.span)
    given, span = args.items[0] if len(args.items) == 1 else (pack_arguments(code.domain, args), args.span)
    if not number_types(code.domain) or least_common_type(cx.unifier, code.domain, type_of(given)) != code.domain:
        raise linear_argument_error(code.domain, given, span)
    theirs, ours, residuals = split_captures(code, [v for t in captures for v in leaves(t)])
    given = widen_to_type(cx.builder, given, code.domain)
    numbers = tangent_numbers_along(cx, build_tangent(code.domain, theirs, map(Array, numbers_of(given))), given, span)
    cx.builder.span = span
    types = tuple([r.type for r in code.graph.results])
    owned = tuple(map(cx.builder.capture, [*residuals, *numbers]))
    results = cx.builder.append(call_op, owned, types, (code.graph,), name="linear")
    return build_tangent(code.gives, ours, map(Array, results))
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


LINEARIZE_HELP = "take the map from `linearize` at the value: there its variant is known"
