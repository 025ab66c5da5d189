"""`difflang emit`: a program at each stage of the compiler, as text: syntax tree, types, IR, jaxpr, StableHLO."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.error_codes import suggestion
from difflang.base.source import Span
from difflang.dataflow.machine import Machine
from difflang.driver.checked_program import CheckedProgram, select_functions
from difflang.driver.elaborate_call import CallArgument, ElaboratedCall, elaborate_call
from difflang.driver.run_program import load_values
from difflang.driver.type_specs import declared_arguments, signature_names
from difflang.elaborate.context import Session
from difflang.elaborate.derivatives.wrt import fields_named
from difflang.execution.engine import Engine
from difflang.ir.graph import Graph
from difflang.ir.json_codec import graph_to_json
from difflang.ir.text_printer import graph_to_text
from difflang.lower.lowering_pipeline import COMPILE_ON_MESH, INTERPRET, finalize_graph, graph_after, graph_at_stage
from difflang.plan.budget_search import memory_limit, plan_memory
from difflang.syntax import tree
from difflang.types.function_code import DerivativeCode, FnCode, Wrt
from difflang.types.language_types import ClosureType, show_type
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error

GraphOfCallRewrite = Callable[[Graph, ElaboratedCall, Session], Graph]


class EmitRequest(Struct, frozen=True):
    """What to emit: the stage or pass, one function or all, argument types, the gradient's parameters, the platform."""

    stage: str
    entry: str | None = None
    argument_specs: Mapping[str, str] = field(default_factory=dict[str, str])
    wrt: str | None = None
    platform: str | None = None
    program_args: tuple[str, ...] = ()  # arguments of the program
    budget: int = 0  # the memory limit in bytes at stage `planned`
    after: str | None = None  # the pass after which to emit the graph, instead of a stage
    machine: Machine = Machine()  # at stage `dataflow`
    rewrite: GraphOfCallRewrite | None = None  # of the graph at a stage, before it is emitted
    mesh: Mapping[str, int] = field(default_factory=dict[str, int])  # at stages `optimized` and `stablehlo`


def emit(checked: CheckedProgram, path: Path | None, request: EmitRequest) -> tuple[str, tuple[Diagnostic, ...]]:
    """The text, and warnings for skipped functions. Errors: DL0201 for an unknown entry, DL1210, DL04."""
    decls = select_functions(checked, request.entry)
    match request.stage:
        case "ast":
            nodes: Sequence[tree.Node] = decls if request.entry is not None else checked.items
            return "".join(map(syntax_tree_text, nodes)), ()
        case "typed":
            return "".join(f"{typed_signature(checked, decl)}\n" for decl in decls), ()
        case _:
            return emit_graphs(checked, path, request, decls)


def single_function(checked: CheckedProgram, entry: str | None, command: str) -> tree.Fn:
    """The function that a command asks for: the only one, if no name is given. Errors: DL0201, DL1207."""
    decls = [d for d in select_functions(checked, entry) if not d.host or entry is not None]
    if len(decls) == 1:
        return decls[0]
    names = ", ".join(d.name for d in decls)
    file = "-" if (name := checked.module.source.name) == "<stdin>" else name
    way = f"write `{file}:{decls[0].name}`; the file has {names}" if decls else ""
    raise make_error(
        "DL1207",
        f"`{command}` takes one function of a file" if decls else "there is no function in this file",
        help=way or "put the code into a `fn`",
    )


def refuse_host_function(decl: tree.Fn, why: str = "it is not compiled") -> None:
    """Errors: DL0322."""
    if decl.host:
        raise make_error("DL0322", f"`{decl.name}` is a host function: {why}", (decl.name_span, ""))


# ---- Graphs


def emit_graphs(
    checked: CheckedProgram, path: Path | None, request: EmitRequest, decls: Sequence[tree.Fn]
) -> tuple[str, tuple[Diagnostic, ...]]:
    load_values(checked, path, Engine("interpret"), request.program_args)
    shown: dict[str, str] = {}
    left: list[Diagnostic] = []
    everywhere = {n for decl in decls for n in signature_names(decl)}
    for decl in decls:
        if decl.host:
            if request.entry is not None:
                refuse_host_function(decl)
            continue
        try:
            here = signature_names(decl) if request.entry is None else everywhere
            specs = {n: t for n, t in request.argument_specs.items() if n in here or n not in everywhere}
            text = graph_text(checked, decl, replace(request, argument_specs=specs))
        except DifflangError as error:
            if request.entry is not None or error.diagnostics[0].code != "DL1210":
                raise
            left += [replace(d, severity="warning") for d in error.diagnostics]
            continue
        shown[decl.name] = text
    if not shown and left:
        raise DifflangError(*[replace(d, severity="error") for d in left])
    if request.stage == "json" and request.entry is None:
        return json.dumps({name: json.loads(text) for name, text in shown.items()}) + "\n", tuple(left)
    return "\n".join(shown.values()), tuple(left)


def function_graph(checked: CheckedProgram, decl: tree.Fn, request: EmitRequest) -> Graph:
    """The elaborated graph of a function, or of its gradient."""
    return function_call(checked, decl, request, Session(mesh=checked.session.mesh)).graph


def function_call(checked: CheckedProgram, decl: tree.Fn, request: EmitRequest, session: Session) -> ElaboratedCall:
    """The elaborated function, or its gradient."""
    arguments = declared_arguments(checked.module, decl, request.argument_specs)
    return elaborate_function(session, checked.module, decl, request.wrt, arguments)


def graph_text(checked: CheckedProgram, decl: tree.Fn, request: EmitRequest) -> str:
    """The graph of a function as it is emitted."""
    session = Session(mesh=checked.session.mesh)
    call = function_call(checked, decl, request, session)
    if request.rewrite is None:
        return stage_text(call.graph, request)
    return graph_to_text(request.rewrite(graph_at_stage(call.graph, request.stage), call, session))


def elaborate_function(
    session: Session, module: ModuleScope, decl: tree.Fn, wrt: str | None, arguments: Sequence[CallArgument]
) -> ElaboratedCall:
    """Elaborate a function, or its gradient in some parameters, `w` or `w,m.v`. Errors: DL0403, DL04."""
    type, name = ClosureType(FnCode(decl, module), ()), decl.name
    if wrt is not None:
        places = tuple([parse_wrt(decl, each, module) for each in wrt.split(",")])
        type, name = ClosureType(DerivativeCode("grad", places), (type,)), f"grad_{name}"
    return elaborate_call(session, module, name, type, arguments)


def parse_wrt(decl: tree.Fn, wrt: str, module: ModuleScope) -> Wrt:
    """Parse `w`, `m.w` or a position. Errors: DL0403."""
    first, *path = wrt.strip().split(".")
    names = [p.name for p in decl.params]
    if first.isdecimal() and int(first) < len(names):
        return (int(first), *path)
    if first not in names:
        inside = fields_named(decl, first, module)
        way = f"for the field of that name, write {inside}" if inside else suggestion(first, names)
        raise make_error("DL0403", f"`{decl.name}` has no parameter `{first}`", (decl.name_span, ""), help=way)
    return (first, *path)


def stage_text(graph: Graph, request: EmitRequest) -> str:
    if request.after is not None:
        return graph_to_text(graph_after(graph, request.after))
    match request.stage:
        case "optimized" if request.mesh:
            return graph_to_text(finalize_graph(graph, pipeline=COMPILE_ON_MESH))
        case "stablehlo" if request.mesh:
            from difflang.embed.mesh_program import lower_on_mesh

            return lower_on_mesh(finalize_graph(graph, pipeline=COMPILE_ON_MESH), request.mesh, request.platform)
        case "json":
            return graph_to_json(graph) + "\n"
        case "jaxpr" | "stablehlo" as stage:
            from difflang.runtime.stablehlo_and_jaxpr import jaxpr_text, lower_to_stablehlo

            ready = finalize_graph(graph)
            return jaxpr_text(ready) if stage == "jaxpr" else lower_to_stablehlo(ready, request.platform).as_text()
        case "dataflow":
            return request.machine.program(finalize_graph(graph, pipeline=INTERPRET)).text()
        case "planned":
            return graph_to_text(plan_memory(graph, memory_limit(graph, request.budget)).graph)
        case stage:
            return graph_to_text(graph_at_stage(graph, stage))


# ---- Signatures


def typed_signature(checked: CheckedProgram, decl: tree.Fn) -> str:
    """The signature of a function with its inferred result type and effects."""
    generics = ", ".join(g.name + (f": {g.bound}" if g.bound else "") for g in decl.generics)
    params = ", ".join(p.span.text for p in decl.params)
    found = checked.session.definition_results.get(decl)
    result = decl.result.span.text if decl.result is not None else show_type(found.type) if found is not None else "_"
    head = f"{'host ' if decl.host else ''}fn {decl.name}{f'[{generics}]' if generics else ''}({params}) -> {result}"
    effects = sorted(transitive_effects(checked, decl))
    return head + (f"  # {', '.join(effects)}" if effects else "")


def declared_signature(decl: tree.Fn) -> str:
    """The signature of a function as it is declared."""
    generics = ", ".join(g.span.text for g in decl.generics)
    params = ", ".join(p.span.text for p in decl.params)
    result = f" -> {decl.result.span.text}" if decl.result is not None else ""
    word = ("extern op" if decl.body.op else "extern fn") if isinstance(decl.body, tree.Foreign) else "fn"
    return f"{word} {decl.name}{f'[{generics}]' if generics else ''}({params}){result}"


EFFECTS = {
    "fail": "has checks that can fail",
    "io": "reads or writes",
    "print": "prints",
    "rand": "draws random numbers",
}


def transitive_effects(checked: CheckedProgram, decl: tree.Fn) -> set[str]:
    """The effects of a function and of everything that it calls."""
    effects: set[str] = {"io"} if decl.host else set()
    seen: set[tree.Fn] = set()
    todo = [decl]
    while todo:
        current = todo.pop()
        found = checked.session.definition_results.get(current)
        if found is None or current in seen:
            continue
        seen.add(current)
        effects |= found.effects
        todo += found.calls
    return effects


# ---- Syntax trees


def syntax_tree_text(root: tree.Node) -> str:
    """A tree with one node a line: its kind, its fields, its position."""
    lines: list[str] = []
    # An explicit stack, since trees may be deeper than Python's recursion limit.
    todo: list[tuple[str, tree.Node, int]] = [("", root, 0)]
    while todo:
        label, node, depth = todo.pop()
        held: list[str] = []
        inner: list[tuple[str, tree.Node, int]] = []
        for name in node.__struct_fields__:
            value = getattr(node, name)
            parts = child_nodes(value)
            if parts:
                inner += [(name if len(parts) == 1 else f"{name}.{i}", part, depth + 1) for i, part in enumerate(parts)]
            elif value not in (None, False, ()) and not isinstance(value, Span) and not name.endswith("_spans"):
                held.append(f"{name}={value!r}")
        line, column = node.span.position
        words = [f"{label}:" if label else "", type(node).__name__, *held, f"@{line}:{column}"]
        lines.append("  " * depth + " ".join(w for w in words if w))
        todo += reversed(inner)
    return "".join(f"{line}\n" for line in lines)


def child_nodes(value: object) -> list[tree.Node]:
    """The nodes in the value of a field, in order."""
    if isinstance(value, tree.Node):
        return [value]
    if not isinstance(value, tuple):
        return []
    found: list[tree.Node] = []
    for part in value:
        found += child_nodes(part)
    return found
