"""Rearranging elements: `roll`, `split`, `repeat`, `tile`, `gather`, `diag`, `tril` and `triu`, as in NumPy."""

from __future__ import annotations

from itertools import pairwise

from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.elaborate.arrays.creation_and_shape import shape_argument, shape_product
from difflang.elaborate.arrays.item_functions import over_items
from difflang.elaborate.calls.builtin_registry import BuiltinArgs, builtin
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import ElabContext
from difflang.elaborate.expressions.broadcasting import as_array, require_rank
from difflang.elaborate.expressions.elementwise import elementwise
from difflang.elaborate.runtime_checks import check_index
from difflang.elaborate.terms import Array, Term, Tuple
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim, floor_div
from difflang.ir.tensor_types import I32, INTEGERS, Tensor
from difflang.types.dtype_variables import prune_dtype
from difflang.types.language_types import show_type
from difflang.types.type_errors import DeferCheck


def axis_argument(took: BuiltinArgs, x: Array, otherwise: int | None) -> int | None:
    """The requested axis. Errors: DL0335 where the array has no such axis, or several are named."""
    axes = took.axes(x.tensor.rank)
    if axes is None and (otherwise is None or otherwise < x.tensor.rank):
        return otherwise
    if axes is None or len(axes) != 1:
        shown = f"this is {show_type(x.tensor)}"
        raise took.cx.error("DL0335", f"`{took.name}` works along one axis", took.span("axis"), shown)
    return axes[0]


def scalar_argument(took: BuiltinArgs, name: str) -> Array:
    """A scalar argument. Errors: DL0313 for an array with axes."""
    number = took.array(name)
    if number.tensor.shape:
        shown = f"this is {show_type(number.tensor)}"
        raise took.cx.error("DL0313", f"`{name}` of `{took.name}` must be one number", took.span(name), shown)
    return number


def require_integers(cx: ElabContext, x: Array, span: Span, what: str) -> None:
    """Errors: DL0313 for other numbers."""
    if not cx.unifier.same(Tensor(x.tensor.dtype), Tensor(I32)) and prune_dtype(x.tensor.dtype) not in INTEGERS:
        raise cx.error("DL0313", f"{what} must be an integer", span, f"this is {show_type(x.tensor)}")


def flatten(cx: ElabContext, x: Array, span: Span) -> Array:
    return Array(cx.emit("reshape", span, x.value, shape=(shape_product(x.tensor.shape),)))


def iota_to(cx: ElabContext, size: Dim, span: Span) -> Array:
    """The integers 0 … size - 1."""
    return Array(cx.emit("iota", span, type=Tensor(I32, (size,)), axis=0))


def take_along(cx: ElabContext, x: Array, where: Array, axis: int, span: Span) -> Array:
    """The items of an axis at these positions; the axes of `where` replace that axis."""
    found = cx.emit("gather", span, x.value, where.value, axes=(axis,))
    lead, rank = where.tensor.rank, x.tensor.rank - 1 + where.tensor.rank
    if axis == 0 or lead == 0:
        return Array(found)
    order = (*range(lead, lead + axis), *range(lead), *range(lead + axis, rank))
    return Array(cx.emit("transpose", span, found, perm=order))


def slice_along(cx: ElabContext, x: Array, axis: int, start: Dim, stop: Dim, span: Span) -> Array:
    """The slice `start..stop` of an array along an axis."""
    shape = x.tensor.shape
    starts, stops = (0,) * len(shape), shape
    starts, stops = (*starts[:axis], start, *starts[axis + 1 :]), (*stops[:axis], stop, *stops[axis + 1 :])
    return Array(cx.emit("slice", span, x.value, starts=starts, stops=stops, steps=(1,) * len(shape)))


@builtin("roll", takes="x shift axis?")
@over_items(flattens=True)
def roll(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`roll(x, shift, axis = …)`: shift elements cyclically; without an axis, those of the whole flattened array."""
    took = BuiltinArgs(cx, args, name)
    x, shift, span = require_rank(took.array("x")), scalar_argument(took, "shift"), args.span
    require_integers(cx, shift, took.span("shift"), "a shift")
    axis = axis_argument(took, x, None)
    if axis is None:
        rolled = roll_axis(cx, flatten(cx, x, span), shift, 0, span)
        return Array(cx.emit("reshape", span, rolled.value, shape=x.tensor.shape))
    return roll_axis(cx, x, shift, axis, span)


def roll_axis(cx: ElabContext, x: Array, shift: Array, axis: int, span: Span) -> Array:
    """Two swapped slices where the shift is known at compile time, else a gather."""
    size = x.tensor.shape[axis]
    if isinstance(size, int) and isinstance(shift.static, int):
        if not size or not shift.static % size:
            return x
        middle = size - shift.static % size
        parts = slice_along(cx, x, axis, middle, size, span), slice_along(cx, x, axis, 0, middle, span)
        return Array(cx.emit("concat", span, *[p.value for p in parts], axis=axis))
    # Element i of the result is element i - shift of the array, modulo the size.
    back = elementwise(cx, "sub", span, (iota_to(cx, size, span), shift))
    where = as_array(cx, elementwise(cx, "rem", span, (back, cx.integer_array(size, span))), span)
    return take_along(cx, x, where, axis, span)


@builtin("split", takes="x parts axis?")
@over_items()
def split(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`split(x, 3, axis = 0)`: a tuple of that many equal parts; `split(x, [2, 5])`: cut before these positions."""
    took = BuiltinArgs(cx, args, name)
    x, parts, span = require_rank(took.array("x")), took.array("parts"), args.span
    axis = axis_argument(took, x, 0)
    assert axis is not None
    size = x.tensor.shape[axis]
    if parts.tensor.shape:
        places = [0, *shape_argument(cx, [took.by_name["parts"]]), size]
    else:
        count = took.integer("parts", 1)
        each = floor_div(size, count) if count > 0 else size
        if count < 1 or not cx.unifier.equal(each * count, size):
            shown = f"this axis has {count_of(size, 'element')}"
            way = "specify where to cut: `split(x, [2, 5])`"
            raise cx.error(
                "DL0310",
                f"an axis cannot be split into {count_of(count, 'equal part')}",
                took.span("parts"),
                shown,
                way,
            )
        places = [each * i for i in range(count + 1)]
    for start, stop in pairwise(places):
        beyond = stop - start
        if isinstance(beyond, int) and beyond < 0:
            shown = f"this axis has {count_of(size, 'element')}"
            raise cx.error(
                "DL0326", "the positions of a split must increase and lie within the axis", took.span("parts"), shown
            )
    return Tuple(tuple([slice_along(cx, x, axis, a, b, span) for a, b in pairwise(places)]))


@builtin("repeat", takes="x times axis?")
@over_items(flattens=True)
def repeat(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`repeat(x, 3, axis = …)`: every item that many times in a row; without an axis, every element in one vector."""
    took = BuiltinArgs(cx, args, name)
    x, span = require_rank(took.array("x")), args.span
    scalar_argument(took, "times")
    (times,) = shape_argument(cx, [took.by_name["times"]])
    axis = axis_argument(took, x, None)
    if axis is None:
        x, axis = flatten(cx, x, span), 0
    shape = x.tensor.shape
    wide = (*shape[: axis + 1], times, *shape[axis + 1 :])
    kept = tuple([i for i in range(len(wide)) if i != axis + 1])
    # Broadcast and reshape: no gather, and the transpose is a plain sum.
    spread = cx.emit("broadcast", span, x.value, shape=wide, axes=kept)
    return Array(cx.emit("reshape", span, spread, shape=(*shape[:axis], shape[axis] * times, *shape[axis + 1 :])))


@builtin("tile", takes="x times")
def tile(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`tile(x, 3)`, `tile(x, [2, 3])`: copies side by side along the last axes, or along new leading axes."""
    took = BuiltinArgs(cx, args, name)
    x, span = require_rank(took.array("x")), args.span
    times = shape_argument(cx, [took.by_name["times"]])
    rank = max(len(times), x.tensor.rank)
    shape = (*(1,) * (rank - x.tensor.rank), *x.tensor.shape)
    times = (*(1,) * (rank - len(times)), *times)
    # A new axis before each one, then merge each pair.
    wide = tuple([n for pair in zip(times, shape, strict=True) for n in pair])
    whole = cx.emit("reshape", span, x.value, shape=shape)
    spread = cx.emit("broadcast", span, whole, shape=wide, axes=tuple(range(1, 2 * rank, 2)))
    return Array(cx.emit("reshape", span, spread, shape=tuple([a * b for a, b in zip(times, shape, strict=True)])))


@builtin("gather", takes="x places axis?")
@over_items()
def gather(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`gather(x, places, axis = 0)`: the items of an axis at these positions, each checked."""
    took = BuiltinArgs(cx, args, name)
    x, places = require_rank(took.array("x")), require_rank(took.array("places"))
    axis = axis_argument(took, x, 0)
    assert axis is not None
    at = took.span("places")
    require_integers(cx, places, at, "an index")
    return take_along(cx, x, check_index(cx, places, x.tensor.shape[axis], at), axis, args.span)


@builtin("diag", takes="x k?")
def diag(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`diag(x, k = 0)`: the matrix with a vector on its diagonal, or the diagonal of a matrix; `k` above it."""
    took = BuiltinArgs(cx, args, name)
    x, k, span = require_rank(took.array("x")), took.integer("k", 0), args.span
    rows, columns = max(-k, 0), max(k, 0)
    if x.tensor.rank == 1:
        n = x.tensor.shape[0] + abs(k)
        line = cx.emit("pad", span, x.value, emit_zero(cx, x, span), low=(columns,), high=(rows,), interior=(0,))
        wide = Array(cx.emit("broadcast", span, line, shape=(n, n), axes=(1,)))
        return mask_triangle(cx, "eq", wide, k, span)
    if x.tensor.rank != 2:
        message = "`diag` takes a vector or a matrix"
        raise cx.error("DL0313", message, took.span("x"), f"this is {show_type(x.tensor)}")
    size = smaller_size(x.tensor.shape[0] - rows, x.tensor.shape[1] - columns)
    at = iota_to(cx, size, span)
    places = [
        as_array(cx, elementwise(cx, "add", span, (at, cx.integer_array(n, span))), span) for n in (rows, columns)
    ]
    return Array(cx.emit("gather", span, x.value, *[p.value for p in places], axes=(0, 1)))


def smaller_size(a: Dim, b: Dim) -> Dim:
    """The smaller of two sizes, at least 0. Errors: DeferCheck where it is unknown which is smaller."""
    if a == b and not isinstance(a, int):
        return a
    if not isinstance(a, int) or not isinstance(b, int):
        raise DeferCheck
    return max(min(a, b), 0)


@builtin("tril", "triu", takes="x k?")
def triangle(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`tril(x, k = 0)`: matrices with zeros above the k-th diagonal above the main one; `triu`: below it."""
    took = BuiltinArgs(cx, args, name)
    x, k = require_rank(took.array("x")), took.integer("k", 0)
    if x.tensor.rank < 2:
        message = f"`{name}` takes a matrix, or a stack of matrices"
        raise cx.error("DL0313", message, took.span("x"), f"this is {show_type(x.tensor)}")
    return mask_triangle(cx, "ge" if name == "tril" else "le", x, k, args.span)


def mask_triangle(cx: ElabContext, kept: str, x: Array, k: int, span: Span) -> Array:
    """The elements where `row + k` compares by `kept` with `column`; zeros elsewhere."""
    type = Tensor(I32, x.tensor.shape)
    row, column = (cx.emit("iota", span, type=type, axis=type.rank - axis) for axis in (2, 1))
    moved = cx.emit("add", span, row, cx.emit("const", span, value=k, type=type))
    nothing = cx.emit("const", span, value=0, type=x.tensor)
    # A select, not a product with a mask: NaN and infinity outside the triangle become 0 too.
    return Array(cx.emit("select", span, cx.emit(kept, span, moved, column), x.value, nothing))


def emit_zero(cx: ElabContext, x: Array, span: Span) -> Value:
    return cx.emit("const", span, value=0, type=Tensor(x.tensor.dtype))
