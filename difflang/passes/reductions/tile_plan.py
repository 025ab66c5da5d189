"""What a loop over tiles computes: from a large array along one axis, to its readers and back to what it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import F32, F64, FLOATS, Tensor
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.arrays.constants import const, iota
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.loop.residual_selection import total_bytes
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.reductions.axis_labels import FreshLabels, operand_labels

# A value of at most this many bytes is computed before the loop, and read in slices.
SLICED_BYTES = 1 << 16
# In place of the axis of a result: the steps add it up; it is the same in each.
SUMMED, WHOLE = -1, -2

MakerMap = Mapping[Value, Eqn]


class Placed(Struct, frozen=True):
    """A value as a step sees it: one tile along an axis, or the whole if that is None."""

    value: Value
    axis: int | None


class TilePlan(Struct):
    """What a loop over tiles computes."""

    length: int  # of the tiled axis
    steps: list[tuple[Eqn, int, list[Placed]]] = field(
        default_factory=list
    )  # equation, axis of its result (-1: summed), operands
    sliced: list[Placed] = field(default_factory=list)
    consts: list[Value] = field(default_factory=list)
    summed: list[Value] = field(default_factory=list)  # results that the steps add up
    stacked: list[Placed] = field(default_factory=list)  # results of which each step gives a tile
    late: set[Eqn] = field(default_factory=set)  # equations that need results of the loop


class TileWalk:
    """The walk from a large array along one of its axes: to what reads it, and back to what it is computed from."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made = {r: e for e in graph.eqns for r in e.results}
        self.order = {e: i for i, e in enumerate(graph.eqns)}

    def plan(self, seed: Value, axis: int) -> TilePlan | None:
        plan = TilePlan(static_size(tensor_type(seed).shape[axis]))
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
        plan.stacked = [
            Placed(v, axes[v]) for v in dict.fromkeys([*sorted_values(read_outside, self.made, self.order), *results])
        ]
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
        if label >= rank and not is_added_up(eqn):
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


def is_added_up(eqn: Eqn) -> bool:
    """Whether the result for all positions is the sum of those for tiles; sums of 16-bit floats are rounded once."""
    dtype = tensor_type(eqn.results[0]).dtype
    return eqn.op in (reduce_sum, dot_general) and (dtype not in FLOATS or dtype in (F32, F64))


def sorted_values(values: Iterable[Value], made: MakerMap, order: Mapping[Eqn, int]) -> list[Value]:
    return sorted(values, key=lambda v: order[made[v]])
