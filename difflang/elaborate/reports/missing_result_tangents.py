"""Reports of derivatives of results without a tangent, with the steps that lose it."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.analysis.zero_derivatives import DependencyStep, find_dropped_derivatives
from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.elaborate.calls.call_args import CallArgs, parameter_names
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.derivatives.tangents import has_tangent
from difflang.elaborate.derivatives.traced_functions import TracedFunction, is_real_scalar, trace_function
from difflang.elaborate.derivatives.wrt import WrtPath
from difflang.elaborate.reports.loss_messages import differentiable_substitute, loss_labels, loss_reason
from difflang.elaborate.terms import Array, Closure, Term, Tuple, leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.types.function_code import FnCode
from difflang.types.language_types import show_type
from difflang.types.type_errors import DeferCheck


def require_real_result(
    cx: ElabContext, operator: str, f: Term, traced: TracedFunction, args: CallArgs, wrt: Sequence[WrtPath]
) -> Walk[None]:
    """Errors: DL0402 for a gradient of a result that is not a real scalar, with the steps that lost the derivative."""
    result = traced.result
    if operator.startswith("value_and_grad") and isinstance(result, Tuple) and result.items:
        result = result.items[0]
    if is_real_scalar(result):
        return
    message = f"`{operator}` takes a function whose result is a real number"
    if isinstance(result, Array) and not result.tensor.shape and result.tensor.dtype.is_complex:
        way = "take `real` or `abs` of the result; `deriv` gives the complex derivative of a holomorphic function"
    elif operator == "grad" and isinstance(result, Tuple) and result.items and is_real_scalar(result.items[0]):
        way = "`value_and_grad` differentiates the first part of a tuple, and gives the others beside it"
    elif has_tangent(result):
        way = "take a `sum` of the result" + ", or use `jacobian` or `vjp`" * (operator != "hessian")
    else:
        way = "return a float: an integer or a bool has no derivative"
    raise (yield refused_derivative(cx, message, way, f, traced, args, wrt))


def require_differentiable_result(
    cx: ElabContext, operator: str, f: Term, traced: TracedFunction, args: CallArgs, wrt: Sequence[WrtPath]
) -> Walk[None]:
    """Errors: DL0402 for a result in which nothing has a tangent, with the steps that lost the derivative."""
    if not has_tangent(traced.result):
        what = show_type(type_of(traced.result))
        message = f"{what} has no derivative: `{operator}` takes functions that return floats"
        raise (yield refused_derivative(cx, message, "return a float as well", f, traced, args, wrt))


def result_label(f: Term) -> list[tuple[Span, str]]:
    """A label at the declared result type of a function."""
    declared = f.code.decl.result if isinstance(f, Closure) and isinstance(f.code, FnCode) else None
    return [(declared.span, "declared here")] if declared is not None else []


def refused_derivative(
    cx: ElabContext, message: str, way: str, f: Term, traced: TracedFunction, args: CallArgs, wrt: Sequence[WrtPath]
) -> Walk[DifflangError]:
    labels = [Label(args.span, f"this one returns {show_type(type_of(traced.result))}")]
    labels += [Label(span, text) for span, text in result_label(f)]
    if not has_tangent(traced.result):
        names = parameter_names(f)
        position = wrt[0][0]
        name = names[position] if position < len(names) and names[position] else "the argument"
        steps = yield losing_steps(cx, f, traced, args, wrt)
        labels += loss_labels(cx, steps, args.span, loss_reason, name)
        way = differentiable_substitute(steps[0].path[-1]) if steps else way
    return DifflangError(Diagnostic("DL0402", message, tuple(labels), (way,)))


def losing_steps(
    cx: ElabContext, f: Term, traced: TracedFunction, args: CallArgs, wrt: Sequence[WrtPath]
) -> Walk[list[DependencyStep]]:
    """The steps that lose the derivative. While a definition is checked, called functions are elaborated for this."""
    session = cx.session
    if cx.root.definition_only and not cx.root.follows_calls:
        reported, errors = len(session.diagnostics), session.errors
        # The definition's graph has placeholders for calls: trace again, with their bodies.
        cx.root.follows_calls = True
        try:
            traced = yield trace_function(cx, f, args, wrt)
        # This only improves a report: any trouble means no extra labels.
        except (DifflangError, AlreadyReported, DeferCheck, RecursionError):
            return []
        finally:
            cx.root.follows_calls = False
            del session.diagnostics[reported:]
            session.errors = errors
    found = find_dropped_derivatives(traced.graph, (1 << len(traced.points)) - 1, include_zero=False)[
        : len(leaves(traced.result))
    ]
    return list(dict.fromkeys(step for lost in found for step in lost))
