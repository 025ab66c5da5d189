"""What is said where a derivative is asked for that does not exist: of an argument or a result without a tangent."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from difflang.analysis.zero_derivatives import Step, losses
from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Span
from difflang.elaborate.calls.arguments import Args
from difflang.elaborate.context import Context, Reported
from difflang.elaborate.derivatives.grad_jvp_vjp import Traced, trace
from difflang.elaborate.derivatives.wrt import Place, parameter_names
from difflang.elaborate.reports.zero_derivative_warnings import MOST, instead, labels_of, lost_by
from difflang.elaborate.terms import Array, Closure, Term, leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.tensor_types import Tensor
from difflang.types.dtype_variables import pruned
from difflang.types.function_code import FnCode, LambdaCode
from difflang.types.language_types import LangType, RecordType, leaf_types, show_type
from difflang.types.type_errors import Undecided, mistake


class WithoutTangent(DifflangError):
    """A derivative in what has no tangent: which of the places that it is taken in, and what the type of that is."""

    number: int = 0
    type: str = ""

    def where_asked(self, written: Sequence[Span]) -> DifflangError:
        """The report at the name of the place, if the program writes one, else at the argument."""
        (said,) = self.diagnostics
        if self.number >= len(written):
            return DifflangError(said)
        name = written[self.number]
        first = Label(name, f"this is {self.type}" if name.text.isdigit() else f"`{name.text}` is {self.type}")
        return DifflangError(replace(said, labels=(first, *said.labels[1:])))


def without_tangent(f: Term, args: Args, wrt: Sequence[Place], place: Place, type: LangType) -> WithoutTangent:
    """An argument, or a field of it, that has no derivative, since nothing in it has a tangent: DL0401."""
    position, path = place
    what, span = show_type(type), args.items[position][1]
    labels = [(span, f"its `{'.'.join(path)}` is {what}" if path else f"this is {what}")]
    if path and not isinstance(type, RecordType):
        way = "differentiate in a field that is a float"
    elif isinstance(type, RecordType):
        fields = list(zip(type.decl.fields, type.fields, strict=False))[:MOST]
        labels += [(field.type.span, f"{show_type(t)} has no tangent") for field, t in fields]
        way = "differentiate in what has a float: give the record a field that is one"
    else:
        labels += declared_parameter(f, position)
        way = way_to_a_float(f, args, position, type)
    error = WithoutTangent(
        *mistake("DL0401", f"{what} has no derivative: it has no tangent", *labels, help=way).diagnostics
    )
    error.number, error.type = list(wrt).index(place), what
    return error


def way_to_a_float(f: Term, args: Args, position: int, type: LangType) -> str:
    """What to differentiate in: the parameters that have a derivative, if there are any."""
    names = parameter_names(f)
    having = [f"`{name}`" for name, (term, _) in zip(names, args.items, strict=False) if name and has_derivative(term)]
    if not having:
        return "differentiate in a float; convert with `f32(x)` outside"
    way = f"differentiate in {' or '.join(having)}"
    if isinstance(type, Tensor) and pruned(type.dtype).is_integer and position < len(names) and names[position]:
        return f"{way}; `{names[position]}` has a derivative where it is declared as a float"
    return way


def has_derivative(term: Term) -> bool:
    return any(pruned(t.dtype).differentiable for t in leaf_types(type_of(term)))


def declared_parameter(f: Term, position: int) -> list[tuple[Span, str]]:
    """Where a function says that it takes a value without a tangent."""
    params = f.code.decl.params if isinstance(f, Closure) and isinstance(f.code, (FnCode, LambdaCode)) else ()
    written = params[position].type if position < len(params) else None
    return [(written.span, "declared here")] if written is not None else []


def declared_result(f: Term) -> list[tuple[Span, str]]:
    """Where a function says what it gives."""
    declared = f.code.decl.result if isinstance(f, Closure) and isinstance(f.code, FnCode) else None
    return [(declared.span, "declared here")] if declared is not None else []


def real_result(cx: Context, operator: str, f: Term, traced: Traced, args: Args, wrt: Sequence[Place]) -> Walk[None]:
    """Errors: DL0402 where a gradient is asked of what is no real number, with the steps that lost the derivative."""
    result = traced.result
    if isinstance(result, Array) and not result.tensor.shape and pruned(result.tensor.dtype).is_float:
        return
    message = f"`{operator}` takes a function with a real number as its result"
    if isinstance(result, Array) and not result.tensor.shape and result.tensor.dtype.is_complex:
        way = "take `real` or `abs` of it; `deriv` gives the complex derivative of a holomorphic function"
    elif has_tangent(result):
        way = "take a `sum` of it, or use `vjp`"
    else:
        way = "give a float: an integer, true or false has no derivative"
    raise (yield refused(cx, message, way, f, traced, args, wrt))


def result_with_tangent(
    cx: Context, operator: str, f: Term, traced: Traced, args: Args, wrt: Sequence[Place]
) -> Walk[None]:
    """Errors: DL0402 where nothing in a result has a tangent, with the steps that lost the derivative."""
    if not has_tangent(traced.result):
        what = show_type(type_of(traced.result))
        message = f"{what} has no derivative: `{operator}` is of functions that give floats"
        raise (yield refused(cx, message, "give a float beside it", f, traced, args, wrt))


def has_tangent(result: Term) -> bool:
    return any(pruned(t.dtype).differentiable for t in leaf_types(type_of(result)))


def refused(
    cx: Context, message: str, way: str, f: Term, traced: Traced, args: Args, wrt: Sequence[Place]
) -> Walk[DifflangError]:
    labels = [Label(args.span, f"this one gives {show_type(type_of(traced.result))}")]
    labels += [Label(span, text) for span, text in declared_result(f)]
    if not has_tangent(traced.result):
        names = parameter_names(f)
        position = wrt[0][0]
        name = names[position] if position < len(names) and names[position] else "the argument"
        steps = yield losing_steps(cx, f, traced, args, wrt)
        labels += labels_of(cx, steps, args.span, lost_by, name)
        way = instead(steps[0].way[-1]) if steps else way
    return DifflangError(Diagnostic("DL0402", message, tuple(labels), (way,)))


def losing_steps(cx: Context, f: Term, traced: Traced, args: Args, wrt: Sequence[Place]) -> Walk[list[Step]]:
    """The steps that lose the derivative. While a definition is checked, called functions are walked for this."""
    session = cx.session
    if cx.root.definition and not cx.root.opened:
        reported, errors = len(session.diagnostics), session.errors
        cx.root.opened = True
        try:
            traced = yield trace(cx, f, args, wrt)
        except (DifflangError, Reported, Undecided, RecursionError):
            return []
        finally:
            cx.root.opened = False
            del session.diagnostics[reported:]
            session.errors = errors
    found = losses(traced.graph, (1 << len(traced.points)) - 1, zero=False)[: len(leaves(traced.result))]
    return list(dict.fromkeys(step for lost in found for step in lost))
