"""`difflang trace`: prints an evaluation row by row, with tangents and adjoints."""

from __future__ import annotations

from pathlib import Path

import click

from difflang.cli.diagnostic_formats import json_text
from difflang.cli.options_and_reports import (
    SuggestingChoice,
    WholeNumber,
    check_program_file,
    exit_on_error,
    float_option,
    full_traceback,
    program_argument,
    search_path,
    seed_option,
)

FORMATS = SuggestingChoice(["table", "latex", "html", "json"])


@click.command()
@program_argument
@click.argument("values", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--wrt", help="Add a column of tangents for this parameter: `w` or `m.w`.")
@click.option("--rows", type=WholeNumber(2), default=100, show_default=True, help="Maximum number of rows in a table.")
@click.option("--format", "form", type=FORMATS, default="table", show_default=True, help="Output format.")
@seed_option
@float_option
@search_path
@full_traceback
def trace(
    program: str, values: tuple[str, ...], wrt: str | None, rows: int, form: str, seed: int,
    default_float: str | None, folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Evaluate ENTRY at these values and print the run row by row, as textbooks do: each value with its derivatives
    with respect to the arguments (tangents), and the derivative of the result with respect to it (adjoint). Example:
    `difflang trace model.dfl:f x=2 y=5`.
    """
    from difflang.tools import trace_call as tracing

    pairs = [v.partition("=") for v in values]
    if wrong := [v for v, (name, _, value) in zip(values, pairs, strict=True) if not name or not value]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=VALUE", param_hint="VALUES")
    with exit_on_error(usage=tracing.USAGE):
        options = tracing.TraceOptions({n: v for n, _, v in pairs}, wrt, rows, seed)
        checked, path, entry = check_program_file(program, default_float, folders)
        found = tracing.trace_function(checked, path, entry, options)
        text = {"latex": found.to_latex, "html": found.to_html}.get(form)
        click.echo(json_text(found.to_json()) if form == "json" else text() if text else str(found))
