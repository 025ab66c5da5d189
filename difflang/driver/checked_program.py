"""Parses a file and checks it as a whole, with its imports and host statements, before any of it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.error_codes import suggestion
from difflang.base.gc_pause import pause_gc
from difflang.base.source import Source, Span
from difflang.driver.doc_examples import DocExamples, find_examples
from difflang.elaborate.context import Session
from difflang.elaborate.module_imports import ImportSearch, ModuleFile, load_modules
from difflang.host.check_statements import HostChecker
from difflang.host.data.read_values import FileRead
from difflang.host.statement_walk import HostWalk
from difflang.syntax import tree
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error

NO_MESH: Mapping[str, int] = {}


class CheckedProgram(Struct, frozen=True, eq=False):
    """A checked file: its declarations, its statements, its imports, and all diagnostics."""

    module: ModuleScope
    items: tuple[tree.Item, ...]
    session: Session
    # In topological order: each after its own imports.
    imported: tuple[ModuleFile, ...] = ()
    # The examples in its doc comments, if requested.
    examples: tuple[DocExamples, ...] = ()

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return tuple(self.session.diagnostics)

    @property
    def reads(self) -> Sequence[FileRead]:
        """The calls that read files."""
        return self.session.file_reads

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(d for d in self.diagnostics if d.severity == "error")

    @property
    def has_mistakes(self) -> bool:
        """Whether there are errors besides the warnings that are errors if it is strict."""
        return any(d not in self.session.strict_errors for d in self.errors)


def check_program(
    source: Source,
    default_float: str | None = None,
    path: Path | None = None,
    paths: tuple[Path, ...] = (),
    *,
    examples: bool = False,
    strict: bool = False,
    most_steps: int = 0,
    mesh: Mapping[str, int] = NO_MESH,
    bind: Callable[[ModuleScope], None] = lambda _: None,
) -> CheckedProgram:
    """Check a whole program, host statements included, before any of it runs. Errors are reported, never raised.

    Imports are searched below the folder of `path`, the file of the text, or the current folder, and in `paths`. With
    `examples` the examples in its doc comments are checked too; a mistake in a comment keeps no program from running.
    If `strict`, warnings are errors, those of later elaborations too. A loop without a bound may take `most_steps`, if
    that is not 0. `mesh` has the sizes of the axes of a mesh, if known. `bind` gets the declarations of the file and
    binds its `extern fn`s before their first use; its exceptions propagate.
    """
    session = Session(most_steps=most_steps, strict=strict, mesh=mesh)
    folder = path.parent if path is not None else Path.cwd()
    with pause_gc():
        *imported, file = load_modules(source, path, ImportSearch(folder, paths), session, default_float)
        bind(file.module)
        check_mesh_names(mesh, [f.module for f in (*imported, file)], session)
        hosts: dict[ModuleScope, HostWalk] = {}
        for each in imported:
            HostChecker(session, each.module, hosts).imported(each)
        checker = HostChecker(session, file.module, hosts)
        checker.check(file.items)
        found = find_examples(source, file.items) if examples else ()
        for comment in found:
            for diagnostic in comment.diagnostics:
                session.report(DifflangError(diagnostic))
            checker.check_isolated(file.items, comment.block, "example", echo=True)
    # Syntax errors first, without the errors that follow from them.
    broken = [d for d in session.diagnostics if d.code.startswith("DL01")]
    others = [d for d in session.diagnostics if not d.code.startswith("DL01")]
    items = [item for each in (*imported, file) for item in each.items]
    types = [item.span for item in items if isinstance(item, (tree.Record, tree.Enum))]
    session.diagnostics[:] = [*broken, *drop_followup_errors(broken, others, types)]
    # Checking bound names to types only; a run starts without them.
    for each in (*imported, file):
        each.module.host.clear()
    return CheckedProgram(file.module, file.items, session, tuple(imported), found)


def check_mesh_names(mesh: Mapping[str, int], modules: Sequence[ModuleScope], session: Session) -> None:
    """Check that a program which declares axes declares those of the mesh. Errors are reported: DL0606."""
    declared = {name: span for module in modules for name, span in module.axes.items()}
    for name in mesh if declared else ():
        if name not in declared:
            message = f"the mesh has an axis `{name}`, which the program does not declare"
            label = (next(iter(declared.values())), "the axes of this program")
            session.report(make_error("DL0606", message, label, help=suggestion(name, declared)))


def check_block(checked: CheckedProgram, block: tree.Block) -> None:
    """Check a block as if it stood at the end of a checked file. Errors: those of the block."""
    session, before = checked.session, len(checked.session.diagnostics)
    hosts: dict[ModuleScope, HostWalk] = {}
    with pause_gc():
        for each in checked.imported:
            HostChecker(session, each.module, hosts).check(each.items)
        checker = HostChecker(session, checked.module, hosts)
        # The block can see bindings only; other statements have been checked already.
        checker.check(tuple([item for item in checked.items if isinstance(item, (tree.Let, tree.Var))]))
        checker.check_isolated(checked.items, block, "call", echo=True)
    for module in hosts:
        module.host.clear()
    found = session.diagnostics[before:]
    del session.diagnostics[before:]
    if any(d.severity == "error" for d in found):
        raise DifflangError(*[d for d in found if d.severity == "error"])


def select_functions(checked: CheckedProgram, entry: str | None) -> list[tree.Fn]:
    """The function with this name, or all functions. Errors: DL0201."""
    return list(checked.module.fns.values()) if entry is None else [find_function(checked.module, entry)]


def find_function(module: ModuleScope, name: str) -> tree.Fn:
    """Errors: DL0201."""
    if name not in module.fns:
        message = f"there is no function `{name}` in {module.source.name}"
        raise make_error("DL0201", message, help=suggestion(name, module.fns))
    return module.fns[name]


def drop_followup_errors(
    broken: list[Diagnostic], found: list[Diagnostic], types: Sequence[Span] = ()
) -> list[Diagnostic]:
    """The errors of checking that do not follow from a syntax error in a line, a type or a name's definition.

    `types` are the declarations of records and enums: an error that refers to a broken one is left out.
    """
    unread = [t for t in types if any(t.contains(m.span) for d in broken for m in d.labels)]
    lines = {(m.span.source, m.span.position[0]) for d in broken for m in d.labels}
    words = {w for source, line in lines for w in re.findall(r"\w+", source.line(line))}
    kept: list[Diagnostic] = []
    for diagnostic in found:
        span = diagnostic.span
        marks = [m.span for m in diagnostic.labels]
        here = any((m.source, m.position[0]) in lines or any(t.contains(m) for t in unread) for m in marks)
        # An unknown name may be declared on the broken line.
        lost = span is not None and diagnostic.code in ("DL0201", "DL0202") and span.text in words
        if not here and not lost:
            kept.append(diagnostic)
    return kept
