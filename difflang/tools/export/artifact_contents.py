"""What an artifact holds, and the members of its file: a manifest, sources, a graph, arrays, StableHLO.

Everything is JSON or the bytes of arrays; nothing in it is ever executed but the graph, by its ops. `docs/artifacts.md`
describes the format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import numpy as np
from msgspec import Struct, field

from difflang.base.check_sites import Into, Site
from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError
from difflang.base.source import BUILTIN, LIBRARY, NOWHERE, Source, Span
from difflang.ir.graph import Graph, Values
from difflang.ir.interpreter import numpy_dtype
from difflang.ir.json_codec import from_json, to_json
from difflang.ir.tensor_types import Tensor
from difflang.ir.text_parser import type_from_text
from difflang.runtime.value_layouts import Layout, Leaf, each
from difflang.tools.export import artifact_file
from difflang.tools.export.artifact_file import damaged
from difflang.tools.export.layout_json import layout_json, read_layout

FORMAT = "difflang-artifact"
VERSION = 1  # docs/artifacts.md says what each version is; a reader takes all before its own
Json = Any


class Param(Struct, frozen=True):
    """A parameter: its name, its type as it is declared, what is given for it, and where it is declared."""

    name: str
    written: str
    layout: Layout
    span: Span = NOWHERE


class Contents(Struct, frozen=True, eq=False):
    """A function for arguments of certain types.

    The graph takes the leaves of the params, a key if it is `random`, and `constants`; it gives the leaves of the
    result and, if it `fails`, the number of a check and two numbers that it was about. `limit` is the most bytes that a
    program with a derivative of it may take, 0 for any.
    """

    name: str
    doc: str
    module: str
    graph: Graph
    params: tuple[Param, ...]
    result: Layout
    random: bool
    fails: bool
    limit: int
    in_order: bool
    sites: tuple[Site, ...]
    constants: tuple[np.ndarray[Any, Any], ...]
    exported: Mapping[str, bytes] = field(default_factory=dict[str, bytes])  # what `jax.export` wrote, by platform


# ---- Written


def to_bytes(contents: Contents) -> bytes:
    """The file. Errors: DL1240 where it would be too large."""
    sources: dict[Source, int] = {}
    graph = to_json(contents.graph, sources)
    about = manifest(contents, sources)
    texts = [[source.name, source.text] for source in sources]
    members = {"graph.json": graph.encode(), "sources.json": json_bytes(texts)}
    members |= {f"constants/{i}": array.tobytes() for i, array in enumerate(contents.constants)}
    members |= {f"stablehlo/{platform}": data for platform, data in contents.exported.items()}
    about["members"] = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    return artifact_file.packed({"manifest.json": json_bytes(about, indent=1), **members})


def json_bytes(data: Json, indent: int | None = None) -> bytes:
    return json.dumps(data, separators=None if indent else (",", ":"), indent=indent, allow_nan=False).encode()


def manifest(contents: Contents, sources: dict[Source, int]) -> dict[str, Json]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "difflang": metadata.version("difflang"),
        "name": contents.name,
        "doc": contents.doc,
        "module": contents.module,
        "params": [
            {"name": p.name, "written": p.written, "layout": layout_json(p.layout), "span": span_json(p.span, sources)}
            for p in contents.params
        ],
        "result": layout_json(contents.result),
        "random": contents.random,
        "fails": contents.fails,
        "limit": contents.limit,
        "in_order": contents.in_order,
        "checks": [site_json(s, sources) for s in contents.sites],
        "constants": [str(p.type) for p in last(contents.graph.params, len(contents.constants))],
        "platforms": list(contents.exported),
    }  # fmt: skip


def last(values: Values, count: int) -> Values:
    return values[len(values) - count :]


def site_json(site: Site, sources: dict[Source, int]) -> Json:
    """A check; of an index also what it goes into."""
    found: list[Json] = [span_json(site.span, sources), site.message, site.room]
    if (into := site.into) is not None:
        counters: list[Json] = [[span_json(span, sources), more] for span, more in into.counters]
        found.append([span_json(into.array, sources), into.axis, into.reach, into.many, counters])
    return found


def span_json(span: Span, sources: dict[Source, int]) -> Json:
    return None if span.source is BUILTIN else [sources.setdefault(span.source, len(sources)), span.start, span.end]


# ---- Read

FAULTS = (
    *(DifflangError, InternalError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    *(AssertionError, RecursionError, MemoryError),
)  # what reading may meet in data that says anything at all


def from_bytes(data: bytes) -> Contents:
    """What a file holds. Errors: DL1241 for anything that was not written as such, DL1242 for a newer format."""
    members = artifact_file.unpacked(data)
    about = parsed(members.get("manifest.json", b""))
    if not isinstance(about, dict) or cast(Json, about).get("format") != FORMAT:
        damaged("it has no manifest")
    refuse_newer(cast(dict[str, Json], about))
    artifact_file.refuse_changed(data, members)
    try:
        return Reader(cast(dict[str, Json], about), members).contents()
    except FAULTS as error:
        if isinstance(error, DifflangError) and error.diagnostics[0].code == "DL1241":
            raise
        damaged(error.diagnostics[0].message if isinstance(error, DifflangError) else "its parts do not fit together")


def load(path: Path) -> Contents:
    """What a file holds. Errors: DL0701, DL1241, DL1242."""
    return from_bytes(artifact_file.read(path))


def refuse_newer(about: dict[str, Json]) -> None:
    version = about.get("version")
    if type(version) is not int or version < 1:
        damaged("it has no version")
    if version > VERSION:
        by = about.get("difflang")
        message = f"this artifact has format {version}, and this difflang reads formats up to {VERSION}"
        way = f"it was written by difflang {by:.20}: install that or a later one" if isinstance(by, str) else ""
        raise DifflangError(Diagnostic("DL1242", message, helps=(way,) if way else ()))


def parsed(data: bytes) -> Json:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        damaged("a part of it is no JSON")


class Reader:
    """Reads the members of a file that may hold anything at all."""

    def __init__(self, about: dict[str, Json], members: Mapping[str, bytes]) -> None:
        self.about, self.members = about, members
        self.sources: list[Source] = []

    def contents(self) -> Contents:
        self.compare_sums()
        self.sources = [
            Source(text(name), text(said), library=text(name).startswith(LIBRARY))
            for name, said in parsed(self.members["sources.json"])
        ]
        about = self.about
        graph = from_json(self.members["graph.json"].decode(), self.sources)
        params = tuple([self.param(p) for p in about["params"]])
        found = Contents(
            text(about["name"]), text(about["doc"]), text(about["module"]), graph, params,
            read_layout(about["result"]), truth(about["random"]), truth(about["fails"]), number(about["limit"]),
            truth(about["in_order"]), tuple([self.site(s) for s in about["checks"]]),
            tuple([self.constant(i, type) for i, type in enumerate(about["constants"])]),
            {text(p): self.members[f"stablehlo/{p}"] for p in about["platforms"]},
        )  # fmt: skip
        refuse_misfits(found)
        return found

    def compare_sums(self) -> None:
        sums = cast(dict[str, Json], self.about["members"])
        arrays = [f"constants/{i}" for i in range(len(self.about["constants"]))]
        programs = [f"stablehlo/{platform}" for platform in self.about["platforms"]]
        known = {"graph.json", "sources.json", *arrays, *programs}
        if not sums.keys() == known == self.members.keys() - {"manifest.json"}:
            damaged("a member is missing, or is not known")
        for name, wanted in sums.items():
            if hashlib.sha256(self.members[name]).hexdigest() != wanted:
                damaged(f"the checksum of {name} is another one")

    def param(self, data: Json) -> Param:
        return Param(text(data["name"]), text(data["written"]), read_layout(data["layout"]), self.span(data["span"]))

    def site(self, data: Json) -> Site:
        span, message, room, *into = data
        if room not in ("", "frames", "steps", "items"):
            damaged("a check is of an unknown kind")
        return Site(self.span(span), text(message), room, into=self.into(into[0]) if into else None)

    def into(self, data: Json) -> Into:
        array, axis, reach, many, counters = data
        found = tuple([(self.span(span), maybe(more)) for span, more in counters])
        return Into(self.span(array), maybe(axis), maybe(reach), truth(many), found)

    def span(self, data: Json) -> Span:
        if data is None:
            return NOWHERE
        source, start, end = map(number, data)
        if not start <= end <= len(self.sources[source].text):
            damaged("a place lies outside of its text")
        return Span(self.sources[source], start, end)

    def constant(self, place: int, type: Json) -> np.ndarray[Any, Any]:
        tensor = type_from_text(text(type))
        if not isinstance(tensor, Tensor):
            damaged("a constant is no array")
        shape = tuple([number(n) for n in tensor.shape])
        return np.frombuffer(self.members[f"constants/{place}"], numpy_dtype(tensor.dtype)).reshape(shape)


def refuse_misfits(found: Contents) -> None:
    """Errors: DL1241 where the graph takes or gives other arrays than is said."""
    wanted = [*leaf_types([p.layout for p in found.params]), *[None] * found.random]
    params = [p.type for p in found.graph.params]
    constants = len(params) - len(found.constants)
    if len(wanted) != constants or any(t is not None and t != p for t, p in zip(wanted, params, strict=False)):
        damaged("its graph takes other arguments")
    for array, type in zip(found.constants, params[constants:], strict=True):
        if not isinstance(type, Tensor) or type.shape != array.shape or numpy_dtype(type.dtype) != array.dtype:
            damaged("a constant is of another type")
    gives = leaf_types([found.result])
    results = [r.type for r in found.graph.results]
    if len(results) != len(gives) + 3 * found.fails or any(
        t is not None and t != r for t, r in zip(gives, results, strict=False)
    ):
        damaged("its graph gives other results")
    if any(not isinstance(n, int) for t in (*params, *results) for n in getattr(t, "shape", "-")):
        damaged("a size is no number")


def leaf_types(layouts: Sequence[Layout]) -> list[Tensor | None]:
    """The types of leaves, as far as a layout says them."""
    return [leaf.type if isinstance(leaf, Leaf) else leaf for layout in layouts for leaf in each(layout)]


def text(data: Json) -> str:
    if not isinstance(data, str):
        damaged("a text is none")
    return data


def truth(data: Json) -> bool:
    if not isinstance(data, bool):
        damaged("a truth value is none")
    return data


def maybe(data: Json) -> int | None:
    if data is not None and type(data) is not int:
        damaged("a number is none")
    return data


def number(data: Json) -> int:
    if type(data) is not int or data < 0:
        damaged("a number is none")
    return data
