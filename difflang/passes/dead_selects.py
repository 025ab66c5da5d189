"""Drops dead selects: those with zero whose zero elements no reader observes, as each reader selects again."""

from __future__ import annotations

from difflang.ir.graph import Attr, Eqn, Graph, Value
from difflang.ops.arrays.constants import const
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.elementwise.comparison_and_logic import logical_and, logical_or
from difflang.ops.elementwise.linear_arithmetic import select

MaskKey = tuple[Value, Attr]  # a mask, or the operand of its broadcast and the axes of that
MaskFacts = frozenset[tuple[MaskKey, bool]]  # masks, and the value they have at every observed element

NO_FACTS: MaskFacts = frozenset()
MAX_FACTS = 8  # at most so many masks are tracked for a value, to keep the pass linear


def drop_dead_selects(graph: Graph) -> Graph:
    """Drop selects between a value and zero where all readers observe only elements of the value.

    Transposition masks cotangents after every product. Of several elementwise steps only the last mask is needed:
    `select(p, select(p, x, 0) * y, 0)` is `select(p, x * y, 0)`, bit for bit.
    Cost: linear; a graph that is used many times is visited once.
    """
    return DeadSelectRemover().graph(graph)


class DeadSelectRemover:
    def __init__(self) -> None:
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph in self.done:
            return self.done[graph]
        made = {e.results[0]: e for e in graph.eqns if e.op.elementwise or e.op in (const, broadcast)}
        seen = observed_elements(graph, made) if any([e.op is select for e in graph.eqns]) else {}
        to: dict[Value, Value] = {}
        kept: list[Eqn] = []
        for old in graph.eqns:
            eqn = old.replace_operands(to) if to else old
            if eqn.regions:
                eqn = eqn.with_regions(map(self.graph, eqn.regions))
            live = live_operand(old, seen.get(old.results[0], NO_FACTS), made) if old.op is select else None
            if live is None:
                kept.append(eqn)
            else:
                to[old.results[0]] = eqn.operands[live]
        return self.done.setdefault(graph, graph.with_eqns(kept).replace_results(to))


def observed_elements(graph: Graph, made: dict[Value, Eqn]) -> dict[Value, MaskFacts]:
    """For each value, the masks that hold at every element that some reader observes."""
    # Backwards, so that all readers of a value come before it. Several readers: the facts that hold for all of them.
    seen: dict[Value, MaskFacts] = dict.fromkeys(graph.results, NO_FACTS)

    def observe(value: Value, truths: MaskFacts) -> None:
        before = seen.get(value)
        seen[value] = truths if before is None else before & truths

    for eqn in reversed(graph.eqns):
        truths = seen.get(eqn.results[0], NO_FACTS) if eqn.op.elementwise else NO_FACTS
        if eqn.op is not select or len(truths) == MAX_FACTS:
            for value in eqn.operands:
                observe(value, truths)
            continue
        which, *sides = eqn.operands
        observe(which, truths)
        for value, truth in zip(sides, (True, False), strict=True):
            observe(value, truths | {(mask_key(which, made), truth)})
    return seen


def live_operand(eqn: Eqn, truths: MaskFacts, made: dict[Value, Eqn]) -> int | None:
    """The one operand of a select that is observed, if the other is zero and never observed."""
    which, x, y = eqn.operands
    if is_zero_const(y, made) and mask_holds(which, True, truths, made):
        return 1
    if is_zero_const(x, made) and mask_holds(which, False, truths, made):
        return 2
    return None


def is_zero_const(value: Value, made: dict[Value, Eqn]) -> bool:
    eqn = made.get(value)
    return eqn is not None and eqn.op is const and eqn.attrs["value"] == 0


def mask_key(value: Value, made: dict[Value, Eqn]) -> MaskKey:
    eqn = made.get(value)
    return (eqn.operands[0], eqn.attrs["axes"]) if eqn is not None and eqn.op is broadcast else (value, None)


def mask_holds(which: Value, truth: bool, truths: MaskFacts, made: dict[Value, Eqn]) -> bool:
    """Whether a mask is known to be `truth` at all observed elements."""
    value, axes = mask_key(which, made)
    if ((value, axes), truth) in truths:
        return True
    eqn = made.get(value)
    if eqn is None or eqn.op not in (logical_and, logical_or):
        return False
    found = [((v, axes) if axes is not None else mask_key(v, made), truth) in truths for v in eqn.operands]
    return any(found) if truth is (eqn.op is logical_or) else all(found)
