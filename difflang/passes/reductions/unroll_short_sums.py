"""Sums over a short axis become additions: the terms are computed for a whole array each, and never stored.

XLA adds along the last axis element by element. A distance `sum((p[i] - q[j])^2)` in two or three coordinates, for all
pairs of points, takes two to four times as long as `(p[i, 0] - q[j, 0])^2 + (p[i, 1] - q[j, 1])^2`, whose differences
are those of vectors. The array of all terms is larger than what it is computed from: slices of that are cheap. Short
products within the terms, as in `sum((l @ (p[i] - m))^2)`, become additions with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import FLOATS, Tensor
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.arrays.constants import const
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.linalg.dot_general import dot_general, free_axes
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.graph_levels import replace_equations, rewrite_each_graph
from difflang.passes.rules.reshapes_and_constants import int_tuple

MAX_TERMS = 8
# Each more takes 20 to 40 ms to compile. Where the terms take so many bytes, a thousand runs or steps win that back.
MAX_TERMS_OF_LARGE, LARGE_BYTES = 32, 1 << 22
MAX_SHARED_TERMS = 4  # where others need what the terms are computed from too, so that it is computed twice
MAX_EQUATIONS = 16  # from which one term is computed; each is emitted for every term
MAX_PRODUCTS = 32  # of all terms together, where these are contractions
MIN_BYTES = 1 << 15  # of all terms: what fits into the first cache is added in no time

MakerMap = Mapping[Value, Eqn]
Places = tuple[tuple[int, int], ...]  # axes, in order, and the one place on each that is computed


def unroll_short_sums(graph: Graph) -> Graph:
    """Add the terms of sums over a short axis that are computed from smaller arrays. Cost: linear."""
    return rewrite_each_graph(graph, unroll_level)


def unroll_level(graph: Graph) -> Graph:
    """One graph, whose regions have been rewritten."""
    sums = [e for e in graph.eqns if is_short(e)]
    if not sums:
        return graph
    made = {r: e for e in graph.eqns for r in e.results}
    readers = Counter([*graph.results, *[v for e in graph.eqns for v in e.operands]])
    plans = [plan for e in sums if (plan := ShortSum(e, made, readers)).is_computed()]
    return replace_equations(graph, {plan.eqn: plan.emit for plan in plans})


def is_short(eqn: Eqn) -> bool:
    """Whether an equation sums floats over one short axis of a large array."""
    if eqn.op is not reduce_sum or len(int_tuple(eqn.attrs["axes"])) != 1:
        return False
    type = tensor_type(eqn.operands[0])
    (axis,) = int_tuple(eqn.attrs["axes"])
    known = all([isinstance(n, int) for n in type.shape]) and type.dtype in FLOATS[2:]
    most = MAX_TERMS_OF_LARGE if type.bytes >= LARGE_BYTES else MAX_TERMS
    return known and type.shape[axis] in range(2, most + 1) and type.bytes >= MIN_BYTES


class ShortSum:
    """A sum over a short axis, and the equations from which its terms are computed."""

    def __init__(self, eqn: Eqn, made: MakerMap, readers: Mapping[Value, int]) -> None:
        self.eqn, self.made, self.readers = eqn, made, readers
        (self.axis,) = int_tuple(eqn.attrs["axes"])
        type = tensor_type(eqn.operands[0])
        self.count, self.bytes = static_size(type.shape[self.axis]), type.bytes
        self.products = 0
        self.used: set[Eqn] = set()

    def is_computed(self) -> bool:
        """Whether the terms are computed elementwise from arrays at most half as large, by work nobody else needs."""
        return self.reaches(self.eqn.operands[0], self.count)

    def is_small(self, value: Value) -> bool:
        return tensor_type(value).bytes * 2 <= self.bytes

    def reaches(self, value: Value, times: int) -> bool:
        """Whether a value, of which so many parts are computed, needs small arrays and few equations alone."""
        maker = self.made.get(value)
        if self.is_small(value) or maker in self.used:
            return True
        if maker is None or len(self.used) == MAX_EQUATIONS:
            return False
        self.used.add(maker)
        if maker.op is const:
            return True
        if maker.op is broadcast:
            return self.reaches(maker.operands[0], times)
        if maker.op is dot_general:
            form = contraction_axes(maker)
            if form is None or self.readers[value] > 1:
                return False
            times *= form.length
            self.products += times
            return self.products <= MAX_PRODUCTS and all([self.reaches(v, times) for v in maker.operands])
        alike = [v.type for v in maker.operands] == [value.type] * len(maker.operands)
        alone = self.readers[value] == 1 or ("cheap" in maker.op.traits and self.count <= MAX_SHARED_TERMS)
        return maker.op.elementwise and alike and alone and all([self.reaches(v, times) for v in maker.operands])

    def emit(self, builder: Builder, env: Mapping[Value, Value]) -> list[Value]:
        """The sum of the terms, one after the other."""
        parts = TermParts(self, builder, env)
        terms = [parts.at(self.eqn.operands[0], ((self.axis, i),)) for i in range(self.count)]
        return [reduce(lambda a, b: builder.one("add", a, b), terms)]


class ContractionAxes(NamedTuple):
    """A contraction over one short axis, and for each axis of the operands the axis of the result."""

    length: int
    contracted: tuple[int, int]
    results: tuple[Mapping[int, int], Mapping[int, int]]


def contraction_axes(eqn: Eqn) -> ContractionAxes | None:
    """The axes of a contraction; None if it is over several axes, or has to transpose an operand."""
    contract, batch = eqn.attrs["contract"], eqn.attrs["batch"]
    if len(contract[0]) != 1:
        return None
    ranks = [tensor_type(v).rank for v in eqn.operands]
    free = [free_axes(rank, side, contract, batch) for side, rank in enumerate(ranks)]
    first = (len(batch[0]), len(batch[0]) + len(free[0]))
    results = tuple(
        [
            {a: k for k, a in enumerate(batch[side])} | {a: first[side] + k for k, a in enumerate(free[side])}
            for side in (0, 1)
        ]
    )
    if any([list(axes) != sorted(axes) for axes in results]):
        return None
    length = static_size(tensor_type(eqn.operands[0]).shape[contract[0][0]])
    return ContractionAxes(length, (contract[0][0], contract[1][0]), (results[0], results[1]))


class TermParts:
    """Emits values at some places of their axes, each once."""

    def __init__(self, plan: ShortSum, builder: Builder, env: Mapping[Value, Value]) -> None:
        self.plan, self.builder, self.env = plan, builder, env
        self.made: dict[tuple[Value, Places], Value] = {}

    def at(self, value: Value, places: Places) -> Value:
        """The value without the axes of `places`."""
        key = value, places
        if key not in self.made:
            self.made[key] = self.computed(value, places)
        return self.made[key]

    def computed(self, value: Value, places: Places) -> Value:
        eqn = self.plan.made.get(value)
        if self.plan.is_small(value) or eqn is None:
            return self.sliced(self.env[value], places)
        type = tensor_type(value).drop_axes(*[axis for axis, _ in places])
        if eqn.op is const:
            return self.builder.const(eqn.attrs["value"], type)
        if eqn.op is broadcast:
            operand = tensor_type(eqn.operands[0])
            return self.spread(eqn.operands[0], dict(enumerate(int_tuple(eqn.attrs["axes"]))), places, type, operand)
        if eqn.op is dot_general:
            return self.contracted(eqn, places, type)
        (result,) = self.builder.emit(eqn.op, [self.at(v, places) for v in eqn.operands], **eqn.attrs)
        return result

    def contracted(self, eqn: Eqn, places: Places, type: Tensor) -> Value:
        """The products of a short contraction, one after the other."""
        form = contraction_axes(eqn)
        assert form is not None
        products: list[Value] = []
        for j in range(form.length):
            x, y = (
                self.spread(v, axes, places, type, tensor_type(v), ((mine, j),))
                for v, axes, mine in zip(eqn.operands, form.results, form.contracted, strict=True)
            )
            products.append(self.builder.one("mul", x, y))
        return reduce(lambda a, b: self.builder.one("add", a, b), products)

    def spread(
        self, value: Value, axes: Mapping[int, int], places: Places, type: Tensor, of: Tensor, more: Places = ()
    ) -> Value:
        """An operand whose axes lie along `axes` of a result, at places of that, broadcast to what is left of it."""
        there = dict(places)
        mine = [(a, there[r] if of.shape[a] != 1 else 0) for a, r in axes.items() if r in there]
        part = self.at(value, tuple(sorted([*mine, *more])))
        kept = tuple([r - sum([p < r for p in there]) for r in axes.values() if r not in there])
        return self.builder.one("broadcast", part, shape=type.shape, axes=kept)

    def sliced(self, value: Value, places: Places) -> Value:
        type, there = tensor_type(value), dict(places)
        if not there:
            return value
        starts = tuple([there.get(a, 0) for a in range(type.rank)])
        stops = tuple([there[a] + 1 if a in there else n for a, n in enumerate(type.shape)])
        part = self.builder.one("slice", value, starts=starts, stops=stops, steps=(1,) * type.rank)
        return self.builder.one("reshape", part, shape=type.drop_axes(*there).shape)
