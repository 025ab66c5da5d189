"""The one loop: counted, `while` and `break` alike, forwards or in reverse. Its derivatives are loops again.

The rules are those of a scan with a count; there is none for `while`. How the residuals of a loop are kept is no
concern of them: see `history` for what saves them where the length is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Attrs, Eqn, Graph, Value, Values
from difflang.ir.op import OPS, MaybeValue, Op, Solver
from difflang.ir.region_dataflow import loop_layout
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import History, Type, item_of, stacked
from difflang.ops.ad_interface import (
    Ad,
    Linearized,
    Mask,
    Sorted,
    Tangents,
    Turning,
    alike,
    known_where,
    leaving,
    on,
    or_zeros,
    present,
    reordered,
    sort_residuals,
    spread,
    surely_steps,
    unread,
    zeros,
)
from difflang.ops.control.cond import TRUTH
from difflang.ops.loop.host_offload import offloaded
from difflang.ops.loop.loop_execution import loop_lower, loop_reference
from difflang.ops.loop.residual_selection import frugal
from difflang.ops.loop.reversible_loop import reversible
from difflang.ops.loop.step_transpose import (
    INDEX,
    Arriving,
    apart,
    cut,
    first_carry,
    in_pairs,
    settled,
    transposed_step,
    turned,
)


class Form(NamedTuple):
    """The attributes of a loop."""

    consts: int
    carry: int
    length: Dim | None
    exact: bool
    reverse: bool
    keep: tuple[int, ...] = (0, 0)  # states that reverse mode keeps, and steps between them; 0: as many as seems good.
    # A third number says that of the steps between two is kept what is read back, while these are gone through
    again: int = 0  # so many of what its steps give, the last, are histories, though their number is known
    undo: bool = False  # it was made for a derivative alone: its states may be had again by undoing steps
    host: bool = False  # what reverse mode keeps of its steps goes to the memory of the host

    @classmethod
    def of(cls, eqn: Eqn) -> Form:
        return cls(**eqn.attrs)

    @property
    def thrifty(self) -> bool:
        """Whether reverse mode computes again what the states that it keeps give, for want of room for every step."""
        slots, steps, *_ = self.keep
        every = isinstance(self.length, int) and steps == 1 and slots >= self.length
        return self.keep != (0, 0) and not every

    def parts(self, values: Sequence[Any]) -> Parts:
        """Operands, or params of the step, or masks of either."""
        a, b = 1 + self.consts, 1 + self.consts + self.carry
        return Parts(values[0], list(values[1:a]), list(values[a:b]), list(values[b:]))

    def limit(self, builder: Builder, limit: Value) -> Value:
        """The limit of a derived loop: an exact one knows its own."""
        return builder.const(self.length, INDEX) if self.exact and isinstance(self.length, int) else limit


class Parts(NamedTuple):
    first: Any  # the limit; of a step, the index
    consts: list[Any]
    carry: list[Any]
    xs: list[Any]


def loop_type(
    same: Solver,
    *types: Type,
    regions: tuple[Graph, ...],
    consts: int,
    carry: int,
    length: Dim | None,
    exact: bool,
    reverse: bool,
    keep: tuple[int, ...] = (0, 0),
    again: int = 0,
    host: bool = False,
    undo: bool = False,
) -> tuple[Type, ...]:
    """loop(limit, *consts, *carry, *xs) {step} [{go}] -> count, *carry, *ys."""
    step, *go = regions
    at = Form(consts, carry, length, exact, reverse).parts(types)
    params, results = step.type
    alike(same, "the limit of a loop", [at.first], [INDEX])
    for x in at.xs:
        sequence_of_steps(same, x, length)
    alike(same, "loop", [INDEX, *at.consts, *at.carry, *[item_of(x) for x in at.xs]], params)
    alike(same, "the carry of a loop", results[:carry], at.carry)
    same.require(not (go and reverse), "a loop in reverse has no condition")
    same.require(not exact or (length is not None and not go), "an exact loop has a length and no condition")
    if go:
        alike(same, "the condition of a loop", [INDEX, *at.consts, *at.carry], go[0].type[0])
        alike(same, "the condition of a loop", go[0].type[1], [TRUTH])
    whole = len(results) - again
    arrays, histories = results[carry:whole], results[whole:]
    return INDEX, *at.carry, *[stacked(y, length) for y in arrays], *[stacked(y, None) for y in histories]


def sequence_of_steps(same: Solver, x: Type, length: Dim | None) -> None:
    if isinstance(x, History):
        return
    same.require(length is not None, "a loop without a length reads histories")
    same.require(x.rank > 0, "a loop reads arrays along their first axis")
    if length is not None and x.rank > 0:
        same.size(x.shape[0], length, "number of steps")


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """Primal: the same loop, giving what its step's tangent captures. Tangent: `count` steps that read it."""
    form, step = Form.of(eqn), eqn.regions[0]
    p, d, nk = form.parts(xs), form.parts(dxs.values), form.carry

    def active(carry: Mask) -> Mask:
        return (False, *on(d.consts), *carry, *on(d.xs))

    carry_on = settled(lambda carry: ad.linearize(step, active(carry)).active[:nk], on(d.carry))
    lin = ad.linearize(step, active(carry_on), (*carry_on, *(False for _ in step.results[nk:])))
    inner = form.parts(lin.primal.params)
    surely = surely_steps(eqn)
    lin = frugal(lin, inner.consts, [inner.first, *inner.xs], surely)
    home = xs[0].home
    kept = sort_residuals(
        lin,
        home,
        dict(zip(inner.consts, p.consts, strict=True)),
        dict(zip(inner.xs, p.xs, strict=True)),
        skip=inner.first,
        surely=surely,
    )
    if form.host:
        lin, made = offloaded(lin, kept.made, eqn.span)
        kept = replace(kept, made=made)
    count, *outs = saving(eqn, xs, lin.primal.with_results([*lin.primal.results[: len(step.results)], *kept.made]))
    saved = outs[len(step.results) :]
    ys = [count, *outs[: len(step.results)]]
    if not any(lin.active):
        return ys, [None] * len(ys)
    start = [or_zeros(dxs.builder, x, v.type) for x, v, a in zip(d.carry, p.carry, carry_on, strict=True) if a]
    consts = [*kept.fixed.values(), *present(d.consts)]
    operands = [
        form.limit(dxs.builder, count), *consts, *start, *kept.read.values(), *saved, *present(d.xs)
    ]  # fmt: skip
    tangent = tangent_step(lin, kept, inner.first, on(d.consts), len(start))
    others = {k: v for k, v in eqn.attrs.items() if k != "undo"}
    attrs: dict[str, Any] = {**others, "consts": len(consts), "carry": len(start)}
    kinds = [h for h, a in zip(histories(eqn), lin.active[nk:], strict=True) if a]
    dys = giving(dxs.builder, operands, (tangent,), attrs, kinds)
    return ys, [None, *spread(dys[1:], lin.active)]


def saving(eqn: Eqn, xs: Values, step: Graph) -> list[Value]:
    """The loop, its steps giving more: as histories, where it is said which states are kept or how to undo steps."""
    form, n = Form.of(eqn), len(eqn.regions[0].results)
    more = len(step.results) - n
    own = n > form.carry and form.length is None  # histories that the program made: they are read as they were
    undo = form.undo or (form.keep == (0, 0) and not own and more > 0 and reversible(step))
    attrs: Attrs = {**eqn.attrs, "undo": True} if undo else eqn.attrs
    kinds = [*histories(eqn), *[undo or form.thrifty] * more]
    return giving(xs[0].home, xs, (step, *eqn.regions[1:]), attrs, kinds)


def histories(eqn: Eqn) -> Mask:
    """Which of the outputs of a loop are histories."""
    return tuple([isinstance(r.type, History) for r in eqn.results[1 + Form.of(eqn).carry :]])


def giving(
    builder: Builder, operands: Sequence[Value], regions: tuple[Graph, ...], attrs: Attrs, kinds: Sequence[bool]
) -> list[Value]:
    """A loop whose outputs are histories where `kinds` says so, or all where its length is not known.

    Where it is known its step gives those last; here they are in the order of `kinds`.
    """
    others = {k: v for k, v in attrs.items() if k != "again"}
    if attrs["length"] is None or not any(kinds):
        return list(builder.emit(loop, operands, regions, **others))
    order = sorted(range(len(kinds)), key=kinds.__getitem__)
    carry, ys = cut(regions[0].results, attrs["carry"])
    step = regions[0].with_results([*carry, *[ys[i] for i in order]])
    outs = builder.emit(loop, operands, (step, *regions[1:]), **others, again=sum(kinds))
    first, given = cut(outs, 1 + len(carry))
    found = dict(zip(order, given, strict=True))
    return [*first, *[found[i] for i in range(len(kinds))]]


def tangent_step(lin: Linearized, kept: Sorted, index: Value, consts: Mask, carry: int) -> Graph:
    """The step's tangent with its params in the order of a loop."""
    nc = sum(consts)
    dconsts, dcarry, dxs = cut(lin.tangent_params, nc, nc + carry)
    at = kept.params(lin, [index]) if index in lin.residuals else [Value(INDEX, lin.tangent.params[0].home)]
    fixed, moving = kept.params(lin, kept.fixed), kept.params(lin, [*kept.read, *kept.made])
    return reordered(lin.tangent, [*at, *fixed, *dconsts, *dcarry, *moving, *dxs])


def jvp(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """One loop carries values and tangents: nothing is saved."""
    form, (step, *go) = Form.of(eqn), eqn.regions
    p, d, nk = form.parts(xs), form.parts(dxs.values), form.carry

    def active(carry: Mask) -> Mask:
        return (False, *on(d.consts), *carry, *on(d.xs))

    carry_on = settled(lambda carry: ad.jvp(step, active(carry)).active[:nk], on(d.carry))
    pushed = ad.jvp(step, active(carry_on), (*carry_on, *(False for _ in step.results[nk:])))
    dconsts = present(d.consts)
    start = [or_zeros(dxs.builder, x, v.type) for x, v, a in zip(d.carry, p.carry, carry_on, strict=True) if a]
    operands = [p.first, *p.consts, *dconsts, *p.carry, *start, *p.xs, *present(d.xs)]
    n, na = len(step.results), len(start)
    inner = form.parts(pushed.graph.params[: len(step.params)])
    ic, ik, ix = cut(pushed.graph.params[len(step.params) :], len(dconsts), len(dconsts) + na)
    carry, ys = cut(pushed.graph.results[:n], nk)
    dcarry, dys = cut(pushed.graph.results[n:], na)
    both = reordered(
        pushed.graph,
        [inner.first, *inner.consts, *ic, *inner.carry, *ik, *inner.xs, *ix],
        [*carry, *dcarry, *ys, *dys],
    )
    attrs: dict[str, Any] = {**eqn.attrs, "consts": len(p.consts) + len(dconsts), "carry": nk + na}
    regions = (both, *[with_tangent_params(g, form, ic, ik) for g in go])
    kinds = [*histories(eqn), *[h for h, a in zip(histories(eqn), pushed.active[nk:], strict=True) if a]]
    outs = giving(dxs.builder, operands, regions, attrs, kinds)
    new_carry, new_dcarry, new_ys, new_dys = cut(outs[1:], nk, nk + na, nk + na + len(ys))
    return [outs[0], *new_carry, *new_ys], [None, *spread([*new_dcarry, *new_dys], pushed.active)]


def with_tangent_params(go: Graph, form: Form, dconsts: Sequence[Value], dcarry: Sequence[Value]) -> Graph:
    """The condition, taking tangents that it does not read."""
    at = form.parts(go.params)
    return reordered(go, [at.first, *at.consts, *unread(dconsts), *at.carry, *unread(dcarry)])


def transpose(ad: Ad, eqn: Eqn, at: Turning) -> list[MaybeValue]:
    """The same count, the other direction: cotangents of consts are summed in the carry, those of xs are outputs."""
    form, (step,) = Form.of(eqn), eqn.regions
    is_linear, given = form.parts(at.linear), form.parts(at.known)
    if is_linear.first:
        raise InternalError("a loop cannot be linear in its limit")
    mask = (False, *is_linear.consts, *(True for _ in is_linear.carry), *is_linear.xs)  # a tangent's carry is tangents
    come = Arriving(at.cts[1:], at.given[1:], slice(1 + form.consts, 1 + form.consts + form.carry))
    back = turned(ad, step, mask, come)
    if not any(back.active):
        return [None] * len(at.linear)
    consts, xs = known_where(given.consts, is_linear.consts), known_where(given.xs, is_linear.xs)
    start = first_carry(at.builder, back, step, come)
    sums = come.split(back.active)[0] + come.split(back.chosen)[0]
    whole = transposed_step(in_pairs(back, 1 + len(consts) + len(xs), come), (len(consts), len(xs)), len(start), sums)
    totals = [zeros(at.builder, r.type) for r in whole.results[:sums]]
    limit, ys = (
        form.limit(at.builder, given.first),
        [*present(come.cts[form.carry :]), *present(come.choices[form.carry :])],
    )
    attrs: dict[str, Any] = {
        **eqn.attrs,
        "consts": len(consts),
        "carry": sums + len(start),
        "reverse": not form.reverse,
    }
    operands = [limit, *consts, *totals, *start, *xs, *ys]
    items = [isinstance(x.type, History) for x in form.parts(eqn.operands).xs]
    again = [
        h for mask in (back.active, back.chosen) for h, m in zip(items, mask[come.carries.stop :], strict=True) if m
    ]
    outs = giving(at.builder, operands, (whole,), attrs, again)[1:]
    return leaving(apart(outs, back, come), back.active, back.chosen, at.choices)


loop = OPS.declare(
    Op(
        "loop",
        loop_type,
        loop_reference,
        loop_lower,
        direct=True,
        barrier=True,
        linearize=linearize,
        jvp_region=jvp,
        transpose_region=transpose,
        layout=loop_layout,
        doc="""loop(limit, *consts, *carry, *xs) {step} [{go}]: at most `limit` steps, and only while `go`. It gives the
        number of steps taken, the carry after them, and what each step gave besides, zero beyond the last. With a `go`
        a negative limit is none; without one it is no step.
        Kinks: the derivative is that of the steps taken.""",
    )
)
