"""Custom derivative rules: functions that come with a derivative of their own, in either mode and at every order.

`custom_derivative(*xs) {primal} {pushed}` runs the primal. Where it is differentiated, `pushed` replaces it: the value
and a tangent that is linear in the tangents of the arguments, which is differentiated like anything else for higher
orders. In `pushed`, `self_call(*xs)` is a call of the function itself, with its rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NoReturn

from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import OPS, EquationRules, MaybeValue, Op, RegionRules, TypeSolver
from difflang.ir.tensor_types import Tensor, Type
from difflang.ops.ad_interface import (
    Ad,
    LinearizedGraph,
    Mask,
    Tangents,
    require_same_types,
    spread_by_mask,
    zeros,
)
from difflang.ops.control.call import call, emit_call
from difflang.ops.control.derivative_operators import reject_unexpanded, tangent_types, wrt_tangent_types
from difflang.ops.control.print_effect import without_prints
from difflang.ops.region_interface import Evaluate, LoweredValue, ReferenceValue, RegionLowering, region_to_dataflow


def custom_derivative_type(
    same: TypeSolver, *types: Type, regions: tuple[Graph, Graph], name: str, wrt: Mask
) -> tuple[Type, ...]:
    """custom_derivative(*xs) {primal} {pushed} -> the primal's results."""
    primal, pushed = regions
    params, results = primal.type
    require_same_types(same, name, types, params)
    require_same_types(
        same, f"the rule of {name}", pushed.type[0], [*params, *wrt_tangent_types(same, name, primal, wrt)]
    )
    require_same_types(same, f"what the rule of {name} gives", pushed.type[1], [*results, *tangent_types(results)])
    return results


def self_call_type(same: TypeSolver, *types: Type, results: tuple[Tensor, ...], name: str) -> tuple[Type, ...]:
    """self_call(*xs) -> results."""
    return results


def custom_derivative_reference(
    evaluate: Evaluate, *arrays: ReferenceValue, regions: tuple[Graph, Graph], name: str, wrt: Mask
) -> list[ReferenceValue]:
    return evaluate(regions[0], *arrays)


def custom_derivative_lower(
    lowering: RegionLowering, *arrays: LoweredValue, regions: tuple[Graph, Graph], name: str, wrt: Mask
) -> list[LoweredValue]:
    return lowering.call(regions[0], *arrays)


def as_primal_call(eqn: Eqn, in_reverse: bool) -> Eqn:
    """The plain call that remains once all derivatives are taken."""
    return Eqn(call, eqn.operands, eqn.results, {"name": eqn.attrs["name"]}, eqn.regions[:1], eqn.span)


def derivative_graph(eqn: Eqn) -> Graph:
    """The `pushed` region with the equation itself in place of every `self_call`."""
    wrt = eqn.attrs["wrt"]
    return resolve_self_calls(*eqn.regions, str(eqn.attrs["name"]), wrt)


@lru_cache(maxsize=1024)
def resolve_self_calls(primal: Graph, pushed: Graph, name: str, wrt: Mask) -> Graph:
    done: dict[Graph, Graph] = {}
    # The function prints once, however often its rule calls it: the first call takes the last entry.
    primals = [without_prints(primal), primal]

    def inside(graph: Graph) -> Graph:
        if graph not in done:
            done[graph] = graph.with_eqns(map(replaced, graph.eqns))
        return done[graph]

    def replaced(eqn: Eqn) -> Eqn:
        if eqn.op is self_call:
            regions = (primals.pop() if len(primals) > 1 else primals[0], pushed)
            return Eqn(custom_derivative, eqn.operands, eqn.results, {"name": name, "wrt": wrt}, regions, eqn.span)
        # A nested rule's `self_call` refers to its own function.
        if eqn.op is custom_derivative or not eqn.regions:
            return eqn
        return eqn.with_regions(map(inside, eqn.regions))

    return inside(pushed)


def rule_tangents(eqn: Eqn, dxs: Tangents) -> list[MaybeValue]:
    """The tangents that the rule takes. Errors: InternalError for one that it does not take."""
    wrt = eqn.attrs["wrt"]
    if any(d is not None and not w for d, w in zip(dxs.values, wrt, strict=True)):
        raise InternalError(f"the rule of {eqn.attrs['name']} takes no tangent of an operand that has one")
    return [d for d, w in zip(dxs.values, wrt, strict=True) if w]


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """The rule is linear in the tangents, so it is its own derivative in them, at zero as anywhere."""
    name, rule_dxs = eqn.attrs["name"], rule_tangents(eqn, dxs)
    lin = ad.linearize(derivative_graph(eqn), (False,) * len(xs) + tuple([d is not None for d in rule_dxs]))
    n = len(eqn.results)
    if any(lin.active[:n]):
        raise InternalError(f"the value in the rule of {name} depends on a tangent")
    primal = with_zero_tangents(lin.primal, len(xs), len(rule_dxs), n, len(lin.active))
    outs = emit_call(xs[0].home, primal, list(xs), f"{name}.rule")
    residuals = [v if v is not None else zeros(dxs.builder, t) for v, t in outer_residuals(lin, xs, outs[n:])]
    present = [d for d in rule_dxs if d is not None]
    dys = emit_call(dxs.builder, lin.tangent, [*residuals, *present], f"{name}.rule.tangent") if any(lin.active) else []
    return outs[:n], spread_tangents(eqn, spread_by_mask(dys, lin.active[n:]))


def outer_residuals(lin: LinearizedGraph, xs: Values, made: Sequence[Value]) -> Iterator[tuple[MaybeValue, Type]]:
    """The residuals outside the rule; None for a tangent at zero."""
    outside = {**dict(zip(lin.primal.params, xs, strict=False)), **dict(zip(lin.made, made, strict=True))}
    for residual in lin.residuals:
        yield outside.get(residual), residual.type


@lru_cache(maxsize=1024)
def with_zero_tangents(graph: Graph, count: int, tangents: int, results: int, outs: int) -> Graph:
    """A graph made from a rule, at zero tangents: those after its first `count` params.

    It returns the value and what the rule does not give itself, its first results and those from `outs` on.
    """
    builder = Builder()
    at_zero = range(count, count + tangents)
    params = [
        zeros(builder, p.type) if i in at_zero else builder.param(p.type, p.hint) for i, p in enumerate(graph.params)
    ]
    found = builder.inline(graph, *params)
    return builder.finish([*found[:results], *found[outs:]], name=graph.name)


def spread_tangents(eqn: Eqn, dys: Sequence[MaybeValue]) -> list[MaybeValue]:
    """The tangents of the differentiable results, `None` for the others."""
    rest = iter(dys)
    return [next(rest) if r.type.tangent is not None else None for r in eqn.results]


def jvp(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """The rule. Where a tangent is absent, the rule's derivative in the others: a zero might meet an Inf in it."""
    n, pushed, rule_dxs = len(eqn.results), derivative_graph(eqn), rule_tangents(eqn, dxs)
    present = [d for d in rule_dxs if d is not None]
    active = (True,) * (len(pushed.results) - n)
    if len(present) < len(rule_dxs):
        dual = ad.jvp(pushed, (False,) * len(xs) + tuple([d is not None for d in rule_dxs]))
        pushed = with_zero_tangents(dual.graph, len(xs), len(rule_dxs), n, len(pushed.results))
        active = dual.active[n:]
    outs = emit_call(dxs.builder, pushed, [*xs, *present], f"{eqn.attrs['name']}.rule")
    return outs[:n], spread_tangents(eqn, spread_by_mask(outs[n:], active))


def reject_transpose(*_: object) -> NoReturn:
    raise InternalError("a function with a rule is not linear in what it takes")


custom_derivative = OPS.declare(
    Op(
        "custom_derivative",
        custom_derivative_type,
        custom_derivative_reference,
        custom_derivative_lower,
        derivative=EquationRules(
            linearize=linearize,
            jvp=jvp,
            transpose=reject_transpose,
            without_derivative=as_primal_call,
            custom_rule_name=lambda eqn: eqn.attrs["name"],
        ),
        regions=RegionRules(region_to_dataflow),
        doc="""custom_derivative(*xs) {primal} {pushed}: the primal's results. `pushed` takes the operands and a tangent
        of each that `wrt` names, and gives the results and their tangents; it is the derivative.""",
    )
)
self_call = OPS.declare(
    Op(
        "self_call",
        self_call_type,
        reject_unexpanded("self_call"),
        reject_unexpanded("self_call"),
        derivative=EquationRules(linearize=reject_unexpanded("self_call")),
        doc="""self_call(*xs): in the rule of a function, that function, which has the rule. `results` are its
        types.""",
    )
)
