"""The accumulator of cotangents during transposition: sums, slices of arrays, and masks of exact zeros.

A slice of an array contributes a slice of its cotangent. The slices are concatenated when the cotangent is read:
padding each with zeros and adding would go through the whole array once per slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from heapq import heappop, heappush

from difflang.ir.builder import Builder
from difflang.ir.graph import Value
from difflang.ir.op import MaybeValue
from difflang.ir.tensor_types import Tensor, Type
from difflang.ops.ad_interface import CotangentSum, add_tangents, choice_type, or_choices, zeros
from difflang.ops.arrays.shape_manipulation import concat
from difflang.ops.elementwise.comparison_and_logic import logical_and, logical_not

AxisWindow = tuple[int, int]  # start and stop along an axis


class CotangentAccumulator:
    """The cotangents of each value so far, and the masks of those that a choice makes exactly zero in part.

    They are added as they come, but where `total` says otherwise: those are collected, and summed at the end.
    """

    def __init__(
        self, builder: Builder, choices: Mapping[Value, Value] | None = None, total: CotangentSum | None = None
    ) -> None:
        self.builder = builder
        self.total = total
        self.collected: dict[Value, list[Value]] = {}
        self.whole: dict[Value, Value] = {}
        self.slices: dict[Value, dict[int, dict[AxisWindow, Value]]] = {}
        # By cotangent: it is exactly zero except where the mask holds.
        self.masks: dict[Value, Value] = dict(choices or {})
        self.negated_masks: dict[Value, Value] = {}

    def add(self, value: Value, ct: Value) -> None:
        """Add a cotangent of a value."""
        if self.total is not None and value in self.total.tangents:
            self.collected.setdefault(value, []).append(ct)
        else:
            self.whole[value] = self.sum(self.whole.get(value), ct)

    def add_slice(self, value: Value, axis: int, window: AxisWindow, ct: Value) -> None:
        """Add a cotangent of a slice of a value."""
        part = self.slices.setdefault(value, {}).setdefault(axis, {})
        if window in part and self.total is not None and value in self.total.tangents:
            self.add(value, self.join_slices([(window, ct)], axis, value))
        else:
            part[window] = self.sum(part.get(window), ct)

    def take(self, value: Value) -> MaybeValue:
        """Remove a value's cotangents and return their sum, `None` if there are none."""
        for axis, parts in self.slices.pop(value, {}).items():
            for row in nonoverlapping_rows(parts.items()):
                self.add(value, self.join_slices(row, axis, value))
        collected = self.collected.pop(value, [])
        return self.sum_all(collected) if collected else self.whole.pop(value, None)

    def sum_all(self, cts: Sequence[Value]) -> Value:
        """The sum of cotangents as `total` makes it; like any sum, it is zero where all of them are exactly zero."""
        if self.total is None or len(cts) == 1:
            return cts[0]
        whole = self.total.sum(self.builder, cts)
        masks = [self.masks.get(ct) for ct in cts]
        known = [mask for mask in masks if mask is not None]
        if len(known) == len(masks):
            self.masks[whole] = reduce(or_choices, dict.fromkeys(known))
        return whole

    def sum(self, before: MaybeValue, ct: Value) -> Value:
        """The sum of two cotangents."""
        # If both have masks, the sum is zero where neither mask holds.
        total = add_tangents(before, ct)
        assert total is not None
        first, second = None if before is None else self.masks.get(before), self.masks.get(ct)
        if first is not None and second is not None:
            self.masks[total] = first if first is second else or_choices(first, second)
        return total

    def join_slices(self, row: list[tuple[AxisWindow, Value]], axis: int, like: Value) -> Value:
        """The slices in one array; its mask, if any slice has one, holds everywhere in the slices without one."""
        whole = join_windows(self.builder, row, axis, like.type)
        choices = [self.masks.get(part_ct) for _, part_ct in row]
        if any(c is not None for c in choices):
            assert isinstance(like.type, Tensor)
            kept = [
                (window, self.builder.const(True, choice_type(part_ct.type)) if c is None else c)
                for (window, part_ct), c in zip(row, choices, strict=True)
            ]
            self.masks[whole] = join_windows(self.builder, kept, axis, choice_type(like.type))
        return whole

    def set_mask(self, ct: Value, *choices: MaybeValue) -> Value:
        """The cotangent itself, recorded as zero except where all of these masks hold."""
        kept = [c for c in choices if c is not None]
        self.masks[ct] = kept[0] if len(kept) == 1 else logical_and.one(*kept)
        return ct

    def select_mask(self, truth: Value, number: int) -> Value:
        """Where a condition selects operand 1, or operand 2 by its negation, which is emitted once."""
        if number == 1:
            return truth
        if truth not in self.negated_masks:
            self.negated_masks[truth] = logical_not.one(truth)
        return self.negated_masks[truth]


def nonoverlapping_rows(slices: Iterable[tuple[AxisWindow, Value]]) -> list[list[tuple[AxisWindow, Value]]]:
    """The slices in order, in as few rows as keep them from overlapping. Cost: n log n."""
    # Interval partitioning: by start, each slice goes to the row that ends first, or opens a new one.
    made: list[list[tuple[AxisWindow, Value]]] = []
    ends: list[tuple[int, int]] = []  # the end of each row, and its number
    for (start, stop), part_ct in sorted(slices, key=lambda item: item[0]):
        if ends and ends[0][0] <= start:
            number = heappop(ends)[1]
        else:
            number = len(made)
            made.append([])
        made[number].append(((start, stop), part_ct))
        heappush(ends, (stop, number))
    return made


def join_windows(builder: Builder, row: list[tuple[AxisWindow, Value]], axis: int, type: Type) -> Value:
    """Slices that do not overlap in one array, with zeros between them."""
    assert isinstance(type, Tensor)
    size = type.shape[axis]
    assert isinstance(size, int)
    if len(row) == 1:
        ((start, stop), part_ct) = row[0]
        nothing = (0,) * type.rank
        low, high = ((*nothing[:axis], n, *nothing[axis + 1 :]) for n in (start, size - stop))
        return builder.one("pad", part_ct, zeros(builder, type.reshaped()), low=low, high=high, interior=nothing)
    parts: list[Value] = []
    end = 0
    for (start, stop), part_ct in [*row, ((size, size), None)]:
        if start > end:
            parts.append(zeros(builder, type.resized(axis, start - end)))
        if part_ct is not None:
            parts.append(builder.capture(part_ct))
        end = stop
    return parts[0] if len(parts) == 1 else concat.one(*parts, axis=axis)
