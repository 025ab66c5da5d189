"""The loop over tiles: slices of what it reads, one tile in each step, and the rest of an axis by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from difflang.ir.builder import Builder
from difflang.ir.graph import Attr, Attrs, Eqn, Graph, Value
from difflang.ir.tensor_types import I32, Tensor, Type
from difflang.ops.ad_interface import zeros
from difflang.ops.arrays.constants import const, iota
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.control.checkpoint_block import emit_checkpoint
from difflang.ops.loop.loop_op import loop
from difflang.ops.op_factories import tensor_type
from difflang.passes.reductions.tile_plan import Placed, TilePlan

INDEX = Tensor(I32)


class TiledLoop(Struct, frozen=True):
    """A plan with the size of a tile. In a derivative each step is a checkpoint."""

    plan: TilePlan
    size: int
    differentiated: bool

    def emit(self, graph: Graph) -> Graph:
        """The graph with the loop: first what it reads, then the loop, then what needs its results."""
        builder = Builder()
        env = {p: builder.param(p.type, p.hint) for p in graph.params}
        given = {*self.plan.summed, *[p.value for p in self.plan.stacked]}
        wanted = needed_eqns(graph, [*self.plan.consts, *[p.value for p in self.plan.sliced]], given, self.plan.late)

        def copy(eqns: Iterable[Eqn]) -> None:
            for eqn in eqns:
                builder.span = eqn.span
                env.update(zip(eqn.results, builder.copy(eqn, tuple([env[v] for v in eqn.operands])), strict=True))

        copy([e for e in graph.eqns if e in wanted])
        self.emit_loop(builder, env)
        copy([e for e in graph.eqns if e in self.plan.late])
        return builder.finish([env[r] for r in graph.results], name=graph.name)

    def emit_loop(self, builder: Builder, env: dict[Value, Value]) -> None:
        """The loop over whole tiles, and the rest by itself; extends `env` by the results."""
        builder.span = self.plan.steps[-1][0].span
        count, rest = divmod(self.plan.length, self.size)
        consts = [env[v] for v in self.plan.consts]
        xs = [as_items(env[p.value], p.axis or 0, count, self.size) for p in self.plan.sliced]
        start = [zeros(builder, v.type) for v in self.plan.summed]
        form: dict[str, Attr] = {"length": count, "exact": True, "reverse": False}
        limit = builder.const(count, INDEX)
        step = self.step([*consts, *start, *xs], len(consts))
        _, *outs = builder.emit(
            loop, [limit, *consts, *start, *xs], (step,), consts=len(consts), carry=len(start), **form
        )
        sums, tiles = outs[: len(start)], outs[len(start) :]
        tiles = [from_items(v, p.axis or 0, count * self.size) for v, p in zip(tiles, self.plan.stacked, strict=True)]
        if rest:
            ends = [
                slice_axis(env[p.value], p.axis or 0, count * self.size, self.plan.length) for p in self.plan.sliced
            ]
            last = self.computed(builder, rest, consts, ends, {})
            sums = [a + b for a, b in zip(sums, last[: len(sums)], strict=True)]
            pairs = zip(tiles, last[len(sums) :], self.plan.stacked, strict=True)
            tiles = [builder.one("concat", a, b, axis=p.axis or 0) for a, b, p in pairs]
        env.update(zip(self.plan.summed, sums, strict=True))
        env.update(zip([p.value for p in self.plan.stacked], tiles, strict=True))

    def step(self, operands: Sequence[Value], consts: int) -> Graph:
        """One step of the loop."""
        builder, n = Builder(), len(self.plan.summed)
        builder.param(INDEX)
        types = [
            *[v.type for v in operands[: consts + n]],
            *[tensor_type(v).drop_axes(0) for v in operands[consts + n :]],
        ]
        params = [builder.param(t) for t in types]
        made = self.computed(builder, self.size, params[:consts], params[consts + n :], {"loop_step": True})
        sums = [a + b for a, b in zip(params[consts : consts + n], made[:n], strict=True)]
        return builder.finish([*sums, *made[n:]])

    def computed(
        self,
        builder: Builder,
        size: int,
        consts: Sequence[Value],
        xs: Sequence[Value],
        attrs: Attrs,
    ) -> list[Value]:
        """The sums and the stacked results of one tile."""
        body = self.body(size, [v.type for v in xs])
        if not self.differentiated:
            return builder.inline(body, *consts, *xs)
        return emit_checkpoint(builder, body, [*consts, *xs], len(body.results), False, attrs)

    def body(self, size: int, types: Sequence[Type]) -> Graph:
        """A tile of `size` positions: (*consts, *slices) -> (*sums, *tiles)."""
        builder = Builder()
        env: dict[Placed, Value] = {Placed(v, None): builder.param(v.type, v.hint) for v in self.plan.consts}
        env |= {p: builder.param(t, p.value.hint) for p, t in zip(self.plan.sliced, types, strict=True)}
        for eqn, axis, operands in self.plan.steps:
            builder.span = eqn.span
            result = Placed(eqn.results[0], axis if axis >= 0 else None)
            env[result] = resized(builder, eqn, [env[p] for p in operands], axis, size)
        return builder.finish([*[env[Placed(v, None)] for v in self.plan.summed], *[env[p] for p in self.plan.stacked]])


def resized(builder: Builder, eqn: Eqn, operands: Sequence[Value], axis: int, size: int) -> Value:
    """An equation on a tile."""
    attrs = dict(eqn.attrs)
    if axis >= 0 and eqn.op in (const, iota):
        attrs["type"] = tensor_type(eqn.results[0]).resized(axis, size)
    elif axis >= 0 and eqn.op is broadcast:
        attrs["shape"] = tensor_type(eqn.results[0]).resized(axis, size).shape
    (result,) = builder.emit(eqn.op, operands, **attrs)
    return result


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
