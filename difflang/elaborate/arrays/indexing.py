"""Reading `a[…]`: slices, gathers, new axes. A loop scans the arrays that it indexes by its own counter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.arrays.subscripts import IndexMask, SubscriptPart, Subscripts, evaluate_subscripts, full_axis
from difflang.elaborate.context import ElabContext, elaborate, elaborates
from difflang.elaborate.expressions.broadcasting import broadcast_shape, broadcast_to
from difflang.elaborate.patterns.structured_arrays import is_structured_array, item_grid
from difflang.elaborate.terms import Array, Items, Term, leaves, term_from_leaves
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import I32, Tensor
from difflang.syntax import tree
from difflang.types.dtype_variables import prune_dtype
from difflang.types.language_types import LangType, array_axes, leaf_types, map_tensors, show_type
from difflang.types.unify import unify_dtypes


@elaborates(tree.Index)
def index_expression(cx: ElabContext, e: tree.Index) -> Walk[Term]:
    base = yield elaborate(cx, e.base)
    if isinstance(base, Items) and is_structured_array(base):
        return index_items(cx, base, (yield evaluate_subscripts(cx, e, item_grid(cx, base, e.span), base)))
    subs: Subscripts = yield evaluate_subscripts(cx, e, base)
    return read_indexed(cx, subs)


def read_indexed(cx: ElabContext, subs: Subscripts) -> Array:
    """`a[...]`."""
    if subs.mask is not None:
        # A masked write is a select; a masked read would have a run-time length.
        raise mask_length_error(cx, subs.mask, of_numbers=True)
    subs = scan_loop_axes(subs)
    # The array is too small: a run-time check fails before the read, or the code never runs. Any value will do.
    if (wide := padded_shape(subs)) is not None:
        nothing = cx.emit("const", subs.span, value=0, type=Tensor(subs.base.tensor.dtype, wide))
        subs = replace(subs, base=Array(nothing))
    if any(p.where is not None for p in subs.parts):
        return gather_elements(cx, subs)
    window = slice_window(cx, subs)
    shape: list[Dim] = []
    sizes = iter(window.tensor.shape)
    for part in subs.parts:
        if part.new_axis:
            shape.append(1)
            continue
        size = next(sizes)
        if part.size is not None:
            shape.append(size)
    return reshape_to(cx, window, tuple(shape), subs.span)


def mask_length_error(cx: ElabContext, mask: IndexMask, *, of_numbers: bool) -> DifflangError:
    """The report of a read by a mask, whose number of items is not a size."""
    message = "the number of items that a mask selects is known only at run time"
    way = "keep all items, `where(mask, x, 0.0)`, or reduce the selected ones, `sum(for i if mask[i] => x[i])`"
    if not of_numbers:
        way = (
            "reduce the selected ones, `sum(for p in ps if p.m > 0.0 => p.m)`; outside functions a loop selects them, "
        )
        way += "`let some = for p in ps { if p.m > 0.0 { yield p } }`"
    return cx.error("DL0334", message, mask.span, f"this is {show_type(mask.truths.tensor)}", way)


def padded_shape(subs: Subscripts) -> tuple[Dim, ...] | None:
    """The smallest shape that fits these subscripts, if the array is known to be smaller; else None."""
    pairs = zip(subs.axes, subs.base.tensor.shape, strict=True)
    shape = tuple(d if p.full_axis else at_least(d, 1 if p.size is None else p.size) for p, d in pairs)
    return shape if shape != subs.base.tensor.shape else None


def at_least(size: Dim, wanted: Dim) -> Dim:
    return wanted if isinstance(size, int) and isinstance(wanted, int) and size < wanted else size


def reshape_to(cx: ElabContext, x: Array, shape: tuple[Dim, ...], span: Span) -> Array:
    return x if x.tensor.shape == shape else Array(cx.emit("reshape", span, x.value, shape=shape))


def slice_window(cx: ElabContext, subs: Subscripts) -> Array:
    """The slice that the parts of all axes select, with every axis kept."""
    axes = subs.axes
    if all(p.full_axis for p in axes):
        return subs.base
    starts = [p.start.static if p.start is not None else None for p in axes]
    sizes = tuple(1 if p.size is None else p.size for p in axes)
    if all(isinstance(s, (int, Poly)) for s in starts):
        firsts = tuple(s for s in starts if isinstance(s, (int, Poly)))
        steps = tuple(p.step for p in axes)
        full = zip(axes, subs.base.tensor.shape, firsts, sizes, strict=True)
        stops = tuple(d if p.full_axis else f + (n - 1) * p.step + 1 if n != 0 else f for p, d, f, n in full)
        return Array(cx.emit("slice", subs.span, subs.base.value, starts=firsts, stops=stops, steps=steps))
    if any(p.step != 1 for p in axes):
        # `dynamic_slice` has no steps: cut the static stepped ranges first.
        return slice_window(cx, slice_strides(cx, subs))
    return Array(cx.emit("dynamic_slice", subs.span, subs.base.value, *start_offsets(axes), sizes=sizes))


def slice_strides(cx: ElabContext, subs: Subscripts) -> Subscripts:
    """The same subscripts of an array whose stepped ranges, with static ends, are already sliced out."""
    pairs = list(zip(subs.axes, subs.base.tensor.shape, strict=True))
    steps = [p if p.step != 1 else full_axis(cx, d, subs.span) for p, d in pairs]
    rest = [full_axis(cx, p.size, subs.span) if p.step != 1 and p.size is not None else p for p in subs.axes]
    cut = slice_window(cx, replace(subs, parts=tuple(steps)))
    return replace(subs, base=cut, parts=tuple(rest))


def start_offsets(axes: Sequence[SubscriptPart]) -> list[Value]:
    return [p.start.value for p in axes if p.start is not None]


def gather_elements(cx: ElabContext, subs: Subscripts) -> Array:
    """Index by arrays of positions as in NumPy: they broadcast, and their axes replace the first indexed axis."""
    subs = insert_new_axes(cx, subs)
    base, indexed, positions = gather_operands(cx, subs)
    shape = positions[0].tensor.shape
    result = Array(cx.emit("gather", subs.span, base.value, *[p.value for p in positions], axes=indexed))
    # The op puts position axes first. NumPy puts them in place of adjacent indexed axes, else first.
    if are_adjacent(indexed) and indexed[0] > 0:
        lead, before = len(shape), indexed[0]
        order = (*range(lead, lead + before), *range(lead), *range(lead + before, result.tensor.rank))
        result = Array(cx.emit("transpose", subs.span, result.value, perm=order))
    return result


def insert_new_axes(cx: ElabContext, subs: Subscripts) -> Subscripts:
    """The same subscripts of an array that already has the new axes."""
    if not any(p.new_axis for p in subs.parts):
        return subs
    sizes = iter(subs.base.tensor.shape)
    shape = tuple(1 if p.new_axis else next(sizes) for p in subs.parts)
    parts = tuple(full_axis(cx, 1, subs.span) if p.new_axis else p for p in subs.parts)
    return replace(subs, base=reshape_to(cx, subs.base, shape, subs.span), parts=parts)


def gather_operands(cx: ElabContext, subs: Subscripts) -> tuple[Array, tuple[int, ...], list[Array]]:
    """The array with its ranges sliced out, the axes that positions index, and those positions."""
    axes = subs.axes
    indexed = tuple(i for i, p in enumerate(axes) if p.size is None)
    rest = [
        SubscriptPart(cx.integer_array(0, subs.span), d, full_axis=True) if i in indexed else p
        for i, (p, d) in enumerate(zip(axes, subs.base.tensor.shape, strict=True))
    ]
    base = slice_window(cx, replace(subs, parts=tuple(rest)))
    return base, indexed, broadcast_positions(cx, [axes[i] for i in indexed], subs.span)


def broadcast_positions(cx: ElabContext, points: Sequence[SubscriptPart], span: Span) -> list[Array]:
    """Positions along several axes, broadcast to one shape."""
    found = [p.where if p.where is not None else p.start for p in points]
    positions = [f for f in found if f is not None]
    shape = broadcast_shape(cx, positions, (), span)
    return [broadcast_to(cx, default_index_dtype(p), shape, span) for p in positions]


def default_index_dtype(p: Array) -> Array:
    dtype = prune_dtype(p.tensor.dtype)
    if hasattr(dtype, "candidates") and I32 in getattr(dtype, "candidates", ()):
        unify_dtypes(dtype, I32)
    return p


def are_adjacent(axes: tuple[int, ...]) -> bool:
    return all(b - a == 1 for a, b in pairwise(axes))


# ---- Arrays of texts, records, enums and functions


def index_items(cx: ElabContext, term: Items, subs: Subscripts) -> Term:
    """The items at these subscripts of the `item_grid`: read in every leaf, whose further axes stay whole."""
    if subs.mask is not None:
        raise mask_length_error(cx, subs.mask, of_numbers=False)
    rank = len(array_axes(term.type))
    found = [read_indexed(cx, leaf_subscripts(cx, subs, leaf)) for leaf in leaves(term)]
    # The item of a record without fields has only the axes.
    lead = found[0].tensor.shape[: found[0].tensor.rank - further_rank(term, rank)] if found else None
    lead = read_indexed(cx, subs).tensor.shape if lead is None else lead
    return term_from_leaves(replace_leading_axes(term.type, rank, lead), [f.value for f in found])


def further_rank(term: Items, rank: int) -> int:
    """The number of axes of the first leaf of one item."""
    return leaf_types(term.type)[0].rank - rank


def leaf_subscripts(cx: ElabContext, subs: Subscripts, leaf: Value) -> Subscripts:
    """The subscripts of an array of items, applied to one of its leaves."""
    assert isinstance(leaf.type, Tensor)
    rest = [full_axis(cx, size, subs.span) for size in leaf.type.shape[len(subs.axes) :]]
    return replace(subs, base=Array(leaf), parts=(*subs.parts, *rest))


def replace_leading_axes(type: LangType, axes: int, lead: tuple[Dim, ...] = ()) -> LangType:
    """The type with its first axes replaced by `lead`."""
    return map_tensors(type, lambda t: Tensor(t.dtype, (*lead, *t.shape[axes:])))


# ---- Arrays that a loop scans


def scan_loop_axes(subs: Subscripts) -> Subscripts:
    """Replace an array from outside a loop, indexed by the loop's counter, by its item; the other subscripts remain.

    A loop that reads `x[i]` then scans x, and its transpose writes each item once instead of adding up whole arrays.
    """
    while True:
        places = [(i, axis) for axis, i in enumerate(i for i, p in enumerate(subs.parts) if not p.new_axis)]
        found = [
            (p.start.index_of_loop.builder.depth, i, axis)
            for i, axis in places
            if (p := subs.parts[i]).start is not None
            and p.start.index_of_loop is not None
            and is_scannable(subs, p, axis)
        ]
        if not found:
            return subs
        # The outermost loop first: an inner loop can then scan the item.
        _, i, axis = min(found)
        index = subs.parts[i].start
        assert index is not None
        item = scanned_item(subs.base.value, axis, index, subs.span)
        subs = replace(subs, base=Array(item), parts=(*subs.parts[:i], *subs.parts[i + 1 :]))


def is_scannable(subs: Subscripts, part: SubscriptPart, axis: int) -> bool:
    """Whether a loop's counter indexes this axis in range at every step, of an array from outside the loop."""
    index, size = part.start, subs.base.tensor.shape[axis]
    if index is None or index.index_of_loop is None or part.size is not None:
        return False
    first, length = index.index_offset, index.index_of_loop.length
    if not isinstance(first, int) or not isinstance(length, int) or not isinstance(size, int):
        return False
    return first >= 0 and first + length <= size and subs.base.value.home.depth < index.index_of_loop.builder.depth


def scanned_item(array: Value, axis: int, index: Array, span: Span) -> Value:
    """The param of a loop's body that holds the item of an array at the loop's counter."""
    loop, array_type = index.index_of_loop, array.type
    assert loop is not None and isinstance(array_type, Tensor)
    key = (array, axis, index.index_offset)
    if key not in loop.rows:
        around = loop.builder.outer
        assert around is not None
        around.span = span
        rank, shape = array_type.rank, array_type.shape
        if loop.length != shape[axis]:
            starts = tuple(index.index_offset if a == axis else 0 for a in range(rank))
            stops = tuple(index.index_offset + loop.length if a == axis else d for a, d in enumerate(shape))
            array = around.one("slice", array, starts=starts, stops=stops, steps=(1,) * rank)
        if axis:
            array = around.one("transpose", array, perm=(axis, *[a for a in range(rank) if a != axis]))
        loop.arrays.append(around.capture(array))
        row = Tensor(array_type.dtype, tuple(d for a, d in enumerate(shape) if a != axis))
        loop.rows[key] = loop.builder.param(row, array.hint)
    return loop.rows[key]
