"""Contraction: a sum of products of arrays that are spread over different axes is one `dot_general`.

`sum(for j => a[i, j] * b[j, k])` widens to both arrays spread over i, j and k, multiplied and summed. The same products
are added afterwards, in another order: no factor leaves a sum, so an Inf or NaN gets where it got before. A sum over a
short window, `sum(for k in 0..4 => x[2 * i + k])`, is a sum of slices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod

from msgspec import Struct

from difflang.ir.builder import Builder, region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import OPS
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import COMPLEXES, FLOATS, Tensor
from difflang.ops.control.cond import cond
from difflang.ops.control.map import map_
from difflang.ops.op_factories import known, tensor
from difflang.passes.rules.affine_indices import Affine, affine, sizes, taken
from difflang.passes.rules.reshapes_and_constants import ints

Made = Mapping[Value, Eqn]
Axes = tuple[int, ...]

FEW = 1 << 12  # products with a factor that lies along all of their axes
SHORT = 8  # numbers of a window that is summed slice by slice
DEPTH = 8  # how far back is looked for arrays that are there anyhow


def contract(graph: Graph) -> Graph:
    """Sums of products as contractions. What is no longer read is left to dce. Cost: linear."""

    def plan(eqn: Eqn, made: Made, in_lanes: bool) -> AnyPlan | None:
        return plan_of(eqn, made) or (None if in_lanes else masked_plan(eqn, made))

    return Contractor(plan).graph(graph)


def window_sums(graph: Graph) -> Graph:
    """Sums over short windows slice by slice. What is no longer read is left to dce. Cost: linear."""
    return Contractor(lambda e, made, in_lanes: window_of(e, made)).graph(graph)


class Contractor:
    """Does sums otherwise where there is a plan for it."""

    def __init__(self, plan: Callable[[Eqn, Made, bool], AnyPlan | None]) -> None:
        self.plan = plan
        self.done: dict[tuple[Graph, bool], Graph] = {}

    def graph(self, graph: Graph, in_lanes: bool = False) -> Graph:
        key = graph, in_lanes
        if key not in self.done:
            self.done[key] = self.level(self.with_inner(graph, in_lanes), in_lanes)
        return self.done[key]

    def with_inner(self, graph: Graph, in_lanes: bool) -> Graph:
        if not any([e.regions for e in graph.eqns]):
            return graph
        return graph.with_eqns([self.inside(e, in_lanes or e.op is map_) if e.regions else e for e in graph.eqns])

    def inside(self, eqn: Eqn, in_lanes: bool) -> Eqn:
        return eqn.with_regions([self.graph(region, in_lanes) for region in eqn.regions])

    def level(self, graph: Graph, in_lanes: bool) -> Graph:
        made = {r: e for e in graph.eqns for r in e.results}
        sums = [
            e for e in graph.eqns if e.op.name == "reduce_sum" and tensor(e.operands[0]).dtype in FLOATS + COMPLEXES
        ]
        plans = {e: plan for e in sums if (plan := self.plan(e, made, in_lanes)) is not None}
        return replaced(graph, plans) if plans else graph


def replaced(graph: Graph, plans: Mapping[Eqn, AnyPlan]) -> Graph:
    eqns: list[Eqn] = []
    to: dict[Value, Value] = {}
    for eqn in graph.eqns:
        if eqn in plans:
            to[eqn.results[0]] = emitted(plans[eqn], eqn, eqns, to)
        else:
            eqns.append(eqn.renamed(to))
    return graph.with_eqns(eqns).renamed_results(to)


def terms_of(total: Value, made: Made, readers: Mapping[Value, int]) -> list[Value]:
    """What a value is the sum of, in order; partial sums that something else reads are terms."""
    found: list[Value] = []
    todo = [total]
    while todo:
        value = todo.pop()
        eqn = made.get(value)
        if eqn is not None and eqn.op.name == "add" and readers[value] == 1:
            todo += reversed(eqn.operands)
        else:
            found.append(value)
    return found


class Factor(Struct, frozen=True):
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


class Plan(Struct, frozen=True):
    """A sum as a contraction of two factors: over which axes of the product, which they share otherwise."""

    lhs: Factor
    rhs: Factor
    over: Axes
    shared: Axes
    later: Axes  # what is summed of the contraction: only one factor lies along these

    @property
    def turned(self) -> Plan:
        return Plan(self.rhs, self.lhs, self.over, self.shared, self.later)

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


def emitted(plan: AnyPlan, eqn: Eqn, eqns: list[Eqn], before: Mapping[Value, Value]) -> Value:
    """Append what computes a sum instead of an equation; gives it. `before` are the sums that have been replaced."""
    builder = Builder(span=eqn.span)
    params = [builder.param(v.type) for v in plan.reads]
    result = plan.sum(builder, *params)
    to = {p: before.get(v, v) for p, v in zip(params, plan.reads, strict=True)}
    eqns += [e.renamed(to) for e in builder.eqns]
    return result


def plan_of(eqn: Eqn, made: Made) -> Plan | None:
    """How a sum is a contraction, if it is one."""
    product = made.get(eqn.operands[0])
    return plan_for_product(product, ints(eqn.attrs["axes"]), made) if product is not None else None


def plan_for_product(product: Eqn, summed: Axes, made: Made) -> Plan | None:
    if product.op.name != "mul":
        return None
    shape = tensor(product.results[0]).shape
    lhs, rhs = (spread(v, made) for v in product.operands)
    both = [a for a in lhs.axes if a in rhs.axes]
    over = tuple([a for a in both if a in summed])
    shared = tuple([a for a in range(len(shape)) if a in both and a not in summed])
    later = tuple([a for a in (*lhs.axes, *rhs.axes) if a in summed and a not in both])
    everywhere = {*lhs.axes, *rhs.axes} == set(range(len(shape)))
    if not over or not everywhere or 0 in shape or not pays(lhs, rhs, shape, made):
        return None
    plan = Plan(lhs, rhs, over, shared, later)
    return min(plan, plan.turned, key=disorder)


def disorder(plan: Plan) -> bool:
    """Whether the axes of the contraction are not in the order asked for."""
    order = [a for a in plan.order if a not in plan.later]
    return order != sorted(order)


def pays(lhs: Factor, rhs: Factor, shape: Sequence[object], made: Made) -> bool:
    """Whether a factor is spread, and none has to be put into memory that is larger than what it is made of.

    A few products of a matrix and a vector are summed where they are made: a contraction reads its matrix from memory
    that has to be written first, a slice of a loop's items say.
    """
    size = prod([n for n in shape if isinstance(n, int)])
    if lhs.size == size and rhs.size == size:
        return False
    if size in (lhs.size, rhs.size) and size <= FEW:
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


# --------------------------------------------------------------------------------- sums that leave terms out


class Masked(Struct, frozen=True):
    """A sum of products of which a truth leaves some out, as a contraction of one factor that is 0 there instead.

    That is the same if all of the other factor is finite, which is asked when it runs: no 0 meets an Inf.
    """

    plan: Plan
    truth: Factor  # it lies along axes of the plan's first factor
    shape: tuple[Dim, ...]

    @property
    def reads(self) -> tuple[Value, ...]:
        return *self.plan.reads, self.truth.value

    def sum(self, builder: Builder, lhs: Value, rhs: Value, truth: Value) -> Value:
        finite = builder.one("reduce_all", builder.one("isfinite", rhs), axes=tuple(range(tensor(rhs).rank)))
        types = [lhs.type, rhs.type, truth.type]
        regions = region(types, self.contraction), region(types, self.term_by_term)
        (result,) = builder.emit(cond, [finite, lhs, rhs, truth], regions)
        return result

    def contraction(self, lhs: Value, rhs: Value, truth: Value) -> list[Value]:
        axes = self.plan.lhs.axes
        there = Factor(truth, tuple([axes.index(a) for a in self.truth.axes]))
        zero = lhs.home.const(0.0, lhs.type)
        kept = OPS["select"].one(along(there, tensor(lhs).shape), lhs, zero)
        return [self.plan.sum(lhs.home, kept, rhs)]

    def term_by_term(self, lhs: Value, rhs: Value, truth: Value) -> list[Value]:
        factors = self.plan.lhs.axes, self.plan.rhs.axes, self.truth.axes
        x, y, there = (along(Factor(v, a), self.shape) for v, a in zip((lhs, rhs, truth), factors, strict=True))
        terms = OPS["select"].one(there, x * y, lhs.home.const(0.0, Tensor(tensor(lhs).dtype, self.shape)))
        return [OPS["reduce_sum"].one(terms, axes=tuple(sorted((*self.plan.over, *self.plan.later))))]


def along(factor: Factor, shape: tuple[Dim, ...]) -> Value:
    """A factor spread over a shape."""
    order = sorted(range(len(factor.axes)), key=factor.axes.__getitem__)
    value = factor.value if order == list(range(len(order))) else OPS["transpose"].one(factor.value, perm=tuple(order))
    return OPS["broadcast"].one(value, shape=shape, axes=tuple(sorted(factor.axes)))


def masked_plan(eqn: Eqn, made: Made) -> Masked | None:
    """How a sum of products is a contraction where terms are left out for which a truth does not hold."""
    choice = made.get(eqn.operands[0])
    if choice is None or not choice.op.chooses:
        return None
    product, nothing = made.get(choice.operands[1]), made.get(choice.operands[2])
    if product is None or nothing is None or nothing.op.name != "const" or nothing.attrs["value"] != 0:
        return None
    plan, truth = plan_for_product(product, ints(eqn.attrs["axes"]), made), spread(choice.operands[0], made)
    if plan is None or tensor(plan.lhs.value).dtype not in FLOATS:
        return None
    for way in (plan, plan.turned):
        if set(truth.axes) <= set(way.lhs.axes):
            return Masked(way, truth, tensor(choice.results[0]).shape)
    return None


# ------------------------------------------------------------------------------------------------- windows


class Window(Struct, frozen=True):
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


AnyPlan = Plan | Masked | Window
