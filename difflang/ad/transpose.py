"""Transposition: a linear graph turned round. What is not linear in it is computed forwards, as it was.

Where a choice, element by element, gives one side no cotangent, that zero must not meet an Inf or NaN on its way back:
products along the way are chosen again, so that the side not chosen contributes exactly nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ad.cotangents import Cotangents
from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import OPS, MaybeValue, Unknown
from difflang.ops.regions import Ad, Mask, Transposed, or_zeros, spread

Env = dict[Value, Value]


def transpose(ad: Ad, graph: Graph, linear: Mask, present: Mask) -> Transposed:
    """A linear graph turned round: from cotangents of its results to cotangents of its linear params.

    Shapes: takes the other params, then a cotangent like each result where `present`; gives a cotangent like each
            linear param that one reaches.
    Errors: InternalError if an equation is not linear where `linear` says it is.
    Cost:   one walk forward over what is not linear, one walk back over what is.
    Source: Radul et al. 2023, You Only Linearize Once.
    """
    builder = Builder()
    env = {p: builder.param(p.type, p.hint) for p, is_linear in zip(graph.params, linear, strict=True) if not is_linear}
    params = {p for p, is_linear in zip(graph.params, linear, strict=True) if is_linear}
    cts = [builder.param(r.type, "ct") if p else None for r, p in zip(graph.results, present, strict=True)]
    found = pull(ad, graph.eqns, builder, env, params, list(zip(graph.results, cts, strict=True)))
    back = [found.take(p) for p in graph.params]
    results = [c for c in back if c is not None]
    return Transposed(builder.finish(results, name=graph.name), tuple([c is not None for c in back]))


def pull(
    ad: Ad,
    eqns: Sequence[Eqn],
    builder: Builder,
    env: Env,
    linear: set[Value],
    cts: Sequence[tuple[Value, MaybeValue]],
) -> Cotangents:
    """Emit in `builder` what pulls cotangents back through `eqns`, to the values in `linear`.

    `env` says what the values that are not linear are called in `builder`, `cts` which value has which cotangent. Gives
    the cotangents of the linear values that equations do not define. `env` and `linear` grow.
    """
    backwards: list[Eqn] = []
    for eqn in eqns:
        if linear.isdisjoint(eqn.operands):
            env.update(zip(eqn.results, builder.copy(eqn, tuple([env[v] for v in eqn.operands])), strict=True))
        else:
            linear.update([r for r in eqn.results if r.type.tangent is not None])
            backwards.append(eqn)
    found = Cotangents(builder)
    for value, ct in cts:
        if ct is not None and value in linear:
            found.add(value, ct)
    for eqn in reversed(backwards):
        builder.span = eqn.span
        arriving = [found.take(r) for r in eqn.results]
        if not any(ct is not None for ct in arriving):
            continue
        part = eqn.op.window(eqn) if eqn.op.window is not None else None
        if part is not None and arriving[0] is not None:
            axis, window = part
            found.put(eqn.operands[0], axis, window, arriving[0])
            continue
        leaving = pull_eqn(ad, eqn, builder, arriving, env, linear)
        if eqn.op.elementwise:
            leaving = chosen(eqn, arriving[0], leaving, found, env, linear)
        for value, ct in zip(eqn.operands, leaving, strict=True):
            if ct is not None and value in linear:
                found.add(value, checked(eqn, ct, value))
    return found


def chosen(
    eqn: Eqn, ct: MaybeValue, back: Sequence[MaybeValue], found: Cotangents, env: Env, linear: set[Value]
) -> Sequence[MaybeValue]:
    """Cotangents after an equation, exactly zero where the one that arrived is so by a choice."""
    choices = found.choices
    before = choices.get(ct) if ct is not None else None
    if eqn.op.chooses:
        for side, new in enumerate(back):
            if new is not None:
                here = env[eqn.operands[0]] if side == 1 else found.other_side(env[eqn.operands[0]])
                choices[new] = here if before is None else OPS["logical_and"].one(before, here)
        return back
    if before is None:
        return back
    scales = any(v not in linear for v in eqn.operands)  # by something that may be infinite
    after: list[MaybeValue] = []
    for new in back:
        if new is not None and new is not ct:
            if scales:
                new = OPS["select"].one(before, new, new.home.const(0.0, new.type))
            choices[new] = before
        after.append(new)
    return after


def pull_eqn(
    ad: Ad, eqn: Eqn, builder: Builder, cts: list[MaybeValue], env: Env, linear: set[Value]
) -> Sequence[MaybeValue]:
    """The cotangents of one linear equation's operands."""
    op = eqn.op
    is_linear = tuple([v in linear for v in eqn.operands])
    if op.transpose_region is not None:
        return op.transpose_region(ad, eqn, builder, cts, is_linear, [env.get(v) for v in eqn.operands])
    rules = op.transpose
    if rules is None or (op.term_by_term and sum(is_linear) != 1):
        raise InternalError(f"{op} is not linear in its operands {[i for i, here in enumerate(is_linear) if here]}")
    operands = [unknown(v) if here else env[v] for v, here in zip(eqn.operands, is_linear, strict=True)]
    ct = cts[0] if len(cts) == 1 else tuple(cts)
    back: list[MaybeValue] = []
    for i, here in enumerate(is_linear):
        rule = rules[min(i, len(rules) - 1)]
        if here and rule is None:
            raise InternalError(f"{op} is not linear in operand {i}")
        back.append(rule(ct, *operands, **eqn.attrs) if here and rule is not None else None)
    return back


def unknown(value: Value) -> Unknown:
    return Unknown(value.type)  # pyright: ignore[reportArgumentType]  a history, where the op is a sum of histories


def checked(eqn: Eqn, ct: Value, like: Value) -> Value:
    if ct.type is not like.type and ct.type != like.type:
        raise InternalError(f"the transpose of {eqn.op} gives {ct.type} where {like.type} is due")
    return ct


def with_cotangents(graph: Graph, transposed: Transposed, wanted: Mask) -> Transposed:
    """The same, where the `wanted` params get a cotangent even if it is zero. `graph` is what was transposed."""
    builder = Builder()
    params = [builder.param(p.type, p.hint) for p in transposed.graph.params]
    cts = spread(builder.inline(transposed.graph, *params), transposed.active)
    active = tuple([a or w for a, w in zip(transposed.active, wanted, strict=True)])
    results = [or_zeros(builder, c, p.type) for c, p, a in zip(cts, graph.params, active, strict=True) if a]
    return Transposed(builder.finish(results, name=graph.name), active)
