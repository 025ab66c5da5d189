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
        limit = np.asarray(length, np.int32)
    elif collects(regions[0], xs, carry, length):
        raise no_history()
    return while_looped(lowering, limit, regions, fixed, state, xs, length, reverse)


def collects(step: Graph, xs: Any, carry: int, length: Dim | None) -> bool:
    """Whether what the steps give or read grows with their number."""
    histories = any(isinstance(v.type, History) for v in (*step.params, *step.results))
    return histories or (length is None and (bool(xs) or len(step.results) > carry))


def no_history() -> DifflangError:
    return DifflangError(
        Diagnostic(
            "DL0801",
            "reverse mode of a loop without a bound on its steps is not compiled yet",
            helps=("go over a size, `for i in 0..n` with `n: dim`, take `jvp`, or run it with `--engine interpret`",),
        )
    )


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
    """Steps are counted; what they give is written in place, in arrays that begin as zeros.

    JAX's `scan` is the same loop; here its counter has 32 bits whatever the process says, and less is traced.
    """
    jax, (step, *go) = lowering.jax, regions
    lax, nk = jax.lax, len(state)
    outputs: list[Tensor] = [r.type for r in step.results[nk:] if isinstance(r.type, Tensor)]
    buffers = [lax.full((length, *t.shape), zero_of(Tensor(t.dtype))) for t in outputs]
    one = np.asarray(1, np.int32)

    def goes_on(state: Any) -> Any:
        count, carried, _ = state
        within = lax.lt(count, limit)
        if not go:
            return within
        within = lax.bitwise_or(within, lax.lt(limit, np.asarray(0, np.int32)))
        return lax.bitwise_and(within, lowering.graph(go[0], count, *fixed, *carried)[0])

    def body(state: Any) -> Any:
        count, carried, ys = state
        i = lax.sub(lax.sub(limit, count), one) if reverse else count
        outs = lowering.graph(step, i, *fixed, *carried, *[item(lax, x, i) for x in xs])
        new = tuple([written(lax, y, v, i) for y, v in zip(ys, outs[nk:], strict=True)])
        return lax.add(count, one), tuple(outs[:nk]), new

    start = np.asarray(0, np.int32), tuple(state), tuple(buffers)
    if length == 0:  # no step can be taken, and there is no item to read while tracing one
        return [start[0], *state, *buffers]
    count, last, ys = lax.while_loop(goes_on, body, start)
    return [count, *last, *ys]


def item(lax: Any, x: Array, i: Array) -> Array:
    """`x[i]`."""
    starts = (i, *[np.asarray(0, np.int32)] * (x.ndim - 1))
    return lax.squeeze(lax.dynamic_slice(x, starts, (1, *x.shape[1:]), allow_negative_indices=False), (0,))


def written(lax: Any, ys: Array, y: Array, i: Array) -> Array:
    """`ys` with `y` at `i`."""
    starts = (i, *[np.asarray(0, np.int32)] * y.ndim)
    return lax.dynamic_update_slice(ys, lax.expand_dims(y, (0,)), starts, allow_negative_indices=False)
