"""Indexed assignment `a[i] = e`, `a[i] += e`: of an array, and of an array of records, enums or functions.

Arrays are immutable, so an indexed assignment builds a new version by an update or a scatter.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.arrays.indexing import (
    are_adjacent,
    broadcast_positions,
    default_index_dtype,
    index_items,
    leaf_subscripts,
    padded_shape,
    read_indexed,
    reshape_to,
    slice_window,
    start_offsets,
)
from difflang.elaborate.arrays.subscripts import IndexMask, SubscriptPart, Subscripts
from difflang.elaborate.context import ElabContext
from difflang.elaborate.effects import LoggedWrite, WriteLog
from difflang.elaborate.expressions.broadcasting import as_array, broadcast_shape, broadcast_to
from difflang.elaborate.expressions.elementwise import elementwise
from difflang.elaborate.expressions.operators import ARITHMETIC
from difflang.elaborate.patterns.sum_types import widen_to_type
from difflang.elaborate.reports.operand_mismatches import dtype_mismatch_error
from difflang.elaborate.statements.write_logs import NotScatterable
from difflang.elaborate.terms import Array, Items, Term, leaves, term_from_leaves, type_of
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import I32, Tensor
from difflang.types.join_types import least_common_type
from difflang.types.language_types import add_axes, add_tags, array_axes, drop_axes, show_type
from difflang.types.type_errors import make_error
from difflang.types.unify import unify_dtypes

# The scatter op of each update operator. Positions may repeat.
SCATTER_OPS = {"=": "scatter", "+": "scatter_add", "*": "scatter_mul", "max": "scatter_max", "min": "scatter_min"}


def assign_indexed(cx: ElabContext, subs: Subscripts, value: Term, span: Span, op: str = "=") -> Array:
    """The array with a part replaced, or added to for `+`; other operations need an array of positions."""
    change = as_array(cx, value, span)
    if any(p.new_axis for p in subs.parts):
        raise cx.error("DL0207", "cannot assign to a new axis", subs.span)
    if not unify_dtypes(subs.base.tensor.dtype, change.tensor.dtype):
        raise dtype_mismatch_error("assignment", span, [subs.base, change], (subs.base_span, span))
    if padded_shape(subs) is not None:
        return subs.base
    if subs.mask is not None:
        return assign_masked(cx, subs, subs.mask, change, span, op)
    if any(p.where is not None or p.step != 1 for p in subs.parts):
        return assign_scattered(cx, subs, change, span, op)
    axes = subs.axes
    sizes = tuple(1 if p.size is None else p.size for p in axes)
    visible = tuple(p.size for p in axes if p.size is not None)
    part = reshape_to(cx, broadcast_to_target(cx, change, visible, span, subs), sizes, span)
    if all(p.full_axis for p in axes):
        return part if op == "=" else add_arrays(cx, subs.base, part, span)
    if op == "+":
        part = add_arrays(cx, slice_window(cx, subs), part, span)
    return Array(cx.emit("dynamic_update", span, subs.base.value, part.value, *start_offsets(axes)))


def assign_elements(cx: ElabContext, base: Term, subs: Subscripts, value: Term, span: Span) -> Term:
    """The array with a part replaced, or the array of items with some items replaced."""
    if isinstance(base, Items):
        return assign_items(cx, base, subs, value, span)
    return assign_indexed(cx, subs, value, span)


def assign_items(cx: ElabContext, array: Items, subs: Subscripts, value: Term, span: Span) -> Term:
    """The array with the items at these subscripts replaced, by one item or an array of them; an enum may change.

    Errors: DL0304 for a value of another type.
    """
    rank, given = len(array_axes(array.type)), type_of(value)
    axes = array_axes(given) if isinstance(value, Items) else ()
    # One item goes to every position, and a mask selects positions only for one item.
    old = type_of(index_items(cx, array, subs)) if axes and subs.mask is None else drop_axes(array.type, rank)
    both = least_common_type(cx.unifier, old, given)
    if both is None:
        found = (span, f"this is {show_type(given)}")
        raise make_error("DL0304", f"`{subs.span.text}` is {show_type(old)} and keeps that type", found)
    both = add_tags(both)
    whole = add_axes(drop_axes(both, len(axes)), array_axes(array.type))
    olds, news = (leaves(widen_to_type(cx.builder, t, type)) for t, type in ((array, whole), (value, both)))
    pairs = zip(olds, news, strict=True)
    written = [assign_indexed(cx, leaf_subscripts(cx, subs, leaf), Array(new), span) for leaf, new in pairs]
    return term_from_leaves(whole, [w.value for w in written])


def combine_update(cx: ElabContext, op: str, old: Term, value: Term, span: Span, spans: Sequence[Span] = ()) -> Term:
    """The updated element. `max=` and `min=` assign only if the new value is larger or smaller."""
    if op not in ("max", "min"):
        return elementwise(cx, ARITHMETIC[op], span, (old, value), spans)
    better = elementwise(cx, "gt" if op == "max" else "lt", span, (value, old), spans[::-1])
    return elementwise(cx, "select", span, (better, value, old))


def add_arrays(cx: ElabContext, a: Array, b: Array, span: Span) -> Array:
    total = elementwise(cx, "add", span, (a, b))
    assert isinstance(total, Array)
    return total


def broadcast_to_target(
    cx: ElabContext, change: Array, shape: tuple[Dim, ...], span: Span, subs: Subscripts, way: str = ""
) -> Array:
    """The value broadcast to the shape of its target. Errors: DL0310 if it does not fit there."""
    target = Array(cx.emit("const", span, value=0, type=Tensor(subs.base.tensor.dtype, shape)))
    if broadcast_shape(cx, (target, change), (subs.span, span), span) != shape:
        raise cx.error(
            "DL0310",
            "this value does not fit where it is assigned",
            span,
            f"{show_type(change.tensor)} assigned to {show_type(target.tensor)}",
            way,
        )
    return broadcast_to(cx, change, shape, span)


def assign_masked(cx: ElabContext, subs: Subscripts, mask: IndexMask, change: Array, span: Span, op: str) -> Array:
    """Assign one value to every item where the mask is true, or update those items by `op`. Errors: DL0310, DL0313."""
    for part in subs.parts:
        if part.where is not None:
            way = "loop over the positions"
            raise cx.error("DL0313", "a mask cannot be combined with an array of positions", mask.span, "", way)
    everywhere = replace(subs, mask=None)
    old = read_indexed(cx, everywhere)
    lead = sum(p.size is not None for p in subs.parts[: mask.first_part])
    axes = tuple(range(lead, lead + mask.truths.tensor.rank))
    way = "every selected item gets the same value; `a = where(mask, e, a)` assigns them one by one"
    item = broadcast_to_target(cx, change, old.tensor.shape[axes[-1] + 1 :], span, subs, way)
    new: Term = broadcast_to(cx, item, old.tensor.shape, span)
    if op != "=":
        new = combine_update(cx, op, old, new, span)
    here = Array(cx.emit("broadcast", mask.span, mask.truths.value, shape=old.tensor.shape, axes=axes))
    return assign_indexed(cx, everywhere, elementwise(cx, "select", span, (here, new, old)), span)


def assign_scattered(cx: ElabContext, subs: Subscripts, change: Array, span: Span, op: str) -> Array:
    """Scatter to the positions that arrays and points give together, and for each of them to all those of the ranges.

    Writes happen in row-major order: where positions repeat, the last write wins.
    """
    axes = subs.axes
    points = tuple(i for i, p in enumerate(axes) if p.size is None)
    ranges = [i for i, p in enumerate(axes) if p.size is not None and not p.full_axis]
    found = broadcast_positions(cx, [axes[i] for i in points], subs.span) if points else []
    lead = found[0].tensor.shape if found else ()
    grid: tuple[Dim, ...] = (*lead, *[p.size for p in (axes[i] for i in ranges) if p.size is not None])
    places = {i: expand_positions(cx, p, grid, subs.span) for i, p in zip(points, found, strict=True)}
    places |= {i: range_positions(cx, axes[i], grid, len(lead) + k, subs.span) for k, i in enumerate(ranges)}
    before = points[0] if points and are_adjacent(points) else 0
    update = broadcast_to_target(cx, change, read_shape(axes, lead, before), span, subs)
    slices = [i for i, p in enumerate(axes) if p.size is not None]
    stands = {i: k if k < before else k + len(lead) for k, i in enumerate(slices)}
    wholes = [i for i in slices if axes[i].full_axis]
    # The op takes positions first, then ranges, then whole axes.
    order = (*range(before, before + len(lead)), *[stands[i] for i in (*ranges, *wholes)])
    if order != tuple(range(len(order))):
        update = Array(cx.emit("transpose", span, update.value, perm=order))
    indexed = tuple(sorted(places))
    operands = (subs.base, update, *[places[i] for i in indexed])
    spans = (subs.base_span, span, *[subs.span] * len(indexed))
    return cx.emit_op(SCATTER_OPS[op], span, *operands, spans=spans, display_name=f"{op}=", axes=indexed)


def read_shape(axes: Sequence[SubscriptPart], lead: tuple[Dim, ...], before: int) -> tuple[Dim, ...]:
    """The shape of the written value: the shape that reading the same subscripts would give."""
    rest = [p.size for p in axes if p.size is not None]
    return (*rest[:before], *lead, *rest[before:])


def expand_positions(cx: ElabContext, positions: Array, grid: tuple[Dim, ...], span: Span) -> Array:
    """Positions broadcast over the grid axes that follow theirs."""
    axes = tuple(range(positions.tensor.rank))
    return Array(cx.emit("broadcast", span, positions.value, shape=grid, axes=axes))


def range_positions(cx: ElabContext, part: SubscriptPart, grid: tuple[Dim, ...], axis: int, span: Span) -> Array:
    """The positions of a range along an axis of the grid."""
    assert part.start is not None
    iota = Array(cx.emit("iota", span, type=Tensor(I32, grid), axis=axis))
    scaled = elementwise(cx, "mul", span, (iota, cx.integer_array(part.step, span)))
    moved = elementwise(cx, "add", span, (scaled, part.start))
    assert isinstance(moved, Array)
    return moved


# ---- Logged writes


def log_write(cx: ElabContext, log: WriteLog, subs: Subscripts, value: Term, span: Span) -> None:
    """Log a write."""
    change = as_array(cx, value, span)
    if not unify_dtypes(subs.base.tensor.dtype, change.tensor.dtype):
        raise dtype_mismatch_error("assignment", span, [subs.base, change], (subs.base_span, span))
    # The array is too small for any write: a check fails first, or this never runs.
    if padded_shape(subs) is not None:
        return
    if subs.mask is not None:
        raise NotScatterable
    parts = subs.axes[: log.kind.index_count]
    if len(subs.parts) != len(subs.axes) or any(p.size is not None for p in parts):
        raise NotScatterable
    found = [p.where if p.where is not None else p.start for p in parts]
    positions = [default_index_dtype(p) for p in found if p is not None]
    lead = broadcast_shape(cx, positions, (), subs.span)
    shape = (*lead, *subs.base.tensor.shape[len(parts) :])
    update = broadcast_to_target(cx, change, shape, span, subs)
    log.writes.append(LoggedWrite(tuple([broadcast_to(cx, p, lead, subs.span) for p in positions]), update))
