"""Treeverse: the reverse sweep through a loop in segments, each recomputing states from a stored one.

If the length is known the segments are planned (`binomial_schedule.plan_segments`), and nothing is decided at run time;
else each is decided when it begins. Readers of several loops, or of one that reads others, use `history_replay`.

Source: Griewank 1992; Griewank and Walther 2000, Algorithm 799: revolve.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray, LaxModule
from difflang.ops.loop import binomial_schedule
from difflang.ops.loop.binomial_schedule import TreeverseSegment
from difflang.ops.loop.checkpoint_store import (
    Arrays,
    LoopRun,
    boolean,
    count_until,
    int32,
    int32_one,
    int32_zero,
    positions,
    read_item,
    write_items,
)
from difflang.ops.loop.history_view import HistoryView, State, StepLoop

Progress = TypeVar("Progress")


def choose_segments(jax: Jax, runs: list[LoopRun], walk: StepLoop[State]) -> PlannedSegments | OnlineSegments | None:
    """The segments for a reverse sweep through a single loop that stores states one by one; None for other readers."""
    if len(runs) != 1 or walk.steps or runs[0].source.reverse == walk.reverse:
        return None
    (run,) = runs
    size = run.source.size
    one_by_one = size is not None and not size.planned and (not size.store_all_up_to or size.steps == 1)
    if one_by_one and walk.reverse:
        return OnlineSegments(jax, run, walk.limit)
    known = isinstance(walk.limit, (int, np.ndarray, np.integer))
    if size is None or not size.planned or not known or walk.limit != size.length:
        return None
    length, slots = size.length, size.slots
    rows = (
        binomial_schedule.plan_residual_segments(length, slots, size.residual_steps)
        if size.residual_steps
        else binomial_schedule.plan_segments(length, slots)
    )
    return None if rows is None else PlannedSegments(jax.lax, rows)


class PlannedSegments:
    """Segments known at compile time; carries the number of the next one. Slots are a stack."""

    def __init__(self, lax: LaxModule, segments: Array) -> None:
        self.lax, self.segments = lax, segments
        self.start: JaxArray = int32_zero()

    def should_continue(self, number: JaxArray) -> JaxArray:
        return self.lax.lt(number, int32(len(self.segments)))

    def next_segment(self, number: JaxArray) -> tuple[TreeverseSegment[JaxArray], JaxArray]:
        row = read_item(self.lax, self.segments, number)
        segment = TreeverseSegment(*[read_item(self.lax, row, int32(i)) for i in range(self.segments.shape[1])])
        return segment, self.lax.add(number, int32_one())

    def store_slot(self, number: JaxArray) -> JaxArray:
        """The slot of the store for a position in the stack."""
        return number


# The steps of the stored states, their number, and how far the sweep has come.
OnlineProgress = tuple[JaxArray, JaxArray, JaxArray]


class OnlineSegments:
    """Segments of a loop whose length was unknown: the shortest sweep from the states that were stored.

    Carries the steps of the stored states, their number, and how far the sweep has come. Slots are a stack in their
    order, with spare ones on top for the steps of an interval.
    """

    def __init__(self, jax: Jax, run: LoopRun, limit: JaxArray) -> None:
        size = run.source.size
        assert size is not None
        self.jnp, self.lax, self.size = jax.numpy, jax.lax, size
        kept, slots = run.order
        self.order = self.jnp.append(slots, np.arange(size.capacity, size.capacity + size.steps, dtype=np.int32))
        held = count_until(jax, kept, self.lax.sub(limit, int32_one()))
        self.start: OnlineProgress = self.jnp.append(kept, int32(binomial_schedule.INT32_MAX)), held, limit

    def should_continue(self, at: OnlineProgress) -> JaxArray:
        return self.lax.gt(at[2], int32_zero())

    def next_segment(self, at: OnlineProgress) -> tuple[TreeverseSegment[JaxArray], OnlineProgress]:
        """As `binomial_schedule.plan_segments`, in units of `size.steps` steps."""
        jnp, lax, size, (kept, held, end) = self.jnp, self.lax, self.size, at
        number, each = positions(size.slots + 1), int32(size.steps)
        top, free = held - int32_one(), int32(size.slots) - held
        first = read_item(lax, kept, top)
        far = end - first
        in_a_row = jnp.max(
            jnp.where((top >= number) & (kept != first - top + number), number + int32_one(), int32_zero())
        )
        slot = jnp.where(far == 1, in_a_row, top)
        begins = first - top + slot
        # All states before the end fit into free and spare slots, one by one.
        fits = far <= free + int32_one() + each
        units = lax.div(far + each - int32_one(), each)
        table = binomial_schedule.reach_table(size.slots)
        split = binomial_schedule.first_advance(
            jnp, units, read_item(lax, table, free + int32_one()), read_item(lax, table, free)
        )
        skipped = jnp.where(fits, int32_zero(), jnp.where(free == 0, units - int32_one(), split) * each)
        kept = jnp.where(~fits & (number == held), first + skipped, kept)
        segment = TreeverseSegment(
            slot,
            begins,
            skipped,
            jnp.where(fits, far - int32_one(), int32_zero()),
            jnp.where(fits, end - begins, int32_zero()),
        )
        return segment, (kept, jnp.where(fits, slot, held + int32_one()), jnp.where(fits, begins, end))

    def store_slot(self, number: JaxArray) -> JaxArray:
        return read_item(self.lax, self.order, number)


class SegmentSource(Protocol[Progress]):
    """The segments of a sweep, one after the other."""

    @property
    def start(self) -> Progress: ...
    def should_continue(self, at: Progress, /) -> JaxArray: ...
    def next_segment(self, at: Progress, /) -> tuple[TreeverseSegment[JaxArray], Progress]: ...
    def store_slot(self, number: JaxArray) -> JaxArray: ...


class Treeverse(Generic[State]):
    """A reverse sweep through one loop. `view` makes the `HistoryView` of a step."""

    def __init__(
        self,
        lax: LaxModule,
        run: LoopRun,
        walk: StepLoop[State],
        segments: SegmentSource[Any],
        view: Callable[[JaxArray], HistoryView],
    ) -> None:
        self.lax, self.run, self.walk, self.segments, self.view = lax, run, walk, segments, view

    def run_loop(self, state: State) -> tuple[JaxArray, State]:
        """The number of steps taken, and the state after them."""
        run, segments = self.run, self.segments

        def body(at: tuple[Any, JaxArray, Arrays, Arrays, State]) -> tuple[Any, JaxArray, Arrays, Arrays, State]:
            progress, count, slots, buffers, state = at
            segment, progress = segments.next_segment(progress)
            slots, buffers = self.advance(segment, slots, buffers)
            return progress, *self.reverse_steps(segment, count, slots, buffers, state)

        start = (segments.start, int32_zero(), tuple(run.slots), tuple(run.residual_buffers), state)
        _, count, _, _, state = self.lax.while_loop(lambda at: segments.should_continue(at[0]), body, start)
        return count, state

    def step_index(self, ordinal: JaxArray) -> JaxArray:
        """The index of the step that has `ordinal` steps before it."""
        # The mapping between the two is its own inverse.
        return self.run.step_number(self.lax, ordinal)

    def advance(self, segment: TreeverseSegment[JaxArray], slots: Arrays, buffers: Arrays) -> tuple[Arrays, Arrays]:
        """The forward steps of a segment: after the skipped ones the state is stored, of the others states or
        residuals.
        """
        lax, run, source = self.lax, self.run, self.run.source
        above = lax.add(segment.slot, int32_one())

        def skip(at: tuple[JaxArray, Arrays, Arrays]) -> tuple[JaxArray, Arrays, Arrays]:
            k, state, slots = at
            view = self.view(self.step_index(lax.add(segment.first, k)))
            state = tuple(view.rerun(run, source.advance, list(state)))
            each = boolean(False) if buffers else lax.eq(segment.skipped, int32_zero())
            place = lax.add(above, lax.select(each, k, int32_zero()))
            kept = lax.bitwise_or(each, lax.eq(lax.add(k, int32_one()), segment.skipped))
            return (
                lax.add(k, int32_one()),
                state,
                source.store_state(lax, kept, slots, state, self.segments.store_slot(place)),
            )

        def save(at: tuple[JaxArray, Arrays, Arrays]) -> tuple[JaxArray, Arrays, Arrays]:
            k, state, buffers = at
            view = self.view(self.step_index(lax.add(lax.add(segment.first, segment.skipped), k)))
            outs = view.rerun(run, source.advance_with_outputs, list(state))
            state, saved = tuple(outs[: len(state)]), outs[len(state) :]
            return lax.add(k, int32_one()), state, write_items(lax, buffers, saved, k)

        steps = segment.skipped if buffers else lax.add(segment.skipped, segment.stored)
        start = (int32_zero(), tuple([read_item(lax, s, self.segments.store_slot(segment.slot)) for s in slots]), slots)
        _, state, slots = lax.while_loop(lambda at: lax.lt(at[0], steps), skip, start)
        if buffers:
            buffers = lax.while_loop(lambda at: lax.lt(at[0], segment.stored), save, (int32_zero(), state, buffers))[2]
        return slots, buffers

    def reverse_steps(
        self, segment: TreeverseSegment[JaxArray], count: JaxArray, slots: Arrays, buffers: Arrays, state: State
    ) -> tuple[JaxArray, Arrays, Arrays, State]:
        """The steps that a segment reverses."""
        lax, run, walk = self.lax, self.run, self.walk
        first = lax.add(segment.first, segment.skipped)

        def step(at: tuple[JaxArray, JaxArray, State]) -> tuple[JaxArray, JaxArray, State]:
            k, count, state = at
            view = self.view(self.step_index(lax.add(first, k)))
            if buffers:
                view.replayed_outputs[run] = [read_item(lax, r, k) for r in buffers]
            else:
                view.carried_states[run] = [
                    read_item(lax, s, self.segments.store_slot(lax.add(segment.slot, k))) for s in slots
                ]
            return lax.sub(k, int32_one()), lax.add(count, int32_one()), walk.take_step(count, view.index, view, state)

        start = (lax.sub(segment.back, int32_one()), count, state)
        _, count, state = lax.while_loop(lambda at: lax.ge(at[0], int32_zero()), step, start)
        return count, slots, buffers, state
