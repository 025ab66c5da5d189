"""The `cond` op: runs one of two regions. Its derivative is a `cond` too: a branch not taken contributes exactly 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from difflang.base.diagnostics import InternalError
from difflang.ir.array_types import Array, JaxArray
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import OPS, EquationRules, MaybeValue, Op, RegionRules, TypeSolver
from difflang.ir.region_dataflow import RegionDataflow, RegionSlot
from difflang.ir.tensor_types import BOOL, Tensor, Type
from difflang.ops.ad_interface import (
    Ad,
    LinearizedGraph,
    Tangents,
    TransposeRequest,
    classify_cotangents,
    nonlinear_operands,
    present_values,
    require_same_types,
    restrict_choices,
    spread_by_mask,
    unpack_cotangents,
    zeros,
)
from difflang.ops.loop.history_value import (
    CondRun,
    HistoryOutput,
    HistoryReplay,
    HistoryRun,
    merge_histories,
    restrict_region,
    restrict_silently,
    split_histories,
)
from difflang.ops.region_interface import (
    DataflowLowering,
    Evaluate,
    HistoryValue,
    LoweredValue,
    Port,
    ReferenceValue,
    RegionLowering,
)

BOOL_SCALAR = Tensor(BOOL)


def cond_type(same: TypeSolver, *types: Type, regions: tuple[Graph, Graph]) -> tuple[Type, ...]:
    """cond(pred, *operands) {then} {else} -> the results of either."""
    pred, *operands = types
    then, other = regions
    same.require(isinstance(pred, Tensor), "a condition is a truth value")
    require_same_types(same, "cond", [pred], [BOOL_SCALAR])
    for branch in regions:
        require_same_types(same, "cond", operands, branch.type[0])
    require_same_types(same, "the results of a branch", other.type[1], then.type[1])
    return then.type[1]


def cond_reference(
    evaluate: Evaluate, pred: Array, *arrays: ReferenceValue, regions: tuple[Graph, Graph]
) -> list[ReferenceValue]:
    return evaluate(regions[0] if pred else regions[1], *arrays)


def cond_lower(
    lowering: RegionLowering, pred: JaxArray, *arrays: LoweredValue, regions: tuple[Graph, Graph]
) -> list[LoweredValue]:
    """`lax.cond`. Histories do not cross it: their readers rerun the branch, see `history_value`."""
    types = [r.type for r in regions[0].results]
    tensors, histories = split_histories(types)
    parts = [restrict_region(lowering, r, tensors) for r in regions] if histories else regions
    places = [i for i, x in enumerate(arrays) if not isinstance(x, HistoryValue)]

    def make_branch(number: int) -> Callable[..., list[LoweredValue]]:
        def run_branch(*xs: JaxArray) -> list[LoweredValue]:
            def rerun(run: HistoryRun) -> list[LoweredValue]:
                assert isinstance(run, CondRun)
                return lowering.graph(run.regions[number], *map(replay, run.arrays))

            replay = HistoryReplay(rerun)
            known = dict(zip(places, xs, strict=True))
            operands = [known[i] if i in known else replay(x) for i, x in enumerate(arrays)]
            return lowering.graph(parts[number], *operands)

        return run_branch

    found = lowering.jax.lax.cond(pred, make_branch(0), make_branch(1), *[arrays[i] for i in places])
    if not histories:
        return found
    run = CondRun(tuple([restrict_silently(lowering, r, histories) for r in regions]), arrays)
    return merge_histories(found, [HistoryOutput(run, i) for i in range(len(histories))], types)


def linearize_cond(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """Each branch returns its residuals in slots that the branches share, and zeros in slots that it does not use."""
    on = dxs.active[1:]
    active = tuple([any(pair) for pair in zip(*[ad.linearize(r, on).active for r in eqn.regions], strict=True)])
    lins = [ad.linearize(r, on, active) for r in eqn.regions]
    n = len(eqn.results)
    slots = shared_residual_slots(lins)
    primals = tuple([primal_branch(lin, n, slots) for lin in lins])
    outs = xs[0].home.emit(cond, xs, primals)
    if not any(active):
        return list(outs), [None] * n
    reads = [p for i, p in enumerate(xs[1:]) if any(lin.primal.params[i] in lin.residuals for lin in lins)]
    places = [i for i in range(len(xs) - 1) if any(lin.primal.params[i] in lin.residuals for lin in lins)]
    tangents = tuple([tangent_branch(lin, slots, places) for lin in lins])
    dys = dxs.builder.emit(cond, [xs[0], *outs[n:], *reads, *dxs.present], tangents)
    return list(outs[:n]), spread_by_mask(dys, active)


def shared_residual_slots(lins: Sequence[LinearizedGraph]) -> list[Type]:
    """The types of the residual slots: of each type as many as the branch that needs most."""
    slots: Counter[Type] = Counter()
    for lin in lins:
        slots |= Counter([r.type for r in lin.made])
    return list(slots.elements())


def assign_residuals(lin: LinearizedGraph, slots: Sequence[Type]) -> list[MaybeValue]:
    """The residual in each slot, if any."""
    waiting: dict[Type, list[Value]] = {}
    for r in lin.made:
        waiting.setdefault(r.type, []).append(r)
    return [waiting[t].pop(0) if waiting.get(t) else None for t in slots]


def primal_branch(lin: LinearizedGraph, results: int, slots: Sequence[Type]) -> Graph:
    """The primal branch, returning its results and every slot."""
    builder = Builder()
    params = [builder.param(p.type, p.hint) for p in lin.primal.params]
    outs = builder.inline(lin.primal, *params)
    inside = dict(zip(lin.made, outs[results:], strict=True))
    residuals = [None if r is None else inside[r] for r in assign_residuals(lin, slots)]
    filled = [zeros(builder, t) if r is None else r for r, t in zip(residuals, slots, strict=True)]
    return builder.finish([*outs[:results], *filled], name=lin.primal.name)


def tangent_branch(lin: LinearizedGraph, slots: Sequence[Type], places: Sequence[int]) -> Graph:
    """The tangent branch, taking every slot, the operands at `places`, and the tangents."""
    builder = Builder()
    where: dict[Value, Value] = {}
    for residual, type in zip(assign_residuals(lin, slots), slots, strict=True):
        param = builder.param(type)
        if residual is not None:
            where[residual] = param
    for i in places:
        param = lin.primal.params[i]
        where[param] = builder.param(param.type, param.hint)
    tangents = [builder.param(p.type, p.hint) for p in lin.tangent_params]
    return builder.finish(
        builder.inline(lin.tangent, *[where[r] for r in lin.residuals], *tangents), name=lin.tangent.name
    )


def cond_jvp(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """One `cond` returns results and tangents."""
    on = dxs.active[1:]
    active = tuple([any(pair) for pair in zip(*[ad.jvp(r, on).active for r in eqn.regions], strict=True)])
    branches = tuple([ad.jvp(r, on, active).graph for r in eqn.regions])
    outs = dxs.builder.emit(cond, [*xs, *dxs.present], branches)
    return list(outs[: len(eqn.results)]), spread_by_mask(outs[len(eqn.results) :], active)


def transpose_cond(ad: Ad, eqn: Eqn, at: TransposeRequest) -> list[MaybeValue]:
    """The transposes of both branches; where only one has a cotangent for an operand, the other returns zeros: a
    choice.

    A history has a choice only where each branch gives it a choice, or no cotangent.
    """
    pred, rest = at.nonlinear[0], at.linear[1:]
    if pred is None:
        raise InternalError("a cond cannot be linear in its condition")
    backs = [ad.transpose(r, rest, at.arriving) for r in eqn.regions]
    active = tuple([any(pair) for pair in zip(*[back.active for back in backs], strict=True)])
    if not any(active):
        return [None] * len(at.linear)
    chosen = tuple([
        here and (any if isinstance(x.type, Tensor) else all)(back.chosen[i] or not back.active[i] for back in backs)
        for i, (here, x) in enumerate(zip(active, eqn.operands[1:], strict=True))
    ])  # fmt: skip
    leaving = classify_cotangents(active, chosen)
    backs = [restrict_choices(ad.transpose(r, rest, at.arriving, leaving), chosen) for r in eqn.regions]
    operands = [
        pred,
        *nonlinear_operands(at.nonlinear[1:], rest),
        *present_values(at.cts),
        *present_values(at.ct_choices),
    ]
    outs = at.builder.emit(cond, operands, tuple([back.graph for back in backs]))
    return [None, *unpack_cotangents(outs, backs[0], at.choices)]


def cond_dataflow(eqn: Eqn) -> RegionDataflow:
    """`cond(pred, *operands) {then} {else}`."""
    operands = [RegionSlot(i + 1, (i, i), invariant=True) for i in range(len(eqn.operands) - 1)]
    return RegionDataflow((*operands, *(RegionSlot(returns=(j, j), result=j) for j in range(len(eqn.results)))))


def cond_to_dataflow(lowering: DataflowLowering, eqn: Eqn, inputs: Sequence[Port]) -> list[Port]:
    return lowering.cond(inputs[0], inputs[1:], eqn.regions)


cond = OPS.declare(
    Op(
        "cond",
        cond_type,
        cond_reference,
        cond_lower,
        traits=("fusion barrier",),
        derivative=EquationRules(linearize=linearize_cond, jvp=cond_jvp, transpose=transpose_cond),
        regions=RegionRules(cond_to_dataflow, cond_dataflow),
        doc="""cond(pred, *operands) {then} {else}: the results of the region that `pred` chooses; the other does not
        run. Kinks: the derivative is that of the branch taken.""",
    )
)
