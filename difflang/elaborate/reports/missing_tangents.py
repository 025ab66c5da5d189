"""Reports of derivatives with respect to arguments without a tangent."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError, Label
from difflang.base.source import Span
from difflang.elaborate.calls.call_args import CallArgs, parameter_names
from difflang.elaborate.derivatives.tangents import has_tangent
from difflang.elaborate.derivatives.wrt import WrtPath
from difflang.elaborate.reports.loss_messages import MAX_LABELS
from difflang.elaborate.terms import Closure, Term
from difflang.ir.tensor_types import Tensor
from difflang.types.dtype_variables import prune_dtype
from difflang.types.function_code import FnCode, LambdaCode
from difflang.types.language_types import LangType, RecordType, show_type
from difflang.types.type_errors import make_error


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
    having = [f"`{name}`" for name, (term, _) in zip(names, args.items, strict=False) if name and has_tangent(term)]
    if not having:
        return "differentiate with respect to a float; convert with `f32(x)` outside"
    way = f"differentiate with respect to {' or '.join(having)}"
    if isinstance(type, Tensor) and prune_dtype(type.dtype).is_integer and position < len(names) and names[position]:
        return f"{way}; `{names[position]}` has a derivative if its declared type is a float"
    return way


def declared_type_labels(f: Term, position: int) -> list[tuple[Span, str]]:
    """A label at the declared type of a parameter without a tangent."""
    params = f.code.decl.params if isinstance(f, Closure) and isinstance(f.code, (FnCode, LambdaCode)) else ()
    written = params[position].type if position < len(params) else None
    return [(written.span, "declared here")] if written is not None else []
