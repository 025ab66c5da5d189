"""Contraction: a sum of products of arrays that are spread over different axes is one `dot_general`.

`sum(for j => a[i, j] * b[j, k])` widens to both arrays spread over i, j and k, multiplied and summed. The same products
are added afterwards, in another order: no factor leaves a sum, so an Inf or NaN gets where it got before. A sum over a
short window, `sum(for k in 0..4 => x[2 * i + k])`, is a sum of slices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.types import COMPLEXES, FLOATS, Tensor
from difflang.ops.families import known, tensor
from difflang.passes.places import Affine, affine, sizes, taken
from difflang.passes.shapes import ints

Made = Mapping[Value, Eqn]
Axes = tuple[int, ...]

SHORT = 8  # numbers of a window that is summed slice by slice
DEPTH = 8  # how far back is looked for arrays that are there anyhow


def contract(graph: Graph) -> Graph:
    """Sums of products as contractions, sums over short windows slice by slice. Cost: linear.

    What is no longer read is left to dce.
    """
    return Contractor().graph(graph)


class Contractor:
    def __init__(self) -> None:
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph not in self.done:
            self.done[graph] = contracted(self.with_inner(graph))
        return self.done[graph]

    def with_inner(self, graph: Graph) -> Graph:
        if not any([e.regions for e in graph.eqns]):
            return graph
        return graph.with_eqns([e.with_regions(map(self.graph, e.regions)) if e.regions else e for e in graph.eqns])


def contracted(graph: Graph) -> Graph:
    """One level of a graph."""
    made = {r: e for e in graph.eqns for r in e.results}
    sums = [e for e in graph.eqns if e.op.name == "reduce_sum" and tensor(e.operands[0]).dtype in FLOATS + COMPLEXES]
    plans = {e: plan for e in sums if (plan := plan_of(e, made) or window_of(e, made)) is not None}
    if not plans:
        return graph
    eqns: list[Eqn] = []
    to: dict[Value, Value] = {}
    for eqn in graph.eqns:
        if eqn in plans:
            to[eqn.results[0]] = emitted(plans[eqn], eqn, eqns)
        else:
            eqns.append(eqn.renamed(to))
    return graph.with_eqns(eqns).renamed_results(to)


@dataclass(frozen=True, slots=True)
class Factor:
    """An array of which each axis lies along one of a product: axis i along `axes[i]`."""

    value: Value
    axes: Axes

    @property
    def size(self) -> int:
        return prod(map(known, tensor(self.value).shape))


def spread(value: Value, made: Made) -> Factor:
    """What an array is before it is spread over axes, and its axes moved."""
    axes = tuple(range(tensor(value).rank))
    while (eqn := made.get(value)) is not None:
        if eqn.op.name == "broadcast" and not grows(eqn):
            axes = tuple([axes[a] for a in ints(eqn.attrs["axes"])])
        elif eqn.op.moves is not None:
            order = eqn.op.moves(**eqn.attrs)
            axes = tuple([axes[order.index(a)] for a in range(len(order))])
        else:
            break
        (value,) = eqn.operands
    return Factor(value, axes)


def grows(eqn: Eqn) -> bool:
    """Whether an axis of size 1 becomes longer."""
    shape = tensor(eqn.results[0]).shape
    return any(d != shape[a] for d, a in zip(tensor(eqn.operands[0]).shape, ints(eqn.attrs["axes"]), strict=True))


@dataclass(frozen=True, slots=True)
class Plan:
    """A sum as a contraction of two factors: over which axes of the product, which they share otherwise."""

    lhs: Factor
    rhs: Factor
    rank: int
    over: Axes
    shared: Axes
    later: Axes  # what is summed of the contraction: only one factor lies along these

    @property
    def order(self) -> Axes:
        """Where the axes of the contraction lie in the product."""
        left = [[a for a in f.axes if a not in self.over and a not in self.shared] for f in (self.lhs, self.rhs)]
        return (*self.shared, *left[0], *left[1])

    @property
    def reads(self) -> tuple[Value, ...]:
        return self.lhs.value, self.rhs.value

    def sum(self, builder: Builder, lhs: Value, rhs: Value) -> Value:
        contract, batch = (
            tuple([tuple([f.axes.index(a) for a in axes]) for f in (self.lhs, self.rhs)])
            for axes in (self.over, self.shared)
        )
        result = builder.one("dot_general", lhs, rhs, contract=contract, batch=batch)
        order = self.order
        if self.later:
            result = builder.one("reduce_sum", result, axes=tuple([order.index(a) for a in self.later]))
            order = tuple([a for a in order if a not in self.later])
        if list(order) == sorted(order):
            return result
        return builder.one("transpose", result, perm=tuple([order.index(a) for a in sorted(order)]))


def emitted(plan: Plan | Window, eqn: Eqn, eqns: list[Eqn]) -> Value:
    """Append what computes a sum instead of an equation; gives it."""
    builder = Builder(span=eqn.span)
    params = [builder.param(v.type) for v in plan.reads]
    result = plan.sum(builder, *params)
    to = dict(zip(params, plan.reads, strict=True))
    eqns += [e.renamed(to) for e in builder.eqns]
    return result


def plan_of(eqn: Eqn, made: Made) -> Plan | None:
    """How a sum is a contraction, if it is one."""
    product = made.get(eqn.operands[0])
    if product is None or product.op.name != "mul":
        return None
    shape, summed = tensor(product.results[0]).shape, ints(eqn.attrs["axes"])
    lhs, rhs = (spread(v, made) for v in product.operands)
    both = [a for a in lhs.axes if a in rhs.axes]
    over = tuple([a for a in both if a in summed])
    shared = tuple([a for a in range(len(shape)) if a in both and a not in summed])
    later = tuple([a for a in (*lhs.axes, *rhs.axes) if a in summed and a not in both])
    everywhere = {*lhs.axes, *rhs.axes} == set(range(len(shape)))
    if not over or not everywhere or 0 in shape or not pays(lhs, rhs, shape, made):
        return None
    plan = Plan(lhs, rhs, len(shape), over, shared, later)
    turned = Plan(rhs, lhs, len(shape), over, shared, later)
    return min(plan, turned, key=disorder)


def disorder(plan: Plan) -> bool:
    """Whether the axes of the contraction are not in the order asked for."""
    order = [a for a in plan.order if a not in plan.later]
    return order != sorted(order)


def pays(lhs: Factor, rhs: Factor, shape: Sequence[object], made: Made) -> bool:
    """Whether a factor is spread, and none has to be put into memory that is larger than what it is made of."""
    size = prod([n for n in shape if isinstance(n, int)])
    if lhs.size == size and rhs.size == size:
        return False
    return all(f.size < size or at_hand(f.value, made) for f in (lhs, rhs))


def at_hand(value: Value, made: Made) -> bool:
    """Whether an array, or one of its size that it is computed from element by element, is in memory in any case."""
    size = prod(map(known, tensor(value).shape))
    todo, seen = [(value, 0)], {value}
    while todo:
        value, depth = todo.pop()
        eqn = made.get(value)
        if not isinstance(value.type, Tensor) or prod(map(known, value.type.shape)) < size:
            continue
        if eqn is None or depth == DEPTH or eqn.regions or eqn.op.barrier:
            return True
        if eqn.op.splat is not None or not eqn.operands:
            continue
        if not eqn.op.elementwise and eqn.op.moves is None:
            return True
        fresh = [v for v in eqn.operands if v not in seen]
        seen.update(fresh)
        todo += [(v, depth + 1) for v in fresh]
    return False


# ------------------------------------------------------------------------------------------------- windows


@dataclass(frozen=True, slots=True)
class Window:
    """A sum along one axis of what a gather reads at known places."""

    x: Value
    places: tuple[Affine, ...]
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
        """What is read at the k-th place of each window; None if that is no slice."""
        here = [Affine(p.start + k * p.steps[self.along], self.without(p.steps)) for p in self.places]
        return taken(builder.one, x, here, self.axes, self.without(self.grid))

    def without(self, of_axes: Axes) -> Axes:
        return tuple([s for d, s in enumerate(of_axes) if d != self.along])


def window_of(eqn: Eqn, made: Made) -> Window | None:
    """The short windows that are summed, if the numbers in one place of each are a slice."""
    gather, summed = made.get(eqn.operands[0]), ints(eqn.attrs["axes"])
    if gather is None or gather.op.name != "gather" or len(summed) != 1:
        return None
    x, *indices = gather.operands
    places = [affine(v, made) for v in indices]
    found, grid = [p for p in places if p is not None], sizes(indices[0])
    if len(found) < len(places) or summed[0] >= len(grid) or not 0 < grid[summed[0]] <= SHORT:
        return None
    window = Window(x, tuple(found), ints(gather.attrs["axes"]), grid, summed[0])
    trial = Builder()
    ends = [window.part(trial, trial.param(x.type), k) for k in (0, grid[summed[0]] - 1)]
    return window if None not in ends else None
