"""Going back through a loop of known length, leg by leg, by a plan: on the way there is nothing to decide.

Each leg begins at a state that was kept, takes steps from it and goes back through some: see `schedule.legs`. For a
reader of several loops, or of one that reads others, see `reader`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difflang.ops import schedule
from difflang.ops.schedule import Leg
from difflang.ops.tape import Array, Steps, get, one, put_each, zero


def planned(runs: list[Steps], walk: Any) -> Array | None:
    """The legs where a walk goes back through one loop alone, whose length is known; None where it does not."""
    if len(runs) != 1 or walk.steps or runs[0].source.reverse == walk.reverse:
        return None
    size = runs[0].source.size
    known = isinstance(walk.limit, (int, np.ndarray, np.integer))
    if size is None or not size.planned or not known or walk.limit != size.length:
        return None
    if size.taped:
        return schedule.taped_legs(size.length, size.slots, size.taped)
    return schedule.legs(size.length, size.slots)


class WayBack:
    """A walk back through one loop. `view` makes what a step sees, of its index."""

    def __init__(self, lax: Any, run: Steps, walk: Any, view: Any) -> None:
        self.lax, self.run, self.walk, self.view = lax, run, walk, view

    def through(self, legs: Array, state: Any) -> tuple[Array, Any]:
        """How many steps are taken, and the state after them."""
        lax, run = self.lax, self.run

        def body(at: Any) -> Any:
            number, count, slots, rooms, state = at
            row = get(lax, legs, number)
            leg = Leg(*[get(lax, row, np.int32(i)) for i in range(legs.shape[1])])
            slots, rooms = self.forth(leg, slots, rooms)
            return lax.add(number, one()), *self.back(leg, count, slots, rooms, state)

        start = (zero(), zero(), tuple(run.slots), tuple(run.rooms), state)
        _, count, _, _, state = lax.while_loop(lambda at: lax.lt(at[0], np.int32(len(legs))), body, start)
        return count, state

    def index(self, ordinal: Array) -> Array:
        """Of a step, by how many come before it."""
        return self.run.ordinal(self.lax, ordinal)  # the way from the one to the other is that back

    def forth(self, leg: Leg, slots: Any, rooms: Any) -> tuple[Any, Any]:
        """The steps that a leg takes: of those skipped the last state is kept, of the others what each is read for."""
        lax, run, source = self.lax, self.run, self.run.source
        above = lax.add(leg.slot, one())

        def skip(at: Any) -> Any:
            k, state, slots = at
            view = self.view(self.index(lax.add(leg.first, k)))
            state = tuple(view.run_again(run, source.advance, list(state)))
            place = above if rooms else lax.add(above, lax.select(lax.eq(leg.skipped, zero()), k, zero()))
            return lax.add(k, one()), state, put_each(lax, slots, state, place)

        def tape(at: Any) -> Any:
            k, state, rooms = at
            view = self.view(self.index(lax.add(lax.add(leg.first, leg.skipped), k)))
            outs = view.run_again(run, source.both, list(state))
            state, saved = tuple(outs[: len(state)]), outs[len(state) :]
            return lax.add(k, one()), state, put_each(lax, rooms, saved, k)

        steps = leg.skipped if rooms else lax.add(leg.skipped, leg.taken)
        start = (zero(), tuple([get(lax, s, leg.slot) for s in slots]), slots)
        _, state, slots = lax.while_loop(lambda at: lax.lt(at[0], steps), skip, start)
        if rooms:
            rooms = lax.while_loop(lambda at: lax.lt(at[0], leg.taken), tape, (zero(), state, rooms))[2]
        return slots, rooms

    def back(self, leg: Leg, count: Array, slots: Any, rooms: Any, state: Any) -> tuple[Array, Any, Any, Any]:
        """The steps that a leg goes back through."""
        lax, run, walk = self.lax, self.run, self.walk
        first = lax.add(leg.first, leg.skipped)

        def step(at: Any) -> Any:
            k, count, state = at
            view = self.view(self.index(lax.add(first, k)))
            if rooms:
                view.given[run] = [get(lax, r, k) for r in rooms]
            else:
                view.beside[run] = [get(lax, s, lax.add(leg.slot, k)) for s in slots]
            return lax.sub(k, one()), lax.add(count, one()), walk.taken(count, view.index, view, state)

        start = (lax.sub(leg.back, one()), count, state)
        _, count, state = lax.while_loop(lambda at: lax.ge(at[0], zero()), step, start)
        return count, slots, rooms, state
