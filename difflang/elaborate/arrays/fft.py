"""Fast Fourier transforms (`fft`, `ifft`, `rfft`, `irfft`) along the last axis, or along the axes that `axis` names."""

from __future__ import annotations

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.elaborate.calls.builtin_registry import BuiltinArgs, builtin
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import ElabContext
from difflang.elaborate.expressions.broadcasting import require_rank
from difflang.elaborate.reports.op_messages import quote_source
from difflang.elaborate.terms import Array, Term
from difflang.ops.signal.fft import rfft_length
from difflang.types.language_types import show_type


@builtin("fft", "ifft", takes="z axis?")
def fft(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The transform of complex numbers, and its inverse."""
    x, at, axes = fft_operand(cx, BuiltinArgs(cx, args, name), "z")
    return cx.emit_op("fft", args.span, x, spans=(at,), axes=axes, inverse=name == "ifft")


@builtin("rfft", takes="x axis?")
def rfft(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The transform of real numbers. Only half of the last axis is computed: the rest is its complex conjugate."""
    x, at, (*rest, last) = fft_operand(cx, BuiltinArgs(cx, args, name), "x")
    half = cx.emit_op("rfft", args.span, x, spans=(at,), axis=last)
    return cx.emit_op("fft", args.span, half, axes=tuple(rest), inverse=False) if rest else half


@builtin("irfft", takes="z n? axis?")
def irfft(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The real numbers with this transform: `n` of them along the last axis, or an even number without `n`."""
    took = BuiltinArgs(cx, args, name)
    z, at, (*rest, last) = fft_operand(cx, took, "z")
    # The transform does not tell `2k` from `2k + 1` numbers: even by default, as in NumPy.
    size = took.static("n", 2 * (z.tensor.shape[last] - 1))
    if size == 0:
        raise empty_axis_error(cx, name, z, at, "state the original number of elements: `irfft(z, n = 1)`")
    if not cx.unifier.equal(z.tensor.shape[last], rfft_length(size)):
        raise cx.error(
            "DL0310",
            f"the transform of {count_of(size, 'real number')} has {count_of(rfft_length(size), 'complex number')}",
            took.span("n"),
            f"`{quote_source(at)}` is {show_type(z.tensor)}",
            (
                f"the transform of {2 * z.tensor.shape[last] - 2} or {2 * z.tensor.shape[last] - 1} numbers "
                "has this size"
            ),
        )
    whole = cx.emit_op("fft", args.span, z, spans=(at,), axes=tuple(rest), inverse=True) if rest else z
    return cx.emit_op("irfft", args.span, whole, spans=(at,), axis=last, size=size)


def fft_operand(cx: ElabContext, took: BuiltinArgs, param: str) -> tuple[Array, Span, tuple[int, ...]]:
    """The array to transform, its source position, and the axes. Errors: DL0303, DL0335."""
    x, at = require_rank(took.array(param)), took.span(param)
    shape = x.tensor.shape
    if not shape:
        shown = f"this is {show_type(x.tensor)}"
        raise cx.error("DL0335", f"`{took.name}` works along an axis, but a number has none", at, shown)
    axes = took.axes(len(shape)) or (len(shape) - 1,)
    if any(shape[a] == 0 for a in axes):
        raise empty_axis_error(cx, took.name, x, at)
    return x, at, axes


def empty_axis_error(cx: ElabContext, name: str, x: Array, at: Span, way: str = "") -> DifflangError:
    return cx.error("DL0303", f"`{name}` of an empty axis has no value", at, f"this is {show_type(x.tensor)}", way)
