"""`difflang export` writes a function to an artifact file, `difflang stubs` `.pyi` files for Python's type checkers."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from difflang.base.source_files import read_source, write_atomically, write_error
from difflang.cli.commands.fmt import require_programs
from difflang.cli.options_and_reports import (
    SuggestingChoice,
    argument_types_option,
    check_program_file,
    checking_options,
    exit_on_error,
    parse_pairs,
    print_diagnostics,
    program_with_arguments,
    search_path,
)
from difflang.tools.export.artifact_file import PLATFORMS


@click.command()
@program_with_arguments
@argument_types_option
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), help="Output file.  [default: ENTRY.dflx]"
)
@click.option(
    "--wrt", help="Export the gradient with respect to this parameter, `w`, `m.w` or `w,v`, instead of the function."
)
@click.option(
    "--platform", "platforms", multiple=True, type=SuggestingChoice([*PLATFORMS, "none"]),
    help="Platforms of the StableHLO, or `none`.  [default: cpu, cuda, tpu]",
)  # fmt: skip
@click.option(
    "--stablehlo",
    type=SuggestingChoice(PLATFORMS),
    help="Write only StableHLO for this platform: as text to a `.mlir` file, else as bytecode.",
)
@click.option(
    "--symbolic", multiple=True, metavar="SIZE", help="A size that is that of each call; there is then no StableHLO."
)
@click.option("--no-source", is_flag=True, help="Omit the source text; reports then have line numbers only.")
@checking_options
def export(
    program: str, words: tuple[str, ...], argument_types: tuple[str, ...], out: Path | None, wrt: str | None,
    platforms: tuple[str, ...], stablehlo: str | None, symbolic: tuple[str, ...], no_source: bool,
    default_float: str | None, folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Write ENTRY to a file that `difflang.runtime.load` reads without the program and the checker.

    `difflang export model.dfl:loss --arg n=32 -o loss.dflx`
    """
    from difflang.tools.export import export_function as exporting

    # StableHLO alone has no sources and one platform; its suffix decides the encoding.
    if stablehlo is not None and (out is None or platforms or no_source):
        raise click.UsageError(
            "--stablehlo requires -o FILE.mlir or -o FILE.mlirbc, and excludes --platform and --no-source"
        )
    if "none" in platforms and len(platforms) > 1:
        raise click.UsageError("--platform none excludes other platforms")
    with exit_on_error(usage=exporting.USAGE_CODES):
        chosen = () if platforms == ("none",) else platforms or (() if symbolic else exporting.DEFAULT_PLATFORMS)
        pairs = parse_pairs(argument_types, "--arg", "TYPE")
        options = exporting.ExportOptions(pairs, wrt, chosen, symbolic, stablehlo, not no_source, words)
        checked, path, entry = check_program_file(program, default_float, folders)
        made = exporting.elaborate_export(checked, path, entry, options)
        target = out or Path(f"{made.name}.dflx")
        exporting.export_function(made, target, options)
        what = "StableHLO alone" if stablehlo else f"with StableHLO for {', '.join(chosen) or 'no platform'}"
        click.echo(f"{target}: {made.name}, {what}", err=True)


# ---- Stubs


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the stubs to this folder instead of beside each file.",
)
@search_path
def stubs(files: tuple[str, ...], out: Path | None, folders: tuple[Path, ...]) -> None:
    """Write `model.pyi` for each `model.dfl`: its records and functions, for Python's type checkers.

    Folders are searched for programs. If a program has errors, nothing is written; a stub that was not generated is
    left alone.
    """
    from difflang.driver.checked_program import check_program
    from difflang.tools.type_stubs import STUB_HEADER
    from difflang.tools.type_stubs import generate_stub as stubs_of

    with exit_on_error():
        texts: dict[Path, str] = {}
        wrong = False
        for file in map(Path, require_programs(files)):
            place = (out or file.parent) / f"{file.stem}.pyi"
            if place in texts:
                raise click.UsageError(f"two stubs would be called `{place.name}`: write them to two folders")
            if not file.stem.isidentifier():
                raise click.UsageError(f"a Python module cannot be called `{file.stem}`, so {file} has no stub")
            checked = check_program(read_source(file, str(file)), path=file, paths=folders)
            print_diagnostics(checked.errors)
            wrong = wrong or bool(checked.errors)
            texts[place] = stubs_of(checked, file.name)
        # All or nothing: a partial set would mix old and new declarations.
        if wrong:
            sys.exit(1)
        # Before the first write: a hand-written stub stops them all.
        for place in texts:
            if file_prefix(place, len(STUB_HEADER)) not in (None, STUB_HEADER.encode()):
                raise click.UsageError(f"{place} was not written by `difflang stubs`: move it away first")
        for place, text in texts.items():
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(place, text.encode())
            except OSError as error:
                raise write_error(str(place), error) from None
            click.echo(f"{place}", err=True)


def file_prefix(place: Path, length: int) -> bytes | None:
    """The first bytes of a file, None if there is none. Errors: DL0710 for something else than a file."""
    try:
        with place.open("rb") as file:
            return file.read(length)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise write_error(str(place), error) from None
