"""Builders of fused loops, maps and branches: one equation that does the work of several, for the `fuse` pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from difflang.ir.builder import Builder
from difflang.ir.graph import Attr, Eqn, Graph, Value
from difflang.ir.op import Op
from difflang.ops.control.cond import cond
from difflang.ops.control.map import map_
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import loop

Eqns = Sequence[Eqn]
Renaming = dict[Value, Value]


class FusionKind(Struct, frozen=True, eq=False):
    """How equations of one op are fused."""

    compatible: Callable[[Eqns, Eqn], bool]  # whether an equation runs like those that are fused already
    shared_operands: int  # the number of leading operands that all equations share
    reads: Callable[[Eqn], Sequence[int]]  # the operands that a region may read from another one, step by step
    fusable_results: Callable[[Eqn], Sequence[Value]]  # the results that can be read so
    build: Callable[[Eqns, Renaming], Eqn]  # the fused equation; the renaming gets the results that it replaces


def copy_body(body: Graph, to: Renaming, eqns: list[Eqn]) -> list[Value]:
    """Copy a body's equations to the end of `eqns`, with its params replaced by `to`; returns its results."""
    for eqn in body.eqns:
        results = tuple([Value(r.type, r.home, r.hint) for r in eqn.results])
        eqns.append(Eqn(eqn.op, tuple([to[v] for v in eqn.operands]), results, eqn.attrs, eqn.regions, eqn.span))
        to.update(zip(eqn.results, results, strict=True))
    return [to[r] for r in body.results]


class FusedParams:
    """The params of a fused region: one for each operand, however many equations read it."""

    def __init__(self) -> None:
        self.home = Builder()
        self.of: Renaming = {}

    def param(self, operand: Value, like: Value) -> Value:
        return self.of.setdefault(operand, Value(like.type, self.home, like.hint))

    def bind(self, operands: Sequence[Value], params: Sequence[Value], made: Mapping[Value, Value]) -> Renaming:
        """The params of one region as values of the fused one: values computed there, else its params."""
        return {
            p: made[v] if v in made else self.param(v, p) for v, p in zip(operands, params, strict=True)
        }  # fmt: skip


# ---- Loops


def loops_compatible(loops: Eqns, eqn: Eqn) -> bool:
    """Whether a loop takes exactly the steps of the others: its limit is their step count, or the same limit."""
    first, a, b = loops[0], LoopAttrs.of(loops[0]), LoopAttrs.of(eqn)
    if len(eqn.regions) > 1 or comparable_form(a) != comparable_form(b):
        return False
    if a.exact or any(eqn.operands[0] is other.results[0] for other in loops):
        return True
    return len(first.regions) == 1 and eqn.operands[0] is first.operands[0]


def comparable_form(form: LoopAttrs) -> LoopAttrs:
    """The attributes that two loops must have in common."""
    return form._replace(consts=0, carry=0, history_outputs=0)


def item_operands(eqn: Eqn) -> Sequence[int]:
    form = LoopAttrs.of(eqn)
    return range(1 + form.consts + form.carry, len(eqn.operands))


def output_results(eqn: Eqn) -> Sequence[Value]:
    return eqn.results[1 + LoopAttrs.of(eqn).carry :]


def fuse_loops(loops: Eqns, to: Renaming) -> Eqn:
    first = loops[0]
    consts, items = FusedParams(), FusedParams()
    index = Value(first.regions[0].params[0].type, consts.home)
    carry: list[tuple[Value, Value]] = []  # operand and param
    made: Renaming = {}
    body: list[Eqn] = []
    carries: list[tuple[Value, Value]] = []  # result of the loop and of its step
    arrays: list[tuple[Value, Value]] = []
    # A step gives carries first, then items of arrays, then items of histories: results are collected in that order.
    histories: list[tuple[Value, Value]] = []
    for eqn in loops:
        form = LoopAttrs.of(eqn)
        outer, inner = form.parts(eqn.operands), form.parts(eqn.regions[0].params)
        state = [Value(p.type, consts.home, p.hint) for p in inner.carry]
        carry += zip(outer.carry, state, strict=True)
        inside = {inner.first: index, **dict(zip(inner.carry, state, strict=True))}
        inside |= consts.bind(outer.consts, inner.consts, {}) | items.bind(outer.xs, inner.xs, made)
        pairs = list(zip(eqn.results[1:], copy_body(eqn.regions[0], inside, body), strict=True))
        whole = len(pairs) - form.history_outputs
        carries += pairs[: form.carry]
        arrays += pairs[form.carry : whole]
        histories += pairs[whole:]
        made.update(pairs[form.carry :])
        to[eqn.results[0]] = first.results[0]
    del to[first.results[0]]
    params = (index, *consts.of.values(), *(param for _, param in carry), *items.of.values())
    results = [*carries, *arrays, *histories]
    step = Graph(params, tuple(body), tuple([inner for _, inner in results]), first.regions[0].name)
    attrs: dict[str, Attr] = {**first.attrs, "consts": len(consts.of), "carry": len(carry)}
    if histories:
        attrs["history_outputs"] = len(histories)
    operands = (first.operands[0], *consts.of, *(value for value, _ in carry), *items.of)
    regions = (step, *fused_conditions(first, consts, [param for _, param in carry]))
    return Eqn(loop, operands, (first.results[0], *[r for r, _ in results]), attrs, regions, first.span)


def fused_conditions(eqn: Eqn, consts: FusedParams, carry: Sequence[Value]) -> Iterator[Graph]:
    """The condition of the first loop, with the params of the fused one."""
    form = LoopAttrs.of(eqn)
    outer = form.parts(eqn.operands)
    for go in eqn.regions[1:]:
        inner, own = form.parts(go.params), FusedParams()
        for operand, param in consts.of.items():
            own.param(operand, param)
        states = [Value(param.type, own.home, param.hint) for param in carry]
        index = Value(inner.first.type, own.home)
        to = {inner.first: index, **dict(zip(inner.carry, states, strict=False))}
        to |= own.bind(outer.consts, inner.consts, {})
        body: list[Eqn] = []
        results = copy_body(go, to, body)
        yield Graph((index, *own.of.values(), *states), tuple(body), tuple(results), go.name)


# ---- Branches


def fuse_conds(conds: Eqns, to: Renaming) -> Eqn:
    first = conds[0]
    given = {r for eqn in conds for r in eqn.results}
    operands = dict.fromkeys(v for eqn in conds for v in eqn.operands[1:] if v not in given)
    regions: list[Graph] = []
    for number in range(len(first.regions)):
        params = FusedParams()
        for operand in operands:
            params.param(operand, operand)
        made: Renaming = {}
        body: list[Eqn] = []
        for eqn in conds:
            inside = params.bind(eqn.operands[1:], eqn.regions[number].params, made)
            made.update(zip(eqn.results, copy_body(eqn.regions[number], inside, body), strict=True))
        regions.append(Graph(tuple(params.of.values()), tuple(body), tuple(made.values()), first.regions[number].name))
    results = tuple([r for eqn in conds for r in eqn.results])
    return Eqn(cond, (first.operands[0], *operands), results, first.attrs, tuple(regions), first.span)


# ---- Maps


def split_consts(eqn: Eqn, values: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
    """The consts and the xs of a map, or of its region."""
    consts = eqn.attrs["consts"]
    assert isinstance(consts, int)
    return values[:consts], values[consts:]


def fuse_maps(maps: Eqns, to: Renaming) -> Eqn:
    first = maps[0]
    consts, items = FusedParams(), FusedParams()
    made: Renaming = {}
    body: list[Eqn] = []
    for eqn in maps:
        (fixed, xs), (fixed_params, params) = split_consts(eqn, eqn.operands), split_consts(eqn, eqn.regions[0].params)
        inside = consts.bind(fixed, fixed_params, {}) | items.bind(xs, params, made)
        made.update(zip(eqn.results, copy_body(eqn.regions[0], inside, body), strict=True))
    params = (*consts.of.values(), *items.of.values())
    region = Graph(params, tuple(body), tuple(made.values()), first.regions[0].name)
    attrs: dict[str, Attr] = {**first.attrs, "consts": len(consts.of)}
    return Eqn(map_, (*consts.of, *items.of), tuple(made), attrs, (region,), first.span)


FUSION_KINDS: dict[Op, FusionKind] = {
    loop: FusionKind(loops_compatible, 1, item_operands, output_results, fuse_loops),
    cond: FusionKind(
        lambda conds, eqn: conds[0].operands[0] is eqn.operands[0],
        1,
        lambda eqn: range(1, len(eqn.operands)),
        lambda eqn: eqn.results,
        fuse_conds,
    ),
    map_: FusionKind(
        lambda maps, eqn: maps[0].attrs["length"] == eqn.attrs["length"],
        0,
        lambda eqn: range(len(split_consts(eqn, eqn.operands)[0]), len(eqn.operands)),
        lambda eqn: eqn.results,
        fuse_maps,
    ),
}
