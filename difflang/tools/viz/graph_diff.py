"""Which equations of a graph stand in another one too: what a pass changed, what a derivative adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.structural_equality import StructuralKeys, attrs_key


def shared_equations(graph: Graph, other: Graph) -> set[Eqn]:
    """The equations of `graph`, at any depth, with one in `other` that computes the same of the same parameters.

    An equation that occurs once there has one counterpart here. Where regions differ, the equations in them are held
    against those of the next equation there with the same op at the same place.
    Cost: linear; a graph that is used many times is compared where it is met first.
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
            if left[number]:
                left[number] -= 1
                found.add(eqn)
                found |= nested_equations(eqn, seen)
            elif eqn.regions and (like := waiting.get(equation_position(eqn))):
                todo += zip(eqn.regions, like.pop(0).regions, strict=False)
    return found


def similar_equations(graph: Graph, other: Graph, known: set[Eqn]) -> set[Eqn]:
    """The equations of `graph` beyond those `known` that are in `other` but for what they take: same op, same place."""
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
    """Gives what computes the same, of parameters of the same names, the same number, in however many graphs."""

    def __init__(self) -> None:
        self.keys = StructuralKeys()
        self.numbers: dict[Hashable, int] = {}

    def of(self, graph: Graph) -> list[int]:
        """A number for each equation."""
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
    """What the parameters are called, by their place where that does not tell them apart."""
    count = Counter(p.hint for p in params)
    return [p.hint if p.hint and count[p.hint] == 1 else i for i, p in enumerate(params)]
