"""Batches loops and branches inside maps: what each instance runs by itself becomes one for the whole batch.

A loop runs until the last instance ends; an instance that has ended keeps its state. JAX batches `while_loop` in the
same way, by tracing it anew. It applies only where no derivative is taken any more: what an instance computes beyond
its end is thrown away, but may be NaN. Carries that are the same in all instances stay one value.

Where all instances share the condition of a branch, one `cond` runs one side for the whole batch. Where each has its
own, JAX too would run both sides and select; done here, products and sums in the sides meet those around the branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.tensor_types import Tensor, Type, sequence_item_type
from difflang.ops.arrays.axis_reductions import reduce_any
from difflang.ops.batching_rules import Mask, broadcast_all
from difflang.ops.control.cond import cond
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import loop
from difflang.ops.loop.step_transpose import INDEX
from difflang.ops.op_factories import tensor_type

BatchedGraph = tuple[Graph, Mask]  # a graph for the whole batch, and which of its results are batched
GraphBatcher = Callable[[Graph, Mask, int], BatchedGraph | None]


class BatchedLoop(Struct, frozen=True):
    """A loop, its regions for the whole batch, and which of its carries and outputs are batched."""

    eqn: Eqn
    carry: Mask
    step: BatchedGraph
    condition: BatchedGraph | None
    batch_size: int

    @property
    def batched_results(self) -> Mask:
        """Which results have a batch axis: the step count is the first."""
        return self.ends_independently, *self.carry, *self.step[1][len(self.carry) :]

    @property
    def ends_independently(self) -> bool:
        """Whether instances may end after different numbers of steps."""
        return self.condition is not None and self.condition[1][0]

    def __call__(self, limit: Value, *operands: Value, batched: Mask) -> list[Value]:
        """Its results, see `batched_results`. `batched` says which operands are, the limit first."""
        parts, has = LoopAttrs.of(self.eqn).parts([limit, *operands]), LoopAttrs.of(self.eqn).parts(batched)
        state = self.add_batch_axes(parts.carry, has.carry)
        # The first carry counts the steps of each instance.
        if self.ends_independently:
            state = [limit.home.const(0, Tensor(INDEX.dtype, (self.batch_size,))), *state]
        # An item of a batched array has the batch axis in front, so the array has it behind the axis of the steps.
        xs = [swap_leading(x) if b else x for x, b in zip(parts.xs, has.xs, strict=True)]
        items = [sequence_item_type(x.type) for x in xs]
        types = [INDEX, *[v.type for v in (*parts.consts, *state)], *items]
        regions = [build_region(types, self.stepped)] + (
            [build_region(types[: len(types) - len(xs)], self.batched_condition)] if self.condition else []
        )
        attrs: dict[str, Any] = {**self.eqn.attrs, "carry": len(state)}
        counts, *found = limit.home.emit(loop, [limit, *parts.consts, *state, *xs], tuple(regions), **attrs)
        if self.ends_independently:
            counts, *found = found
        ys = zip(found[len(self.carry) :], self.batched_results[1 + len(self.carry) :], strict=True)
        return [counts, *found[: len(self.carry)], *[swap_leading(y) if b else y for y, b in ys]]

    def add_batch_axes(self, values: Sequence[Value], has: Sequence[bool]) -> list[Value]:
        """The carries; those that are batched in the loop get a batch axis."""
        return broadcast_all(values, tuple([w or not k for w, k in zip(has, self.carry, strict=True)]), self.batch_size)

    def stepped(self, index: Value, *params: Value) -> list[Value]:
        """The carries after a step, updated only for active instances; their step counts come first."""
        # The count of an active instance is the index of the step. The condition of an instance that has ended is
        # evaluated with its own count again, and so stays false.
        graph, has = self.step
        home = index.home
        if not self.ends_independently:
            results, count = home.inline(graph, index, *params), len(self.carry)
            return [*self.add_batch_axes(results[:count], has[:count]), *results[count:]]
        at = LoopAttrs.of(self.eqn).consts
        counts, before = params[at], params[at + 1 :]
        inner = (index, *params[:at], *before)
        after = self.add_batch_axes(home.inline(graph, *inner), has)
        going = self.active_instances(counts, *inner[1:])
        one_more = counts + 1
        return [select_active(going, a, b) for a, b in zip([one_more, *after], [counts, *before], strict=True)]

    def batched_condition(self, index: Value, *params: Value) -> list[Value]:
        """Whether any instance is active."""
        if not self.ends_independently:
            return [self.active_instances(index, *params)]
        at = LoopAttrs.of(self.eqn).consts
        return [reduce_any.one(self.active_instances(params[at], *params[:at], *params[at + 1 :]), axes=(0,))]

    def active_instances(self, *params: Value) -> Value:
        assert self.condition is not None
        return params[0].home.inline(self.condition[0], *params)[0]


def select_active(going: Value, after: Value, before: Value) -> Value:
    """For each instance its state after a step if it is active, else its state before."""
    shape = tensor_type(after).shape
    truths = going if len(shape) == 1 else going.home.one("broadcast", going, shape=shape, axes=(0,))
    return select.one(truths, after, before)


def swap_leading(x: Value) -> Value:
    """An array with its first two axes swapped."""
    return x.home.one("transpose", x, perm=(1, 0, *range(2, tensor_type(x).rank)))


def batch_loop(eqn: Eqn, wide: Mask, batch_size: int, side_by_side: GraphBatcher) -> BatchedLoop | None:
    """The loop over the batch; None if its limit is batched, or if part of its step cannot be batched."""
    form, (step, *ends) = LoopAttrs.of(eqn), eqn.regions
    sequences = bool(form.parts(eqn.operands).xs) or len(step.results) > form.carry
    if wide[0] or form.history_outputs or (sequences and not (form.exact and isinstance(form.length, int))):
        return None
    parts = form.parts(wide)
    # A fixed point: a carry is batched if it enters so, or if a step gives it so.
    carry = tuple(parts.carry)
    while True:
        mask = (False, *parts.consts, *carry)
        go = side_by_side(ends[0], mask, batch_size) if ends else None
        done = side_by_side(step, (*mask, *parts.xs), batch_size)
        if done is None or (ends and go is None):
            return None
        each = go is not None and go[1][0]
        grown = tuple([each or a or b for a, b in zip(carry, done[1], strict=False)])
        if grown == carry:
            if not each:
                return BatchedLoop(eqn, carry, done, go, batch_size)
            # Then the condition takes the step count of each instance.
            go = side_by_side(ends[0], (True, *mask[1:]), batch_size)
            fits = go is not None and not sequences and has_bounded_body(eqn)
            return BatchedLoop(eqn, carry, done, go, batch_size) if fits else None
        carry = grown


def has_bounded_body(eqn: Eqn) -> bool:
    """Whether its regions hold no branches, effects or loops of run-time length."""
    # An instance that has ended would run them on values that no longer mean anything, perhaps without end.
    inner = [e for g in eqn.regions for h in graphs_postorder(g)[0] for e in h.eqns]
    return not any([e.op is cond or e.effectful or (e.op is loop and not e.attrs["exact"]) for e in inner])


# ---- Branches


class BatchedBranch(Struct, frozen=True):
    """A branch with its sides for the whole batch."""

    sides: tuple[BatchedGraph, BatchedGraph]
    own_condition: bool  # each instance has its own
    batch_size: int

    @property
    def batched_results(self) -> Mask:
        then, other = (mask for _, mask in self.sides)
        return tuple([self.own_condition or a or b for a, b in zip(then, other, strict=True)])

    def __call__(self, home: Builder, pred: Value, *operands: Value) -> list[Value]:
        """Its results, see `batched_results`."""
        if not self.own_condition:
            regions = tuple([self.region(side, [v.type for v in operands]) for side in self.sides])
            return list(home.emit(cond, [pred, *operands], regions))
        found = [self.side_results(home, side, operands) for side in self.sides]
        return [choose(pred, x, y) for x, y in zip(*found, strict=True)]

    def region(self, side: BatchedGraph, types: Sequence[Type]) -> Graph:
        builder = Builder()
        return builder.finish(self.side_results(builder, side, [builder.param(t) for t in types]))

    def side_results(self, home: Builder, side: BatchedGraph, operands: Sequence[Value]) -> list[Value]:
        """The results of a side, batched as those of the branch are."""
        graph, has = side
        enough = tuple([b or not wanted for b, wanted in zip(has, self.batched_results, strict=True)])
        return broadcast_all(home.inline(graph, *operands), enough, self.batch_size)


def choose(pred: Value, x: Value, y: Value) -> Value:
    """For each instance a result of one side or of the other."""
    shape = tensor_type(x).shape
    truths = pred if len(shape) == 1 else pred.home.one("broadcast", pred, shape=shape, axes=(0,))
    return select.one(truths, x, y)


def batch_branch(
    eqn: Eqn, wide: Mask, batch_size: int, side_by_side: GraphBatcher, *, selects: bool
) -> BatchedBranch | None:
    """The branch over the batch; None if part of it cannot be batched, or if it had to select and may not."""
    if wide[0] and (not selects or any(map(holds_open_loop, eqn.regions))):
        return None
    then, other = (side_by_side(region, wide[1:], batch_size) for region in eqn.regions)
    return None if then is None or other is None else BatchedBranch((then, other), wide[0], batch_size)


def holds_open_loop(graph: Graph) -> bool:
    """Whether a loop inside may have no end: it must not run in instances that do not reach it."""
    return any([e.op is loop and e.attrs["length"] is None for g in graphs_postorder(graph)[0] for e in g.eqns])
