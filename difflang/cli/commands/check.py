"""`difflang check`: reports the errors of programs, and applies the certain fixes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source import Source
from difflang.base.source_files import write_atomically, write_error
from difflang.cli.commands.fmt import expand_paths
from difflang.cli.diagnostic_formats import format_diagnostics, output_format
from difflang.cli.options_and_reports import (
    FILE,
    checking_options,
    load_source,
    mesh_option,
    print_diagnostics,
    print_fixable_count,
    program_paths,
    split_entry,
)

if TYPE_CHECKING:
    from difflang.driver.checked_program import CheckedProgram
    from difflang.tools.verify_fixes import FixedSource, Recheck

# Verifying fixes takes time: only where they are shown.
FORMATS_WITH_FIXES = ("human", "json", "sarif")
BOM = b"\xef\xbb\xbf"


@click.command()
@program_paths
@click.option("--fix", is_flag=True, help="Apply every certain fix, then report the remaining errors.")
@click.option("--strict", is_flag=True, help="Report warnings as errors.")
@click.option("--data", multiple=True, type=FILE, help="Check that this data fits, from its headers alone.")
@mesh_option()
@output_format
@checking_options
def check(
    files: tuple[str, ...], fix: bool, strict: bool, data: tuple[Path, ...], mesh: Mapping[str, int], form: str,
    default_float: str | None, folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Check FILES without running them; in folders, all programs below. Reports for people go to stderr, those for
    programs to stdout.

    A report may propose a fix: it was verified to remove the error without adding another. `--fix` applies these; for
    `-` it prints the fixed program.

    `--data train.npz` checks that a data file fits where the program reads it, or with `MODEL.dfl:loss` that it fits
    the function's parameters by name.
    """
    from difflang.driver.checked_program import check_program
    from difflang.tools import verify_fixes
    from difflang.tools.verify_rules import verify_rules

    # Both would write to standard output.
    if fix and form != "human" and "-" in files:
        raise click.UsageError("`--fix -` writes the program to standard output: do not use --output-format")
    found: list[Diagnostic] = []
    for file in expand_paths(files, found):
        whole, (file, entry) = file, split_entry(file)
        if entry is not None and not data:
            raise click.UsageError(f"`check` checks whole files: write `difflang check {file}`; `{whole}` needs --data")
        try:
            source, path = load_source(file)

            if data:
                checked = check_program(source, default_float, path, folders, strict=strict, mesh=mesh)
                verify_rules(checked, path)
                reports = check_data(checked, path, entry, data)
                found += reports
                if not reports and form == "human":
                    click.echo(f"{', '.join(map(str, data))}: fits {file}", err=True)
                continue

            def recheck(text: Source, path: Path | None = path) -> Sequence[Diagnostic]:
                checked = check_program(text, default_float, path, folders, examples=True, strict=strict, mesh=mesh)
                verify_rules(checked, path)
                return checked.diagnostics

            if fix:
                found += apply_fixes(file, path, source, recheck)
            else:
                reports = recheck(source)
                found += verify_fixes.verify_fixes(source, reports, recheck) if form in FORMATS_WITH_FIXES else reports
        except DifflangError as error:
            found += error.diagnostics
    print_in_format(found, form)
    if any(d.severity == "error" for d in found):
        sys.exit(1)


def check_data(
    checked: CheckedProgram, path: Path | None, entry: str | None, data: Sequence[Path]
) -> Sequence[Diagnostic]:
    """The errors of a program; if there are none, the mismatches of the data."""
    from difflang.tools.check_data import check_data_file

    if checked.errors:
        return checked.diagnostics
    found = [error for each in data for error in check_data_file(checked, path, entry, each, str(each))]
    return [*checked.diagnostics, *[d for error in found for d in error.diagnostics]]


def print_in_format(found: Sequence[Diagnostic], form: str) -> None:
    """Print diagnostics, and how many of them can be fixed."""
    if form != "human":
        if text := format_diagnostics(found, form):
            click.echo(text)
        return
    print_diagnostics(list(found))
    print_fixable_count(found)


def apply_fixes(file: str, path: Path | None, source: Source, recheck: Recheck) -> Sequence[Diagnostic]:
    """Apply the certain fixes of a file and list them; the remaining diagnostics. Errors: DL0710."""
    from difflang.tools.verify_fixes import apply_certain_fixes

    done = apply_certain_fixes(source, recheck)
    if path is None:
        click.echo(done.source.text, nl=False)
    elif done.made:
        write_fixed(file, path, done)
    for line, fix in done.made:
        click.echo(f"{source.name}:{line}: {fix.title}", err=True)
    if done.made:
        click.echo(f"{source.name}: {len(done.made)} fixed", err=True)
    return done.remaining


def write_fixed(file: str, path: Path, done: FixedSource) -> None:
    """Replace the file by the fixed text, keeping a byte order mark. Errors: DL0710."""
    try:
        with path.open("rb") as old:
            # The parser's text has lost the mark.
            mark = BOM if old.read(len(BOM)) == BOM else b""
        write_atomically(path, mark + done.source.text.encode())
    except OSError as error:
        raise write_error(file, error) from None
