"""Loops whose steps need nothing of each other become a map and reductions.

A step may add to a carry, write its own window of an array, or count; it may read of a carry only the window that it
writes. Then all steps can be computed at once: sums are reduced, windows are one block, counters are known beforehand.
The map is vectorized and its sums of products contracted like those of a comprehension. A loop whose limit the run
knows, but which other loops bound, runs to that bound, and what is beyond the limit counts for nothing.
A recurrence, a condition, an effect or a decorator keeps a loop as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.control.call import call
from difflang.ops.control.cond import cond
from difflang.ops.control.map import map_
from difflang.ops.elementwise.linear_arithmetic import mul
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import loop
from difflang.ops.loop.step_transpose import INDEX
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.loops.accumulators import classify_carry
from difflang.passes.loops.all_steps import AllSteps
from difflang.passes.loops.index_bounds import BoundsWalk, Forms, counter_bound
from difflang.passes.loops.scattered_sums import ScatteredSum, classify_scattered_sum
from difflang.passes.loops.step_facts import Accumulator, StepFacts, are_independent, shifted_positions, step_facts

MAX_NUMBERS = 2**24  # a value of all steps may have this many numbers
MAX_RATIO = 4  # or this many times those that the loop reads
DEFAULT_KEEP = (0, 0)


def loops_to_maps(graph: Graph) -> Graph:
    """Replace loops without recurrence by maps and reductions; sums may be added in another order. Cost: linear."""
    if not any(e.op is loop for g in graphs_postorder(graph)[0] for e in g.eqns):
        return graph
    return LoopConverter().function(graph)


class LoopConverter(BoundsWalk):
    def rewrite(self, eqn: Eqn, forms: Forms, depth: int) -> tuple[list[Eqn], Sequence[Value]]:
        found = independent_steps(eqn, forms, depth) if eqn.op is loop else None
        return found or ([eqn], eqn.results)


def independent_steps(eqn: Eqn, forms: Forms, depth: int) -> tuple[list[Eqn], list[Value]] | None:
    """The equations and the results of a loop whose steps can be computed at once."""
    length = step_bound(eqn, forms)
    if length is None or not has_simple_steps(eqn):
        return None
    shift = shifted_positions(eqn, forms, length)
    tries = [step_facts(eqn, forms, depth, length, s) for s in ([None] if shift is None else [shift, None])]
    found = [(facts, carries) for facts in tries if (carries := known_carries(eqn, facts)) is not None]
    # Windows side by side are written as one block: that is cheaper than a scatter.
    scattered = [sum([isinstance(c, ScatteredSum) for c in carries]) for _, carries in found]
    return emit_all_steps(eqn, *found[scattered.index(min(scattered))]) if found else None


def known_carries(eqn: Eqn, facts: StepFacts) -> list[Accumulator] | None:
    """What the steps do with each carry, if they can be computed at once."""
    carries: list[Accumulator] = []
    for place in range(LoopAttrs.of(eqn).carry):
        found = classify_carry(facts, place) or classify_scattered_sum(facts, place)
        if found is None:
            return None
        carries.append(found)
    values = {*[v for c in carries for v in c.values], *facts.graph.results[len(carries) :]}
    known = carries and are_independent(facts, carries) and fits(eqn, facts.length, values)
    return carries if known else None


def step_bound(eqn: Eqn, forms: Forms) -> int | None:
    """The greatest number of steps that a loop can take, if that is known and it has no other end."""
    form = LoopAttrs.of(eqn)
    if len(eqn.regions) > 1 or form.reverse or form.keep != DEFAULT_KEEP or form.host or form.reversible:
        return None
    if form.exact:
        return form.length if isinstance(form.length, int) and form.length > 1 else None
    # A loop of run-time length with items or outputs has those of a length of their own.
    if form.length is not None or len(eqn.results) > 1 + form.carry:
        return None
    bound = counter_bound(forms, eqn)
    most = bound.maximum if bound is not None else None
    return most + 1 if most is not None and most >= 0 else None


def has_simple_steps(eqn: Eqn) -> bool:
    """Whether all values are arrays, and no step has an effect, a derivative or a loop of run-time length."""
    if eqn.effectful or not all(isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results)):
        return False
    inner = [e for g in graphs_postorder(eqn.regions[0])[0] for e in g.eqns]
    return all([is_simple(e) for e in inner])


def is_simple(eqn: Eqn) -> bool:
    if eqn.op is loop:
        return bool(eqn.attrs["exact"]) and len(eqn.regions) == 1
    return (not eqn.regions and "pinned" not in eqn.op.traits) or eqn.op in (map_, cond, call)


def fits(eqn: Eqn, length: int, results: set[Value]) -> bool:
    """Whether what a step computes is small for all steps at once, but for products that are summed."""
    form, step = LoopAttrs.of(eqn), computed_for(eqn.regions[0], results)
    most = max([largest(g) for g in graphs_postorder(step)[0]], default=0)
    most = max([most, *map(number_count, results)])
    reads = sum(map(number_count, eqn.operands[1 : 1 + form.consts])) + sum(
        map(number_count, form.parts(eqn.operands).xs)
    )
    return length * most <= max(MAX_NUMBERS, MAX_RATIO * reads)


def computed_for(step: Graph, results: set[Value]) -> Graph:
    """The step, but only what it computes for some values and what it yields: arrays that it updates stay whole."""
    needed, eqns = {*results}, list[Eqn]()
    for eqn in reversed(step.eqns):
        if not needed.isdisjoint(eqn.results):
            needed.update(eqn.operands)
            eqns.append(eqn)
    return Graph(step.params, tuple(eqns[::-1]), tuple(results), step.name)


def largest(graph: Graph) -> int:
    """The most numbers of one value, products that are only summed left out: they become contractions."""
    readers: dict[Value, list[Eqn]] = {}
    for e in graph.eqns:
        for v in e.operands:
            readers.setdefault(v, []).append(e)
    sizes = [
        number_count(r)
        for e in graph.eqns
        for r in e.results
        if not (e.op is mul and r in readers and all(reader.op is reduce_sum for reader in readers[r]))
    ]
    return max(sizes, default=0)


def number_count(value: Value) -> int:
    return prod(map(static_size, tensor_type(value).shape))


def emit_all_steps(eqn: Eqn, facts: StepFacts, carries: list[Accumulator]) -> tuple[list[Eqn], list[Value]]:
    """A map over the steps, and what its results make of the carries."""
    form, step, length, shift = LoopAttrs.of(eqn), facts.graph, facts.length, facts.shift
    builder = Builder(span=eqn.span)
    inner = [builder.param(v.type, v.hint) for v in eqn.operands]
    at, params = form.parts(inner), form.parts(step.params)
    before = dict(zip(params.carry, at.carry, strict=True))
    outside = {**before, **dict(zip(params.consts, at.consts, strict=True))}
    count = at.first if form.exact else builder.one("max", at.first, builder.const(0, at.first.type))
    first = None if shift is None else outside[shift.first]
    steps = AllSteps(builder, step, facts.makers, outside, before, count, form.exact, length, first)
    steps.items[params.first] = steps.numbers()
    if shift is not None:
        steps.items[shift.position] = builder.one("iota", type=Tensor(INDEX.dtype, (length,)), axis=0)
    steps.items |= zip(params.xs, at.xs, strict=True)
    for carry in carries:
        carry.prepare(steps)
    ys = step.results[form.carry :]
    stacked = steps.compute([*[v for c in carries for v in c.values], *ys])
    results = [carry.finish(steps, stacked) for carry in carries]
    to = dict(zip(inner, eqn.operands, strict=True))
    eqns = [e.replace_operands(to) for e in builder.eqns]
    return eqns, [to.get(v, v) for v in (count, *results, *[stacked[y] for y in ys])]
