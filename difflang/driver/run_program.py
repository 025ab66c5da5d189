"""Runs the host statements of a checked file, or evaluates its top-level values as they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.driver.checked_program import CheckedProgram
from difflang.elaborate.context import AlreadyReported
from difflang.execution.engine import Engine
from difflang.host import program_args
from difflang.host.data.file_access import FileAccess
from difflang.host.lazy_globals import LazyGlobals, install_lazy_globals
from difflang.host.optional_packages import check_installed
from difflang.host.run_statements import HostRunner


def run_program(
    checked: CheckedProgram,
    engine: Engine,
    access: FileAccess,
    seed: int,
    write: Callable[[str], None],
    warn: Callable[[list[Diagnostic]], None] = lambda _: None,
    words: Sequence[str] = (),
) -> HostRunner:
    """Run the host statements of a checked file; `warn` gets warnings that only the sizes of the run reveal.

    `words` are the arguments of the program. Errors: DifflangError; DL1220 before anything runs.
    """
    if checked.errors:
        raise DifflangError(*checked.errors)
    before = len(checked.session.diagnostics)
    arguments = program_args.parse_command_line(words, checked.module)
    check_installed(checked.module)
    runner = HostRunner(checked.session, checked.module, engine, access, seed, write, warn, arguments)
    install_lazy_globals(checked.imported, runner)
    try:
        runner.run(checked.items)
    except AlreadyReported:
        raise DifflangError(*checked.session.diagnostics[before:]) from None
    return runner


def load_values(
    checked: CheckedProgram, path: Path | None, engine: Engine | None = None, words: Sequence[str] = (), seed: int = 0
) -> LazyGlobals:
    """The top-level values of a file that is not run, and of its imports, evaluated lazily with random streams of their
    own.

    `words` are the arguments of the program. Errors: DL1220; without words, when an argument without default is read.
    """
    arguments = program_args.parse_command_line(words, checked.module) if words else {}
    access = file_access(path)
    runner = HostRunner(
        checked.session, checked.module, engine or Engine(), access, seed, lambda _: None, program_args=arguments
    )
    install_lazy_globals(checked.imported, runner)
    return LazyGlobals(runner.fork_for_module(checked.module, access, len(checked.imported)), checked.items)


def file_access(path: Path | None, allowed: tuple[Path, ...] = ()) -> FileAccess:
    """The access of a program: its own folder, and the allowed folders."""
    return FileAccess(path.parent if path is not None else Path.cwd(), allowed)
