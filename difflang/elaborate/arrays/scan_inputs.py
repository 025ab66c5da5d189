"""Turns arrays that a loop indexes by its own counter into scan inputs, read item by item."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.terms import Array
from difflang.ir.graph import Value
from difflang.ir.tensor_types import Tensor

if TYPE_CHECKING:
    from difflang.elaborate.arrays.indexing import SubscriptPart, Subscripts


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
