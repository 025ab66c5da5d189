"""The states of a loop, kept so that its histories can be had again at any step, whatever the number of steps.

A tape has a fixed number of slots. At first every state is kept. When the slots are full, every second state is dropped
and from then on half as many are kept: after j such times one in 2^j. Who reads goes through the steps in chunks, in
either direction; where not every state is there, the states of a chunk are computed again from the last one kept before
it. What a step gave is computed from its state. A loop that itself reads histories does the same for them, so this is
closed under all derivatives. (Keeping every 2^j-th state is Stumm and Walther's idea of replacing checkpoints while the
end is unknown, with the positions fixed beforehand.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from difflang.ir.graph import Graph, Value
from difflang.ir.types import Tensor, Type
from difflang.ops.saved import Run

Array = Any
Arrays = list[Any]

STATES = 8 << 20  # bytes for the kept states of a loop
CHUNK = 1 << 20  # bytes for the states of a chunk
SMALL = 512 << 10  # bytes that are cleared in no time
MOST_SLOTS, ENOUGH_SLOTS, FEWEST_SLOTS = 4096, 256, 16
MOST_STEPS, FEWEST_STEPS = 128, 4


@dataclass(frozen=True, slots=True)
class Size:
    """How many slots a tape has (a power of two), and how many steps a chunk."""

    slots: int
    steps: int

    @classmethod
    def of(cls, types: Sequence[Type], lanes: int) -> Size:
        """For states of these types, so many of them at a time."""
        bytes = max(1, lanes * sum([bytes_of(t) for t in types]))
        fitting = min(MOST_SLOTS // lanes, max(SMALL // bytes, min(ENOUGH_SLOTS, STATES // bytes)))
        slots = 1 << max(fitting, FEWEST_SLOTS).bit_length() - 1
        return cls(slots, max(FEWEST_STEPS, min(MOST_STEPS // lanes, CHUNK // bytes)))


def bytes_of(type: Type) -> int:
    assert isinstance(type, Tensor), "the state of a loop is made of arrays"
    return type.bytes


@dataclass(frozen=True, eq=False, slots=True)
class Source:
    """A loop as its readers need it: what a step makes of a state, and what it gives besides."""

    advance: Graph  # (index, consts, state, items) -> state
    gives: Graph  # (index, consts, state, items) -> what is saved
    places: tuple[int, ...]  # which carries are the state
    fixed: Arrays
    xs: Arrays
    reverse: bool
    size: Size | None  # none where the number of steps is known: every state is kept

    @classmethod
    def of(
        cls, lowering: Any, step: Graph, consts: int, carry: int, saved: Sequence[int], given: tuple[Arrays, Arrays],
        reverse: bool, known: bool,
    ) -> Source:  # fmt: skip
        gives = lowering.restricted(step, [step.results[i] for i in saved])
        first = 1 + consts
        places = needed(step, gives, range(first, first + carry))
        kept = [p for i, p in enumerate(step.params) if not first <= i < first + carry or i - first in places]
        advance = lowering.restricted(step, [step.results[i] for i in places])
        size = None if known else Size.of([step.results[i].type for i in places], lowering.lanes)
        graphs = [Graph(tuple(kept), g.eqns, g.results, g.name) for g in (advance, gives)]
        return cls(graphs[0], graphs[1], places, given[0], given[1], reverse, size)


def needed(step: Graph, gives: Graph, carry: range) -> tuple[int, ...]:
    """Which carries what is given depends on, at this step or through later ones."""
    place = {step.params[i]: i - carry.start for i in carry}
    makers = {r: e for e in (*step.eqns, *gives.eqns) for r in e.results}
    found: set[int] = set()
    todo: list[Value] = list(gives.results)
    seen = set(todo)
    while todo:
        value = todo.pop()
        more = [] if value not in makers else list(makers[value].operands)
        if value in place and place[value] not in found:
            found.add(place[value])
            more = [step.results[place[value]]]
        todo += [v for v in more if v not in seen]
        seen.update(more)
    return tuple(sorted(found))


class Tape:
    """Slots while they are written: part of the state of the loop that writes them."""

    def __init__(self, lowering: Any, source: Source, start: Arrays, length: int | None) -> None:
        self.jax, self.source = lowering.jax, source
        self.slots = source.size.slots if source.size else int(length or 0)
        lax = self.jax.lax
        empty = [lax.full((self.slots + 1, *np.shape(start[i])), np.zeros((), start[i].dtype)) for i in source.places]
        self.start = (np.asarray(0, np.int32), tuple(empty))

    def written(self, kept: Any, count: Array, carry: Arrays) -> Any:
        """With the state before step number `count`, if it is one of those kept; else it goes to the spare slot."""
        lax, (level, slots) = self.jax.lax, kept
        slot = count
        if self.source.size:
            due = lax.eq(lax.bitwise_and(count, lax.sub(lax.shift_left(one(), level), one())), zero())
            full = lax.bitwise_and(due, lax.eq(lax.shift_right_logical(count, level), np.int32(self.slots)))
            level = lax.add(level, lax.convert_element_type(full, np.int32))
            slot = lax.select(due, slot_of(lax, self.slots, level, count), np.int32(self.slots))
        states = [carry[i] for i in self.source.places]
        return level, tuple([put(lax, s, c, slot) for s, c in zip(slots, states, strict=True)])


@dataclass(frozen=True, eq=False, slots=True)
class Steps(Run):
    """A loop that has run: its source, its tape, and how many steps it took."""

    source: Source
    level: Array
    slots: Arrays
    count: Array

    def ordinal(self, lax: Any, index: Array) -> Array:
        """When in the run the step with that index was."""
        return lax.sub(lax.sub(self.count, one()), index) if self.source.reverse else index

    def kept(self, lax: Any, ordinal: Array) -> Arrays:
        """The state in the slot for that step: the last one kept up to it."""
        slot = slot_of(lax, self.source.size.slots, self.level, ordinal) if self.source.size else ordinal
        return [get(lax, s, slot) for s in self.slots]


# ------------------------------------------------------------------------------------------------ slots


def zero() -> Array:
    return np.asarray(0, np.int32)


def one() -> Array:
    return np.asarray(1, np.int32)


def slot_of(lax: Any, slots: int, level: Array, ordinal: Array) -> Array:
    """The slot of the last state kept up to a step: its number among those kept, rotated by one bit a level.

    When every second state is dropped, those that stay keep their slots under this rule, and the next ones get the
    slots of those dropped.
    """
    bits = slots.bit_length() - 1
    number = lax.shift_right_logical(ordinal, level)
    by = level  # mod bits: a remainder that two read would be a kernel by itself
    for _ in range(31 // bits):
        by = lax.select(lax.ge(by, np.int32(bits)), lax.sub(by, np.int32(bits)), by)
    turned = lax.bitwise_or(lax.shift_left(number, by), lax.shift_right_logical(number, lax.sub(np.int32(bits), by)))
    return lax.bitwise_and(turned, np.int32(slots - 1))


def get(lax: Any, x: Array, i: Array) -> Array:
    """`x[i]`."""
    starts = (i, *[zero()] * (x.ndim - 1))
    return lax.squeeze(lax.dynamic_slice(x, starts, (1, *x.shape[1:]), allow_negative_indices=False), (0,))


def put(lax: Any, xs: Array, x: Array, i: Array) -> Array:
    """`xs` with `x` at `i`."""
    starts = (i, *[zero()] * x.ndim)
    return lax.dynamic_update_slice(xs, lax.expand_dims(x, (0,)), starts, allow_negative_indices=False)
