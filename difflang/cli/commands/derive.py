"""`difflang derive`: prints a derivative as a program, or as a formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from difflang.cli.options_and_reports import (
    SuggestingChoice,
    WholeNumber,
    argument_types_option,
    check_program_file,
    exit_on_error,
    float_option,
    full_traceback,
    parse_pairs,
    print_diagnostics,
    program_argument,
    search_path,
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
@float_option
@search_path
@full_traceback
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
