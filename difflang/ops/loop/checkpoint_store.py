"""The states of a loop, kept so that its histories can be had again at any step, whatever the number of steps.

A tape has a fixed number of slots. At first every state is kept. Of more steps, only states that lie some steps apart
are kept, and when these are too many as well, `schedule` says which to drop for the next one. Only numbers move then:
in what order the kept states lie, and in which slots. Where the number of steps is known, it is planned which are kept.

A loop that writes a tape runs in pieces, from one step whose state may have to be kept to the next, so that within them
there is nothing to decide. Who reads goes through the steps in chunks, in either direction; the states of a chunk are
computed again from the last one kept before it, and on the way there states are kept in slots that are free by then
(`reader`). What a step gave is computed from its state. A loop that itself reads histories does the same for them, so
this is closed under all derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from difflang.ir.graph import Graph, Value
from difflang.ir.tensor_types import Tensor, Type
from difflang.ops.control.print_effect import without_prints
from difflang.ops.loop import binomial_schedule
from difflang.ops.loop.binomial_schedule import plan_checkpoints
from difflang.ops.loop.history_value import HistoryRun

Array = Any
Arrays = list[Any]

STORE_BYTES = 8 << 20  # bytes for the kept states of a loop
CHUNK_BYTES = 512 << 10  # bytes for the states of a chunk
SMALL_BYTES = 512 << 10  # bytes that are cleared in no time
MAX_STORE_ALL, MAX_STORE_ALL_NESTED, MAX_SLOTS, MIN_SLOTS = 16384, 4096, 256, 16
MAX_INTERVAL, MIN_INTERVAL = 512, 4
LARGE_STATE_BYTES = 4 << 10  # bytes of a state up to which a CPU writes it sooner than it asks whether it is kept
SMALL_CHUNK_BYTES = 16 << 10  # bytes of a chunk beside slots of which the program says how many


class StoreRequest(NamedTuple):
    """What a program says of a loop's tape, 0 where nothing, and how many steps it takes, if that is known."""

    slots: int = 0
    steps: int = 0
    length: int | None = None
    residuals: bool = False  # what is read back of so many steps is kept while these are gone through, not their states


class StoreSize(Struct, frozen=True):
    """How many states a tape keeps."""

    store_all_up_to: int  # all of them up to so many steps, a multiple of `steps`
    slots: int  # so many of more steps
    steps: int  # which lie so many steps apart at least
    planned: tuple[int, ...] = ()  # the states that are kept where the number of steps is known
    length: int = 0  # that number
    residual_steps: int = 0  # for how many steps there is room for what is read back of them, of the last ones at first

    @classmethod
    def of(cls, types: Sequence[Type], batch_size: int, request: StoreRequest, *, inside: bool = False) -> StoreSize:
        """For states of these types, so many of them at a time; `inside` another loop, whose steps each clear the room.

        Where it is asked for slots there is one more, for the state before the newest step.
        """
        bytes = max(1, batch_size * sum([state_bytes(t) for t in types]))
        if request.length is not None:  # no more than there are states
            request = request._replace(slots=min(request.slots, request.length))
        slots = (
            request.slots + 1 if request.slots else max(MIN_SLOTS, min(MAX_SLOTS // batch_size, STORE_BYTES // bytes))
        )
        steps = 1 << max(MIN_INTERVAL, min(MAX_INTERVAL // batch_size, CHUNK_BYTES // bytes)).bit_length() - 1
        if request.slots:
            steps = max(1, min(request.slots, MAX_INTERVAL, SMALL_CHUNK_BYTES // bytes))
        steps = request.steps or steps
        most = MAX_STORE_ALL_NESTED if inside else MAX_STORE_ALL
        whole = max(slots, min(most // batch_size, SMALL_BYTES // bytes))
        if request.slots:  # states of each step, while there is room, are kept without deciding on each
            whole = slots if request.steps == 1 and request.length is None else 0
        whole = min(whole // steps, slots) * steps
        if request.length is None or request.length <= whole:
            return cls(whole, slots, steps)
        if request.residuals:
            places = plan_checkpoints(
                -(-request.length // steps) - 1, request.slots
            )  # of the units of steps but the last one
            return cls(0, request.slots, steps, tuple([steps * at for at in places]), request.length, steps)
        if (
            request.steps or not request.slots
        ):  # there is room for the states of as many steps, which are had one by one
            slots += steps - 1
        return cls(0, slots, steps, plan_checkpoints(request.length, slots), request.length)

    @property
    def head(self) -> int:
        """How many steps there are but for the last ones of which is kept what is read back."""
        return max(0, self.length - self.residual_steps)

    @property
    def capacity(self) -> int:
        """For how many states there are slots."""
        return max(self.store_all_up_to, self.slots)

    @property
    def order(self) -> tuple[Array, Array]:
        """Which states are kept, in their order, and the slot of each: as if `whole` steps had been taken."""
        kept = self.planned or range(0, self.store_all_up_to, self.steps)
        first = np.asarray(range(len(kept)) if self.planned else kept, np.int32)
        others = np.setdiff1d(np.arange(self.capacity, dtype=np.int32), first)
        empty = np.full(self.slots - len(first), binomial_schedule.INT32_MAX, np.int32)
        return np.append(np.asarray(kept, np.int32), empty), np.append(first, others)[: self.slots]


def state_bytes(type: Type) -> int:
    assert isinstance(type, Tensor), "the state of a loop is made of arrays"
    return type.bytes


class ReplaySource(Struct, frozen=True, eq=False):
    """A loop as its readers need it: what a step makes of a state, and what it gives besides."""

    advance: Graph  # (index, consts, state, items) -> state
    outputs: Graph  # (index, consts, state, items) -> what is saved
    advance_with_outputs: Graph  # (index, consts, state, items) -> state, what is saved
    state_carries: tuple[int, ...]  # which carries are the state
    fixed: Arrays
    xs: Arrays
    reverse: bool
    size: StoreSize | None  # none where every state is kept
    sparing: bool  # a state that is not kept is not written: of a loop that decides on the way, on the CPU

    @classmethod
    def of(
        cls, lowering: Any, step: Graph, consts: int, carry: int, saved: Sequence[int], given: tuple[Arrays, Arrays],
        reverse: bool, asked: StoreRequest | None, also: Sequence[int] = (),
    ) -> ReplaySource:  # fmt: skip
        """Of the step of a loop with so many consts and carries; what it gives depends on the state, as do `also`."""
        step = without_prints(step)
        gives = lowering.restrict_results(step, [step.results[i] for i in saved])
        first = 1 + consts
        places = find_state_carries(step, gives, range(first, first + carry), also)
        kept = [p for i, p in enumerate(step.params) if not first <= i < first + carry or i - first in places]
        advance = lowering.restrict_results(step, [step.results[i] for i in places])
        types = [step.results[i].type for i in places]
        size = asked and StoreSize.of(types, lowering.batch_size, asked, inside=lowering.in_loop)
        both = lowering.restrict_results(step, [*advance.results, *gives.results])
        graphs = [Graph(tuple(kept), g.eqns, g.results, g.name) for g in (advance, gives, both)]
        decided = size is not None and not size.planned and lowering.batch_size == 1
        sparing = decided and lowering.platform == "cpu" and sum(map(state_bytes, types)) > LARGE_STATE_BYTES
        return cls(graphs[0], graphs[1], graphs[2], places, given[0], given[1], reverse, size, sparing)

    def store_state(
        self, lax: Any, truth: Array, slots: Sequence[Array], state: Sequence[Array], slot: Array
    ) -> tuple[Array, ...]:
        """The slots with a state in that one, if it is to be kept; where it is not, any in which it does no harm."""
        if not self.sparing:
            return write_items(lax, slots, state, slot)
        return apply_if(lax, truth, lambda slots: write_items(lax, slots, state, slot), tuple(slots))


def find_state_carries(step: Graph, gives: Graph, carry: range, also: Sequence[int] = ()) -> tuple[int, ...]:
    """Which carries what is given depends on, at this step or through later ones; and those that are needed `also`."""
    place = {step.params[i]: i - carry.start for i in carry}
    makers = {r: e for e in (*step.eqns, *gives.eqns) for r in e.results}
    found = set(also)
    todo: list[Value] = [*gives.results, *[step.results[i] for i in also]]
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


class StoreState(NamedTuple):
    """A tape while it is written: part of the state of the loop that writes it."""

    order: Any  # which states are kept, and the slot of each
    dropped_rank: Array  # of the state that was dropped last
    next_step: Array  # the step of this piece whose state is kept
    slot: Array  # and where
    slots: tuple[Array, ...]


class CheckpointStore:
    """How the states of a loop are written."""

    def __init__(self, lowering: Any, source: ReplaySource, start: Arrays, length: int | None) -> None:
        self.jax, self.source = lowering.jax, source
        size, lax = source.size, self.jax.lax
        self.spare = size.capacity if size else int(length or 0)  # the slot for the states that are not kept
        slots = self.spare + (size.steps if size and not (size.planned or size.store_all_up_to) else 1)
        empty = [lax.full((slots, *np.shape(start[i])), np.zeros((), start[i].dtype)) for i in source.state_carries]
        self.start = StoreState(size.order if size else (), int32_one(), np.int32(-1), np.int32(0), tuple(empty))

    def begin_chunk(self, at: StoreState, count: Array, apart: Array, boundary: Array) -> tuple[StoreState, Array]:
        """At the beginning of a piece: the tape with its first step in order, and where it ends at the latest.

        `apart` says whether a state may be kept there, `boundary` where next. All of the first steps are one piece.
        Where it is planned what is kept there is nothing to decide.
        """
        jax, lax, size = self.jax, self.jax.lax, self.source.size
        if size is None or size.planned:
            return at, np.int32(binomial_schedule.INT32_MAX)
        later = lax.ge(count, np.int32(size.store_all_up_to))
        keep = lax.bitwise_and(later, lax.bitwise_or(apart, lax.eq(count, int32_zero())))
        start = (at.order, at.dropped_rank, np.int32(-1), at.slot)
        order, place, due, slot = apply_if(
            lax, keep, lambda now: insert_checkpoint(jax, size, now[0], now[1], count), start
        )
        return StoreState(order, place, due, slot, at.slots), lax.select(
            later, boundary, np.int32(size.store_all_up_to)
        )

    def record_state(self, at: StoreState, count: Array, carry: Arrays) -> StoreState:
        """With the state before step number `count`, if it is one of those kept; else the spare slot is for it."""
        lax, size, slot, spare = self.jax.lax, self.source.size, count, np.int32(self.spare)
        if size and size.planned:  # `slot` is that of the next state to be kept
            kept = lax.eq(read_item(lax, at.order[0], at.slot), count)
            slot = lax.select(kept, at.slot, spare)
            at = at._replace(slot=lax.add(at.slot, lax.convert_element_type(kept, np.int32)))
        elif size:
            kept = lax.select(lax.eq(count, at.next_step), at.slot, spare)
            slot = lax.select(lax.lt(count, np.int32(size.store_all_up_to)), count, kept)
        state = [carry[i] for i in self.source.state_carries]
        return at._replace(slots=self.source.store_state(lax, lax.ne(slot, spare), at.slots, state, slot))


def insert_checkpoint(
    jax: Any, size: StoreSize, order: Any, place: Array, count: Array
) -> tuple[Any, Array, Array, Array]:
    """The order with one more state, the last one; the place of the one that was dropped for it; that state again, and
    its slot: one that is empty, or that of the state dropped.
    """
    jnp, lax, (kept, slots) = jax.numpy, jax.lax, order
    number, apart, most = [np.arange(size.slots, dtype=np.int32), *map(np.int32, (size.steps, size.slots))]
    before = (
        count if size.store_all_up_to else count + apart - int32_one()
    )  # the first of all may be fewer than lie together
    held = lax.min(lax.div(before, apart), most)
    full = held == most
    place = lax.select(full, choose_dropped_slot(jax, size, kept, place, count), place)
    at = lax.select(full, place, held)
    slot = read_item(lax, slots, at)
    moved = full & (number >= at)
    kept = jnp.where(moved, jnp.append(kept[1:], count), jnp.where(number == held, count, kept))
    return (kept, jnp.where(moved, jnp.append(slots[1:], slot), slots)), place, count, slot


def choose_dropped_slot(jax: Any, size: StoreSize, kept: Array, place: Array, count: Array) -> Array:
    """The place of the state that is dropped for another one, where the last one dropped was at `place`."""
    lax, slots, apart = jax.lax, size.slots, np.int32(size.steps)

    def dropped() -> Array:
        more = lax.div(jax.numpy.append(kept, count), np.full(slots + 1, apart))
        return binomial_schedule.choose_dropped(jax.numpy, more, more[-1] + int32_one(), partial(suffix_sums, lax))

    if slots < 3:
        return dropped()
    before, after = (
        read_item(lax, kept, place - int32_one()),
        read_item(lax, kept, lax.min(place + int32_one(), np.int32(slots - 1))),
    )
    joined = lax.div(lax.select(place == slots - 1, count, after) - before, apart)
    near = lax.min(binomial_schedule.choose_dropped_fast(jax.numpy, joined, place, slots), np.int32(slots - 1))
    far = lax.div(count, apart) >= binomial_schedule.reach_table(slots)[slots, 2] - np.int32(2)
    return lax.cond(far, dropped, lambda: near)


class LoopRun(HistoryRun, frozen=True, eq=False):
    """A loop that has run: its source, which states are kept and in which slots, and how many steps it took."""

    source: ReplaySource
    order: Any
    slots: Arrays
    residual_buffers: Arrays  # what is read back of its last steps, where the tape has room for that
    count: Array

    @property
    def may_store_all(self) -> bool:
        """Whether its tape may have every state."""
        return self.source.size is None or self.source.size.store_all_up_to > 0

    def all_stored(self, lax: Any) -> Array:
        """Whether every state is kept, in the slot of its own number."""
        return lax.le(self.count, np.int32(self.source.size.store_all_up_to)) if self.source.size else np.asarray(True)

    def step_number(self, lax: Any, index: Array) -> Array:
        """When in the run the step with that index was."""
        return lax.sub(lax.sub(self.count, int32_one()), index) if self.source.reverse else index


# ------------------------------------------------------------------------------------------------ numbers, slots


def int32_zero() -> Array:
    return np.asarray(0, np.int32)


def int32_one() -> Array:
    return np.asarray(1, np.int32)


def suffix_sums(lax: Any, x: Array) -> Array:
    """Of each number and all behind it, as a loop: XLA's own takes longer to compile and to run."""

    def body(at: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, total, sums = at
        total = lax.add(total, read_item(lax, x, k))
        return lax.sub(k, int32_one()), total, write_item(lax, sums, total, k)

    start = (np.int32(x.shape[0] - 1), int32_zero(), lax.full_like(x, 0))
    return lax.while_loop(lambda at: lax.ge(at[0], int32_zero()), body, start)[2]


def count_until(jax: Any, kept: Array, step: Array) -> Array:
    """How many of the states kept are not beyond that step."""
    return jax.numpy.sum(kept <= step, dtype=np.int32)


def apply_if(lax: Any, truth: Array, change: Callable[[Any], Any], state: Any) -> Any:
    """Changed, if that holds. In place: a branch would copy what it gives back as it is."""
    return lax.while_loop(lambda at: at[0], lambda at: (np.asarray(False), change(at[1])), (truth, state))[1]


def read_item(lax: Any, x: Array, i: Array) -> Array:
    """`x[i]`."""
    starts = (i, *[int32_zero()] * (x.ndim - 1))
    return lax.squeeze(lax.dynamic_slice(x, starts, (1, *x.shape[1:]), allow_negative_indices=False), (0,))


def write_item(lax: Any, xs: Array, x: Array, i: Array) -> Array:
    """`xs` with `x` at `i`."""
    starts = (i, *[int32_zero()] * x.ndim)
    return lax.dynamic_update_slice(xs, lax.expand_dims(x, (0,)), starts, allow_negative_indices=False)


def write_items(lax: Any, xs: Sequence[Array], state: Sequence[Array], i: Array) -> tuple[Array, ...]:
    """The parts of a state, each in its own array at `i`."""
    return tuple([write_item(lax, x, part, i) for x, part in zip(xs, state, strict=True)])
