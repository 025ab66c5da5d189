"""Substitutes numbers for symbolic sizes (dim names) in a graph, such as the capacities of stacks and arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.symbolic_dims import Dim, Poly, dim_name, substitute_dims
from difflang.ir.tensor_types import History, Tensor, Type

DimValues = Callable[[str], Dim]
CAPACITY_PREFIX = "room."  # no name of a program has a point in it
# The classes of most attributes and of their items: they hold no dim names, so they are skipped at once.
DIMLESS_CLASSES = frozenset((int, float, complex, bool, str))


def capacity_dim(what: str) -> Poly:
    """A size that is set before a program runs: the capacity for frames, steps or items."""
    return dim_name(f"{CAPACITY_PREFIX}{what}")


def substitute_graph_dims(graph: Graph, number: DimValues) -> Graph:
    """The graph with each dim name replaced; a graph without names as it is. Cost: linear."""
    graphs, _ = graphs_postorder(graph)
    # Every symbolic size comes from a param or an attribute, so these two places are enough to look at.
    if not any(has_symbolic_dims(p.type) for p in graph.params) and all(
        substitute_in_attr(a, number) is a for inner in graphs for e in inner.eqns for a in e.attrs.values()
    ):
        return graph
    done: dict[Graph, Graph] = {}
    for inner in graphs:
        done[inner] = substitute_in_graph(inner, number, done)
    return done[graph]


def has_symbolic_dims(type: Type) -> bool:
    """Whether a size of this type is symbolic."""
    if isinstance(type, History):
        return has_symbolic_dims(type.item)
    return not DIMLESS_CLASSES.issuperset([d.__class__ for d in type.shape])


def substitute_in_graph(graph: Graph, number: DimValues, done: dict[Graph, Graph]) -> Graph:
    to: dict[Value, Value] = {}

    def retyped(value: Value) -> Value:
        type = substitute_in_attr(value.type, number)
        if type is value.type:
            return value
        return to.setdefault(value, Value(type, value.home, value.hint))

    params = tuple(map(retyped, graph.params))
    eqns: list[Eqn] = []
    for eqn in graph.eqns:
        results = tuple(map(retyped, eqn.results))
        attrs = {k: substitute_in_attr(a, number) for k, a in eqn.attrs.items()}
        changed = results != eqn.results or any(attrs[k] is not a for k, a in eqn.attrs.items())
        operands = tuple([to.get(v, v) for v in eqn.operands])
        regions = tuple([done[r] for r in eqn.regions])
        if changed or operands != eqn.operands or regions != eqn.regions:
            eqn = Eqn(eqn.op, operands, results, attrs, regions, eqn.span)
        eqns.append(eqn)
    if not to and all(a is b for a, b in zip(eqns, graph.eqns, strict=True)):
        return graph
    return Graph(params, tuple(eqns), tuple([to.get(r, r) for r in graph.results]), graph.name)


def substitute_in_attr(attr: Any, number: DimValues) -> Any:
    """A type or an attribute with numbers for dim names; the same object if it has none."""
    if type(attr) in DIMLESS_CLASSES:
        return attr
    match attr:
        case Poly():
            return substitute_dims(attr, number)
        case Tensor(dtype, shape):
            return (
                attr
                if DIMLESS_CLASSES.issuperset(map(type, shape))
                else Tensor(dtype, substitute_in_attr(shape, number))
            )
        case History(item):
            inner = substitute_in_attr(item, number)
            return attr if inner is item else History(inner)
        case tuple() if not DIMLESS_CLASSES.issuperset(map(type, attr)):
            items = tuple([substitute_in_attr(x, number) for x in attr])
            return attr if all(a is b for a, b in zip(items, attr, strict=True)) else items
        case _:
            return attr
