"""`difflang fmt`: formats programs. It needs only the parser."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source import Source
from difflang.base.source_files import write_or_report
from difflang.cli.options_and_reports import load_source, print_diagnostics, program_paths


@click.command()
@program_paths
@click.option(
    "--check", "only_check", is_flag=True, help="Write nothing; list the files that would change, with exit code 1."
)
@click.option("--diff", is_flag=True, help="Write nothing; show the changes as a diff.")
def fmt(files: tuple[str, ...], only_check: bool, diff: bool) -> None:
    """Format FILES; in folders, all programs below. `-` formats standard input to standard output.

    There is one layout and no settings. The meaning of a program and all its comments stay.
    """
    from difflang.syntax.formatter.format_program import format_program

    problems: list[Diagnostic] = []
    changed = total = 0
    for file in expand_paths(files, problems):
        total += 1
        try:
            source, path = load_source(file)
            text = format_program(source)
            if diff:
                click.echo(layout_diff(source, text), nl=False)
            elif path is None and not only_check:
                click.echo(text, nl=False)
            # Compare with the file itself: a removed mark or carriage return is a change too.
            elif text != (source.text if path is None else path.read_bytes().decode("utf-8")):
                changed += 1
                if path is not None and not only_check:
                    write_or_report(path, text.encode(), file)
                click.echo(file)
        except DifflangError as error:
            problems += error.diagnostics
    print_diagnostics(problems)
    if changed and not diff:
        click.echo(f"{changed} of {total} {'would change' if only_check else 'changed'}", err=True)
    if problems or (only_check and changed):
        sys.exit(1)


def expand_paths(files: Sequence[str], found: list[Diagnostic]) -> Iterator[str]:
    """The named files, and those in folders. A folder without programs adds a DL0701 to `found`."""
    for file in files:
        inside = list(program_files((file,)))
        if not inside:
            way = "programs are files whose names end with `.dfl`; `difflang new NAME` writes a first one"
            found.append(Diagnostic("DL0701", f"there is no program in `{file}`", (), (way,)))
        yield from inside


def require_programs(files: Sequence[str]) -> list[str]:
    """The named files, and those in folders. Errors: DL0701 for a folder without programs."""
    missing: list[Diagnostic] = []
    found = list(expand_paths(files, missing))
    if missing:
        raise DifflangError(*missing)
    return found


def program_files(files: Sequence[str]) -> Iterator[str]:
    """The named programs; for a folder all programs below it in the order of names, except hidden ones."""
    for file in files:
        folder = Path(file)
        if file == "-" or not os.path.isdir(folder):
            yield file
            continue
        for path in sorted(folder.rglob("*.dfl")):
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
                yield str(path)


def layout_diff(source: Source, text: str) -> str:
    """The changes as a unified diff."""
    import difflib

    before, after = source.text.splitlines(keepends=True), text.splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, source.name, source.name))
