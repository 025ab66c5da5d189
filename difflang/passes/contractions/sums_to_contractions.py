"""Turns sums of products into contractions: a sum over broadcast products becomes one `dot_general`.

`sum(for j => a[i, j] * b[j, k])` vectorizes to both arrays broadcast over i, j and k, multiplied and summed. The
contraction adds the same products, perhaps in another order, so Inf and NaN reach the same results. A sum over a short
window, `sum(for k in 0..4 => x[2 * i + k])`, becomes a sum of slices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod

from msgspec import Struct

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import Op
from difflang.ir.tensor_types import COMPLEXES, F32, F64, FLOATS
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.control.map import map_
from difflang.ops.elementwise.linear_arithmetic import add
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.op_factories import tensor_type
from difflang.passes.contractions.contraction_order import NamedAxesProduct, Order, OrderSearch, dot_cost, emit_einsum
from difflang.passes.contractions.contraction_plan import ContractionPlan, is_materialized, plan_contraction
from difflang.passes.contractions.einsum_form import EinsumForm, MakerMap, einsum_form
from difflang.passes.contractions.masked_contractions import MaskAfterSum, MaskedContraction, plan_masked
from difflang.passes.contractions.window_sums import WindowSum, plan_window_sum
from difflang.passes.rules.affine_indices import static_shape

# Factors get another order if it costs less than this part of what is written, which costs some microseconds at least.
MIN_GAIN, MIN_COST = 0.7, 4096.0
ORDERED = (F32, F64, *COMPLEXES)  # 16-bit floats overflow too easily for that


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


def emit_plan(plan: SumPlan, eqn: Eqn, eqns: list[Eqn], before: Mapping[Value, Value]) -> Value:
    """Append the equations of a planned sum; returns its value. `before` maps sums that have been replaced already."""
    builder = Builder(span=eqn.span)
    params = [builder.param(v.type) for v in plan.reads]
    result = plan.sum(builder, *params)
    to = {p: before.get(v, v) for p, v in zip(params, plan.reads, strict=True)}
    eqns += [e.replace_operands(to) for e in builder.eqns]
    return result


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
    """The plan for a sum of products, where another order of its factors and sums is clearly cheaper."""
    if tensor_type(eqn.results[0]).dtype not in ORDERED:
        return None
    form = einsum_form(eqn, level.made, level.readers)
    if form is None or not may_be_reordered(form):
        return None
    written = written_cost(form.nodes, level.made)
    if written < MIN_COST:
        return None
    cost, order = OrderSearch(form).cheapest()
    cost += sum([prod(static_shape(f.value)) for f in form.factors if not is_materialized(f.value, level.made)])
    return OrderedEinsum(form, order) if cost < MIN_GAIN * written else None


def may_be_reordered(form: EinsumForm) -> bool:
    """Whether another order may be cheaper: of three factors, or of a sum that can go before the contraction.

    Products written as contractions alone, such as `a @ b @ c`, keep their order.
    """
    ops = {e.op for e in form.nodes}
    return ops != {dot_general} and (len(form.factors) > 2 or ops == {reduce_sum, dot_general})


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


SumPlan = ContractionPlan | OrderedEinsum | MaskedContraction | MaskAfterSum | WindowSum
