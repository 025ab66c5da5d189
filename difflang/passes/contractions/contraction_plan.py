"""Products of two broadcast arrays that are summed, and the contraction that computes such a sum."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec import Struct

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Value
from difflang.ir.op import AxisPermutation, Fill
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.shape_manipulation import broadcast, transpose
from difflang.ops.elementwise.linear_arithmetic import mul
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.contractions.einsum_form import Axes, MakerMap, stretches_axis
from difflang.passes.rules.reshapes_and_constants import int_tuple

MAX_SMALL_PRODUCT = 1 << 12  # elements: up to here a product with one full-size factor is not contracted
SEARCH_DEPTH = 8  # how many equations back an array in memory is searched for


class ContractionFactor(Struct, frozen=True):
    """A factor of a product: its axis i lies along axis `axes[i]` of the product."""

    value: Value
    axes: Axes

    @property
    def size(self) -> int:
        return prod(map(static_size, tensor_type(self.value).shape))


def strip_broadcasts(value: Value, made: MakerMap) -> ContractionFactor:
    """The array before broadcasts and axis permutations, and where its axes lie."""
    axes = tuple(range(tensor_type(value).rank))
    while (eqn := made.get(value)) is not None:
        if eqn.op is broadcast and not stretches_axis(eqn):
            axes = tuple([axes[a] for a in int_tuple(eqn.attrs["axes"])])
        elif isinstance(eqn.op.movement, AxisPermutation):
            order = eqn.op.movement.order(**eqn.attrs)
            axes = tuple([axes[order.index(a)] for a in range(len(order))])
        else:
            break
        (value,) = eqn.operands
    return ContractionFactor(value, axes)


def broadcast_factor(factor: ContractionFactor, shape: tuple[Dim, ...]) -> Value:
    """A factor broadcast to the shape of the product."""
    order = sorted(range(len(factor.axes)), key=factor.axes.__getitem__)
    value = factor.value if order == list(range(len(order))) else transpose.one(factor.value, perm=tuple(order))
    return broadcast.one(value, shape=shape, axes=tuple(sorted(factor.axes)))


class ContractionPlan(Struct, frozen=True):
    """A sum as a contraction of two factors over some axes of the product; other common axes are batch axes."""

    lhs: ContractionFactor
    rhs: ContractionFactor
    over: Axes
    batch_axes: Axes
    summed_after: Axes  # axes of one factor only, summed after the contraction

    @property
    def swapped(self) -> ContractionPlan:
        return ContractionPlan(self.rhs, self.lhs, self.over, self.batch_axes, self.summed_after)

    @property
    def order(self) -> Axes:
        """The axes of the contraction's result, as axes of the product."""
        left = [[a for a in f.axes if a not in self.over and a not in self.batch_axes] for f in (self.lhs, self.rhs)]
        return (*self.batch_axes, *left[0], *left[1])

    @property
    def reads(self) -> tuple[Value, ...]:
        return self.lhs.value, self.rhs.value

    def sum(self, builder: Builder, lhs: Value, rhs: Value) -> Value:
        contract, batch = (
            tuple([tuple([f.axes.index(a) for a in axes]) for f in (self.lhs, self.rhs)])
            for axes in (self.over, self.batch_axes)
        )
        result = builder.one("dot_general", lhs, rhs, contract=contract, batch=batch)
        order = self.order
        if self.summed_after:
            result = builder.one("reduce_sum", result, axes=tuple([order.index(a) for a in self.summed_after]))
            order = tuple([a for a in order if a not in self.summed_after])
        if list(order) == sorted(order):
            return result
        return builder.one("transpose", result, perm=tuple([order.index(a) for a in sorted(order)]))


def plan_contraction(eqn: Eqn, made: MakerMap) -> ContractionPlan | None:
    """The plan for a sum that is a contraction."""
    product = made.get(eqn.operands[0])
    return plan_product(product, int_tuple(eqn.attrs["axes"]), made) if product is not None else None


def plan_product(product: Eqn, summed: Axes, made: MakerMap) -> ContractionPlan | None:
    if product.op is not mul:
        return None
    shape = tensor_type(product.results[0]).shape
    lhs, rhs = (strip_broadcasts(v, made) for v in product.operands)
    # Axes of both factors are contracted or batched; those of one factor alone are rows, or summed afterwards.
    both = [a for a in lhs.axes if a in rhs.axes]
    over = tuple([a for a in both if a in summed])
    shared = tuple([a for a in range(len(shape)) if a in both and a not in summed])
    later = tuple([a for a in (*lhs.axes, *rhs.axes) if a in summed and a not in both])
    everywhere = {*lhs.axes, *rhs.axes} == set(range(len(shape)))
    if not over or not everywhere or 0 in shape or not is_profitable(lhs, rhs, shape, made):
        return None
    plan = ContractionPlan(lhs, rhs, over, shared, later)
    # Of both orders of the factors, the one whose result needs no transpose.
    return min(plan, plan.swapped, key=has_permuted_axes)


def has_permuted_axes(plan: ContractionPlan) -> bool:
    """Whether the result of the contraction has to be transposed."""
    order = [a for a in plan.order if a not in plan.summed_after]
    return order != sorted(order)


def is_profitable(lhs: ContractionFactor, rhs: ContractionFactor, shape: Sequence[object], made: MakerMap) -> bool:
    """Whether a factor is broadcast, and no full-size factor would have to be written to memory first."""
    # XLA fuses a small product of a matrix and a vector with its sum. A contraction would read its matrix from memory,
    # where it has to be written first: a slice of a loop's items, say.
    size = prod([n for n in shape if isinstance(n, int)])
    if lhs.size == size and rhs.size == size:
        return False
    if size in (lhs.size, rhs.size) and size <= MAX_SMALL_PRODUCT:
        return False
    return all(f.size < size or is_materialized(f.value, made) for f in (lhs, rhs))


def is_materialized(value: Value, made: MakerMap) -> bool:
    """Whether an array, or one of its size that it is computed from elementwise, is in memory in any case."""
    size = prod(map(static_size, tensor_type(value).shape))
    todo, seen = [(value, 0)], {value}
    while todo:
        value, depth = todo.pop()
        eqn = made.get(value)
        if not isinstance(value.type, Tensor) or prod(map(static_size, value.type.shape)) < size:
            continue
        if eqn is None or depth == SEARCH_DEPTH or eqn.regions or "fusion barrier" in eqn.op.traits:
            return True
        if isinstance(eqn.op.movement, Fill) or not eqn.operands:
            continue
        if not eqn.op.elementwise and not isinstance(eqn.op.movement, AxisPermutation):
            return True
        fresh = [v for v in eqn.operands if v not in seen]
        seen.update(fresh)
        todo += [(v, depth + 1) for v in fresh]
    return False
