"""Batches branches inside maps: a branch becomes one for the whole batch, or both of its sides and a select.

Where all instances share the condition, one `cond` runs one side for the whole batch, and what is the same in all
instances is computed once. Where each instance has its own condition, JAX too would run both sides and select; done
here, products and sums in the sides meet those around the branch.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.tensor_types import Type
from difflang.ops.batching_rules import Mask, broadcast_all
from difflang.ops.control.cond import cond
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.loop.loop_op import loop
from difflang.ops.op_factories import tensor_type
from difflang.passes.maps.batch_loops import BatchedGraph, GraphBatcher


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
