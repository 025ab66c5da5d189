"""The order of axes in which arrays are computed: that in which most of what is read and written needs no copy.

A comprehension names its axes in the order of its loops, a contraction gives those of its batch first. Between them
stand transposes of whole arrays. Elementwise equations do not care: they, and what is joined by them, form an island,
whose axes may lie in any order if all lie alike. Broadcasts, constants and positions that it reads are made in that
order; contractions and reductions that read it count its axes anew; only the rest is transposed. Sums over all but a
last, short axis, as of forces in three coordinates over the bodies, are fast once that axis does not stand last. So are
products of small matrices with many vectors, which stand in columns then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from msgspec import Struct, field

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import AxisPermutation
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.constants import const, iota
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.linalg.dot_general import AxisPairs, dot_general, free_axes
from difflang.ops.op_factories import tensor_type
from difflang.passes.contractions.contraction_order import attr_axes_pair
from difflang.passes.graph_levels import rewrite_each_graph
from difflang.passes.reductions.axis_labels import REDUCTIONS
from difflang.passes.rules.reshapes_and_constants import int_tuple

Order = tuple[int, ...]  # axis i of an array is axis order[i] of another; or which labels its axes have
FREE = (broadcast, const, iota)  # made in any order at no cost
MAX_CANDIDATES = 8  # orders that are compared, those that most bytes want
SHORT_ROW = 8  # numbers; a vector register holds as many
# A matrix that has fewer rows and columns is multiplied with many vectors in columns: it takes half the time with 2 and
# 4 of them, 0.6 to 0.8 of it with 8 and 10, 0.95 with 16, 1.2 with 20.
SMALL_MATRIX, MANY_VECTORS = 16, 32


def order_axes(graph: Graph) -> Graph:
    """Compute elementwise islands in the order of axes that copies least. Sums may add in another order. Cost: linear.

    The cost of an order is the bytes of arrays at the edges of the island that would have to be transposed.
    """
    return rewrite_each_graph(graph, order_level)


def order_level(graph: Graph) -> Graph:
    """One graph, whose regions have been rewritten."""
    reasons = moves_axes, batch_stands_behind, adds_short_rows, lambda e: vectors_side(e) is not None
    if not any([reason(e) for e in graph.eqns for reason in reasons]):
        return graph
    islands = Islands(graph)
    for island in reversed(islands.members):  # those that are computed last first: what they read follows them
        if (order := islands.better_order(island)) is not None:
            islands.orders[island] = order
    return Emission(graph, islands).run() if islands.orders else graph


def moves_axes(eqn: Eqn) -> bool:
    return isinstance(eqn.op.movement, AxisPermutation)


def reduces(eqn: Eqn) -> bool:
    """Whether an equation reduces axes in any order."""
    return eqn.op in REDUCTIONS and len(eqn.operands) == 1


def batch_stands_behind(eqn: Eqn) -> bool:
    """Whether a contraction reads batch axes that do not lead, so that XLA copies the operand."""
    return eqn.op is dot_general and any([b != tuple(range(len(b))) for b in eqn.attrs["batch"]])


def adds_short_rows(eqn: Eqn, order: Order | None = None) -> bool:
    """Whether a reduction adds up rows of a few numbers, which XLA does number by number."""
    if not reduces(eqn):
        return False
    shape, axes = tensor_type(eqn.operands[0]).shape, int_tuple(eqn.attrs["axes"])
    places = tuple(range(len(shape))) if order is None else order
    last = max([i for i, a in enumerate(places) if a in axes], default=-1)
    row = prod([n for a in places[last + 1 :] if isinstance(n := shape[a], int)])
    return last >= 0 and 1 < row < SHORT_ROW


def vectors_side(eqn: Eqn) -> int | None:
    """Which operand of a contraction has many short vectors that a small matrix, the other one, is multiplied with."""
    if eqn.op is not dot_general:
        return None
    contract, batch = attr_axes_pair(eqn, "contract"), attr_axes_pair(eqn, "batch")
    shapes = [tensor_type(v).shape for v in eqn.operands]
    added = prod([n for a in contract[0] if isinstance(n := shapes[0][a], int)])
    free = [
        prod([n for a in free_axes(len(shape), side, contract, batch) if isinstance(n := shape[a], int)])
        for side, shape in enumerate(shapes)
    ]
    large = int(free[1] > free[0])
    small = 1 < added < SMALL_MATRIX and 1 < free[1 - large] < SMALL_MATRIX and free[large] >= MANY_VECTORS
    return large if small else None


def column_axes(dot: Eqn, side: int) -> Order:
    """The axes of an operand in the order in which the vectors that are multiplied stand in columns."""
    contract, batch = attr_axes_pair(dot, "contract"), attr_axes_pair(dot, "batch")
    return (*batch[side], *contract[side], *free_axes(tensor_type(dot.operands[side]).rank, side, contract, batch))


def swapped_axes(dot: Eqn) -> Order:
    """The axes of the result of a contraction whose operands change places."""
    contract, batch = attr_axes_pair(dot, "contract"), attr_axes_pair(dot, "batch")
    rank, lead = tensor_type(dot.results[0]).rank, len(batch[0])
    start = lead + len(free_axes(tensor_type(dot.operands[0]).rank, 0, contract, batch))
    return (*range(lead), *range(start, rank), *range(lead, start))


def joins(eqn: Eqn) -> bool:
    """Whether an equation needs no order of axes, if its operands and results have the same."""
    if eqn.regions or eqn.op.effect or not all([isinstance(v.type, Tensor) for v in (*eqn.operands, *eqn.results)]):
        return False
    if moves_axes(eqn):
        return True
    shape = tensor_type(eqn.results[0]).shape
    return eqn.op.elementwise and len(shape) > 1 and all([tensor_type(v).shape == shape for v in eqn.operands])


def permuted(items: Sequence[int], order: Order) -> Order:
    return tuple([items[i] for i in order])


def inverse(order: Order) -> Order:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


class Islands:
    """The islands of a graph: values with labels for their axes, and the equations at the edges."""

    def __init__(self, graph: Graph) -> None:
        self.labels: dict[Value, Order] = {}
        self.island: dict[Value, int] = {}
        self.members: dict[int, list[Value]] = {}
        self.made = {r: e for e in graph.eqns for r in e.results}
        self.readers: dict[Value, list[Eqn]] = {}
        self.outputs = set(graph.results)
        self.orders: dict[int, Order] = {}  # of the islands that lie in another order than now
        for eqn in graph.eqns:
            for v in dict.fromkeys(eqn.operands):
                self.readers.setdefault(v, []).append(eqn)
            if joins(eqn):
                self.add(eqn)

    def add(self, eqn: Eqn) -> None:
        (result,) = eqn.results
        order = eqn.op.movement.order(**eqn.attrs) if isinstance(eqn.op.movement, AxisPermutation) else None
        self.start(result)
        for v in eqn.operands:
            if v not in self.labels:
                self.start(v)
            self.join(result, v, order)

    def start(self, value: Value) -> None:
        self.labels[value] = tuple(range(tensor_type(value).rank))
        self.island[value] = len(self.island)
        self.members[self.island[value]] = [value]

    def join(self, result: Value, operand: Value, order: Order | None) -> None:
        """Let axis i of the result and axis `order[i]` of the operand be one; those of one island that differ stay."""
        kept, moved = self.island[result], self.island[operand]
        if kept == moved:
            return
        ours, theirs = self.labels[result], self.labels[operand]
        same = dict(zip(ours, theirs if order is None else permuted(theirs, order), strict=True))
        if len(self.members[kept]) < len(self.members[moved]):
            kept, moved = moved, kept
        else:
            same = {b: a for a, b in same.items()}
        for v in self.members.pop(moved):
            self.labels[v] = tuple([same[a] for a in self.labels[v]])
            self.island[v] = kept
            self.members[kept].append(v)

    # ---- What an order costs

    def better_order(self, island: int) -> Order | None:
        """The labels in their cheapest order, if it is cheaper than the program as it is."""
        values = self.members[island]
        if not all([isinstance(n, int) for n in tensor_type(values[0]).shape]):
            return None
        weights = Counter[Order]()
        for v in values:
            for order in self.wanted_orders(v):
                weights[order] += tensor_type(v).bytes
        candidates = [order for order, _ in weights.most_common(MAX_CANDIDATES)]
        best = min(candidates, key=lambda order: self.cost(values, order), default=None)
        return best if best is not None and self.cost(values, best) < self.present_cost(values) else None

    def wanted_orders(self, value: Value) -> Iterator[Order]:
        """The orders in which an edge of the island would need no copy."""
        labels = self.labels[value]
        if not self.is_free(value):
            yield labels
        if value in self.made and vectors_side(self.made[value]) is not None:
            yield permuted(labels, swapped_axes(self.made[value]))
        for eqn in self.readers.get(value, ()):
            if eqn.op is dot_general:
                for side, v in enumerate(eqn.operands):
                    if v is value:
                        batch = permuted(labels, eqn.attrs["batch"][side])
                        yield (*batch, *[a for a in labels if a not in batch])
                        if vectors_side(eqn) == side:
                            yield permuted(labels, column_axes(eqn, side))
            elif adds_short_rows(eqn):
                added = permuted(labels, int_tuple(eqn.attrs["axes"]))
                yield (*[a for a in labels if a not in added], *added)

    def is_free(self, value: Value) -> bool:
        """Whether a value is made in any order: by the island, or by what has none."""
        eqn = self.made.get(value)
        return eqn is not None and (joins(eqn) or eqn.op in FREE)

    def is_made_with(self, value: Value, axes: Order) -> bool:
        """Whether a value can be made with its axes in this order: a product with a small matrix has two."""
        eqn = self.made.get(value)
        return self.is_free(value) or (eqn is not None and vectors_side(eqn) is not None and axes == swapped_axes(eqn))

    def making_cost(self, value: Value, axes: Order) -> int:
        """Bytes of short vectors that a product with a small matrix writes as rows."""
        eqn = self.made.get(value)
        side = None if eqn is None else vectors_side(eqn)
        if eqn is None or side is None:
            return 0
        return 0 if (axes == swapped_axes(eqn)) == (side == 0) else tensor_type(value).bytes

    def gives_columns(self, dot: Eqn) -> bool:
        """Whether a product of a small matrix with many vectors is made with these in columns, as far as is decided."""
        (result,) = dot.results
        order = self.orders.get(self.island.get(result, -1))
        axes = tuple(range(tensor_type(result).rank)) if order is None else self.axes(result, order)
        return self.making_cost(result, axes) == 0

    def cost(self, values: list[Value], order: Order) -> int:
        """Bytes that are transposed where the axes of the island lie in an order of labels."""
        total = 0
        for v in values:
            labels = self.labels[v]
            size = tensor_type(v).bytes
            axes = self.axes(v, order)
            if labels != order and (not self.is_made_with(v, axes) or self.leaves(v)):
                total += size
            total += self.making_cost(v, axes)
            total += sum([self.reading_cost(eqn, v, axes) for eqn in self.readers.get(v, ())])
        return total

    def axes(self, value: Value, order: Order) -> Order:
        """For each axis of the value in that order, which of its own it is."""
        labels = self.labels[value]
        return tuple([labels.index(a) for a in order])

    def leaves(self, value: Value) -> bool:
        """Whether something reads the value that needs its own order of axes."""
        readers = self.readers.get(value, ())
        return value in self.outputs or not all([joins(e) or e.op is dot_general or reduces(e) for e in readers])

    def reading_cost(self, eqn: Eqn, value: Value, axes: Order) -> int:
        """Bytes that a contraction or a reduction copies, or adds slowly, of a value whose axes lie in an order."""
        if eqn.op is dot_general:
            return sum([self.side_cost(eqn, side, axes) for side, v in enumerate(eqn.operands) if v is value])
        if reduces(eqn):
            kept = [a for a in axes if a not in int_tuple(eqn.attrs["axes"])]
            moved = 0 if kept == sorted(kept) else tensor_type(eqn.results[0]).bytes
            return moved + (tensor_type(value).bytes if adds_short_rows(eqn, axes) else 0)
        return 0

    def side_cost(self, dot: Eqn, side: int, axes: Order) -> int:
        """Bytes of an operand whose batch does not lead, and of a result whose free axes change places."""
        contract, batch = attr_axes_pair(dot, "contract"), attr_axes_pair(dot, "batch")
        behind = permuted(inverse(axes), batch[side]) != tuple(range(len(batch[side])))
        free = [a for a in axes if a in free_axes(len(axes), side, contract, batch)]
        moved = free != sorted(free)
        slow = vectors_side(dot) == side and not (axes == column_axes(dot, side) and self.gives_columns(dot))
        return (behind + slow) * tensor_type(dot.operands[side]).bytes + moved * tensor_type(dot.results[0]).bytes

    def present_cost(self, values: list[Value]) -> int:
        """Bytes that are transposed now."""
        total = 0
        for v in values:
            eqn = self.made.get(v)
            rank = tensor_type(v).rank
            if eqn is not None and moves_axes(eqn) and joins(eqn):
                total += tensor_type(v).bytes
            total += self.making_cost(v, tuple(range(rank)))
            total += sum([self.reading_cost(e, v, tuple(range(rank))) for e in self.readers.get(v, ())])
        return total


class ReorderedValue(Struct, frozen=True):
    """A value of the new graph, whose axis i is axis `order[i]` of the old one."""

    value: Value
    order: Order


class Emission(Struct):
    """Writes the graph anew, with the islands in their orders. A value is transposed where its reader needs it."""

    graph: Graph
    islands: Islands
    builder: Builder = field(default_factory=Builder)
    placed: dict[Value, ReorderedValue] = field(default_factory=dict)
    other: dict[tuple[Value, Order], Value] = field(default_factory=dict)  # the same values in other orders

    def run(self) -> Graph:
        for p in self.graph.params:
            self.place(p, self.builder.param(p.type, p.hint))
        for eqn in self.graph.eqns:
            self.builder.span = eqn.span
            self.emit(eqn)
        return self.builder.finish([self.natural(r) for r in self.graph.results], name=self.graph.name)

    def place(self, old: Value, new: Value, order: Order | None = None) -> None:
        rank = old.type.rank if isinstance(old.type, Tensor) else 0
        new.hint = new.hint or old.hint
        self.placed[old] = ReorderedValue(new, tuple(range(rank)) if order is None else order)

    def order_of(self, value: Value) -> Order | None:
        return self.islands.orders.get(self.islands.island.get(value, -1))

    def emit(self, eqn: Eqn) -> None:
        result = eqn.results[0] if eqn.results else None
        order = (
            self.islands.orders.get(self.islands.island.get(result, -1)) if result is not None and joins(eqn) else None
        )
        if order is not None and result is not None:
            self.emit_joined(eqn, result, self.islands.axes(result, order))
        elif eqn.op is dot_general and (self.is_swapped(eqn) or any([self.is_moved(v) for v in eqn.operands])):
            self.emit_contraction(eqn)
        elif reduces(eqn) and self.is_moved(eqn.operands[0]):
            self.emit_reduction(eqn)
        else:
            for old, new in zip(
                eqn.results, self.builder.copy(eqn, tuple(map(self.natural, eqn.operands))), strict=True
            ):
                self.place(old, new)

    def emit_joined(self, eqn: Eqn, result: Value, axes: Order) -> None:
        """An equation of an island, whose result has its axes in this order."""
        if isinstance(eqn.op.movement, AxisPermutation):
            perm = eqn.op.movement.order(**eqn.attrs)
            self.place(result, self.in_order(eqn.operands[0], permuted(perm, axes)), axes)
            return
        operands = [self.in_order(v, axes) for v in eqn.operands]
        (made,) = self.builder.emit(eqn.op, operands, **eqn.attrs)
        self.place(result, made, axes)

    def is_swapped(self, dot: Eqn) -> bool:
        """Whether the result of a contraction is wanted with the free axes of its second operand first."""
        order = self.order_of(dot.results[0])
        return (
            order is not None
            and vectors_side(dot) is not None
            and self.islands.axes(dot.results[0], order) == swapped_axes(dot)
        )

    def emit_contraction(self, eqn: Eqn) -> None:
        sides = (1, 0) if self.is_swapped(eqn) else (0, 1)
        given = [self.placed[eqn.operands[s]] for s in sides]
        first, second = [inverse(p.order) for p in given]

        def moved(pairs: AxisPairs) -> AxisPairs:
            return permuted(first, pairs[sides[0]]), permuted(second, pairs[sides[1]])

        old_pairs = attr_axes_pair(eqn, "contract"), attr_axes_pair(eqn, "batch")
        contract, batch = map(moved, old_pairs)
        (made,) = self.builder.emit(dot_general, [p.value for p in given], contract=contract, batch=batch)
        # Free axes come in the order in which they stand in the operands.
        old_free = [free_axes(tensor_type(v).rank, side, *old_pairs) for side, v in enumerate(eqn.operands)]
        starts = len(batch[0]), len(batch[0]) + len(old_free[0])
        order = list(range(len(batch[0])))
        for place, (side, p) in enumerate(zip(sides, given, strict=True)):
            new = [p.order[a] for a in free_axes(len(p.order), place, contract, batch)]
            order += [starts[side] + old_free[side].index(a) for a in new]
        self.place(eqn.results[0], made, tuple(order))

    def emit_reduction(self, eqn: Eqn) -> None:
        given, axes = self.placed[eqn.operands[0]], int_tuple(eqn.attrs["axes"])
        place = inverse(given.order)
        attrs: dict[str, Any] = {**eqn.attrs, "axes": tuple(sorted(permuted(place, axes)))}
        (made,) = self.builder.emit(eqn.op, [given.value], **attrs)
        old = [a for a in range(len(given.order)) if a not in axes]
        self.place(eqn.results[0], made, tuple([old.index(a) for a in given.order if a not in axes]))

    # ---- Values in an order

    def is_moved(self, value: Value) -> bool:
        order = self.placed[value].order
        return order != tuple(range(len(order)))

    def natural(self, value: Value) -> Value:
        """The value with its axes as in the old graph."""
        return (
            self.in_order(value, tuple(range(len(self.placed[value].order))))
            if self.is_moved(value)
            else self.placed[value].value
        )

    def in_order(self, value: Value, order: Order) -> Value:
        """The value whose axis i is axis `order[i]` of the old one."""
        found = self.placed[value]
        if found.order == order:
            return found.value
        key = value, order
        if key not in self.other:
            free = self.made_in_order(value, order)
            place = inverse(found.order)
            self.other[key] = (
                self.builder.one("transpose", found.value, perm=permuted(place, order)) if free is None else free
            )
        return self.other[key]

    def made_in_order(self, value: Value, order: Order) -> Value | None:
        """A value that is made in any order, made in this one."""
        eqn = self.islands.made.get(value)
        if eqn is None or eqn.op not in FREE:
            return None
        shape = tuple([tensor_type(value).shape[a] for a in order])
        if eqn.op is broadcast:
            place = inverse(order)
            axes = permuted(place, int_tuple(eqn.attrs["axes"]))
            operand = self.in_order(eqn.operands[0], inverse(axes))
            return self.builder.one("broadcast", operand, shape=shape, axes=tuple(sorted(axes)))
        attrs: dict[str, Any] = {**eqn.attrs, "type": Tensor(tensor_type(value).dtype, shape)}
        if eqn.op is iota:
            attrs |= {"axis": order.index(eqn.attrs["axis"])}
        return self.builder.emit(eqn.op, [], **attrs)[0]
