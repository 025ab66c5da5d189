"""Loops that carry the same are run once: a function's own, and its derivative's, which keeps its steps as well."""

from __future__ import annotations

from collections.abc import Hashable

from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.op import OPS
from difflang.ir.structural_equality import StructuralKeys, attrs_key
from difflang.passes.dce import dce

CarryKey = tuple[tuple[Value, ...], Hashable]


def merge_equal_loops(graph: Graph) -> Graph:
    """The graph in which a loop that keeps nothing is gone where a later one carries the same: that runs in its place.

    Cost: linear in the loops.
    """
    keys, done = StructuralKeys(), dict[Graph, Graph]()
    for inner in graphs_postorder(graph)[0]:
        eqns = [e.with_regions([done[r] for r in e.regions]) if e.regions else e for e in inner.eqns]
        done[inner] = merge_level(inner.with_eqns(eqns), keys)
    return done[graph]


def merge_level(graph: Graph, keys: StructuralKeys) -> Graph:
    eqns: list[Eqn | None] = list(graph.eqns)
    made = {r: number for number, eqn in enumerate(graph.eqns) for r in eqn.results}
    same: dict[Value, Value] = {}
    plain: dict[CarryKey, int] = {}  # loops that keep nothing, by what they carry
    for number, eqn in enumerate(graph.eqns):
        carried = carry_key(eqn, keys) if eqn.op is OPS["loop"] and not eqn.effectful else None
        if carried is None:
            continue
        if len(eqn.results) == carry_result_count(eqn):
            plain.setdefault(carried, number)
        elif carried in plain and all(made.get(v, -1) < plain[carried] for v in eqn.operands):
            first = plain.pop(carried)
            same.update(zip(graph.eqns[first].results, eqn.results, strict=False))
            eqns[first], eqns[number] = eqn, None
    if not same:
        return graph
    return graph.with_eqns([e.replace_operands(same) for e in eqns if e is not None]).replace_results(same)


def carry_result_count(eqn: Eqn) -> int:
    """How many of its results are the number of its steps and the carry."""
    carry = eqn.attrs["carry"]
    assert isinstance(carry, int)
    return 1 + carry


def carry_key(eqn: Eqn, keys: StructuralKeys) -> CarryKey | None:
    """What a loop reads for what it carries, and how; None where it carries nothing."""
    wanted = eqn.results[1 : carry_result_count(eqn)]
    if not wanted:
        return None
    alone = dce(Graph(tuple(dict.fromkeys(eqn.operands)), (eqn,), tuple(wanted), ""))
    (core,) = alone.eqns
    return core.operands, (attrs_key(core.attrs), tuple([keys.graph_key(g) for g in core.regions]))
