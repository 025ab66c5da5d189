"""Applies the derivative operators; `grad`, `value_and_grad` and `jvp` here, the others in modules of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from difflang.base.source import Span
from difflang.elaborate.calls.application import applies
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.calls.signatures import is_dim, signature_annotations
from difflang.elaborate.context import ElabContext
from difflang.elaborate.derivatives.jacobians import hessian, hessian_vector_product, jacobian
from difflang.elaborate.derivatives.linear_functions import linearize
from difflang.elaborate.derivatives.scalar_derivative import scalar_derivative, taylor_coefficients
from difflang.elaborate.derivatives.tangents import tangent_numbers_along, tangent_term
from difflang.elaborate.derivatives.traced_functions import (
    TracedFunction,
    emit_jvp,
    emit_vjp,
    of_loss,
    trace_function,
    wrt_part,
)
from difflang.elaborate.derivatives.wrt import (
    WrtPath,
    check_distinct,
    gradient_record_type,
    positional_arguments,
    resolve_wrt,
)
from difflang.elaborate.patterns.sum_types import widen_to_type
from difflang.elaborate.reports.derivative_losses import warn_if_lost
from difflang.elaborate.reports.missing_result_tangents import require_differentiable_result, require_real_result
from difflang.elaborate.reports.missing_tangents import MissingTangentError
from difflang.elaborate.terms import Array, Closure, RecordTerm, Term, Tuple, type_of, with_leaves
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.types.function_code import AscribedCode, DerivativeCode, FnCode, LambdaCode, Wrt
from difflang.types.join_types import least_common_type
from difflang.types.language_types import RecordType, show_type, tangent_type


@applies(DerivativeCode)
def apply_derivative(cx: ElabContext, code: DerivativeCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    """Apply `grad[w](f)` or another derivative operator; errors point to the `[w]`."""
    (f,) = captures
    try:
        return (yield apply_operator(cx, code, f, args))
    except MissingTangentError as error:
        raise error.at_wrt_span(code.wrt_spans) from None


def apply_operator(cx: ElabContext, code: DerivativeCode, f: Term, args: CallArgs) -> Walk[Term]:
    if args.named:
        args = yield positional_arguments(cx, f, args)
    if code.operator in ("hvp", "hessian"):
        return (yield (hessian_vector_product if code.operator == "hvp" else hessian)(cx, code, f, args))
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
        return (yield linearize(cx, code, f, args, wrt))
    if operator in ("jacobian", "jacfwd", "jacrev"):
        return (yield jacobian(cx, code, f, args, wrt))
    if operator == "jet":
        return (yield taylor_coefficients(cx, code, f, args, wrt))
    if operator == "deriv":
        return (yield scalar_derivative(cx, f, args, wrt))
    traced = yield trace_function(cx, f, args, wrt)
    if operator == "jvp":
        yield require_differentiable_result(cx, operator, f, traced, args, wrt)
        warn_if_lost(cx, f, traced, args, wrt)
        return apply_jvp(cx, traced, args, wrt, tangents)
    yield require_real_result(cx, str(code), f, traced, args, wrt)
    warn_if_lost(cx, f, of_loss(traced), args, wrt)
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
    """The gradient of a real result; of `(loss, …)` that of the loss, with all of it as the value."""
    result = traced.result
    loss = result.items[0] if isinstance(result, Tuple) else result
    assert isinstance(loss, Array)
    cx.builder.span = args.span
    one = cx.builder.const(1, loss.tensor)
    values, cts = emit_vjp(cx, traced, [one], args.span, only_first=isinstance(result, Tuple))
    parts = iter(cts)
    grads = [cotangent_term(cx, args.items[p][0], path, parts) for p, path in wrt]
    found = gradient_record(code.wrt, grads)
    return Tuple((with_leaves(result, iter(values)), found)) if with_value else found


def gradient_record(wrt: Sequence[Wrt], grads: Sequence[Term]) -> Term:
    """Several gradients as a record with the names of their parameters or fields; one gradient as it is."""
    type = gradient_record_type(wrt, [type_of(g) for g in grads])
    return RecordTerm(type, tuple(grads)) if len(grads) != 1 and isinstance(type, RecordType) else grads[0]


def cotangent_term(cx: ElabContext, term: Term, path: tuple[str, ...], parts: Iterator[Value]) -> Term:
    """The cotangent of an argument, or of the field at `path`, as a term of its tangent type."""
    if path:
        assert isinstance(term, RecordTerm)
        return cotangent_term(cx, term.field(path[0]), path[1:], parts)
    return tangent_term(term, parts)


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
