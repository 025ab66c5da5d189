"""Transposition of linear graphs: from cotangents of the results to cotangents of the linear params (reverse mode).

Equations that are not linear are computed forwards, as they were. Where a `select` gives one operand a zero cotangent,
that zero must not meet an Inf or NaN in a later product: masks are applied again after products, so that the operand
that was not selected contributes exactly nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from difflang.ad.cotangent_accumulator import CotangentAccumulator
from difflang.base.diagnostics import InternalError
from difflang.base.source import NO_SPAN, backward_span
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import MaybeValue, UndefinedPrimal, ValueRule, Window
from difflang.ir.tensor_types import Tensor
from difflang.ops.ad_interface import (
    Ad,
    Cotangent,
    Cotangents,
    Mask,
    MaybeValues,
    TransposedGraph,
    TransposeRequest,
    choice_type,
    choices_of,
    classify_cotangents,
    or_zeros,
    presence_mask,
    present_values,
    spread_by_mask,
)
from difflang.ops.arrays.axis_reductions import any_broadcast_like
from difflang.ops.control.print_effect import without_prints
from difflang.ops.elementwise.comparison_and_logic import ne
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import tensor_type

Env = dict[Value, Value]


def transpose(ad: Ad, graph: Graph, linear: Mask, arriving: Cotangents) -> TransposedGraph:
    """The transpose of a linear graph: from cotangents of its results to cotangents of its linear params.

    Shapes: takes the other params, then the `arriving` cotangents, then their masks; gives a cotangent like each linear
            param that one reaches, then their masks.
    Errors: InternalError if an equation is not linear where `linear` says it is.
    Cost:   one walk forwards over the equations that are not linear, one walk backwards over the others.
    Source: Radul et al. 2023, You Only Linearize Once.
    """
    # The primal graph has printed already, so the transpose must not print a second time.
    graph, builder = without_prints(graph), Builder()
    env = {p: builder.param(p.type, p.hint) for p, is_linear in zip(graph.params, linear, strict=True) if not is_linear}
    params = {p for p, is_linear in zip(graph.params, linear, strict=True) if is_linear}
    cts = [
        builder.param(r.type, cotangent_hint(r)) if p else None for r, p in zip(graph.results, arriving, strict=True)
    ]
    choices = {
        ct: builder.param(choice_type(ct.type))
        for ct, p in zip(cts, arriving, strict=True)
        if p is Cotangent.CHOSEN and ct is not None
    }
    found = pullback(ad, graph.eqns, builder, env, params, list(zip(graph.results, cts, strict=True)), choices)
    back = [found.take(p) for p in graph.params]
    for param, ct in zip(graph.params, back, strict=True):
        if ct is not None:
            ct.name_as_tangent_of(param)
    kept = choices_of(back, found.masks)
    return TransposedGraph(
        builder.finish([*present_values(back), *present_values(kept)], name=graph.name),
        classify_cotangents(presence_mask(back), presence_mask(kept)),
    )


def cotangent_hint(tangent: Value) -> str:
    """The name hint of a cotangent: that of the tangent if it is named after a value, else `ct`."""
    return tangent.hint if tangent.hint.startswith("d_") else "ct"


def pullback(
    ad: Ad,
    eqns: Sequence[Eqn],
    builder: Builder,
    env: Env,
    linear: set[Value],
    cts: Sequence[tuple[Value, MaybeValue]],
    choices: Mapping[Value, Value] | None = None,
) -> CotangentAccumulator:
    """Emit in `builder` the equations that pull cotangents back through `eqns`, to the values in `linear`.

    `env` maps the values that are not linear to those in `builder`, `cts` pairs values with cotangents, and `choices`
    maps cotangents to their masks. Returns the cotangents of the linear values that `eqns` do not define. Extends `env`
    and `linear`.
    """
    # A result is linear as soon as one operand is; all other equations are evaluated before any cotangent is pulled.
    backwards: list[Eqn] = []
    for eqn in eqns:
        if linear.isdisjoint(eqn.operands):
            operands = tuple([env[v] for v in eqn.operands])
            env.update(zip(eqn.results, builder.copy(eqn, operands, backward_span(eqn.span)), strict=True))
        else:
            linear.update([r for r in eqn.results if r.type.tangent is not None])
            backwards.append(eqn)
    found = CotangentAccumulator(builder, choices, ad.total)
    builder.span = backward_span(NO_SPAN)  # a value that arrives several times has the sum, which is in no line
    for value, ct in cts:
        if ct is not None and value in linear:
            found.add(value, ct)
    for eqn in reversed(backwards):
        builder.span = backward_span(eqn.span)
        arriving = [found.take(r) for r in eqn.results]
        for result, ct in zip(eqn.results, arriving, strict=True):
            if ct is not None:
                ct.name_as_tangent_of(result)
        if not any(ct is not None for ct in arriving):
            continue
        # Slices are collected and joined at the end, instead of each being padded to the whole array and added.
        part = eqn.op.movement.bounds(eqn) if isinstance(eqn.op.movement, Window) else None
        if part is not None and arriving[0] is not None:
            axis, window = part
            found.add_slice(eqn.operands[0], axis, window, arriving[0])
            continue
        leaving = pullback_eqn(ad, eqn, builder, arriving, env, linear, found)
        for value, ct in zip(eqn.operands, leaving, strict=True):
            if ct is not None and value in linear:
                found.add(value, check_cotangent_type(eqn, ct, value))
    return found


def pullback_eqn(
    ad: Ad, eqn: Eqn, builder: Builder, cts: list[MaybeValue], env: Env, linear: set[Value], found: CotangentAccumulator
) -> Sequence[MaybeValue]:
    """The cotangents of one linear equation's operands. Their masks are recorded in `found`."""
    op = eqn.op
    is_linear = tuple([v in linear for v in eqn.operands])
    if op.equation_rules is not None and op.equation_rules.transpose is not None:
        known = [env.get(v) for v in eqn.operands]
        return op.equation_rules.transpose(ad, eqn, TransposeRequest(builder, cts, is_linear, known, found.masks))
    rules = op.operand_rules.transpose
    if rules is None or (op.operand_rules.linear_in_each and sum(is_linear) != 1):
        raise InternalError(f"{op} is not linear in its operands {[i for i, here in enumerate(is_linear) if here]}")
    operands = [unknown_operand(v) if here else env[v] for v, here in zip(eqn.operands, is_linear, strict=True)]
    ct = cts[0] if len(cts) == 1 else tuple(cts)
    before = incoming_mask(eqn, builder, cts, found.masks)
    back: list[MaybeValue] = []
    for i, here in enumerate(is_linear):
        rule = rules[min(i, len(rules) - 1)]
        if here and rule is None:
            raise InternalError(f"{op} is not linear in operand {i}")
        new = rule(ct, *operands, **eqn.attrs) if here and rule is not None else None
        if rule is not None and new is not None and new is not ct:
            if "select" in op.traits:
                found.set_mask(new, before, found.select_mask(env[eqn.operands[0]], i))
            elif before is not None:
                new = found.set_mask(*propagate_mask(eqn, rule, i, operands, new, before))
        back.append(new)
    return back


def unknown_operand(value: Value) -> UndefinedPrimal:
    # The type may be a history, where the op is a sum of histories.
    return UndefinedPrimal(value.type)  # pyright: ignore[reportArgumentType]


def check_cotangent_type(eqn: Eqn, ct: Value, like: Value) -> Value:
    if ct.type is not like.type and ct.type != like.type:
        raise InternalError(f"the transpose of {eqn.op} has type {ct.type}, not {like.type}")
    return ct


def instantiate_cotangents(graph: Graph, transposed: TransposedGraph, leaving: Cotangents) -> TransposedGraph:
    """The transpose of `graph` with more cotangents `leaving`: they are zero. More masks hold everywhere."""
    builder = Builder()
    params = [builder.param(p.type, p.hint) for p in transposed.graph.params]
    outs = builder.inline(transposed.graph, *params)
    count = sum(transposed.active)
    cts, choices = spread_by_mask(outs[:count], transposed.active), spread_by_mask(outs[count:], transposed.chosen)
    results = [or_zeros(builder, ct, p.type) for ct, p, c in zip(cts, graph.params, leaving, strict=True) if c]
    kept = [
        or_zeros(builder, choice, choice_type(p.type))
        if choice or ct is None
        else builder.const(True, choice_type(p.type))
        for choice, ct, p, c in zip(choices, cts, graph.params, leaving, strict=True)
        if c is Cotangent.CHOSEN
    ]
    return TransposedGraph(builder.finish([*results, *kept], name=graph.name), leaving)


# ---- Masks. A mask is an array of bools: where it is false, a cotangent is exactly zero, even next to Inf or NaN.

Operands = Sequence[Value | UndefinedPrimal]
CotangentMask = Any  # a value, or a tuple with one for each result of an op


def incoming_mask(eqn: Eqn, builder: Builder, cts: MaybeValues, choices: Mapping[Value, Value]) -> CotangentMask | None:
    """The mask of the cotangent of an equation's result; of several results, one for each if there is any."""
    found = choices_of(cts, choices)
    if len(cts) == 1 or eqn.op.operand_rules.mask_transpose is None or not any(presence_mask(found)):
        return found[0] if len(cts) == 1 else None
    return tuple([
        builder.const(ct is not None, choice_type(r.type)) if choice is None else choice
        for ct, choice, r in zip(cts, found, eqn.results, strict=True)
    ])  # fmt: skip


def propagate_mask(
    eqn: Eqn, rule: ValueRule, place: int, operands: Operands, ct: Value, choice: CotangentMask
) -> tuple[Value, Value]:
    """The cotangent that `rule` gave for the operand at `place`, made zero where the mask is false; and its mask."""
    # The factor of an elementwise op may be infinite, and so may the factors of an op that mixes all elements: the mask
    # is applied after the product. A sum of products has no such mask; each of its terms would need one.
    op = eqn.op
    scaled = any([isinstance(v, Value) and v.type.tangent is not None for v in operands])
    if op.elementwise:
        return apply_mask(choice, ct) if scaled else ct, choice
    if (mask_rule := op.operand_rules.mask_transpose) is not None:
        return ct, mask_rule(choice, place, *operands, **eqn.attrs)
    if "disjoint transpose" in op.traits:
        return ct, rule(choice, *operands, **eqn.attrs)
    if "data movement" in op.traits:
        # The transpose adds ones and subtracts nothing: a sum is zero only where no element with a true mask enters.
        ones = rule(mask_as_numbers(choice, tensor_type(ct)), *operands, **eqn.attrs)
        return ct, ne.one(ones, ones.home.const(0.0, ones.type))
    some = any_broadcast_like(choice, ct)
    return apply_mask(some, ct) if scaled else ct, some


def apply_mask(choice: Value, ct: Value) -> Value:
    return select.one(choice, ct, ct.home.const(0.0, ct.type))


def mask_as_numbers(choice: Value, like: Tensor) -> Value:
    """One where the mask holds and zero elsewhere."""
    type = Tensor(like.dtype, tensor_type(choice).shape)
    return select.one(choice, choice.home.const(1.0, type), choice.home.const(0.0, type))
