"""Names of sizes in a graph replaced by numbers: how many frames a stack has room for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from difflang.ir.graph import Eqn, Graph, Value, inner_first
from difflang.ir.symbolic_dims import Dim, Poly, name, substitute
from difflang.ir.tensor_types import History, Tensor, Type

Numbers = Callable[[str], Dim]
ROOM = "room."  # no name of a program has a point in it
PLAIN = frozenset((int, float, complex, bool, str))  # most attributes, and most of what is in them: they have no names


def room_for(what: str) -> Poly:
    """A size that is told before a program runs: how many frames, steps or items there is room for."""
    return name(f"{ROOM}{what}")


def sized(graph: Graph, number: Numbers) -> Graph:
    """The graph with each name of a size replaced; a graph without names as it is. Cost: linear."""
    graphs, _ = inner_first(graph)
    if not any(has_names(p.type) for p in graph.params) and all(
        told(a, number) is a for inner in graphs for e in inner.eqns for a in e.attrs.values()
    ):
        return graph  # a size that has a name is one of a param's, or an attribute first
    done: dict[Graph, Graph] = {}
    for inner in graphs:
        done[inner] = replaced(inner, number, done)
    return done[graph]


def has_names(type: Type) -> bool:
    """Whether a size of this type is a name, or is made of some."""
    if isinstance(type, History):
        return has_names(type.item)
    return not PLAIN.issuperset([d.__class__ for d in type.shape])


def replaced(graph: Graph, number: Numbers, done: dict[Graph, Graph]) -> Graph:
    to: dict[Value, Value] = {}

    def there(value: Value) -> Value:
        type = told(value.type, number)
        if type is value.type:
            return value
        return to.setdefault(value, Value(type, value.home, value.hint))

    params = tuple(map(there, graph.params))
    eqns: list[Eqn] = []
    for eqn in graph.eqns:
        results = tuple(map(there, eqn.results))
        attrs = {k: told(a, number) for k, a in eqn.attrs.items()}
        changed = results != eqn.results or any(attrs[k] is not a for k, a in eqn.attrs.items())
        operands = tuple([to.get(v, v) for v in eqn.operands])
        regions = tuple([done[r] for r in eqn.regions])
        if changed or operands != eqn.operands or regions != eqn.regions:
            eqn = Eqn(eqn.op, operands, results, attrs, regions, eqn.span)
        eqns.append(eqn)
    if not to and all(a is b for a, b in zip(eqns, graph.eqns, strict=True)):
        return graph
    return Graph(params, tuple(eqns), tuple([to.get(r, r) for r in graph.results]), graph.name)


def told(attr: Any, number: Numbers) -> Any:
    """A type or an attribute with numbers for names; the same object where it has none."""
    if type(attr) in PLAIN:
        return attr
    match attr:
        case Poly():
            return substitute(attr, number)
        case Tensor(dtype, shape):
            return attr if PLAIN.issuperset(map(type, shape)) else Tensor(dtype, told(shape, number))
        case History(item):
            inner = told(item, number)
            return attr if inner is item else History(inner)
        case tuple() if not PLAIN.issuperset(map(type, attr)):
            items = tuple([told(x, number) for x in attr])
            return attr if all(a is b for a, b in zip(items, attr, strict=True)) else items
        case _:
            return attr
