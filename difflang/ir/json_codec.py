"""JSON encoding and decoding of graphs, for tools and artifacts. A graph loads back equal, source spans included.

Each graph is encoded once, after those that it uses; a region is the number of its graph. A value is the number of its
definition in its graph: params first, then results of equations in order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn, cast

from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError
from difflang.base.source import NO_SPAN, BackwardSpan, Source, Span, backward_span
from difflang.ir.builder import Builder
from difflang.ir.graph import Attr, Eqn, ExternalObject, Graph, Value, Values
from difflang.ir.op import OPS
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import DTYPES, DType, History, Tensor, Type
from difflang.ir.text_parser import dim_from_text, type_from_text
from difflang.ir.verify import MalformedGraph, check_graph

FORMAT = "difflang-ir"
VERSION = 2  # version 1 had other names of ops and attributes
MAX_DEPTH = 200  # of nested attributes: decoding recurses
Json = Any


def graph_to_json(graph: Graph, sources: dict[Source, int] | None = None) -> str:
    """The graph as one line of JSON. Cost: linear; graphs used many times are encoded once."""
    # Its source texts are numbered in `sources`, after those that are there already.
    return json.dumps(GraphEncoder(sources).encode(graph), separators=(",", ":"), allow_nan=False)


def graph_from_json(text: str, sources: Sequence[Source] | None = None) -> Graph:
    """The graph that was encoded, with spans into `sources` if given. Errors: DifflangError for any other text."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        fail_malformed("it is not JSON")
    return GraphDecoder(sources).whole(data)


def undeclared_op(name: str) -> DifflangError:
    """The error of a graph with an op that is not in the registry."""
    way = "if a module of Python declares it with `dg.op`, import that first"
    return DifflangError(Diagnostic("DL1272", f"this graph has the op {name!r:.60}, which is not declared", (), (way,)))


def fail_malformed(what: str) -> NoReturn:
    raise DifflangError(Diagnostic("DL1204", f"this is not a graph in JSON form: {what}"))


# Version 1 had other names of ops and attributes: from the old name to today's.
RENAMED_OPS = {
    "again": "self_call",
    "exchange": "swap_item",
    "given": "opaque_call",
    "reduce_top": "reduce_max",
    "ruled": "custom_derivative",
    "say": "print",
    "solved": "custom_linear_solve",
}
RENAMED_ATTRS = {
    "checkpoint": {"again": "recompute", "cut": "min_cut", "step": "loop_step"},
    "loop": {"again": "history_outputs", "undo": "reversible"},
}


# ---- Encoding


class GraphEncoder:
    """Encodes a graph and, before it, the graphs that it uses."""

    def __init__(self, sources: dict[Source, int] | None = None) -> None:
        self.numbers: dict[Graph, int] = {}
        self.graphs: list[Json] = []
        self.sources: dict[Source, int] = {} if sources is None else sources

    def encode(self, graph: Graph) -> Json:
        self.encode_graph(graph)
        return {"format": FORMAT, "version": VERSION, "sources": [s.name for s in self.sources], "graphs": self.graphs}

    def encode_graph(self, graph: Graph) -> int:
        if graph in self.numbers:
            return self.numbers[graph]
        place: dict[Value, int] = {}
        for param in graph.params:
            place[param] = len(place)
        eqns: list[Json] = []
        for eqn in graph.eqns:
            operands = [place[v] for v in eqn.operands]
            for result in eqn.results:
                place[result] = len(place)
            attrs = {k: encode_attr(eqn.attrs[k]) for k in sorted(eqn.attrs)}
            regions = list(map(self.encode_graph, eqn.regions))
            eqns.append([eqn.op.name, operands, encode_values(eqn.results), attrs, regions, self.encode_span(eqn.span)])
        results = [place[r] for r in graph.results]
        # Appended after its regions, so that a decoder has seen every graph that it refers to.
        self.graphs.append([graph.name, encode_values(graph.params), eqns, results])
        self.numbers[graph] = len(self.graphs) - 1
        return self.numbers[graph]

    def encode_span(self, span: Span) -> Json:
        """`[source, start, end]`, or None of no source; for an equation that computes cotangents with `True` behind."""
        backward = [True] if isinstance(span, BackwardSpan) else []
        if not span.is_known:
            return backward or None
        return [self.sources.setdefault(span.source, len(self.sources)), span.start, span.end, *backward]


def encode_values(values: Values) -> Json:
    return [[str(v.type), v.hint] for v in values]


def encode_attr(value: Attr) -> Json:
    """Numbers, bools, strings and tuples as they are; a value that JSON lacks as an object with one key."""
    match value:
        case float() if not math.isfinite(value):
            return {"float": "-nan" if math.isnan(value) and math.copysign(1.0, value) < 0 else str(value)}
        case None | bool() | int() | float() | str():
            return value
        case complex():
            return {"complex": [encode_attr(value.real), encode_attr(value.imag)]}
        case DType():
            return {"dtype": value.name}
        case Tensor() | History():
            return {"type": str(value)}
        case Poly():
            return {"dim": str(value)}
        case tuple():
            return [encode_attr(v) for v in cast(tuple[Attr, ...], value)]
        case ExternalObject(name=name):
            message = f"a program that calls `{name}`, a Python function, cannot be serialized"
            way = "the reader would not have that function: write it in the language"
            raise DifflangError(Diagnostic("DL1233", message, helps=(way,)))
        case _:
            raise InternalError(f"{value!r} cannot be an attribute")


# ---- Decoding

cached_type_from_text = cache(type_from_text)


class GraphDecoder:
    """Builds graphs from untrusted JSON, which may hold anything at all."""

    def __init__(self, sources: Sequence[Source] | None = None) -> None:
        self.expected_sources = sources
        self.sources: list[Source] = []
        self.graphs: list[Graph] = []

    def whole(self, data: Json) -> Graph:
        if not isinstance(data, dict) or cast(Json, data).get("format") != FORMAT:
            fail_malformed(f'it has no "format": "{FORMAT}"')
        data = cast(dict[str, Json], data)
        if data.get("version") not in (1, VERSION):
            fail_malformed(
                f"its version is {data.get('version')!r:.20}, but this difflang reads versions up to {VERSION}"
            )
        names = [expect_string(name) for name in expect_list(data.get("sources"))]
        if self.expected_sources is not None and names != [s.name for s in self.expected_sources[: len(names)]]:
            fail_malformed("it comes from different sources")
        self.sources = (
            [Source(name, "") for name in names] if self.expected_sources is None else list(self.expected_sources)
        )
        for graph in expect_list(data.get("graphs")):
            self.graphs.append(self.decode_graph(graph))
        if not self.graphs:
            fail_malformed("it holds no graph")
        try:
            check_graph(self.graphs[-1])
        except MalformedGraph as fault:
            fail_malformed(fault.message)
        return self.graphs[-1]

    def decode_graph(self, data: Json) -> Graph:
        name, params, eqns, results = expect_list(data, 4)
        home = Builder()
        values = self.decode_values(params, home)
        count = len(values)
        read = [self.decode_eqn(eqn, values, home) for eqn in expect_list(eqns)]
        return Graph(
            tuple(values[:count]),
            tuple(read),
            tuple([expect_element(values, r) for r in expect_list(results)]),
            expect_string(name),
        )

    def decode_eqn(self, data: Json, values: list[Value], home: Builder) -> Eqn:
        """One equation; its results are appended to `values`."""
        name, operands, results, attrs, regions, span = expect_list(data, 6)
        op = OPS.get(RENAMED_OPS.get(name := expect_string(name), name))
        if op is None:
            raise undeclared_op(name)
        if not isinstance(attrs, dict):
            fail_malformed("attributes are not an object")
        old = RENAMED_ATTRS.get(op.name, {})
        read = {old.get(k, k): decode_attr(v) for k, v in cast(dict[str, Json], attrs).items()}
        inputs = tuple([expect_element(values, v) for v in expect_list(operands)])
        outputs = self.decode_values(results, home)
        values += outputs
        inner = tuple([expect_element(self.graphs, g) for g in expect_list(regions)])
        return Eqn(op, inputs, tuple(outputs), read, inner, self.decode_span(span))

    def decode_values(self, data: Json, home: Builder) -> list[Value]:
        pairs = [expect_list(pair, 2) for pair in expect_list(data)]
        return [Value(decode_type(type), home, expect_string(hint)) for type, hint in pairs]

    def decode_span(self, data: Json) -> Span:
        parts = cast(list[Json], data) if isinstance(data, list) else []
        if parts and parts[-1] is True:  # and not 1, where a span ends at the first character
            rest = parts[:-1]
            return backward_span(self.decode_span(rest or None))
        if data is None:
            return NO_SPAN
        source, start, end = expect_list(data, 3)
        if type(start) is not int or type(end) is not int or not 0 <= start <= end:
            fail_malformed("a span is not a range")
        found = expect_element(self.sources, source)
        if self.expected_sources is not None and end > len(found.text):
            fail_malformed("a span is outside its text")
        return Span(found, start, end)


def expect_list(data: Json, count: int | None = None) -> list[Json]:
    if not isinstance(data, list) or (count is not None and len(cast(list[Json], data)) != count):
        fail_malformed(f"{data!r:.40} is not a list{'' if count is None else f' of {count}'}")
    return cast(list[Json], data)


def expect_element(things: list[Any], place: Json) -> Any:
    if type(place) is not int or not 0 <= place < len(things):
        fail_malformed(f"{place!r:.40} is not the number of an earlier item")
    return things[place]


def expect_string(data: Json) -> str:
    if not isinstance(data, str):
        fail_malformed(f"{data!r:.40} is not a string")
    return data


def decode_type(data: Json) -> Type:
    try:
        return cached_type_from_text(expect_string(data))
    except DifflangError:
        fail_malformed(f"{data!r:.40} is not a type")


def decode_attr(data: Json, depth: int = 0) -> Attr:
    if depth > MAX_DEPTH:
        fail_malformed("an attribute is nested too deeply")
    if isinstance(data, list):
        return tuple([decode_attr(v, depth + 1) for v in cast(list[Json], data)])
    if not isinstance(data, dict):
        return data
    if len(cast(dict[str, Json], data)) != 1:
        fail_malformed("an attribute has several kinds")
    ((kind, value),) = cast(dict[str, Json], data).items()
    if kind == "dtype" and isinstance(value, str) and value in DTYPES:
        return DTYPES[value]
    if kind == "type":
        return decode_type(value)
    if kind == "float" and value in ("nan", "-nan", "inf", "-inf"):
        return float(value)
    if kind == "complex":
        return complex(*[decode_float(part) for part in expect_list(value, 2)])
    if kind != "dim":
        fail_malformed(f"there is no attribute kind {kind!r:.20}")
    try:
        return dim_from_text(expect_string(value))
    except DifflangError:
        fail_malformed(f"{value!r:.40} is not a size")


def decode_float(data: Json) -> float:
    value = decode_attr(data, MAX_DEPTH)
    if type(value) is not float:
        fail_malformed(f"{data!r:.40} is not a floating-point number")
    return value
