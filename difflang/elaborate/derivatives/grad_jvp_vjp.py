"""Applies the derivative operators `grad`, `value_and_grad`, `jvp` and `vjp`: traces f and emits one equation.

The `jvp` or `vjp` equation holds f's graph as its region; the pass in `ad` expands it later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from difflang.base.byte_sizes import tightest_limit
from difflang.base.source import NO_SPAN, Span
from difflang.elaborate.calls.application import applies, apply
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.calls.signatures import is_dim, signature_annotations
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.derivatives.tangents import tangent_numbers_along
from difflang.elaborate.derivatives.wrt import WrtPath, check_distinct, positional_arguments, resolve_wrt
from difflang.elaborate.patterns.sum_types import widen_to_type
from difflang.elaborate.reports.derivative_losses import warn_if_lost
from difflang.elaborate.runtime_checks import absorb_failure
from difflang.elaborate.statements.printing import suppress_prints
from difflang.elaborate.statements.regions import close_regions
from difflang.elaborate.terms import (
    UNIT_TERM,
    Array,
    Closure,
    KeyTerm,
    OpaqueTerm,
    PoisonTerm,
    RecordTerm,
    SumTerm,
    Term,
    Tuple,
    VariantTerm,
    closure_type,
    leaves,
    record_of_fields,
    type_of,
    variant_of_fields,
    with_leaves,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Graph, Value, Values
from difflang.ir.op import OPS
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.types.dtype_variables import DTypeVar, default_dtype, prune_dtype
from difflang.types.function_code import AscribedCode, DerivativeCode, FnCode, LambdaCode, Wrt
from difflang.types.join_types import has_tangent_in_other_variant, least_common_type
from difflang.types.language_types import LangType, RecordType, VariantType, leaf_types, show_type, tangent_type
from difflang.types.unify import narrow_candidates


class TracedFunction(Struct, frozen=True):
    """A function's graph over the numbers that it is differentiated with respect to; all else it reads is a const."""

    graph: Graph
    points: list[Value]  # the primal values at which the derivative is taken
    consts: list[Value]
    result: Term  # over the graph's own values
    fails: bool
    branch_elided: bool  # a static condition left a branch of the function out
    # The memory budget, in bytes, of a program with a reverse-mode derivative of it; 0 for none.
    memory_limit: int = 0


@applies(DerivativeCode)
def apply_derivative(cx: ElabContext, code: DerivativeCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    """Apply `grad[w](f)` or another derivative operator; errors point to the `[w]`."""
    from difflang.elaborate.reports.missing_tangents import MissingTangentError

    (f,) = captures
    try:
        return (yield apply_operator(cx, code, f, args))
    except MissingTangentError as error:
        raise error.at_wrt_span(code.wrt_spans) from None


def apply_operator(cx: ElabContext, code: DerivativeCode, f: Term, args: CallArgs) -> Walk[Term]:
    from difflang.elaborate.derivatives import jacobians, linear_functions, taylor_coefficients
    from difflang.elaborate.derivatives.scalar_derivative import scalar_derivative
    from difflang.elaborate.reports.missing_tangents import require_differentiable_result, require_real_result

    if args.named:
        args = yield positional_arguments(cx, f, args)
    if code.operator in ("hvp", "hessian"):
        return (
            yield (jacobians.hessian_vector_product if code.operator == "hvp" else jacobians.hessian)(cx, code, f, args)
        )
    wrt, operator = [resolve_wrt(cx, f, w, args.span) for w in code.wrt], code.operator
    check_distinct(cx, code.wrt, wrt, args.span)
    tangents: list[tuple[Term, Span]] = []
    if operator == "jvp":
        tangents = args.items[len(args.items) - len(wrt) :] if len(args.items) > len(wrt) else []
        args = CallArgs(args.span, args.items[: len(args.items) - len(wrt)])
        if not tangents:
            message, way = (
                "`jvp` takes the arguments, then one tangent for each argument that it differentiates",
                "write `jvp(f)(x, dx)`",
            )
            raise cx.error("DL0404", message, args.span, "", way)
    args = yield positional_arguments(cx, f, args, 1 + max(position for position, _ in wrt))
    for position, _ in wrt:
        if position >= len(args.items):
            raise cx.error("DL0403", f"there is no argument {position} to differentiate with respect to", args.span)
    unify_parameter_types(cx, f, args.items)
    if operator in ("vjp", "linearize"):
        return (yield linear_functions.linearize(cx, code, f, args, wrt))
    if operator in ("jacobian", "jacfwd", "jacrev"):
        return (yield jacobians.jacobian(cx, code, f, args, wrt))
    if operator == "jet":
        return (yield taylor_coefficients.taylor_coefficients(cx, code, f, args, wrt))
    if operator == "deriv":
        return (yield scalar_derivative(cx, f, args, wrt))
    traced = yield trace_function(cx, f, args, wrt)
    if operator == "jvp":
        yield require_differentiable_result(cx, operator, f, traced, args, wrt)
        warn_if_lost(cx, f, traced, args, wrt)
        return apply_jvp(cx, traced, args, wrt, tangents)
    yield require_real_result(cx, str(code), f, traced, args, wrt)
    warn_if_lost(cx, f, traced, args, wrt)
    return apply_grad(cx, traced, args, wrt, code, with_value=operator == "value_and_grad")


def unify_parameter_types(cx: ElabContext, f: Term, items: Sequence[tuple[Term, Span]]) -> None:
    """Unify literals with the parameter types. Mismatches are reported later, by the call."""
    while isinstance(f, Closure) and isinstance(f.code, DerivativeCode):
        (f,) = f.captures
    match f:
        case Closure(code=AscribedCode(type=type)):
            for wanted, (term, _) in zip(type.params, items, strict=False):
                cx.unifier.same(wanted, type_of(term))
            return
        case Closure(code=FnCode() | LambdaCode() as code, captures=captures):
            annotations = signature_annotations(cx, code, captures)
            for param, (term, _) in zip(code.decl.params, items, strict=False):
                if param.type is not None and not is_dim(param.type):
                    annotations.match(param.type, type_of(term))
        case _:
            return


def apply_with_one_key(cx: ElabContext, f: Term, args: CallArgs) -> Walk[tuple[Term, Value | None]]:
    """The function's value, and the random key it used, if it draws: applying it again must use the same key."""
    before, key, cx.root.output_suppressed = cx.root.draw_count, None, False
    with suppress_prints(cx):
        value = yield apply(cx, f, CallArgs(args.span, list(args.items)))
    drawn = cx.root.draw_count > before
    if drawn or cx.root.output_suppressed:
        key = cx.draw_key(args.span) if drawn else None
        with cx.with_random_key(key):
            value = yield apply(cx, f, CallArgs(args.span, list(args.items)))
    return value, key


# ---- The graph of the function


def trace_function(cx: ElabContext, f: Term, args: CallArgs, wrt: Sequence[WrtPath]) -> Walk[TracedFunction]:
    """Elaborate the function in a region whose params are the numbers it is differentiated with respect to."""
    from difflang.elaborate.reports.missing_tangents import argument_without_tangent

    points: list[Value] = []
    items = list(args.items)
    if cx.loop_yields:
        cx.loop_yields.append(None)
    before, chosen, limit = cx.failure_word.term, cx.root.chosen, cx.root.memory_limit
    # Save and reset what the function may change: its failures and limits are those of the traced graph.
    cx.root.chosen, cx.root.memory_limit = False, 0
    with cx.nested_graph(args.span) as builder:
        for position, path in wrt:
            term, span = items[position]
            found = len(points)
            items[position] = (replace_with_params(cx, term, path, points, span), span)
            if len(points) == found and not isinstance(term, (Closure, OpaqueTerm)):
                part = type_of(wrt_part(cx, items[position], path))
                if not has_tangent_in_other_variant(cx.unifier, part):
                    raise argument_without_tangent(f, args, wrt, (position, path), part)
        cx.root.derivative_depth += 1
        try:
            result = yield apply(cx, f, CallArgs(args.span, items))
            word = leaves(cx.failure) if cx.failure_word.term is not before else []
        finally:
            cx.root.derivative_depth -= 1
            cx.failure_word.term = before
            inside, cx.root.chosen = cx.root.chosen, cx.root.chosen or chosen
            within, cx.root.memory_limit = cx.root.memory_limit, tightest_limit(cx.root.memory_limit, limit)
            if cx.loop_yields:
                cx.loop_yields.pop()
    if isinstance(result, PoisonTerm):
        raise AlreadyReported
    default_result_dtypes(cx, result)
    consts, (graph,) = close_regions([builder], [[*leaves(result), *word]], [builder.params], [len(builder.params)])
    return TracedFunction(graph, points, consts, result, bool(word), inside, within)


def replace_with_params(cx: ElabContext, term: Term, path: tuple[str, ...], points: list[Value], span: Span) -> Term:
    """The argument with its differentiable numbers (under a path of fields) replaced by params of the region."""
    if path:
        inner = record_field(cx, term, path[0], span)
        assert isinstance(term, RecordTerm)
        return term.with_field(path[0], replace_with_params(cx, inner, path[1:], points, span))
    match term:
        case Array():
            if not is_differentiable(term):
                return term
            points.append(term.value)
            return Array(cx.builder.param(term.tensor, term.value.hint), origin=term.origin)
        case Tuple():
            return Tuple(tuple([replace_with_params(cx, t, (), points, span) for t in term.items]), term.function_type)
        case RecordTerm():
            return record_of_fields(
                term.type, tuple([replace_with_params(cx, t, (), points, span) for t in term.fields])
            )
        case VariantTerm():
            return variant_of_fields(
                term.type, tuple([replace_with_params(cx, t, (), points, span) for t in term.fields])
            )
        case SumTerm():
            return SumTerm(term.tag, tuple([replace_with_params(cx, t, (), points, span) for t in term.parts]))
        case Closure():
            return Closure(term.code, tuple([replace_with_params(cx, t, (), points, span) for t in term.captures]))
        case _:
            return term


def record_field(cx: ElabContext, term: Term, name: str, span: Span) -> Term:
    """A field of an argument. Errors: DL0403 if it does not exist."""
    if not isinstance(term, RecordTerm) or name not in term.type.names:
        has = f"it has {', '.join(term.type.names)}" if isinstance(term, RecordTerm) else "it is not a record"
        what = show_type(type_of(term))
        raise cx.error("DL0403", f"{what} has no field `{name}`", span, f"this is {what}", has)
    return term.field(name)


def wrt_part(cx: ElabContext, item: tuple[Term, Span], path: tuple[str, ...]) -> Term:
    """The part of an argument that a derivative is taken with respect to. Errors: DL0403."""
    term, span = item
    for name in path:
        term = record_field(cx, term, name, span)
    return term


def is_differentiable(term: Array) -> bool:
    """Whether an array has a tangent; a literal becomes a float."""
    dtype = prune_dtype(term.tensor.dtype)
    if isinstance(dtype, DTypeVar):
        return narrow_candidates(dtype, [c for c in dtype.candidates if c.is_float or dtype.is_complex])
    return dtype.differentiable


def default_result_dtypes(cx: ElabContext, result: Term) -> None:
    """Give open element types in a result their defaults: whether it has a tangent must be known now."""
    for leaf in leaf_types(type_of(result)):
        default_dtype(leaf.dtype)


# ---- Reverse mode


def apply_grad(
    cx: ElabContext,
    traced: TracedFunction,
    args: CallArgs,
    wrt: Sequence[WrtPath],
    code: DerivativeCode,
    *,
    with_value: bool,
) -> Term:
    result = traced.result
    assert isinstance(result, Array)
    cx.builder.span = args.span
    one = cx.builder.const(1, result.tensor)
    values, cts = emit_vjp(cx, traced, [one], args.span)
    parts = iter(cts)
    grads = [cotangent_term(cx, args.items[p][0], path, parts) for p, path in wrt]
    found = gradient_record(code.wrt, grads)
    return Tuple((Array(values[0]), found)) if with_value else found


# The name of a record of several gradients.
GRAD_RECORD = tree.Record(NO_SPAN, "grad", NO_SPAN, (), ())


def gradient_record(wrt: Sequence[Wrt], grads: Sequence[Term]) -> Term:
    """Several gradients as a record with the names of their parameters or fields; one gradient as it is."""
    type = gradient_record_type(wrt, [type_of(g) for g in grads])
    return RecordTerm(type, tuple(grads)) if len(grads) != 1 and isinstance(type, RecordType) else grads[0]


def gradient_record_type(wrt: Sequence[Wrt], types: Sequence[LangType]) -> LangType:
    if len(types) == 1:
        return types[0]
    names = tuple(str(w[-1]) if isinstance(w[-1], str) else f"_{w[0]}" for w in wrt)
    return RecordType(GRAD_RECORD, names, tuple(types), tangent=True)


def emit_vjp(cx: ElabContext, traced: TracedFunction, cts: Sequence[Value], span: Span) -> tuple[Values, Values]:
    """The `vjp` equation: the function's results, and a cotangent for each point."""
    wrt = (True,) * len(traced.points) + (False,) * len(traced.consts)
    attrs = {"limit": traced.memory_limit} if traced.memory_limit else {}
    return emit_derivative(cx, "vjp", traced, cts, [p.type for p in traced.points], wrt, span, **attrs)


def emit_derivative(
    cx: ElabContext,
    op: str,
    traced: TracedFunction,
    extra: Sequence[Value],
    types: Sequence[object],
    wrt: tuple[bool, ...],
    span: Span,
    **attrs: Any,
) -> tuple[Values, Values]:
    """A derivative equation. A failure inside the function is passed on to the current one."""
    cx.builder.span = span
    operands = tuple(map(cx.builder.capture, [*traced.points, *traced.consts, *extra]))
    results = tuple(r.type for r in traced.graph.results)
    all_types = (*results, *[t for t in types if isinstance(t, Tensor)])
    found = cx.builder.append(OPS[op], operands, all_types, (traced.graph,), wrt=wrt, **attrs)
    if traced.fails:
        absorb_failure(cx, found[len(results) - 3 : len(results)], span)
    return found[: len(results)], found[len(results) :]


def cotangent_term(cx: ElabContext, term: Term, path: tuple[str, ...], parts: Iterator[Value]) -> Term:
    """The cotangent of an argument, or of the field at `path`, as a term of its tangent type."""
    if path:
        assert isinstance(term, RecordTerm)
        return cotangent_term(cx, term.field(path[0]), path[1:], parts)
    return tangent_term(term, parts)


def tangent_term(term: Term, parts: Iterator[Value]) -> Term:
    """A term of type `D(type_of(term))` whose leaves are these values."""
    match term:
        case Array():
            return Array(next(parts)) if prune_dtype(term.tensor.dtype).differentiable else UNIT_TERM
        case Tuple():
            return Tuple(tuple([tangent_term(t, parts) for t in term.items]), term.function_type)
        case Closure():
            return Tuple(tuple([tangent_term(t, parts) for t in term.captures]), closure_type(term))
        case SumTerm():
            return SumTerm(term.tag, tuple([tangent_term(t, parts) for t in term.parts]))
        case VariantTerm():
            inside = [(n, tangent_term(t, parts)) for n, t in zip(term.type.names, term.fields, strict=True)]
            of_variant = tangent_type(term.type)
            assert isinstance(of_variant, VariantType)
            return variant_of_fields(of_variant, tuple(t for n, t in inside if n in of_variant.names))
        case RecordTerm():
            type = tangent_type(term.type)
            assert isinstance(type, RecordType)
            pairs = [(n, tangent_term(t, parts)) for n, t in zip(term.type.names, term.fields, strict=True)]
            return record_of_fields(type, tuple(t for n, t in pairs if n in type.names))
        case KeyTerm():
            return UNIT_TERM
        case _:
            return UNIT_TERM


# ---- Forward mode


def apply_jvp(
    cx: ElabContext,
    traced: TracedFunction,
    args: CallArgs,
    wrt: Sequence[WrtPath],
    tangents: Sequence[tuple[Term, Span]],
) -> Term:
    """`jvp`: the value, and its derivative along the tangents."""
    given: list[Value] = []
    for (position, path), (tangent, span) in zip(wrt, tangents, strict=True):
        term = wrt_part(cx, args.items[position], path)
        wanted = tangent_type(type_of(term))
        if least_common_type(cx.unifier, wanted, type_of(tangent)) != wanted:
            raise cx.error(
                "DL0404",
                f"the tangent of {show_type(type_of(term))} is {show_type(wanted)}",
                span,
                f"this is {show_type(type_of(tangent))}",
            )
        given += tangent_numbers_along(cx, term, widen_to_type(cx.builder, tangent, wanted), span)
    values, changes = emit_jvp(cx, traced, given, args.span)
    value = with_leaves(traced.result, iter(values))
    return Tuple((value, tangent_term(value, iter(changes))))


def emit_jvp(
    cx: ElabContext, traced: TracedFunction, tangents: Sequence[Value], span: Span, only: int | None = None
) -> tuple[Values, Values]:
    """The `jvp` equation: results and their tangents, with respect to all points or to the point `only`."""
    wrt = (*[only is None or i == only for i in range(len(traced.points))], *[False] * len(traced.consts))
    types = [r.type for r in traced.graph.results]
    moving = [t for t in types if isinstance(t, Tensor) and prune_dtype(t.dtype).differentiable]
    return emit_derivative(cx, "jvp", traced, tangents, moving, wrt, span)
