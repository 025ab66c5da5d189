"""Exports a function to an artifact file, with StableHLO for each platform beside its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.check_sites import CheckSite
from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.error_codes import suggestion
from difflang.base.source import NO_SPAN, Source, Span
from difflang.base.source_files import write_or_report
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.elaborate_call import CallArgument, ElaboratedCall, refuse_unknown_texts
from difflang.driver.run_program import load_values
from difflang.driver.type_specs import declared_arguments
from difflang.elaborate.context import Session
from difflang.execution.callable_graph import finalize_within_limit
from difflang.execution.check_failures import with_check_number
from difflang.execution.type_layouts import layout_of_type
from difflang.host.optional_packages import import_optional
from difflang.ir.graph import Graph, graphs_postorder
from difflang.ir.json_codec import graph_from_json, graph_to_json
from difflang.ir.symbolic_dims import dim_name
from difflang.ops.control.print_effect import without_check_messages
from difflang.ops.value_formatting import has_numbered_texts
from difflang.passes.dce import dce
from difflang.runtime.jax_export import export_program
from difflang.runtime.value_layouts import (
    FunctionLayout,
    NumberedTextLayout,
    RecordLayout,
    StaticLayout,
    TupleLayout,
    UnionLayout,
    ValueLayout,
)
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names
from difflang.tools.emit import elaborate_function, refuse_host_function, single_function
from difflang.tools.export.artifact_contents import (
    ArtifactContents,
    ArtifactParam,
    alone_sizes,
    layout_leaf_types,
    to_bytes,
)
from difflang.tools.export.artifact_file import PLATFORMS as KNOWN
from difflang.types.type_errors import make_error
from difflang.types.type_resolver import TypeBinding

DEFAULT_PLATFORMS = ("cpu", "cuda", "tpu")


class ExportedFunction(Struct, frozen=True, eq=False):
    """A function elaborated for export: its graph, its arguments, and the constants from its file."""

    name: str
    doc: str
    module: str
    entry: ElaboratedCall
    arguments: Sequence[CallArgument]
    # The declared type and the span of each parameter.
    declared: Mapping[str, tuple[str, Span | None]]
    session: Session  # of its elaboration alone
    deterministic: bool
    constants: Sequence[Any]
    sizes: tuple[str, ...] = ()  # those that stay symbolic


def artifact_contents(made: ExportedFunction) -> ArtifactContents:
    """The artifact of a function. Errors: DL1240 if it cannot be exported."""
    entry = made.entry
    refuse_printing(made.name, entry.graph)
    refuse_key_parameter(made)
    params = tuple([artifact_param(made, argument) for argument in made.arguments])
    result = layout_of_type(entry.type, made.module)
    refuse_functions(made.name, [*[p.layout for p in params], result])
    refuse_numbered_messages(made.name, entry.graph)
    refuse_undetermined_sizes(made, params)
    graph, constants = drop_unread_constants(entry.graph, made.constants)
    return ArtifactContents(
        made.name, made.doc, made.module, graph, params, result, entry.random, entry.fails, entry.limit,
        made.deterministic, tuple(made.session.sites), constants, made.sizes,
    )  # fmt: skip


def refuse_undetermined_sizes(made: ExportedFunction, params: Sequence[ArtifactParam]) -> None:
    """Errors: DL1240 for a symbolic size that no argument has, or on which a condition depends."""
    if not made.sizes:
        return
    lost = [n for n in made.sizes if n not in alone_sizes(layout_leaf_types([p.layout for p in params]))]
    if lost:
        message = f"`{lost[0]}` cannot be symbolic: no axis of an argument of `{made.name}` is `{lost[0]}` alone"
        raise export_error(message, f"export `{made.name}` for a number: `{lost[0]}=3`")
    for condition in made.session.undecided_conditions:
        message = f"`{condition.text}` depends on symbolic sizes, so it cannot be checked at export"
        raise export_error(message, "check it in the body: `assert` is checked in each call", Label(condition, "here"))


def drop_unread_constants(graph: Graph, constants: Sequence[Any]) -> tuple[Graph, tuple[np.ndarray, ...]]:
    """A graph whose last params are constants, without those that nothing reads, as other fields of a record are."""
    pruned = dce(graph)
    read = {*pruned.results, *[v for eqn in pruned.eqns for v in eqn.operands]}
    first = len(pruned.params) - len(constants)
    kept = [(p, np.asarray(c)) for p, c in zip(pruned.params[first:], constants, strict=True) if p in read]
    if len(kept) == len(constants):
        return graph, tuple([c for _, c in kept])
    params = (*pruned.params[:first], *[p for p, _ in kept])
    return Graph(params, pruned.eqns, pruned.results, pruned.name), tuple([c for _, c in kept])


def artifact_param(made: ExportedFunction, argument: CallArgument) -> ArtifactParam:
    shown, span = made.declared.get(argument.name, ("", None))
    if isinstance(argument.size, int):
        layout: ValueLayout = StaticLayout(argument.size)
    else:
        layout = layout_of_type(argument.type, made.module)
    return ArtifactParam(argument.name, shown, layout, span or NO_SPAN)


def refuse_printing(name: str, graph: Graph) -> None:
    said = [e for g in graphs_postorder(without_check_messages(graph))[0] for e in g.eqns if e.op.effect]
    if said:
        message = f"`{name}` prints to the process that compiled it, so it cannot be exported"
        raise export_error(
            message, "remove the printing, or return the values as a result", Label(said[0].span, "here")
        )


def refuse_key_parameter(made: ExportedFunction) -> None:
    """Errors: DL1240, since an exported random function takes its key as `key=`."""
    if made.entry.random and any(argument.name == "key" for argument in made.arguments):
        message = (
            f"`{made.name}` draws random numbers and has a parameter `key`, which is also the name of its random key"
        )
        raise export_error(message, "rename the parameter, or draw from it: `with_key(key) { … }`")


def refuse_functions(name: str, layouts: Sequence[ValueLayout]) -> None:
    todo = list(layouts)
    while todo:
        layout = todo.pop()
        if isinstance(layout, FunctionLayout):
            way = "export a function of arrays; `f.vjp()` and `f.linearize()` of an exported `f` return functions"
            raise export_error(
                f"`{name}` takes or returns a function, which is code and not data: it cannot be exported", way
            )
        if isinstance(layout, NumberedTextLayout):
            message = f"`{name}` takes or returns texts that are known only at run time: it cannot be exported"
            raise export_error(message, "take numbers instead, such as those that `codes` gives for texts")
        todo += layout.parts if isinstance(layout, (TupleLayout, RecordLayout, UnionLayout)) else ()


def refuse_numbered_messages(name: str, graph: Graph) -> None:
    """Errors: DL1240 for a message with a text of an array, whose number only this process knows."""
    for eqn in [e for g in graphs_postorder(graph)[0] for e in g.eqns if e.op.effect]:
        if has_numbered_texts(eqn.attrs["text"]):
            message = f"a message of `{name}` contains a text of an array, so it cannot be exported"
            raise export_error(message, "leave the text out of the message", Label(eqn.span, "here"))


def export_error(message: str, way: str, *labels: Label) -> DifflangError:
    return DifflangError(Diagnostic("DL1240", message, labels, (way,)))


# ---- For platforms


def add_stablehlo(contents: ArtifactContents, platforms: Sequence[str]) -> ArtifactContents:
    """Add StableHLO for each platform, as `jax.export` serializes it. Errors: DL0709, DL0801."""
    if not platforms:
        return contents
    import_optional("flatbuffers", NO_SPAN)
    graph = graph_to_lower(contents)
    data = {platform: bytes(export_program(graph, platform).serialize()) for platform in dict.fromkeys(platforms)}
    return replace(contents, exported=data)


def chosen_platforms(made: ExportedFunction, platforms: Sequence[str] | None) -> Sequence[str]:
    """The platforms to write StableHLO for. Errors: DL1240 for some, if sizes are symbolic."""
    if made.sizes and platforms:
        message = f"StableHLO is for sizes that are numbers, but {', '.join(made.sizes)} of `{made.name}` is symbolic"
        raise export_error(message, "export the function for a number too, or leave out the platforms")
    return (() if made.sizes else DEFAULT_PLATFORMS) if platforms is None else platforms


def check_platforms(platforms: Sequence[str]) -> None:
    for name in [platforms] if isinstance(platforms, str) else platforms:
        if name not in KNOWN or isinstance(platforms, str):
            way = suggestion(name, () if name in KNOWN else KNOWN, f"use one or more of {KNOWN}")
            raise make_error("DL0601", f"`{name}` is not a list of platforms to export for", help=way)


def graph_to_lower(contents: ArtifactContents) -> Graph:
    """The program to lower. If it can fail, its last result is the number of the failed check, or zero."""
    graph = finalize_within_limit(contents.graph)
    return with_check_number(graph) if contents.fails else graph


def blank_sources(contents: ArtifactContents) -> ArtifactContents:
    """The same with the source texts replaced by spaces, so that lines and columns stay right."""
    sources: dict[Source, int] = {}
    text = graph_to_json(contents.graph, sources)
    for site in contents.sites:
        sources.setdefault(site.span.source, len(sources))
    for each in contents.params:
        sources.setdefault(each.span.source, len(sources))
    # Newlines stay, so that line numbers do.
    spaces = {s: "".join([c if c == "\n" else " " for c in s.text]) for s in sources}
    blank = {s: Source(s.name, text, library=s.library) for s, text in spaces.items()}

    def moved(span: Span) -> Span:
        return span if not span.is_known else Span(blank[span.source], span.start, span.end)

    return replace(
        contents,
        graph=graph_from_json(text, list(blank.values())),
        sites=tuple([move_site(s, moved) for s in contents.sites]),
        params=tuple([replace(p, span=moved(p.span)) for p in contents.params]),
    )


def move_site(site: CheckSite, moved: Callable[[Span], Span]) -> CheckSite:
    into = site.index_target
    if into is not None:
        counters = tuple([(moved(span), more) for span, more in into.counters])
        into = replace(into, array=moved(into.array), counters=counters)
    return replace(site, span=moved(site.span), index_target=into)


def save_artifact(
    path: Path, made: ExportedFunction, platforms: Sequence[str] | None = None, *, source: bool = True
) -> None:
    """Write a function to a file atomically, by default with StableHLO for common platforms.

    Errors: DL0601, DL0709, DL0710, DL0801, DL1240.
    """
    platforms = chosen_platforms(made, platforms)
    check_platforms(platforms)
    contents = artifact_contents(made)
    write_or_report(path, to_bytes(add_stablehlo(contents if source else blank_sources(contents), platforms)))


def stablehlo_bytes(contents: ArtifactContents, platform: str, *, as_text: bool) -> bytes:
    """The program alone, as text or as portable StableHLO bytecode. Errors: DL0601, DL0801."""
    check_platforms((platform,))
    made = export_program(graph_to_lower(contents), platform)
    return made.mlir_module().encode() if as_text else bytes(made.mlir_module_serialized)


# Mistakes in the command.
USAGE_CODES = ("DL0201", "DL0403", "DL0601", "DL1207", "DL1210", "DL1220")


class ExportOptions(Struct, frozen=True):
    """Options: argument types, the gradient's parameters, platforms; or StableHLO alone for one platform."""

    argument_specs: Mapping[str, str] = field(default_factory=dict[str, str])
    wrt: str | None = None
    platforms: tuple[str, ...] | None = None
    symbolic: tuple[str, ...] = ()
    stablehlo: str | None = None
    source: bool = True
    program_args: tuple[str, ...] = ()


def export_function(made: ExportedFunction, out: Path, options: ExportOptions) -> None:
    """Write a function atomically. Errors: DL0710, DL0801, DL1240."""
    if options.stablehlo is None:
        return save_artifact(out, made, options.platforms, source=options.source)
    chosen_platforms(made, (options.stablehlo,))
    contents = artifact_contents(made)
    if contents.constants:
        message = f"`{made.name}` reads top-level values of the file, which StableHLO alone cannot hold"
        raise make_error("DL1240", message, help="turn them into parameters, or export an artifact, which holds them")
    return write_or_report(out, stablehlo_bytes(contents, options.stablehlo, as_text=out.suffix == ".mlir"))


def elaborate_export(
    checked: CheckedProgram, path: Path | None, entry: str | None, options: ExportOptions
) -> ExportedFunction:
    """Elaborate the function for the given argument types. Errors: DL0201, DL0403, DL1207, DL1210."""
    decl = single_function(checked, entry, "export")
    refuse_host_function(decl)
    session, captured = Session(), load_values(checked, path, words=options.program_args)
    name = decl.name if options.wrt is None else f"grad_{decl.name}"
    sizes = symbolic_sizes(decl, options.symbolic)
    arguments = declared_arguments(checked.module, decl, options.argument_specs, sizes)
    refuse_unknown_texts(arguments)
    made = elaborate_function(session, checked.module, decl, options.wrt, arguments)
    declared = {p.name: (p.type.span.text if p.type is not None else "", p.span) for p in decl.params}
    constants = [np.asarray(leaf) for each in made.globals for leaf in captured.leaves(each)]
    about = name, decl.doc or "", path.stem if path is not None else "<stdin>"
    return ExportedFunction(
        *about, made, arguments, declared, session, checked.session.deterministic, constants, tuple(sizes)
    )


def symbolic_sizes(decl: tree.Fn, names: Sequence[str]) -> dict[str, TypeBinding]:
    """Bindings of sizes of a function that stay symbolic. Errors: DL1207 for other names."""
    known = [n for n in signature_sizes(decl) if n not in {p.name for p in decl.params}]
    for name in names:
        if name not in known:
            way = suggestion(name, known, f"it has {', '.join(known) or 'none'}")
            raise make_error("DL1207", f"`{decl.name}` has no size `{name}` in the types of its arguments", help=way)
    return {name: dim_name(name) for name in names}


def signature_sizes(decl: tree.Fn) -> dict[str, None]:
    """The names in the types of a function's parameters."""
    return dict.fromkeys([n for p in decl.params if p.type is not None for n in mentioned_names(p.type)])
