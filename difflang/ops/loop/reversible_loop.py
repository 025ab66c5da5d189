"""Loops whose steps can be undone keep no states: who reads their histories goes back, or forth, beside them.

`invert_step` turns a step into one from the state after it to the state before, where `invertible` equations lead there.
A reader that goes the other way begins at the last state and undoes a step for each that it takes; one that goes the
same way begins at the first and takes the steps once more. Either carries one state, however many steps there are.

An inverse may be wrong, or a loop forget what the inverse would need, as one that comes to rest does. So where a reader
has gone all the way back it must have come to the state from which the loop began, which was kept. If it has not, all
that it computed is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from msgspec.structs import replace

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ops.control.call import call
from difflang.ops.loop.checkpoint_store import Array, Arrays, LoopRun, int32_one, int32_zero
from difflang.ops.loop.history_reader import HistoryView, StepLoop, source_loops
from difflang.ops.loop.history_value import HistoryOutput, HistorySum
from difflang.ops.loop.invertible_step import invertible

# ------------------------------------------------------------------------------------------------ the step


def has_invertible_eqn(step: Graph) -> bool:
    """Whether something in a step, or in what it calls, can be undone. Cost: one walk."""
    seen, todo = {step}, [step]
    while todo:
        for eqn in todo.pop().eqns:
            if eqn.op is invertible:
                return True
            if is_call(eqn) and eqn.regions[0] not in seen:
                seen.add(eqn.regions[0])
                todo.append(eqn.regions[0])
    return False


def is_call(eqn: Eqn) -> bool:
    return eqn.op is call


def invert_step(step: Graph, first: int, carry: int, places: Sequence[int]) -> tuple[Graph, list[int]] | None:
    """(index, consts, state after a step, items) -> the carries at `places` before it; None if they are not to be had.

    The carries begin at param `first`. What is known at the end of a step are the carries after it and what does not
    change; from there equations lead forwards, and `invertible` ones backwards. Also given are the carries that the way
    begins at: they are the state that must be known.
    Cost: a walk for each time that the way turns.
    """
    step, builder = inline_invertible_calls(step), Builder()
    params = [builder.param(p.type, p.hint) for p in step.params]
    carries = range(first, first + carry)
    env: dict[Value, Value] = {}
    for i, (inside, param) in enumerate(zip(step.params, params, strict=True)):
        env.setdefault(step.results[i - first] if i in carries else inside, param)
    waiting = list(step.eqns)
    while left := [eqn for eqn in waiting if not propagate_eqn(builder, eqn, env)]:
        if len(left) == len(waiting):
            break
        waiting = left[::-1]
    before = [env[v] for i in places if (v := step.params[first + i]) in env]
    if len(before) < len(places):
        return None
    needed, kept = set(before), list[Eqn]()
    for eqn in reversed(builder.eqns):
        if not needed.isdisjoint(eqn.results):
            needed.update(eqn.operands)
            kept.append(eqn)
    begins = [i for i in range(carry) if params[first + i] in needed]
    taken = tuple([p for i, p in enumerate(params) if i not in carries or i - first in places])
    return Graph(taken, tuple(reversed(kept)), tuple(before), step.name), begins


def inline_invertible_calls(step: Graph) -> Graph:
    """A step with the body of each function that it calls in its place, if something in that can be undone."""
    done: dict[Graph, Graph] = {}
    for graph in graphs_postorder(step)[0]:
        if not any(e.op is invertible or (is_call(e) and e.regions[0] in done) for e in graph.eqns):
            continue
        builder = Builder()
        env = {p: builder.param(p.type, p.hint) for p in graph.params}
        for eqn in graph.eqns:
            operands = [env[v] for v in eqn.operands]
            body = done.get(eqn.regions[0]) if is_call(eqn) else None
            results = builder.copy(eqn, tuple(operands)) if body is None else builder.inline(body, *operands)
            env.update(zip(eqn.results, results, strict=True))
        done[graph] = builder.finish([env[r] for r in graph.results], name=graph.name)
    return done.get(step, step)


def propagate_eqn(builder: Builder, eqn: Eqn, env: dict[Value, Value]) -> bool:
    """Whether an equation's results are known, or, by its inverse, what it was given: noted in `env` then."""
    if all(v in env for v in eqn.operands):
        found = builder.copy(eqn, tuple([env[v] for v in eqn.operands]))
        for result, value in zip(eqn.results, found, strict=True):
            env.setdefault(result, value)
        return True
    if eqn.op is not invertible:
        return False
    state = eqn.attrs["state"]
    given = [env.get(v) for v in (*eqn.results[:state], *eqn.operands[state:])]
    known = [v for v in given if v is not None]
    if len(known) < len(given):
        return False
    for operand, value in zip(eqn.operands, builder.inline(eqn.regions[1], *known), strict=False):
        env.setdefault(operand, value)
    return True


# ------------------------------------------------------------------------------------------------ the run


class ReversibleRun(LoopRun, frozen=True, eq=False):
    """A loop that has run, reading no histories, and can be run backwards."""

    inverse_step: Graph  # (index, consts, state after, items) -> state before
    ends: tuple[Arrays, Arrays]  # the states before the first step and after the last
    rerun_with_store: Callable[[], LoopRun]  # the same loop run once more, keeping its states on a tape


def with_checkpoint_stores(xs: Sequence[Any]) -> list[Any]:
    """The histories, where a loop that others read on their own way, with a tape, keeps a tape after all.

    Cost: it runs once more.
    """
    runs = source_loops(xs)
    asked = {r for owner in runs if owner.source.size for r in source_loops(owner.source.xs)}
    if not any(isinstance(run, ReversibleRun) for run in asked):
        return list(xs)
    now: dict[LoopRun, LoopRun] = {}
    for run in runs:
        found = run.rerun_with_store() if isinstance(run, ReversibleRun) and run in asked else run
        now[run] = replace(found, source=replace(found.source, xs=[replace_runs(x, now) for x in found.source.xs]))
    return [replace_runs(x, now) for x in xs]


def replace_runs(x: Any, to: dict[LoopRun, LoopRun]) -> Any:
    """A history of other runs."""
    match x:
        case HistoryOutput(run, index) if isinstance(run, LoopRun):
            return HistoryOutput(to[run], index)
        case HistorySum(a, b):
            return HistorySum(replace_runs(a, to), replace_runs(b, to))
        case _:
            return x


# ------------------------------------------------------------------------------------------------ the reader


class ReversibleStepLoop:
    """A walk that takes along the loops that can be undone: it carries a state of each, and how large that has been."""

    def __init__(self, lowering: Any, walk: StepLoop, xs: Sequence[Any]) -> None:
        self.jax, self.lowering, self.walk = lowering.jax, lowering, walk
        self.limit, self.reverse, self.steps = walk.limit, walk.reverse, walk.steps
        self.runs = [run for run in source_loops(xs) if isinstance(run, ReversibleRun)]

    def is_opposite(self, run: ReversibleRun) -> bool:
        """Whether the walk goes the other way than the loop went."""
        return run.source.reverse != self.reverse

    def start(self, state: Any) -> Any:
        beside = [self.first(run) for run in self.runs]
        return state, tuple([(b, tuple([max_finite(self.jax.numpy, x) for x in b])) for b in beside])

    def first(self, run: ReversibleRun) -> tuple[Array, ...]:
        """The state of a loop at which the walk begins. The walk may take a step less than it, by rounding."""
        lax, turns = self.jax.lax, self.is_opposite(run)
        if not self.reverse:
            return tuple(run.ends[turns])
        missing = lax.sub(run.count, self.limit)

        def body(at: Any) -> Any:
            k, state = at
            index = lax.sub(lax.sub(run.count, int32_one()), k)
            view = HistoryView(self.lowering, index, index, {}, {}, {})
            return lax.add(k, int32_one()), self.step_state(view, run, state, undo=turns)

        return lax.while_loop(lambda at: lax.lt(at[0], missing), body, (int32_zero(), tuple(run.ends[turns])))[1]

    def step_state(
        self, view: HistoryView, run: ReversibleRun, state: Sequence[Array], *, undo: bool
    ) -> tuple[Array, ...]:
        return tuple(view.rerun(run, run.inverse_step if undo else run.source.advance, list(state)))

    def should_continue(self, count: Array, state: Any) -> Array:
        return self.walk.should_continue(count, state[0])

    def begin_chunk(self, count: Array, state: Any, apart: Array, boundary: Array) -> tuple[Any, Array]:
        inner, latest = self.walk.begin_chunk(count, state[0], apart, boundary)
        return (inner, state[1]), latest

    def take_step(self, count: Array, index: Array, view: HistoryView, state: Any) -> Any:
        """One step, each loop at the state before its own."""
        inner, beside = state
        for run, (other, _) in zip(self.runs, beside, strict=True):
            view.carried_states[run] = self.step_state(view, run, other, undo=True) if self.is_opposite(run) else other
        inner = self.walk.take_step(count, index, view, inner)
        after: list[Any] = []
        for run, (_, sizes) in zip(self.runs, beside, strict=True):
            now = view.carried_states[run]
            if self.is_opposite(run):
                jnp = self.jax.numpy
                sizes = tuple([jnp.maximum(n, max_finite(jnp, x)) for n, x in zip(sizes, now, strict=True)])
            else:
                now = self.step_state(view, run, now, undo=False)
            after.append((tuple(now), sizes))
        return inner, tuple(after)

    def end(self, count: Array, state: Any) -> Any:
        """What the walk carries at its end: NaN if a loop was not undone to where it began."""
        jax, (inner, beside) = self.jax, state
        good = [
            jax.lax.bitwise_or(jax.lax.ne(count, run.count), returned_to_start(jax.numpy, run.ends[0], found, sizes))
            for run, (found, sizes) in zip(self.runs, beside, strict=True)
            if self.is_opposite(run)
        ]
        if not good:
            return inner
        well = reduce(jax.lax.bitwise_and, good)
        return jax.tree.map(lambda x: jax.numpy.where(well, x, np.nan) if is_inexact(jax.numpy, x) else x, inner)


def is_inexact(jnp: Any, x: Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def max_finite(jnp: Any, x: Array) -> Array:
    """The size of the largest finite number, 0 of none; of what is no rounded number too."""
    return jnp.max(jnp.where(jnp.isfinite(x), jnp.abs(x), 0), initial=0) if is_inexact(jnp, x) else int32_zero()


def returned_to_start(jnp: Any, first: Sequence[Array], found: Sequence[Array], sizes: Sequence[Array]) -> Array:
    """Whether states are alike: rounded numbers up to the root of the precision of the largest on the way."""
    alike = np.asarray(True)
    for x, y, size in zip(first, found, sizes, strict=True):
        near = x == y
        if is_inexact(jnp, x):
            near = jnp.logical_or(near, jnp.abs(x - y) <= float(jnp.finfo(x.dtype).eps) ** 0.5 * size)
        alike = jnp.logical_and(alike, jnp.all(near))
    return alike
