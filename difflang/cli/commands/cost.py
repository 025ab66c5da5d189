"""`difflang cost`: operations and memory of a function and its gradient, and the work and span of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from difflang.cli.diagnostic_formats import json_text
from difflang.cli.options_and_reports import (
    ProgramCommand,
    argument_types_option,
    check_program_file,
    checking_options,
    exit_on_error,
    mesh_option,
    parse_pairs,
    parse_values,
    program_with_arguments,
    seed_option,
)

if TYPE_CHECKING:
    from difflang.tools.cost import CostReport
    from difflang.tools.work_span import WorkSpan


@click.command(cls=ProgramCommand)
@program_with_arguments
@click.option("--wrt", help="Parameters to differentiate with respect to: `w`, `m.w` or `w,v`.")
@argument_types_option
@click.option("--work-span", is_flag=True, help="Run ENTRY at values, and show what could run side by side.")
@click.option("--at", "values", multiple=True, metavar="NAME=VALUE", help="Value of an argument, for --work-span.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as data.")
@mesh_option()
@seed_option
@checking_options
def cost(
    program: str, words: tuple[str, ...], wrt: str | None, argument_types: tuple[str, ...], work_span: bool,
    values: tuple[str, ...], as_json: bool, mesh: Mapping[str, int], seed: int,
    default_float: str | None, folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Count the operations, bytes and memory of ENTRY and of its gradient, without running it.

    `difflang cost model.dfl:loss --arg x=f32[1000]`. With `--work-span`, the operations of a run by line, the longest
    chain of them, and what could run side by side, checks and prints left out:
    `difflang cost model.dfl:loss --work-span --at x=0.5`. With `--mesh`, what each device of the mesh does and holds.
    """
    if values and not work_span:
        raise click.UsageError("--at belongs to --work-span: counts need types, `--arg x=f32[3]`")
    if argument_types and work_span:
        raise click.UsageError("--work-span runs the function: it needs values, `--at x=0.5`, and no `--arg`")
    if mesh and work_span:
        raise click.UsageError("--work-span runs the function on one device: not with --mesh")
    if work_span:
        from difflang.tools import work_span as tool

        with exit_on_error(usage=tool.USAGE):
            options = tool.WorkSpanOptions(parse_values(values, "--at"), wrt, seed, words)
            checked, path, entry = check_program_file(program, default_float, folders)
            print_report(tool.work_span(checked, path, entry, options), as_json=as_json)
    else:
        from difflang.tools import function_cost as tool

        with exit_on_error(usage=tool.USAGE):
            options = tool.CostOptions(parse_pairs(argument_types, "--arg", "TYPE"), wrt, words, mesh)
            checked, path, entry = check_program_file(program, default_float, folders, mesh)
            print_report(tool.function_cost(checked, path, entry, options), as_json=as_json)


def print_report(found: WorkSpan | CostReport, *, as_json: bool) -> None:
    click.echo(json_text(found.to_json()) if as_json else str(found))
