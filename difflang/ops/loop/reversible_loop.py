"""Reversible loops: a loop whose steps have inverses stores no states, and readers of its histories run it backwards.

`invert_step` turns a step into one from the state after it to the state before, where `invertible` equations allow it.
A reader in the opposite direction starts from the last state and takes an inverse step for each of its own; one in the
same direction starts from the first state and repeats the steps. Either carries one state, however many steps there
are.

An inverse may be wrong, or a loop may lose what the inverse needs, as one that converges does. So a reader that has
gone all the way back must have reached the initial state, which was stored. If it has not, its results are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Any, Generic

import numpy as np
from ml_dtypes import finfo
from msgspec.structs import replace

from difflang.ir.array_types import Array, JaxArray, JaxNumpyModule
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ops.control.call import call
from difflang.ops.loop.checkpoint_store import Arrays, LoopRun, boolean, find_state_carries, int32_one, int32_zero
from difflang.ops.loop.history_replay import source_loops
from difflang.ops.loop.history_value import HistoryOutput, HistorySum
from difflang.ops.loop.history_view import HistoryView, State, StepLoop
from difflang.ops.loop.invertible_op import invertible
from difflang.ops.region_interface import Evaluate, LoweredValue, ReferenceValue, RegionLowering

# ---- The inverse step


def has_invertible_eqn(step: Graph) -> bool:
    """Whether a step, or a function that it calls, contains an `invertible` equation. Cost: one walk."""
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
    """(index, consts, state after a step, items) -> the carries at `places` before it; None if these cannot be
    recovered.

    The carries begin at param `first`. At the end of a step the carries after it and all loop-invariant values are
    known; from there equations propagate forwards, and `invertible` ones backwards. Also gives the carries this starts
    from: they are the state that must be known.
    Cost: a walk for each change of direction.
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


@lru_cache(maxsize=256)
def find_inverse_step(step: Graph, consts: int, carry: int) -> tuple[Graph, tuple[int, ...]] | None:
    """The inverse of a step, and which carries it takes and gives; None if a step cannot be inverted.

    The carries are those that the step's other results depend on, and those that the inverse needs as well.
    """
    gives = step.with_results(step.results[carry:])
    places = find_state_carries(step, gives, range(1 + consts, 1 + consts + carry))
    while found := invert_step(step, 1 + consts, carry, places):
        back, begins = found
        if set(begins).issubset(places):
            return back, places
        places = find_state_carries(step, gives, range(1 + consts, 1 + consts + carry), sorted({*begins, *places}))
    return None


def inline_invertible_calls(step: Graph) -> Graph:
    """A step with those function calls inlined that contain `invertible` equations."""
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
    """Whether an equation's results become known, or by its inverse its operands; they are entered in `env`."""
    if all(v in env for v in eqn.operands):
        found = builder.copy(eqn, tuple([env[v] for v in eqn.operands]))
        for result, value in zip(eqn.results, found, strict=True):
            env.setdefault(result, value)
        return True
    if eqn.op is not invertible:
        return False
    state = eqn.attrs["state"]
    inputs = [env.get(v) for v in (*eqn.results[:state], *eqn.operands[state:])]
    known = [v for v in inputs if v is not None]
    if len(known) < len(inputs):
        return False
    for operand, value in zip(eqn.operands, builder.inline(eqn.regions[1], *known), strict=False):
        env.setdefault(operand, value)
    return True


# ---- The run


class ReversibleRun(LoopRun, frozen=True, eq=False):
    """A loop that has run without reading histories, and can run backwards."""

    inverse_step: Graph  # (index, consts, state after, items) -> state before
    ends: tuple[Sequence[JaxArray], Sequence[JaxArray]]  # the states before the first step and after the last
    rerun_with_store: Callable[[], LoopRun]  # runs the same loop again, with a checkpoint store


def with_checkpoint_stores(xs: Sequence[LoweredValue]) -> list[LoweredValue]:
    """The histories, where a reversible loop that a replayed loop reads gets a checkpoint store after all.

    Cost: it runs once more.
    """
    runs = source_loops(xs)
    sources = {r for owner in runs if owner.source.size for r in source_loops(owner.source.xs)}
    if not any(isinstance(run, ReversibleRun) for run in sources):
        return list(xs)
    now: dict[LoopRun, LoopRun] = {}
    for run in runs:
        found = run.rerun_with_store() if isinstance(run, ReversibleRun) and run in sources else run
        now[run] = replace(found, source=replace(found.source, xs=[replace_runs(x, now) for x in found.source.xs]))
    return [replace_runs(x, now) for x in xs]


def replace_runs(x: LoweredValue, to: dict[LoopRun, LoopRun]) -> LoweredValue:
    """A history with its runs replaced."""
    match x:
        case HistoryOutput(run, index) if isinstance(run, LoopRun):
            return HistoryOutput(to[run], index)
        case HistorySum(a, b):
            return HistorySum(replace_runs(a, to), replace_runs(b, to))
        case _:
            return x


# ---- The reader


# For each reversible loop its state, and the largest magnitude of each part so far.
ReversedStates = tuple[tuple[Arrays, Arrays], ...]


class ReversibleStepLoop(Generic[State]):
    """A step loop that also steps the reversible loops it reads, carrying a state and its largest magnitude of each."""

    def __init__(self, lowering: RegionLowering, walk: StepLoop[State], xs: Sequence[LoweredValue]) -> None:
        self.jax, self.lowering, self.walk = lowering.jax, lowering, walk
        self.limit, self.reverse, self.steps = walk.limit, walk.reverse, walk.steps
        self.runs = [run for run in source_loops(xs) if isinstance(run, ReversibleRun)]

    def is_opposite(self, run: ReversibleRun) -> bool:
        """Whether the reader runs in the opposite direction to the loop."""
        return run.source.reverse != self.reverse

    def start(self, state: State) -> tuple[State, ReversedStates]:
        beside = [self.first(run) for run in self.runs]
        return state, tuple([(b, tuple([max_finite(self.jax.numpy, x) for x in b])) for b in beside])

    def first(self, run: ReversibleRun) -> Arrays:
        """The state of a loop at the reader's first step. By rounding, the reader may take one step less than it."""
        lax, turns = self.jax.lax, self.is_opposite(run)
        if not self.reverse:
            return tuple(run.ends[turns])
        missing = lax.sub(run.count, self.limit)

        def body(at: tuple[JaxArray, Arrays]) -> tuple[JaxArray, Arrays]:
            k, state = at
            index = lax.sub(lax.sub(run.count, int32_one()), k)
            view = HistoryView(self.lowering, index, index, {}, {}, {})
            return lax.add(k, int32_one()), self.step_state(view, run, state, undo=turns)

        return lax.while_loop(lambda at: lax.lt(at[0], missing), body, (int32_zero(), tuple(run.ends[turns])))[1]

    def step_state(self, view: HistoryView, run: ReversibleRun, state: Sequence[JaxArray], *, undo: bool) -> Arrays:
        return tuple(view.rerun(run, run.inverse_step if undo else run.source.advance, list(state)))

    def should_continue(self, count: JaxArray, state: tuple[State, ReversedStates]) -> JaxArray:
        return self.walk.should_continue(count, state[0])

    def begin_chunk(
        self, count: JaxArray, state: tuple[State, ReversedStates], apart: JaxArray, boundary: JaxArray
    ) -> tuple[tuple[State, ReversedStates], JaxArray]:
        inner, latest = self.walk.begin_chunk(count, state[0], apart, boundary)
        return (inner, state[1]), latest

    def take_step(
        self, count: JaxArray, index: JaxArray, view: HistoryView, state: tuple[State, ReversedStates]
    ) -> tuple[State, ReversedStates]:
        """One step, with each loop at the state before the same step."""
        inner, beside = state
        for run, (other, _) in zip(self.runs, beside, strict=True):
            view.carried_states[run] = self.step_state(view, run, other, undo=True) if self.is_opposite(run) else other
        inner = self.walk.take_step(count, index, view, inner)
        after: list[tuple[Arrays, Arrays]] = []
        for run, (_, sizes) in zip(self.runs, beside, strict=True):
            now = view.carried_states[run]
            if self.is_opposite(run):
                jnp = self.jax.numpy
                sizes = tuple([jnp.maximum(n, max_finite(jnp, x)) for n, x in zip(sizes, now, strict=True)])
            else:
                now = self.step_state(view, run, now, undo=False)
            after.append((tuple(now), sizes))
        return inner, tuple(after)

    def end(self, count: JaxArray, state: tuple[State, ReversedStates]) -> State:
        """The final state: NaN if a loop did not return to its initial state."""
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


def is_inexact(jnp: JaxNumpyModule, x: JaxArray) -> bool:
    return bool(jnp.issubdtype(x.dtype, np.inexact))


def max_finite(jnp: JaxNumpyModule, x: JaxArray) -> JaxArray:
    """The magnitude of the largest finite element, 0 if there is none; 0 for exact types."""
    return jnp.max(jnp.where(jnp.isfinite(x), jnp.abs(x), 0), initial=0) if is_inexact(jnp, x) else int32_zero()


def returned_to_start(
    jnp: JaxNumpyModule, first: Sequence[JaxArray], found: Sequence[JaxArray], sizes: Sequence[JaxArray]
) -> JaxArray:
    """Whether two states agree, floats up to the root of the precision times the largest magnitude on the way."""
    alike = boolean(True)
    for x, y, size in zip(first, found, sizes, strict=True):
        near = x == y
        if is_inexact(jnp, x):
            near = jnp.logical_or(near, jnp.abs(x - y) <= float(jnp.finfo(x.dtype).eps) ** 0.5 * size)
        alike = jnp.logical_and(alike, jnp.all(near))
    return alike


# ---- The interpreter

# Those of a step before its state, and after it.
OtherOperands = tuple[Sequence[ReferenceValue], Sequence[ReferenceValue]]


class UnrestoredHistory(list[ReferenceValue]):
    """An interpreted history whose loop, run backwards, does not reach its initial state.

    The interpreter stores every item, so it could read them all. It gives what a compiled program gives: NaN.
    """

    def __init__(self, items: list[ReferenceValue], *, reverse: bool) -> None:
        super().__init__(items)
        self.from_last = reverse  # whether the loop ran from its last step to its first

    def spoils(self, reverse: bool, count: int) -> bool:
        """Whether a loop that takes so many steps, in this direction, runs the whole loop backwards."""
        return reverse != self.from_last and count == len(self)


def restores_start(
    evaluate: Evaluate,
    inverse: tuple[Graph, tuple[int, ...]],
    ends: tuple[list[Any], list[Any]],
    steps: Sequence[OtherOperands],
) -> bool:
    """Whether inverse steps lead from the last state of an interpreted loop to its first.

    `steps` are the other operands of each step, in the order of the run: before the state and after it.
    """
    back, places = inverse
    first, now = [[end[i] for i in places] for end in ends]
    sizes = [max_magnitude(x) for x in now]
    for before, after in reversed(steps):
        now = evaluate(back, *before, *now, *after)
        sizes = [max(size, max_magnitude(x)) for size, x in zip(sizes, now, strict=True)]
    return all(map(same_up_to_rounding, first, now, sizes))


def max_magnitude(x: Array) -> float:
    """The magnitude of the largest finite element, 0 if there is none."""
    numbers = np.abs(np.asarray(x, np.complex128 if x.dtype.kind == "c" else np.float64))
    return float(np.max(numbers, initial=0, where=np.isfinite(numbers)))


def same_up_to_rounding(x: Array, y: Array, size: float) -> bool:
    """Whether two arrays agree, floats up to the root of the precision times a size."""
    near = x == y
    if x.dtype.kind in "fcV":
        near |= np.abs(x - y) <= float(finfo(x.real.dtype).eps) ** 0.5 * size
    return bool(np.all(near))


def nan_if_inexact(x: ReferenceValue) -> ReferenceValue:
    """NaN in place of all floats of an array or a history."""
    if isinstance(x, list):
        return [nan_if_inexact(item) for item in x]
    return np.full_like(x, np.nan) if x.dtype.kind in "fcV" else x
