"""Follows all instances of the graphs that a recursive call leads to, and emits what they compute, side by side.

Instances are points of a space, their values are tables (`instance_tables`). A call starts a new space, of one axis,
with a point for each set of arguments that differs; a map adds an axis. What is known or only moved is computed on
tables (`folded_rows`), all else is emitted once for each class of points that read the same. So the body of a graph is
emitted once for all calls of it that are ready together, whatever their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from msgspec.structs import replace

from difflang.ir.array_types import Array
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.ops.arrays.axis_reductions import AXIS_REDUCTIONS
from difflang.ops.arrays.constants import array_constant
from difflang.ops.arrays.shape_manipulation import concat
from difflang.ops.batching_rules import broadcast_over_batch
from difflang.ops.control.call import call
from difflang.ops.control.cond import cond
from difflang.ops.control.map import map_
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.sharing.instance_tables import (
    Join,
    Shape,
    Table,
    concatenate,
    folded_rows,
    join,
    merge_rows,
    one_axis,
    stacked_table,
    table_key,
    whole,
    whole_table,
    with_axis,
    without_axis,
)

MAX_ELEMENTS = 1 << 23  # of all tables of one expansion: a second of compile time
MAX_NESTING = 80  # calls within calls that are followed; Python's stack holds a few more
MAX_SELECT_EQNS = 8  # in a branch that is computed for all instances, since a select is cheaper than parting them


class UnshareableError(Exception):
    """The calls cannot be followed, or too much would have to be known of them."""


class InstanceWalker:
    """Follows all instances of the graphs that a call leads to, and emits what these compute."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.computed = 0  # calls that are left
        self.elements, self.depth = 0, 0
        self.known_calls: dict[object, list[Table]] = {}
        self.finest: Table | None = None  # what is computed is computed for the classes of this table

    def expand(self, graph: Graph, operands: Values) -> Values:
        tables = [whole_table(v) for v in operands]
        types = [tensor_type(r) for r in graph.results]
        results = self.enter(graph, tables, 1)
        return tuple([self.value(t, np.zeros(1, np.int64), type) for t, type in zip(results, types, strict=True)])

    # ---- Calls

    def enter(self, graph: Graph, tables: list[Table], instances: int) -> list[Table]:
        """The results of a graph for instances that all differ."""
        key = (graph, *map(table_key, tables))
        if key not in self.known_calls:
            self.depth += 1
            if self.depth > MAX_NESTING:
                raise UnshareableError
            self.computed += instances
            self.known_calls[key] = self.run(graph, tables, (instances,))
            self.depth -= 1
        return self.known_calls[key]

    def call_together(self, calls: Sequence[Eqn], arguments: Sequence[Sequence[Table]], rank: int) -> list[list[Table]]:
        """The results of several calls of one graph, each in a space of that rank: the distinct ones, side by side."""
        graph = calls[0].regions[0]
        joins = [join(tables, rank) for tables in arguments]
        counts = [j.count for j in joins]
        total = sum(counts)
        params = [
            self.chained(
                [one_axis(tables[i], j.picks[i]) for tables, j in zip(arguments, joins, strict=True)],
                counts,
                tensor_type(p),
            )
            for i, p in enumerate(graph.params)
        ]
        distinct = join(params, 1)
        inner = [one_axis(t, pick) for t, pick in zip(params, distinct.picks, strict=True)]
        results = self.enter(graph, inner, distinct.count)
        classes = np.broadcast_to(distinct.classes, (total,))
        offsets = np.cumsum([0, *counts])
        own = [classes[j.classes + offset] for j, offset in zip(joins, offsets, strict=False)]
        return [[r.reindexed(whole(r, distinct.count)[c]) for r in results] for c in own]

    def chained(self, tables: Sequence[Table], counts: Sequence[int], type: Tensor) -> Table:
        """Tables over spaces of one axis as one over all their points."""
        if len(tables) == 1:
            return tables[0]
        wide = [replace(t, classes=whole(t, n)) for t, n in zip(tables, counts, strict=True)]
        if (found := concatenate(wide)) is not None:
            return found
        stacks = [self.stack(t, whole(t, n), type) for t, n in zip(tables, counts, strict=True)]
        return stacked_table(concat.one(*stacks, axis=0))

    # ---- Graphs

    def run(self, graph: Graph, tables: Sequence[Table], space: Shape) -> list[Table]:
        """The results of a graph in every point of a space; calls of one graph that are ready together are a batch."""
        env: dict[Value, Table] = dict(zip(graph.params, tables, strict=True))
        todo: Sequence[Eqn] = graph.eqns
        while todo:
            calls: list[Eqn] = []
            late: list[Eqn] = []
            for eqn in todo:
                ready = all(v in env for v in eqn.operands)
                if ready and eqn.op is call and (not calls or calls[0].regions == eqn.regions):
                    calls.append(eqn)
                elif ready and eqn.op is not call:
                    env.update(zip(eqn.results, self.equation(eqn, [env[v] for v in eqn.operands], space), strict=True))
                else:
                    late.append(eqn)
            if calls:
                found = self.call_together(calls, [[env[v] for v in e.operands] for e in calls], len(space))
                for eqn, results in zip(calls, found, strict=True):
                    env.update(zip(eqn.results, results, strict=True))
            todo = late
        return [env[r] for r in graph.results]

    def equation(self, eqn: Eqn, tables: list[Table], space: Shape) -> list[Table]:
        """The results of an equation: known numbers, selected elements, or computed once for each class of points."""
        if not all(isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results)):
            raise UnshareableError
        if eqn.op is map_ and eqn.attrs["length"]:
            return self.map(eqn, tables, space)
        if eqn.op is cond and tables[0].source is None:
            return self.branch(eqn, tables, space)
        joined = join(tables, len(space))
        results = folded_rows(eqn, tables, joined)
        if results is None:
            return self.compute(
                eqn, tables, joined if self.finest is None else join([*tables, self.finest], len(space))
            )
        made = [merge_rows(replace(t, classes=joined.classes)) for t in results]
        self.elements += sum([t.rows.size + t.classes.size for t in results])
        if self.elements > MAX_ELEMENTS:
            raise UnshareableError
        return made

    def map(self, eqn: Eqn, tables: list[Table], space: Shape) -> list[Table]:
        """A map has one more axis of points."""
        consts, length = eqn.attrs["consts"], eqn.attrs["length"]
        inner = [with_axis(t, None if i < consts else length) for i, t in enumerate(tables)]
        results = self.run(eqn.regions[0], inner, (*space, length))
        self.elements += sum([t.rows.size + t.classes.size for t in (*inner, *results)])
        return [without_axis(t, length) for t in results]

    # ---- Branches whose conditions are known

    def branch(self, eqn: Eqn, tables: list[Table], space: Shape) -> list[Table]:
        """Each point takes the side that it needs; both sides of small branches are computed in all points."""
        truth = tables[0]
        if len(truth.rows) == 1:
            return self.run(eqn.regions[0 if truth.rows[0] else 1], tables[1:], space)
        joined = join(tables, len(space))
        if all(map(is_cheap, eqn.regions)):
            before, self.finest = self.finest, Table(np.arange(joined.count), joined.classes)
            sides = [self.run(region, tables[1:], space) for region in eqn.regions]
            self.finest = before
            return [self.select(eqn, truth, r, x, y, space) for r, x, y in zip(eqn.results, *sides, strict=True)]
        taken = truth.rows[joined.picks[0]]
        order = np.concatenate([np.flatnonzero(taken), np.flatnonzero(~taken)])
        counts = [int(taken.sum()), int((~taken).sum())]
        parts = [order[: counts[0]], order[counts[0] :]]
        sides = [
            self.run(region, [one_axis(t, p[part]) for t, p in zip(tables[1:], joined.picks[1:], strict=True)], (n,))
            for region, part, n in zip(eqn.regions, parts, counts, strict=True)
        ]
        place = np.argsort(order)[joined.classes]
        merged = [self.chained(pair, counts, tensor_type(r)) for r, *pair in zip(eqn.results, *sides, strict=True)]
        return [t.reindexed(whole(t, sum(counts))[place]) for t in merged]

    def select(self, eqn: Eqn, truth: Table, result: Value, x: Table, y: Table, space: Shape) -> Table:
        type = tensor_type(result)
        mask = truth.rows.reshape(-1, *[1] * type.rank)
        mask = replace(truth, rows=np.broadcast_to(mask, (len(mask), *x.shape)))
        operands = (Value(Tensor(BOOL, type.shape), result.home), result, result)
        made = Value(type, result.home)
        return self.equation(Eqn(select, operands, (made,), span=eqn.span), [mask, x, y], space)[0]

    # ---- Values

    def compute(self, eqn: Eqn, tables: Sequence[Table], joined: Join) -> list[Table]:
        """Emit an equation for each class of points."""
        if eqn.effectful:
            raise UnshareableError
        self.builder.span = eqn.span
        count = joined.count
        if count > 1 and eqn.op in AXIS_REDUCTIONS and not tensor_type(eqn.results[0]).shape:
            results = self.reduce_rows(eqn, tables[0].elementwise(), joined)
        else:
            results = self.emit(eqn, tables, joined)
        made = [whole_table(r) if count == 1 else stacked_table(r) for r in results]
        return [replace(t, classes=joined.classes) for t in made]

    def emit(self, eqn: Eqn, tables: Sequence[Table], joined: Join) -> Values:
        """The results of an equation, for several classes along a first axis."""
        count = joined.count
        wide = [count > 1 and len(t.rows) > 1 for t in tables]
        operands = [
            self.stack(t, pick, tensor_type(v)) if w else self.value(t, pick[:1], tensor_type(v))
            for v, t, pick, w in zip(eqn.operands, tables, joined.picks, wide, strict=False)
        ]
        if count == 1:
            return self.builder.copy(eqn, tuple(operands))
        if eqn.op.elementwise:
            batch = [x if w else broadcast_over_batch(x, count) for x, w in zip(operands, wide, strict=True)]
            return self.builder.emit(eqn.op, batch, **eqn.attrs)
        return self.emit_map(eqn, operands, wide, count)

    def reduce_rows(self, eqn: Eqn, table: Table, joined: Join) -> Values:
        """A reduction of all elements, with the classes along the last axis, where XLA on the CPU vectorizes."""
        rows = np.moveaxis(table.rows[joined.picks[0]], 0, -1)
        operand = self.read(table, rows, Tensor(tensor_type(eqn.operands[0]).dtype, rows.shape))
        return self.builder.emit(eqn.op, [operand], **eqn.attrs)

    def emit_map(self, eqn: Eqn, operands: Sequence[Value], wide: Sequence[bool], count: int) -> Values:
        """An equation for each class as a map, which later passes turn into an operation on whole arrays."""
        given = dict(zip(eqn.operands, operands, strict=True))
        differs = dict(zip(eqn.operands, wide, strict=True))
        params = sorted(given, key=differs.__getitem__)
        body = Graph(tuple(params), (eqn,), eqn.results)
        consts = len(params) - sum(differs.values())
        return self.builder.emit(map_, [given[p] for p in params], (body,), consts=consts, length=count)

    def value(self, table: Table, pick: Array, type: Tensor) -> Value:
        """The value in the points of one class."""
        return self.read(table, table.rows[pick[0]], type)

    def stack(self, table: Table, pick: Array, type: Tensor) -> Value:
        """The values in the points of several classes, along a first axis."""
        return self.read(table, table.rows[pick], Tensor(type.dtype, (len(pick), *type.shape)))

    def read(self, table: Table, rows: Array, type: Tensor) -> Value:
        """The array of known numbers, or of the blocks at these positions of a source."""
        if table.source is None or not rows.size:
            return array_constant(self.builder, rows, type) if table.source is None else self.builder.const(0, type)
        source = tensor_type(table.source)
        blocks = prod(map(static_size, source.shape[: source.rank - len(table.block)]))
        flat, at = self.reshaped(table.source, (blocks, *table.block)), rows.reshape(-1)
        first, last = int(at.min()), int(at.max())
        step = int(at[1] - at[0]) if len(at) > 1 else 1
        regular = step != 0 and bool((np.diff(at) == step).all())
        if regular or last - first < blocks // 2:
            ends = [(first, last + 1, abs(step) if regular else 1), *[(0, n, 1) for n in table.block]]
            starts, stops, steps = zip(*ends, strict=True)
            flat = self.builder.one("slice", flat, starts=starts, stops=stops, steps=steps)
            rows = rows - first
        if not regular:
            places = array_constant(self.builder, rows, Tensor(I32, rows.shape))
            flat = self.builder.one("gather", flat, places, axes=(0,))
        elif step < 0:
            flat = self.builder.one("reverse", flat, axes=(0,))
        return self.reshaped(flat, tuple(map(static_size, type.shape)))

    def reshaped(self, x: Value, shape: Shape) -> Value:
        return x if tensor_type(x).shape == shape else self.builder.one("reshape", x, shape=shape)


def is_cheap(region: Graph) -> bool:
    """Whether a branch is small and only moves elements or does the cheapest arithmetic."""
    return len(region.eqns) <= MAX_SELECT_EQNS and all(
        [
            not e.regions and not e.op.effect and {"cheap", "data movement", "bit exact"} & set(e.op.traits)
            for e in region.eqns
        ]
    )
