"""The IR as JSON, for tools and artifacts: what is written loads back equal, spans (source names and offsets) included.

The whole is one object. Each graph is written once, after those that it uses; a region is the number of its graph. A
value is the number of its definition in its graph: params first, then results of equations in order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn, cast

from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError
from difflang.base.source import BUILTIN, NOWHERE, Source, Span
from difflang.ir.builder import Builder
from difflang.ir.graph import Attr, Eqn, Graph, Outside, Value, Values
from difflang.ir.op import OPS
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import DTYPES, DType, History, Tensor, Type
from difflang.ir.text_parser import dim_from_text, type_from_text
from difflang.ir.verify import Malformed, check

FORMAT = "difflang-ir"
VERSION = 1
MAX_DEPTH = 200
Json = Any


def to_json(graph: Graph, sources: dict[Source, int] | None = None) -> str:
    """The graph as one line of JSON. Cost: linear; graphs used many times are written once.

    The texts that it comes from are numbered in `sources`, after those that are there already.
    """
    return json.dumps(Writer(sources).whole(graph), separators=(",", ":"), allow_nan=False)


def from_json(text: str, sources: Sequence[Source] | None = None) -> Graph:
    """The graph that was written, from the texts of these `sources` if they are at hand.

    Errors: DifflangError for anything that `to_json` does not write.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        damaged("it is not JSON")
    return Reader(sources).whole(data)


def damaged(what: str) -> NoReturn:
    raise DifflangError(Diagnostic("DL1204", f"this is not a graph in JSON form: {what}"))


class Writer:
    def __init__(self, sources: dict[Source, int] | None = None) -> None:
        self.numbers: dict[Graph, int] = {}
        self.graphs: list[Json] = []
        self.sources: dict[Source, int] = {} if sources is None else sources

    def whole(self, graph: Graph) -> Json:
        self.graph(graph)
        return {"format": FORMAT, "version": VERSION, "sources": [s.name for s in self.sources], "graphs": self.graphs}

    def graph(self, graph: Graph) -> int:
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
            attrs = {k: attr_json(eqn.attrs[k]) for k in sorted(eqn.attrs)}
            regions = list(map(self.graph, eqn.regions))
            eqns.append([eqn.op.name, operands, definitions(eqn.results), attrs, regions, self.span(eqn.span)])
        results = [place[r] for r in graph.results]
        self.graphs.append([graph.name, definitions(graph.params), eqns, results])
        self.numbers[graph] = len(self.graphs) - 1
        return self.numbers[graph]

    def span(self, span: Span) -> Json:
        if span.source is BUILTIN:
            return None
        return [self.sources.setdefault(span.source, len(self.sources)), span.start, span.end]


def definitions(values: Values) -> Json:
    return [[str(v.type), v.hint] for v in values]


def attr_json(value: Attr) -> Json:
    """Numbers, truth values, strings and tuples as they are; what JSON lacks as an object with one key."""
    match value:
        case float() if not math.isfinite(value):
            return {"float": "-nan" if math.isnan(value) and math.copysign(1.0, value) < 0 else str(value)}
        case None | bool() | int() | float() | str():
            return value
        case complex():
            return {"complex": [attr_json(value.real), attr_json(value.imag)]}
        case DType():
            return {"dtype": value.name}
        case Tensor() | History():
            return {"type": str(value)}
        case Poly():
            return {"dim": str(value)}
        case tuple():
            return [attr_json(v) for v in cast(tuple[Attr, ...], value)]
        case Outside(name=name):
            message = f"a program that calls `{name}`, a function of Python, cannot be written down"
            way = "what reads it back would not have that function: write it in the language"
            raise DifflangError(Diagnostic("DL1233", message, helps=(way,)))
        case _:
            raise InternalError(f"{value!r} cannot be an attribute")


type_of = cache(type_from_text)


class Reader:
    """Builds graphs from JSON that may hold anything at all."""

    def __init__(self, sources: Sequence[Source] | None = None) -> None:
        self.given = sources
        self.sources: list[Source] = []
        self.graphs: list[Graph] = []

    def whole(self, data: Json) -> Graph:
        if not isinstance(data, dict) or cast(Json, data).get("format") != FORMAT:
            damaged(f'it has no "format": "{FORMAT}"')
        data = cast(dict[str, Json], data)
        if data.get("version") != VERSION:
            damaged(f"its version is {data.get('version')!r:.20}, and this is difflang's version {VERSION}")
        names = [string(name) for name in items(data.get("sources"))]
        if self.given is not None and names != [s.name for s in self.given[: len(names)]]:
            damaged("it comes from other texts")
        self.sources = [Source(name, "") for name in names] if self.given is None else list(self.given)
        for graph in items(data.get("graphs")):
            self.graphs.append(self.graph(graph))
        if not self.graphs:
            damaged("it holds no graph")
        try:
            check(self.graphs[-1])
        except Malformed as fault:
            damaged(fault.message)
        return self.graphs[-1]

    def graph(self, data: Json) -> Graph:
        name, params, eqns, results = items(data, 4)
        home = Builder()
        values = self.defined(params, home)
        count = len(values)
        read = [self.eqn(eqn, values, home) for eqn in items(eqns)]
        return Graph(tuple(values[:count]), tuple(read), tuple([item(values, r) for r in items(results)]), string(name))

    def eqn(self, data: Json, values: list[Value], home: Builder) -> Eqn:
        """One equation; its results are appended to `values`."""
        name, operands, results, attrs, regions, span = items(data, 6)
        op = OPS.get(string(name))
        if op is None:
            damaged(f"no op is called {name!r:.40}")
        if not isinstance(attrs, dict):
            damaged("attributes are no object")
        read = {string(k): attr(v) for k, v in cast(dict[Json, Json], attrs).items()}
        inputs = tuple([item(values, v) for v in items(operands)])
        outputs = self.defined(results, home)
        values += outputs
        inner = tuple([item(self.graphs, g) for g in items(regions)])
        return Eqn(op, inputs, tuple(outputs), read, inner, self.span(span))

    def defined(self, data: Json, home: Builder) -> list[Value]:
        pairs = [items(pair, 2) for pair in items(data)]
        return [Value(read_type(type), home, string(hint)) for type, hint in pairs]

    def span(self, data: Json) -> Span:
        if data is None:
            return NOWHERE
        source, start, end = items(data, 3)
        if type(start) is not int or type(end) is not int or not 0 <= start <= end:
            damaged("a span is no range")
        found = item(self.sources, source)
        if self.given is not None and end > len(found.text):
            damaged("a span lies outside of its text")
        return Span(found, start, end)


def items(data: Json, count: int | None = None) -> list[Json]:
    if not isinstance(data, list) or (count is not None and len(cast(list[Json], data)) != count):
        damaged(f"{data!r:.40} is not a list{'' if count is None else f' of {count}'}")
    return cast(list[Json], data)


def item(things: list[Any], place: Json) -> Any:
    if type(place) is not int or not 0 <= place < len(things):
        damaged(f"{place!r:.40} is not the number of something above")
    return things[place]


def string(data: Json) -> str:
    if not isinstance(data, str):
        damaged(f"{data!r:.40} is not a string")
    return data


def read_type(data: Json) -> Type:
    try:
        return type_of(string(data))
    except DifflangError:
        damaged(f"{data!r:.40} is not a type")


def attr(data: Json, depth: int = 0) -> Attr:
    if depth > MAX_DEPTH:
        damaged("an attribute is nested too deeply")
    if isinstance(data, list):
        return tuple([attr(v, depth + 1) for v in cast(list[Json], data)])
    if not isinstance(data, dict):
        return data
    if len(cast(dict[str, Json], data)) != 1:
        damaged("an attribute has several kinds")
    ((kind, value),) = cast(dict[str, Json], data).items()
    if kind == "dtype" and isinstance(value, str) and value in DTYPES:
        return DTYPES[value]
    if kind == "type":
        return read_type(value)
    if kind == "float" and value in ("nan", "-nan", "inf", "-inf"):
        return float(value)
    if kind == "complex":
        return complex(*[real(part) for part in items(value, 2)])
    if kind != "dim":
        damaged(f"no attribute is a {kind!r:.20}")
    try:
        return dim_from_text(string(value))
    except DifflangError:
        damaged(f"{value!r:.40} is not a size")


def real(data: Json) -> float:
    value = attr(data, MAX_DEPTH)
    if type(value) is not float:
        damaged(f"{data!r:.40} is not a floating-point number")
    return value
