"""Bounds of integers that loops count: `j` in `0..i` with `i` in `0..n` is below `n - 1`, whatever the data.

An integer is followed to an affine form: a number and multiples of counters of loops and of integers that are unknown.
A counter is at least 0 and at most the limit of its loop less 1, which is such a form of what was counted before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.tensor_types import I32, I64, U32, Tensor
from difflang.ops.arrays.constants import const
from difflang.ops.control.call import call
from difflang.ops.elementwise.comparison_and_logic import ge, gt, le, lt, max_, min_
from difflang.ops.elementwise.linear_arithmetic import add, mul, sub, truncate
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import loop
from difflang.ops.op_factories import tensor_type

MAX_INDEX = 2**31 - 1
MAX_SYMBOLS = 8  # a form of more of them is not known


class Symbol(Struct, frozen=True, eq=False):
    """A counter, from 0 to `upper`, or an integer that is not known. `depth` orders counters, inner ones last."""

    depth: int
    upper: Affine | None = None


class Affine(Struct, frozen=True, eq=False):
    """An integer: `start`, and multiples of symbols."""

    start: int
    terms: Mapping[Symbol, int] = {}

    def plus(self, other: Affine, times: int = 1) -> Affine:
        terms = dict(self.terms)
        for symbol, n in other.terms.items():
            terms[symbol] = terms.get(symbol, 0) + times * n
        return Affine(self.start + times * other.start, {s: n for s, n in terms.items() if n})

    @property
    def maximum(self) -> int | None:
        """The greatest value that it can have, if that is known."""
        form = self
        while form.terms:
            # The innermost first: its bound is a form of the others, and so what they have in common cancels.
            symbol = max(form.terms, key=lambda s: s.depth)
            factor = form.terms[symbol]
            if symbol.upper is None:
                return None
            rest = Affine(form.start, {s: n for s, n in form.terms.items() if s is not symbol})
            form = rest.plus(symbol.upper, factor) if factor > 0 else rest
        return form.start

    @property
    def minimum(self) -> int | None:
        below = Affine(0).plus(self, -1).maximum
        return None if below is None else -below

    def within(self, least: int, most: int) -> bool:
        """Whether it surely lies between two numbers."""
        low, high = self.minimum, self.maximum
        return low is not None and high is not None and least <= low and high <= most


Forms = dict[Value, Affine]


def learn(forms: Forms, eqn: Eqn, depth: int) -> None:
    """Record the form of what an equation computes, if it is one integer."""
    if len(eqn.results) != 1 or not is_index(eqn.results[0]):
        return
    found = index_form(forms, eqn, depth)
    if found is not None and len(found.terms) <= MAX_SYMBOLS:
        forms[eqn.results[0]] = found


def is_index(value: Value) -> bool:
    return isinstance(value.type, Tensor) and value.type.dtype in (I32, I64, U32) and value.type.rank == 0


def form_of(forms: Forms, value: Value, depth: int) -> Affine:
    """The form of an integer; one that nothing is known of is a symbol of its own."""
    if value not in forms:
        forms[value] = Affine(0, {Symbol(depth): 1})
    return forms[value]


def index_form(forms: Forms, eqn: Eqn, depth: int) -> Affine | None:
    if eqn.op is const:
        number = eqn.attrs["value"]
        return Affine(number) if isinstance(number, int) else None
    if not eqn.operands or not all(map(is_index, eqn.operands)) or tensor_type(eqn.results[0]).dtype is U32:
        return unsigned_form(forms, eqn, depth)
    sides = [form_of(forms, v, depth) for v in eqn.operands]
    if eqn.op in (add, sub):
        return sides[0].plus(sides[1], 1 if eqn.op is add else -1)
    if eqn.op is mul and any(not s.terms for s in sides):
        number, other = sides if not sides[0].terms else sides[::-1]
        return Affine(0).plus(other, number.start)
    if eqn.op in (max_, min_) and all(s.within(-MAX_INDEX, MAX_INDEX) for s in sides):
        difference = sides[0].plus(sides[1], -1)
        first, second = sides if eqn.op is max_ else sides[::-1]
        if difference.within(0, 2 * MAX_INDEX):
            return first
        return second if difference.within(-2 * MAX_INDEX, 0) else None
    return sides[0] if eqn.op is truncate and sides[0].within(-MAX_INDEX, MAX_INDEX) else None


def unsigned_form(forms: Forms, eqn: Eqn, depth: int) -> Affine | None:
    """An index that is known not to be negative is itself as an unsigned integer."""
    if eqn.op is not truncate or not is_index(eqn.operands[0]):
        return None
    form = form_of(forms, eqn.operands[0], depth)
    return form if form.within(0, MAX_INDEX) else None


def known_comparison(forms: Forms, eqn: Eqn) -> bool | None:
    """Whether a comparison of two integers surely holds, or surely does not."""
    if eqn.op not in COMPARISONS or any(v not in forms for v in eqn.operands):
        return None
    a, b = [forms[v] for v in eqn.operands]
    low, high = COMPARISONS[eqn.op]
    difference = a.plus(b, -1)
    if not all(form.within(-MAX_INDEX, MAX_INDEX) for form in (a, b)):
        return None
    least, most = difference.minimum, difference.maximum
    assert least is not None and most is not None
    if low <= least and most <= high:
        return True
    return False if most < low or high < least else None


# The least and the greatest difference of the sides for which each comparison holds.
FAR = 2 * MAX_INDEX
COMPARISONS = {ge: (0, FAR), gt: (1, FAR), le: (-FAR, 0), lt: (-FAR, -1)}


def enter_loop(forms: Forms, eqn: Eqn, depth: int) -> list[Forms]:
    """What is known of the params of a loop's regions: the counter of its step, and consts."""
    form = LoopAttrs.of(eqn)
    found: list[Forms] = []
    for region in eqn.regions:
        at = form.parts(region.params)
        inside = {p: forms[v] for p, v in zip(at.consts, form.parts(eqn.operands).consts, strict=True) if v in forms}
        if region is eqn.regions[0]:
            inside[at.first] = Affine(0, {Symbol(depth + 1, counter_bound(forms, eqn)): 1})
        found.append(inside)
    return found


def counter_bound(forms: Forms, eqn: Eqn) -> Affine | None:
    """The greatest number of a loop's step, if a limit ends it."""
    form = LoopAttrs.of(eqn)
    if isinstance(form.length, int):
        return Affine(form.length - 1)
    limit = forms.get(eqn.operands[0])
    # With a condition a negative limit is none. A form beyond 32 bits is not what the run computes.
    if limit is None or not limit.within(0 if len(eqn.regions) > 1 else -MAX_INDEX, MAX_INDEX):
        return None
    return limit.plus(Affine(1), -1)


def enter_regions(forms: Forms, eqn: Eqn, depth: int) -> list[Forms]:
    """What is known of the params of an equation's regions."""
    if eqn.op is loop:
        return enter_loop(forms, eqn, depth)
    found: list[Forms] = [{} for _ in eqn.regions]
    if eqn.op is call or eqn.op.region_dataflow is None:
        return found
    for slot in eqn.op.region_dataflow(eqn).slots:
        if slot.operand is not None and slot.invariant and eqn.operands[slot.operand] in forms:
            for inside, region, place in zip(found, eqn.regions, slot.params, strict=True):
                if place is not None:
                    inside[region.params[place]] = forms[eqn.operands[slot.operand]]
    return found


class BoundsWalk:
    """A rewrite of every equation, inner ones first, that knows the forms of the integers around it."""

    def __init__(self) -> None:
        self.functions: dict[Graph, Graph] = {}

    def function(self, graph: Graph) -> Graph:
        """A graph of whose params nothing is known."""
        if graph not in self.functions:
            self.functions[graph] = self.graph(graph, {}, 0)
        return self.functions[graph]

    def graph(self, graph: Graph, forms: Forms, depth: int) -> Graph:
        eqns: list[Eqn] = []
        to: dict[Value, Value] = {}
        for old in graph.eqns:
            eqn = old.replace_operands(to)
            if eqn.op is call:
                eqn = eqn.with_regions(map(self.function, eqn.regions))
            elif eqn.regions:
                inside = enter_regions(forms, eqn, depth)
                pairs = zip(eqn.regions, inside, strict=True)
                eqn = eqn.with_regions([self.graph(region, known, depth + 1) for region, known in pairs])
            new, results = self.rewrite(eqn, forms, depth)
            for e in new:
                learn(forms, e, depth)
            eqns += new
            to |= {a: b for a, b in zip(eqn.results, results, strict=True) if a is not b}
        return graph.with_eqns(eqns).replace_results(to)

    def rewrite(self, eqn: Eqn, forms: Forms, depth: int) -> tuple[list[Eqn], Sequence[Value]]:
        """The equations in place of one, and its results."""
        raise NotImplementedError


class ComparisonProver(BoundsWalk):
    def rewrite(self, eqn: Eqn, forms: Forms, depth: int) -> tuple[list[Eqn], Sequence[Value]]:
        found, results = known_comparison(forms, eqn), eqn.results
        if eqn.op in (max_, min_) and all(v in forms for v in eqn.operands):
            # One that is known to be the greater or the smaller has its form.
            same = index_form(forms, eqn, depth)
            results = [v for v in eqn.operands if forms[v] is same][:1] or results
        if found is not None:
            eqn = Eqn(const, (), eqn.results, {"value": found, "type": eqn.results[0].type}, (), eqn.span)
        return [eqn], eqn.results if found is not None else results


def prove_comparisons(graph: Graph) -> Graph:
    """Replace comparisons and extrema of integers that follow from the limits of loops. Cost: linear."""
    if not any(e.op is loop for g in graphs_postorder(graph)[0] for e in g.eqns):
        return graph
    return ComparisonProver().function(graph)
