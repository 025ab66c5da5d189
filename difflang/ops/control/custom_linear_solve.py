"""Solutions of linear equations by a solver of the program, such as conjugate gradients.

`solved(*consts, *b) {solve} {turned} {apply}` is the x with A x = b, where A is a linear map of the consts: `solve`
finds x, `turned` finds the y with Aᵀ y = c, and `apply` is A itself. The solver is never differentiated. From
A x = b follows A dx = db - dA x, one more solution; and a solution turned round is one of the transposed equation. Both
hold these regions again, so derivatives of any order are solutions by the same solver.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import OPS, MaybeValue, Op, Solver
from difflang.ir.tensor_types import Type
from difflang.ops.ad_interface import (
    Ad,
    Mask,
    Tangents,
    Turning,
    add,
    alike,
    either,
    known_where,
    or_zeros,
    present,
    residual_operands,
    spread,
    zeros,
)
from difflang.ops.arrays.axis_reductions import anywhere
from difflang.ops.control.call import call, called
from difflang.ops.control.print_effect import silent

Regions = tuple[Graph, Graph, Graph]


def solved_type(same: Solver, *types: Type, regions: Regions, consts: int) -> tuple[Type, ...]:
    """solved(*consts, *b) {solve} {turned} {apply} -> x, and whatever else both solvers give, such as a failure."""
    solve, turned, apply = regions
    b = types[consts:]
    for region in regions:
        alike(same, "solved", types, region.type[0])
    alike(same, "the results of the transposed solver", turned.type[1], solve.type[1])
    alike(same, "the solution", solve.type[1][: len(b)], b)
    alike(same, "the linear map", apply.type[1], b)
    return solve.type[1]


def solved_reference(evaluate: Any, *arrays: Any, regions: Regions, consts: int) -> list[Any]:
    return evaluate(regions[0], *arrays)


def solved_lower(lowering: Any, *arrays: Any, regions: Regions, consts: int) -> list[Any]:
    return lowering.call(regions[0], *arrays)


def as_call(eqn: Eqn) -> Eqn:
    """The call of the solver that is left of it where no derivative of it is taken any more."""
    return Eqn(call, eqn.operands, eqn.results, {"name": eqn.regions[0].name}, eqn.regions[:1], eqn.span)


def consts_of(eqn: Eqn) -> int:
    consts = eqn.attrs["consts"]
    assert isinstance(consts, int)
    return consts


def solution(builder: Builder, operands: list[Value], regions: tuple[Graph, ...], consts: int) -> Values:
    return builder.emit(solved, operands, regions, consts=consts)


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """A dx = db - dA x."""
    n, home = consts_of(eqn), xs[0].home
    outs = solution(home, list(xs), eqn.regions, n)
    b = len(xs) - n
    turning = moved(ad, eqn, xs, outs[:b], dxs)
    rhs = [add(d, None if t is None else -t) for d, t in zip(dxs.values[n:], turning, strict=True)]
    if all(r is None for r in rhs):
        return list(outs), [None] * len(outs)
    rows = [or_zeros(dxs.builder, r, x.type) for r, x in zip(rhs, xs[n:], strict=True)]
    dys = solution(dxs.builder, [*xs[:n], *rows], tuple(map(silent, eqn.regions)), n)
    return list(outs), [*dys[:b], *[None] * (len(outs) - b)]


def moved(ad: Ad, eqn: Eqn, xs: Values, x: Values, dxs: Tangents) -> list[MaybeValue]:
    """dA x: how the linear map at x changes with the consts."""
    n, apply = consts_of(eqn), silent(eqn.regions[2])
    active = (*dxs.active[:n], *[False] * len(x))
    if not any(active):
        return [None] * len(x)
    lin = ad.linearize(apply, active)
    outs = called(xs[0].home, lin.primal, [*xs[:n], *x], "solved.map")
    residuals = residual_operands(lin, [*xs[:n], *x], outs[len(x) :])
    present = [d for d in dxs.values[:n] if d is not None]
    dys = called(dxs.builder, lin.tangent, [*residuals, *present], "solved.map.tangent") if any(lin.active) else []
    return spread(dys, lin.active)


def transpose(ad: Ad, eqn: Eqn, at: Turning) -> list[MaybeValue]:
    """The solution of the transposed equation, zero where nothing that arrives is chosen: it mixes all of that."""
    n = consts_of(eqn)
    if any(at.linear[:n]):
        raise InternalError("a solution is not linear in what its map is made of")
    solve, turned, apply = map(silent, eqn.regions)
    inside = (False,) * n + (True,) * (len(at.linear) - n)
    every = (True,) * (len(at.linear) - n)
    back = ad.transpose(apply, inside, every, inside).cotangents
    rows = [or_zeros(at.builder, ct, v.type) for ct, v in zip(at.cts, eqn.operands[n:], strict=False)]
    consts = known_where(at.known[:n], at.linear[:n])
    found = list(solution(at.builder, [*consts, *rows], (turned, solve, back), n)[: len(rows)])
    found = mixed(found, at)
    return [None] * n + [c if here else None for c, here in zip(found, at.linear[n:], strict=True)]


def mixed(found: list[Value], at: Turning) -> list[Value]:
    """The cotangents that leave what mixes all that arrives: zero where nothing that arrives is chosen.

    That one of the choices holds somewhere is noted as theirs.
    """
    given = [choice for ct, choice in zip(at.cts, at.given, strict=True) if ct is not None]
    truths = present(given)
    return [chosen_anywhere(ct, truths, at) for ct in found] if len(truths) == len(given) else found


def chosen_anywhere(ct: Value, given: list[Value], at: Turning) -> Value:
    some = reduce(either, [anywhere(choice, ct) for choice in given])
    kept = OPS["select"].one(some, ct, zeros(ct.home, ct.type))
    at.choices[kept] = some
    return kept


def linear_in(eqn: Eqn) -> Mask:
    n = consts_of(eqn)
    return (False,) * n + (True,) * (len(eqn.operands) - n)


solved = OPS.declare(
    Op(
        "solved",
        solved_type,
        solved_reference,
        solved_lower,
        direct=True,
        linearize=linearize,
        transpose_region=transpose,
        linear_in=linear_in,
        declared=lambda eqn: eqn.regions[0].name,
        doc="""solved(*consts, *b) {solve} {turned} {apply}: the x with A x = b, by the solver in `solve`. `apply` is A,
        `turned` the solver for its transpose. Kinks: none, where A has an inverse.""",
    )
)
