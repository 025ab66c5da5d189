"""`difflang run`: runs a program, or one call of a function in it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.process_group import LOST_CODE
from difflang.base.source_files import write_or_report
from difflang.cli.diagnostic_formats import json_text
from difflang.cli.options_and_reports import exit_if_errors, load_source, print_diagnostics, split_entry

if TYPE_CHECKING:
    from difflang.execution.engine import Engine
    from difflang.execution.line_profiler import LineProfile


class RunRequest(Struct, frozen=True):
    """What to run: a file or `FILE:ENTRY`, the program's arguments, and arguments from files and as values."""

    program: str
    words: tuple[str, ...]
    files: Mapping[str, str]
    values: Mapping[str, str]


def run_program(
    request: RunRequest,
    engine: Engine,
    default_float: str | None,
    folders: tuple[Path, ...],
    allow: tuple[Path, ...],
    seed: int,
    max_steps: int,
) -> None:
    """Check the file, then run it, or call its function. Errors: DifflangError; exits with 1 if the file has errors."""
    from difflang.driver.checked_program import check_program
    from difflang.driver.run_program import file_access, run_program
    from difflang.host import program_args
    from difflang.tools import cli_call
    from difflang.tools.verify_rules import verify_rules

    limits: list[int] = []
    engine = replace(engine, on_limit=limits.append)
    file, entry = split_entry(request.program)
    if request.files and entry is None:
        raise click.UsageError(f"--arg is an argument of a function: name the function, `{file}:NAME`")
    if wrong := [f"{n}={text}" for n, text in request.files.items() if not text.startswith("@")]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=@FILE; use --set for a value", param_hint="--arg")
    source, path = load_source(file)
    checked = check_program(source, default_float, path, folders, most_steps=max_steps, mesh=dict(engine.mesh))
    verify_rules(checked, path)
    recheck = partial(check_program, default_float=default_float, path=path, paths=folders, mesh=dict(engine.mesh))
    exit_if_errors(checked, source, lambda text: recheck(text).diagnostics)
    if engine.group.count > 1:
        from importlib import metadata

        texts = [source.text, *[file.module.source.text for file in checked.imported]]
        options = (entry, request.words, sorted(request.values.items()), default_float, seed, max_steps, engine.mesh)
        engine.group.require_same(repr((metadata.version("difflang"), texts, options)), another_program)
    # After checking, since the program declares its arguments.
    write = click.echo if engine.group.number == 0 else discard
    if "--help" in request.words:
        write(program_args.usage_text(checked.module, file))
        return
    given, words = cli_call.split_arguments(checked.module, entry, request.values, request.files)
    access, words = file_access(path, allow), [*request.words, *words]
    if entry is None:
        run_program(checked, engine, access, seed, write, print_diagnostics, words)
    else:
        cli_call.run_call(
            checked, cli_call.CliCall(entry, given), engine, access, seed, write, print_diagnostics, words
        )
    # A limit without effect is probably a mistake.
    if engine.budget and not limits:
        message = "the program takes no derivative in reverse mode that the limit could apply to"
        helps = (
            "leave out `--memory-budget`",
            "the limit applies to `grad` and its relatives, not to `vjp` and `linearize`",
        )
        print_diagnostics([Diagnostic("DL1207", message, helps=helps, severity="warning")])


def another_program(number: int) -> DifflangError:
    message = f"process {number} was started with another program, or other options, than process 0"
    ways = ("start all with the same files, arguments, seed and version of difflang",)
    return DifflangError(Diagnostic(LOST_CODE, message, helps=ways))


def discard(_: str) -> None:
    """All processes of a run print the same: the first one does."""


@contextmanager
def profile_run(show: bool, out: Path | None) -> Generator[LineProfile | None, None, None]:
    """A profile if one is requested, printed afterwards even if the run failed. Errors: DL0710."""
    if not show and out is None:
        yield None
        return
    from difflang.execution.line_profiler import LineProfile

    clock = LineProfile()
    try:
        yield clock
    finally:
        clock.switch(clock.here)
        if show:
            click.echo(f"\n{clock}", err=True)
        if out is not None:
            write_or_report(out, (json_text(clock.to_json()) + "\n").encode())
