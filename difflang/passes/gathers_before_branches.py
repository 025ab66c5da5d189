"""Lookups before branches: where lanes of a map branch apart, what a branch looks up in an array is read before it.

Lanes side by side take both ways in any case, so nothing more is read. An index that only the way not taken would have
used may be out of range, which reads another item and harms nobody; it is not checked here. The derivative of a lookup
before the branch writes the cotangents of all lanes at their places, once. Within it each lane would have an array of
cotangents of its own.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ops.control.cond import cond
from difflang.passes.inline import splice

Renaming = dict[Value, Value]


def hoist_gathers(body: Graph, wide: Container[Value]) -> Graph:
    """A map's body with the lookups of its branches before them, where lanes differ. `wide` are params that do.

    Cost: linear.
    """
    if not any(e.op is cond for e in body.eqns):
        return body
    inside = {p for p in body.params if p in wide}
    eqns: list[Eqn] = []
    for eqn in body.eqns:
        eqns += split_branch(eqn) if eqn.op is cond and eqn.operands[0] in inside else [eqn]
        if not inside.isdisjoint(eqn.operands):
            inside.update(eqn.results)
    return body.with_eqns(eqns)


def split_branch(eqn: Eqn) -> list[Eqn]:
    """A branch as its lookups and the rest. Those of branches within it come out first."""
    before: list[Eqn] = []
    found: list[tuple[Graph, list[Value], list[Value]]] = []  # a region, what was read in it, and the same outside
    for region in eqn.regions:
        region = region.with_eqns([e for old in region.eqns for e in (split_branch(old) if old.op is cond else [old])])
        inner, moving = find_gathers(region)
        body = Graph(region.params, tuple(moving), tuple(inner))
        outside = splice(body, eqn.operands[1:], before)
        gone = set(inner)
        rest = region.with_eqns([e for e in region.eqns if gone.isdisjoint(e.results)])
        found.append((rest, inner, outside))
    if not before:
        return [eqn.with_regions([rest for rest, *_ in found])]
    more = [v for *_, outside in found for v in outside]
    regions = [add_region_params(rest, more, inner, outside) for rest, inner, outside in found]
    return [*before, Eqn(eqn.op, (*eqn.operands, *more), eqn.results, eqn.attrs, tuple(regions), eqn.span)]


def find_gathers(region: Graph) -> tuple[list[Value], list[Eqn]]:
    """What is read at computed places of arrays from outside, and the equations that compute it, in order."""
    params = set(region.params)
    simple = set(params)  # computed element by element from what comes from outside
    read: list[Value] = []
    for eqn in region.eqns:
        if not eqn.regions and not eqn.op.effect and simple.issuperset(eqn.operands):
            if eqn.op.elementwise or not eqn.operands or eqn.op.fill_value is not None:
                simple.update(eqn.results)
            elif eqn.op.gathers and eqn.operands[0] in params:
                read += eqn.results
    needed: set[Value] = set(read)
    kept: list[Eqn] = []
    for eqn in reversed(region.eqns):
        if not needed.isdisjoint(eqn.results):
            needed.update(eqn.operands)
            kept.append(eqn)
    return read, kept[::-1]


def add_region_params(region: Graph, more: Sequence[Value], inner: Sequence[Value], outside: Sequence[Value]) -> Graph:
    """A region that takes what is read before it, its own and that of the other region."""
    own = dict(zip(outside, inner, strict=True))
    home = Builder()
    params = [own[v] if v in own else Value(v.type, home, v.hint) for v in more]
    return Graph((*region.params, *params), region.eqns, region.results, region.name)
