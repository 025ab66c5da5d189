"""The `call` op: a function call that is not inlined, so that code size stays linear. Its derivatives are calls too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import OPS, EquationRules, MaybeValue, Op, RegionRules, TypeSolver
from difflang.ir.region_dataflow import RegionDataflow, RegionSlot
from difflang.ir.tensor_types import Type
from difflang.ops.ad_interface import (
    Ad,
    LinearizedGraph,
    Tangents,
    TransposeRequest,
    nonlinear_operands,
    present_values,
    require_same_types,
    residual_operands,
    spread_by_mask,
    unpack_cotangents,
)
from difflang.ops.region_interface import Evaluate, LoweredValue, ReferenceValue, RegionLowering, region_to_dataflow


def call_type(same: TypeSolver, *types: Type, regions: tuple[Graph], name: str) -> tuple[Type, ...]:
    """call(*operands) {body} -> the body's results."""
    params, results = regions[0].type
    require_same_types(same, name or "call", types, params)
    return results


def call_reference(
    evaluate: Evaluate, *arrays: ReferenceValue, regions: tuple[Graph], name: str
) -> list[ReferenceValue]:
    return evaluate(regions[0], *arrays)


def call_lower(lowering: RegionLowering, *arrays: LoweredValue, regions: tuple[Graph], name: str) -> list[LoweredValue]:
    return lowering.call(regions[0], *arrays)


def emit_call(builder: Builder, body: Graph, operands: list[Value], name: str) -> list[Value]:
    return list(builder.emit(call, operands, (body,), name=name))


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """The primal function returns its residuals too; the tangent function takes them."""
    lin = ad.linearize_lean(eqn.regions[0], dxs.active)
    return linearize_as_call(
        lin, eqn, xs, dxs, lambda lin: emit_call(xs[0].home, lin.primal, list(xs), eqn.attrs["name"])
    )


def linearize_as_call(
    lin: LinearizedGraph, eqn: Eqn, xs: Values, dxs: Tangents, primal: Callable[[LinearizedGraph], Sequence[Value]]
) -> tuple[list[Value], list[MaybeValue]]:
    """Linearize an op that runs its region once: `primal` emits it with residuals, the tangent is a call."""
    outs, name = list(primal(lin)), f"{eqn.attrs['name']}.tangent"
    residuals = residual_operands(lin, xs, outs[len(eqn.results) :])
    dys = emit_call(dxs.builder, lin.tangent, [*residuals, *dxs.present], name) if any(lin.active) else []
    return outs[: len(eqn.results)], spread_by_mask(dys, lin.active)


def jvp(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """One call returns the results and their tangents."""
    pushed = ad.jvp(eqn.regions[0], dxs.active)
    outs = emit_call(dxs.builder, pushed.graph, [*xs, *dxs.present], f"{eqn.attrs['name']}.jvp")
    return outs[: len(eqn.results)], spread_by_mask(outs[len(eqn.results) :], pushed.active)


def transpose(ad: Ad, eqn: Eqn, at: TransposeRequest) -> list[MaybeValue]:
    back = ad.transpose(eqn.regions[0], at.linear, at.arriving)
    operands = [*nonlinear_operands(at.nonlinear, at.linear), *present_values(at.cts), *present_values(at.ct_choices)]
    outs = emit_call(at.builder, back.graph, operands, f"{eqn.attrs['name']}.transpose") if any(back.active) else []
    return unpack_cotangents(outs, back, at.choices)


def call_dataflow(eqn: Eqn) -> RegionDataflow:
    """`call(*operands) {body}`."""
    operands = [RegionSlot(i, (i,), invariant=True) for i in range(len(eqn.operands))]
    return RegionDataflow((*operands, *(RegionSlot(returns=(j,), result=j) for j in range(len(eqn.results)))))


call = OPS.declare(
    Op(
        "call",
        call_type,
        call_reference,
        call_lower,
        derivative=EquationRules(linearize=linearize, jvp=jvp, transpose=transpose),
        regions=RegionRules(region_to_dataflow, call_dataflow),
        doc="""call(*operands) {body}: the results of a function that is kept apart. `name` is for reading.""",
    )
)
