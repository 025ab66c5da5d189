"""Sums of products as einsums: one list of factors over named axes, collected through the equations that made them.

`sum(for j => w[k, j] * (bones[j] @ p[k])[..3])` is a sum of a product of a broadcast and a slice of a contraction. As
an einsum it has three factors, which `contraction_order` may combine in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from msgspec import Struct

from difflang.ir.graph import Eqn, Value
from difflang.ir.op import AxisPermutation
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.arrays.constants import const
from difflang.ops.arrays.shape_manipulation import broadcast, pad, slice_
from difflang.ops.elementwise.linear_arithmetic import mul, neg
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.op_factories import tensor_type
from difflang.passes.rules.reshapes_and_constants import int_tuple

MakerMap = Mapping[Value, Eqn]
ReaderCounts = Mapping[Value, int]
Axes = tuple[int, ...]

MAX_FACTORS = 16  # what is multiplied beyond that stays one factor


class AxisRange(Struct, frozen=True):
    """How an axis of a factor follows a named axis of the einsum: position p there is `start + p * step` here."""

    name: int
    start: int = 0
    step: int = 1


Ranges = tuple[AxisRange, ...]


class EinsumFactor(Struct, frozen=True):
    """An array, and the range of a named axis that each of its axes follows."""

    value: Value
    ranges: Ranges

    @property
    def axes(self) -> Axes:
        return tuple([r.name for r in self.ranges])


class PaddedAxis(Struct, frozen=True):
    """An axis of the result that is 0 outside of a window, which is the axis of the einsum."""

    low: int
    high: int


class EinsumForm(Struct, frozen=True):
    """A sum of products: axes of factors that are not in `result` are summed over.

    The result is constant along axes that no factor has.
    """

    factors: tuple[EinsumFactor, ...]
    scale: complex  # a further factor
    sizes: Mapping[int, int]
    result: Axes
    padded: Mapping[int, PaddedAxis]  # axes of the result
    nodes: tuple[Eqn, ...]  # the products, sums and contractions that it replaces, the last one first


def einsum_form(root: Eqn, made: MakerMap, readers: ReaderCounts) -> EinsumForm | None:
    """A sum or contraction as an einsum; None where an axis is empty, or has a name and no number.

    Cost: linear in `MAX_FACTORS`.
    """
    # Zeros around a factor can be added to the result if no other factor has that axis; else the padding stays.
    return Collector(made, readers, pads=True).form(root) or Collector(made, readers, pads=False).form(root)


class Collector:
    """Collects the factors below one sum. Inner sums and contractions are opened if nothing else reads them."""

    def __init__(self, made: MakerMap, readers: ReaderCounts, *, pads: bool) -> None:
        self.made, self.readers, self.pads = made, readers, pads
        self.sizes: list[int] = []
        self.factors: list[EinsumFactor] = []
        self.nodes: list[Eqn] = []
        self.scale: complex = 1
        self.padded: dict[int, PaddedAxis] = {}
        self.outside: dict[int, int] = {}  # for each padded axis, its name without the padding
        self.known = True  # whether every size is a number

    def form(self, root: Eqn) -> EinsumForm | None:
        result = tuple([self.new_axis(n) for n in tensor_type(root.results[0]).shape])
        self.descend(root, result)
        inside = tuple([self.outside.get(r.name, r.name) for r in result])
        present = {a for f in self.factors for a in f.axes}
        if not self.known or 0 in self.sizes or not set(self.padded) <= set(inside) or present & set(self.outside):
            return None
        # Along an axis that no factor has, the sum is a multiple.
        absent = set(range(len(self.sizes))) - present - set(inside) - set(self.outside)
        scale = self.scale * prod([self.sizes[a] for a in absent])
        return EinsumForm(
            tuple(self.factors), scale, dict(enumerate(self.sizes)), inside, self.padded, tuple(self.nodes)
        )

    def new_axis(self, size: object) -> AxisRange:
        self.known &= isinstance(size, int)
        self.sizes.append(size if isinstance(size, int) else 1)
        return AxisRange(len(self.sizes) - 1)

    def visit(self, value: Value, ranges: Ranges) -> None:
        """Collect the factors of a value whose axes follow these ranges."""
        eqn = self.made.get(value)
        if eqn is None or len(self.factors) >= MAX_FACTORS or not self.descend(eqn, ranges):
            self.factors.append(EinsumFactor(value, ranges))

    def descend(self, eqn: Eqn, ranges: Ranges) -> bool:
        """Collect the factors of an equation's operands; False if the equation makes a factor itself."""
        opened = not self.nodes or self.readers[eqn.results[0]] == 1
        if eqn.op is mul:
            operands = [ranges, ranges]
        elif eqn.op is neg or (eqn.op is const and isinstance(eqn.attrs["value"], (int, float, complex))):
            self.scale *= -1 if eqn.op is neg else eqn.attrs["value"]
            operands = [ranges] * len(eqn.operands)
        elif eqn.op is reduce_sum and opened:
            operands = [self.summed(eqn, ranges)]
        elif eqn.op is dot_general and opened:
            operands = self.contracted(eqn, ranges)
        elif (moved := self.moved(eqn, ranges)) is not None:
            operands = [moved]
        else:
            return False
        if eqn.op in (mul, reduce_sum, dot_general) and opened:
            self.nodes.append(eqn)
        for operand, inner in zip(eqn.operands, operands, strict=False):
            self.visit(operand, inner)
        return True

    def summed(self, eqn: Eqn, ranges: Ranges) -> Ranges:
        gone, left = int_tuple(eqn.attrs["axes"]), iter(ranges)
        return tuple(
            [self.new_axis(n) if a in gone else next(left) for a, n in enumerate(tensor_type(eqn.operands[0]).shape)]
        )

    def contracted(self, eqn: Eqn, ranges: Ranges) -> list[Ranges]:
        left = iter(ranges)
        found: list[dict[int, AxisRange]] = [{}, {}]
        for name in ("batch", "contract"):
            for a, b in zip(*eqn.attrs[name], strict=True):
                shared = next(left) if name == "batch" else self.new_axis(tensor_type(eqn.operands[0]).shape[a])
                found[0][a] = found[1][b] = shared
        for side, operand in zip(found, eqn.operands, strict=True):
            side.update({a: next(left) for a in range(tensor_type(operand).rank) if a not in side})
        return [tuple([side[a] for a in range(len(side))]) for side in found]

    def moved(self, eqn: Eqn, ranges: Ranges) -> Ranges | None:
        """The ranges of an operand whose elements are only moved; None for what is no such equation."""
        if eqn.op is broadcast and not stretches_axis(eqn):
            return tuple([ranges[a] for a in int_tuple(eqn.attrs["axes"])])
        if isinstance(eqn.op.movement, AxisPermutation):
            order = eqn.op.movement.order(**eqn.attrs)
            return tuple([ranges[order.index(a)] for a in range(len(order))])
        if eqn.op is slice_:
            cuts = zip(ranges, int_tuple(eqn.attrs["starts"]), int_tuple(eqn.attrs["steps"]), strict=True)
            return tuple([AxisRange(r.name, start + step * r.start, step * r.step) for r, start, step in cuts])
        return self.without_padding(eqn, ranges) if eqn.op is pad and self.pads else None

    def without_padding(self, eqn: Eqn, ranges: Ranges) -> Ranges | None:
        """The ranges of what is padded with zeros along whole axes of the einsum."""
        zero, low, high = self.made.get(eqn.operands[1]), int_tuple(eqn.attrs["low"]), int_tuple(eqn.attrs["high"])
        grown = [a for a in range(len(ranges)) if low[a] or high[a]]
        whole = all([(ranges[a].start, ranges[a].step) == (0, 1) and min(low[a], high[a]) >= 0 for a in grown])
        if zero is None or zero.op is not const or zero.attrs["value"] != 0 or any(eqn.attrs["interior"]) or not whole:
            return None
        inner = list(ranges)
        for a in grown:
            inner[a] = self.new_axis(tensor_type(eqn.operands[0]).shape[a])
            self.outside[ranges[a].name] = inner[a].name
            self.padded[inner[a].name] = PaddedAxis(low[a], high[a])
        return tuple(inner)


def stretches_axis(eqn: Eqn) -> bool:
    """Whether a broadcast repeats an axis of size 1."""
    shape = tensor_type(eqn.results[0]).shape
    return any(
        d != shape[a] for d, a in zip(tensor_type(eqn.operands[0]).shape, int_tuple(eqn.attrs["axes"]), strict=True)
    )
