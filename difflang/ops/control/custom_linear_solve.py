"""Custom linear solves: solutions of A x = b by a solver from the program, as `jax.lax.custom_linear_solve` does.

`custom_linear_solve(*consts, *b) {solve} {transposed} {apply}` is the x with A x = b, where A is a linear map of the
consts: `solve` finds x, `transposed` finds the y with Aᵀ y = c, and `apply` is A itself. The solver is never
differentiated: from A x = b follows A dx = db - dA x, one more solve, and the transpose of a solve is a solve of the
transposed equation. Both hold these regions too, so derivatives of any order use the same solver."""

from __future__ import annotations

from functools import reduce

from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import OPS, EquationRules, MaybeValue, Op, RegionRules, TypeSolver
from difflang.ir.tensor_types import Type
from difflang.ops.ad_interface import (
    Ad,
    Mask,
    Tangents,
    TransposeRequest,
    add_tangents,
    classify_cotangents,
    nonlinear_operands,
    or_choices,
    or_zeros,
    present_values,
    require_same_types,
    residual_operands,
    spread_by_mask,
    zeros,
)
from difflang.ops.arrays.axis_reductions import any_broadcast_like
from difflang.ops.control.call import call, emit_call
from difflang.ops.control.print_effect import without_prints
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.region_interface import Evaluate, LoweredValue, ReferenceValue, RegionLowering, region_to_dataflow

Regions = tuple[Graph, Graph, Graph]


def custom_solve_type(same: TypeSolver, *types: Type, regions: Regions, consts: int) -> tuple[Type, ...]:
    """The types of x, and of further results of both solvers, such as a failure."""
    solve, transposed, apply = regions
    b = types[consts:]
    for region in regions:
        require_same_types(same, "custom_linear_solve", types, region.type[0])
    require_same_types(same, "the results of the transposed solver", transposed.type[1], solve.type[1])
    require_same_types(same, "the solution", solve.type[1][: len(b)], b)
    require_same_types(same, "the linear map", apply.type[1], b)
    return solve.type[1]


def custom_solve_reference(
    evaluate: Evaluate, *arrays: ReferenceValue, regions: Regions, consts: int
) -> list[ReferenceValue]:
    return evaluate(regions[0], *arrays)


def custom_solve_lower(
    lowering: RegionLowering, *arrays: LoweredValue, regions: Regions, consts: int
) -> list[LoweredValue]:
    return lowering.call(regions[0], *arrays)


def as_primal_call(eqn: Eqn) -> Eqn:
    """The plain call of the solver that remains once no derivative of it is taken any more."""
    return Eqn(call, eqn.operands, eqn.results, {"name": eqn.regions[0].name}, eqn.regions[:1], eqn.span)


def const_count(eqn: Eqn) -> int:
    consts = eqn.attrs["consts"]
    assert isinstance(consts, int)
    return consts


def emit_solve(builder: Builder, operands: list[Value], regions: tuple[Graph, ...], consts: int) -> Values:
    return builder.emit(custom_linear_solve, operands, regions, consts=consts)


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """A dx = db - dA x."""
    n, home = const_count(eqn), xs[0].home
    outs = emit_solve(home, list(xs), eqn.regions, n)
    b = len(xs) - n
    map_tangent = linear_map_tangent(ad, eqn, xs, outs[:b], dxs)
    rhs = [add_tangents(d, None if t is None else -t) for d, t in zip(dxs.values[n:], map_tangent, strict=True)]
    if all(r is None for r in rhs):
        return list(outs), [None] * len(outs)
    rows = [or_zeros(dxs.builder, r, x.type) for r, x in zip(rhs, xs[n:], strict=True)]
    dys = emit_solve(dxs.builder, [*xs[:n], *rows], tuple(map(without_prints, eqn.regions)), n)
    return list(outs), [*dys[:b], *[None] * (len(outs) - b)]


def linear_map_tangent(ad: Ad, eqn: Eqn, xs: Values, x: Values, dxs: Tangents) -> list[MaybeValue]:
    """dA x: the derivative of the linear map at x with respect to the consts."""
    n, apply = const_count(eqn), without_prints(eqn.regions[2])
    active = (*dxs.active[:n], *[False] * len(x))
    if not any(active):
        return [None] * len(x)
    lin = ad.linearize(apply, active)
    outs = emit_call(xs[0].home, lin.primal, [*xs[:n], *x], "solved.map")
    residuals = residual_operands(lin, [*xs[:n], *x], outs[len(x) :])
    present = [d for d in dxs.values[:n] if d is not None]
    dys = emit_call(dxs.builder, lin.tangent, [*residuals, *present], "solved.map.tangent") if any(lin.active) else []
    return spread_by_mask(dys, lin.active)


def transpose(ad: Ad, eqn: Eqn, at: TransposeRequest) -> list[MaybeValue]:
    """A solve of the transposed equation. It mixes all cotangents, so is zero only where no incoming one is chosen."""
    n = const_count(eqn)
    if any(at.linear[:n]):
        raise InternalError("a solution is not linear in what its map is made of")
    solve, transposed, apply = map(without_prints, eqn.regions)
    inside = (False,) * n + (True,) * (len(at.linear) - n)
    every = classify_cotangents(inside)
    back = ad.transpose(apply, inside, every[n:], every).without_choices
    rows = [or_zeros(at.builder, ct, v.type) for ct, v in zip(at.cts, eqn.operands[n:], strict=False)]
    consts = nonlinear_operands(at.nonlinear[:n], at.linear[:n])
    found = list(emit_solve(at.builder, [*consts, *rows], (transposed, solve, back), n)[: len(rows)])
    found = mask_unchosen(found, at)
    return [None] * n + [c if here else None for c, here in zip(found, at.linear[n:], strict=True)]


def mask_unchosen(found: list[Value], at: TransposeRequest) -> list[Value]:
    """The outgoing cotangents of an op that mixes all incoming ones: zero if no incoming one is chosen anywhere.

    Their choice is that some incoming choice holds somewhere.
    """
    choices = [choice for ct, choice in zip(at.cts, at.ct_choices, strict=True) if ct is not None]
    truths = present_values(choices)
    return [mask_by_any_choice(ct, truths, at) for ct in found] if len(truths) == len(choices) else found


def mask_by_any_choice(ct: Value, choices: list[Value], at: TransposeRequest) -> Value:
    some = reduce(or_choices, [any_broadcast_like(choice, ct) for choice in choices])
    masked = select.one(some, ct, zeros(ct.home, ct.type))
    at.choices[masked] = some
    return masked


def linear_in(eqn: Eqn) -> Mask:
    n = const_count(eqn)
    return (False,) * n + (True,) * (len(eqn.operands) - n)


custom_linear_solve = OPS.declare(
    Op(
        "custom_linear_solve",
        custom_solve_type,
        custom_solve_reference,
        custom_solve_lower,
        derivative=EquationRules(
            linearize=linearize,
            transpose=transpose,
            linear_in=linear_in,
            custom_rule_name=lambda eqn: eqn.regions[0].name,
        ),
        regions=RegionRules(region_to_dataflow),
        doc="""custom_linear_solve(*consts, *b) {solve} {transposed} {apply}: the x with A x = b, by the solver in
        `solve`. `apply` is A, `transposed` the solver for its transpose. Kinks: none, where A has an inverse.""",
    )
)
