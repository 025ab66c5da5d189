"""Reading the histories of loops that have run: their states are had again where the reader is, chunk by chunk.

A reader needs the states of a chunk of steps of each loop that it reads, computed from the last one kept before them.
Where such a loop read histories itself, the same holds all the way there. `Chunks` does all this in one loop, with a
frame for each of the loops: one that is not where it is due opens a frame and takes a chunk of steps towards it, for
which those that it reads are brought there first. So a step stands once in a program, however many loops read others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from difflang.ir.graph import Graph, Value
from difflang.ir.types import Type
from difflang.ops.saved import Empty, Given, Run, Saved, Sum, no_history, plus, zero_item
from difflang.ops.tape import Array, Arrays, Steps, get, one, put, zero

MOST_RUNS = 31  # reverse mode five deep


@dataclass(frozen=True, eq=False, slots=True)
class View:
    """The histories at one step."""

    lowering: Any
    index: Array
    low: Array  # the first index of the chunk
    chunks: dict[Steps, Arrays]  # the states in the chunk
    given: dict[Run, Sequence[Any]]

    def item(self, x: Any, type: Type) -> Any:
        jax = self.lowering.jax
        match x:
            case Given(run, index) if isinstance(run, Steps):
                if run not in self.given:
                    self.given[run] = self.run_again(run, run.source.gives)
                return self.given[run][index]
            case Sum(a, b):
                return plus(jax, self.item(a, type), self.item(b, type))
            case Empty():
                return zero_item(jax, type)
            case Saved():
                raise no_history()
            case _:
                return get(jax.lax, x, self.index)

    def state(self, run: Steps) -> Arrays:
        """Before this step: in the tape if all are there, else in the chunk."""
        lax = self.lowering.jax.lax
        kept = run.kept(lax, run.ordinal(lax, self.index))
        if run not in self.chunks:
            return kept
        whole, at = lax.eq(run.level, zero()), lax.sub(self.index, self.low)
        return [lax.select(whole, k, get(lax, c, at)) for k, c in zip(kept, self.chunks[run], strict=True)]

    def run_again(self, run: Steps, graph: Graph, state: Arrays | None = None) -> list[Any]:
        source = run.source
        items = [self.item(x, p.type) for x, p in zip(source.xs, last(graph.params, len(source.xs)), strict=True)]
        return self.lowering.graph(
            graph, self.index, *source.fixed, *(self.state(run) if state is None else state), *items
        )


class Held(NamedTuple):
    """How far the loops that are read have come, and their states in the chunk: part of the state of their reader."""

    at: tuple[Array, ...]  # how many steps each has taken
    states: tuple[tuple[Array, ...], ...]
    rooms: tuple[tuple[Array, ...], ...]


class Chunks:
    """Has the states of loops again that their tapes have not got, in one chunk of steps after another."""

    def __init__(self, lowering: Any, runs: Sequence[Steps]) -> None:
        self.lowering, self.lax, self.runs = lowering, lowering.jax.lax, runs
        self.steps = min([r.source.size.steps for r in runs if r.source.size])
        self.reads = [[r in sources(owner.source.xs) for r in runs] for owner in runs]
        self.whole = [self.lax.eq(r.level, zero()) for r in runs]

    def start(self) -> Held:
        """Nobody is anywhere yet."""

        def blank(run: Steps, *first: int) -> tuple[Array, ...]:
            return tuple([self.lax.full((*first, *s.shape[1:]), np.zeros((), s.dtype)) for s in run.slots])

        states, rooms = [blank(r) for r in self.runs], [blank(r, self.steps) for r in self.runs]
        return Held((np.asarray(-1, np.int32),) * len(self.runs), tuple(states), tuple(rooms))

    def filled(self, low: Array, high: Array, held: Held) -> Held:
        """With the states before the steps from `low` to `high` in the rooms."""
        lax, reader = self.lax, np.int32(len(self.runs))
        frames = lax.full((len(self.runs) + 1, 3), np.int32(0))
        frames = put(lax, frames, self.frame(low, high, np.int32(reader + 1)), reader)
        return lax.while_loop(lambda at: lax.le(at[0], reader), lambda at: self.turn(*at), (reader, frames, held))[2]

    def frame(self, low: Array, high: Array, waiting: Array) -> Array:
        """The steps for which a loop needs those that it reads, and whose frame is next when it has taken them."""
        lax = self.lax
        return lax.concatenate([lax.expand_dims(x, (0,)) for x in (low, high, waiting)], 0)

    def turn(self, owner: Array, frames: Array, held: Held) -> tuple[Array, Array, Held]:
        """The last loop that is not where it is due opens a frame; where all are, they take the steps."""
        lax, numbers = self.lax, range(len(self.runs))
        low, high, waiting = [get(lax, get(lax, frames, owner), np.int32(i)) for i in range(3)]
        needed = [self.needed(owner, i) for i in numbers]
        at, states, rooms = list(held.at), list(held.states), list(held.rooms)
        ready, following = np.asarray(True), owner
        for i in reversed(numbers):
            run = self.runs[i]
            due = lax.sub(run.count, high) if run.source.reverse else low
            mine = lax.bitwise_and(ready, lax.bitwise_and(needed[i], lax.ne(at[i], due)))
            at[i], states[i] = self.loaded(run, due, mine, (at[i], states[i]))
            opens = lax.bitwise_and(mine, lax.ne(at[i], due))
            frame = self.frame(*self.towards(run, at[i], due), owner)
            frames = put(lax, frames, lax.select(opens, frame, get(lax, frames, np.int32(i))), np.int32(i))
            following = lax.select(opens, np.int32(i), following)
            ready = lax.bitwise_and(ready, lax.bitwise_not(mine))
        for i in numbers:
            moves = lax.bitwise_and(ready, lax.bitwise_or(needed[i], lax.eq(owner, np.int32(i))))
            count = lax.select(moves, lax.sub(high, low), zero())
            states[i], rooms[i] = self.advanced(i, (low, high, count), states[i], rooms)
            at[i] = lax.add(at[i], count)
        return lax.select(ready, waiting, following), frames, Held(tuple(at), tuple(states), tuple(rooms))

    def needed(self, owner: Array, number: int) -> Array:
        """Whether a loop, or the reader, reads that one, and its tape has not got every state."""
        owners = np.asarray([*[row[number] for row in self.reads], True])
        return self.lax.bitwise_and(get(self.lax, owners, owner), self.lax.bitwise_not(self.whole[number]))

    def towards(self, run: Steps, at: Array, due: Array) -> tuple[Array, Array]:
        """The next chunk of its steps on the way there."""
        lax = self.lax
        count = lax.min(lax.sub(due, at), np.int32(self.steps))
        low = lax.sub(lax.sub(run.count, at), count) if run.source.reverse else at
        return low, lax.add(low, count)

    def loaded(self, run: Steps, due: Array, asked: Array, here: Any) -> Any:
        """From the last state kept up to a step, if it is asked for and what is there is not on the way."""
        lax = self.lax
        kept = lax.shift_left(lax.shift_right_logical(due, run.level), run.level)
        near = lax.bitwise_and(lax.le(kept, here[0]), lax.le(here[0], due))
        start = (lax.bitwise_and(asked, lax.bitwise_not(near)), *here)
        # At most once, and no branch: that would copy the tape.
        return lax.while_loop(lambda at: at[0], lambda _: (np.asarray(False), kept, tuple(run.kept(lax, due))), start)[
            1:
        ]

    def advanced(self, number: int, steps: tuple[Array, Array, Array], state: Any, rooms: Sequence[Any]) -> Any:
        """A loop's state after some steps, with those before each of them in its room."""
        lax, run, (low, high, count) = self.lax, self.runs[number], steps
        chunks = {r: room for r, room, reads in zip(self.runs, rooms, self.reads[number], strict=True) if reads}

        def body(at: Any) -> Any:
            k, state, room = at
            i = lax.sub(lax.sub(high, one()), k) if run.source.reverse else lax.add(low, k)
            room = tuple([put(lax, r, s, lax.sub(i, low)) for r, s in zip(room, state, strict=True)])
            view = View(self.lowering, i, low, chunks, {})
            return lax.add(k, one()), tuple(view.run_again(run, run.source.advance, list(state))), room

        return lax.while_loop(lambda at: lax.lt(at[0], count), body, (zero(), state, rooms[number]))[1:]


class Reader:
    """Goes through the steps of loops that have run, in chunks."""

    def __init__(self, lowering: Any, xs: Sequence[Any]) -> None:
        self.lowering, self.lax = lowering, lowering.jax.lax
        runs = sources(xs)
        if len(runs) > MOST_RUNS:
            raise no_history()
        self.chunked = [r for r in runs if r.source.size]

    def view(self, index: Array, low: Array | None = None, rooms: Sequence[Any] = ()) -> View:
        chunks = dict(zip(self.chunked, rooms, strict=True)) if rooms else {}
        return View(self.lowering, index, zero() if low is None else low, chunks, {})

    def through(self, count: Array, reverse: bool, state: Any, step: Callable[[Array, View, Any], Any]) -> Any:
        """`step(index, view, state)` for each of `count` steps, from the last to the first in reverse."""
        lax = self.lax

        def piece(k: Array, until: Array, low: Array | None, rooms: Sequence[Any], state: Any) -> Any:
            def body(at: Any) -> Any:
                i = lax.sub(lax.sub(count, one()), at[0]) if reverse else at[0]
                return lax.add(at[0], one()), step(i, self.view(i, low, rooms), at[1])

            return lax.while_loop(lambda at: lax.lt(at[0], until), body, (k, state))[1]

        if not self.chunked:
            return piece(zero(), count, None, (), state)
        chunks = Chunks(self.lowering, self.chunked)

        def chunk(at: Any) -> Any:
            k, held, state = at
            until = lax.min(lax.add(k, np.int32(chunks.steps)), count)
            low, high = (lax.sub(count, until), lax.sub(count, k)) if reverse else (k, until)
            held = chunks.filled(low, high, held)
            return until, held, piece(k, until, low, held.rooms, state)

        return lax.while_loop(lambda at: lax.lt(at[0], count), chunk, (zero(), chunks.start(), state))[2]


def sources(xs: Sequence[Any]) -> list[Steps]:
    """The loops that these histories come from, each after those that it reads itself."""
    found: dict[Steps, None] = {}

    def visit(x: Any) -> None:
        match x:
            case Given(run, _) if isinstance(run, Steps):
                if run not in found:
                    for inner in run.source.xs:
                        visit(inner)
                    found[run] = None
            case Sum(a, b):
                visit(a)
                visit(b)
            case _:
                pass

    for x in xs:
        visit(x)
    return list(found)


def last(params: Sequence[Value], count: int) -> Sequence[Value]:
    return params[len(params) - count :]
