"""Reductions with `axis` and `keepdims`, composites of them such as `mean` and `softmax`, cumulative sums, sorting."""

from __future__ import annotations

import math

from msgspec.structs import replace

from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.elaborate.arrays.complex_numbers import abs_squared, as_real_pairs, real_and_imaginary
from difflang.elaborate.arrays.creation_and_shape import shape_product, sum_leaves
from difflang.elaborate.calls.builtin_registry import BuiltinArgs, builtin
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import ElabContext
from difflang.elaborate.expressions.broadcasting import as_array, require_rank
from difflang.elaborate.expressions.elementwise import elementwise
from difflang.elaborate.reports.op_messages import refusal_help
from difflang.elaborate.reports.operand_mismatches import float_conversion_fix
from difflang.elaborate.terms import Array, Term, Tuple
from difflang.ir.op import TypeMismatch
from difflang.ir.tensor_types import COMPLEXES, FLOATS, I32, DType, Tensor
from difflang.types.language_types import show_type

REDUCTION_OPS = {
    "sum": "reduce_sum",
    "prod": "reduce_prod",
    "max": "reduce_max",
    "min": "reduce_min",
    "all": "reduce_all",
    "any": "reduce_any",
    "argmax": "argmax",
    "argmin": "argmin",
}


@builtin("sum", "prod", "all", "any", takes="x axis? keepdims?")
@builtin("max", "min", takes="x y | x axis? keepdims?")
def reduction(cx: ElabContext, args: CallArgs, name: str) -> Term:
    if name in ("max", "min") and len(args.items) == 2 and not args.named:
        return elementwise(cx, name, args.span, [t for t, _ in args.items], [s for _, s in args.items])
    took = BuiltinArgs(cx, args, name)
    x = took.array("x")
    axes = axes_argument(cx, took, x, args)
    if name in ("max", "min") and any(x.tensor.shape[a] == 0 for a in axes) and x.tensor.shape:
        raise cx.error(
            "DL0337", f"`{name}` of no elements has no value", took.span("x"), f"this is {show_type(x.tensor)}"
        )
    return emit_reduction(cx, REDUCTION_OPS[name], x, axes, args.span, keep=took.flag("keepdims"), at=took.span("x"))


def axes_argument(cx: ElabContext, took: BuiltinArgs, x: Array, args: CallArgs) -> tuple[int, ...]:
    """The axes to reduce: those of the `axis` argument, those of a comprehension, or all."""
    rank = x.tensor.rank
    if took.is_present("axis"):
        require_rank(x)
        return took.axes(rank) or ()
    return tuple(range(args.lead_axes or rank))


def emit_reduction(
    cx: ElabContext, op: str, x: Array, axes: tuple[int, ...], span: Span, *, keep: bool = False, at: Span | None = None
) -> Array:
    if not axes:
        return Array(x.value)
    result = cx.emit_op(op, span, x, spans=(at,) if at is not None else (), axes=axes)
    return restore_axes(cx, result, x, axes, span) if keep else result


def restore_axes(cx: ElabContext, result: Array, x: Array, axes: tuple[int, ...], span: Span) -> Array:
    """The result with its reduced axes restored at size 1."""
    shape = tuple(1 if i in axes else d for i, d in enumerate(x.tensor.shape))
    return Array(cx.emit("reshape", span, result.value, shape=shape))


def single_axis(cx: ElabContext, took: BuiltinArgs, x: Array, name: str) -> int:
    """The one axis that a function works along: the `axis` argument, or a vector's only axis."""
    require_rank(x)
    axes = took.axes(x.tensor.rank)
    if (axes is None and x.tensor.rank != 1) or (axes is not None and len(axes) != 1):
        raise cx.error(
            "DL0335",
            f"`{name}` works along one axis",
            took.args.span,
            f"this is {show_type(x.tensor)}",
            "name the axis: `axis = 1`",
        )
    return axes[0] if axes else 0


@builtin("argmax", "argmin", takes="x axis?")
def arg_extremum(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The position of the first largest or smallest element along an axis; a vector needs no axis."""
    took = BuiltinArgs(cx, args, name)
    x = took.array("x")
    axis = single_axis(cx, took, x, name)
    if x.tensor.shape[axis] == 0:
        raise cx.error(
            "DL0337", f"`{name}` of no elements has no value", took.span("x"), f"this is {show_type(x.tensor)}"
        )
    place = cx.emit_op(name, args.span, x, spans=(took.span("x"),), axis=axis)
    return Array(place.value, upper_bound=x.tensor.shape[axis])


# ---- Composites


def require_floats(cx: ElabContext, x: Array, span: Span, name: str, dtypes: tuple[DType, ...] = FLOATS) -> None:
    try:
        cx.unifier.accepts(x.tensor, dtypes)
    except TypeMismatch as refused:
        default = cx.module.default_float
        way, fixes = (
            refusal_help(name, refused.message, span, default),
            float_conversion_fix(refused.message, x, span, default),
        )
        shown = f"this is {show_type(x.tensor)}"
        raise cx.error("DL0311", f"`{name}` {refused.message}", span, shown, way, fixes) from None


def emit_mean(cx: ElabContext, x: Array, axes: tuple[int, ...], span: Span, *, keep: bool = False) -> Array:
    summed = emit_reduction(cx, "reduce_sum", x, axes, span, keep=keep)
    size = Array(cx.emit("const", span, value=shape_product([x.tensor.shape[a] for a in axes]), type=summed.tensor))
    return as_array(cx, elementwise(cx, "div", span, (summed, size)), span)


@builtin("mean", takes="x axis? keepdims?")
def mean(cx: ElabContext, args: CallArgs, name: str) -> Term:
    took = BuiltinArgs(cx, args, name)
    x = took.array("x")
    require_floats(cx, x, took.span("x"), name, FLOATS + COMPLEXES)
    return emit_mean(cx, x, axes_argument(cx, took, x, args), args.span, keep=took.flag("keepdims"))


@builtin("variance", "std", takes="x axis? keepdims?")
def variance(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The mean squared distance from the mean, and its root (whose derivative at 0 is 0)."""
    took = BuiltinArgs(cx, args, name)
    x = took.array("x")
    require_floats(cx, x, took.span("x"), name, FLOATS + COMPLEXES)
    axes = axes_argument(cx, took, x, args)
    center = emit_mean(cx, x, axes, args.span, keep=True)
    away = as_array(cx, elementwise(cx, "sub", args.span, (x, center)), args.span)
    if name == "std" and shape_product([x.tensor.shape[a] for a in axes]) == 1:
        # One number is its mean whatever it is: all derivatives are 0, but a root at 0 has no second one.
        if away.tensor.dtype.is_complex:
            away = as_array(cx, elementwise(cx, "add", args.span, real_and_imaginary(cx, away, args.span)), args.span)
        return emit_reduction(cx, "reduce_sum", away, axes, args.span, keep=took.flag("keepdims"))
    squares = abs_squared(cx, away, args.span)
    result = emit_mean(cx, squares, axes, args.span, keep=took.flag("keepdims"))
    return result if name == "variance" else elementwise(cx, "root_of_squares", args.span, (result,))


def stack_real_imaginary(cx: ElabContext, z: Array, axes: tuple[int, ...], span: Span) -> Array:
    """Real and imaginary parts concatenated along the first of `axes`, which preserves norms over them."""
    return cx.emit_op("concat", span, *real_and_imaginary(cx, z, span), axis=axes[0])


@builtin("norm", takes="x axis? keepdims?")
def norm(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The Euclidean length; its derivative at 0 is 0."""
    took = BuiltinArgs(cx, args, name)
    term, at, span = took.term("x"), took.span("x"), args.span
    if not isinstance(term, Array):
        term = as_real_pairs(cx, term, span)
        squares = elementwise(cx, "mul", span, (term, term), (at, at))
        return elementwise(cx, "root_of_squares", span, (sum_leaves(cx, squares, span),))
    require_floats(cx, term, at, name, FLOATS + COMPLEXES)
    axes = axes_argument(cx, took, term, args)
    if not axes:
        return elementwise(cx, "abs", span, (term,), (at,))
    if term.tensor.dtype.is_complex:
        term = stack_real_imaginary(cx, term, axes, span)
    return emit_reduction(cx, "reduce_norm", term, axes, span, keep=took.flag("keepdims"), at=at)


@builtin("logsumexp", takes="x axis? keepdims?")
@builtin("softmax", "log_softmax", takes="x axis?")
def logsumexp(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """Without overflow: the largest element is subtracted first. Several Inf share the weight; all -Inf have none."""
    took = BuiltinArgs(cx, args, name)
    x, span = took.array("x"), args.span
    require_floats(cx, x, took.span("x"), name)
    if name != "logsumexp":
        require_axis(cx, took, x)
    axes = axes_argument(cx, took, x, args)
    # The result does not depend on `top`, so differentiating through it would only add cancelling terms.
    top = Array(cx.emit("stop", span, emit_reduction(cx, "reduce_max", x, axes, span).value))
    tops = broadcast_back(cx, top, x, axes, span)
    powers = as_array(cx, elementwise(cx, "exp_sub", span, (x, tops)), span)
    if name == "softmax":
        sums = emit_reduction(cx, "reduce_sum", powers, axes, span)
        return elementwise(cx, "div", span, (powers, broadcast_back(cx, sums, x, axes, span)))
    logs = log_of_sum(cx, powers, x, top, axes, span)
    if name == "log_softmax":
        shifted = elementwise(cx, "sub", span, (x, tops))
        return elementwise(cx, "sub", span, (shifted, broadcast_back(cx, logs, x, axes, span)))
    # Where all are -Inf the sum stays 0 as they move: its slope is 0.
    nothing = Array(cx.emit("const", span, value=-math.inf, type=top.tensor))
    empty = elementwise(cx, "eq", span, (top, nothing))
    whole = elementwise(cx, "select", span, (empty, nothing, elementwise(cx, "add", span, (logs, top))))
    whole = as_array(cx, whole, span)
    return restore_axes(cx, whole, x, axes, span) if name == "logsumexp" and took.flag("keepdims") else whole


def require_axis(cx: ElabContext, took: BuiltinArgs, x: Array) -> None:
    """Libraries disagree about which axes of a matrix `softmax` is over. Errors: DL0319, DeferCheck."""
    shape = x.tensor.shape
    if took.is_present("axis") or took.args.lead_axes:
        return
    require_rank(x)
    if len(shape) > 1:
        several = ", ".join(map(str, range(len(shape))))
        way = f"`axis = -1` takes each row by itself, `axis = ({several})` all elements together"
        message = f"`{took.name}` of an array with {len(shape)} axes is missing `axis`"
        raise cx.error("DL0319", message, took.span("x"), f"this is {show_type(x.tensor)}", way)


def log_of_sum(cx: ElabContext, powers: Array, x: Array, top: Array, axes: tuple[int, ...], span: Span) -> Array:
    """The logarithm of the sum of `powers`, of which those of `top` are 1: by `log1p` of all but one of these.

    Its derivatives divide by that sum, which is computed plainly where nothing needs the value.
    """
    at_top = elementwise(cx, "eq", span, (x, broadcast_back(cx, top, x, axes, span)))
    one, zero = [Array(cx.emit("const", span, value=v, type=x.tensor)) for v in (1, 0)]
    ones = as_array(cx, elementwise(cx, "select", span, (at_top, one, zero)), span)
    smaller = as_array(cx, elementwise(cx, "sub", span, (powers, ones)), span)
    found, count, total = [emit_reduction(cx, "reduce_sum", terms, axes, span) for terms in (smaller, ones, powers)]
    first = Array(cx.emit("const", span, value=1, type=count.tensor))
    excess = elementwise(cx, "add", span, (found, elementwise(cx, "sub", span, (count, first))))
    # The derivative goes through the excess: the total is only its other name.
    total = Array(cx.emit("stop", span, total.value))
    return as_array(cx, elementwise(cx, "log1p", span, (elementwise(cx, "excess", span, (excess, total)),)), span)


def broadcast_back(cx: ElabContext, result: Array, x: Array, axes: tuple[int, ...], span: Span) -> Array:
    """A reduced result, broadcast back along the reduced axes."""
    rest = tuple(i for i in range(x.tensor.rank) if i not in axes)
    return Array(cx.emit("broadcast", span, result.value, shape=x.tensor.shape, axes=rest))


@builtin("digamma", takes="x order?")
def digamma(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`digamma(x, order = 0)`: the derivative of `lgamma`, or its `order`-th derivative (polygamma)."""
    took = BuiltinArgs(cx, args, name)
    order, x = took.integer("order", 0), (took.term("x"),)
    if order < 0:
        raise cx.error(
            "DL0338", "the `order` of a derivative cannot be negative", took.span("order"), f"this is {order}"
        )
    if order == 0:
        return elementwise(cx, "digamma", args.span, x, (took.span("x"),))
    return elementwise(cx, "polygamma", args.span, x, (took.span("x"),), n=order)


@builtin("cumsum", "cumprod", takes="x axis? reverse?")
def cumulative(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """Cumulative sums or products along an axis, from its end with `reverse = true`; a vector needs no axis."""
    took = BuiltinArgs(cx, args, name)
    x = took.array("x")
    axis, reverse = single_axis(cx, took, x, name), took.flag("reverse")
    return cx.emit_op(name, args.span, x, spans=(took.span("x"),), axis=axis, reverse=reverse)


# ---- Order


@builtin("sort", "argsort", takes="x axis? descending?")
def sort_along(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The elements along an axis in order, or the positions that sort them; a vector needs no axis."""
    took = BuiltinArgs(cx, args, name)
    x = took.array("x")
    axis = single_axis(cx, took, x, name)
    # A sort is a gather by its argsort, so its derivative is the scatter of the gather.
    order = emit_argsort(cx, took, x, axis, descending=took.flag("descending"))
    return order if name == "argsort" else take_along_axis(cx, x, order, axis, args.span)


@builtin("top_k", takes="x k axis?")
def top_k(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The `k` largest elements along an axis, the largest first, and their positions."""
    took = BuiltinArgs(cx, args, name)
    x = took.array("x")
    axis, k = single_axis(cx, took, x, name), took.static("k", 0)
    size = x.tensor.shape[axis]
    if any(isinstance(d, int) and d < 0 for d in (k, size - k)):
        raise cx.error(
            "DL0303",
            f"cannot take the {k} greatest of {count_of(size, 'element')}",
            took.span("k"),
            f"this axis has {count_of(size, 'element')}",
        )
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
