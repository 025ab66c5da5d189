"""Zeros of choices that nobody sees: each reader chooses again, or what reads it does."""

from __future__ import annotations

from difflang.ir.graph import Attr, Eqn, Graph, Value

MaskKey = tuple[Value, Attr]  # a value, or one that is repeated, and along which axes its own lie
MaskFacts = frozenset[tuple[MaskKey, bool]]  # arrays of truths, and what each of their elements is wherever one looks

NO_FACTS: MaskFacts = frozenset()
MAX_FACTS = 8  # what is known of the elements that are looked at


def drop_dead_selects(graph: Graph) -> Graph:
    """Drop choices between a value and zero of which all readers look at the value alone.

    The cotangents of what was not selected are kept zero step by step; of several steps number by number only the last
    choice has to be made: `select(p, select(p, x, 0) * y, 0)` is `select(p, x * y, 0)`, bit by bit.
    Cost: linear; a graph that is used many times is looked at once.
    """
    return DeadSelectRemover().graph(graph)


class DeadSelectRemover:
    def __init__(self) -> None:
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph in self.done:
            return self.done[graph]
        made = {e.results[0]: e for e in graph.eqns if e.op.elementwise or e.op.name in ("const", "broadcast")}
        seen = observed_elements(graph, made) if any([e.op.name == "select" for e in graph.eqns]) else {}
        to: dict[Value, Value] = {}
        kept: list[Eqn] = []
        for old in graph.eqns:
            eqn = old.replace_operands(to) if to else old
            if eqn.regions:
                eqn = eqn.with_regions(map(self.graph, eqn.regions))
            shown = live_operand(old, seen.get(old.results[0], NO_FACTS), made) if old.op.name == "select" else None
            if shown is None:
                kept.append(eqn)
            else:
                to[old.results[0]] = eqn.operands[shown]
        return self.done.setdefault(graph, graph.with_eqns(kept).replace_results(to))


def observed_elements(graph: Graph, made: dict[Value, Eqn]) -> dict[Value, MaskFacts]:
    """What holds for each element of a value that any reader looks at."""
    seen: dict[Value, MaskFacts] = dict.fromkeys(graph.results, NO_FACTS)

    def observe(value: Value, truths: MaskFacts) -> None:
        before = seen.get(value)
        seen[value] = truths if before is None else before & truths

    for eqn in reversed(graph.eqns):
        truths = seen.get(eqn.results[0], NO_FACTS) if eqn.op.elementwise else NO_FACTS
        if eqn.op.name != "select" or len(truths) == MAX_FACTS:
            for value in eqn.operands:
                observe(value, truths)
            continue
        which, *sides = eqn.operands
        observe(which, truths)
        for value, truth in zip(sides, (True, False), strict=True):
            observe(value, truths | {(mask_key(which, made), truth)})
    return seen


def live_operand(eqn: Eqn, truths: MaskFacts, made: dict[Value, Eqn]) -> int | None:
    """Which operand of a choice is looked at, the other being zero and nowhere looked at."""
    which, x, y = eqn.operands
    if is_zero_const(y, made) and mask_holds(which, True, truths, made):
        return 1
    if is_zero_const(x, made) and mask_holds(which, False, truths, made):
        return 2
    return None


def is_zero_const(value: Value, made: dict[Value, Eqn]) -> bool:
    eqn = made.get(value)
    return eqn is not None and eqn.op.name == "const" and eqn.attrs["value"] == 0


def mask_key(value: Value, made: dict[Value, Eqn]) -> MaskKey:
    eqn = made.get(value)
    return (eqn.operands[0], eqn.attrs["axes"]) if eqn is not None and eqn.op.name == "broadcast" else (value, None)


def mask_holds(which: Value, truth: bool, truths: MaskFacts, made: dict[Value, Eqn]) -> bool:
    """Whether it is known that an array of truths is `truth` in all elements that are looked at."""
    value, axes = mask_key(which, made)
    if ((value, axes), truth) in truths:
        return True
    eqn = made.get(value)
    if eqn is None or eqn.op.name not in ("logical_and", "logical_or"):
        return False
    found = [((v, axes) if axes is not None else mask_key(v, made), truth) in truths for v in eqn.operands]
    return any(found) if truth is (eqn.op.name == "logical_or") else all(found)
