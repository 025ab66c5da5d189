"""Choosing between two regions. Its derivative is a `cond` again, so a branch not taken contributes exactly nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import OPS, MaybeValue, Op, Solver
from difflang.ir.region_dataflow import cond_layout
from difflang.ir.tensor_types import BOOL, Tensor, Type
from difflang.ops.ad_interface import (
    Ad,
    Linearized,
    Tangents,
    Turning,
    alike,
    choosing,
    known_where,
    leaving,
    on,
    present,
    spread,
    zeros,
)
from difflang.ops.loop.history_value import Again, Branches, Given, Saved, merged, part, silent_part, split

TRUTH = Tensor(BOOL)


def cond_type(same: Solver, *types: Type, regions: tuple[Graph, Graph]) -> tuple[Type, ...]:
    """cond(pred, *operands) {then} {else} -> the results of either."""
    pred, *operands = types
    then, other = regions
    same.require(isinstance(pred, Tensor), "a condition is a truth value")
    alike(same, "cond", [pred], [TRUTH])
    for branch in regions:
        alike(same, "cond", operands, branch.type[0])
    alike(same, "the results of a branch", other.type[1], then.type[1])
    return then.type[1]


def cond_reference(evaluate: Any, pred: Any, *arrays: Any, regions: tuple[Graph, Graph]) -> list[Any]:
    return evaluate(regions[0] if pred else regions[1], *arrays)


def cond_lower(lowering: Any, pred: Any, *arrays: Any, regions: tuple[Graph, Graph]) -> list[Any]:
    """`lax.cond`. Histories do not cross it: who reads one runs the branch again, see `saved`."""
    types = [r.type for r in regions[0].results]
    tensors, histories = split(types)
    parts = [part(lowering, r, tensors) for r in regions] if histories else regions
    places = [i for i, x in enumerate(arrays) if not isinstance(x, Saved)]

    def branch(number: int) -> Any:
        def taken(*xs: Any) -> list[Any]:
            def run_again(run: Any) -> Any:
                return lowering.graph(run.regions[number], *map(again, run.arrays))

            again = Again(run_again)
            known = dict(zip(places, xs, strict=True))
            given = [known[i] if i in known else again(x) for i, x in enumerate(arrays)]
            return lowering.graph(parts[number], *given)

        return taken

    found = lowering.jax.lax.cond(pred, branch(0), branch(1), *[arrays[i] for i in places])
    if not histories:
        return found
    run = Branches(tuple([silent_part(lowering, r, histories) for r in regions]), arrays)
    return merged(found, [Given(run, i) for i in range(len(histories))], types)


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """Each branch gives its residuals in slots that the branches share, and zeros in those that it does not need."""
    on = dxs.active[1:]
    active = tuple([any(pair) for pair in zip(*[ad.linearize(r, on).active for r in eqn.regions], strict=True)])
    lins = [ad.linearize(r, on, active) for r in eqn.regions]
    n = len(eqn.results)
    slots = shared_slots(lins)
    primals = tuple([with_slots(lin, n, slots) for lin in lins])
    outs = xs[0].home.emit(cond, xs, primals)
    if not any(active):
        return list(outs), [None] * n
    reads = [p for i, p in enumerate(xs[1:]) if any(lin.primal.params[i] in lin.residuals for lin in lins)]
    places = [i for i in range(len(xs) - 1) if any(lin.primal.params[i] in lin.residuals for lin in lins)]
    tangents = tuple([tangent_branch(lin, slots, places) for lin in lins])
    dys = dxs.builder.emit(cond, [xs[0], *outs[n:], *reads, *dxs.present], tangents)
    return list(outs[:n]), spread(dys, active)


def shared_slots(lins: Sequence[Linearized]) -> list[Type]:
    """The types of the residual slots: of each type as many as the branch that needs most."""
    slots: Counter[Type] = Counter()
    for lin in lins:
        slots |= Counter([r.type for r in lin.made])
    return list(slots.elements())


def assigned(lin: Linearized, slots: Sequence[Type]) -> list[MaybeValue]:
    """Which residual is in each slot, if any."""
    waiting: dict[Type, list[Value]] = {}
    for r in lin.made:
        waiting.setdefault(r.type, []).append(r)
    return [waiting[t].pop(0) if waiting.get(t) else None for t in slots]


def with_slots(lin: Linearized, results: int, slots: Sequence[Type]) -> Graph:
    """The primal branch, giving its results and every slot."""
    builder = Builder()
    params = [builder.param(p.type, p.hint) for p in lin.primal.params]
    outs = builder.inline(lin.primal, *params)
    inside = dict(zip(lin.made, outs[results:], strict=True))
    residuals = [None if r is None else inside[r] for r in assigned(lin, slots)]
    filled = [zeros(builder, t) if r is None else r for r, t in zip(residuals, slots, strict=True)]
    return builder.finish([*outs[:results], *filled], name=lin.primal.name)


def tangent_branch(lin: Linearized, slots: Sequence[Type], places: Sequence[int]) -> Graph:
    """The tangent branch, taking every slot, the operands at `places`, and the tangents."""
    builder = Builder()
    where: dict[Value, Value] = {}
    for residual, type in zip(assigned(lin, slots), slots, strict=True):
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


def jvp(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """One `cond` gives results and tangents."""
    on = dxs.active[1:]
    active = tuple([any(pair) for pair in zip(*[ad.jvp(r, on).active for r in eqn.regions], strict=True)])
    branches = tuple([ad.jvp(r, on, active).graph for r in eqn.regions])
    outs = dxs.builder.emit(cond, [*xs, *dxs.present], branches)
    return list(outs[: len(eqn.results)]), spread(outs[len(eqn.results) :], active)


def transpose(ad: Ad, eqn: Eqn, at: Turning) -> list[MaybeValue]:
    """The same branch turned round; where it gives an operand nothing and the other does, zeros: a choice.

    A history has a choice only where every branch says of it which of it counts, or gives none.
    """
    pred, rest = at.known[0], at.linear[1:]
    if pred is None:
        raise InternalError("a cond cannot be linear in its condition")
    given = at.given
    backs = [ad.transpose(r, rest, on(at.cts), given=on(given)) for r in eqn.regions]
    active = tuple([any(pair) for pair in zip(*[back.active for back in backs], strict=True)])
    if not any(active):
        return [None] * len(at.linear)
    chosen = tuple([
        here and (any if isinstance(x.type, Tensor) else all)(back.chosen[i] or not back.active[i] for back in backs)
        for i, (here, x) in enumerate(zip(active, eqn.operands[1:], strict=True))
    ])  # fmt: skip
    backs = [ad.transpose(r, rest, on(at.cts), active, given=on(given), marked=chosen) for r in eqn.regions]
    branches = [choosing(back, chosen).graph for back in backs]
    operands = [pred, *known_where(at.known[1:], rest), *present(at.cts), *present(given)]
    return [None, *leaving(at.builder.emit(cond, operands, tuple(branches)), active, chosen, at.choices)]


cond = OPS.declare(
    Op(
        "cond",
        cond_type,
        cond_reference,
        cond_lower,
        direct=True,
        barrier=True,
        linearize=linearize,
        jvp_region=jvp,
        transpose_region=transpose,
        layout=cond_layout,
        doc="""cond(pred, *operands) {then} {else}: the results of the region that `pred` chooses; the other does not
        run. Kinks: the derivative is that of the branch taken.""",
    )
)
