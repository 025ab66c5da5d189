"""Tiling: large arrays that are soon summed are computed tile by tile, in a loop over one of their axes.

A program that sums a function of all pairs writes every pair to memory and reads it back; its derivative does so many
times. In a loop over slices of a long axis, what a step computes stays in the cache. The step is a checkpoint: reverse
mode saves nothing of it and computes each tile again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from msgspec import Struct, field

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import I32, Tensor
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.arrays.constants import const, iota
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.control.checkpoint_block import emit_checkpoint
from difflang.ops.control.map import map_
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.loop.loop_op import loop
from difflang.ops.loop.residual_selection import total_bytes
from difflang.ops.op_factories import tensor_type
from difflang.passes.axis_labels import REDUCTIONS, FreshLabels, operand_labels

# An array of this size is worth a loop: half of a common second-level cache. Smaller ones stay there by themselves.
MIN_BYTES = 1 << 20
# The largest array of a tile. Several of them are live at once, and should fit in the cache together.
TILE_BYTES = 1 << 18
MIN_TILES = 4  # below, tiles save little memory
# How much larger the array must be than what goes in and out of all steps.
LEAST_GROWTH = 3
# How much more a tile must hold than what all steps share: each step adds to the cotangents of that.
CONSTS_PER_TILE = 2
MAX_SEEDS = 4  # arrays of a graph from which a loop is tried
# A value of at most this many bytes is computed before the loop, and read in slices.
SLICED_BYTES = 1 << 16
INDEX = Tensor(I32)
# In place of the axis of a result: the steps add it up; it is the same in each.
SUMMED, WHOLE = -1, -2

MakerMap = Mapping[Value, Eqn]


def tile(graph: Graph) -> Graph:
    """Compute large arrays that are reduced in tiles; sums are added in another order. Cost: linear.

    Not in maps, whose instances run side by side. Sizes must be numbers.
    """
    return Tiler().graph(graph, False)


class Tiler:
    def __init__(self) -> None:
        self.done: dict[tuple[Graph, bool], Graph] = {}

    def graph(self, graph: Graph, differentiated: bool) -> Graph:
        key = graph, differentiated
        if key not in self.done:
            inner = graph
            if any([e.regions for e in graph.eqns]):
                inner = graph.with_eqns([self.rewrite_regions(e, differentiated) for e in graph.eqns])
            self.done[key] = tile_level(inner, differentiated)
        return self.done[key]

    def rewrite_regions(self, eqn: Eqn, differentiated: bool) -> Eqn:
        if not eqn.regions or eqn.op is map_:
            return eqn
        return eqn.with_regions([self.graph(r, differentiated or eqn.op.is_derivative) for r in eqn.regions])


def tile_level(graph: Graph, differentiated: bool) -> Graph:
    """One graph, whose regions have been rewritten."""
    if graph.effectful:
        return graph
    large = [e.results[0] for e in graph.eqns if e.op in MATERIALIZED and is_large(e.results[0])]
    for seed in sorted(large, key=lambda v: total_bytes([v]), reverse=True)[:MAX_SEEDS]:
        for axis in sorted(range(tensor_type(seed).rank), key=lambda a: -tensor_type(seed).shape[a]):
            plan = TileWalk(graph).plan(seed, axis)
            if plan is not None and (size := plan.tile_size(differentiated)) is not None:
                return plan.emit(graph, size, differentiated)
    return graph


# Ops whose results XLA writes to memory, unless what reads them is fused in.
MATERIALIZED = {*REDUCTIONS, dot_general}


def is_large(value: Value) -> bool:
    type = value.type
    return isinstance(type, Tensor) and all([isinstance(n, int) for n in type.shape]) and type.bytes >= MIN_BYTES


class Placed(Struct, frozen=True):
    """A value as a step sees it: one tile along an axis, or the whole if that is None."""

    value: Value
    axis: int | None


class TilePlan(Struct):
    """What a loop over tiles computes."""

    length: int  # of the tiled axis
    steps: list[tuple[Eqn, int, list[Placed]]] = field(default_factory=list)  # equation, axis of its result (-1: summed), operands
    sliced: list[Placed] = field(default_factory=list)
    consts: list[Value] = field(default_factory=list)
    summed: list[Value] = field(default_factory=list)  # results that the steps add up
    stacked: list[Placed] = field(default_factory=list)  # results of which each step gives a tile
    late: set[Eqn] = field(default_factory=set)  # equations that need results of the loop

    def tile_size(self, differentiated: bool) -> int | None:
        """How many positions a step takes; None if a loop does not pay."""
        arrays = [e.results[0] for e, axis, _ in self.steps if axis >= 0 and e.op in MATERIALIZED]
        largest = max(map(total_bytes, [[v] for v in arrays]), default=0)
        moved = total_bytes([p.value for p in (*self.sliced, *self.stacked)])
        if largest < MIN_BYTES or LEAST_GROWTH * moved > largest or not (differentiated or self.rereads()):
            return None
        row = largest / self.length
        shared = total_bytes(self.consts) if differentiated else 0
        size = ceil(max(TILE_BYTES, CONSTS_PER_TILE * shared) / row)
        return None if size * MIN_TILES > self.length else nearby_divisor(self.length, size)

    def rereads(self) -> bool:
        """Whether an array is in memory even where nothing is differentiated: a product, or one that is read twice."""
        readers: dict[Value, set[Eqn]] = {}
        for eqn, _, operands in self.steps:
            for at in operands:
                readers.setdefault(at.value, set()).add(eqn)
        return any([
            is_large(e.results[0]) and (e.op is dot_general or (e.op in REDUCTIONS and len(readers.get(e.results[0], ())) > 1))
            for e, axis, _ in self.steps if axis >= 0
        ])  # fmt: skip

    def emit(self, graph: Graph, size: int, differentiated: bool) -> Graph:
        """The graph with the loop: first what it reads, then the loop, then what needs its results."""
        builder = Builder()
        env = {p: builder.param(p.type, p.hint) for p in graph.params}
        given = {*self.summed, *[p.value for p in self.stacked]}
        wanted = needed_eqns(graph, [*self.consts, *[p.value for p in self.sliced]], given, self.late)

        def copy(eqns: Iterable[Eqn]) -> None:
            for eqn in eqns:
                builder.span = eqn.span
                env.update(zip(eqn.results, builder.copy(eqn, tuple([env[v] for v in eqn.operands])), strict=True))

        copy([e for e in graph.eqns if e in wanted])
        self.emit_loop(builder, env, size, differentiated)
        copy([e for e in graph.eqns if e in self.late])
        return builder.finish([env[r] for r in graph.results], name=graph.name)

    def emit_loop(self, builder: Builder, env: dict[Value, Value], size: int, differentiated: bool) -> None:
        """The loop over whole tiles, and the rest by itself; extends `env` by the results."""
        builder.span = self.steps[-1][0].span
        count, rest = divmod(self.length, size)
        consts = [env[v] for v in self.consts]
        xs = [as_items(env[p.value], p.axis or 0, count, size) for p in self.sliced]
        start = [builder.const(0.0, v.type) for v in self.summed]
        attrs = {"consts": len(consts), "carry": len(start), "length": count, "exact": True, "reverse": False}
        limit = builder.const(count, INDEX)
        step = self.step(size, [*consts, *start, *xs], len(consts), differentiated)
        _, *outs = builder.emit(loop, [limit, *consts, *start, *xs], (step,), **attrs)
        sums, tiles = outs[: len(start)], outs[len(start) :]
        tiles = [from_items(v, p.axis or 0, count * size) for v, p in zip(tiles, self.stacked, strict=True)]
        if rest:
            ends = [slice_axis(env[p.value], p.axis or 0, count * size, self.length) for p in self.sliced]
            last = self.computed(builder, rest, consts, ends, differentiated, {})
            sums = [a + b for a, b in zip(sums, last[: len(sums)], strict=True)]
            pairs = zip(tiles, last[len(sums) :], self.stacked, strict=True)
            tiles = [builder.one("concat", a, b, axis=p.axis or 0) for a, b, p in pairs]
        env.update(zip(self.summed, sums, strict=True))
        env.update(zip([p.value for p in self.stacked], tiles, strict=True))

    def step(self, size: int, operands: Sequence[Value], consts: int, differentiated: bool) -> Graph:
        """One step of the loop."""
        builder, n = Builder(), len(self.summed)
        builder.param(INDEX)
        types = [*[v.type for v in operands[: consts + n]], *[tensor_type(v).drop_axes(0) for v in operands[consts + n :]]]
        params = [builder.param(t) for t in types]
        made = self.computed(builder, size, params[:consts], params[consts + n :], differentiated, {"loop_step": True})
        sums = [a + b for a, b in zip(params[consts : consts + n], made[:n], strict=True)]
        return builder.finish([*sums, *made[n:]])

    def computed(
        self, builder: Builder, size: int, consts: Sequence[Value], xs: Sequence[Value], differentiated: bool, attrs: Mapping[str, bool]
    ) -> list[Value]:
        """The sums and the stacked results of one tile."""
        body = self.body(size, [v.type for v in xs])
        if not differentiated:
            return builder.inline(body, *consts, *xs)
        return emit_checkpoint(builder, body, [*consts, *xs], len(body.results), False, attrs)

    def body(self, size: int, types: Sequence[object]) -> Graph:
        """A tile of `size` positions: (*consts, *slices) -> (*sums, *tiles)."""
        builder = Builder()
        env: dict[Placed, Value] = {Placed(v, None): builder.param(v.type, v.hint) for v in self.consts}
        env |= {p: builder.param(t, p.value.hint) for p, t in zip(self.sliced, types, strict=True)}
        for eqn, axis, operands in self.steps:
            builder.span = eqn.span
            result = Placed(eqn.results[0], axis if axis >= 0 else None)
            env[result] = resized(builder, eqn, [env[p] for p in operands], axis, size)
        return builder.finish([*[env[Placed(v, None)] for v in self.summed], *[env[p] for p in self.stacked]])


def resized(builder: Builder, eqn: Eqn, operands: Sequence[Value], axis: int, size: int) -> Value:
    """An equation on a tile."""
    attrs = dict(eqn.attrs)
    if axis >= 0 and eqn.op in (const, iota):
        attrs["type"] = tensor_type(eqn.results[0]).resized(axis, size)
    elif axis >= 0 and eqn.op is broadcast:
        attrs["shape"] = tensor_type(eqn.results[0]).resized(axis, size).shape
    (result,) = builder.emit(eqn.op, operands, **attrs)
    return result


def nearby_divisor(length: int, size: int) -> int:
    """A divisor of the length from two thirds to twice the size, the nearest; the size itself if there is none."""
    near = [n for n in range(max(1, ceil(size * 2 / 3)), 2 * size + 1) if length % n == 0]
    return min(near, key=lambda n: abs(n - size), default=size)


def as_items(x: Value, axis: int, count: int, size: int) -> Value:
    """The tiles of an array along an axis, stacked along a new first axis; a rest is left out."""
    shape = tensor_type(x).shape
    if shape[axis] != count * size:
        x = slice_axis(x, axis, 0, count * size)
    x = x.home.one("reshape", x, shape=(*shape[:axis], count, size, *shape[axis + 1 :]))
    if axis == 0:
        return x
    order = (axis, *range(axis), *range(axis + 1, len(shape) + 1))
    return x.home.one("transpose", x, perm=order)


def from_items(x: Value, axis: int, length: int) -> Value:
    """The array whose tiles along an axis are stacked along the first."""
    rank = tensor_type(x).rank
    if axis:
        x = x.home.one("transpose", x, perm=(*range(1, axis + 1), 0, *range(axis + 1, rank)))
    shape = tensor_type(x).shape
    return x.home.one("reshape", x, shape=(*shape[:axis], length, *shape[axis + 2 :]))


def slice_axis(x: Value, axis: int, start: int, stop: int) -> Value:
    shape = tensor_type(x).shape
    starts, stops = [0] * len(shape), list(shape)
    starts[axis], stops[axis] = start, stop
    return x.home.one("slice", x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * len(shape))


def needed_eqns(graph: Graph, targets: Iterable[Value], given: set[Value], late: set[Eqn]) -> set[Eqn]:
    """The equations to keep before the loop: those that it or anything after it needs, but for what it gives."""
    need = {*targets, *graph.results, *[v for e in late for v in e.operands]} - given
    found: set[Eqn] = set()
    for eqn in reversed(graph.eqns):
        if eqn in late or need.isdisjoint(eqn.results):
            continue
        found.add(eqn)
        need.update(eqn.operands)
    return found


class TileWalk:
    """The walk from a large array along one of its axes: to what reads it, and back to what it is computed from."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made = {r: e for e in graph.eqns for r in e.results}
        self.order = {e: i for i, e in enumerate(graph.eqns)}

    def plan(self, seed: Value, axis: int) -> TilePlan | None:
        plan = TilePlan(tensor_type(seed).shape[axis])
        axes, late_values = {seed: axis}, set[Value]()
        uses: dict[tuple[Eqn, int], list[Placed]] = {}
        first = self.made[seed]
        placed = self.operands(first, axis)
        if placed is None:
            return None
        uses[first, axis] = placed
        read_outside: set[Value] = set()
        for eqn in self.graph.eqns[self.order[first] + 1 :]:
            tiled, late = [v for v in eqn.operands if v in axes], not late_values.isdisjoint(eqn.operands)
            if not tiled and not late:
                continue
            found = None if late else self.forward(eqn, axes)
            if found is None:
                plan.late.add(eqn)
                late_values.update(eqn.results)
                read_outside.update(tiled)
            else:
                at, operands = found
                uses[eqn, at] = operands
                if at >= 0:
                    axes[eqn.results[0]] = at
                else:
                    plan.summed.append(eqn.results[0])
                    late_values.update(eqn.results)
        results = [v for v in self.graph.results if v in axes]
        plan.stacked = [Placed(v, axes[v]) for v in dict.fromkeys([*sorted_values(read_outside, self.made, self.order), *results])]
        self.backwards(plan, uses, late_values, set(axes))
        return plan

    def operands(self, eqn: Eqn, axis: int) -> list[Placed] | None:
        """The operands of an equation for a tile of its result along an axis."""
        rank = tensor_type(eqn.results[0]).rank if isinstance(eqn.results[0].type, Tensor) else 0
        if len(eqn.results) != 1 or (eqn.op is iota and eqn.attrs["axis"] == axis):
            return None
        labels = operand_labels(eqn, tuple(range(rank)), FreshLabels(rank))
        if labels is None:
            return None
        return [Placed(v, a.index(axis) if axis in a else None) for v, a in zip(eqn.operands, labels, strict=True)]

    def forward(self, eqn: Eqn, axes: Mapping[Value, int]) -> tuple[int, list[Placed]] | None:
        """The axis of the result along which an equation can be tiled, or -1 if it sums the tiles."""
        if len(eqn.results) != 1 or not isinstance(eqn.results[0].type, Tensor):
            return None
        rank = tensor_type(eqn.results[0]).rank
        labels = operand_labels(eqn, tuple(range(rank)), FreshLabels(rank))
        if labels is None:
            return None
        tiled = {a[axes[v]] for v, a in zip(eqn.operands, labels, strict=True) if v in axes}
        if len(tiled) != 1:
            return None
        (label,) = tiled
        if label >= rank and eqn.op not in (reduce_sum, dot_general):
            return None
        placed = [Placed(v, a.index(label) if label in a else None) for v, a in zip(eqn.operands, labels, strict=True)]
        if any(v in axes and p.axis != axes[v] for v, p in zip(eqn.operands, placed, strict=True)):
            return None
        return (label if label < rank else SUMMED), placed

    def backwards(
        self, plan: TilePlan, uses: dict[tuple[Eqn, int], list[Placed]], late: set[Value], forward: set[Value]
    ) -> None:
        """Add what the steps read: slices, what is computed of them in each step, and what all steps share."""
        todo = [p for placed in uses.values() for p in placed]
        seen: set[Placed] = set()
        while todo:
            at = todo.pop()
            if at in seen or (at.axis is not None and at.value in forward):
                continue
            seen.add(at)
            eqn, axis = self.made.get(at.value), WHOLE if at.axis is None else at.axis
            placed = None if eqn is None else self.recomputed(eqn, at.axis)
            if eqn is not None and placed is not None:
                uses[eqn, axis] = placed
                todo += placed
            elif at.axis is None:
                plan.consts.append(at.value)
            else:
                plan.sliced.append(at)
        plan.steps = [(e, a, uses[e, a]) for e, a in sorted(uses, key=lambda use: (self.order[use[0]], use[1]))]

    def recomputed(self, eqn: Eqn, axis: int | None) -> list[Placed] | None:
        """The operands of an equation to compute in each step; None if its result is computed before the loop."""
        filled = eqn.op in (broadcast, const, iota)
        if axis is None:
            return [Placed(v, None) for v in eqn.operands] if filled else None
        return self.operands(eqn, axis) if filled or total_bytes(eqn.results) > SLICED_BYTES else None


def sorted_values(values: Iterable[Value], made: MakerMap, order: Mapping[Eqn, int]) -> list[Value]:
    return sorted(values, key=lambda v: order[made[v]])
