"""Stores checkpoints of a loop's states, from which its histories can be recomputed at any step.

A store has a fixed number of slots. At first every state is stored. With more steps, only states a given interval apart
are, and when these are too many as well, `binomial_schedule` chooses which to drop for the next one. Dropping moves
only indices: the order of the stored states, and their slots. For a known number of steps the stored states are
planned.

A loop that writes a store runs in chunks, from one step whose state may have to be stored to the next, so that nothing
is decided inside them. A reader goes through the steps in chunks, in either direction; the states of a chunk are
recomputed from the last one stored before it, and on the way states are stored in slots that are free by then
(`history_replay`). A step's outputs are computed from its state. A loop that itself reads histories does the same for
them, so this is closed under all derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from difflang.ir.array_types import Array, Jax, JaxArray, LaxModule, Pytree
from difflang.ir.graph import Graph, Value
from difflang.ir.tensor_types import Tensor, Type
from difflang.ops.control.print_effect import without_prints
from difflang.ops.loop import binomial_schedule
from difflang.ops.loop.binomial_schedule import plan_checkpoints
from difflang.ops.loop.history_value import HistoryRun
from difflang.ops.region_interface import LoweredValue, RegionLowering

# The parts of a state, each in an array.
Arrays = tuple[JaxArray, ...]

# Sizes in bytes: of the stored states of a loop, of the states of a chunk, and of what is cleared in no time.
STORE_BYTES = 8 << 20
CHUNK_BYTES = 512 << 10
SMALL_BYTES = 512 << 10
MAX_STORE_ALL, MAX_STORE_ALL_NESTED, MAX_SLOTS, MIN_SLOTS = 16384, 4096, 256, 16
MAX_INTERVAL, MIN_INTERVAL = 512, 4
# Up to this size a CPU writes a state faster than it tests whether to store it.
LARGE_STATE_BYTES = 4 << 10
# The size of a chunk where the program sets the number of slots.
SMALL_CHUNK_BYTES = 16 << 10


class StoreRequest(NamedTuple):
    """What the program sets for a loop's checkpoint store (0 where nothing), and the number of steps, if known."""

    slots: int = 0
    steps: int = 0
    length: int | None = None
    # Store the residuals of each chunk's steps while it is reversed, instead of their states.
    residuals: bool = False


class StoreSize(Struct, frozen=True):
    """How many states a store holds."""

    # All states up to this many steps, a multiple of `steps`.
    store_all_up_to: int
    # The number of stored states beyond that, and the least number of steps between them.
    slots: int
    steps: int
    # The stored states if the number of steps is known, and that number.
    planned: tuple[int, ...] = ()
    length: int = 0
    # The number of steps whose residuals are buffered, at first those of the last steps.
    residual_steps: int = 0

    @classmethod
    def of(cls, types: Sequence[Type], batch_size: int, request: StoreRequest, *, inside: bool = False) -> StoreSize:
        """A size for states of these types in a batch; `inside` another loop, whose every step clears the store.

        Where the program sets the slots there is one more, for the state before the newest step.
        """
        bytes = max(1, batch_size * sum([state_bytes(t) for t in types]))
        # More slots than steps are of no use.
        if request.length is not None:
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
        # Every state is stored while slots last, without deciding at each step.
        if request.slots:
            whole = slots if request.steps == 1 and request.length is None else 0
        whole = min(whole // steps, slots) * steps
        if request.length is None or request.length <= whole:
            return cls(whole, slots, steps)
        if request.residuals:
            # In units of `steps`, without the last one, whose residuals are buffered.
            places = plan_checkpoints(-(-request.length // steps) - 1, request.slots)
            return cls(0, request.slots, steps, tuple([steps * at for at in places]), request.length, steps)
        # No buffer for a chunk's states is needed if they are recomputed one by one: its memory becomes slots.
        if request.steps or not request.slots:
            slots += steps - 1
        return cls(0, slots, steps, plan_checkpoints(request.length, slots), request.length)

    @property
    def head(self) -> int:
        """The number of steps before those whose residuals are buffered at first."""
        return max(0, self.length - self.residual_steps)

    @property
    def capacity(self) -> int:
        """The number of slots."""
        return max(self.store_all_up_to, self.slots)

    @property
    def order(self) -> tuple[Array, Array]:
        """The stored states in order, and the slot of each, as after `store_all_up_to` steps."""
        kept = self.planned or range(0, self.store_all_up_to, self.steps)
        first = np.asarray(range(len(kept)) if self.planned else kept, np.int32)
        others = np.setdiff1d(positions(self.capacity), first)
        empty = np.full(self.slots - len(first), binomial_schedule.INT32_MAX, np.int32)
        return np.append(np.asarray(kept, np.int32), empty), np.append(first, others)[: self.slots]


def state_bytes(type: Type) -> int:
    assert isinstance(type, Tensor), "the state of a loop is made of arrays"
    return type.bytes


class ReplaySource(Struct, frozen=True, eq=False):
    """A loop as its readers need it: graphs that advance a state and that compute a step's outputs from it."""

    # Params (index, consts, state, items); results: state, history items, or both.
    advance: Graph
    outputs: Graph
    advance_with_outputs: Graph
    state_carries: tuple[int, ...]  # which carries are the state
    fixed: Sequence[LoweredValue]
    xs: Sequence[LoweredValue]
    reverse: bool
    size: StoreSize | None  # None if every state is stored
    # Skip the write of a state that is not stored: on the CPU, in a loop that decides as it runs.
    sparing: bool

    @classmethod
    def of(
        cls, lowering: RegionLowering, step: Graph, consts: int, carry: int, saved: Sequence[int],
        given: tuple[Sequence[LoweredValue], Sequence[LoweredValue]], reverse: bool, asked: StoreRequest | None,
        also: Sequence[int] = (),
    ) -> ReplaySource:  # fmt: skip
        """The source of a loop's step. Its state holds the carries that history outputs and `also` depend on."""
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
        self, lax: LaxModule, truth: JaxArray, slots: Sequence[JaxArray], state: Sequence[JaxArray], slot: JaxArray
    ) -> Arrays:
        """The slots with a state written into one, if `truth`; else unchanged, or with the state in a spare slot."""
        if not self.sparing:
            return write_items(lax, slots, state, slot)
        return apply_if(lax, truth, lambda slots: write_items(lax, slots, state, slot), tuple(slots))


def find_state_carries(step: Graph, gives: Graph, carry: range, also: Sequence[int] = ()) -> tuple[int, ...]:
    """The carries that the history outputs depend on, at this step or through later ones; and those in `also`."""
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
    """A checkpoint store while it is written: part of the state of the loop that writes it."""

    order: Arrays  # the stored states, and the slot of each
    dropped_rank: JaxArray  # where in that order a state was dropped last
    next_step: JaxArray  # the step of this chunk whose state is stored
    slot: JaxArray  # and its slot
    slots: Arrays


class CheckpointStore:
    """Writes the states of a loop into a checkpoint store."""

    def __init__(
        self, lowering: RegionLowering, source: ReplaySource, start: Sequence[JaxArray], length: int | None
    ) -> None:
        self.jax, self.source = lowering.jax, source
        size, lax = source.size, self.jax.lax
        # The slot for states that are not stored.
        self.spare = size.capacity if size else int(length or 0)
        slots = self.spare + (size.steps if size and not (size.planned or size.store_all_up_to) else 1)
        empty = [lax.full((slots, *np.shape(start[i])), np.zeros((), start[i].dtype)) for i in source.state_carries]
        self.start = StoreState(size.order if size else (), int32_one(), int32(-1), int32(0), tuple(empty))

    def begin_chunk(
        self, at: StoreState, count: JaxArray, apart: JaxArray, boundary: JaxArray
    ) -> tuple[StoreState, JaxArray]:
        """The store at the beginning of a chunk, with its first step in the order, and the latest end of the chunk.

        `apart` tells whether a state may be stored here, `boundary` where the next may be. All steps up to
        `store_all_up_to` are one chunk. A planned store has nothing to decide.
        """
        jax, lax, size = self.jax, self.jax.lax, self.source.size
        if size is None or size.planned:
            return at, int32(binomial_schedule.INT32_MAX)
        later = lax.ge(count, int32(size.store_all_up_to))
        keep = lax.bitwise_and(later, lax.bitwise_or(apart, lax.eq(count, int32_zero())))
        start = (at.order, at.dropped_rank, int32(-1), at.slot)
        order, place, due, slot = apply_if(
            lax, keep, lambda now: insert_checkpoint(jax, size, now[0], now[1], count), start
        )
        return StoreState(order, place, due, slot, at.slots), lax.select(later, boundary, int32(size.store_all_up_to))

    def record_state(self, at: StoreState, count: JaxArray, carry: Sequence[JaxArray]) -> StoreState:
        """The store with the state before step `count` in its slot, if it is stored, else in the spare slot."""
        lax, size, slot, spare = self.jax.lax, self.source.size, count, int32(self.spare)
        # Here `at.slot` counts the planned states stored so far.
        if size and size.planned:
            kept = lax.eq(read_item(lax, at.order[0], at.slot), count)
            slot = lax.select(kept, at.slot, spare)
            at = at._replace(slot=lax.add(at.slot, lax.convert_element_type(kept, np.int32)))
        elif size:
            kept = lax.select(lax.eq(count, at.next_step), at.slot, spare)
            slot = lax.select(lax.lt(count, int32(size.store_all_up_to)), count, kept)
        state = [carry[i] for i in self.source.state_carries]
        return at._replace(slots=self.source.store_state(lax, lax.ne(slot, spare), at.slots, state, slot))


def insert_checkpoint(
    jax: Jax, size: StoreSize, order: Arrays, place: JaxArray, count: JaxArray
) -> tuple[Arrays, JaxArray, JaxArray, JaxArray]:
    """Insert state number `count` into the order.

    Gives the order with it, the position at which a state was dropped, `count`, and its slot: an empty one or that of
    the dropped state.
    """
    jnp, lax, (kept, slots) = jax.numpy, jax.lax, order
    number, interval, most = [positions(size.slots), *map(int32, (size.steps, size.slots))]
    # Without a first phase that stores all states, the first interval may be shorter.
    before = count if size.store_all_up_to else count + interval - int32_one()
    held = lax.min(lax.div(before, interval), most)
    full = held == most
    place = lax.select(full, choose_dropped_slot(jax, size, kept, place, count), place)
    at = lax.select(full, place, held)
    slot = read_item(lax, slots, at)
    moved = full & (at <= number)
    kept = jnp.where(moved, jnp.append(kept[1:], count), jnp.where(number == held, count, kept))
    return (kept, jnp.where(moved, jnp.append(slots[1:], slot), slots)), place, count, slot


def choose_dropped_slot(jax: Jax, size: StoreSize, kept: JaxArray, place: JaxArray, count: JaxArray) -> JaxArray:
    """The position of the state to drop, where the previous one was dropped at `place`."""
    lax, slots, interval = jax.lax, size.slots, int32(size.steps)

    def dropped() -> JaxArray:
        more = lax.div(jax.numpy.append(kept, count), np.full(slots + 1, interval))
        return binomial_schedule.choose_dropped(jax.numpy, more, more[-1] + int32_one(), partial(suffix_sums, lax))

    if slots < 3:
        return dropped()
    before, after = (
        read_item(lax, kept, place - int32_one()),
        read_item(lax, kept, lax.min(place + int32_one(), int32(slots - 1))),
    )
    joined = lax.div(lax.select(place == slots - 1, count, after) - before, interval)
    near = lax.min(binomial_schedule.choose_dropped_fast(jax.numpy, joined, place, slots), int32(slots - 1))
    far = lax.div(count, interval) >= binomial_schedule.reach_table(slots)[slots, 2] - int32(2)
    return lax.cond(far, dropped, lambda: near)


class LoopRun(HistoryRun, frozen=True, eq=False):
    """A loop that has run: its source, the stored states and their slots, and its step count."""

    source: ReplaySource
    order: Arrays
    slots: Sequence[JaxArray]
    residual_buffers: Sequence[JaxArray]  # the residuals of its last steps, if the store buffers them
    count: JaxArray

    @property
    def may_store_all(self) -> bool:
        """Whether its store may hold every state."""
        return self.source.size is None or self.source.size.store_all_up_to > 0

    def all_stored(self, lax: LaxModule) -> JaxArray:
        """Whether every state is stored, in the slot of its own number."""
        return lax.le(self.count, int32(self.source.size.store_all_up_to)) if self.source.size else boolean(True)

    def step_number(self, lax: LaxModule, index: JaxArray) -> JaxArray:
        """The position in the run of the step with that index."""
        return lax.sub(lax.sub(self.count, int32_one()), index) if self.source.reverse else index


# ---- Numbers and slots


def int32(number: int) -> Array:
    """A constant beside step numbers and slots, which have 32 bits."""
    return np.asarray(number, np.int32)


def int32_zero() -> Array:
    return int32(0)


def int32_one() -> Array:
    return int32(1)


def positions(count: int) -> Array:
    """0, 1, ..., count - 1."""
    return np.arange(count, dtype=np.int32)


def boolean(value: bool) -> Array:
    """A constant beside conditions."""
    return np.asarray(value)


def suffix_sums(lax: LaxModule, x: JaxArray) -> JaxArray:
    """Suffix sums as a loop: XLA's own cumulative sum takes longer to compile and to run."""

    def body(at: tuple[JaxArray, JaxArray, JaxArray]) -> tuple[JaxArray, JaxArray, JaxArray]:
        k, total, sums = at
        total = lax.add(total, read_item(lax, x, k))
        return lax.sub(k, int32_one()), total, write_item(lax, sums, total, k)

    start = (int32(x.shape[0] - 1), int32_zero(), lax.full_like(x, 0))
    return lax.while_loop(lambda at: lax.ge(at[0], int32_zero()), body, start)[2]


def count_until(jax: Jax, kept: JaxArray, step: JaxArray) -> JaxArray:
    """How many stored states are not after that step."""
    return jax.numpy.sum(kept <= step, dtype=np.int32)


def apply_if(lax: LaxModule, truth: JaxArray, change: Callable[[Pytree], Pytree], state: Pytree) -> Pytree:
    """The state, changed if `truth` holds."""

    # A loop with at most one step works in place, whereas a branch would copy what it returns unchanged.
    def step(at: tuple[JaxArray, Pytree]) -> tuple[JaxArray, Pytree]:
        return boolean(False), change(at[1])

    return lax.while_loop(lambda at: at[0], step, (truth, state))[1]


def read_item(lax: LaxModule, x: JaxArray, i: JaxArray) -> JaxArray:
    """`x[i]`."""
    starts = (i, *[int32_zero()] * (x.ndim - 1))
    return lax.squeeze(lax.dynamic_slice(x, starts, (1, *x.shape[1:]), allow_negative_indices=False), (0,))


def write_item(lax: LaxModule, xs: JaxArray, x: JaxArray, i: JaxArray) -> JaxArray:
    """`xs` with `x` at `i`."""
    starts = (i, *[int32_zero()] * x.ndim)
    return lax.dynamic_update_slice(xs, lax.expand_dims(x, (0,)), starts, allow_negative_indices=False)


def write_items(lax: LaxModule, xs: Sequence[JaxArray], state: Sequence[JaxArray], i: JaxArray) -> Arrays:
    """The parts of a state, each in its own array at `i`."""
    return tuple([write_item(lax, x, part, i) for x, part in zip(xs, state, strict=True)])
