"""Linearization: splits a graph into a primal graph and a linear tangent graph, with residuals between them; and jvp.

Equations on tangents go to the tangent graph, all others to the primal graph: an op's rule is called on values, and
emits in the builder of its innermost operand. The residuals are exactly the values that the tangent graph captures.
The rules of ops with regions are in `ops`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from inspect import signature
from operator import mul
from typing import TypeVar

from difflang.ad.powers_of_roots import RootPower, powers_of_roots, to_power
from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError, Label
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import MaybeValue
from difflang.ops.ad_interface import (
    Ad,
    JvpGraph,
    LinearizedGraph,
    Mask,
    MaybeValues,
    Tangents,
    add_tangents,
    or_zeros,
    spread_by_mask,
    zeros,
)
from difflang.ops.elementwise.nonlinear_arithmetic import integer_pow
from difflang.passes.dce import live_equations

Rule = TypeVar("Rule")


def linearize(ad: Ad, graph: Graph, active: Mask) -> LinearizedGraph:
    """Split a graph into its primal and its tangent in the params that are `active`.

    Cost: one pass over the graph, and one backwards over the tangent graph, to drop dead equations and residuals.
    """
    primal = Builder()
    tangent = Builder(outer=primal)
    xs = [primal.param(p.type, p.hint) for p in graph.params]
    ys, dys = pushforward(ad, graph, primal, xs, tangent, tangent_params(tangent, graph.params, active))
    results = tuple([tangent.capture(d) for d in dys if d is not None])
    eqns, used = live_equations(tangent.eqns, results)
    captured = {inside: outside for outside, inside in tangent.captures.items() if inside in used}
    constants = recreate_constants(primal, captured)
    residuals = {inside: outside for inside, outside in captured.items() if inside not in constants}
    params = (*residuals, *tangent.params)
    known = set(xs)
    tangent.release()
    return LinearizedGraph(
        primal.finish([*ys, *(r for r in residuals.values() if r not in known)], name=graph.name),
        Graph(params, (*constants.values(), *eqns), results, graph.name),
        tuple(residuals.values()),
        tuple([d is not None for d in dys]),
    )


def jvp(ad: Ad, graph: Graph, active: Mask) -> JvpGraph:
    """Primal and tangent in one graph: params ++ tangents -> results ++ tangents of the active results."""
    builder = Builder()
    xs = [builder.param(p.type, p.hint) for p in graph.params]
    ys, dys = pushforward(ad, graph, builder, xs, builder, tangent_params(builder, graph.params, active))
    results = [*ys, *(d for d in dys if d is not None)]
    return JvpGraph(builder.finish(results, name=graph.name), tuple([d is not None for d in dys]))


def pushforward(
    ad: Ad, graph: Graph, primal: Builder, xs: Iterable[Value], tangent: Builder, dxs: MaybeValues
) -> tuple[list[Value], list[MaybeValue]]:
    """Emit the graph's equations in `primal` and their tangents in `tangent`, which may be the same builder.

    Returns the results and their tangents, `None` where a result does not depend on a param with a tangent.
    """
    # Forward-mode AD in one walk: `dot` has an entry for exactly those values that have a tangent.
    env = dict(zip(graph.params, map(primal.capture, xs), strict=True))
    dot = {p: d for p, d in zip(graph.params, dxs, strict=True) if d is not None}
    graph, powers = powers_of_roots(graph)
    for eqn in graph.eqns:
        operands = tuple([env[v] for v in eqn.operands])
        if eqn.op.inactive or dot.keys().isdisjoint(eqn.operands):
            env.update(zip(eqn.results, primal.copy(eqn, operands), strict=True))
            continue
        primal.span = tangent.span = eqn.span
        product = powers.get(eqn.results[0]) if powers and eqn.results else None
        if product is not None and product.root.results[0] in dot:
            ys = primal.copy(eqn, operands)
            dys = [root_power_tangent(ad, product, primal, env, tangent, dot)]
        else:
            ys, dys = pushforward_eqn(
                ad, eqn, primal, operands, Tangents(tangent, tuple([dot.get(v) for v in eqn.operands]))
            )
        env.update(zip(eqn.results, ys, strict=True))
        for y, dy in zip(eqn.results, dys, strict=True):
            if dy is not None:
                dot[y] = check_tangent_type(eqn, dy, y)
                dy.name_as_tangent_of(y)
    return [env[r] for r in graph.results], [dot.get(r) for r in graph.results]


def pushforward_eqn(
    ad: Ad, eqn: Eqn, primal: Builder, xs: Values, dxs: Tangents
) -> tuple[Sequence[Value], Sequence[MaybeValue]]:
    """One equation with at least one tangent: its results and their tangents."""
    if eqn.op.is_derivative:
        raise InternalError(f"{eqn.op} must be expanded before it is differentiated")
    if (rules := eqn.op.equation_rules) is not None:
        rule = rules.jvp if primal is dxs.builder and rules.jvp is not None else rules.linearize
        return rule(ad, eqn, xs, dxs)
    ys = primal.copy(eqn, xs)
    if all(y.type.tangent is None for y in ys):
        return ys, [None] * len(ys)
    if eqn.op.operand_rules.jvp is not None:
        return ys, jvp_terms(eqn, ys, xs, dxs.values)
    return ys, linear_terms(eqn, xs, dxs)


def root_power_tangent(
    ad: Ad, product: RootPower, primal: Builder, env: dict[Value, Value], tangent: Builder, dot: dict[Value, Value]
) -> MaybeValue:
    """The tangent of a power of a root times other factors, see `powers_of_roots`."""
    root, power, degree = product.root, product.power, product.degree
    r, others = env[root.results[0]], {v: to_power(env[v], n) for v, n in product.others.items()}
    xs, dxs = [env[v] for v in root.operands], [dot.get(v) for v in root.operands]
    (s,), (ds,) = pushforward(ad, product.radicand(), primal, xs, tangent, dxs)

    def to_the(n: int) -> Value:
        """A power of the root; of what is under it, if that is exact."""
        return integer_pow.one(r, n=n) if n % degree else integer_pow.one(s, n=n // degree)

    # The derivative of `r^m`, with `r^d = s`, is `(m / d) r^(m - d) ds`.
    rate = [] if power == degree else [to_the(power - degree) * (power / degree)]
    total = None if ds is None else scaled(ds, [*rate, *others.values()])
    for other, n in product.others.items():
        if other in dot:
            slope = [] if n == 1 else [to_power(env[other], n - 1) * float(n)]
            rest = [*slope, *[y for v, y in others.items() if v is not other], to_the(power)]
            total = add_tangents(total, scaled(dot[other], rest))
    return total


def scaled(tangent: Value, factors: Sequence[Value]) -> Value:
    return tangent * reduce(mul, factors) if factors else tangent


def jvp_terms(eqn: Eqn, ys: Values, xs: Values, dxs: MaybeValues) -> list[MaybeValue]:
    """The sum of the terms that the op's rules give, one for each operand that has a tangent."""
    rules = eqn.op.operand_rules.jvp or ()
    y = ys[0] if len(ys) == 1 else ys
    total: list[MaybeValue] = [None] * len(ys)
    for i, dx in enumerate(dxs):
        if dx is None:
            continue
        rule = operand_rule(eqn, rules, i)
        total = add_terms(total, rule(dx, y, *xs, **eqn.attrs))
    return total


def linear_terms(eqn: Eqn, xs: Values, dxs: Tangents) -> list[MaybeValue]:
    """A linear op is its own tangent: term by term if it is multilinear, else with zeros for absent operands."""
    op, builder = eqn.op, dxs.builder
    rules, in_each = op.operand_rules.transpose or (), op.operand_rules.linear_in_each
    types = tuple([r.type.tangent or r.type for r in eqn.results])  # a linear op takes tangents like values
    total: list[MaybeValue] = [None] * len(eqn.results)
    for i, dx in enumerate(dxs.values):
        if dx is None:
            continue
        operand_rule(eqn, rules, i)
        if in_each:
            operands = tuple(map(builder.capture, (*xs[:i], dx, *xs[i + 1 :])))
            total = add_terms(total, builder.append(op, operands, types, **eqn.attrs))
    if in_each:
        return total
    # Jointly linear, as concat is: one equation on all tangents, so an absent tangent must be written as zeros.
    whole = [
        or_zeros(builder, dx, x.type) if find_operand_rule(rules, i) is not None and x.type.tangent is not None else x
        for i, (x, dx) in enumerate(zip(xs, dxs.values, strict=True))
    ]
    return list(builder.append(op, tuple(map(builder.capture, whole)), types, **eqn.attrs))


def find_operand_rule(rules: Sequence[Rule | None], i: int) -> Rule | None:
    """The rule of an operand; the last rule serves all further operands of an op that takes any number."""
    return rules[min(i, len(rules) - 1)] if rules else None


def operand_rule(eqn: Eqn, rules: Sequence[Rule | None], i: int) -> Rule:
    rule = find_operand_rule(rules, i)
    if rule is None:
        if eqn.op.module:
            raise missing_rule_error(eqn, i)
        raise InternalError(f"{eqn.op} has no derivative in operand {i}, which has a tangent")
    return rule


def missing_rule_error(eqn: Eqn, i: int) -> DifflangError:
    """The error of a derivative in an operand for which a user declared no rule. Errors: DL0413."""
    name = list(signature(eqn.op.type).parameters)[1 + i]
    message = f"the op `{eqn.op}` has no derivative in `{name}`"
    way = f"declare its rule, or write `stop(…)` around `{name}` if it should not contribute"
    return DifflangError(
        Diagnostic("DL0413", message, (Label(eqn.span, "a derivative goes through this call"),), (way,))
    )


def add_terms(total: list[MaybeValue], term: MaybeValue | Sequence[MaybeValue]) -> list[MaybeValue]:
    if term is None:
        return total
    terms = [term] if isinstance(term, Value) else term
    return [add_tangents(a, b) for a, b in zip(total, terms, strict=True)]


def check_tangent_type(eqn: Eqn, tangent: Value, like: Value) -> Value:
    want = like.type.tangent
    if tangent.type is not want and tangent.type != want:
        raise InternalError(f"the derivative of {eqn.op} has type {tangent.type}, not {want}")
    return tangent


def tangent_params(builder: Builder, params: Values, active: Mask) -> list[MaybeValue]:
    """A param for the tangent of each active param."""
    return [tangent_param(builder, p) if a else None for p, a in zip(params, active, strict=True)]


def tangent_param(builder: Builder, param: Value) -> Value:
    if param.type.tangent is None:
        raise InternalError(f"a {param.type} ({param.hint or 'unnamed'}) has no tangent")
    return builder.param(param.type.tangent, f"d_{param.hint}" if param.hint else "")


def recreate_constants(primal: Builder, captured: dict[Value, Value]) -> dict[Value, Eqn]:
    """Copies, for the tangent graph, of the captured constants: a constant is not worth a residual."""
    maker = {e.results[0]: e for e in primal.eqns if not e.operands and not e.regions and not e.op.effect}
    return {
        inside: Eqn(maker[outside].op, (), (inside,), maker[outside].attrs, (), maker[outside].span)
        for inside, outside in captured.items()
        if outside in maker
    }


# ---- Zero tangents, where the caller needs one for every result: branches of a `cond`, carries of a loop


def instantiate_tangents(lin: LinearizedGraph, force_active: Mask) -> LinearizedGraph:
    """The same, where the `force_active` results have a tangent even if it is zero."""
    types = [r.type for r in lin.primal.results[: len(lin.active)]]
    builder = Builder()
    params = [builder.param(p.type, p.hint) for p in lin.tangent.params]
    dys = spread_by_mask(builder.inline(lin.tangent, *params), lin.active)
    active = tuple([a or w for a, w in zip(lin.active, force_active, strict=True)])
    results = [or_zeros(builder, d, t) for d, t, a in zip(dys, types, active, strict=True) if a]
    return LinearizedGraph(lin.primal, builder.finish(results, name=lin.tangent.name), lin.residuals, active)


def instantiate_jvp_tangents(dual: JvpGraph, force_active: Mask) -> JvpGraph:
    """The same, where the `force_active` results have a tangent even if it is zero."""
    n = len(dual.active)
    builder = Builder()
    params = [builder.param(p.type, p.hint) for p in dual.graph.params]
    results = builder.inline(dual.graph, *params)
    ys, dys = results[:n], spread_by_mask(results[n:], dual.active)
    active = tuple([a or w for a, w in zip(dual.active, force_active, strict=True)])
    tangents = [d if d is not None else zeros(builder, y.type) for y, d, a in zip(ys, dys, active, strict=True) if a]
    return JvpGraph(builder.finish([*ys, *tangents], name=dual.graph.name), active)
