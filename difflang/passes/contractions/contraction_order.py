"""The cheapest order in which to combine the factors of an einsum two by two, and the equations of that order.

Dynamic programming over sets of factors, as in `opt_einsum`, with costs that know what XLA fuses: a product without a
sum is a loop over its result, a contraction reads and writes memory, and each product of a batch has its own price.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from math import prod
from operator import or_

from msgspec import Struct

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Value
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.shape_manipulation import broadcast, transpose
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.contractions.einsum_form import Axes, AxisRange, EinsumFactor, EinsumForm
from difflang.passes.rules.reshapes_and_constants import int_tuple

MAX_EXACT = 7  # factors: 3 ** 7 pairs of sets take a few milliseconds. More factors are first combined greedily

# Costs in elements that a fused loop computes, some 1 ns each; measured for f64 on one core.
COST_PER_MULTIPLICATION = 0.06  # of one in a contraction
COST_PER_PRODUCT = 15.0  # of one product in a batch
COST_PER_CONTRACTION = 1000.0


class Leaf(Struct, frozen=True):
    """One factor of an einsum."""

    number: int  # of the factor


class Pair(Struct, frozen=True):
    """The product of two orders, summed over the axes that nothing else has."""

    lhs: Order
    rhs: Order


Order = Leaf | Pair


class OrderSearch:
    """The cheapest order for the factors of an einsum. Sets of axes, and of factors, are bits of integers."""

    def __init__(self, form: EinsumForm) -> None:
        self.form = form
        self.axes = [sum([1 << a for a in f.axes]) for f in form.factors]
        self.out = sum([1 << a for a in form.result])
        self.known_sizes: dict[int, int] = {}

    def size(self, axes: int) -> int:
        found = self.known_sizes.get(axes)
        if found is None:
            found = self.known_sizes[axes] = prod([n for a, n in self.form.sizes.items() if axes >> a & 1])
        return found

    def cost(self, lhs: int, rhs: int, result: int) -> float:
        """Of combining two arrays that have these axes."""
        both = lhs & rhs
        if lhs | rhs == result:  # a loop over the result, which the next one may include
            return self.size(result)
        sizes = self.size(lhs & ~both), self.size(both & ~result), self.size(rhs & ~both)
        return contraction_cost(self.size(both & result), *sizes)

    def cheapest(self) -> tuple[float, Order]:
        """The cost and the order."""
        pool: list[tuple[int, float, Order]] = [(axes, 0.0, Leaf(i)) for i, axes in enumerate(self.axes)]
        for i in range(len(pool)):  # sums over axes of one factor alone
            axes, _, leaf = pool[i]
            kept = axes & self.needed(pool, {i})
            pool[i] = kept, float(self.size(axes)) if kept != axes else 0.0, leaf
        while len(pool) > MAX_EXACT:
            pairs = [(i, j) for j in range(len(pool)) for i in range(j)]
            i, j = min(pairs, key=lambda pair: self.growth(pool, *pair))
            pool = [*[p for k, p in enumerate(pool) if k not in (i, j)], self.combined(pool, i, j)]
        return self.exact(pool)

    def needed(self, pool: Sequence[tuple[int, float, Order]], without: set[int]) -> int:
        return reduce(or_, [axes for k, (axes, _, _) in enumerate(pool) if k not in without], self.out)

    def combined(self, pool: Sequence[tuple[int, float, Order]], i: int, j: int) -> tuple[int, float, Order]:
        (x, a, lhs), (y, b, rhs) = pool[i], pool[j]
        kept = (x | y) & self.needed(pool, {i, j})
        return kept, a + b + self.cost(x, y, kept), Pair(lhs, rhs)

    def growth(self, pool: Sequence[tuple[int, float, Order]], i: int, j: int) -> tuple[float, float]:
        kept, cost, _ = self.combined(pool, i, j)
        return self.size(kept) - self.size(pool[i][0]) - self.size(pool[j][0]), cost

    def exact(self, pool: Sequence[tuple[int, float, Order]]) -> tuple[float, Order]:
        everything = (1 << len(pool)) - 1
        union = [0] * (everything + 1)
        for group in range(1, everything + 1):
            low = group & -group
            union[group] = union[group ^ low] | pool[low.bit_length() - 1][0]
        kept = [union[group] & (union[everything ^ group] | self.out) for group in range(everything + 1)]
        best: list[tuple[float, Order] | None] = [None] * (everything + 1)
        for i, (_, cost, order) in enumerate(pool):
            best[1 << i] = cost, order
        for group in range(1, everything + 1):
            if best[group] is None:
                best[group] = self.best_split(group, kept, best)
        found = best[everything]
        assert found is not None
        return found

    def best_split(
        self, group: int, kept: Sequence[int], best: Sequence[tuple[float, Order] | None]
    ) -> tuple[float, Order]:
        least, winner = float("inf"), (0, 0)
        low = group & -group
        part = (group - 1) & group
        while part:  # each split once: the first half has the lowest factor
            if part & low:
                first, second = best[part], best[group ^ part]
                assert first is not None and second is not None
                cost = first[0] + second[0]
                if cost < least:
                    cost += self.cost(kept[part], kept[group ^ part], kept[group])
                    if cost < least:
                        least, winner = cost, (part, group ^ part)
            part = (part - 1) & group
        first, second = best[winner[0]], best[winner[1]]
        assert first is not None and second is not None
        return least, Pair(first[1], second[1])


def contraction_cost(batch: int, rows: int, summed: int, columns: int) -> float:
    """Of products of matrices with `rows` rows and `columns` columns, that sum over `summed` terms each."""
    memory = batch * (rows * summed + summed * columns + rows * columns)
    products = COST_PER_PRODUCT * batch if batch > 1 else 0.0
    work = batch * rows * summed * columns
    return memory + COST_PER_MULTIPLICATION * work + products + COST_PER_CONTRACTION


# ---- The equations of an order


class NamedAxesProduct(Struct, frozen=True):
    """A contraction with numbered axes, as in einsum: axes that are not in the result are summed."""

    lhs: Axes
    rhs: Axes
    result: Axes

    @classmethod
    def of(cls, dot: Eqn) -> NamedAxesProduct:
        x, y = (tensor_type(v).rank for v in dot.operands)
        lhs, rhs = list(range(x)), list(range(x, x + y))
        for name in ("batch", "contract"):
            for a, b in zip(*attr_axes_pair(dot, name), strict=True):  # shared axes get one number
                rhs[b] = lhs[a]
        batch = [lhs[a] for a in attr_axes_pair(dot, "batch")[0]]
        left = [name for name in (*lhs, *rhs) if (name in lhs) != (name in rhs)]
        return cls(tuple(lhs), tuple(rhs), (*batch, *left))

    def cost(self, sizes: Mapping[int, int]) -> float:
        """The cost by the sizes of the axes, in the unit of `OrderSearch`."""
        both = [a for a in self.lhs if a in self.rhs]
        rows, columns = ([a for a in side if a not in both] for side in (self.lhs, self.rhs))
        batch, summed = ([a for a in both if (a in self.result) is kept] for kept in (True, False))
        b, n, k, m = (prod([sizes[a] for a in axes]) for axes in (batch, rows, summed, columns))
        return contraction_cost(b, n, k, m)

    def emit(self, builder: Builder, x: Value, y: Value) -> Value:
        """Emit the contraction, with the axes of its result in order."""
        both = [name for name in self.lhs if name in self.rhs]
        batch, contract = ([n for n in both if (n in self.result) is kept] for kept in (True, False))
        places = [
            tuple([tuple(map(side.index, names)) for side in (self.lhs, self.rhs)]) for names in (batch, contract)
        ]
        result = builder.one("dot_general", x, y, batch=places[0], contract=places[1])
        made = [*batch, *[n for n in (*self.lhs, *self.rhs) if n not in both]]
        perm = tuple(map(made.index, self.result))
        return result if perm == tuple(range(len(perm))) else builder.one("transpose", result, perm=perm)


def attr_axes_pair(dot: Eqn, name: str) -> tuple[Axes, Axes]:
    first, second = dot.attrs[name]
    return int_tuple(first), int_tuple(second)


def dot_cost(dot: Eqn) -> float:
    """The cost of a contraction, in the unit of `OrderSearch`."""
    product = NamedAxesProduct.of(dot)
    sizes = [static_size(n) for v in dot.operands for n in tensor_type(v).shape]
    return product.cost(dict(zip((*product.lhs, *product.rhs), sizes, strict=True)))


class NamedArray(Struct, frozen=True):
    """A value, and the names of its axes."""

    value: Value
    axes: Axes

    @property
    def shape(self) -> tuple[Dim, ...]:
        return tensor_type(self.value).shape


def emit_einsum(builder: Builder, form: EinsumForm, order: Order, reads: Sequence[Value]) -> Value:
    """The value of an einsum whose factors are `reads` in this builder."""
    arrays = [emit_ranges(builder, f, v, form.sizes) for f, v in zip(form.factors, reads, strict=True)]
    sizes = [prod(map(static_size, array.shape)) for array in arrays]
    negate_last = form.scale == -1 and prod([form.sizes[a] for a in form.result]) < min(sizes)
    if form.scale != 1 and not negate_last:
        least = sizes.index(min(sizes))
        arrays[least] = NamedArray(arrays[least].value * form.scale, arrays[least].axes)
    uses = Counter([*form.result, *[a for array in arrays for a in array.axes]])
    found = emit_order(builder, order, arrays, {a: place for place, a in enumerate(form.result)}, uses)
    if negate_last:
        found = NamedArray(-found.value, found.axes)
    value = broadcast_to(found, form.result, tuple([form.sizes[a] for a in form.result]))
    low, high = (
        tuple([getattr(form.padded[a], side) if a in form.padded else 0 for a in form.result])
        for side in ("low", "high")
    )
    if not form.padded:
        return value
    zero = builder.const(0.0, Tensor(tensor_type(value).dtype))
    return builder.one("pad", value, zero, low=low, high=high, interior=(0,) * len(low))


def emit_ranges(builder: Builder, factor: EinsumFactor, value: Value, sizes: Mapping[int, int]) -> NamedArray:
    """A factor, cut to what the einsum reads of it."""
    counts = [sizes[a] for a in factor.axes]
    if all([(r.start, r.step, n) == (0, 1, d) for r, n, d in cut_axes(factor, counts, value)]):
        return NamedArray(value, factor.axes)
    starts, steps = tuple([r.start for r in factor.ranges]), tuple([r.step for r in factor.ranges])
    stops = tuple([r.start + (n - 1) * r.step + 1 for r, n in zip(factor.ranges, counts, strict=True)])
    return NamedArray(builder.one("slice", value, starts=starts, stops=stops, steps=steps), factor.axes)


def cut_axes(factor: EinsumFactor, counts: Sequence[int], value: Value) -> Iterable[tuple[AxisRange, int, Dim]]:
    return zip(factor.ranges, counts, tensor_type(value).shape, strict=True)


def emit_order(
    builder: Builder, order: Order, arrays: Sequence[NamedArray], places: Mapping[int, int], uses: Counter[int]
) -> NamedArray:
    """The product of the factors of an order. `uses` counts by axis who needs it: factors and the result.

    `places` says where the reader wants each axis: the side comes first whose axes have the lowest place.
    """
    if isinstance(order, Leaf):
        array = arrays[order.number]
        gone = [a for a in array.axes if uses[a] == 1]
        if not gone:
            return array
        uses.subtract(gone)
        value = builder.one("reduce_sum", array.value, axes=tuple([array.axes.index(a) for a in gone]))
        return NamedArray(value, tuple([a for a in array.axes if a not in gone]))
    inner = reading_places(order, arrays, uses)
    lhs, rhs = (emit_order(builder, part, arrays, inner, uses) for part in (order.lhs, order.rhs))
    uses.subtract([*lhs.axes, *rhs.axes])
    both = [a for a in lhs.axes if a in rhs.axes]
    kept = [a for a in both if uses[a]]
    free = [[a for a in side.axes if a not in both] for side in (lhs, rhs)]
    uses.update([*kept, *free[0], *free[1]])
    if kept == both:
        return emit_product(lhs, rhs)
    if all(free) and min([places[a] for a in free[1]]) < min([places[a] for a in free[0]]):
        (lhs, rhs), free = (rhs, lhs), free[::-1]
    axes = (*kept, *free[0], *free[1])
    return NamedArray(NamedAxesProduct(lhs.axes, rhs.axes, axes).emit(builder, lhs.value, rhs.value), axes)


def reading_places(order: Pair, arrays: Sequence[NamedArray], uses: Counter[int]) -> Mapping[int, int]:
    """Where a contraction wants the axes of its factors, so that none is copied: in a batch, kept, summed over."""
    sides = [Counter([a for i in leaves(part) for a in arrays[i].axes]) for part in (order.lhs, order.rhs)]
    both = [a for a in sides[0] if a in sides[1]]
    batch = [a for a in both if uses[a] > sides[0][a] + sides[1][a]]
    kept = [a for a in (*sides[0], *sides[1]) if a not in both]
    summed = [a for a in both if a not in batch]
    return {a: place for place, axes in enumerate((batch, kept, summed)) for a in axes}


def leaves(order: Order) -> list[int]:
    return [order.number] if isinstance(order, Leaf) else [*leaves(order.lhs), *leaves(order.rhs)]


def emit_product(lhs: NamedArray, rhs: NamedArray) -> NamedArray:
    """The product of each element of an array with each of another one that has the same places on common axes."""
    if len(lhs.axes) < len(rhs.axes):
        lhs, rhs = rhs, lhs
    axes = (*lhs.axes, *[a for a in rhs.axes if a not in lhs.axes])
    sizes = {**dict(zip(rhs.axes, rhs.shape, strict=True)), **dict(zip(lhs.axes, lhs.shape, strict=True))}
    shape = tuple([sizes[a] for a in axes])
    x, y = (broadcast_to(array, axes, shape) for array in (lhs, rhs))
    return NamedArray(x * y, axes)


def broadcast_to(array: NamedArray, axes: Axes, shape: tuple[Dim, ...]) -> Value:
    """An array with its axes in this order, repeated along those that it has not."""
    order = tuple(sorted(range(len(array.axes)), key=lambda i: axes.index(array.axes[i])))
    value = array.value if order == tuple(range(len(order))) else transpose.one(array.value, perm=order)
    if len(order) == len(axes):
        return value
    return broadcast.one(value, shape=shape, axes=tuple(sorted([axes.index(a) for a in array.axes])))
