"""Queries on an interactive session: the meaning of a name, the graph of an expression, an expression to time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import suggestion
from difflang.driver.interactive_session import InteractiveSession
from difflang.elaborate.calls.builtin_registry import BUILTINS, TRANSFORM_NAMES
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate
from difflang.elaborate.reports.name_errors import CONSTANTS
from difflang.elaborate.terms import Term
from difflang.elaborate.trampoline import Walk
from difflang.host.builtins import HOST_BUILTINS
from difflang.host.values import HostValue, format_value
from difflang.syntax import tree
from difflang.syntax.builtin_page import builtin_entries, entry_as_text
from difflang.tools.emit import EmitRequest, declared_signature, function_graph, stage_text, typed_signature
from difflang.types.language_types import ClosureType, LangType, RecordType, show_type
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error

# `x=f32[3, 4]`, `x=[[1, 2], [3, 4]]`
ARGUMENT_SPEC = re.compile(r"\s+([\w.]+)=((?:[^\s\[\]]|\[(?:[^\[\]]|\[[^\[\]]*\])*\])+)")


class NameInfo(Struct, frozen=True):
    """A name as completion and search show it: its kind, and its type if it has one."""

    kind: str  # value, function, record, variant, module, builtin
    text: str


def visible_names(session: InteractiveSession) -> dict[str, NameInfo]:
    """Every name that an input can use; the session's names take precedence over builtins."""
    module = session.module
    values = {n: NameInfo("value", show_type(v.type)) for n, v in session.runner.values.items() if n in module.host}
    fns = {n: NameInfo("function", signature_text(session, decl)) for n, decl in module.fns.items()}
    records = {
        n: NameInfo("record", "record" if isinstance(r, tree.Record) else "enum") for n, r in module.records.items()
    }
    variants = {n: NameInfo("variant", f"variant of {enum.name}") for n, (enum, _) in module.variants.items()}
    imported = {n: NameInfo("function", f"of {found.module.name}") for n, found in module.imported.items()}
    modules = {n: NameInfo("module", "module") for n in module.modules}
    prelude = module.prelude.fns if module.prelude is not None else {}
    global_names = (*prelude, *BUILTINS, *HOST_BUILTINS, *TRANSFORM_NAMES, *CONSTANTS)
    builtins = {n: NameInfo("builtin", "") for n in global_names if n.isidentifier()}
    # Later entries win: a value hides a function with its name.
    return {**builtins, **modules, **imported, **variants, **records, **fns, **values}


def member_names(session: InteractiveSession, name: str) -> dict[str, NameInfo]:
    """The names that can follow `name.` or `name.field.`: the fields of a value, or the public names of a module."""
    first, *path = [part.strip() for part in name.split(".")]
    value, module = session.runner.values.get(first), session.module.modules.get(name)
    type = record_at_path(value.type, path) if value is not None else None
    if type is not None:
        return {field: NameInfo("value", show_type(t)) for field, t in zip(type.names, type.fields, strict=True)}
    if module is None:
        return {}
    return {
        n: NameInfo("function", parameter_text(module.fns[n]) if n in module.fns else "") for n in module.public_names
    }


def record_at_path(type: LangType, path: Sequence[str]) -> RecordType | None:
    """The type of the record at the end of a path of fields."""
    for name in path:
        if not isinstance(type, RecordType) or name not in type.names:
            return None
        type = type.fields[type.names.index(name)]
    return type if isinstance(type, RecordType) else None


def parameter_text(decl: tree.Fn) -> str:
    params = ", ".join(p.span.text for p in decl.params)
    return f"({params})" + (f" -> {decl.result.span.text}" if decl.result is not None else "")


def signature_text(session: InteractiveSession, decl: tree.Fn) -> str:
    """A function's signature, with its inferred result if the last check covered it."""
    return typed_signature(session.program, decl)


def parameter_types(session: InteractiveSession, name: str) -> tuple[str, ...]:
    """The declared types of a function's parameters."""
    decl = session.module.fns.get(name)
    return tuple(p.type.span.text if p.type is not None else "" for p in decl.params) if decl is not None else ()


def describe_symbol(session: InteractiveSession, name: str) -> str | None:
    """The meaning of a name with its doc comment; None for an unknown name."""
    module = session.module
    owner, point, member = name.rpartition(".")
    if point:
        other = module.modules.get(owner)
        return describe_declaration(other, member) if other is not None and member in other.public_names else None
    if name in module.modules:
        return f"{name}: a module with {', '.join(sorted(module.modules[name].public_names))}"
    value = session.runner.values.get(name)
    if value is not None and name in module.host:
        return f"{name}: {show_type(value.type)}{short_value(value)}"
    decl = module.fns.get(name) or (module.prelude.fns.get(name) if module.prelude is not None else None)
    if name in module.imported:
        decl = module.imported[name].module.fns.get(module.imported[name].name)
    if decl is not None:
        return with_doc(signature_text(session, decl), decl.doc)
    entry = builtin_entries().get(name)
    return describe_declaration(module, name) or (entry_as_text(entry) if entry is not None else None)


def describe_declaration(module: ModuleScope, name: str) -> str | None:
    """The declaration of a function, a record, an enum or a variant of a module."""
    if name in module.fns:
        return with_doc(declared_signature(module.fns[name]), module.fns[name].doc)
    if name in module.records:
        record = module.records[name]
        return with_doc(record.span.text, record.doc)
    if name in module.variants:
        return f"{name} is a variant of {module.variants[name][0].name}"
    return f"{name}: a value of {module.name}" if name in module.public_names else None


def short_value(value: HostValue) -> str:
    text = format_value(value) if not isinstance(value.type, ClosureType) else ""
    return f" = {text}" if text and len(text) < 60 and "\n" not in text else ""


def with_doc(head: str, doc: str | None) -> str:
    return f"{head}\n\n{doc.strip()}" if doc else head


def declaration_source(session: InteractiveSession, name: str) -> str | None:
    """The source of a function, a record or an enum declared in the session."""
    decl = session.module.fns.get(name) or session.module.records.get(name)
    return decl.span.text if decl is not None else None


# ---- Functions and expressions


def parse_function_call(session: InteractiveSession, text: str) -> tuple[tree.Fn, dict[str, str]]:
    """Parse `f x=f32[3]` into the function and its argument types. Errors: DL0201."""
    name, specs = split_argument_specs(text)
    if name not in session.module.fns:
        known = ", ".join(session.module.fns)
        listed = f"there are {known}" if known else "no function has been declared yet"
        way = suggestion(name, session.module.fns, listed)
        raise make_error("DL0201", f"there is no function `{name}` in this session", help=way)
    return session.module.fns[name], specs


def split_argument_specs(text: str) -> tuple[str, dict[str, str]]:
    head = re.match(r"\w+", text)
    name = head[0] if head else text
    return name, dict(ARGUMENT_SPEC.findall(text, len(name)))


def graph_text(session: InteractiveSession, text: str, stage: str) -> str:
    """The graph at a stage, of a function at given argument types or of an expression. Errors: DifflangError."""
    name, specs = split_argument_specs(text)
    if name in session.module.fns and ARGUMENT_SPEC.sub("", text) == name:
        request = EmitRequest(stage, name, specs)
        return stage_text(function_graph(session.program, session.module.fns[name], request), request)
    e = parse_expression(session, text)
    if session.runner.work(e) is not None:
        raise make_error("DL0322", "a part of this runs on the host: it has no graph", (e.span, ""))

    def body(cx: ElabContext) -> Walk[list[Term]]:
        return [(yield elaborate(cx, e))]

    try:
        return stage_text(session.runner.staged(e, body).graph, EmitRequest(stage))
    except AlreadyReported:
        raise DifflangError(*session.runner.session.diagnostics) from None


def parse_expression(session: InteractiveSession, text: str) -> tree.Expr:
    """Parse and check a text as one expression. Errors: DifflangError."""
    items = session.parsed(text)
    if len(items) != 1 or isinstance(items[0], (tree.Let, tree.Var, tree.Fn, tree.Import)):
        raise make_error("DL0313", "expected an expression here", help="a value, such as `f(2.0)`")
    session.check(items)
    return items[0]  # type: ignore[return-value]


def expression_runner(session: InteractiveSession, text: str) -> Callable[[], None]:
    """A callable that runs an expression, for timing. Errors: DifflangError."""
    e = parse_expression(session, text)

    def call() -> None:
        session.runner.statement(e, last=True)
        session.runner.wait_for_results()

    return call
