"""`difflang derive`: prints a derivative as a program, or as a formula. `difflang trace`: an evaluation row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from difflang.cli.commands.dataflow import placed_machine
from difflang.cli.diagnostic_formats import json_text
from difflang.cli.options_and_reports import (
    SuggestingChoice,
    WholeNumber,
    argument_types_option,
    check_program_file,
    checking_options,
    exit_on_error,
    machine_options,
    parse_pairs,
    parse_values,
    print_diagnostics,
    program_argument,
    seed_option,
)

MODES = SuggestingChoice(["grad", "jvp", "vjp", "hvp"])


@click.command()
@program_argument
@click.option("--wrt", help="Parameter to differentiate with respect to: `w`, `m.w` or `w,v`.  [default: the first]")
@click.option(
    "--mode",
    type=MODES,
    default="grad",
    show_default=True,
    help="What to derive: gradient, tangent, pullback, or Hessian-vector product.",
)
@click.option(
    "--order",
    type=WholeNumber(),
    default=1,
    show_default=True,
    help="Order of the derivative, with `--mode grad` and a scalar parameter.",
)
@argument_types_option
@click.option(
    "--symbolic", is_flag=True, help="Print one formula, for a function of numbers without loops and branches."
)
@click.option("--latex", is_flag=True, help="Print the formula as LaTeX.")
@checking_options
def derive(
    program: str, wrt: str | None, mode: Any, order: int, argument_types: tuple[str, ...], symbolic: bool, latex: bool,
    default_float: str | None, folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Print the derivative of ENTRY as a program: it checks, runs, and can be derived again.

    `difflang derive model.dfl:loss --wrt w > d_loss.dfl`
    """
    from difflang.tools.derive import derive as deriving

    with exit_on_error(usage=deriving.USAGE_CODES):
        options = deriving.DeriveOptions(wrt, mode, order, parse_pairs(argument_types, "--arg", "TYPE"))
        checked, path, entry = check_program_file(program, default_float, folders)
        if symbolic or latex:
            text = deriving.derive_formulas(checked, path, entry, options, latex=latex)
        else:
            text = deriving.derive(checked, path, entry, options, lambda warning: print_diagnostics([warning]))
        click.echo(text, nl=False)


# ---- Trace


FORMATS = SuggestingChoice(["table", "latex", "html", "json"])


@click.command()
@program_argument
@click.argument("values", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--wrt", help="Add a column of tangents for this parameter: `w` or `m.w`.")
@click.option("--rows", type=WholeNumber(2), default=100, show_default=True, help="Maximum number of rows in a table.")
@click.option("--format", "form", type=FORMATS, default="table", show_default=True, help="Output format.")
@click.option("--dataflow", is_flag=True, help="Show each token of a run on the dataflow machine instead.")
@machine_options
@seed_option
@checking_options
def trace(
    program: str, values: tuple[str, ...], wrt: str | None, rows: int, form: str, dataflow: bool, devices: int | None,
    place: str | None, seed: int, default_float: str | None, folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Evaluate ENTRY at these values and print the run row by row, as textbooks do: each value with its derivatives
    with respect to the arguments (tangents), and the derivative of the result with respect to it (adjoint). Example:
    `difflang trace model.dfl:f x=2 y=5`.
    """
    from difflang.tools import trace_call as tracing

    given = parse_values(values, "VALUES")
    if dataflow and (wrt is not None or form in ("latex", "html")):
        raise click.UsageError("--dataflow prints a table or JSON, without tangents: trace a function that takes them")
    if (devices is not None or place is not None) and not dataflow:
        raise click.UsageError("--devices and --place work only with --dataflow")
    with exit_on_error(usage=tracing.USAGE):
        machine = placed_machine(devices, place) if dataflow else None
        options = tracing.TraceOptions(given, wrt, rows, seed, machine=machine)
        checked, path, entry = check_program_file(program, default_float, folders)
        found = tracing.trace_function(checked, path, entry, options)
        if isinstance(found, tracing.TokenTrace) or form in ("json", "table"):
            click.echo(json_text(found.to_json()) if form == "json" else str(found))
        else:
            click.echo(found.to_latex() if form == "latex" else found.to_html())
