"""Loops and maps on the dataflow machine: a counter, the carries, and a stack for what each step gives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from difflang.ir.array_types import Array
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph
from difflang.ir.interpreter import run_graph, sequence_item
from difflang.ir.tensor_types import BOOL, History, Tensor, Type
from difflang.ops.loop.checkpoint_store import int32
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_execution import collect_output, reversible_results
from difflang.ops.loop.reversible_loop import OtherOperands
from difflang.ops.region_interface import DataflowLowering, Port, ReferenceValue, StackStorage


def loop_to_dataflow(lowering: DataflowLowering, eqn: Eqn, inputs: Sequence[Port]) -> list[Port]:
    """The dataflow rule of a loop: its counter, its carries, and a stack for each output, in a frame."""
    form, (step, *go) = LoopAttrs.of(eqn), eqn.regions
    limit, consts, state, xs = form.parts(inputs)
    carry, items = form.carry, [p.type for p in form.parts(step.params).xs]
    # A reversible loop is run backwards at its end, for which it needs what each step has read.
    reads_kept = form.reversible
    stacks = len(step.results) - carry + reads_kept

    def index(count: Port, limit: Port) -> Port:
        return lowering.compute("index", step_from_last, count, limit) if form.reverse else count

    def goes(fixed: list[Port], values: list[Port]) -> Port:
        (limit, *consts), (count, *carries) = fixed[: 1 + form.consts], values[: 1 + carry]
        if not go:
            return lowering.compute("less", is_below, count, limit)
        within = lowering.compute("less", is_within, count, limit)
        given = [index(count, limit), *consts, *carries]
        # A condition that prints is not asked beyond the limit.
        if go[0].effectful:
            return lowering.cond(within, given, (go[0], false_region(go[0])))[0]
        return lowering.compute("and", both, within, lowering.graph(go[0], given)[0])

    def body(fixed: list[Port], values: list[Port]) -> list[Port]:
        (limit, *consts), sequences = fixed[: 1 + form.consts], fixed[1 + form.consts :]
        (count, *carries), below = values[: 1 + carry], values[1 + carry : 1 + carry + stacks]
        at = index(count, limit)
        reads = [pop(lowering, x, at, t) for x, t in zip(sequences, items, strict=True)]
        outs = lowering.graph(step, [at, *consts, *carries, *reads])
        pushed = outs[carry:]
        if reads_kept:
            pushed.append(lowering.compute("reads", tuple_of, at, *consts, *reads))
        tops = [lowering.compute_with_storage("push", push, y, s) for s, y in zip(below, pushed, strict=True)]
        return [lowering.compute("add 1", add_one, count), *outs[:carry], *tops]

    start = [lowering.compute("0", partial(int32, 0)), *state]
    start += [lowering.compute("empty stack", tuple_of) for _ in range(stacks)]
    effectful = any(r.effectful for r in eqn.regions)
    count, *ends = lowering.while_loop([limit, *consts, *xs], start, goes, body, effectful=effectful)
    whole = [
        lowering.compute_with_storage("collect", partial(collect_stack, step=step, form=form, output=i), s)
        for i, s in enumerate(ends[carry : len(step.results)])
    ]
    if not form.reversible and not any(isinstance(p.type, History) for p in form.parts(eqn.operands).xs):
        return [count, *ends[:carry], *whole]
    finish = partial(finish_loop, step, form, len(whole), len(xs))
    finished = lowering.compute("finish", finish, count, *state, *ends[:carry], *whole, *xs, *ends[len(step.results) :])
    return [count, *lowering.unpack(finished, carry + len(whole))]


def finish_loop(
    step: Graph, form: LoopAttrs, outputs: int, sequences: int, count: Array, *arrays: ReferenceValue
) -> list[ReferenceValue]:
    """The results of a loop whose histories another one runs backwards, or that reads histories; see there."""
    values, carry = list(arrays), form.carry
    start, last = values[:carry], values[carry : 2 * carry]
    whole, rest = values[2 * carry : 2 * carry + outputs], values[2 * carry + outputs :]
    reads = [items_of(s) for s in rest[sequences:]]
    cut = 1 + form.consts
    others: list[OtherOperands] = [(r[:cut], r[cut:]) for r in (reads[0] if reads else ())]
    ends = (start, last)
    return reversible_results(run_graph, step, form, rest[:sequences], ends, others, whole, int(count))


def map_to_dataflow(lowering: DataflowLowering, eqn: Eqn, inputs: Sequence[Port]) -> list[Port]:
    """The dataflow rule of a map: a loop whose iterations wait for nothing but their number."""
    (body,), consts, length = eqn.regions, eqn.attrs["consts"], eqn.attrs["length"]
    form = LoopAttrs(consts=consts, carry=0, length=length, exact=True, reverse=False)
    items = [p.type for p in body.params[consts:]]

    def goes(fixed: list[Port], values: list[Port]) -> Port:
        return lowering.compute("less", partial(is_below, limit=length), values[0])

    def instance(fixed: list[Port], values: list[Port]) -> list[Port]:
        count, *below = values[: 1 + len(body.results)]
        reads = [pop(lowering, x, count, t) for x, t in zip(fixed[consts:], items, strict=True)]
        outs = lowering.graph(body, [*fixed[:consts], *reads])
        tops = [lowering.compute_with_storage("push", push, y, s) for s, y in zip(below, outs, strict=True)]
        return [lowering.compute("add 1", add_one, count), *tops]

    start = [
        lowering.compute("0", partial(int32, 0)),
        *[lowering.compute("empty stack", tuple_of) for _ in body.results],
    ]
    _, *ends = lowering.while_loop(inputs, start, goes, instance, effectful=body.effectful)
    return [
        lowering.compute_with_storage("collect", partial(collect_stack, step=body, form=form, output=i), s)
        for i, s in enumerate(ends)
    ]


# ---- What the machine computes for a loop


def pop(lowering: DataflowLowering, sequence: Port, at: Port, item: Type) -> Port:
    return lowering.compute_with_storage("pop", partial(read_item, item=item), sequence, at)


def read_item(storage: StackStorage, sequence: ReferenceValue, index: Array, item: Type) -> ReferenceValue:
    return storage.fetch(sequence, sequence_item(sequence, int(index), item))


def push(storage: StackStorage, value: ReferenceValue, below: Any) -> tuple[Any, ...]:
    return (storage.keep(value), below)


def tuple_of(*items: Any) -> tuple[Any, ...]:
    return items


def add_one(count: Array) -> Array:
    return int32(int(count) + 1)


def is_below(count: Array, limit: Any) -> Array:
    return np.asarray(int(count) < int(limit))


def is_within(count: Array, limit: Array) -> Array:
    """The same; a negative limit is none."""
    return np.asarray(int(limit) < 0 or int(count) < int(limit))


def both(a: Array, b: Array) -> Array:
    return np.asarray(bool(a) and bool(b))


def step_from_last(count: Array, limit: Array) -> Array:
    """The index of a step in a loop that runs from its last step to its first."""
    return int32(int(limit) - 1 - int(count))


def false_region(like: Graph) -> Graph:
    """A region with the params of another one, whose result is false."""
    builder = Builder()
    for p in like.params:
        builder.param(p.type, p.hint)
    return builder.finish([builder.const(False, Tensor(BOOL))])


def items_of(stack: Any) -> list[Any]:
    """What was pushed, in that order, on a stack: the pair of its top item and the stack below, or ()."""
    # Pairs, so that iterations under way at once share no list.
    found: list[Any] = []
    while stack:
        item, stack = stack
        found.append(item)
    return found[::-1]


def collect_stack(storage: StackStorage, stack: Any, step: Graph, form: LoopAttrs, output: int) -> ReferenceValue:
    return collect_output(items_of(stack), step, form, output, storage.zeros)
