"""The `invertible` op: a step with an inverse (`rule step by inverse g`), so that a loop can run backwards.

`invertible(*state, *others) {step} {back}` runs the step, which gives the state after it first. `back` takes the state
after a step in place of that before, and gives that before. The derivatives are those of the step; the inverse only
recomputes states. It is differentiated along with the step, so that a loop made by forward mode is reversible too.
"""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import OPS, EquationRules, MaybeValue, Op, RegionRules, TypeSolver
from difflang.ir.region_dataflow import RegionDataflow, RegionSlot
from difflang.ir.tensor_types import Type
from difflang.ops.ad_interface import (
    Ad,
    LinearizedGraph,
    Tangents,
    or_zeros,
    presence_mask,
    present_values,
    require_same_types,
    spread_by_mask,
    with_signature,
)
from difflang.ops.control.call import call, call_lower, linearize_as_call, transpose
from difflang.ops.region_interface import Evaluate, LoweredValue, ReferenceValue, RegionLowering, region_to_dataflow


def invertible_type(
    same: TypeSolver, *types: Type, regions: tuple[Graph, Graph], state: int, name: str
) -> tuple[Type, ...]:
    """invertible(*operands) {step} {back} -> the step's results; the first `state` of both are the state."""
    step, back = regions
    params, results = step.type
    require_same_types(same, name, types, params)
    require_same_types(same, f"the state that {name} gives", results[:state], params[:state])
    require_same_types(same, f"the inverse of {name}", back.type[0], params)
    require_same_types(same, f"what the inverse of {name} gives", back.type[1], params[:state])
    return results


def invertible_reference(
    evaluate: Evaluate, *arrays: ReferenceValue, regions: tuple[Graph, Graph], state: int, name: str
) -> list[ReferenceValue]:
    return evaluate(regions[0], *arrays)


def invertible_lower(
    lowering: RegionLowering, *arrays: LoweredValue, regions: tuple[Graph, Graph], state: int, name: str
) -> list[LoweredValue]:
    return call_lower(lowering, *arrays, regions=regions[:1], name=name)


def as_primal_call(eqn: Eqn, in_reverse: bool) -> Eqn:
    """The plain call that remains where no reversible loop needs the inverse."""
    if in_reverse:
        return eqn
    return Eqn(call, eqn.operands, eqn.results, {"name": eqn.attrs["name"]}, eqn.regions[:1], eqn.span)


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """The primal stays invertible. Its tangent is a call, as that of any function."""

    def primal(lin: LinearizedGraph) -> Sequence[Value]:
        return xs[0].home.emit(invertible, xs, (lin.primal, eqn.regions[1]), **eqn.attrs)

    return linearize_as_call(ad.linearize(eqn.regions[0], dxs.active), eqn, xs, dxs, primal)


def jvp(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """The inverse of x' = f(x), dx' = Df(x) dx is x = g(x'), dx = Dg(x') dx': take the jvp of both graphs."""
    (step, back), k = eqn.regions, eqn.attrs["state"]
    moving = tuple([x.type.tangent is not None for x in xs[:k]])
    active = (*moving, *presence_mask(dxs.values[k:]))
    forth = ad.jvp(step, active, (*moving, *[False] * (len(eqn.results) - k)))
    inverse = ad.jvp(back, active, moving)
    more, n, m = sum(moving), len(xs), len(eqn.results)
    of_state = [or_zeros(dxs.builder, d, x.type) for d, x, a in zip(dxs.values, xs, moving, strict=False) if a]
    operands = [*xs[:k], *of_state, *xs[k:], *present_values(dxs.values[k:])]
    regions = (
        with_signature(
            forth.graph,
            interleave_tangents(forth.graph.params, k, more, n),
            interleave_tangents(forth.graph.results, k, more, m),
        ),
        with_signature(inverse.graph, interleave_tangents(inverse.graph.params, k, more, n)),
    )
    outs = dxs.builder.emit(invertible, operands, regions, state=k + more, name=f"{eqn.attrs['name']}.jvp")
    rest = k + more + m - k
    dys = spread_by_mask([*outs[k : k + more], *outs[rest:]], forth.active)
    return [*outs[:k], *outs[k + more : rest]], dys


def interleave_tangents(values: Sequence[Value], state: int, more: int, count: int) -> list[Value]:
    """`count` values and then their tangents, reordered so that the state's tangents follow the state."""
    tangents = values[count:]
    return [*values[:state], *tangents[:more], *values[state:count], *tangents[more:]]


def invertible_dataflow(eqn: Eqn) -> RegionDataflow:
    """`invertible(*state, *others) {step} {back}`: each region takes and returns the state, as a loop's step does."""
    state = eqn.attrs["state"]
    assert isinstance(state, int)
    held = [RegionSlot(i, (i, i), (i, i), i, "state") for i in range(state)]
    others = [RegionSlot(i, (i, i), invariant=True) for i in range(state, len(eqn.operands))]
    return RegionDataflow(
        (*held, *others, *(RegionSlot(returns=(j, None), result=j) for j in range(state, len(eqn.results))))
    )


invertible = OPS.declare(
    Op(
        "invertible",
        invertible_type,
        invertible_reference,
        invertible_lower,
        derivative=EquationRules(linearize=linearize, jvp=jvp, transpose=transpose, without_derivative=as_primal_call),
        regions=RegionRules(region_to_dataflow, invertible_dataflow),
        doc="""invertible(*state, *others) {step} {back}: what the step gives, the `state` after it first. `back` takes
        that state and the others, and gives the state before.""",
    )
)
