"""Execution of the `loop` op: the step-by-step NumPy reference, and lowering to `lax.while_loop`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from difflang.base.diagnostics import InternalError
from difflang.ir.array_types import Array, JaxArray
from difflang.ir.graph import Attr, Graph
from difflang.ir.interpreter import sequence_item, stacked_zeros, zero_array
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import FLOATS, History, Tensor, Type, stacked_type
from difflang.ops.control.print_effect import without_prints
from difflang.ops.loop.binomial_schedule import INT32_MAX
from difflang.ops.loop.checkpoint_store import (
    Arrays,
    CheckpointStore,
    LoopRun,
    ReplaySource,
    StoreRequest,
    StoreSize,
    StoreState,
    int32,
    int32_zero,
    write_item,
    write_items,
)
from difflang.ops.loop.history_replay import HistoryReader, source_loops
from difflang.ops.loop.history_value import (
    HistoryOutput,
    merge_histories,
    split_histories,
    unreachable_history_error,
)
from difflang.ops.loop.history_view import HistoryView, last_params
from difflang.ops.loop.host_offload import results_on_host
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.reversible_loop import (
    OtherOperands,
    ReversibleRun,
    ReversibleStepLoop,
    UnrestoredHistory,
    find_inverse_step,
    nan_if_inexact,
    restores_start,
    with_checkpoint_stores,
)
from difflang.ops.region_interface import Evaluate, HistoryValue, LoweredValue, ReferenceValue, RegionLowering

# The carries, the outputs, the checkpoint store, and the buffered residuals.
LoopState = tuple[Arrays, Arrays, StoreState | None, Arrays]
# Consts, carries, and what is read step by step.
Operands = tuple[Sequence[LoweredValue], Sequence[JaxArray], Sequence[LoweredValue]]

MakeZeros = Callable[[Tensor, Dim], Array]


def loop_reference(
    evaluate: Evaluate, limit: Array, *arrays: ReferenceValue, regions: tuple[Graph, ...], **attrs: Attr
) -> list[ReferenceValue]:
    form, (step, *go) = LoopAttrs(**attrs), regions
    _, fixed, state, xs = form.parts([limit, *arrays])
    items = [p.type for p in form.parts(step.params).xs]
    carry, length, reverse = form.carry, form.length, form.reverse
    ys: list[list[ReferenceValue]] = [[] for _ in step.results[carry:]]
    steps = int(limit)
    if isinstance(length, int) and (steps > length or (form.exact and steps != length)):
        raise InternalError(f"loop: {steps} steps, but its length is {length}")
    start, others = list(state), list[OtherOperands]()
    # A negative limit: only the condition ends the loop.
    count, endless = 0, bool(go) and steps < 0
    while endless or count < steps:
        index = np.asarray(steps - 1 - count if reverse else count, np.int32)
        if go and not evaluate(go[0], index, *fixed, *state)[0]:
            break
        reads = [sequence_item(x, int(index), t) for x, t in zip(xs, items, strict=True)]
        outs = evaluate(step, index, *fixed, *state, *reads)
        state = outs[:carry]
        if form.reversible:
            others.append(([index, *fixed], reads))
        for y, item in zip(ys, outs[carry:], strict=True):
            y.append(item)
        count += 1
    whole = [collect_output(y, step, form, i) for i, y in enumerate(ys)]
    return [int32(count), *reversible_results(evaluate, step, form, xs, (start, state), others, whole, count)]


def collect_output(
    items: list[ReferenceValue], step: Graph, form: LoopAttrs, output: int, zeros: MakeZeros = stacked_zeros
) -> ReferenceValue:
    """What a loop gives for the items that its steps gave for one output, in the order of the run."""
    ordered = items[::-1] if form.reverse else items
    is_history = output >= len(step.results) - form.carry - form.history_outputs
    return ordered if is_history else stack_outputs(ordered, step.results[form.carry + output].type, form.length, zeros)


def reversible_results(
    evaluate: Evaluate, step: Graph, form: LoopAttrs, xs: Sequence[ReferenceValue], ends: tuple[list[Any], list[Any]],
    others: list[OtherOperands], outputs: list[ReferenceValue], count: int,
) -> list[ReferenceValue]:  # fmt: skip
    """The last state and the outputs of a loop; NaN where a reversible loop that it reads was not restored."""
    results = [*ends[1], *outputs]
    if any(isinstance(x, UnrestoredHistory) and x.spoils(form.reverse, count) for x in xs):
        return [nan_if_inexact(x) for x in results]
    if form.reversible and not any(isinstance(x, list) for x in xs):
        return with_inverse_checked(evaluate, step, form, ends, others, results)
    return results


def with_inverse_checked(
    evaluate: Evaluate, step: Graph, form: LoopAttrs, ends: tuple[list[Any], list[Any]],
    others: list[OtherOperands], results: list[ReferenceValue],
) -> list[ReferenceValue]:  # fmt: skip
    """The results of a reversible loop; histories are marked if the inverse steps do not lead back to its start."""
    carry = form.carry
    saved = [i for i in range(carry, len(results)) if isinstance(results[i], list)]
    alone = without_prints(step.with_results([*step.results[:carry], *[step.results[i] for i in saved]]))
    inverse = find_inverse_step(alone, form.consts, carry) if saved else None
    if inverse is None or restores_start(evaluate, inverse, ends, others):
        return results
    histories = [UnrestoredHistory(x, reverse=form.reverse) if isinstance(x, list) else x for x in results[carry:]]
    return [*results[:carry], *histories]


def stack_outputs(
    items: list[ReferenceValue], item: Type, length: Dim | None, zeros: MakeZeros = stacked_zeros
) -> ReferenceValue:
    """The outputs of the steps: a history, or an array that is zero beyond the last step."""
    if length is None or isinstance(item, History):
        return items
    whole = zeros(item, length)
    for i, x in enumerate(items):
        whole[i] = x
    return whole


def loop_lower(
    lowering: RegionLowering, limit: JaxArray, *arrays: LoweredValue, regions: tuple[Graph, ...], **attrs: Attr
) -> list[LoweredValue]:
    form = LoopAttrs(**attrs)
    _, fixed, state, xs = form.parts([limit, *arrays])
    carry = [x for x in state if not isinstance(x, HistoryValue)]
    if len(carry) < len(state):
        raise unreachable_history_error()
    length, keep = form.length, form.keep
    known = length if form.exact and isinstance(length, int) else None
    if known is not None:
        limit = int32(known)
    request = StoreRequest(keep[0], keep[1], known, len(keep) > 2) if form.history_outputs or length is None else None
    looped = LoopLowering(lowering, form, limit, regions, (fixed, carry, xs), request)
    # No step is taken, and there is no item to read while tracing one.
    if length == 0:
        return [int32(0), *state, *looped.outputs(looped.start, int32(0))]
    return looped.run()


def initial_fill(type: Tensor, number: int) -> Array:
    """The initial content of an array that the steps write."""
    # If the steps write all of it, any content will do. Two arrays must not begin alike: XLA would fill one and copy
    # it.
    return np.full((), number if type.dtype in FLOATS else 0, zero_array(Tensor(type.dtype)).dtype)


def array_mask(step: Graph, carry: int) -> list[bool]:
    """Which outputs of a step, besides its carries, are arrays."""
    return [isinstance(r.type, Tensor) for r in step.results[carry:]]


class LoopLowering:
    """Lowers a loop to `while_loop`: it counts steps and writes their outputs in place, into arrays of zeros.

    If the steps produce histories, the loop writes a checkpoint store.
    """

    def __init__(
        self,
        lowering: RegionLowering,
        form: LoopAttrs,
        limit: JaxArray,
        regions: tuple[Graph, ...],
        operands: Operands,
        request: StoreRequest | None,
    ) -> None:
        # Not JAX's `scan`: this counter has 32 bits whatever the x64 setting, and less is traced.
        self.lowering, self.form, self.limit, self.reverse = lowering, form, limit, form.reverse
        self.fixed, state, xs = operands
        self.xs = with_checkpoint_stores(xs)
        for run in source_loops(self.xs) if not form.exact else ():
            # A rerun loop may end a step earlier or later, by rounding: only its own steps can be read.
            self.limit = lowering.jax.lax.min(self.limit, run.count)
        step, *self.go = regions
        self.carry, lax = len(state), lowering.jax.lax
        length, ys = form.length, step.results[self.carry :]
        arrays_end = len(ys) - form.history_outputs
        self.types = [stacked_type(r.type, length if i < arrays_end else None) for i, r in enumerate(ys)]
        written, saved = split_histories(self.types)
        self.step = lowering.restrict_results(
            step, [*step.results[: self.carry], *[step.results[self.carry + i] for i in written]]
        )
        moved = results_on_host(step)
        arrays = [(t, r) for t, r in zip(self.types, step.results[self.carry :], strict=True) if isinstance(t, Tensor)]
        outputs_start = [
            lowering.zeros_on_host(t) if r in moved else lax.full(t.shape, initial_fill(t, i if form.exact else 0))
            for i, (t, r) in enumerate(arrays)
        ]
        self.store: CheckpointStore | None = None
        self.reversible_run: Callable[[Sequence[JaxArray], JaxArray], ReversibleRun] | None = None
        kept = None
        if saved:
            alone = step.with_results([*step.results[: self.carry], *[step.results[self.carry + i] for i in saved]])
            places = range(self.carry, len(alone.results))
            reads = (list(self.fixed), list(self.xs))
            of = partial(ReplaySource.of, lowering, alone, len(self.fixed), self.carry, places, reads, form.reverse)
            if form.reversible and not source_loops(self.xs):
                self.reversible_run = self.make_reversible(alone, of, operands, request)
            if self.reversible_run is None:
                able = not any([run.source.size for run in source_loops(self.xs)]) and all(
                    array_mask(alone, self.carry)
                )
                request = request and request._replace(residuals=request.residuals and able)
                self.store = CheckpointStore(
                    lowering, of(request), list(state), length if isinstance(length, int) else None
                )
                kept = self.store.start
        # Whether steps also write their residuals.
        self.step_with_residuals, self.stores_residuals = self.step, False
        buffers: Arrays = ()
        if self.residual_store:
            read = [step.results[self.carry + i] for i in saved]
            self.step_with_residuals = lowering.restrict_results(step, [*self.step.results, *read])
            buffers = tuple([
                lax.full((self.residual_store.residual_steps, *t.shape), initial_fill(t, i))
                for i, t in enumerate([r.type for r in read])
                if isinstance(t, Tensor)
            ])  # fmt: skip
        self.start = (tuple(state), tuple(outputs_start), kept, buffers)

    @property
    def residual_store(self) -> StoreSize | None:
        """The size of its store, if that also buffers residuals."""
        size = self.store.source.size if self.store else None
        return size if size and size.residual_steps else None

    def make_reversible(
        self, step: Graph, of: Callable[..., ReplaySource], operands: Operands, request: StoreRequest | None
    ) -> Callable[[Sequence[JaxArray], JaxArray], ReversibleRun] | None:
        """A function from last state and step count to a run that stores no more; None if a step has no inverse."""
        found = find_inverse_step(step, len(self.fixed), self.carry)
        if found is None:
            return None
        back, places = found
        source = of(None, also=places)

        def reversible_run(last: Sequence[JaxArray], count: JaxArray) -> ReversibleRun:
            def rerun_with_store() -> LoopRun:
                form = self.form._replace(length=None, exact=False, history_outputs=0, reversible=False)
                again = LoopLowering(self.lowering, form, count, (step,), operands, request)
                return next(x.run for x in again.run() if isinstance(x, HistoryOutput) and isinstance(x.run, LoopRun))

            first, final = [[state[i] for i in source.state_carries] for state in (operands[1], last)]
            return ReversibleRun(source, (), [], [], count, back, (first, final), rerun_with_store)

        return reversible_run

    @property
    def steps(self) -> int:
        """The interval between the states of its store, if that decides as the loop runs."""
        size = self.store and self.store.source.size
        return size.steps if size and not size.planned else 0

    def run(self) -> list[LoweredValue]:
        along = ReversibleStepLoop(self.lowering, self, self.xs)
        reader, start = HistoryReader(self.lowering, self.xs, along), along.start(self.start)
        with self.lowering.loop_scope():
            if self.residual_store:
                at = reader.stepwise(int32(self.residual_store.head), None, (int32_zero(), start))
                self.stores_residuals = True
                count, state = reader.stepwise(None, None, at)
            else:
                count, state = reader.run_loop(start)
        state = along.end(count, state)
        if not self.go:
            count = self.limit if self.form.exact else self.lowering.jax.lax.max(self.limit, int32_zero())
        return [count, *state[0], *self.outputs(state, count)]

    def should_continue(self, count: JaxArray, state: LoopState) -> JaxArray:
        lax = self.lowering.jax.lax
        if not self.go:
            return lax.lt(count, self.limit)
        within = lax.bitwise_or(lax.lt(count, self.limit), lax.lt(self.limit, int32_zero()))
        return lax.bitwise_and(within, self.lowering.graph(self.go[0], count, *self.fixed, *state[0])[0])

    def begin_chunk(
        self, count: JaxArray, state: LoopState, apart: JaxArray, boundary: JaxArray
    ) -> tuple[LoopState, JaxArray]:
        """Prepare the store for the next chunk; see `CheckpointStore.begin_chunk`."""
        carried, ys, kept, buffers = state
        if not self.store or kept is None:
            return state, int32(INT32_MAX)
        kept, latest = self.store.begin_chunk(kept, count, apart, boundary)
        return (carried, ys, kept, buffers), latest

    def take_step(self, count: JaxArray, index: JaxArray, view: HistoryView, state: LoopState) -> LoopState:
        """Take one step."""
        lax, (carried, ys, kept, buffers) = self.lowering.jax.lax, state
        if self.store and kept is not None and not self.stores_residuals:
            kept = self.store.record_state(kept, count, list(carried))
        items = last_params(self.step.params, len(self.xs))
        reads = [view.item(x, p.type) for x, p in zip(self.xs, items, strict=True)]
        step = self.step_with_residuals if self.stores_residuals else self.step
        outs = self.lowering.graph(step, index, *self.fixed, *carried, *reads)
        saved = self.carry + len(ys)
        ys = tuple([write_item(lax, y, v, index) for y, v in zip(ys, outs[self.carry : saved], strict=True)])
        if self.residual_store and self.stores_residuals:
            buffers = write_items(lax, buffers, outs[saved:], lax.sub(count, int32(self.residual_store.head)))
        return tuple(outs[: self.carry]), ys, kept, buffers

    def outputs(self, state: LoopState, count: JaxArray) -> list[LoweredValue]:
        """The outputs of the steps: arrays and histories."""
        carried, ys, kept, buffers = state
        histories: list[LoweredValue] = []
        if self.reversible_run:
            reversed_run = self.reversible_run(list(carried), count)
            histories = [HistoryOutput(reversed_run, i) for i in range(len(self.types) - len(ys))]
        elif self.store and kept is not None:
            run = LoopRun(self.store.source, kept.order, list(kept.slots), list(buffers), count)
            histories = [HistoryOutput(run, i) for i in range(len(self.types) - len(ys))]
        return merge_histories(ys, histories, self.types)
