"""The `map` op: one region for every item, for comprehensions, `vmap` and Jacobians. Its derivative is a map too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod
from typing import NamedTuple

import numpy as np

from difflang.ir.array_types import Jax, JaxArray
from difflang.ir.builder import Builder
from difflang.ir.graph import Attr, Eqn, Graph, Value, Values
from difflang.ir.interpreter import sequence_item, stacked_zeros, zero_array
from difflang.ir.op import OPS, EquationRules, MaybeValue, Op, RegionRules, TypeSolver
from difflang.ir.region_dataflow import RegionDataflow, RegionSlot
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import History, Tensor, Type, sequence_item_type, stacked_type
from difflang.ops.ad_interface import (
    Ad,
    Tangents,
    TransposeRequest,
    always_iterates,
    classify_residuals,
    nonlinear_operands,
    present_values,
    require_same_types,
    spread_by_mask,
    unpack_cotangents,
    with_signature,
    zeros,
)
from difflang.ops.arrays.axis_reductions import reduce_any, reduce_sum
from difflang.ops.control.cond import cond
from difflang.ops.device_regions import mesh_here, on_each_device, partition_spec
from difflang.ops.loop.checkpoint_store import int32_one, int32_zero, read_item, write_item
from difflang.ops.loop.history_value import (
    HistoryOutput,
    HistoryReplay,
    HistoryRun,
    HistorySum,
    MapRun,
    merge_histories,
    restrict_region,
    restrict_silently,
    split_histories,
    unreachable_history_error,
)
from difflang.ops.loop.loop_op import check_step_sequence, loop
from difflang.ops.loop.loop_to_dataflow import map_to_dataflow
from difflang.ops.loop.step_transpose import INDEX, accumulating_step
from difflang.ops.region_interface import Evaluate, HistoryValue, LoweredValue, ReferenceValue, RegionLowering


def map_type(
    same: TypeSolver, *types: Type, regions: tuple[Graph], consts: int, length: Dim, along: tuple[str, ...] = ()
) -> tuple[Type, ...]:
    """map(*consts, *xs) {body} -> the body's results, stacked."""
    params, results = regions[0].type
    for x in types[consts:]:
        check_step_sequence(same, x, length)
    require_same_types(same, "map", [*types[:consts], *[sequence_item_type(x) for x in types[consts:]]], params)
    return tuple([stacked_type(r, length) for r in results])


def map_reference(
    evaluate: Evaluate, *arrays: ReferenceValue, regions: tuple[Graph], consts: int, length: Dim,
    along: tuple[str, ...] = (),
) -> list[ReferenceValue]:  # fmt: skip
    (body,) = regions
    assert isinstance(length, int)
    items = [p.type for p in body.params[consts:]]
    instances: list[list[ReferenceValue]] = []
    for i in range(length):
        reads = [sequence_item(x, i, t) for x, t in zip(arrays[consts:], items, strict=True)]
        instances.append(evaluate(body, *arrays[:consts], *reads))
    return [stack_items([instance[j] for instance in instances], r.type) for j, r in enumerate(body.results)]


def stack_items(items: list[ReferenceValue], type: Type) -> ReferenceValue:
    if isinstance(type, History):
        return items
    whole = stacked_zeros(type, len(items))
    for i, x in enumerate(items):
        whole[i] = x
    return whole


def map_lower(
    lowering: RegionLowering, *arrays: LoweredValue, regions: tuple[Graph], consts: int, length: Dim,
    along: tuple[str, ...] = (),
) -> Sequence[LoweredValue]:  # fmt: skip
    """`jax.vmap`; or a loop, where instances print, or would compute more side by side.

    On each device of a mesh the instances that lie there, if they are split `along` axes of it. Histories do not cross
    it: their readers rerun the instance, see `history_value`.
    """
    assert isinstance(length, int)
    jax, (body,) = lowering.jax, regions
    fixed, xs = arrays[:consts], arrays[consts:]
    types = [stacked_type(r.type, length) for r in body.results]
    tensors, histories = split_histories(types)
    inner = restrict_region(lowering, body, tensors) if histories else body
    inputs = map_inputs(lowering, MapRun(inner, fixed, xs))
    one_by_one = inner.effectful or may_diverge(inner) or len(inputs.sequences) < len(xs)

    def instances(count: int, *arrays: JaxArray) -> tuple[JaxArray, ...]:
        whole, sequences = arrays[: len(inputs.whole)], arrays[len(inputs.whole) :]

        def instance(_: JaxArray, *items: JaxArray) -> tuple[JaxArray, ...]:
            return tuple(lowering.graph(inner, *inputs.operands(whole, items)))

        if count and one_by_one:
            return tuple(sequential_map(jax, count, sequences, instance, [r.type for r in inner.results]))
        # The iota gives `vmap` a batch axis where no operand has one.
        with lowering.batch_scope(count):
            return tuple(jax.vmap(instance, axis_size=count)(jax.lax.iota(np.int32, count), *sequences))

    mesh, free = mesh_here(jax)
    arrays = (*inputs.whole, *inputs.sequences)
    if split := tuple([axis for axis in along if axis in free]):
        here = length // prod([mesh.shape[axis] for axis in split])
        whole, cut = (partition_spec(jax, axes, free) for axes in ((), (split,)))
        given = [whole] * len(inputs.whole) + [cut] * len(inputs.sequences)
        found = on_each_device(jax, partial(instances, here), arrays, given, cut)
    else:
        found = instances(length, *arrays)
    if not histories:
        return found
    run = MapRun(restrict_silently(lowering, body, histories), fixed, xs)
    return merge_histories(list(found), [HistoryOutput(run, i) for i in range(len(histories))], types)


def sequential_map(
    jax: Jax,
    length: int,
    sequences: Sequence[JaxArray],
    instance: Callable[..., tuple[JaxArray, ...]],
    types: Sequence[Type],
) -> list[JaxArray]:
    """One instance after the other, as a loop."""
    lax = jax.lax
    buffers = tuple([lax.full((length, *t.shape), zero_array(Tensor(t.dtype))) for t in types if isinstance(t, Tensor)])

    def body(at: tuple[JaxArray, tuple[JaxArray, ...]]) -> tuple[JaxArray, tuple[JaxArray, ...]]:
        i, ys = at
        outs = instance(i, *[read_item(lax, x, i) for x in sequences])
        return lax.add(i, int32_one()), tuple([write_item(lax, y, v, i) for y, v in zip(ys, outs, strict=True)])

    return list(
        lax.while_loop(lambda at: lax.lt(at[0], np.asarray(length, np.int32)), body, (int32_zero(), buffers))[1]
    )


@lru_cache(maxsize=4096)
def may_diverge(body: Graph) -> bool:
    """Whether batching could prevent termination: a while-loop in a branch or in another while-loop.

    Batched, both branches run in every instance, and an instance that is done keeps stepping: its inner loop may have
    no end. Histories are read one instance at a time too, since batched, each step would copy whole checkpoint stores.
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


class MapInputs(NamedTuple):
    """The arrays that instances read, whole or one item each, and the operands of the body for those of an instance."""

    whole: Sequence[JaxArray]
    sequences: Sequence[JaxArray]
    operands: Callable[[Sequence[JaxArray], Sequence[JaxArray]], list[LoweredValue]]


def map_inputs(lowering: RegionLowering, here: MapRun) -> MapInputs:
    """The inputs of a map, and of the maps that made histories of which it reads items: those are rerun.

    Cost: linear in these maps, each of which an instance reruns once.
    """
    runs = [here, *source_maps(here.xs)]

    def operands(whole: Sequence[JaxArray], items: Sequence[JaxArray]) -> list[LoweredValue]:
        arrays, rest = iter(whole), iter(items)
        kept = {run: [x if isinstance(x, HistoryValue) else next(arrays) for x in run.fixed] for run in runs}
        read = {run: [x if isinstance(x, HistoryValue) else next(rest) for x in run.xs] for run in runs}

        def rerun(run: HistoryRun) -> list[LoweredValue]:
            assert isinstance(run, MapRun)
            return lowering.graph(run.body, *kept[run], *map(replay, read[run]))

        replay = HistoryReplay(rerun)
        return [*kept[here], *map(replay, read[here])]

    whole = [x for run in runs for x in run.fixed if not isinstance(x, HistoryValue)]
    sequences = [x for run in runs for x in run.xs if not isinstance(x, HistoryValue)]
    return MapInputs(whole, sequences, operands)


def source_maps(xs: Sequence[LoweredValue]) -> list[MapRun]:
    """The maps that these histories come from, also by way of others."""
    found: dict[MapRun, None] = {}
    todo = list(xs)
    while todo:
        match todo.pop():
            case HistoryOutput(MapRun() as run, _):
                if run not in found:
                    found[run] = None
                    todo += run.xs
            case HistorySum(x, y):
                todo += [x, y]
            case HistoryOutput():
                raise unreachable_history_error()
            case _:
                pass
    return list(found)


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """The primal map returns its residuals too, stacked; residuals that depend on consts alone are stored once."""
    (body,), nc, n = eqn.regions, eqn.attrs["consts"], len(eqn.results)
    lin = ad.linearize(body, dxs.active)
    params = lin.primal.params
    home = xs[0].home
    consts, items = (dict(zip(params[part], xs[part], strict=True)) for part in (slice(nc), slice(nc, None)))
    kept = classify_residuals(lin, home, consts, items, surely=always_iterates(eqn))
    primal = lin.primal.with_results([*lin.primal.results[:n], *kept.made])
    outs = home.emit(map_, xs, (primal,), **eqn.attrs)
    if not any(lin.active):
        return list(outs[:n]), [None] * n
    of_consts = [v for v in dxs.values[:nc] if v is not None]
    of_xs = [v for v in dxs.values[nc:] if v is not None]
    split = len(of_consts)
    tangent = with_signature(
        lin.tangent,
        [
            *kept.tangent_params(lin, kept.fixed),
            *lin.tangent_params[:split],
            *kept.tangent_params(lin, [*kept.read, *kept.made]),
            *lin.tangent_params[split:],
        ],
    )
    fixed = [*kept.fixed.values(), *of_consts]
    attrs: dict[str, Attr] = {**eqn.attrs, "consts": len(fixed)}
    dys = dxs.builder.emit(map_, [*fixed, *kept.read.values(), *outs[n:], *of_xs], (tangent,), **attrs)
    return list(outs[:n]), spread_by_mask(dys, lin.active)


def jvp(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """One map returns results and tangents."""
    (body,), nc = eqn.regions, eqn.attrs["consts"]
    pushed = ad.jvp(body, dxs.active)
    of_consts = [v for v in dxs.values[:nc] if v is not None]
    of_xs = [v for v in dxs.values[nc:] if v is not None]
    inner, tangents = pushed.graph.params[: len(xs)], pushed.graph.params[len(xs) :]
    split = len(of_consts)
    both = with_signature(pushed.graph, [*inner[:nc], *tangents[:split], *inner[nc:], *tangents[split:]])
    attrs: dict[str, Attr] = {**eqn.attrs, "consts": nc + split}
    outs = dxs.builder.emit(map_, [*xs[:nc], *of_consts, *xs[nc:], *of_xs], (both,), **attrs)
    n = len(eqn.results)
    return list(outs[:n]), spread_by_mask(outs[n:], pushed.active)


def transpose(ad: Ad, eqn: Eqn, at: TransposeRequest) -> list[MaybeValue]:
    """The map of the transpose: cotangents of consts are summed over the instances, those of xs stacked."""
    (body,), nc = eqn.regions, eqn.attrs["consts"]
    back = ad.transpose(body, at.linear, at.arriving)
    if not any(back.active):
        return [None] * len(at.linear)
    consts, xs = (
        nonlinear_operands(at.nonlinear[:nc], at.linear[:nc]),
        nonlinear_operands(at.nonlinear[nc:], at.linear[nc:]),
    )
    sequences = [*xs, *present_values(at.cts), *present_values(at.ct_choices)]
    shared = sum(back.active[:nc])
    if any(isinstance(r.type, History) for r in back.graph.results[:shared]):
        outs = transpose_as_loop(at.builder, back.without_choices, eqn, consts, sequences, (len(xs), shared))
        return list(spread_by_mask(outs, back.active))
    attrs: dict[str, Attr] = {**eqn.attrs, "consts": len(consts)}
    outs = at.builder.emit(map_, [*consts, *sequences], (back.graph,), **attrs)
    count, some = sum(back.active), sum(back.chosen[:nc])
    sums = [reduce_sum.one(c, axes=(0,)) for c in outs[:shared]]
    anywhere = [reduce_any.one(c, axes=(0,)) for c in outs[count : count + some]]
    found = [*sums, *outs[shared:count], *anywhere, *outs[count + some :]]
    return unpack_cotangents(found, back, at.choices)


def transpose_as_loop(
    builder: Builder, back: Graph, eqn: Eqn, consts: list[Value], sequences: list[Value], counts: tuple[int, int]
) -> list[Value]:
    """The transpose of a map as a loop: histories cannot be reduced, so they are summed in the carry."""
    n_xs, shared = counts
    length = eqn.attrs["length"]
    at = Builder()
    params = [at.param(p.type, p.hint) for p in back.params]
    index = at.param(INDEX)
    counted = at.finish(at.inline(back, *params), [index, *params], back.name)
    step = accumulating_step(counted, (len(consts), n_xs), 0, shared, builder.span)
    start = [zeros(builder, r.type) for r in back.results[:shared]]
    operands = [builder.const(length, INDEX), *consts, *start, *sequences]
    attrs: dict[str, Attr] = {"consts": len(consts), "carry": shared, "length": length, "exact": True, "reverse": False}
    return list(builder.emit(loop, operands, (step,), **attrs)[1:])


def map_dataflow(eqn: Eqn) -> RegionDataflow:
    """`map(*consts, *xs) {body}`."""
    consts = eqn.attrs["consts"]
    assert isinstance(consts, int)
    operands = [
        RegionSlot(i, (i,), counted="consts" if i < consts else "", invariant=i < consts)
        for i in range(len(eqn.operands))
    ]
    return RegionDataflow(
        (*operands, *(RegionSlot(returns=(j,), result=j) for j in range(len(eqn.results)))),
        repeats=True,
        independent=True,
        new_consts_at=consts,
    )


map_ = OPS.declare(
    Op(
        "map",
        map_type,
        map_reference,
        map_lower,
        derivative=EquationRules(linearize=linearize, jvp=jvp, transpose=transpose),
        regions=RegionRules(map_to_dataflow, map_dataflow),
        doc="""map(*consts, *xs) {body}: the body on each item of the xs, its results stacked along a new first axis of
        size `length`. On a mesh each device runs the instances that lie there, if they are split `along` its axes.""",
    )
)
