"""Running sums and products, and sorting: functions along one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.arrays.reductions import single_axis
from difflang.elaborate.calls.builtin_functions import BuiltinArgs, builtin
from difflang.elaborate.context import ElabContext
from difflang.elaborate.terms import Array, Term, Tuple
from difflang.ir.tensor_types import I32, Tensor

if TYPE_CHECKING:
    from difflang.elaborate.calls.arguments import CallArgs


@builtin("cumsum", "cumprod")
def cumulative(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """Running sums or products along an axis, from its end with `reverse = true`; of a vector without an axis."""
    took = BuiltinArgs(cx, args, name, "x axis? reverse?")
    x = took.array("x")
    axis, reverse = single_axis(cx, took, x, name), took.flag("reverse")
    return cx.emit_op(name, args.span, x, spans=(took.span("x"),), axis=axis, reverse=reverse)


# ---- Order


@builtin("sort", "argsort")
def sort_along(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The elements along an axis in order, or the positions that put them in order; of a vector without an axis."""
    took = BuiltinArgs(cx, args, name, "x axis? descending?")
    x = took.array("x")
    axis = single_axis(cx, took, x, name)
    order = emit_argsort(cx, took, x, axis, descending=took.flag("descending"))
    return order if name == "argsort" else take_along_axis(cx, x, order, axis, args.span)


@builtin("top_k")
def top_k(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The `k` greatest elements along an axis, the greatest first, and their positions."""
    took = BuiltinArgs(cx, args, name, "x k axis?")
    x = took.array("x")
    axis, k = single_axis(cx, took, x, name), took.static("k", 0)
    size = x.tensor.shape[axis]
    if any(isinstance(d, int) and d < 0 for d in (k, size - k)):
        raise cx.error("DL0303", f"there are no {k} greatest of {size}", took.span("k"), f"this axis has {size} places")
    order = emit_argsort(cx, took, x, axis, descending=True).value
    stops = x.tensor.resized(axis, k).shape
    starts, steps = (0,) * len(stops), (1,) * len(stops)
    first = Array(cx.emit("slice", args.span, order, starts=starts, stops=stops, steps=steps), upper_bound=size)
    return Tuple((take_along_axis(cx, x, first, axis, args.span), first))


def emit_argsort(cx: ElabContext, took: BuiltinArgs, x: Array, axis: int, *, descending: bool) -> Array:
    at = (took.span("x"),)
    order = cx.emit_op("argsort", took.args.span, x, spans=at, display_name=took.name, axis=axis, descending=descending)
    return replace(order, upper_bound=x.tensor.shape[axis])


def take_along_axis(cx: ElabContext, x: Array, positions: Array, axis: int, span: Span) -> Array:
    """The elements at positions along an axis, each in its own row."""
    shape = positions.tensor.shape
    rows = [cx.emit("iota", span, type=Tensor(I32, shape), axis=a) for a in range(len(shape)) if a != axis]
    places = (*rows[:axis], positions.value, *rows[axis:])
    return Array(cx.emit("gather", span, x.value, *places, axes=tuple(range(len(shape)))))
