"""Zeros of choices that nobody sees: each reader chooses again, or what reads it does."""

from __future__ import annotations

from difflang.ir.graph import Attr, Eqn, Graph, Value

Places = tuple[Value, Attr]  # a value, or one that is repeated, and along which axes its own lie
Truths = frozenset[tuple[Places, bool]]  # arrays of truths, and what each of their elements is wherever one looks

NOTHING: Truths = frozenset()
MOST = 8  # what is known of the elements that are looked at


def unseen(graph: Graph) -> Graph:
    """Drop choices between a value and zero of which all readers look at the value alone.

    The cotangents of what was not selected are kept zero step by step; of several steps number by number only the last
    choice has to be made: `select(p, select(p, x, 0) * y, 0)` is `select(p, x * y, 0)`, bit by bit.
    Cost: linear; a graph that is used many times is looked at once.
    """
    return Unseen().graph(graph)


class Unseen:
    def __init__(self) -> None:
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph in self.done:
            return self.done[graph]
        made = {e.results[0]: e for e in graph.eqns if e.op.elementwise or e.op.name in ("const", "broadcast")}
        seen = looked_at(graph, made) if any([e.op.name == "select" for e in graph.eqns]) else {}
        to: dict[Value, Value] = {}
        kept: list[Eqn] = []
        for old in graph.eqns:
            eqn = old.renamed(to) if to else old
            if eqn.regions:
                eqn = eqn.with_regions(map(self.graph, eqn.regions))
            shown = alone(old, seen.get(old.results[0], NOTHING), made) if old.op.name == "select" else None
            if shown is None:
                kept.append(eqn)
            else:
                to[old.results[0]] = eqn.operands[shown]
        return self.done.setdefault(graph, graph.with_eqns(kept).renamed_results(to))


def looked_at(graph: Graph, made: dict[Value, Eqn]) -> dict[Value, Truths]:
    """What holds for each element of a value that any reader looks at."""
    seen: dict[Value, Truths] = dict.fromkeys(graph.results, NOTHING)

    def look(value: Value, truths: Truths) -> None:
        before = seen.get(value)
        seen[value] = truths if before is None else before & truths

    for eqn in reversed(graph.eqns):
        truths = seen.get(eqn.results[0], NOTHING) if eqn.op.elementwise else NOTHING
        if eqn.op.name != "select" or len(truths) == MOST:
            for value in eqn.operands:
                look(value, truths)
            continue
        which, *sides = eqn.operands
        look(which, truths)
        for value, truth in zip(sides, (True, False), strict=True):
            look(value, truths | {(places(which, made), truth)})
    return seen


def alone(eqn: Eqn, truths: Truths, made: dict[Value, Eqn]) -> int | None:
    """Which operand of a choice is looked at, the other being zero and nowhere looked at."""
    which, x, y = eqn.operands
    if is_zero(y, made) and holds(which, True, truths, made):
        return 1
    if is_zero(x, made) and holds(which, False, truths, made):
        return 2
    return None


def is_zero(value: Value, made: dict[Value, Eqn]) -> bool:
    eqn = made.get(value)
    return eqn is not None and eqn.op.name == "const" and eqn.attrs["value"] == 0


def places(value: Value, made: dict[Value, Eqn]) -> Places:
    eqn = made.get(value)
    return (eqn.operands[0], eqn.attrs["axes"]) if eqn is not None and eqn.op.name == "broadcast" else (value, None)


def holds(which: Value, truth: bool, truths: Truths, made: dict[Value, Eqn]) -> bool:
    """Whether it is known that an array of truths is `truth` in all elements that are looked at."""
    value, axes = places(which, made)
    if ((value, axes), truth) in truths:
        return True
    eqn = made.get(value)
    if eqn is None or eqn.op.name not in ("logical_and", "logical_or"):
        return False
    found = [((v, axes) if axes is not None else places(v, made), truth) in truths for v in eqn.operands]
    return any(found) if truth is (eqn.op.name == "logical_or") else all(found)
