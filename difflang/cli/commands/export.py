"""`difflang export`: writes a function to an artifact file for use without the compiler."""

from __future__ import annotations

from pathlib import Path

import click

from difflang.cli.options_and_reports import (
    SuggestingChoice,
    argument_types_option,
    check_program_file,
    exit_on_error,
    float_option,
    full_traceback,
    parse_pairs,
    program_argument,
    program_words,
    search_path,
)
from difflang.tools.export.artifact_file import PLATFORMS


@click.command()
@program_argument
@program_words
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
@click.option("--no-source", is_flag=True, help="Omit the source text; reports then have line numbers only.")
@float_option
@search_path
@full_traceback
def export(
    program: str, words: tuple[str, ...], argument_types: tuple[str, ...], out: Path | None, wrt: str | None,
    platforms: tuple[str, ...], stablehlo: str | None, no_source: bool, default_float: str | None,
    folders: tuple[Path, ...],
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
        chosen = () if platforms == ("none",) else platforms or exporting.DEFAULT_PLATFORMS
        pairs = parse_pairs(argument_types, "--arg", "TYPE")
        options = exporting.ExportOptions(pairs, wrt, chosen, stablehlo, not no_source, words)
        checked, path, entry = check_program_file(program, default_float, folders)
        made = exporting.elaborate_export(checked, path, entry, options)
        target = out or Path(f"{made.name}.dflx")
        exporting.export_function(made, target, options)
        what = "StableHLO alone" if stablehlo else f"with StableHLO for {', '.join(chosen) or 'no platform'}"
        click.echo(f"{target}: {made.name}, {what}", err=True)
