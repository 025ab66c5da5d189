"""The same region for every item: comprehensions, `vmap`, the basis of a Jacobian. Its derivative is a map again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.interpreter import full_of_zeros, item_at, zero_of
from difflang.ir.op import OPS, MaybeValue, Op, Solver
from difflang.ir.region_dataflow import map_layout
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import History, Tensor, Type, item_of, stacked
from difflang.ops.ad_interface import (
    Ad,
    Tangents,
    Turning,
    alike,
    known_where,
    leaving,
    on,
    present,
    reordered,
    sort_residuals,
    spread,
    surely_steps,
    zeros,
)
from difflang.ops.control.cond import cond
from difflang.ops.loop.checkpoint_store import get, one, put, zero
from difflang.ops.loop.history_value import (
    Again,
    Given,
    Lanes,
    Saved,
    Sum,
    merged,
    no_history,
    part,
    silent_part,
    split,
)
from difflang.ops.loop.loop_op import loop, sequence_of_steps
from difflang.ops.loop.step_transpose import INDEX, transposed_step


def map_type(same: Solver, *types: Type, regions: tuple[Graph], consts: int, length: Dim) -> tuple[Type, ...]:
    """map(*consts, *xs) {body} -> the body's results, stacked."""
    params, results = regions[0].type
    for x in types[consts:]:
        sequence_of_steps(same, x, length)
    alike(same, "map", [*types[:consts], *[item_of(x) for x in types[consts:]]], params)
    return tuple([stacked(r, length) for r in results])


def map_reference(evaluate: Any, *arrays: Any, regions: tuple[Graph], consts: int, length: Dim) -> list[Any]:
    (body,) = regions
    assert isinstance(length, int)
    items = [p.type for p in body.params[consts:]]
    lanes: list[list[Any]] = []
    for i in range(length):
        reads = [item_at(x, i, t) for x, t in zip(arrays[consts:], items, strict=True)]
        lanes.append(evaluate(body, *arrays[:consts], *reads))
    return [in_one([lane[j] for lane in lanes], r.type) for j, r in enumerate(body.results)]


def in_one(items: list[Any], type: Type) -> Any:
    if isinstance(type, History):
        return items
    whole = full_of_zeros(type, len(items))
    for i, x in enumerate(items):
        whole[i] = x
    return whole


def map_lower(lowering: Any, *arrays: Any, regions: tuple[Graph], consts: int, length: Dim) -> list[Any]:
    """`jax.vmap`, at the very end; one lane after the other where they say something, or would do more side by side.

    Histories do not cross it: who reads one runs the lane again, see `saved`.
    """
    jax, (body,) = lowering.jax, regions
    assert isinstance(length, int)
    fixed, xs = arrays[:consts], arrays[consts:]
    types = [stacked(r.type, length) for r in body.results]
    tensors, histories = split(types)
    inner = part(lowering, body, tensors) if histories else body
    sequences, rebuilt = lanes_of(lowering, xs)

    def lane(_: Any, *items: Any) -> Any:
        return tuple(lowering.graph(inner, *fixed, *rebuilt(items)))

    if length and (inner.effectful or diverges(inner) or len(sequences) < len(xs)):
        found = in_turn(jax, length, sequences, lane, [r.type for r in inner.results])
    else:  # counted, for where there is nothing to read along the lanes
        with lowering.in_lanes(length):
            found = list(jax.vmap(lane, axis_size=length)(jax.lax.iota(np.int32, length), *sequences))
    if not histories:
        return found
    run = Lanes(silent_part(lowering, body, histories), fixed, xs)
    return merged(found, [Given(run, i) for i in range(len(histories))], types)


def in_turn(jax: Any, length: int, sequences: list[Any], lane: Any, types: Sequence[Type]) -> list[Any]:
    """One lane after the other, as a loop."""
    lax = jax.lax
    room = tuple([lax.full((length, *t.shape), zero_of(Tensor(t.dtype))) for t in types if isinstance(t, Tensor)])

    def body(at: Any) -> Any:
        i, ys = at
        outs = lane(i, *[get(lax, x, i) for x in sequences])
        return lax.add(i, one()), tuple([put(lax, y, v, i) for y, v in zip(ys, outs, strict=True)])

    return list(lax.while_loop(lambda at: lax.lt(at[0], np.asarray(length, np.int32)), body, (zero(), room))[1])


@lru_cache(maxsize=4096)
def diverges(body: Graph) -> bool:
    """Whether lanes side by side could not end: a loop that only the run ends, in a branch or in another such loop.

    Side by side both branches run in every lane, and a lane that is done goes along: its inner loop may have no end.
    Histories are read lane by lane too, since side by side each step would copy whole tapes.
    """
    todo = [(body, False)]
    while todo:
        graph, inside = todo.pop()
        for eqn in graph.eqns:
            open_ended = eqn.op is loop and (eqn.attrs["length"] is None or len(eqn.regions) > 1)
            if open_ended and (inside or any(isinstance(v.type, History) for v in (*eqn.operands, *eqn.results))):
                return True
            todo += [(region, inside or open_ended or eqn.op is cond) for region in eqn.regions]
    return False


def lanes_of(lowering: Any, xs: Any) -> tuple[list[Any], Any]:
    """The arrays that the lanes read items of, and a function from their items to one item for each of `xs`."""
    sequences = [x for x in xs if not isinstance(x, Saved)]
    if len(sequences) == len(xs):
        return sequences, lambda items: items
    inner: dict[Any, tuple[int, int, Any]] = {}  # a run: where its arrays begin and end, and how it is rebuilt
    for run in runs_of(xs):
        arrays, rebuilt = lanes_of(lowering, run.xs)
        inner[run] = (len(sequences), len(sequences) + len(arrays), rebuilt)
        sequences += arrays

    def items_of(items: Any) -> list[Any]:
        def run_again(run: Any) -> Any:
            first, last, rebuilt = inner[run]
            return lowering.graph(run.body, *run.fixed, *rebuilt(items[first:last]))

        again, rest = Again(run_again), iter(items)
        return [again(x) if isinstance(x, Saved) else next(rest) for x in xs]

    return sequences, items_of


def runs_of(xs: Any) -> list[Lanes]:
    """The maps that these histories come from."""
    found: dict[Lanes, None] = {}
    todo = list(xs)
    while todo:
        match todo.pop():
            case Given(Lanes() as run, _):
                found[run] = None
            case Sum(x, y):
                todo += [x, y]
            case Given():
                raise no_history()
            case _:
                pass
    return list(found)


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """The primal map gives its residuals too, stacked; what comes from consts alone is kept once."""
    (body,), nc, n = eqn.regions, eqn.attrs["consts"], len(eqn.results)
    lin = ad.linearize(body, dxs.active)
    params = lin.primal.params
    home = xs[0].home
    consts, items = (dict(zip(params[part], xs[part], strict=True)) for part in (slice(nc), slice(nc, None)))
    kept = sort_residuals(lin, home, consts, items, surely=surely_steps(eqn))
    primal = lin.primal.with_results([*lin.primal.results[:n], *kept.made])
    outs = home.emit(map_, xs, (primal,), **eqn.attrs)
    if not any(lin.active):
        return list(outs[:n]), [None] * n
    of_consts = [v for v in dxs.values[:nc] if v is not None]
    of_xs = [v for v in dxs.values[nc:] if v is not None]
    split = len(of_consts)
    tangent = reordered(
        lin.tangent,
        [
            *kept.params(lin, kept.fixed),
            *lin.tangent_params[:split],
            *kept.params(lin, [*kept.read, *kept.made]),
            *lin.tangent_params[split:],
        ],
    )
    fixed = [*kept.fixed.values(), *of_consts]
    attrs: dict[str, Any] = {**eqn.attrs, "consts": len(fixed)}
    dys = dxs.builder.emit(map_, [*fixed, *kept.read.values(), *outs[n:], *of_xs], (tangent,), **attrs)
    return list(outs[:n]), spread(dys, lin.active)


def jvp(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """One map gives results and tangents."""
    (body,), nc = eqn.regions, eqn.attrs["consts"]
    pushed = ad.jvp(body, dxs.active)
    of_consts = [v for v in dxs.values[:nc] if v is not None]
    of_xs = [v for v in dxs.values[nc:] if v is not None]
    inner, tangents = pushed.graph.params[: len(xs)], pushed.graph.params[len(xs) :]
    split = len(of_consts)
    both = reordered(pushed.graph, [*inner[:nc], *tangents[:split], *inner[nc:], *tangents[split:]])
    attrs: dict[str, Any] = {**eqn.attrs, "consts": nc + split}
    outs = dxs.builder.emit(map_, [*xs[:nc], *of_consts, *xs[nc:], *of_xs], (both,), **attrs)
    n = len(eqn.results)
    return list(outs[:n]), spread(outs[n:], pushed.active)


def transpose(ad: Ad, eqn: Eqn, at: Turning) -> list[MaybeValue]:
    """The map of the transpose: cotangents of consts are summed over the lanes, those of xs stacked."""
    (body,), nc = eqn.regions, eqn.attrs["consts"]
    given = at.given
    back = ad.transpose(body, at.linear, on(at.cts), given=on(given))
    if not any(back.active):
        return [None] * len(at.linear)
    consts, xs = known_where(at.known[:nc], at.linear[:nc]), known_where(at.known[nc:], at.linear[nc:])
    sequences = [*xs, *present(at.cts), *present(given)]
    shared = sum(back.active[:nc])
    if any(isinstance(r.type, History) for r in back.graph.results[:shared]):
        outs = one_after_another(at.builder, back.cotangents, eqn, consts, sequences, (len(xs), shared))
        return list(spread(outs, back.active))
    attrs: dict[str, Any] = {**eqn.attrs, "consts": len(consts)}
    outs = at.builder.emit(map_, [*consts, *sequences], (back.graph,), **attrs)
    count, some = sum(back.active), sum(back.chosen[:nc])
    sums = [OPS["reduce_sum"].one(c, axes=(0,)) for c in outs[:shared]]
    anywhere = [OPS["reduce_any"].one(c, axes=(0,)) for c in outs[count : count + some]]
    found = [*sums, *outs[shared:count], *anywhere, *outs[count + some :]]
    return leaving(found, back.active, back.chosen, at.choices)


def one_after_another(
    builder: Builder, back: Graph, eqn: Eqn, consts: list[Value], sequences: list[Value], counts: tuple[int, int]
) -> list[Value]:
    """The transpose of a map as a loop over its lanes: histories, which no reduction takes, are summed in the carry."""
    n_xs, shared = counts
    length = eqn.attrs["length"]
    at = Builder()
    params = [at.param(p.type, p.hint) for p in back.params]
    index = at.param(INDEX)
    counted = at.finish(at.inline(back, *params), [index, *params], back.name)
    turned = transposed_step(counted, (len(consts), n_xs), 0, shared)
    start = [zeros(builder, r.type) for r in back.results[:shared]]
    operands = [builder.const(length, INDEX), *consts, *start, *sequences]
    attrs: dict[str, Any] = {"consts": len(consts), "carry": shared, "length": length, "exact": True, "reverse": False}
    return list(builder.emit(loop, operands, (turned,), **attrs)[1:])


map_ = OPS.declare(
    Op(
        "map",
        map_type,
        map_reference,
        map_lower,
        linearize=linearize,
        jvp_region=jvp,
        transpose_region=transpose,
        layout=map_layout,
        doc="""map(*consts, *xs) {body}: the body on each item of the xs, its results stacked along a new first axis of
        size `length`.""",
    )
)
