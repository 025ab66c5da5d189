"""Turns sums of products into contractions: a sum over broadcast products becomes one `dot_general`.

`sum(for j => a[i, j] * b[j, k])` vectorizes to both arrays broadcast over i, j and k, multiplied and summed. The
contraction adds the same products, perhaps in another order, so Inf and NaN reach the same results. A sum over a short
window, `sum(for k in 0..4 => x[2 * i + k])`, becomes a sum of slices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod

from msgspec import Struct

from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import AxisPermutation, Fill, Op
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import COMPLEXES, F32, F64, FLOATS, Tensor
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.arrays.constants import const
from difflang.ops.arrays.gather_scatter import gather as gather_op
from difflang.ops.arrays.shape_manipulation import broadcast, transpose
from difflang.ops.control.cond import cond
from difflang.ops.control.map import map_
from difflang.ops.elementwise.linear_arithmetic import add, mul, select
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import loop
from difflang.ops.loop.step_transpose import INDEX
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.contractions.contraction_order import NamedAxesProduct, Order, OrderSearch, dot_cost, emit_einsum
from difflang.passes.contractions.einsum_form import Axes, EinsumForm, MakerMap, einsum_form, stretches_axis
from difflang.passes.rules.affine_indices import AffineIndex, affine_index, emit_gather_slice, static_shape
from difflang.passes.rules.reshapes_and_constants import int_tuple

MAX_SMALL_PRODUCT = 1 << 12  # elements: up to here a product with one full-size factor is not contracted
MAX_WINDOW = 8  # the longest window that is summed slice by slice
# Factors get another order if it costs less than this part of what is written, which costs some microseconds at least.
MIN_GAIN, MIN_COST = 0.7, 4096.0
ORDERED = (F32, F64, *COMPLEXES)  # 16-bit floats overflow too easily for that
MAX_TERMS = 1 << 18  # XLA keeps memory for the terms of a branch even if it is not taken: 2 MiB of f64
SEARCH_DEPTH = 8  # how many equations back an array in memory is searched for


def contract(graph: Graph) -> Graph:
    """Turn sums of products into contractions. Dead equations are left to dce. Cost: linear."""

    def plan(eqn: Eqn, level: Level) -> SumPlan | None:
        ordered = plan_order(eqn, level)
        if ordered is not None or eqn.op is not reduce_sum:
            return ordered
        return plan_contraction(eqn, level.made) or (None if level.batched else plan_masked(eqn, level.made))

    return SumRewriter(plan, (reduce_sum, dot_general)).graph(graph)


def slice_window_sums(graph: Graph) -> Graph:
    """Turn sums over short windows into sums of slices. Dead equations are left to dce. Cost: linear."""
    return SumRewriter(lambda e, level: plan_window_sum(e, level.made), (reduce_sum,)).graph(graph)


class Level(Struct, frozen=True):
    """What is known of the graph around an equation."""

    made: MakerMap
    readers: Mapping[Value, int]
    batched: bool  # whether it is the body of a map, or within one


class SumRewriter:
    """Replaces each equation of some ops for which `plan` returns a plan."""

    def __init__(self, plan: Callable[[Eqn, Level], SumPlan | None], ops: tuple[Op, ...]) -> None:
        self.plan, self.ops = plan, ops
        self.done: dict[tuple[Graph, bool], Graph] = {}

    def graph(self, graph: Graph, in_map: bool = False) -> Graph:
        key = graph, in_map
        if key not in self.done:
            self.done[key] = self.rewrite_level(self.rewrite_regions(graph, in_map), in_map)
        return self.done[key]

    def rewrite_regions(self, graph: Graph, batched: bool) -> Graph:
        if not any([e.regions for e in graph.eqns]):
            return graph
        return graph.with_eqns(
            [self.rewrite_eqn_regions(e, batched or e.op is map_) if e.regions else e for e in graph.eqns]
        )

    def rewrite_eqn_regions(self, eqn: Eqn, batched: bool) -> Eqn:
        return eqn.with_regions([self.graph(region, batched) for region in eqn.regions])

    def rewrite_level(self, graph: Graph, batched: bool) -> Graph:
        sums = [e for e in graph.eqns if e.op in self.ops and tensor_type(e.operands[0]).dtype in FLOATS + COMPLEXES]
        if not sums:
            return graph
        made = {r: e for e in graph.eqns for r in e.results}
        level = Level(made, Counter([*graph.results, *[v for e in graph.eqns for v in e.operands]]), batched)
        plans = {e: plan for e in sums if (plan := self.plan(e, level)) is not None}
        return replace_sums(graph, plans) if plans else graph


def replace_sums(graph: Graph, plans: Mapping[Eqn, SumPlan]) -> Graph:
    eqns: list[Eqn] = []
    to: dict[Value, Value] = {}
    for eqn in graph.eqns:
        if eqn in plans:
            to[eqn.results[0]] = emit_plan(plans[eqn], eqn, eqns, to)
        else:
            eqns.append(eqn.replace_operands(to))
    return graph.with_eqns(eqns).replace_results(to)


def sum_terms(total: Value, made: MakerMap, readers: Mapping[Value, int]) -> list[Value]:
    """The terms of nested additions, in order; a partial sum that something else reads is one term."""
    found: list[Value] = []
    todo = [total]
    while todo:
        value = todo.pop()
        eqn = made.get(value)
        if eqn is not None and eqn.op is add and readers[value] == 1:
            todo += reversed(eqn.operands)
        else:
            found.append(value)
    return found


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


def emit_plan(plan: SumPlan, eqn: Eqn, eqns: list[Eqn], before: Mapping[Value, Value]) -> Value:
    """Append the equations of a planned sum; returns its value. `before` maps sums that have been replaced already."""
    builder = Builder(span=eqn.span)
    params = [builder.param(v.type) for v in plan.reads]
    result = plan.sum(builder, *params)
    to = {p: before.get(v, v) for p, v in zip(params, plan.reads, strict=True)}
    eqns += [e.replace_operands(to) for e in builder.eqns]
    return result


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


# ---- Products of many factors


class OrderedEinsum(Struct, frozen=True):
    """A sum of products as contractions in the cheapest order."""

    form: EinsumForm
    order: Order

    @property
    def reads(self) -> tuple[Value, ...]:
        return tuple([f.value for f in self.form.factors])

    def sum(self, builder: Builder, *factors: Value) -> Value:
        return emit_einsum(builder, self.form, self.order, factors)


def plan_order(eqn: Eqn, level: Level) -> OrderedEinsum | None:
    """The plan for a sum of products of three factors or more, where another order of them is clearly cheaper."""
    if tensor_type(eqn.results[0]).dtype not in ORDERED:
        return None
    form = einsum_form(eqn, level.made, level.readers)
    # Products written as contractions alone, such as `a @ b @ c`, keep their order.
    if form is None or len(form.factors) < 3 or all([e.op is dot_general for e in form.nodes]):
        return None
    written = written_cost(form.nodes, level.made)
    if written < MIN_COST:
        return None
    cost, order = OrderSearch(form).cheapest()
    cost += sum([prod(static_shape(f.value)) for f in form.factors if not is_materialized(f.value, level.made)])
    return OrderedEinsum(form, order) if cost < MIN_GAIN * written else None


def written_cost(nodes: Sequence[Eqn], made: MakerMap) -> float:
    """The cost of products, sums and contractions as they stand, in the unit of `OrderSearch`."""
    total = 0.0
    fused: set[Eqn] = set()  # products that are contracted in any case
    for eqn in nodes:
        if eqn.op is dot_general:
            total += dot_cost(eqn)
        elif eqn.op is reduce_sum:
            plan = plan_contraction(eqn, made)
            if plan is not None:
                sizes = dict(enumerate(static_shape(eqn.operands[0])))
                total += NamedAxesProduct(plan.lhs.axes, plan.rhs.axes, plan.order).cost(sizes)
                fused.add(made[eqn.operands[0]])
        elif eqn not in fused:
            total += prod(static_shape(eqn.results[0]))
    return total


# ---- Masked sums


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


def broadcast_factor(factor: ContractionFactor, shape: tuple[Dim, ...]) -> Value:
    """A factor broadcast to the shape of the product."""
    order = sorted(range(len(factor.axes)), key=factor.axes.__getitem__)
    value = factor.value if order == list(range(len(order))) else transpose.one(factor.value, perm=tuple(order))
    return broadcast.one(value, shape=shape, axes=tuple(sorted(factor.axes)))


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
    for oriented in (plan, plan.swapped):
        if set(truth.axes) <= set(oriented.lhs.axes):
            return MaskedContraction(oriented, truth, tensor_type(choice.results[0]).shape)
    return None


# ---- Windows


class WindowSum(Struct, frozen=True):
    """A sum along one axis of a gather with affine indices."""

    x: Value
    indices: tuple[AffineIndex, ...]
    axes: Axes
    grid: Axes
    along: int

    @property
    def reads(self) -> tuple[Value, ...]:
        return (self.x,)

    def sum(self, builder: Builder, x: Value) -> Value:
        parts = [self.part(builder, x, k) for k in range(self.grid[self.along])]
        found = [p for p in parts if p is not None]
        assert len(found) == len(parts)
        return reduce(lambda a, b: builder.one("add", a, b), found)

    def part(self, builder: Builder, x: Value, k: int) -> Value | None:
        """The k-th element of each window, as a slice; None if it is no slice."""
        here = [AffineIndex(p.start + k * p.steps[self.along], self.drop_summed_axis(p.steps)) for p in self.indices]
        return emit_gather_slice(builder.one, x, here, self.axes, self.drop_summed_axis(self.grid))

    def drop_summed_axis(self, of_axes: Axes) -> Axes:
        return tuple([s for d, s in enumerate(of_axes) if d != self.along])


def plan_window_sum(eqn: Eqn, made: MakerMap) -> WindowSum | None:
    """The plan for a sum over short windows, if the k-th elements of all windows are a slice."""
    gather, summed = made.get(eqn.operands[0]), int_tuple(eqn.attrs["axes"])
    if gather is None or gather.op is not gather_op or len(summed) != 1:
        return None
    x, *indices = gather.operands
    places = [affine_index(v, made) for v in indices]
    found, grid = [p for p in places if p is not None], static_shape(indices[0])
    if len(found) < len(places) or summed[0] >= len(grid) or not 0 < grid[summed[0]] <= MAX_WINDOW:
        return None
    window = WindowSum(x, tuple(found), int_tuple(gather.attrs["axes"]), grid, summed[0])
    # If the first and the last element of all windows are slices, so are those in between.
    trial = Builder()
    ends = [window.part(trial, trial.param(x.type), k) for k in (0, grid[summed[0]] - 1)]
    return window if None not in ends else None


SumPlan = ContractionPlan | OrderedEinsum | MaskedContraction | MaskAfterSum | WindowSum
