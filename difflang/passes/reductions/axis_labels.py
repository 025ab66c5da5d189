"""Axis labels: how the axes of an equation's operands lie in its result, so that passes can follow one axis.

A labeling gives each axis of a value a number, as the letters of einsum do. From the labels of a result follow those of
the operands, where an op works on each position of its labeled axes by itself: elementwise ops, broadcasts, permuted
axes, reductions and contractions.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from difflang.ir.graph import Eqn, Value
from difflang.ir.op import AxisPermutation
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.axis_reductions import (
    reduce_all,
    reduce_any,
    reduce_max,
    reduce_min,
    reduce_prod,
    reduce_sum,
)
from difflang.ops.arrays.constants import const, iota
from difflang.ops.arrays.euclidean_norm import reduce_norm
from difflang.ops.arrays.selected_elements import unique_position
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.op_factories import tensor_type
from difflang.passes.rules.reshapes_and_constants import int_tuple

Labels = tuple[int, ...]
REDUCTIONS = {reduce_sum, reduce_prod, reduce_max, reduce_min, reduce_norm, reduce_all, reduce_any, unique_position}


class FreshLabels(Struct):
    """Gives out labels that no axis has yet."""

    following: int

    def take(self) -> int:
        self.following += 1
        return self.following - 1


def operand_labels(eqn: Eqn, labels: Labels, fresh: FreshLabels) -> list[Labels] | None:
    """The labels of each operand's axes, for those of the one result; None if the op does not keep axes apart.

    Axes that the op sums get fresh labels. An operand of one number per position has fewer labels than the result.
    """
    if eqn.regions or eqn.op.effect or not all([isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results)]):
        return None
    if eqn.op.elementwise:
        return [labels] * len(eqn.operands)
    if eqn.op in (const, iota):
        return []
    if eqn.op is broadcast:
        return None if stretches_axis(eqn) else [tuple([labels[a] for a in int_tuple(eqn.attrs["axes"])])]
    if isinstance(eqn.op.movement, AxisPermutation):
        order = eqn.op.movement.order(**eqn.attrs)
        return [tuple([labels[order.index(a)] for a in range(len(order))])]
    if eqn.op in REDUCTIONS:
        return reduced_labels(eqn, labels, fresh)
    return contracted_labels(eqn, labels, fresh) if eqn.op is dot_general else None


def stretches_axis(eqn: Eqn) -> bool:
    """Whether a broadcast repeats an axis of size 1."""
    shape = tensor_type(eqn.results[0]).shape
    return any(
        d != shape[a] for d, a in zip(tensor_type(eqn.operands[0]).shape, int_tuple(eqn.attrs["axes"]), strict=True)
    )


def reduced_labels(eqn: Eqn, labels: Labels, fresh: FreshLabels) -> list[Labels]:
    axes, kept = int_tuple(eqn.attrs["axes"]), iter(labels)
    rank = tensor_type(eqn.operands[0]).rank
    return [
        tuple([fresh.take() if a in axes else next(kept) for a in range(rank)]),
        *[labels] * (len(eqn.operands) - 1),
    ]


def contracted_labels(eqn: Eqn, labels: Labels, fresh: FreshLabels) -> list[Labels]:
    batch, contract = eqn.attrs["batch"], eqn.attrs["contract"]
    summed = [fresh.take() for _ in contract[0]]
    rest = iter(labels[len(batch[0]) :])
    found: list[Labels] = []
    for side, x in enumerate(eqn.operands):
        known = {**dict(zip(batch[side], labels, strict=False)), **dict(zip(contract[side], summed, strict=True))}
        found.append(tuple([known[a] if a in known else next(rest) for a in range(tensor_type(x).rank)]))
    return found


Find = Callable[[Value], Eqn | None]
