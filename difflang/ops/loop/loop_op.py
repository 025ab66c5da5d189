"""The `loop` op, for counted loops, `while` and `break`, forwards or in reverse. Its derivatives are loops too.

The rules are those of a scan with a step count; `while` has none of its own. How residuals are stored does not matter
to them: see `history_value` for loops of unknown length.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from msgspec.structs import replace

from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Attr, Attrs, Eqn, Graph, Value, Values
from difflang.ir.op import OPS, EquationRules, Inactive, MaybeValue, Op, OperandRules, RegionRules, TypeSolver
from difflang.ir.region_dataflow import RegionDataflow, RegionSlot
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import History, Type, sequence_item_type, stacked_type
from difflang.ops.ad_interface import (
    Ad,
    LinearizedGraph,
    Mask,
    ResidualSources,
    Tangents,
    TransposeRequest,
    always_iterates,
    classify_residuals,
    nonlinear_operands,
    or_zeros,
    presence_mask,
    present_values,
    require_same_types,
    spread_by_mask,
    unpack_cotangents,
    unread_params,
    with_signature,
    zeros,
)
from difflang.ops.control.cond import BOOL_SCALAR
from difflang.ops.loop.history_value import EmptyHistory, HistorySum
from difflang.ops.loop.host_offload import offload_residuals
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_execution import loop_lower, loop_reference
from difflang.ops.loop.loop_to_dataflow import loop_to_dataflow
from difflang.ops.loop.residual_selection import minimize_residuals
from difflang.ops.loop.reversible_loop import has_invertible_eqn
from difflang.ops.loop.step_transpose import (
    INDEX,
    IncomingCotangents,
    accumulating_step,
    carry_fixpoint,
    initial_carry,
    pair_with_choices,
    split_at,
    transpose_step,
    ungroup_results,
)
from difflang.ops.region_interface import ReferenceValue


def loop_type(same: TypeSolver, *types: Type, regions: tuple[Graph, ...], **attrs: Attr) -> tuple[Type, ...]:
    """loop(limit, *consts, *carry, *xs) {step} [{go}] -> count, *carry, *ys."""
    form, (step, *go) = LoopAttrs(**attrs), regions
    at, length = form.parts(types), form.length
    params, results = step.type
    require_same_types(same, "the limit of a loop", [at.first], [INDEX])
    for x in at.xs:
        check_step_sequence(same, x, length)
    require_same_types(same, "loop", [INDEX, *at.consts, *at.carry, *[sequence_item_type(x) for x in at.xs]], params)
    require_same_types(same, "the carry of a loop", results[: form.carry], at.carry)
    same.require(not (go and form.reverse), "a loop in reverse has no condition")
    same.require(not form.exact or (length is not None and not go), "an exact loop has a length and no condition")
    if go:
        require_same_types(same, "the condition of a loop", [INDEX, *at.consts, *at.carry], go[0].type[0])
        require_same_types(same, "the condition of a loop", go[0].type[1], [BOOL_SCALAR])
    whole = len(results) - form.history_outputs
    arrays, histories = results[form.carry : whole], results[whole:]
    return INDEX, *at.carry, *[stacked_type(y, length) for y in arrays], *[stacked_type(y, None) for y in histories]


def check_step_sequence(same: TypeSolver, x: Type, length: Dim | None) -> None:
    if isinstance(x, History):
        return
    same.require(length is not None, "a loop without a length reads histories")
    same.require(x.rank > 0, "a loop reads arrays along their first axis")
    if length is not None and x.rank > 0:
        same.size(x.shape[0], length, "number of steps")


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """Primal: the same loop, whose step also returns residuals. Tangent: `count` steps that read them."""
    form, step = LoopAttrs.of(eqn), eqn.regions[0]
    p, d, nk = form.parts(xs), form.parts(dxs.values), form.carry

    def active(carry: Mask) -> Mask:
        return (False, *presence_mask(d.consts), *carry, *presence_mask(d.xs))

    carry_on = carry_fixpoint(lambda carry: ad.linearize(step, active(carry)).active[:nk], presence_mask(d.carry))
    lin = ad.linearize(step, active(carry_on), (*carry_on, *(False for _ in step.results[nk:])))
    inner = form.parts(lin.primal.params)
    surely = always_iterates(eqn)
    lin = minimize_residuals(lin, inner.consts, [inner.first, *inner.xs], surely)
    home = xs[0].home
    kept = classify_residuals(
        lin,
        home,
        dict(zip(inner.consts, p.consts, strict=True)),
        dict(zip(inner.xs, p.xs, strict=True)),
        skip=inner.first,
        surely=surely,
    )
    if form.host:
        lin, made = offload_residuals(lin, kept.made, eqn.span)
        kept = replace(kept, made=made)
    count, *outs = emit_saving_residuals(
        eqn, xs, lin.primal.with_results([*lin.primal.results[: len(step.results)], *kept.made])
    )
    saved = outs[len(step.results) :]
    ys = [count, *outs[: len(step.results)]]
    if not any(lin.active):
        return ys, [None] * len(ys)
    start = [or_zeros(dxs.builder, x, v.type) for x, v, a in zip(d.carry, p.carry, carry_on, strict=True) if a]
    consts = [*kept.fixed.values(), *present_values(d.consts)]
    operands = [
        form.derived_limit(dxs.builder, count), *consts, *start, *kept.read.values(), *saved, *present_values(d.xs)
    ]  # fmt: skip
    tangent = tangent_step(lin, kept, inner.first, presence_mask(d.consts), len(start))
    others = {k: v for k, v in eqn.attrs.items() if k != "reversible"}
    attrs: dict[str, Attr] = {**others, "consts": len(consts), "carry": len(start)}
    kinds = [h for h, a in zip(history_mask(eqn), lin.active[nk:], strict=True) if a]
    dys = emit_loop(dxs.builder, operands, (tangent,), attrs, kinds)
    return ys, [None, *spread_by_mask(dys[1:], lin.active)]


def emit_saving_residuals(eqn: Eqn, xs: Values, step: Graph) -> list[Value]:
    """The loop with residuals as further outputs: histories if it stores only some states or can invert steps."""
    form, n = LoopAttrs.of(eqn), len(eqn.regions[0].results)
    more = len(step.results) - n
    # Histories in the program itself: they are read as they were stored.
    own = n > form.carry and form.length is None
    undo = form.reversible or (form.keep == (0, 0) and not own and more > 0 and has_invertible_eqn(step))
    attrs: Attrs = {**eqn.attrs, "reversible": True} if undo else eqn.attrs
    kinds = [*history_mask(eqn), *[undo or form.recomputes_states] * more]
    return emit_loop(xs[0].home, xs, (step, *eqn.regions[1:]), attrs, kinds)


def history_mask(eqn: Eqn) -> Mask:
    """Which outputs of a loop are histories."""
    return tuple([isinstance(r.type, History) for r in eqn.results[1 + LoopAttrs.of(eqn).carry :]])


def emit_loop(
    builder: Builder, operands: Sequence[Value], regions: tuple[Graph, ...], attrs: Attrs, kinds: Sequence[bool]
) -> list[Value]:
    """A loop whose outputs are histories where `kinds` is true, or all if its length is not known.

    A loop of known length has its histories last; the results here are in the order of `kinds`.
    """
    others = {k: v for k, v in attrs.items() if k != "history_outputs"}
    if attrs["length"] is None or not any(kinds):
        return list(builder.emit(loop, operands, regions, **others))
    order = sorted(range(len(kinds)), key=kinds.__getitem__)
    carry, ys = split_at(regions[0].results, attrs["carry"])
    step = regions[0].with_results([*carry, *[ys[i] for i in order]])
    outs = builder.emit(loop, operands, (step, *regions[1:]), **others, history_outputs=sum(kinds))
    first, outputs = split_at(outs, 1 + len(carry))
    found = dict(zip(order, outputs, strict=True))
    return [*first, *[found[i] for i in range(len(kinds))]]


def tangent_step(lin: LinearizedGraph, kept: ResidualSources, index: Value, consts: Mask, carry: int) -> Graph:
    """The step's tangent with its params in the order of a loop."""
    nc = sum(consts)
    dconsts, dcarry, dxs = split_at(lin.tangent_params, nc, nc + carry)
    at = kept.tangent_params(lin, [index]) if index in lin.residuals else [Value(INDEX, lin.tangent.params[0].home)]
    fixed, moving = kept.tangent_params(lin, kept.fixed), kept.tangent_params(lin, [*kept.read, *kept.made])
    return with_signature(lin.tangent, [*at, *fixed, *dconsts, *dcarry, *moving, *dxs])


def jvp(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """One loop carries values and tangents: nothing is saved."""
    form, (step, *go) = LoopAttrs.of(eqn), eqn.regions
    p, d, nk = form.parts(xs), form.parts(dxs.values), form.carry

    def active(carry: Mask) -> Mask:
        return (False, *presence_mask(d.consts), *carry, *presence_mask(d.xs))

    carry_on = carry_fixpoint(lambda carry: ad.jvp(step, active(carry)).active[:nk], presence_mask(d.carry))
    pushed = ad.jvp(step, active(carry_on), (*carry_on, *(False for _ in step.results[nk:])))
    dconsts = present_values(d.consts)
    start = [or_zeros(dxs.builder, x, v.type) for x, v, a in zip(d.carry, p.carry, carry_on, strict=True) if a]
    operands = [p.first, *p.consts, *dconsts, *p.carry, *start, *p.xs, *present_values(d.xs)]
    n, na = len(step.results), len(start)
    inner = form.parts(pushed.graph.params[: len(step.params)])
    ic, ik, ix = split_at(pushed.graph.params[len(step.params) :], len(dconsts), len(dconsts) + na)
    carry, ys = split_at(pushed.graph.results[:n], nk)
    dcarry, dys = split_at(pushed.graph.results[n:], na)
    both = with_signature(
        pushed.graph,
        [inner.first, *inner.consts, *ic, *inner.carry, *ik, *inner.xs, *ix],
        [*carry, *dcarry, *ys, *dys],
    )
    attrs: dict[str, Attr] = {**eqn.attrs, "consts": len(p.consts) + len(dconsts), "carry": nk + na}
    regions = (both, *[with_tangent_params(g, form, ic, ik) for g in go])
    kinds = [*history_mask(eqn), *[h for h, a in zip(history_mask(eqn), pushed.active[nk:], strict=True) if a]]
    outs = emit_loop(dxs.builder, operands, regions, attrs, kinds)
    new_carry, new_dcarry, new_ys, new_dys = split_at(outs[1:], nk, nk + na, nk + na + len(ys))
    return [outs[0], *new_carry, *new_ys], [None, *spread_by_mask([*new_dcarry, *new_dys], pushed.active)]


def with_tangent_params(go: Graph, form: LoopAttrs, dconsts: Sequence[Value], dcarry: Sequence[Value]) -> Graph:
    """The condition with further params for tangents, which it does not read."""
    at = form.parts(go.params)
    return with_signature(go, [at.first, *at.consts, *unread_params(dconsts), *at.carry, *unread_params(dcarry)])


def transpose(ad: Ad, eqn: Eqn, at: TransposeRequest) -> list[MaybeValue]:
    """The same count in the other direction: cotangents of consts are summed in the carry, those of xs are outputs."""
    form, (step,) = LoopAttrs.of(eqn), eqn.regions
    is_linear, primal = form.parts(at.linear), form.parts(at.nonlinear)
    if primal.first is None:
        raise InternalError("a loop cannot be linear in its limit")
    # A tangent loop carries only tangents.
    mask = (False, *is_linear.consts, *(True for _ in is_linear.carry), *is_linear.xs)
    incoming = IncomingCotangents(at.cts[1:], at.ct_choices[1:], slice(1 + form.consts, 1 + form.consts + form.carry))
    back = transpose_step(ad, step, mask, incoming)
    if not any(back.active):
        return [None] * len(at.linear)
    consts, xs = nonlinear_operands(primal.consts, is_linear.consts), nonlinear_operands(primal.xs, is_linear.xs)
    start = initial_carry(at.builder, back, step, incoming)
    sums = incoming.count_by_group(back.active)[0] + incoming.count_by_group(back.chosen)[0]
    whole = accumulating_step(
        pair_with_choices(back, 1 + len(consts) + len(xs), incoming), (len(consts), len(xs)), len(start), sums,
        at.builder.span,
    )  # fmt: skip
    totals = [zeros(at.builder, r.type) for r in whole.results[:sums]]
    limit, ys = (
        form.derived_limit(at.builder, primal.first),
        [*present_values(incoming.cts[form.carry :]), *present_values(incoming.choices[form.carry :])],
    )
    attrs: dict[str, Attr] = {
        **eqn.attrs,
        "consts": len(consts),
        "carry": sums + len(start),
        "reverse": not form.reverse,
    }
    operands = [limit, *consts, *totals, *start, *xs, *ys]
    items = [isinstance(x.type, History) for x in form.parts(eqn.operands).xs]
    kinds = [
        h for mask in (back.active, back.chosen) for h, m in zip(items, mask[incoming.carries.stop :], strict=True) if m
    ]
    outs = emit_loop(at.builder, operands, (whole,), attrs, kinds)[1:]
    return unpack_cotangents(ungroup_results(outs, back, incoming), back, at.choices)


def loop_dataflow(eqn: Eqn) -> RegionDataflow:
    """`loop(limit, *consts, *carry, *xs) {step(index, ...)} [{go(index, ...)}]`."""
    consts, carry = eqn.attrs["consts"], eqn.attrs["carry"]
    assert isinstance(consts, int) and isinstance(carry, int)
    # A loop without a condition has one region; the condition takes the same params but returns no carry.
    go = len(eqn.regions) - 1
    slots = [RegionSlot(i, (i,) * (1 + go), counted="consts", invariant=True) for i in range(1, 1 + consts)]
    for k in range(carry):
        at = 1 + consts + k
        slots.append(RegionSlot(at, (at,) * (1 + go), (k, *(None,) * go), 1 + k, "carry"))
    slots += [RegionSlot(i, (i, *(None,) * go)) for i in range(1 + consts + carry, len(eqn.operands))]
    # Results are the step count, carries, outputs of arrays, and last those of histories, which are counted.
    ys, histories = range(carry, len(eqn.results) - 1), eqn.attrs.get("history_outputs", 0)
    counted = [""] * (len(ys) - histories) + ["history_outputs"] * histories
    slots += [RegionSlot(returns=(j, *(None,) * go), result=1 + j, counted=c) for j, c in zip(ys, counted, strict=True)]
    return RegionDataflow(tuple(slots), repeats=True, new_consts_at=1 + consts)


loop = OPS.declare(
    Op(
        "loop",
        loop_type,
        loop_reference,
        loop_lower,
        traits=("fusion barrier",),
        derivative=EquationRules(linearize=linearize, jvp=jvp, transpose=transpose),
        regions=RegionRules(loop_to_dataflow, loop_dataflow),
        doc="""loop(limit, *consts, *carry, *xs) {step} [{go}]: at most `limit` steps, and only while `go`. It gives the
        number of steps taken, the carry after them, and what each step gave besides, zero beyond the last. With a `go`
        a negative limit is none; without one it is no step.
        Kinks: the derivative is that of the steps taken.""",
    )
)


def empty_history_type(same: TypeSolver, *, type: Type) -> Type:
    same.require(isinstance(type, History), "{} is not a history", type)
    return type


def add_history_type(same: TypeSolver, x: Type, y: Type) -> Type:
    same.require(isinstance(x, History), "{} is not a history", x)
    require_same_types(same, "add_history", [y], [x])
    return x


def add_item_lists(x: ReferenceValue, y: ReferenceValue) -> ReferenceValue:
    if not isinstance(x, list) or not isinstance(y, list):
        return np.add(x, y)
    return [b if a is None else a if b is None else add_item_lists(a, b) for a, b in zip_longest(x, y)]


empty_history = OPS.declare(
    Op(
        "empty_history",
        empty_history_type,
        lambda type: [],
        lambda jax, type: EmptyHistory(),
        derivative=Inactive(),
        doc="""A history without items: it reads zero everywhere.""",
    )
)
add_history = OPS.declare(
    Op(
        "add_history",
        add_history_type,
        add_item_lists,
        lambda jax, x, y: HistorySum(x, y),
        derivative=OperandRules(
            jvp=(lambda d, z, x, y: d, lambda d, z, x, y: d), transpose=(lambda ct, x, y: ct, lambda ct, x, y: ct)
        ),
        doc="""The sum of two histories, item by item; of truths, whether one holds. The shorter one is continued by
        zeros.""",
    )
)
