"""Tables of what each instance of a computation reads: which instances hold equal values, and where these stand.

Nested maps and calls make many instances of a value. The instances are the points of a *space*, with an axis for each
map around. A table holds a value for all points at once: `classes` gives each point the row that it reads, and equal
rows are one. A row holds known numbers, or positions in a `source` array that runs will compute. So what merely selects
elements is computed on positions while the program is compiled, and instances that read the same elements are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.ir.array_types import Array
from difflang.ir.graph import Value
from difflang.ops.op_factories import static_size, tensor_type

Shape = tuple[int, ...]


class Table(Struct, frozen=True):
    """A value in every point of a space: `rows[classes]`, where `classes` broadcasts to the space.

    Without a `source` a row is the value. With one it holds positions; a position stands for a block of the shape
    `block`, the last axes of the source, and counts blocks in row-major order.
    """

    rows: Array
    classes: Array
    source: Value | None = None
    block: Shape = ()

    @property
    def shape(self) -> Shape:
        """The shape of the value."""
        return (*self.rows.shape[1:], *self.block)

    def reindexed(self, classes: Array) -> Table:
        """The same rows, read by the points of another space; rows that are equal or not read are dropped."""
        return merge_rows(replace(self, classes=classes))

    def elementwise(self) -> Table:
        """The same with a position for each element."""
        if self.source is None or not self.block:
            return self
        size = prod(self.block)
        steps = np.arange(size).reshape(self.block)
        rows = self.rows.reshape(*self.rows.shape, *[1] * len(self.block)) * size + steps
        return replace(self, rows=rows, block=())


def single(rows: Array, rank: int, source: Value | None = None, block: Shape = ()) -> Table:
    """A value that is the same in every point of a space of that rank."""
    return Table(rows[None], np.zeros((1,) * rank, np.int64), source, block)


def merge_rows(table: Table) -> Table:
    """The table with each distinct row once, in order of first use, and with the classes' axes that matter."""
    used, classes = renumbered(table.classes, len(table.rows))
    rows = table.rows[used]
    if len(rows) > 1:
        kept, merged = renumbered(first_equal_rows(rows), len(rows))
        if len(kept) < len(rows):
            rows, classes = rows[kept], merged[classes]
    return replace(table, rows=rows, classes=drop_constant_axes(classes))


def renumbered(codes: Array, limit: int) -> tuple[Array, Array]:
    """The codes below `limit` that occur, in order of first use, and each code as its number in that order.

    The first axis runs fastest: what a map makes for each point then is a row for each of its items, and a reduction
    adds rows.
    """
    flat = codes.reshape(-1, order="F")
    first = np.full(limit, flat.size)
    first[flat[::-1]] = np.arange(flat.size)[::-1]  # of several writes the last one stays
    used = np.argsort(first, kind="stable")[: np.count_nonzero(first < flat.size)]
    number = np.zeros(limit, np.int64)
    number[used] = np.arange(len(used))
    return used, number[codes]


def first_equal_rows(rows: Array) -> Array:
    """For each row the number of an equal one, the same for all that are equal. Numbers are compared bit by bit."""
    flat = np.ascontiguousarray(rows).reshape(len(rows), prod(rows.shape[1:]))
    if not flat.shape[1]:
        return np.zeros(len(rows), np.int64)
    keys = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1])))[:, 0]
    if flat.shape[1] == 1 and flat.dtype.kind in "iub":
        keys = flat[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first[inverse.reshape(len(rows))]


def drop_constant_axes(classes: Array) -> Array:
    """The classes with one item along each axis on which they do not depend."""
    for axis in range(classes.ndim):
        one = classes.take([0], axis)
        if classes.shape[axis] > 1 and (classes == one).all():
            classes = one
    return classes


def whole_table(x: Value) -> Table:
    """The table of an array that is the same in every point."""
    return single(np.zeros((), np.int64), 1, x, tuple(map(static_size, tensor_type(x).shape)))


def stacked_table(x: Value) -> Table:
    """The table of an array whose items along the first axis are the values of one point each."""
    count, *item = map(static_size, tensor_type(x).shape)
    return Table(np.arange(count), np.arange(count), x, tuple(item))


def one_axis(table: Table, pick: Array) -> Table:
    """The table over a space of one axis, whose points read these rows."""
    return table.reindexed(pick)


def whole(table: Table, count: int) -> Array:
    """The classes of every point of a space of one axis."""
    return np.broadcast_to(table.classes, (count,))


def table_key(table: Table) -> tuple[object, ...]:
    return table.source, table.block, table.rows.dtype, table.rows.shape, table.rows.tobytes(), table.classes.tobytes()


class Join(Struct, frozen=True):
    """The coarsest classes of points in which several tables are constant, and for each class the row of each table."""

    classes: Array
    count: int
    picks: tuple[Array, ...]


def join(tables: Sequence[Table], rank: int) -> Join:
    """The classes of points that read the same row of every table."""
    classes, count, picks = np.zeros((1,) * rank, np.int64), 1, list[Array]()
    for table in tables:
        size = len(table.rows)
        kept, classes = renumbered(classes * size + table.classes, count * size)
        before, own = kept // size, kept % size
        count, picks = len(kept), [*[p[before] for p in picks], own]
    return Join(classes, count, tuple(picks))


def with_axis(table: Table, items: int | None) -> Table:
    """The table in a space with one more axis: the same along it, or with the items of the value's first axis."""
    classes = table.classes[..., None]
    if items is None:
        return replace(table, classes=classes)
    rows = table.rows if table.rows.ndim > 1 else split_blocks(table).rows
    block = table.block if table.rows.ndim > 1 else table.block[1:]
    rows = rows.reshape(len(rows) * items, *rows.shape[2:])
    return merge_rows(Table(rows, classes * items + np.arange(items), table.source, block))


def split_blocks(table: Table) -> Table:
    """The same with positions of the items of each block."""
    count = table.block[0]
    rows = table.rows[..., None] * count + np.arange(count)
    return replace(table, rows=rows, block=table.block[1:])


def without_axis(table: Table, items: int) -> Table:
    """The table in a space without its last axis, whose items are stacked as the first axis of the value."""
    classes = np.broadcast_to(table.classes, (*table.classes.shape[:-1], items))
    stacks = classes.reshape(-1, items)
    rows = table.rows[stacks]
    return merge_rows(replace(table, rows=rows, classes=np.arange(len(stacks)).reshape(classes.shape[:-1])))


def concatenate(tables: Sequence[Table]) -> Table | None:
    """One table over the points of one-axis spaces in a row; None if the rows do not read one source."""
    first = tables[0]
    if any(t.source is not first.source for t in tables):
        return None
    if any(t.block != first.block for t in tables):
        tables = [t.elementwise() for t in tables]
    offsets = np.cumsum([0, *[len(t.rows) for t in tables[:-1]]])
    classes = [t.classes + offset for t, offset in zip(tables, offsets, strict=True)]
    return merge_rows(
        replace(tables[0], rows=np.concatenate([t.rows for t in tables]), classes=np.concatenate(classes))
    )
