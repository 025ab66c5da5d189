"""Reductions with `axis` and `keepdims`, and what is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from difflang.base.source import Span
from difflang.elaborate.arrays.complex_numbers import in_parts, parts, squared
from difflang.elaborate.arrays.creation_and_shape import total
from difflang.elaborate.calls.builtin_functions import Taken, builtin
from difflang.elaborate.context import Context
from difflang.elaborate.expressions.operators import array, elementwise
from difflang.elaborate.reports.op_messages import way_out
from difflang.elaborate.reports.operand_mismatches import made_float
from difflang.elaborate.terms import Array, Term
from difflang.ir.op import TypeMismatch
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import COMPLEXES, FLOATS, DType
from difflang.types.language_types import Spread, show_type
from difflang.types.type_errors import Undecided

if TYPE_CHECKING:
    from difflang.elaborate.calls.arguments import Args

OPS = {
    "sum": "reduce_sum",
    "prod": "reduce_prod",
    "max": "reduce_max",
    "min": "reduce_min",
    "all": "reduce_all",
    "any": "reduce_any",
    "argmax": "argmax",
    "argmin": "argmin",
}


@builtin("sum", "prod", "max", "min", "all", "any")
def reduction(cx: Context, args: Args, name: str) -> Term:
    if name in ("max", "min") and len(args.items) == 2 and not args.named:
        return elementwise(cx, name, args.span, [t for t, _ in args.items], [s for _, s in args.items])
    took = Taken(cx, args, name, "x axis? keepdims?")
    x = took.array("x")
    axes = chosen(cx, took, x, args)
    if name in ("max", "min") and any(x.tensor.shape[a] == 0 for a in axes) and x.tensor.shape:
        raise cx.error("DL0337", f"`{name}` of nothing has no value", took.span("x"), f"this is {show_type(x.tensor)}")
    return reduced(cx, OPS[name], x, axes, args.span, keep=took.flag("keepdims"), at=took.span("x"))


def chosen(cx: Context, took: Taken, x: Array, args: Args) -> tuple[int, ...]:
    """The axes to reduce: as asked, those of a comprehension, or all."""
    rank = x.tensor.rank
    if took.has("axis"):
        if any(isinstance(d, Spread) for d in x.tensor.shape):
            raise Undecided
        return took.axes(rank) or ()
    return tuple(range(args.lead or rank))


def reduced(
    cx: Context, op: str, x: Array, axes: tuple[int, ...], span: Span, *, keep: bool = False, at: Span | None = None
) -> Array:
    if not axes:
        return Array(x.value)
    result = cx.op(op, span, x, spans=(at,) if at is not None else (), axes=axes)
    return kept(cx, result, x, axes, span) if keep else result


def kept(cx: Context, result: Array, x: Array, axes: tuple[int, ...], span: Span) -> Array:
    """The reduced axes put back with size 1."""
    shape = tuple(1 if i in axes else d for i, d in enumerate(x.tensor.shape))
    return Array(cx.emit("reshape", span, result.value, shape=shape))


def along(cx: Context, took: Taken, x: Array, name: str) -> int:
    """The one axis that a function goes along: as asked, or that of a vector."""
    if any(isinstance(d, Spread) for d in x.tensor.shape):
        raise Undecided
    axes = took.axes(x.tensor.rank)
    if (axes is None and x.tensor.rank != 1) or (axes is not None and len(axes) != 1):
        raise cx.error(
            "DL0335",
            f"`{name}` goes along one axis",
            took.args.span,
            f"this is {show_type(x.tensor)}",
            "say which: `axis = 1`",
        )
    return axes[0] if axes else 0


@builtin("argmax", "argmin")
def argument(cx: Context, args: Args, name: str) -> Term:
    """The place of the first greatest or least element along an axis; of a vector without one."""
    took = Taken(cx, args, name, "x axis?")
    x = took.array("x")
    axis = along(cx, took, x, name)
    if x.tensor.shape[axis] == 0:
        raise cx.error("DL0337", f"`{name}` of nothing has no value", took.span("x"), f"this is {show_type(x.tensor)}")
    place = cx.op(name, args.span, x, spans=(took.span("x"),), axis=axis)
    return Array(place.value, below=x.tensor.shape[axis])


# ---- Composites


def count(x: Array, axes: tuple[int, ...]) -> Dim:
    size: Dim = 1
    for axis in axes:
        if isinstance(x.tensor.shape[axis], Spread):
            raise Undecided
        size = size * x.tensor.shape[axis]
    return size


def floats(cx: Context, x: Array, span: Span, name: str, dtypes: tuple[DType, ...] = FLOATS) -> None:
    try:
        cx.unifier.accepts(x.tensor, dtypes)
    except TypeMismatch as refused:
        default = cx.module.default_float
        way, fixes = way_out(name, refused.message, span, default), made_float(refused.message, x, span, default)
        shown = f"this is {show_type(x.tensor)}"
        raise cx.error("DL0311", f"`{name}` {refused.message}", span, shown, way, fixes) from None


def averaged(cx: Context, x: Array, axes: tuple[int, ...], span: Span, *, keep: bool = False) -> Array:
    summed = reduced(cx, "reduce_sum", x, axes, span, keep=keep)
    size = Array(cx.emit("const", span, value=count(x, axes), type=summed.tensor))
    return array(cx, elementwise(cx, "div", span, (summed, size)), span)


@builtin("mean")
def mean(cx: Context, args: Args, name: str) -> Term:
    took = Taken(cx, args, name, "x axis? keepdims?")
    x = took.array("x")
    floats(cx, x, took.span("x"), name, FLOATS + COMPLEXES)
    return averaged(cx, x, chosen(cx, took, x, args), args.span, keep=took.flag("keepdims"))


@builtin("variance", "std")
def variance(cx: Context, args: Args, name: str) -> Term:
    """The mean squared distance from the mean, and its root (whose derivative at 0 is 0)."""
    took = Taken(cx, args, name, "x axis? keepdims?")
    x = took.array("x")
    floats(cx, x, took.span("x"), name, FLOATS + COMPLEXES)
    axes = chosen(cx, took, x, args)
    center = averaged(cx, x, axes, args.span, keep=True)
    away = array(cx, elementwise(cx, "sub", args.span, (x, center)), args.span)
    squares = squared(cx, away, args.span)
    result = averaged(cx, squares, axes, args.span, keep=took.flag("keepdims"))
    return result if name == "variance" else root(cx, result, args.span)


def root(cx: Context, square: Array, span: Span) -> Array:
    """The square root with derivative 0 at 0, for norms."""
    nothing = Array(cx.emit("const", span, value=0, type=square.tensor))
    one = Array(cx.emit("const", span, value=1, type=square.tensor))
    is_zero = elementwise(cx, "eq", span, (square, nothing))
    safe = elementwise(cx, "sqrt", span, (elementwise(cx, "select", span, (is_zero, one, square)),))
    return array(cx, elementwise(cx, "select", span, (is_zero, nothing, safe)), span)


def side_by_side(cx: Context, z: Array, axes: tuple[int, ...], span: Span) -> Array:
    """Real numbers with the same lengths over axes: both parts along the first."""
    return cx.op("concat", span, *parts(cx, z, span), axis=axes[0])


@builtin("norm")
def norm(cx: Context, args: Args, name: str) -> Term:
    """The Euclidean length; its derivative at 0 is 0."""
    took = Taken(cx, args, name, "x axis? keepdims?")
    term, at, span = took.term("x"), took.span("x"), args.span
    if not isinstance(term, Array):
        term = in_parts(cx, term, span)
        return root(cx, total(cx, elementwise(cx, "mul", span, (term, term), (at, at)), span), span)
    floats(cx, term, at, name, FLOATS + COMPLEXES)
    axes = chosen(cx, took, term, args)
    if not axes:
        return elementwise(cx, "abs", span, (term,), (at,))
    if term.tensor.dtype.is_complex:
        term = side_by_side(cx, term, axes, span)
    return reduced(cx, "reduce_norm", term, axes, span, keep=took.flag("keepdims"), at=at)


@builtin("logsumexp", "softmax", "log_softmax")
def logsumexp(cx: Context, args: Args, name: str) -> Term:
    """Without overflow: the greatest element is taken out first, as a constant. Infinite ones share evenly."""
    took = Taken(cx, args, name, "x axis? keepdims?" if name == "logsumexp" else "x axis?")
    x, span = took.array("x"), args.span
    floats(cx, x, took.span("x"), name)
    axes = chosen(cx, took, x, args)
    top = Array(cx.emit("stop", span, reduced(cx, "reduce_top", x, axes, span).value))
    tops = again(cx, top, x, axes, span)
    powers = array(cx, elementwise(cx, "exp_sub", span, (x, tops)), span)
    sums = reduced(cx, "reduce_sum", powers, axes, span)
    if name == "softmax":
        return elementwise(cx, "div", span, (powers, again(cx, sums, x, axes, span)))
    logs = array(cx, elementwise(cx, "log", span, (sums,)), span)
    if name == "log_softmax":
        shifted = elementwise(cx, "sub", span, (x, tops))
        return elementwise(cx, "sub", span, (shifted, again(cx, logs, x, axes, span)))
    whole = array(cx, elementwise(cx, "add", span, (logs, top)), span)
    return kept(cx, whole, x, axes, span) if name == "logsumexp" and took.flag("keepdims") else whole


def again(cx: Context, result: Array, x: Array, axes: tuple[int, ...], span: Span) -> Array:
    """What was made of the elements along some axes, for each of them."""
    rest = tuple(i for i in range(x.tensor.rank) if i not in axes)
    return Array(cx.emit("broadcast", span, result.value, shape=x.tensor.shape, axes=rest))


@builtin("digamma")
def digamma(cx: Context, args: Args, name: str) -> Term:
    """`digamma(x, order = 0)`: the derivative of `lgamma`, and its derivative of that order."""
    took = Taken(cx, args, name, "x order?")
    order, x = took.integer("order", 0), (took.term("x"),)
    if order < 0:
        raise cx.error("DL0338", "the `order` of a derivative is not negative", took.span("order"), f"this is {order}")
    if order == 0:
        return elementwise(cx, "digamma", args.span, x, (took.span("x"),))
    return elementwise(cx, "polygamma", args.span, x, (took.span("x"),), n=order)


@builtin("logaddexp")
def logaddexp(cx: Context, args: Args, name: str) -> Term:
    """`logsumexp` of two, element by element."""
    took = Taken(cx, args, name, "x y")
    x, y, span = took.term("x"), took.term("y"), args.span
    top = array(cx, elementwise(cx, "max", span, (x, y), (took.span("x"), took.span("y"))), span)
    top = Array(cx.emit("stop", span, top.value))
    powers = [elementwise(cx, "exp_sub", span, (side, top)) for side in (x, y)]
    return elementwise(cx, "add", span, (top, elementwise(cx, "log", span, (elementwise(cx, "add", span, powers),))))
