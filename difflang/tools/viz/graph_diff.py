"""The difference of two graphs: which equations they share, what a pass changed, what a derivative adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.structural_equality import StructuralKeys, attrs_key


def shared_equations(graph: Graph, other: Graph) -> set[Eqn]:
    """The equations of `graph`, at any depth, for which `other` has one that computes the same of the same parameters.

    Each equation has at most one counterpart. If regions differ, their equations are compared with those of the next
    equation in `other` with the same op and source position.
    Cost: linear; a graph that is used several times is compared at its first use.
    """
    found: set[Eqn] = set()
    numbers = GraphNumbering()
    seen: set[Graph] = set()
    todo = [(graph, other)]
    while todo:
        one, two = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        mine, theirs = numbers.of(one), numbers.of(two)
        own, left = set(mine), Counter(theirs)
        waiting: dict[Hashable, list[Eqn]] = {}
        for eqn, number in zip(two.eqns, theirs, strict=True):
            if eqn.regions and number not in own:
                waiting.setdefault(equation_position(eqn), []).append(eqn)
        for eqn, number in zip(one.eqns, mine, strict=True):
            # Each equation of the other graph is used once.
            if left[number]:
                left[number] -= 1
                found.add(eqn)
                found |= nested_equations(eqn, seen)
            # The equation differs, but perhaps only in one of its regions.
            elif eqn.regions and (like := waiting.get(equation_position(eqn))):
                todo += zip(eqn.regions, like.pop(0).regions, strict=False)
    return found


def similar_equations(graph: Graph, other: Graph, known: set[Eqn]) -> set[Eqn]:
    """The equations of `graph` outside `known` that differ from one in `other` by operands only: same op, same
    position.
    """
    left = Counter(equation_kind(e) for g in graphs_postorder(other)[0] for e in g.eqns)
    rest = [e for g in graphs_postorder(graph)[0] for e in g.eqns]
    left.subtract(equation_kind(e) for e in rest if e in known)
    found: set[Eqn] = set()
    for eqn in rest:
        if eqn not in known and left[equation_kind(eqn)] > 0:
            left[equation_kind(eqn)] -= 1
            found.add(eqn)
    return found


def equation_kind(eqn: Eqn) -> Hashable:
    return *equation_position(eqn), tuple([r.type for r in eqn.results])


def equation_position(eqn: Eqn) -> tuple[Hashable, ...]:
    return eqn.op.name, len(eqn.regions), eqn.span.source, eqn.span.start, eqn.span.end


def nested_equations(eqn: Eqn, seen: set[Graph]) -> set[Eqn]:
    """Every equation in the regions of one."""
    found: set[Eqn] = set()
    todo = list(eqn.regions)
    while todo:
        graph = todo.pop()
        if graph not in seen:
            seen.add(graph)
            found.update(graph.eqns)
            todo += [r for e in graph.eqns for r in e.regions]
    return found


class GraphNumbering:
    """Value numbering across graphs: equations that compute the same of equally named params get the same number."""

    def __init__(self) -> None:
        self.keys = StructuralKeys()
        self.numbers: dict[Hashable, int] = {}

    def of(self, graph: Graph) -> list[int]:
        """The number of each equation."""
        values: dict[Value, Hashable] = dict(zip(graph.params, param_keys(graph.params), strict=True))
        found: list[int] = []
        for eqn in graph.eqns:
            regions = tuple([self.keys.graph_key(r) for r in eqn.regions])
            operands = tuple([values.get(v) for v in eqn.operands])
            key = (eqn.op.name, attrs_key(eqn.attrs), operands, regions)
            number = self.numbers.setdefault(key, len(self.numbers))
            values.update({r: (number, i) for i, r in enumerate(eqn.results)})
            found.append(number)
        return found


def param_keys(params: Sequence[Value]) -> list[Hashable]:
    """Keys for the parameters: their names, or their positions if names are missing or repeated."""
    count = Counter(p.hint for p in params)
    return [p.hint if p.hint and count[p.hint] == 1 else i for i, p in enumerate(params)]
