"""The contents of an artifact file: manifest, sources, graph, arrays and StableHLO, encoded and decoded.

Everything is JSON or the bytes of arrays. Nothing in it is executed except the graph, by its ops. The format is
described in `docs/artifacts.md`.
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

from difflang.base.check_sites import CheckSite, IndexTarget
from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError
from difflang.base.source import BUILTIN_SOURCE, LIBRARY_PREFIX, NO_SPAN, Source, Span
from difflang.ir.graph import Graph
from difflang.ir.json_codec import graph_from_json, graph_to_json
from difflang.ir.symbolic_dims import dim_name, dim_names
from difflang.ir.tensor_types import Tensor, numpy_dtype
from difflang.ir.text_parser import type_from_text
from difflang.runtime.value_layouts import LeafLayout, ValueLayout, leaves_of
from difflang.tools.export import artifact_file
from difflang.tools.export.artifact_file import raise_damaged
from difflang.tools.export.layout_json import layout_from_json, layout_to_json

FORMAT = "difflang-artifact"
VERSION = 3  # docs/artifacts.md lists the versions; a reader accepts all older ones
Json = Any


class ArtifactParam(Struct, frozen=True):
    """A parameter: its name, its declared type, the layout of its argument, and the span of its declaration."""

    name: str
    type_text: str
    layout: ValueLayout
    span: Span = NO_SPAN


class ArtifactContents(Struct, frozen=True, eq=False):
    """A function specialized to argument types.

    The graph takes the leaves of the params, a key if it is `random`, and `constants`. It gives the leaves of the
    result
    and, if it `fails`, the number of a check and two numbers for its message. `limit` is the memory limit in bytes of a
    program with a derivative of it, 0 for none.
    """

    name: str
    doc: str
    module: str
    graph: Graph
    params: tuple[ArtifactParam, ...]
    result: ValueLayout
    random: bool
    fails: bool
    limit: int
    deterministic: bool
    sites: tuple[CheckSite, ...]
    constants: tuple[np.ndarray[Any, Any], ...]
    sizes: tuple[str, ...] = ()  # those that are symbolic: each call determines them
    # The output of `jax.export` by platform.
    exported: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


# ---- Encoding


def to_bytes(contents: ArtifactContents) -> bytes:
    """The bytes of the file. Errors: DL1240 if it would be too large."""
    sources: dict[Source, int] = {}
    graph = graph_to_json(contents.graph, sources)
    about = manifest(contents, sources)
    texts = [[source.name, source.text] for source in sources]
    members = {"graph.json": graph.encode(), "sources.json": json_bytes(texts)}
    members |= {f"constants/{i}": array.tobytes() for i, array in enumerate(contents.constants)}
    members |= {f"stablehlo/{platform}": data for platform, data in contents.exported.items()}
    # Checksums of all members, so that damage is located.
    about["members"] = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    return artifact_file.pack({"manifest.json": json_bytes(about, indent=1), **members})


def json_bytes(data: Json, indent: int | None = None) -> bytes:
    return json.dumps(data, separators=None if indent else (",", ":"), indent=indent, allow_nan=False).encode()


def manifest(contents: ArtifactContents, sources: dict[Source, int]) -> dict[str, Json]:
    first_constant = len(contents.graph.params) - len(contents.constants)
    return {
        "format": FORMAT,
        "version": VERSION if contents.sizes else 2,  # as readers of format 2 take it
        "difflang": metadata.version("difflang"),
        "name": contents.name,
        "doc": contents.doc,
        "module": contents.module,
        "params": [
            {
                "name": p.name, "written": p.type_text, "layout": layout_to_json(p.layout),
                "span": span_json(p.span, sources),
            }
            for p in contents.params
        ],
        "result": layout_to_json(contents.result),
        "random": contents.random,
        "fails": contents.fails,
        "limit": contents.limit,
        "in_order": contents.deterministic,
        "checks": [site_json(s, sources) for s in contents.sites],
        "constants": [str(p.type) for p in contents.graph.params[first_constant:]],
        "platforms": list(contents.exported),
        **({"sizes": list(contents.sizes)} if contents.sizes else {}),
    }  # fmt: skip


def site_json(site: CheckSite, sources: dict[Source, int]) -> Json:
    """A check; for an index also what is indexed."""
    found: list[Json] = [span_json(site.span, sources), site.message, site.capacity]
    if (into := site.index_target) is not None:
        counters: list[Json] = [[span_json(span, sources), more] for span, more in into.counters]
        found.append([span_json(into.array, sources), into.axis, into.range_length, into.is_index_array, counters])
    return found


def span_json(span: Span, sources: dict[Source, int]) -> Json:
    return (
        None if span.source is BUILTIN_SOURCE else [sources.setdefault(span.source, len(sources)), span.start, span.end]
    )


# ---- Decoding

# What decoding arbitrary data may raise.
READ_FAULTS = (
    *(DifflangError, InternalError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    *(AssertionError, RecursionError, MemoryError),
)


def from_bytes(data: bytes) -> ArtifactContents:
    """Decode a file. Errors: DL1241 if it is not an artifact or is damaged, DL1242 for a newer format.

    DL1272 if it has an op of a user that is not declared here.
    """
    members = artifact_file.unpack(data)
    about = parse_json(members.get("manifest.json", b""))
    if not isinstance(about, dict) or cast(Json, about).get("format") != FORMAT:
        raise_damaged("it has no manifest")
    # The version first: a newer format may differ in everything else.
    refuse_newer(cast(dict[str, Json], about))
    # Only for versions that we know: a newer packer may differ.
    artifact_file.verify_bytes(data, members)
    try:
        return ArtifactReader(cast(dict[str, Json], about), members).contents()
    except READ_FAULTS as error:
        if isinstance(error, DifflangError) and error.diagnostics[0].code in ("DL1241", "DL1272"):
            raise
        raise_damaged(error.diagnostics[0].message if isinstance(error, DifflangError) else "its parts do not match")


def load_artifact(path: Path) -> ArtifactContents:
    """Read and decode a file. Errors: DL0701, DL1241, DL1242."""
    return from_bytes(artifact_file.read_container(path))


def refuse_newer(about: dict[str, Json]) -> None:
    version = about.get("version")
    if type(version) is not int or version < 1:
        raise_damaged("it has no version")
    if version > VERSION:
        by = about.get("difflang")
        message = f"this artifact has format {version}, but this difflang reads formats up to {VERSION}"
        way = f"difflang {by:.20} wrote it: install that version or a later one" if isinstance(by, str) else ""
        raise DifflangError(Diagnostic("DL1242", message, helps=(way,) if way else ()))


def parse_json(data: bytes) -> Json:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise_damaged("a part of it is not JSON")


class ArtifactReader:
    """Decodes the members of a file without trusting them."""

    def __init__(self, about: dict[str, Json], members: Mapping[str, bytes]) -> None:
        self.about, self.members = about, members
        self.sources: list[Source] = []

    def contents(self) -> ArtifactContents:
        self.verify_checksums()
        self.sources = [
            Source(expect_text(name), expect_text(said), library=expect_text(name).startswith(LIBRARY_PREFIX))
            for name, said in parse_json(self.members["sources.json"])
        ]
        about = self.about
        graph = graph_from_json(self.members["graph.json"].decode(), self.sources)
        params = tuple([self.param(p) for p in about["params"]])
        found = ArtifactContents(
            expect_text(about["name"]), expect_text(about["doc"]), expect_text(about["module"]), graph, params,
            layout_from_json(about["result"]), expect_bool(about["random"]), expect_bool(about["fails"]),
            expect_natural(about["limit"]), expect_bool(about["in_order"]),
            tuple([self.site(s) for s in about["checks"]]),
            tuple([self.constant(i, type) for i, type in enumerate(about["constants"])]),
            tuple(map(expect_text, about.get("sizes", ()))),
            {expect_text(p): self.members[f"stablehlo/{p}"] for p in about["platforms"]},
        )  # fmt: skip
        check_signature(found)
        return found

    def verify_checksums(self) -> None:
        sums = cast(dict[str, Json], self.about["members"])
        arrays = [f"constants/{i}" for i in range(len(self.about["constants"]))]
        programs = [f"stablehlo/{platform}" for platform in self.about["platforms"]]
        known = {"graph.json", "sources.json", *arrays, *programs}
        if not sums.keys() == known == self.members.keys() - {"manifest.json"}:
            raise_damaged("a member is missing or unknown")
        for name, digest in sums.items():
            if hashlib.sha256(self.members[name]).hexdigest() != digest:
                raise_damaged(f"the checksum of {name} does not match")

    def param(self, data: Json) -> ArtifactParam:
        name, written = expect_text(data["name"]), expect_text(data["written"])
        return ArtifactParam(name, written, layout_from_json(data["layout"]), self.span(data["span"]))

    def site(self, data: Json) -> CheckSite:
        span, message, capacity, *into = data
        if capacity not in ("", "frames", "steps", "items"):
            raise_damaged("a check has an unknown kind")
        target = self.into(into[0]) if into else None
        return CheckSite(self.span(span), expect_text(message), capacity, index_target=target)

    def into(self, data: Json) -> IndexTarget:
        array, axis, reach, many, counters = data
        found = tuple([(self.span(span), expect_optional_integer(more)) for span, more in counters])
        return IndexTarget(
            self.span(array), expect_optional_integer(axis), expect_optional_integer(reach), expect_bool(many), found
        )

    def span(self, data: Json) -> Span:
        if data is None:
            return NO_SPAN
        source, start, end = map(expect_natural, data)
        if not start <= end <= len(self.sources[source].text):
            raise_damaged("a span is outside its text")
        return Span(self.sources[source], start, end)

    def constant(self, place: int, type: Json) -> np.ndarray[Any, Any]:
        tensor = type_from_text(expect_text(type))
        if not isinstance(tensor, Tensor):
            raise_damaged("a constant is not an array")
        shape = tuple([expect_natural(n) for n in tensor.shape])
        return np.frombuffer(self.members[f"constants/{place}"], numpy_dtype(tensor.dtype)).reshape(shape)


def check_signature(found: ArtifactContents) -> None:
    """Errors: DL1241 if the graph takes or gives arrays of other types than the manifest says, or names cannot be."""
    names = [*[p.name for p in found.params], *["key"] * found.random]
    if len(names) != len({*names}) or not all(n.isidentifier() for n in names):
        raise_damaged("its parameters have impossible names")
    takes = [*layout_leaf_types([p.layout for p in found.params]), *[None] * found.random]
    params = [p.type for p in found.graph.params]
    constants = len(params) - len(found.constants)
    if len(takes) != constants or any(t is not None and t != p for t, p in zip(takes, params, strict=False)):
        raise_damaged("its graph takes different arguments")
    for array, type in zip(found.constants, params[constants:], strict=True):
        if not isinstance(type, Tensor) or type.shape != array.shape or numpy_dtype(type.dtype) != array.dtype:
            raise_damaged("a constant has a different type")
    gives = layout_leaf_types([found.result])
    results = [r.type for r in found.graph.results]
    if len(results) != len(gives) + 3 * found.fails or any(
        t is not None and t != r for t, r in zip(gives, results, strict=False)
    ):
        raise_damaged("its graph has different results")
    sizes = [n for t in (*params, *results) for n in (t.shape if isinstance(t, Tensor) else (None,))]
    if any(n is None or not dim_names(n) <= {*found.sizes} for n in sizes) or not {*found.sizes} <= alone_sizes(takes):
        raise_damaged("a size is not a number")


def alone_sizes(types: Sequence[Tensor | None]) -> set[str]:
    """The symbolic sizes that are an axis of one of these types, and not only a part of a formula."""
    sizes = {n for t in types if t is not None for n in t.shape}
    return {name for n in sizes for name in dim_names(n) if n == dim_name(name)}


def layout_leaf_types(layouts: Sequence[ValueLayout]) -> list[Tensor | None]:
    """The types of the leaves, None where a layout does not determine one."""
    return [leaf.type if isinstance(leaf, LeafLayout) else leaf for layout in layouts for leaf in leaves_of(layout)]


def expect_text(data: Json) -> str:
    if not isinstance(data, str):
        raise_damaged("expected a string")
    return data


def expect_bool(data: Json) -> bool:
    if not isinstance(data, bool):
        raise_damaged("expected a bool")
    return data


def expect_optional_integer(data: Json) -> int | None:
    if data is not None and type(data) is not int:
        raise_damaged("expected a number")
    return data


def expect_natural(data: Json) -> int:
    if type(data) is not int or data < 0:
        raise_damaged("expected a number")
    return data
