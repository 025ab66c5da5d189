"""Functions written to files: what a call of them needs, made once, with the program for each platform beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.base.check_sites import Site
from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.error_codes import nearest
from difflang.base.source import NOWHERE, Source, Span
from difflang.base.source_files import replace as write_file
from difflang.base.source_files import unwritable
from difflang.driver.elaborate_call import Argument, Entry
from difflang.elaborate.context import Session
from difflang.execution.check_failures import guarded
from difflang.execution.type_layouts import described
from difflang.host.optional_packages import needed
from difflang.ir.graph import Graph, inner_first
from difflang.ops.control.print_effect import printing
from difflang.runtime.value_layouts import Called, Either, Fields, Fixed, Items, Layout
from difflang.tools.export.artifact_contents import Contents, Param, to_bytes
from difflang.tools.export.artifact_file import PLATFORMS as KNOWN

PLATFORMS = ("cpu", "cuda", "tpu")  # those that are exported for where nothing is said


class Made(Struct, frozen=True, eq=False):
    """A function that was elaborated to be exported: its graph, for which arguments, and what the file lends."""

    name: str
    doc: str
    module: str
    entry: Entry
    arguments: Sequence[Argument]
    declared: Mapping[str, tuple[str, Span | None]]  # how each parameter is written, and where
    session: Session  # in which it was elaborated, and nothing else
    in_order: bool
    constants: Sequence[Any]


def contents_of(made: Made) -> Contents:
    """What is written of a function. Errors: DL1240 for what cannot be."""
    entry = made.entry
    refuse_printing(made.name, entry.graph)
    refuse_two_keys(made)
    params = tuple([param(made, argument) for argument in made.arguments])
    result = described(entry.type, made.module)
    refuse_functions(made.name, [*[p.layout for p in params], result])
    return Contents(
        made.name, made.doc, made.module, entry.graph, params, result, entry.random, entry.fails, entry.limit,
        made.in_order, tuple(made.session.sites), tuple([np.asarray(c) for c in made.constants]),
    )  # fmt: skip


def param(made: Made, argument: Argument) -> Param:
    shown, span = made.declared.get(argument.name, ("", None))
    if isinstance(argument.size, int):
        layout: Layout = Fixed(argument.size)
    else:
        layout = described(argument.type, made.module)
    return Param(argument.name, shown, layout, span or NOWHERE)


def refuse_printing(name: str, graph: Graph) -> None:
    said = [e for g in inner_first(printing(graph))[0] for e in g.eqns if e.op.effect]
    if said:
        message = f"`{name}` prints, and what it prints goes to the process that compiled it: it cannot be exported"
        raise refused(message, "leave out what it prints, or give it back as a result", Label(said[0].span, "here"))


def refuse_two_keys(made: Made) -> None:
    """A function out of a file is given what it draws with as `key=`."""
    if made.entry.random and any(argument.name == "key" for argument in made.arguments):
        message = f"`{made.name}` draws random numbers and has a parameter `key`, which would be its key's name too"
        raise refused(message, "call the parameter something else, or draw from it: `with_key(key) { … }`")


def refuse_functions(name: str, layouts: Sequence[Layout]) -> None:
    todo = list(layouts)
    while todo:
        layout = todo.pop()
        if isinstance(layout, Called):
            way = "export a function of arrays; of an exported `f`, `f.vjp()` and `f.linearize()` give functions"
            raise refused(f"`{name}` takes or gives a function, which is code and no data: it cannot be exported", way)
        todo += layout.parts if isinstance(layout, (Items, Fields, Either)) else ()


def refused(message: str, way: str, *labels: Label) -> DifflangError:
    return DifflangError(Diagnostic("DL1240", message, labels, (way,)))


# ---- For platforms


def with_platforms(contents: Contents, platforms: Sequence[str]) -> Contents:
    """With StableHLO for each platform, as `jax.export` serializes it. Errors: DL0709, DL0801."""
    if not platforms:
        return contents
    needed("flatbuffers", NOWHERE)
    graph = lowered_graph(contents)
    from difflang.runtime.jax_export import exported

    data = {platform: bytes(exported(graph, platform).serialize()) for platform in dict.fromkeys(platforms)}
    return replace(contents, exported=data)


def known(platforms: Sequence[str]) -> None:
    for name in [platforms] if isinstance(platforms, str) else platforms:
        if name not in KNOWN or isinstance(platforms, str):
            near = nearest(name, KNOWN) if name not in KNOWN else None
            ways = (f"did you mean `{near}`?" if near else f"write some of {KNOWN}",)
            raise DifflangError(Diagnostic("DL0601", f"`{name}` is no list of platforms to export for", (), ways))


def lowered_graph(contents: Contents) -> Graph:
    """The program that is lowered: its last result is the number of a check that failed, or zero, if one can."""
    from difflang.execution.callable_graph import ready

    graph = ready(contents.graph)
    return guarded(graph) if contents.fails else graph


def without_sources(contents: Contents) -> Contents:
    """The same, with nothing but spaces in place of the texts that it comes from: lines and columns stay right."""
    from difflang.ir.json_codec import from_json, to_json

    sources: dict[Source, int] = {}
    text = to_json(contents.graph, sources)
    for site in contents.sites:
        sources.setdefault(site.span.source, len(sources))
    for each in contents.params:
        sources.setdefault(each.span.source, len(sources))
    spaces = {s: "".join([c if c == "\n" else " " for c in s.text]) for s in sources}
    blank = {s: Source(s.name, text, library=s.library) for s, text in spaces.items()}

    def moved(span: Span) -> Span:
        return span if span == NOWHERE else Span(blank[span.source], span.start, span.end)

    return replace(
        contents,
        graph=from_json(text, list(blank.values())),
        sites=tuple([moved_site(s, moved) for s in contents.sites]),
        params=tuple([replace(p, span=moved(p.span)) for p in contents.params]),
    )


def moved_site(site: Site, moved: Callable[[Span], Span]) -> Site:
    into = site.into
    if into is not None:
        counters = tuple([(moved(span), more) for span, more in into.counters])
        into = replace(into, array=moved(into.array), counters=counters)
    return replace(site, span=moved(site.span), into=into)


def save(path: Path, made: Made, platforms: Sequence[str] = PLATFORMS, *, source: bool = True) -> None:
    """Write a function to a file, as a whole or not at all. Errors: DL0601, DL0709, DL0710, DL0801, DL1240."""
    known(platforms)
    contents = contents_of(made)
    write(path, to_bytes(with_platforms(contents if source else without_sources(contents), platforms)))


def write(path: Path, data: bytes) -> None:
    try:
        write_file(path, data)
    except OSError as error:
        raise unwritable(str(path), error) from None


def stablehlo(contents: Contents, platform: str, *, as_text: bool) -> bytes:
    """The program alone, as text or as bytecode that later versions of StableHLO read. Errors: DL0601, DL0801."""
    known((platform,))
    from difflang.runtime.jax_export import exported

    made = exported(lowered_graph(contents), platform)
    return made.mlir_module().encode() if as_text else bytes(made.mlir_module_serialized)
