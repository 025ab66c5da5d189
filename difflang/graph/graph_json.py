"""JSON of a graph with what a run of it needs: the texts of its sources, and its checks.

It is the JSON of `ir/json_codec.py` with two more members, so what reads one reads the other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn, cast

from msgspec import Struct

from difflang.base.check_sites import CheckSite, CheckTable
from difflang.base.errors import classify_errors
from difflang.base.source import LIBRARY_PREFIX, NO_SPAN, Source
from difflang.execution.check_failures import FAILURE_RESULTS
from difflang.graph.graph_errors import graph_error
from difflang.ir.graph import Graph, graphs_postorder
from difflang.ir.json_codec import GraphDecoder, GraphEncoder
from difflang.ir.tensor_types import I32, Tensor
from difflang.tools.export.artifact_contents import READ_FAULTS, ArtifactReader, site_json

Json = Any
MOST_CHECKS = 1_000_000  # in one program: a number beyond that is no number of a check
CHECK_RESULT = Tensor(I32, ())
UNKNOWN_CHECK = CheckSite(NO_SPAN, "a check of this graph failed")


class GraphRecord(Struct, frozen=True, eq=False):
    """A graph that was read; its checks by number, None if its results tell of none; the rules that it has lost."""

    graph: Graph
    sites: tuple[CheckSite, ...] | None
    dropped_rules: tuple[str, ...] = ()


def record_to_json(graph: Graph, checks: CheckTable | None, dropped_rules: Sequence[str] = (), *, source: bool) -> str:
    """The graph as one line of JSON; with `source`, the texts where its equations stand. Errors: DL1233."""
    sources: dict[Source, int] = {}
    with classify_errors():
        data = cast(dict[str, Json], GraphEncoder(sources).encode(graph))
    if checks is not None:
        used = sorted(n for n in constant_numbers(graph) if 1 <= n <= len(checks.sites))
        sites = [(n, checks.sites[n - 1]) for n in used]
        data["checks"] = [[n, site_json(s if source else without_positions(s), sources)] for n, s in sites]
    if dropped_rules:
        data["dropped_rules"] = list(dropped_rules)
    data["sources"] = [s.name for s in sources]
    if source:
        data["texts"] = [s.text for s in sources]
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def without_positions(site: CheckSite) -> CheckSite:
    """A check for a reader without the texts that its positions are in."""
    return CheckSite(NO_SPAN, site.message, site.capacity)


def constant_numbers(graph: Graph) -> set[int]:
    """The integers among the constants of a graph: the numbers of its checks are among them."""
    found = [eqn.attrs.get("value") for g in graphs_postorder(graph)[0] for eqn in g.eqns]
    return {value for value in found if type(value) is int}


def record_from_json(text: str) -> GraphRecord:
    """The graph that was encoded. Errors: DL1204 for any other text."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError, TypeError):
        fail("it is not JSON")
    if not isinstance(data, dict):
        fail("it is not an object")
    about = cast(dict[str, Json], data)
    sources = read_sources(about)
    with classify_errors():
        graph = GraphDecoder(sources).whole(about)
    dropped = tuple(texts_of(about.get("dropped_rules", []), "its dropped rules are not names"))
    if "checks" not in about:
        return GraphRecord(graph, None, dropped)
    if [v.type for v in graph.results[-FAILURE_RESULTS:]] != [CHECK_RESULT] * FAILURE_RESULTS:
        fail("it has checks, but its last results do not report them")
    return GraphRecord(graph, read_checks(about["checks"], sources or []), dropped)


def read_sources(about: dict[str, Json]) -> list[Source] | None:
    """The sources with their texts; None for a graph without them."""
    if "texts" not in about:
        return None
    names, texts = texts_of(about.get("sources")), texts_of(about["texts"])
    if len(names) != len(texts):
        fail("its sources are not names and texts")
    return [Source(n, t, library=n.startswith(LIBRARY_PREFIX)) for n, t in zip(names, texts, strict=True)]


def texts_of(data: Json, otherwise: str = "its sources are not names and texts") -> list[str]:
    if not isinstance(data, list) or not all(isinstance(part, str) for part in cast(list[Json], data)):
        fail(otherwise)
    return cast(list[str], data)


def read_checks(data: Json, sources: list[Source]) -> tuple[CheckSite, ...]:
    """The checks by number; those between that the graph does not have stand for unknown ones."""
    reader = ArtifactReader({}, {})
    reader.sources = sources
    try:
        found = {int(number): reader.site(site) for number, site in data}
    except READ_FAULTS:
        fail("its checks are damaged")
    if not all(1 <= number <= MOST_CHECKS for number in found):
        fail("a check has an impossible number")
    return tuple([found.get(n, UNKNOWN_CHECK) for n in range(1, max(found, default=0) + 1)])


def fail(what: str) -> NoReturn:
    raise graph_error("DL1204", f"this is not a graph in JSON form: {what}")
