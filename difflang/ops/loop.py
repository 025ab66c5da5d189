"""The one loop: counted, `while` and `break` alike, forwards or in reverse. Its derivatives are loops again.

The rules are those of a scan with a count; there is none for `while`. How the residuals of a loop are kept is no
concern of them: see `history` for what saves them where the length is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.dims import Dim
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.layout import loop_layout
from difflang.ir.op import OPS, MaybeValue, Op, Solver
from difflang.ir.types import I32, History, Tensor, Type, item_of, stacked
from difflang.ops.cond import TRUTH
from difflang.ops.loop_run import loop_lower, loop_reference
from difflang.ops.regions import (
    Ad,
    Linearized,
    Mask,
    MaybeValues,
    Sorted,
    Tangents,
    add,
    alike,
    known_where,
    or_zeros,
    reordered,
    sort_residuals,
    spread,
    unread,
    zeros,
)
from difflang.ops.residuals import frugal

INDEX = Tensor(I32)


class Form(NamedTuple):
    """The attributes of a loop."""

    consts: int
    carry: int
    length: Dim | None
    exact: bool
    reverse: bool

    @classmethod
    def of(cls, eqn: Eqn) -> Form:
        return cls(**eqn.attrs)

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
    return INDEX, *at.carry, *[stacked(y, length) for y in results[carry:]]


def sequence_of_steps(same: Solver, x: Type, length: Dim | None) -> None:
    if isinstance(x, History):
        return
    same.require(length is not None, "a loop without a length reads histories")
    same.require(x.rank > 0, "a loop reads arrays along their first axis")
    if length is not None and x.rank > 0:
        same.size(x.shape[0], length, "number of steps")


class Derived(Protocol):
    @property
    def active(self) -> Mask: ...


D = TypeVar("D", bound=Derived)


def settled(derive: Callable[[Mask], D], carry: Mask, at: int) -> Mask:
    """Which carries are active: the least set that holds `carry` and what a step makes of itself.

    A carry that is active at first stays so even if every step forgets it: the loop may take no step.
    """
    while True:
        grown = tuple([a or b for a, b in zip(carry, derive(carry).active[at : at + len(carry)], strict=True)])
        if grown == carry:
            return carry
        carry = grown


def linearize(ad: Ad, eqn: Eqn, xs: Values, dxs: Tangents) -> tuple[list[Value], list[MaybeValue]]:
    """Primal: the same loop, giving what its step's tangent captures. Tangent: `count` steps that read it."""
    form, (step, *go) = Form.of(eqn), eqn.regions
    p, d, nk = form.parts(xs), form.parts(dxs.values), form.carry

    def active(carry: Mask) -> Mask:
        return (False, *on(d.consts), *carry, *on(d.xs))

    carry_on = settled(lambda carry: ad.linearize(step, active(carry)), on(d.carry), 0)
    lin = ad.linearize(step, active(carry_on), (*carry_on, *(False for _ in step.results[nk:])))
    inner = form.parts(lin.primal.params)
    lin = frugal(lin, [inner.first, *inner.consts, *inner.xs])
    home = xs[0].home
    kept = sort_residuals(
        lin,
        home,
        dict(zip(inner.consts, p.consts, strict=True)),
        dict(zip(inner.xs, p.xs, strict=True)),
        skip=inner.first,
    )
    primal = lin.primal.with_results([*lin.primal.results[: len(step.results)], *kept.made])
    count, *outs = home.emit(loop, xs, (primal, *go), **eqn.attrs)
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
    attrs: dict[str, Any] = {**eqn.attrs, "consts": len(consts), "carry": len(start)}
    dys = dxs.builder.emit(loop, operands, (tangent,), **attrs)
    return ys, [None, *spread(dys[1:], lin.active)]


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

    carry_on = settled(lambda carry: ad.jvp(step, active(carry)), on(d.carry), 0)
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
    outs = dxs.builder.emit(loop, operands, regions, **attrs)
    new_carry, new_dcarry, new_ys, new_dys = cut(outs[1:], nk, nk + na, nk + na + len(ys))
    return [outs[0], *new_carry, *new_ys], [None, *spread([*new_dcarry, *new_dys], pushed.active)]


def with_tangent_params(go: Graph, form: Form, dconsts: Sequence[Value], dcarry: Sequence[Value]) -> Graph:
    """The condition, taking tangents that it does not read."""
    at = form.parts(go.params)
    return reordered(go, [at.first, *at.consts, *unread(dconsts), *at.carry, *unread(dcarry)])


def transpose(
    ad: Ad, eqn: Eqn, builder: Builder, cts: MaybeValues, linear: Mask, known: MaybeValues
) -> list[MaybeValue]:
    """The same count, the other direction: cotangents of consts are summed in the carry, those of xs are outputs."""
    form, (step,) = Form.of(eqn), eqn.regions
    nk, is_linear, given = form.carry, form.parts(linear), form.parts(known)
    if is_linear.first:
        raise InternalError("a loop cannot be linear in its limit")
    mask = (False, *is_linear.consts, *(True for _ in is_linear.carry), *is_linear.xs)  # a tangent's carry is tangents
    ct_carry, ct_ys = cts[1 : 1 + nk], cts[1 + nk :]

    def derive(carry: Mask, wanted: Mask = ()) -> Any:
        return ad.transpose(step, mask, (*carry, *on(ct_ys)), wanted)

    carry_on = settled(derive, on(ct_carry), 1 + form.consts)
    wanted = (False, *(False for _ in is_linear.consts), *carry_on, *(False for _ in is_linear.xs))
    back = derive(carry_on, wanted)
    active = form.parts(back.active)
    n_known = (sum(not m for m in is_linear.consts), sum(not m for m in is_linear.xs))
    turned = transposed_step(back.graph, n_known, sum(carry_on), sum(active.consts))
    consts = known_where(given.consts, is_linear.consts)
    param_types = form.parts([p.type for p in step.params])
    sums = [zeros(builder, t) for t, a in zip(param_types.consts, active.consts, strict=True) if a]
    start = [or_zeros(builder, c, t) for c, t, a in zip(ct_carry, param_types.carry, carry_on, strict=True) if a]
    operands = [
        form.limit(builder, given.first), *consts, *sums, *start, *known_where(given.xs, is_linear.xs), *present(ct_ys)
    ]  # fmt: skip
    if not any(back.active):
        return [None] * len(linear)
    attrs: dict[str, Any] = {
        **eqn.attrs,
        "consts": len(consts),
        "carry": len(sums) + len(start),
        "reverse": not form.reverse,
    }
    _, *outs = builder.emit(loop, operands, (turned,), **attrs)
    return [*spread(outs, back.active)]


def transposed_step(back: Graph, known: tuple[int, int], carry: int, sums: int) -> Graph:
    """The step turned round, in the order of a loop and adding the cotangents of consts to what there is already.

    `back` takes (index, consts, xs, ct_carry, ct_ys) and gives (ct_consts, ct_carry, ct_xs).
    """
    builder = Builder()
    nc, nx = known
    _, consts, xs, ct_carry, ct_ys = cut(back.params, 1, 1 + nc, 1 + nc + nx, 1 + nc + nx + carry)
    at = builder.param(INDEX, "i")
    of_consts = [builder.param(p.type, p.hint) for p in consts]
    totals = [builder.param(r.type, r.hint) for r in back.results[:sums]]
    rest = {p: builder.param(p.type, p.hint) for p in (*ct_carry, *xs, *ct_ys)}
    args = [at, *of_consts, *[rest[p] for p in xs], *[rest[p] for p in ct_carry], *[rest[p] for p in ct_ys]]
    outs = builder.inline(back, *args)
    added = [add(a, c) for a, c in zip(totals, outs[:sums], strict=True)]
    return builder.finish([*[a for a in added if a is not None], *outs[sums:]], name=back.name)


def on(values: Sequence[MaybeValue]) -> Mask:
    return tuple([v is not None for v in values])


def present(values: Sequence[MaybeValue]) -> list[Value]:
    return [v for v in values if v is not None]


def cut(values: Sequence[Value], *places: int) -> list[Sequence[Value]]:
    """A sequence cut in pieces at the given places."""
    edges = (0, *places, len(values))
    return [values[a:b] for a, b in pairwise(edges)]


loop = OPS.declare(
    Op(
        "loop",
        loop_type,
        loop_reference,
        loop_lower,
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
