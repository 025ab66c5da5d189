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
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.interpreter import evaluate, evaluate_eqn
from difflang.ir.tensor_types import BOOL, I64, INTEGERS, Tensor, numpy_dtype
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.maps.vectorize_maps import MapVectorizer

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


# ---- Equations on tables: what they compute of known numbers, and where what they move comes from


def folded_rows(eqn: Eqn, tables: Sequence[Table], joined: Join) -> list[Table] | None:
    """Rows of an equation's results for each class: known numbers, or positions in the one source; None if neither."""
    if eqn.regions or eqn.op.effect:
        return None
    if all(t.source is None for t in tables):
        if not is_exact(eqn):
            return None
        return [Table(rows, joined.classes) for rows in evaluated_rows(eqn, tables, joined)]
    moved = moved_operands(eqn, tables)
    if moved is None:
        return None
    tables = [t.elementwise() for t in tables]
    source = tables[moved[0]].source
    # Position 0 is kept free, so that a zero which the op adds is seen.
    tables = [replace(t, rows=t.rows + 1) if i in moved else t for i, t in enumerate(tables)]
    (rows,) = evaluated_rows(with_positions(eqn, moved), tables, joined)
    return None if (rows == 0).any() else [Table(rows - 1, joined.classes, source)]


def is_exact(eqn: Eqn) -> bool:
    """Whether results computed beforehand are those of every engine."""
    if {"correctly rounded", "bit exact"} & set(eqn.op.traits):
        return True
    types = [tensor_type(v) for v in (*eqn.operands, *eqn.results)]
    return bool(eqn.operands) and all(t.dtype is BOOL or t.dtype in INTEGERS for t in types)


def moved_operands(eqn: Eqn, tables: Sequence[Table]) -> list[int] | None:
    """The operands whose elements an equation moves, if it does nothing else and they read one source."""
    traits = set(eqn.op.traits)
    if not ({"bit exact", "data movement"} <= traits or {"gather", "select"} & traits):
        return None
    rules = eqn.op.operand_rules.transpose or ()
    moved = [i for i in range(len(tables)) if rules[min(i, len(rules) - 1)] is not None]
    sources = {tables[i].source for i in moved}
    others = [t.source for i, t in enumerate(tables) if i not in moved]
    return moved if len(sources) == 1 and None not in sources and not any(s is not None for s in others) else None


def with_positions(eqn: Eqn, moved: Sequence[int]) -> Eqn:
    """The equation on arrays of positions."""
    operands = [
        Value(Tensor(I64, tensor_type(v).shape), v.home) if i in moved else v for i, v in enumerate(eqn.operands)
    ]
    results = [Value(Tensor(I64, tensor_type(r).shape), r.home) for r in eqn.results]
    return Eqn(eqn.op, tuple(operands), tuple(results), eqn.attrs, (), eqn.span)


def evaluated_rows(eqn: Eqn, tables: Sequence[Table], joined: Join) -> list[Array]:
    """The results of an equation for each class, on the rows of the tables."""
    if joined.count == 1:
        with np.errstate(all="ignore"):
            found = evaluate_eqn(eqn, [t.rows[pick[0]] for t, pick in zip(tables, joined.picks, strict=True)])
        return [np.asarray(x, numpy_dtype(tensor_type(r).dtype))[None] for x, r in zip(found, eqn.results, strict=True)]
    wide = [len(t.rows) > 1 for t in tables]
    rows = [t.rows[pick] if w else t.rows[0] for t, pick, w in zip(tables, joined.picks, wide, strict=True)]
    operands = tuple([Value(v.type, v.home) for v in eqn.operands])
    whole = Graph(operands, (Eqn(eqn.op, operands, eqn.results, eqn.attrs, (), eqn.span),), eqn.results)
    if (found := MapVectorizer(selects=True).batched_graph(whole, tuple(wide), joined.count)) is not None:
        return evaluate(found[0], *rows)
    each = [evaluate(whole, *[x[i] if w else x for x, w in zip(rows, wide, strict=True)]) for i in range(joined.count)]
    return [np.stack(results) for results in zip(*each, strict=True)]
