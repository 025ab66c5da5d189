"""How a loop runs: step by step in NumPy, and on XLA as `scan` where every step is taken, else as `while_loop`."""

from __future__ import annotations

from typing import Any

import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError
from difflang.ir.dims import Dim
from difflang.ir.evaluate import full_of_zeros, item_at, zero_of
from difflang.ir.graph import Graph
from difflang.ir.types import History, Tensor, Type

Array = Any


def loop_reference(
    evaluate: Any,
    limit: Array,
    *arrays: Array,
    regions: tuple[Graph, ...],
    consts: int,
    carry: int,
    length: Dim | None,
    exact: bool,
    reverse: bool,
) -> list[Array]:
    step, *go = regions
    fixed, state, xs = arrays[:consts], list(arrays[consts : consts + carry]), arrays[consts + carry :]
    items = [p.type for p in step.params[1 + consts + carry :]]
    ys: list[list[Array]] = [[] for _ in step.results[carry:]]
    steps = int(limit)
    if isinstance(length, int) and (steps > length or (exact and steps != length)):
        raise InternalError(f"loop: {steps} steps, but its length is {length}")
    count, endless = 0, bool(go) and steps < 0  # then only the condition ends it
    while endless or count < steps:
        index = np.asarray(steps - 1 - count if reverse else count, np.int32)
        if go and not evaluate(go[0], index, *fixed, *state)[0]:
            break
        reads = [item_at(x, int(index), t) for x, t in zip(xs, items, strict=True)]
        outs = evaluate(step, index, *fixed, *state, *reads)
        state = outs[:carry]
        for y, item in zip(ys, outs[carry:], strict=True):
            y.append(item)
        count += 1
    columns = [y[::-1] if reverse else y for y in ys]
    results = zip(columns, step.results[carry:], strict=True)
    return [np.asarray(count, np.int32), *state, *[collected(y, r.type, length) for y, r in results]]


def collected(items: list[Array], item: Type, length: Dim | None) -> Array:
    """What the steps gave: a history, or an array that is zero beyond the last step."""
    if length is None or isinstance(item, History):
        return items
    whole = full_of_zeros(item, length)
    for i, x in enumerate(items):
        whole[i] = x
    return whole


def loop_lower(
    lowering: Any,
    limit: Array,
    *arrays: Array,
    regions: tuple[Graph, ...],
    consts: int,
    carry: int,
    length: Dim | None,
    exact: bool,
    reverse: bool,
) -> list[Array]:
    fixed, state, xs = arrays[:consts], arrays[consts : consts + carry], arrays[consts + carry :]
    if exact:
        return scanned(lowering, regions[0], fixed, state, xs, length, reverse)
    if any(isinstance(v.type, History) for v in (*regions[0].params, *regions[0].results)):
        raise no_history()
    if length is None and (xs or len(regions[0].results) > carry):
        raise no_history()
    return while_looped(lowering, limit, regions, fixed, state, xs, length, reverse)


def no_history() -> DifflangError:
    return DifflangError(
        Diagnostic(
            "DL0801",
            "reverse mode of a loop without a bound on its steps is not compiled yet",
            helps=("go over a size, `for i in 0..n` with `n: dim`, take `jvp`, or run it with `--engine interpret`",),
        )
    )


def scanned(
    lowering: Any, step: Graph, fixed: Any, state: Any, xs: Any, length: Dim | None, reverse: bool
) -> list[Array]:
    """Every step is taken. The index is read as an item, and only where the step reads it."""
    jax = lowering.jax
    index = step.params[0]
    counts = index in step.results or any(index in e.operands for e in step.eqns)
    zero = np.asarray(0, np.int32)

    def body(carried: Any, items: Any) -> Any:
        i, rest = (items[0], items[1:]) if counts else (zero, items)
        outs = lowering.graph(step, i, *fixed, *carried, *rest)
        return tuple(outs[: len(carried)]), tuple(outs[len(carried) :])

    steps = (jax.lax.iota(np.int32, length),) if counts else ()
    last, ys = jax.lax.scan(body, tuple(state), (*steps, *xs), length=length, reverse=reverse)
    return [np.asarray(length, np.int32), *last, *ys]


def while_looped(
    lowering: Any,
    limit: Array,
    regions: tuple[Graph, ...],
    fixed: Any,
    state: Any,
    xs: Any,
    length: Dim | None,
    reverse: bool,
) -> list[Array]:
    """Steps are counted; what they give is written in place, in arrays that begin as zeros."""
    jax, (step, *go) = lowering.jax, regions
    lax, nk = jax.lax, len(state)
    outputs: list[Tensor] = [r.type for r in step.results[nk:] if isinstance(r.type, Tensor)]
    buffers = [lax.full((length, *t.shape), zero_of(Tensor(t.dtype))) for t in outputs]

    endless = lax.lt(limit, np.asarray(0, np.int32))

    def goes_on(state: Any) -> Any:
        count, carried, _ = state
        within = lax.lt(count, limit)
        if not go:
            return within
        within = lax.bitwise_or(within, endless)
        return lax.bitwise_and(within, lowering.graph(go[0], count, *fixed, *carried)[0])

    def body(state: Any) -> Any:
        count, carried, ys = state
        i = lax.sub(lax.sub(limit, count), np.asarray(1, np.int32)) if reverse else count
        items = [lax.dynamic_index_in_dim(x, i, 0, keepdims=False) for x in xs]
        outs = lowering.graph(step, i, *fixed, *carried, *items)
        new = tuple([lax.dynamic_update_index_in_dim(y, v, i, 0) for y, v in zip(ys, outs[nk:], strict=True)])
        return lax.add(count, np.asarray(1, np.int32)), tuple(outs[:nk]), new

    start = np.asarray(0, np.int32), tuple(state), tuple(buffers)
    if length == 0:  # no step can be taken, and there is no item to read while tracing one
        return [start[0], *state, *buffers]
    count, last, ys = lax.while_loop(goes_on, body, start)
    return [count, *last, *ys]
