"""A file on its way: read, parsed, checked as a whole, then run. The one place that knows the order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.gc_pause import pause_gc
from difflang.base.source import Source
from difflang.driver.doc_examples import DocExamples, find_examples
from difflang.elaborate.context import AlreadyReported, Session
from difflang.elaborate.module_imports import ImportSearch, ModuleFile, load_modules
from difflang.execution.engine import Engine
from difflang.host import program_args
from difflang.host.check_statements import HostChecker
from difflang.host.data.file_access import FileAccess
from difflang.host.data.read_values import FileRead
from difflang.host.lazy_globals import LazyGlobals, install_lazy_globals
from difflang.host.optional_packages import check_installed
from difflang.host.run_statements import HostRunner
from difflang.host.statement_walk import HostWalk
from difflang.syntax import tree
from difflang.types.module_scope import ModuleScope


class CheckedProgram(Struct, frozen=True, eq=False):
    """A file that was checked: its declarations, statements, what it imports, and everything there is to report."""

    module: ModuleScope
    items: tuple[tree.Item, ...]
    session: Session
    imported: tuple[ModuleFile, ...] = ()  # each after those that it needs itself
    examples: tuple[DocExamples, ...] = ()  # those in its doc comments, where they were asked for

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return tuple(self.session.diagnostics)

    @property
    def reads(self) -> Sequence[FileRead]:
        """Where it reads files."""
        return self.session.file_reads

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(d for d in self.diagnostics if d.severity == "error")


def check_program(
    source: Source,
    default_float: str | None = None,
    path: Path | None = None,
    paths: tuple[Path, ...] = (),
    *,
    examples: bool = False,
    most_steps: int = 0,
    bind: Callable[[ModuleScope], None] = lambda _: None,
) -> CheckedProgram:
    """Check a whole program, host statements included, before any of it runs. What is wrong is reported, never raised.

    Imports lead below the folder of `path`, the file that the text is from, or the current one, and into `paths`. With
    `examples` those in its doc comments are checked too: a mistake in a comment keeps no program from running. A loop
    without end may take `most_steps`, if these are not 0. `bind` is handed the file's declarations, to bind its `extern
    fn`s before they are used; what it raises is raised.
    """
    session = Session(most_steps=most_steps)
    folder = path.parent if path is not None else Path.cwd()
    with pause_gc():
        *imported, file = load_modules(source, path, ImportSearch(folder, paths), session, default_float)
        bind(file.module)
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
    broken = [d for d in session.diagnostics if d.code.startswith("DL01")]
    others = [d for d in session.diagnostics if not d.code.startswith("DL01")]
    session.diagnostics[:] = [*broken, *drop_followup_errors(broken, others)]
    for each in (*imported, file):
        each.module.host.clear()
    return CheckedProgram(file.module, file.items, session, tuple(imported), found)


def check_block(checked: CheckedProgram, block: tree.Block) -> None:
    """Check a block as if it stood at the end of a file that was checked. Errors: what is wrong with the block."""
    session, before = checked.session, len(checked.session.diagnostics)
    hosts: dict[ModuleScope, HostWalk] = {}
    with pause_gc():
        for each in checked.imported:
            HostChecker(session, each.module, hosts).check(each.items)
        checker = HostChecker(session, checked.module, hosts)
        checker.check(tuple([item for item in checked.items if isinstance(item, (tree.Let, tree.Var))]))
        checker.check_isolated(checked.items, block, "call", echo=True)
    for module in hosts:
        module.host.clear()
    found = session.diagnostics[before:]
    del session.diagnostics[before:]
    if any(d.severity == "error" for d in found):
        raise DifflangError(*[d for d in found if d.severity == "error"])


def drop_followup_errors(broken: list[Diagnostic], found: list[Diagnostic]) -> list[Diagnostic]:
    """What checking found that does not follow from a mistake in the syntax of the same line, or of a name's own."""
    lines = {(m.span.source, m.span.position[0]) for d in broken for m in d.labels}
    words = {w for source, line in lines for w in re.findall(r"\w+", source.line(line))}
    kept: list[Diagnostic] = []
    for diagnostic in found:
        span = diagnostic.span
        here = span is not None and (span.source, span.position[0]) in lines
        lost = span is not None and diagnostic.code in ("DL0201", "DL0202") and span.text in words
        if not here and not lost:
            kept.append(diagnostic)
    return kept


def run_program(
    checked: CheckedProgram,
    engine: Engine,
    access: FileAccess,
    seed: int,
    write: Callable[[str], None],
    warn: Callable[[list[Diagnostic]], None] = lambda _: None,
    words: Sequence[str] = (),
) -> HostRunner:
    """Run the host statements of a file that was checked, and `warn` of what only the sizes of the run bring up.

    `words` are the arguments of the program. Errors: DifflangError; DL1220 before anything is run.
    """
    if checked.errors:
        raise DifflangError(*checked.errors)
    before = len(checked.session.diagnostics)
    told = program_args.parse_command_line(words, checked.module)
    check_installed(checked.module)
    runner = HostRunner(checked.session, checked.module, engine, access, seed, write, warn, told)
    install_lazy_globals(checked.imported, runner)
    try:
        runner.run(checked.items)
    except AlreadyReported:
        raise DifflangError(*checked.session.diagnostics[before:]) from None
    return runner


def load_values(
    checked: CheckedProgram, path: Path | None, engine: Engine | None = None, words: Sequence[str] = (), seed: int = 0
) -> LazyGlobals:
    """The top-level values of a file that is not run, and of all that it imports. What they draw is theirs alone.

    `words` are the arguments of the program. Errors: DL1220; without words, once one is asked for that has no default.
    """
    told = program_args.parse_command_line(words, checked.module) if words else {}
    access = file_access(path)
    runner = HostRunner(
        checked.session, checked.module, engine or Engine(), access, seed, lambda _: None, program_args=told
    )
    install_lazy_globals(checked.imported, runner)
    return LazyGlobals(runner.fork_for_module(checked.module, access, len(checked.imported)), checked.items)


def file_access(path: Path | None, allowed: tuple[Path, ...] = ()) -> FileAccess:
    """What a program may read: its own folder, and what is allowed."""
    return FileAccess(path.parent if path is not None else Path.cwd(), allowed)
