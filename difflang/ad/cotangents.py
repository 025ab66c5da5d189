"""The cotangents that have arrived at values while a graph is turned round.

Slices of one array give back pieces of its cotangent: they are put side by side when it is needed, where padding each
with zeros and adding would go through the whole array once a slice.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from difflang.ir.builder import Builder
from difflang.ir.graph import Value
from difflang.ir.op import OPS, MaybeValue
from difflang.ir.types import Tensor
from difflang.ops.regions import add

Window = tuple[int, int]  # from where to before where along an axis


class Cotangents:
    """What has arrived at each value, and which of it is zero by a choice."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.whole: dict[Value, Value] = {}
        self.pieces: dict[Value, dict[int, dict[Window, Value]]] = {}
        self.choices: dict[Value, Value] = {}  # cotangents that are zero but where this holds
        self.others: dict[Value, Value] = {}

    def add(self, value: Value, ct: Value) -> None:
        """One more cotangent of a value. The sum of two that are zero by choices is so where neither fell on them."""
        before = self.whole.get(value)
        total = add(before, ct)
        assert total is not None
        self.whole[value] = total
        choices = [self.choices.get(c) for c in (before, ct) if c is not None]
        if before is not None and (both := alternatives(choices)) is not None:
            self.choices[total] = both

    def other_side(self, truth: Value) -> Value:
        """Where a truth does not hold: one value, however often it is asked for."""
        if truth not in self.others:
            self.others[truth] = OPS["logical_not"].one(truth)
        return self.others[truth]

    def put(self, value: Value, axis: int, window: Window, ct: Value) -> None:
        """One more cotangent of a part of a value."""
        part = self.pieces.setdefault(value, {}).setdefault(axis, {})
        total = add(part.get(window), ct)
        assert total is not None
        part[window] = total

    def take(self, value: Value) -> MaybeValue:
        """The sum of all that has arrived, `None` for nothing."""
        total = self.whole.pop(value, None)
        for axis, parts in self.pieces.pop(value, {}).items():
            for row in rows(parts.items()):
                total = add(total, side_by_side(self.builder, row, axis, value))
        return total


def alternatives(choices: list[Value | None]) -> Value | None:
    """Where one of two choices holds, if both are known."""
    first, second = choices
    if first is None or second is None:
        return None
    return first if first is second else OPS["logical_or"].one(first, second)


def rows(pieces: Iterable[tuple[Window, Value]]) -> list[list[tuple[Window, Value]]]:
    """The pieces in order, in as few rows as keep them from overlapping. Cost: n log n."""
    made: list[list[tuple[Window, Value]]] = []
    ends: list[tuple[int, int]] = []  # where each row ends, and its number
    for (start, stop), piece in sorted(pieces, key=lambda item: item[0]):
        if ends and ends[0][0] <= start:
            number = heappop(ends)[1]
        else:
            number = len(made)
            made.append([])
        made[number].append(((start, stop), piece))
        heappush(ends, (stop, number))
    return made


def side_by_side(builder: Builder, row: list[tuple[Window, Value]], axis: int, like: Value) -> Value:
    """Pieces that do not overlap in one array, zeros between."""
    type = like.type
    assert isinstance(type, Tensor)
    size = type.shape[axis]
    assert isinstance(size, int)
    if len(row) == 1:
        ((start, stop), piece) = row[0]
        nothing = (0,) * type.rank
        low, high = ((*nothing[:axis], n, *nothing[axis + 1 :]) for n in (start, size - stop))
        return builder.one("pad", piece, builder.const(0.0, type.reshaped()), low=low, high=high, interior=nothing)
    parts: list[Value] = []
    end = 0
    for (start, stop), piece in [*row, ((size, size), None)]:
        if start > end:
            parts.append(builder.const(0.0, type.resized(axis, start - end)))
        if piece is not None:
            parts.append(builder.own(piece))
        end = stop
    return parts[0] if len(parts) == 1 else OPS["concat"].one(*parts, axis=axis)
