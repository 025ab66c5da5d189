"""What the commands have in common: their options, the source they are given, reports and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from difflang.base.byte_sizes import amount, meant
from difflang.base.diagnostics import Diagnostic, DifflangError, render
from difflang.base.error_codes import all_nearest, nearest
from difflang.base.source import Source
from difflang.base.source_files import decoded, read
from difflang.base.xla_setup import keep_compiled

if TYPE_CHECKING:
    from difflang.driver.check_and_run import Checked
    from difflang.tools.verify_fixes import Again


class OfProgram(click.Command):
    """A command for a program that may have arguments of its own: an unknown option may be meant as one of those."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            near = all_nearest(error.option_name, [o for p in self.params for o in (*p.opts, *p.secondary_opts)])
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            way = f"An argument of the program stands after `--`: `{after_dashes(ctx, given, error.option_name)}`."
            size = (
                " A size is told with `--arg n=3`." if not near and any(p.name == "told" for p in self.params) else ""
            )
            raise click.UsageError(f"{error.message}{hint}{size} {way}", ctx) from None


def after_dashes(ctx: click.Context, given: Sequence[str], option: str) -> str:
    """The command, with an option among the arguments of the program."""
    file = next((word for word in given if word.endswith(".dfl") or ".dfl:" in word), "FILE")
    at = next((i for i, word in enumerate(given) if word.partition("=")[0] == option), len(given))
    own = [given[at], *[word for word in given[at + 1 : at + 2] if not word.startswith("-") and word != file]]
    return f"{ctx.command_path} {file} -- {' '.join(own)}"


class OneOf(click.Choice[str]):
    """One of some words; of another the nearest is proposed."""

    name = "word"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.UsageError as error:
            near = nearest(str(value), map(str, self.choices))
            if near is None:
                raise
            self.fail(f"{error.message} Did you mean '{near}'?", param, ctx)


ENGINES = OneOf(["xla", "interpret"])
FLOATS = OneOf(["f16", "bf16", "f32", "f64"])
FULL = "difflang.full_traceback"
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
search_path = click.option("--path", "folders", multiple=True, type=FOLDER, help="Another folder for imports.")


def remember_traceback(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[FULL] = value


full_traceback = click.option(
    "--full-traceback", is_flag=True, expose_value=False, callback=remember_traceback, help="Show Python's frames too."
)


def remember_compiled(ctx: click.Context, _: click.Parameter, afresh: bool) -> None:
    if not afresh:
        keep_compiled()


no_cache = click.option(
    "--no-cache", is_flag=True, expose_value=False, callback=remember_compiled, help="Compile all of it anew."
)


def amount_of(ctx: click.Context, param: click.Parameter, value: str | None) -> int:
    """`64MiB` in bytes, 0 for none."""
    found = 0 if value is None else amount(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no amount of memory; write {meant(value or '')}", ctx, param)
    return found


budget = click.option(
    "--memory-budget", "budget", metavar="AMOUNT", callback=amount_of, help="The most a derivative may take, `64MiB`."
)


def report(diagnostics: tuple[Diagnostic, ...] | list[Diagnostic]) -> None:
    """Reports, on stderr."""
    if diagnostics:
        color = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        click.echo(render(diagnostics, color), err=True)


def source_of(file: str) -> tuple[Source, Path | None]:
    """The text of a file, `-` for standard input."""
    if file == "-":
        return decoded(sys.stdin.buffer.read(), "<stdin>"), None
    return read(Path(file), file), Path(file)


def split_entry(text: str) -> tuple[str, str | None]:
    """`FILE:entry` in its two parts. A file of the whole name is that file, and `C:\\x.dfl` has no entry."""
    file, colon, entry = text.rpartition(":")
    if not colon or not entry.isidentifier() or Path(text).exists():
        return text, None
    if len(file) == 1 and file != "-" and not Path(file).exists():
        return text, None
    return file, entry


def checked_program(
    program: str, default_float: str | None, folders: tuple[Path, ...]
) -> tuple[Checked, Path | None, str | None]:
    """`FILE:ENTRY` read and checked: the program, its path, the entry. Ends with 1 where something is wrong with it."""
    from difflang.driver.check_and_run import check

    file, entry = split_entry(program)
    source, path = source_of(file)
    checked = check(source, default_float, path, folders)
    report_checked(checked, source, lambda text: check(text, default_float, path, folders).diagnostics)
    return checked, path, entry


def report_checked(checked: Checked, source: Source, again: Again) -> None:
    """What checking found. Where the program is wrong, the repairs are tried and said, and the command ends with 1."""
    if not checked.errors:
        report(checked.diagnostics)
        return
    from difflang.tools.verify_fixes import judged

    found = judged(source, checked.diagnostics, again)
    report(found)
    say_mendable(found)
    sys.exit(1)


def say_mendable(found: Sequence[Diagnostic]) -> None:
    """How many of these reports, which were judged, `check --fix` mends."""
    from difflang.tools.verify_fixes import certain

    if count := len(certain(found)):
        click.echo(f"\n{count} can be mended by `difflang check --fix`", err=True)


def save(path: Path, text: str) -> None:
    """Write a file as a whole. Errors: DL0710."""
    from difflang.base.source_files import replace, unwritable

    try:
        replace(path, text.encode())
    except OSError as error:
        raise unwritable(str(path), error) from None


def pairs_of(told: tuple[str, ...], option: str, what: str) -> dict[str, str]:
    """`NAME=...` in its two parts."""
    pairs = [t.partition("=") for t in told]
    if wrong := [t for t, (name, _, value) in zip(told, pairs, strict=True) if not name.isidentifier() or not value]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME={what}", param_hint=option)
    return {name: value for name, _, value in pairs}


class reported:
    """Turns what is wrong with a program into its report and exit code."""

    def __init__(self, usage: tuple[str, ...] = ()) -> None:
        self.usage = usage  # codes that are about the command, not about the program

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, DifflangError):
            return False
        report(error.diagnostics)
        codes = [d.code for d in error.diagnostics]
        if all(code.startswith("DL09") for code in codes):
            sys.exit(3)
        sys.exit(2 if all(code in self.usage for code in codes) else 1)
