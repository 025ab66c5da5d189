"""Reports of derivatives that do not exist: an argument or a result has no tangent."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from difflang.analysis.zero_derivatives import DependencyStep, find_dropped_derivatives
from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.elaborate.calls.call_args import CallArgs, parameter_names
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.derivatives.grad_jvp_vjp import TracedFunction, trace_function
from difflang.elaborate.derivatives.wrt import WrtPath
from difflang.elaborate.reports.derivative_losses import MAX_LABELS, loss_labels
from difflang.elaborate.reports.loss_messages import differentiable_substitute, loss_reason
from difflang.elaborate.terms import Array, Closure, Term, leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.tensor_types import Tensor
from difflang.types.dtype_variables import prune_dtype
from difflang.types.function_code import FnCode, LambdaCode
from difflang.types.language_types import LangType, RecordType, leaf_types, show_type
from difflang.types.type_errors import DeferCheck, make_error


class MissingTangentError(DifflangError):
    """A derivative with respect to a value without a tangent: its index among the wrt parts, and its type."""

    wrt_index: int = 0
    type: str = ""

    def at_wrt_span(self, written: Sequence[Span]) -> DifflangError:
        """The report at the parameter name in `grad[w]`, if the program writes one, else at the argument."""
        (said,) = self.diagnostics
        # Without `[w]` the derivative is taken with respect to the first argument.
        if self.wrt_index >= len(written):
            return DifflangError(said)
        name = written[self.wrt_index]
        first = Label(name, f"this is {self.type}" if name.text.isdigit() else f"`{name.text}` is {self.type}")
        return DifflangError(replace(said, labels=(first, *said.labels[1:])))


def argument_without_tangent(
    f: Term, args: CallArgs, wrt: Sequence[WrtPath], place: WrtPath, type: LangType
) -> MissingTangentError:
    """The report of an argument, or a field of it, in which nothing has a tangent: DL0401."""
    position, path = place
    what, span = show_type(type), args.items[position][1]
    labels = [(span, f"its `{'.'.join(path)}` is {what}" if path else f"this is {what}")]
    if path and not isinstance(type, RecordType):
        way = "differentiate with respect to a field that is a float"
    elif isinstance(type, RecordType):
        fields = list(zip(type.decl.fields, type.fields, strict=False))[:MAX_LABELS]
        labels += [(field.type.span, f"{show_type(t)} has no tangent") for field, t in fields]
        way = "differentiate with respect to something that contains a float: give the record a float field"
    else:
        labels += declared_type_labels(f, position)
        way = differentiable_parameters_help(f, args, position, type)
    error = MissingTangentError(
        *make_error(
            "DL0401", f"{what} has no tangent, so there is no derivative with respect to it", *labels, help=way
        ).diagnostics
    )
    error.wrt_index, error.type = list(wrt).index(place), what
    return error


def differentiable_parameters_help(f: Term, args: CallArgs, position: int, type: LangType) -> str:
    """The help that names the parameters that have a derivative."""
    names = parameter_names(f)
    having = [
        f"`{name}`" for name, (term, _) in zip(names, args.items, strict=False) if name and is_differentiable(term)
    ]
    if not having:
        return "differentiate with respect to a float; convert with `f32(x)` outside"
    way = f"differentiate with respect to {' or '.join(having)}"
    if isinstance(type, Tensor) and prune_dtype(type.dtype).is_integer and position < len(names) and names[position]:
        return f"{way}; `{names[position]}` has a derivative if its declared type is a float"
    return way


def is_differentiable(term: Term) -> bool:
    return any(prune_dtype(t.dtype).differentiable for t in leaf_types(type_of(term)))


def declared_type_labels(f: Term, position: int) -> list[tuple[Span, str]]:
    """A label at the declared type of a parameter without a tangent."""
    params = f.code.decl.params if isinstance(f, Closure) and isinstance(f.code, (FnCode, LambdaCode)) else ()
    written = params[position].type if position < len(params) else None
    return [(written.span, "declared here")] if written is not None else []


def result_label(f: Term) -> list[tuple[Span, str]]:
    """A label at the declared result type of a function."""
    declared = f.code.decl.result if isinstance(f, Closure) and isinstance(f.code, FnCode) else None
    return [(declared.span, "declared here")] if declared is not None else []


def require_real_result(
    cx: ElabContext, operator: str, f: Term, traced: TracedFunction, args: CallArgs, wrt: Sequence[WrtPath]
) -> Walk[None]:
    """Errors: DL0402 for a gradient of a result that is not a real scalar, with the steps that lost the derivative."""
    result = traced.result
    if isinstance(result, Array) and not result.tensor.shape and prune_dtype(result.tensor.dtype).is_float:
        return
    message = f"`{operator}` takes a function whose result is a real number"
    if isinstance(result, Array) and not result.tensor.shape and result.tensor.dtype.is_complex:
        way = "take `real` or `abs` of the result; `deriv` gives the complex derivative of a holomorphic function"
    elif result_has_tangent(result):
        way = "take a `sum` of the result" + ", or use `jacobian` or `vjp`" * (operator != "hessian")
    else:
        way = "return a float: an integer or a bool has no derivative"
    raise (yield refused_derivative(cx, message, way, f, traced, args, wrt))


def require_differentiable_result(
    cx: ElabContext, operator: str, f: Term, traced: TracedFunction, args: CallArgs, wrt: Sequence[WrtPath]
) -> Walk[None]:
    """Errors: DL0402 for a result in which nothing has a tangent, with the steps that lost the derivative."""
    if not result_has_tangent(traced.result):
        what = show_type(type_of(traced.result))
        message = f"{what} has no derivative: `{operator}` takes functions that return floats"
        raise (yield refused_derivative(cx, message, "return a float as well", f, traced, args, wrt))


def result_has_tangent(result: Term) -> bool:
    return any(prune_dtype(t.dtype).differentiable for t in leaf_types(type_of(result)))


def refused_derivative(
    cx: ElabContext, message: str, way: str, f: Term, traced: TracedFunction, args: CallArgs, wrt: Sequence[WrtPath]
) -> Walk[DifflangError]:
    labels = [Label(args.span, f"this one returns {show_type(type_of(traced.result))}")]
    labels += [Label(span, text) for span, text in result_label(f)]
    if not result_has_tangent(traced.result):
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
