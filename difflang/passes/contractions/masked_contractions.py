"""Sums of products of which a mask selects the terms, `sum(for j => if j <= i { a[i, j] * b[j] } else { 0 })`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec import Struct

from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Eqn, Value
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import FLOATS, Tensor
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.arrays.constants import const
from difflang.ops.arrays.shape_manipulation import transpose
from difflang.ops.control.cond import cond
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import loop
from difflang.ops.loop.step_transpose import INDEX
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.contractions.contraction_plan import (
    ContractionFactor,
    ContractionPlan,
    broadcast_factor,
    plan_product,
    strip_broadcasts,
)
from difflang.passes.contractions.einsum_form import Axes, MakerMap
from difflang.passes.rules.reshapes_and_constants import int_tuple

MAX_TERMS = 1 << 18  # XLA keeps memory for the terms of a branch even if it is not taken: 2 MiB of f64


class MaskedContraction(Struct, frozen=True):
    """A masked sum of products, as a contraction of which one factor is 0 where the mask does not hold.

    It is the same if the other factor is finite, which is checked at run time: otherwise 0 times Inf would be NaN.
    """

    plan: ContractionPlan
    truth: ContractionFactor  # the mask: its axes are among those of the plan's first factor
    shape: tuple[Dim, ...]

    @property
    def reads(self) -> tuple[Value, ...]:
        return *self.plan.reads, self.truth.value

    def sum(self, builder: Builder, lhs: Value, rhs: Value, truth: Value) -> Value:
        finite = builder.one("reduce_all", builder.one("isfinite", rhs), axes=tuple(range(tensor_type(rhs).rank)))
        types = [lhs.type, rhs.type, truth.type]
        regions = build_region(types, self.contraction), build_region(types, self.term_by_term)
        (result,) = builder.emit(cond, [finite, lhs, rhs, truth], regions)
        return result

    def contraction(self, lhs: Value, rhs: Value, truth: Value) -> list[Value]:
        axes = self.plan.lhs.axes
        there = ContractionFactor(truth, tuple([axes.index(a) for a in self.truth.axes]))
        zero = lhs.home.const(0.0, lhs.type)
        kept = select.one(broadcast_factor(there, tensor_type(lhs).shape), lhs, zero)
        return [self.plan.sum(lhs.home, kept, rhs)]

    def term_by_term(self, lhs: Value, rhs: Value, truth: Value) -> list[Value]:
        factors = [
            ContractionFactor(v, f.axes)
            for v, f in zip((lhs, rhs, truth), (self.plan.lhs, self.plan.rhs, self.truth), strict=True)
        ]
        summed = (*self.plan.over, *self.plan.summed_after)
        kept = [a for a in range(len(self.shape)) if a not in summed]
        if not kept or prod(map(static_size, self.shape)) <= MAX_TERMS:
            return [masked_sum(factors, self.shape, summed)]
        return [self.item_by_item(factors, summed, max(kept, key=lambda a: static_size(self.shape[a])))]

    def item_by_item(self, factors: Sequence[ContractionFactor], summed: Axes, along: int) -> Value:
        """The sum as a loop along an axis, so that the terms of one item are in memory at once."""
        rest = [a for a in range(len(self.shape)) if a != along]
        inner = [tuple([rest.index(a) for a in f.axes if a != along]) for f in factors]
        shared = [k for k, f in enumerate(factors) if along not in f.axes]
        order = [*shared, *[k for k in range(len(factors)) if k not in shared]]

        def item(_: Value, *values: Value) -> list[Value]:
            found = dict(zip(order, values, strict=True))
            parts = [ContractionFactor(found[k], axes) for k, axes in enumerate(inner)]
            shape = tuple([self.shape[a] for a in rest])
            return [masked_sum(parts, shape, tuple([rest.index(a) for a in summed]))]

        operands = [
            factors[k].value if k in shared else axis_to_front(factors[k].value, factors[k].axes.index(along))
            for k in order
        ]
        types = [v.type if k in shared else tensor_type(v).drop_axes(0) for k, v in zip(order, operands, strict=True)]
        home, form = factors[0].value.home, LoopAttrs(len(shared), 0, self.shape[along], exact=True, reverse=False)
        limit = home.const(static_size(self.shape[along]), INDEX)
        step = build_region([INDEX, *types], item)
        _, found = home.emit(loop, [limit, *operands], (step,), **form._asdict())
        place = [a for a in range(len(self.shape)) if a not in summed].index(along)
        back = (*range(1, place + 1), 0, *range(place + 1, tensor_type(found).rank))
        return transpose.one(found, perm=back) if place else found


def masked_sum(factors: Sequence[ContractionFactor], shape: tuple[Dim, ...], summed: Axes) -> Value:
    """The sum of the products of two factors where the third holds."""
    x, y, there = (broadcast_factor(f, shape) for f in factors)
    terms = select.one(there, x * y, x.home.const(0.0, Tensor(tensor_type(x).dtype, shape)))
    return reduce_sum.one(terms, axes=tuple(sorted(summed)))


def axis_to_front(value: Value, axis: int) -> Value:
    perm = (axis, *[a for a in range(tensor_type(value).rank) if a != axis])
    return transpose.one(value, perm=perm) if axis else value


class MaskAfterSum(Struct, frozen=True):
    """A sum of products under a mask that is the same for all that are added: their sum is masked."""

    plan: ContractionPlan
    truth: ContractionFactor  # its axes are none of those that are summed

    @property
    def reads(self) -> tuple[Value, ...]:
        return *self.plan.reads, self.truth.value

    def sum(self, builder: Builder, lhs: Value, rhs: Value, truth: Value) -> Value:
        total = self.plan.sum(builder, lhs, rhs)
        kept = [a for a in sorted(self.plan.order) if a not in self.plan.summed_after]
        there = ContractionFactor(truth, tuple([kept.index(a) for a in self.truth.axes]))
        mask = broadcast_factor(there, tensor_type(total).shape)
        return select.one(mask, total, builder.const(0.0, total.type))


def plan_masked(eqn: Eqn, made: MakerMap) -> MaskedContraction | MaskAfterSum | None:
    """The plan for a sum of products under a `select` with zero, which masks terms."""
    choice = made.get(eqn.operands[0])
    if choice is None or "select" not in choice.op.traits:
        return None
    product, nothing = made.get(choice.operands[1]), made.get(choice.operands[2])
    if product is None or nothing is None or nothing.op is not const or nothing.attrs["value"] != 0:
        return None
    plan, truth = plan_product(product, int_tuple(eqn.attrs["axes"]), made), strip_broadcasts(choice.operands[0], made)
    if plan is None or tensor_type(plan.lhs.value).dtype not in FLOATS:
        return None
    if not set(truth.axes) & {*plan.over, *plan.summed_after}:
        return MaskAfterSum(plan, truth)
    terms = tensor_type(choice.results[0]).shape
    if len(terms) in (len(plan.lhs.axes), len(plan.rhs.axes)) and prod(map(static_size, terms)) <= MAX_TERMS:
        return None  # to mask a factor with all axes costs more than to add few terms up
    for oriented in (plan, plan.swapped):
        if set(truth.axes) <= set(oriented.lhs.axes):
            return MaskedContraction(oriented, truth, terms)
    return None
