"""The `checkpoint` op: reverse mode stores its operands and chosen values, and recomputes the rest.

`checkpoint(*xs) {body}` returns the first results of its body; the others are saved. Its tangent is such an equation
too, with `recompute` set, whose body recomputes what it needs. That must not be merged with the original computation:
no pass opens such an equation, and lowering isolates it from its surroundings.

A block of a program saves what `save` names. One that the compiler makes may also be a `min_cut`: it saves the least
from which the rest is cheap to recompute. It may also be a whole `loop_step`: it is then recomputed in a step of
another loop, where XLA finds nothing to share, so it need not be isolated.
"""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.builder import Builder
from difflang.ir.graph import Attr, Attrs, Eqn, Graph, Value, Values
from difflang.ir.op import OPS, EquationRules, MaybeValue, Op, RegionRules, TypeSolver
from difflang.ir.region_dataflow import RegionDataflow, RegionSlot
from difflang.ir.tensor_types import Type
from difflang.ops.ad_interface import (
    Ad,
    LinearizedGraph,
    Tangents,
    TransposeRequest,
    choices_of,
    classify_cotangents,
    nonlinear_operands,
    presence_mask,
    present_values,
    require_same_types,
    residual_operands,
    spread_by_mask,
    unpack_cotangents,
    with_signature,
)
from difflang.ops.control.call import call
from difflang.ops.loop.min_cut_residuals import find_min_cut
from difflang.ops.loop.residual_selection import eqns_to_recompute, recompute_in_tangent
from difflang.ops.region_interface import Evaluate, LoweredValue, ReferenceValue, RegionLowering, region_to_dataflow

NO_ATTRS: Attrs = {}


def checkpoint_type(
    same: TypeSolver,
    *types: Type,
    regions: tuple[Graph],
    results: int,
    recompute: bool,
    min_cut: bool = False,
    loop_step: bool = False,
) -> tuple[Type, ...]:
    """checkpoint(*xs) {body} -> the body's first results."""
    params, made = regions[0].type
    require_same_types(same, "checkpoint", types, params)
    same.require(results <= len(made), "checkpoint: {} values for {} results", len(made), results)
    return made[:results]


def checkpoint_reference(
    evaluate: Evaluate,
    *arrays: ReferenceValue,
    regions: tuple[Graph],
    results: int,
    recompute: bool,
    min_cut: bool = False,
    loop_step: bool = False,
) -> list[ReferenceValue]:
    return evaluate(regions[0], *arrays)[:results]


def checkpoint_lower(
    lowering: RegionLowering,
    *arrays: LoweredValue,
    regions: tuple[Graph],
    results: int,
    recompute: bool,
    min_cut: bool = False,
    loop_step: bool = False,
) -> list[LoweredValue]:
    body = lowering.restrict_results(regions[0], regions[0].results[:results])
    return lowering.lower_isolated(body, *arrays) if recompute and not loop_step else lowering.call(body, *arrays)


def as_primal_call(eqn: Eqn, in_reverse: bool) -> Eqn:
    """The plain call that remains once all derivatives are taken."""
    if eqn.attrs["recompute"]:
        return eqn
    body = eqn.regions[0].with_results(eqn.regions[0].results[: len(eqn.results)])
    return Eqn(call, eqn.operands, eqn.results, {"name": body.name or "checkpoint"}, (body,), eqn.span)


def emit_checkpoint(
    builder: Builder,
    body: Graph,
    operands: Sequence[Value],
    results: int,
    recompute: bool,
    attrs: Attrs = NO_ATTRS,
) -> list[Value]:
    return list(builder.emit(checkpoint, operands, (body,), results=results, recompute=recompute, **attrs))


def compiler_attrs(eqn: Eqn) -> dict[str, Attr]:
    """The attributes that only the compiler sets."""
    return {k: v for k, v in eqn.attrs.items() if k in ("min_cut", "loop_step")}


def loop_step_attrs(eqn: Eqn) -> dict[str, Attr]:
    """The attributes that the block's derivatives inherit: whether it is a step of a loop."""
    return {"loop_step": True} if eqn.attrs.get("loop_step") else {}


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """The operands and saved values are the only residuals; the tangent recomputes the rest."""
    count, recompute, made_so = len(eqn.results), eqn.attrs["recompute"], compiler_attrs(eqn)
    lin, saved = recompute_unsaved(ad.linearize(eqn.regions[0], dxs.active), count, made_so.get("min_cut", False))
    made = lin.primal.results
    outs = emit_checkpoint(xs[0].home, lin.primal.with_results([*made, *saved]), xs, len(made), recompute, made_so)
    if not any(lin.active):
        return outs[:count], [None] * count
    operands = [*residual_operands(lin, xs, outs[count:]), *dxs.present]
    dys = emit_checkpoint(dxs.builder, lin.tangent, operands, sum(lin.active), True, loop_step_attrs(eqn))
    return outs[:count], spread_by_mask(dys, lin.active)


def recompute_unsaved(lin: LinearizedGraph, count: int, cut: bool) -> tuple[LinearizedGraph, Values]:
    """The linearization of the first results, whose tangent recomputes what is not saved; and the saved values.

    With `cut` it also stores what is expensive to compute, or a smaller set that makes it cheap (`find_min_cut`).
    """
    saved = lin.primal.results[count : len(lin.active)]
    active = lin.active[:count]
    tangent = lin.tangent.with_results(lin.tangent.results[: sum(active)])
    maker = {r: eqn for eqn in lin.primal.eqns for r in eqn.results}
    had = {*lin.primal.params, *saved}
    to_recompute = eqns_to_recompute(
        lin.residuals, had.union(find_min_cut(lin.primal, had, lin.residuals)) if cut else had, maker
    )
    return recompute_in_tangent(LinearizedGraph(lin.primal, tangent, lin.residuals, active), to_recompute), saved


def jvp(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """One equation returns the results and their tangents, and saves the tangents of saved values."""
    (body,), count = eqn.regions, len(eqn.results)
    pushed = ad.jvp(body, dxs.active)
    made, active = pushed.graph.results, pushed.active[:count]
    both = len(body.results), len(body.results) + sum(active)
    order = [*made[:count], *made[both[0] : both[1]], *made[count : both[0]], *made[both[1] :]]
    results = count + sum(active)
    whole = with_signature(pushed.graph, pushed.graph.params, order)
    outs = emit_checkpoint(
        dxs.builder, whole, [*xs, *dxs.present], results, eqn.attrs["recompute"], loop_step_attrs(eqn)
    )
    return outs[:count], spread_by_mask(outs[count:], active)


def transpose(ad: Ad, eqn: Eqn, at: TransposeRequest) -> list[MaybeValue]:
    """The transpose recomputes before it propagates cotangents; saved values have no cotangents."""
    (body,) = eqn.regions
    arriving = [*at.cts, *[None] * (len(body.results) - len(at.cts))]
    choices = choices_of(arriving, at.choices)
    back = ad.transpose(body, at.linear, classify_cotangents(presence_mask(arriving), presence_mask(choices)))
    if not any(back.active):
        return [None] * len(at.linear)
    operands = [*nonlinear_operands(at.nonlinear, at.linear), *present_values(arriving), *present_values(choices)]
    outs = emit_checkpoint(
        at.builder, back.graph, operands, len(back.graph.results), eqn.attrs["recompute"], loop_step_attrs(eqn)
    )
    return unpack_cotangents(outs, back, at.choices)


def checkpoint_dataflow(eqn: Eqn) -> RegionDataflow:
    """`checkpoint(*operands) {body}`."""
    operands = [RegionSlot(i, (i,), invariant=True) for i in range(len(eqn.operands))]
    results = [RegionSlot(returns=(j,), result=j, counted="results") for j in range(len(eqn.results))]
    # Returned values without a result are what the block saves for reverse mode.
    saved = [RegionSlot(returns=(j,)) for j in range(len(eqn.results), len(eqn.regions[0].results))]
    return RegionDataflow((*operands, *results, *saved), never_inlined=True)


checkpoint = OPS.declare(
    Op(
        "checkpoint",
        checkpoint_type,
        checkpoint_reference,
        checkpoint_lower,
        traits=("fusion barrier",),
        derivative=EquationRules(linearize=linearize, jvp=jvp, transpose=transpose, without_derivative=as_primal_call),
        regions=RegionRules(region_to_dataflow, checkpoint_dataflow),
        doc="""checkpoint(*operands) {body}: the first `results` of its body. Reverse mode saves the operands and the
        other results, and recomputes the rest in an equation with `recompute` set, which nothing is moved into or out
        of. With `min_cut` it also saves the least from which no product, sum or draw need be recomputed.""",
    )
)
