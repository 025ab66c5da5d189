"""Structural equality of graphs: keys by which graphs and attributes are compared and hashed, whatever the names."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import cast

from difflang.ir.graph import Attr, Attrs, Eqn, ExternalObject, Graph, Value
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import DType, History, Tensor


def is_valid_attr(value: object) -> bool:
    if type(value) is tuple:
        return all(map(is_valid_attr, cast(tuple[object, ...], value)))
    return value is None or isinstance(
        value, (bool, int, float, complex, str, DType, Tensor, History, Poly, ExternalObject)
    )


def attr_key(value: Attr) -> Hashable:
    """A hashable key, equal for two attributes of the same kind and value."""
    # Floats are compared by their bits: 0.0 and -0.0 are two constants, and nan equals itself.
    kind = type(value)
    if kind is int:
        return value
    if kind is tuple:
        return tuple_key(cast(tuple[Attr, ...], value))
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, complex):
        return ("complex", struct.pack("<dd", value.real, value.imag))
    if isinstance(value, (bool, str, bytes)):
        return (kind.__name__, value)
    return value


def tuple_key(values: tuple[Attr, ...]) -> Hashable:
    """The key of a tuple attribute."""
    # The data of an array constant is packed into bytes, which is ten times faster than a key for each item.
    if len(values) > 16:
        kinds = set(map(type, values))
        if kinds == {int}:
            return values
        if kinds == {float}:
            return ("floats", struct.pack(f"<{len(values)}d", *values))
    return tuple([attr_key(v) for v in values])


def attrs_key(attrs: Attrs) -> Hashable:
    return tuple([(name, attr_key(attrs[name])) for name in sorted(attrs)])


class StructuralKeys:
    """Numbers graphs: two have the same number exactly if they are the same program, whatever their values are called.

    With `names` the names of values and graphs count too, with `spans` also the source positions of equations.
    Cost: linear; a graph that is used many times is visited once.
    """

    def __init__(self, names: bool = False, spans: bool = False) -> None:
        self.names = names
        self.spans = spans
        self.numbers: dict[Graph, int] = {}
        self.seen: dict[Hashable, int] = {}

    def graph_key(self, graph: Graph) -> int:
        if (known := self.numbers.get(graph)) is not None:
            return known
        place: dict[Value, int] = {p: i for i, p in enumerate(graph.params)}
        rows: list[Hashable] = []
        for eqn in graph.eqns:
            row = (eqn.op, tuple([place[v] for v in eqn.operands]), len(eqn.results), attrs_key(eqn.attrs))
            rows.append((row, tuple([self.graph_key(g) for g in eqn.regions]), self.labels(eqn)))
            for result in eqn.results:
                place[result] = len(place)
        name_key = (graph.name, tuple(p.hint for p in graph.params)) if self.names else None
        params = tuple(p.type for p in graph.params)
        key = (params, tuple(rows), tuple(place[r] for r in graph.results), name_key)
        return self.numbers.setdefault(graph, self.seen.setdefault(key, len(self.seen)))

    def labels(self, eqn: Eqn) -> Hashable:
        hints = tuple((r.hint, r.type) for r in eqn.results) if self.names else None
        return (hints, (eqn.span.source.name, eqn.span.start, eqn.span.end) if self.spans else None)


def graphs_equal(a: Graph, b: Graph, *, names: bool = True, spans: bool = False) -> bool:
    """Whether two graphs are equal: equations in order, attributes, types, regions; optionally names and spans."""
    keys = StructuralKeys(names, spans)
    return keys.graph_key(a) == keys.graph_key(b) and (not names or region_sharing(a) == region_sharing(b))


def region_sharing(graph: Graph) -> tuple[int, ...]:
    """Which regions are one shared graph: for each region in order of appearance, the number of its graph."""
    order: dict[Graph, int] = {}
    uses: list[int] = []

    def visit(graph: Graph) -> None:
        for eqn in graph.eqns:
            for region in eqn.regions:
                first = region not in order
                uses.append(order.setdefault(region, len(order)))
                if first:
                    visit(region)

    visit(graph)
    return tuple(uses)
