"""`difflang run`: a program, or one call of a function of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic
from difflang.cli.options_and_reports import report, report_checked, source_of, split_entry

if TYPE_CHECKING:
    from difflang.execution.engine import Engine


class Asked(Struct, frozen=True):
    """What to run: a file or `FILE:ENTRY`, words for the program, arguments from files and as values."""

    program: str
    words: tuple[str, ...]
    files: Mapping[str, str]
    values: Mapping[str, str]


def carry_out(
    asked: Asked,
    how: Engine,
    default_float: str | None,
    folders: tuple[Path, ...],
    allow: tuple[Path, ...],
    seed: int,
    max_steps: int,
) -> None:
    """Check the file, then run it, or call its function. Errors: DifflangError; ends with 1 where the file is wrong."""
    from difflang.driver import check_and_run
    from difflang.host import program_args
    from difflang.tools import cli_call

    limits: list[int] = []
    how = replace(how, heard=limits.append)
    file, entry = split_entry(asked.program)
    if asked.files and entry is None:
        raise click.UsageError(f"--arg is for a function: name it, `{file}:NAME`")
    if wrong := [f"{n}={text}" for n, text in asked.files.items() if not text.startswith("@")]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=@FILE; a value is for --set", param_hint="--arg")
    source, path = source_of(file)
    checked = check_and_run.check(source, default_float, path, folders, most_steps=max_steps)
    report_checked(checked, source, lambda text: check_and_run.check(text, default_float, path, folders).diagnostics)
    if "--help" in asked.words:
        click.echo(program_args.usage(checked.module, file))
        return
    given, words = cli_call.told_apart(checked.module, entry, asked.values, asked.files)
    access, words = check_and_run.access_to(path, allow), [*asked.words, *words]
    if entry is None:
        check_and_run.run(checked, how, access, seed, click.echo, report, words)
    else:
        cli_call.run(checked, cli_call.Call(entry, given), how, access, seed, click.echo, report, words)
    if how.budget and not limits:
        message = "no derivative in reverse was taken for which a limit can be kept"
        helps = "leave out `--memory-budget`", "it holds for `grad` and its kin, not for `vjp` and `linearize`"
        report([Diagnostic("DL1207", message, helps=helps, severity="warning")])
