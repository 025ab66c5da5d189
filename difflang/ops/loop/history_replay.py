"""Reads the histories of loops that have run, recomputing their states chunk by chunk.

A reader needs the states of a chunk of steps of each loop that it reads, recomputed from the last one stored before
them. On the way states are stored in slots that are free by then, at the steps that `binomial_schedule` chooses. Where
such a loop read histories itself, the same holds for them. `ChunkReplayer` does all this in one loop, with a frame for
each source loop: one that is not where it must be opens a frame and advances, after those that it reads have been
advanced. So each step appears once in the program, however many loops read others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Generic, NamedTuple

import numpy as np

from difflang.ir.array_types import JaxArray, JaxNumpyModule
from difflang.ops.loop import binomial_schedule
from difflang.ops.loop.checkpoint_store import (
    Arrays,
    LoopRun,
    apply_if,
    boolean,
    count_until,
    int32,
    int32_one,
    int32_zero,
    positions,
    read_item,
    write_item,
    write_items,
)
from difflang.ops.loop.history_value import (
    HistoryOutput,
    HistorySum,
    too_many_loops_error,
)
from difflang.ops.loop.history_view import HistoryView, State, StepLoop
from difflang.ops.loop.treeverse import Treeverse, choose_segments
from difflang.ops.region_interface import LoweredValue, RegionLowering

# Each order of reverse mode doubles the loops: this is five orders.
MAX_SOURCE_LOOPS = 31


# The stored states in order, the slot of each, and the contents of the slots.
ReplayStore = tuple[JaxArray, JaxArray, Arrays]


class ReplayState(NamedTuple):
    """The progress of the source loops and their states, carried by the reader's loop."""

    at: tuple[JaxArray, ...]  # how many steps each has taken
    until: tuple[JaxArray, ...]  # the step at which each stops next to store its state
    states: tuple[Arrays, ...]
    stores: tuple[ReplayStore, ...]
    chunk_states: tuple[Arrays, ...]  # the recomputed states of the chunk


class ReplayProgress(NamedTuple):
    """The progress of one source loop."""

    at: JaxArray
    until: JaxArray
    state: Arrays
    store: ReplayStore


class ChunkReplayer:
    """Recomputes states that are not stored, in one chunk of steps after another."""

    def __init__(self, lowering: RegionLowering, runs: Sequence[LoopRun], steps: int, reverse: bool) -> None:
        self.lowering, self.lax, self.runs, self.reverse = lowering, lowering.jax.lax, runs, reverse
        self.sizes = [r.source.size for r in runs if r.source.size]
        self.steps = steps  # of a chunk
        self.reads = [[r in source_loops(owner.source.xs) for r in runs] for owner in runs]

    def start(self) -> ReplayState:
        """No source loop has taken a step."""

        def blank(run: LoopRun, *first: int) -> tuple[JaxArray, ...]:
            return tuple([self.lax.full((*first, *s.shape[1:]), np.zeros((), s.dtype)) for s in run.slots])

        nowhere = (int32(-1),) * len(self.runs)
        stores = [(r.order[0], r.order[1], tuple(r.slots)) for r in self.runs]
        buffers = [blank(r, self.steps) for r in self.runs]
        return ReplayState(nowhere, nowhere, tuple([blank(r) for r in self.runs]), tuple(stores), tuple(buffers))

    def fill_chunk(self, low: JaxArray, high: JaxArray, held: ReplayState) -> ReplayState:
        """Recompute the states before the steps from `low` to `high` that are not stored."""
        lax, reader = self.lax, int32(len(self.runs))
        frames = lax.full((len(self.runs) + 1, 3), int32(0))
        frames = write_item(lax, frames, self.frame(low, high, int32(len(self.runs) + 1)), reader)
        first = lax.add(reader, lax.convert_element_type(self.all_stored(), np.int32))
        return lax.while_loop(
            lambda at: lax.le(at[0], reader), lambda at: self.advance_frames(*at), (first, frames, held)
        )[2]

    def all_stored(self) -> JaxArray:
        """Whether the stores hold every state."""
        return reduce(self.lax.bitwise_and, [r.all_stored(self.lax) for r in self.runs])

    def frame(self, low: JaxArray, high: JaxArray, waiting: JaxArray) -> JaxArray:
        """The steps at which a loop needs its sources, and the frame to continue with when it has taken them."""
        lax = self.lax
        return lax.concatenate([lax.expand_dims(x, (0,)) for x in (low, high, waiting)], 0)

    def advance_frames(
        self, owner: JaxArray, frames: JaxArray, held: ReplayState
    ) -> tuple[JaxArray, JaxArray, ReplayState]:
        """The last source loop that is not where it must be opens a frame; if all are, they take the steps."""
        lax, numbers = self.lax, range(len(self.runs))
        low, high, waiting = [read_item(lax, read_item(lax, frames, owner), int32(i)) for i in range(3)]
        needed = [self.must_replay(owner, i) for i in numbers]
        progress = [ReplayProgress(*parts) for parts in zip(*held[:4], strict=True)]
        buffers = list(held.chunk_states)
        ready, following = boolean(True), owner
        for i in reversed(numbers):
            run = self.runs[i]
            due = lax.sub(run.count, high) if run.source.reverse else low
            mine = lax.bitwise_and(ready, lax.bitwise_and(needed[i], lax.ne(progress[i].at, due)))
            progress[i] = apply_if(lax, mine, partial(self.plan_segment, i, due), progress[i])
            opens = lax.bitwise_and(mine, lax.ne(progress[i].at, due))
            frame = self.frame(*self.towards(i, progress[i]), owner)
            frames = write_item(lax, frames, lax.select(opens, frame, read_item(lax, frames, int32(i))), int32(i))
            following = lax.select(opens, int32(i), following)
            ready = lax.bitwise_and(ready, lax.bitwise_not(mine))
        for i in numbers:
            requested, own = lax.bitwise_and(ready, needed[i]), lax.bitwise_and(ready, lax.eq(owner, int32(i)))
            progress[i], buffers[i] = self.advance_loop(i, owner, (low, high), (requested, own), progress, buffers)
        at, until, states, stores = zip(*progress, strict=True)
        held = ReplayState(at, until, states, stores, tuple(buffers))
        return lax.select(ready, waiting, following), frames, held

    def must_replay(self, owner: JaxArray, number: int) -> JaxArray:
        """Whether a loop, or the reader, reads source loop `number`, and that does not store every state."""
        owners = np.asarray([*[row[number] for row in self.reads], True])
        return self.lax.bitwise_and(
            read_item(self.lax, owners, owner), self.lax.bitwise_not(self.runs[number].all_stored(self.lax))
        )

    def towards(self, number: int, loop: ReplayProgress) -> tuple[JaxArray, JaxArray]:
        """The next steps of a source loop: one chunk at a time if it reads others."""
        lax, run = self.lax, self.runs[number]
        count = lax.sub(loop.until, loop.at)
        if any(self.reads[number]):
            count = lax.min(count, int32(self.steps))
        low = lax.sub(lax.sub(run.count, loop.at), count) if run.source.reverse else loop.at
        return low, lax.add(low, count)

    def plan_segment(self, number: int, due: JaxArray, loop: ReplayProgress) -> ReplayProgress:
        """Store the state at a segment's end, or restart from the last one stored up to `due`; plan the next
        segment.
        """
        jax, lax, size = self.lowering.jax, self.lax, self.sizes[number]
        last = int32(size.slots)
        kept, slots, states = loop.store
        held = count_until(jax, kept, due)
        newest = read_item(lax, kept, held - int32_one())
        if self.runs[number].source.reverse == self.reverse and size.slots > 2:
            far = due - newest > size.steps
            kept, slots, held = reset_slots(jax.numpy, kept, slots, (held, newest), far)
        near = (newest <= loop.at) & (loop.at <= due)
        ended = near & (loop.at == loop.until) & (newest < loop.at) & (held < last)
        start = read_item(lax, slots, held - int32_one())
        state = apply_if(lax, ~near, lambda _: tuple([read_item(lax, s, start) for s in states]), loop.state)
        at = lax.select(near, loop.at, newest)
        place = read_item(lax, slots, held)
        states = apply_if(
            lax, ended, lambda s: tuple([write_item(lax, x, y, place) for x, y in zip(s, state, strict=True)]), states
        )
        kept = jax.numpy.where(ended & (positions(size.slots) == held), at, kept)
        free, interval = last + int32_one() - held - ended.astype(np.int32), int32(size.steps)
        table, chunks = (
            binomial_schedule.reach_table(size.slots),
            lax.div(due - at + int32(size.steps - 1), interval) + int32_one(),
        )
        far = binomial_schedule.first_advance(
            jax.numpy, chunks, read_item(lax, table, free), read_item(lax, table, free - int32_one())
        )
        goes_on = near & ~ended & (newest < loop.at) & (loop.at < loop.until) & (loop.until <= due)
        until = lax.select(goes_on, loop.until, lax.min(due, at + far * interval))
        return ReplayProgress(at, until, state, (kept, slots, states))

    def advance_loop(
        self,
        number: int,
        owner: JaxArray,
        steps: tuple[JaxArray, JaxArray],
        why: tuple[JaxArray, JaxArray],
        progress: list[ReplayProgress],
        buffers: Sequence[Arrays],
    ) -> tuple[ReplayProgress, Arrays]:
        """Advance a source loop through its own steps, or its owner's chunk, recording the state before each step."""
        lax, run, loop, (low, high), (requested, own) = self.lax, self.runs[number], progress[number], steps, why
        size = lax.sub(high, low)
        stores = {r: other.store[2] for r, other in zip(self.runs, progress, strict=True)}
        chunks = {r: chunk for r, chunk, reads in zip(self.runs, buffers, self.reads[number], strict=True) if reads}
        # A reader in the opposite direction meets the last state of a chunk first and does not need the one after it.
        along = [r.source.reverse == run.source.reverse for r in self.runs] + [self.reverse == run.source.reverse]
        others = lax.sub(size, lax.select(read_item(lax, np.asarray(along), owner), int32_zero(), int32_one()))
        count = lax.select(own, size, lax.select(requested, others, int32_zero()))

        def store_state(k: JaxArray, state: Arrays, chunk: Arrays) -> Arrays:
            place = lax.sub(lax.sub(size, int32_one()), k) if run.source.reverse else k
            return apply_if(lax, requested & (k < size), lambda at: write_items(lax, at, state, place), chunk)

        def body(at: tuple[JaxArray, Arrays, Arrays]) -> tuple[JaxArray, Arrays, Arrays]:
            k, state, chunk = at
            i = lax.sub(lax.sub(high, int32_one()), k) if run.source.reverse else lax.add(low, k)
            view = HistoryView(self.lowering, i, low, stores, chunks, {})
            state, k = tuple(view.rerun(run, run.source.advance, list(state))), lax.add(k, int32_one())
            return k, state, store_state(k, state, chunk) if self.steps > 1 else chunk

        start = (int32_zero(), loop.state, store_state(int32_zero(), loop.state, buffers[number]))
        _, state, chunk = lax.while_loop(lambda at: lax.lt(at[0], count), body, start)
        return loop._replace(at=lax.add(loop.at, count), state=state), chunk


def reset_slots(
    jnp: JaxNumpyModule, kept: JaxArray, slots: JaxArray, last: tuple[JaxArray, JaxArray], far: JaxArray
) -> tuple[JaxArray, JaxArray, JaxArray]:
    """Drop the states between the first and the last one up to where a loop must be, if they fill the slots.

    For a loop that runs in the reader's direction: both have passed them.
    """
    (held, newest), end, number = last, len(kept) - 1, positions(len(kept))
    afresh = far & (held == end + 1)
    front = jnp.where(number == 0, 0, jnp.where(number == 1, newest, binomial_schedule.INT32_MAX)).astype(np.int32)
    swapped = jnp.where(number == 1, slots[-1], jnp.where(number == end, slots[1], slots))
    return jnp.where(afresh, front, kept), jnp.where(afresh, swapped, slots), jnp.where(afresh, int32(2), held)


class HistoryReader(Generic[State]):
    """Runs the steps of a loop: in chunks if it writes a checkpoint store, or reads one that lacks some states."""

    def __init__(self, lowering: RegionLowering, xs: Sequence[LoweredValue], walk: StepLoop[State]) -> None:
        self.lowering, self.lax, self.walk = lowering, lowering.jax.lax, walk
        runs = source_loops(xs)
        if len(runs) > MAX_SOURCE_LOOPS:
            raise too_many_loops_error(len(runs), MAX_SOURCE_LOOPS)
        self.chunked = [r for r in runs if r.source.size]
        sizes = [*[r.source.size.steps for r in self.chunked if r.source.size], walk.steps]
        self.steps = min([steps for steps in sizes if steps], default=0)
        self.chunks = ChunkReplayer(lowering, self.chunked, self.steps, walk.reverse) if self.chunked else None

    def run_loop(self, state: State) -> tuple[JaxArray, State]:
        """The number of steps taken, and the state after them."""
        if not self.steps:
            return self.stepwise(None, None, (int32_zero(), state))
        if (segments := choose_segments(self.lowering.jax, self.chunked, self.walk)) is not None:
            run = self.chunked[0]
            return Treeverse(self.lax, run, self.walk, segments, lambda i: self.view_at(i, None)).run_loop(state)
        start = (int32_zero(), self.chunks.start() if self.chunks else None, state)
        k, _, state = self.lax.while_loop(
            lambda at: self.walk.should_continue(at[0], at[2]), lambda at: self.run_chunk(*at), start
        )
        return k, state

    def run_chunk(
        self, k: JaxArray, held: ReplayState | None, state: State
    ) -> tuple[JaxArray, ReplayState | None, State]:
        """The steps up to the next at which something is decided."""
        lax, walk, chunks = self.lax, self.walk, self.chunks
        apart, boundary = self.chunk_boundary(k)
        state, until = walk.begin_chunk(k, state, apart, boundary)
        if chunks is None or held is None:
            k, state = self.stepwise(until, None, (k, state))
            return k, held, state
        until = lax.min(until, lax.select(chunks.all_stored(), walk.limit, lax.min(boundary, walk.limit)))
        low, high = (lax.sub(walk.limit, until), lax.sub(walk.limit, k)) if walk.reverse else (k, until)
        held = chunks.fill_chunk(low, high, held)
        k, state = self.stepwise(until, (low, held), (k, state))
        return k, held, state

    def chunk_boundary(self, k: JaxArray) -> tuple[JaxArray, JaxArray]:
        """Whether the next step is the first of an interval, and where that interval ends."""
        lax, interval = self.lax, int32(self.steps)
        if self.walk.reverse:
            left = lax.sub(self.walk.limit, k)
            before = lax.mul(lax.div(lax.sub(left, int32_one()), interval), interval)
            return lax.eq(lax.rem(left, interval), int32_zero()), lax.sub(self.walk.limit, before)
        before = lax.mul(lax.div(k, interval), interval)
        return lax.eq(k, before), lax.add(before, interval)

    def stepwise(
        self, until: JaxArray | None, chunk: tuple[JaxArray, ReplayState] | None, at: tuple[JaxArray, State]
    ) -> tuple[JaxArray, State]:
        """The steps up to `until`, or to the end."""
        lax, walk = self.lax, self.walk

        def should_continue(at: tuple[JaxArray, State]) -> JaxArray:
            more = walk.should_continue(*at)
            return more if until is None else lax.bitwise_and(lax.lt(at[0], until), more)

        def body(at: tuple[JaxArray, State]) -> tuple[JaxArray, State]:
            k, state = at
            i = lax.sub(lax.sub(walk.limit, int32_one()), k) if walk.reverse else k
            return lax.add(k, int32_one()), walk.take_step(k, i, self.view_at(i, chunk), state)

        return lax.while_loop(should_continue, body, at)

    def view_at(self, index: JaxArray, chunk: tuple[JaxArray, ReplayState] | None) -> HistoryView:
        if chunk is None:
            return HistoryView(self.lowering, index, int32_zero(), {}, {}, {})
        low, held = chunk
        stores = {run: store[2] for run, store in zip(self.chunked, held.stores, strict=True)}
        return HistoryView(
            self.lowering, index, low, stores, dict(zip(self.chunked, held.chunk_states, strict=True)), {}
        )


def source_loops(xs: Sequence[LoweredValue]) -> list[LoopRun]:
    """The loops that these histories come from, each after those that it reads itself."""
    found: dict[LoopRun, None] = {}

    def visit(x: LoweredValue) -> None:
        match x:
            case HistoryOutput(run, _) if isinstance(run, LoopRun):
                if run not in found:
                    for inner in run.source.xs:
                        visit(inner)
                    found[run] = None
            case HistorySum(a, b):
                visit(a)
                visit(b)
            case _:
                pass

    for x in xs:
        visit(x)
    return list(found)
