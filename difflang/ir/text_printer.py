"""The printer of IR text, which people read and golden tests compare. `ir/text_parser.py` parses it.

    graph @f(%x: f32[]) {
      %s: f32[] = sin %x
      %0: f32[] = mul %s, %x
      yield %0
    }

A value is named after its hint, `%x`, then `%x#1`; one without a hint is numbered, `%0`. Each region has its own scope.
A graph that is used more than once is printed once, above, and referred to as `@name`.
"""

from __future__ import annotations

import json
import math
import re
from typing import cast

from difflang.base.diagnostics import InternalError
from difflang.ir.graph import Attr, Eqn, ExternalObject, Graph, Value, graphs_postorder
from difflang.ir.structural_equality import is_valid_attr
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import DType, History, Tensor

WORD = re.compile(r"[^\W\d][\w.]*")
INDENT = "  "


def graph_to_text(graph: Graph, spans: bool = False) -> str:
    """The graph as text; with `spans`, each equation is followed by its source position, as a comment."""
    return "\n\n".join(IrPrinter(graph, spans).definition(g) for g in (*shared_graphs(graph), graph)) + "\n"


def eqn_text(eqn: Eqn) -> str:
    """One equation by itself without its regions, for messages."""
    names = ValueNames()
    operands = ", ".join(f"{names.name_of(v)}: {v.type}" for v in eqn.operands)
    results = ", ".join(f"{names.name_of(v)}: {v.type}" for v in eqn.results)
    # A malformed equation may hold attributes that have no text, and its message must not fail.
    attrs = attrs_text(eqn) if all(map(is_valid_attr, eqn.attrs.values())) else f" {dict(eqn.attrs)}"
    return f"{results}{' = ' if results else ''}{eqn.op} {operands}{attrs}{' (...) {...}' * len(eqn.regions)}"


def attr_text(value: Attr) -> str:
    """An attribute as text that parses back to the same kind and the same bits."""
    match value:
        case None | bool():
            return {None: "none", True: "true", False: "false"}[value]
        case int():
            return str(value)
        case float():
            return float_text(value)
        case complex():
            return f"complex({float_text(value.real)}, {float_text(value.imag)})"
        case str():
            return json.dumps(value)
        case DType() | Tensor() | History():
            return str(value)
        case Poly():
            return f"dim({value})"
        case ExternalObject():
            return f"outside({json.dumps(value.name)})"
        case tuple():
            items = cast(tuple[Attr, ...], value)
            return f"({', '.join(map(attr_text, items))}{',' if len(items) == 1 else ''})"
        case _:
            raise InternalError(f"{value!r} cannot be an attribute")


def float_text(value: float) -> str:
    if math.isnan(value):
        return "-nan" if math.copysign(1.0, value) < 0 else "nan"
    return float.__repr__(value)


def attrs_text(eqn: Eqn) -> str:
    return f" {{{', '.join(f'{k} = {attr_text(eqn.attrs[k])}' for k in sorted(eqn.attrs))}}}" if eqn.attrs else ""


def shared_graphs(graph: Graph) -> list[Graph]:
    """The graphs used more than once inside `graph`, each after those that it uses."""
    order, uses = graphs_postorder(graph)
    return [g for g in order if uses[g] > 1]


class ValueNames:
    """A name for each value of one scope, made from its hint."""

    def __init__(self) -> None:
        self.names: dict[Value, str] = {}
        self.used: dict[str, int] = {}

    def name_of(self, value: Value) -> str:
        if (known := self.names.get(value)) is not None:
            return known
        hint = value.hint
        count = self.used.get(hint, 0)
        self.used[hint] = count + 1
        base = hint if not hint or WORD.fullmatch(hint) else json.dumps(hint)
        name = f"%{base}#{count}" if hint and count else f"%{base}" if hint else f"%{count}"
        self.names[value] = name
        return name


class IrPrinter:
    """Prints the definitions of one text. Keeps the names of the graphs printed above."""

    def __init__(self, graph: Graph, spans: bool) -> None:
        self.spans = spans
        self.graph_names: dict[Graph, str] = {}
        used_names: set[str] = set()
        for g in (*shared_graphs(graph), graph):
            base = g.name if WORD.fullmatch(g.name) else "g"
            name = next(
                n for n in (base, *(f"{base}.{i}" for i in range(1, len(used_names) + 1))) if n not in used_names
            )
            used_names.add(name)
            self.graph_names[g] = name

    def definition(self, graph: Graph) -> str:
        label = self.graph_names[graph]
        name = "" if label == graph.name else f" {json.dumps(graph.name)}"
        return f"graph @{label}{name}{self.block(graph, '')}"

    def block(self, graph: Graph, indent: str) -> str:
        """`(params) { equations, yield }`, its last line indented by `indent`."""
        names = ValueNames()
        inner = indent + INDENT
        params = ", ".join([f"{names.name_of(p)}: {p.type}" for p in graph.params])
        lines = [inner + self.equation(eqn, names, inner) for eqn in graph.eqns]
        results = ", ".join([names.name_of(r) for r in graph.results])
        return "\n".join([f"({params}) {{", *lines, f"{inner}yield {results}".rstrip(), indent + "}"])

    def equation(self, eqn: Eqn, names: ValueNames, indent: str) -> str:
        operands = ", ".join([names.name_of(v) for v in eqn.operands])
        results = ", ".join([f"{names.name_of(v)}: {v.type}" for v in eqn.results])
        head = f"{results} = {eqn.op.name}" if results else eqn.op.name
        after = (False, *[g in self.graph_names for g in eqn.regions])
        regions = "".join([f" {self.region(g, indent, a)}" for g, a in zip(eqn.regions, after, strict=False)])
        where = f"  ; {eqn.span}" if self.spans and eqn.span.is_known else ""
        return f"{head}{' ' if operands else ''}{operands}{attrs_text(eqn)}{regions}{where}"

    def region(self, graph: Graph, indent: str, after_reference: bool) -> str:
        """A region: a reference, or its block after its name."""
        # A block without a name is `""(…)` after a reference, which the parser would else take for its name.
        if graph in self.graph_names:
            return f"@{self.graph_names[graph]}"
        plain = WORD.fullmatch(graph.name) or not (graph.name or after_reference)
        name = (f"@{graph.name}" if graph.name else "") if plain else json.dumps(graph.name)
        return name + self.block(graph, indent)
