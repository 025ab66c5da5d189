"""`difflang compare`: the ways to a derivative side by side."""

from __future__ import annotations

from pathlib import Path

import click

from difflang.cli.diagnostic_formats import json_text
from difflang.cli.options_and_reports import (
    FILE,
    ProgramCommand,
    WholeNumber,
    check_program_file,
    checking_options,
    exit_on_error,
    parse_values,
    program_with_arguments,
    seed_option,
)


@click.command(cls=ProgramCommand)
@program_with_arguments
@click.option(
    "--at", "values", multiple=True, metavar="NAME=VALUE", help="Value of an argument, `x=2.5`, or of a size."
)
@click.option("--wrt", help="Parameters to differentiate with respect to: `w`, `m.w` or `w,v`.  [default: all]")
@click.option(
    "--order", type=WholeNumber(1, 8), default=4, show_default=True, help="Highest order of the symbolic derivative."
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as data.")
@click.option("--plot", type=FILE, help="Draw the comparison to out.svg or out.png.")
@seed_option
@checking_options
def compare(
    program: str, words: tuple[str, ...], values: tuple[str, ...], wrt: str | None, order: int, as_json: bool,
    plot: Path | None, seed: int, default_float: str | None, folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Compare the ways to the derivative of ENTRY at these values: symbolic, by differences, forward and reverse mode.

    `difflang compare model.dfl:f --at x=2 --at y=5`
    """
    from difflang.tools.compare import compare as comparing
    from difflang.tools.compare import comparison_plot

    given = parse_values(values, "--at")
    with exit_on_error(usage=comparing.USAGE):
        options = comparing.CompareOptions(given, wrt, order, seed, words)
        if plot is not None:
            comparison_plot.require_format(plot)
        checked, path, entry = check_program_file(program, default_float, folders)
        found = comparing.compare(checked, path, entry, options)
        click.echo(json_text(found.to_json()) if as_json else str(found))
        if plot is not None:
            comparison_plot.save_plot(found, plot)
