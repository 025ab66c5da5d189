"""`difflang partition`: a function on a mesh of devices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from difflang.cli.diagnostic_formats import json_text
from difflang.cli.options_and_reports import (
    argument_types_option,
    check_program_file,
    checking_options,
    exit_on_error,
    mesh_option,
    parse_pairs,
    pretend_mesh,
    print_diagnostics,
    program_with_arguments,
)


@click.command()
@program_with_arguments
@mesh_option(required=True)
@click.option(
    "--split",
    "splits",
    multiple=True,
    metavar="NAME=AXES",
    help="How an argument is split: `x=data,_` splits its rows along `data`, `w=_,data+model` its columns along both.",
)
@click.option("--wrt", help="Partition the gradient with respect to this parameter: `w`, `m.w` or `w,v`.")
@click.option("--compile", "compiled", is_flag=True, help="Compile the function too, and compare with XLA's program.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as data.")
@argument_types_option
@checking_options
def partition(
    program: str, words: tuple[str, ...], mesh: Mapping[str, int], splits: tuple[str, ...], wrt: str | None,
    compiled: bool, as_json: bool, argument_types: tuple[str, ...], default_float: str | None,
    folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Show what devices of a mesh exchange when they compute ENTRY together, line by line, and what each one holds.

    The exchanges are predicted. With `--compile` the program is compiled, and not run, for devices that this process
    pretends to have, and what differs is shown. Example:
    `difflang partition net.dfl:loss --wrt w --mesh data=4 --arg n=64 --arg d=16 --split x=data`
    """
    from difflang.tools import partition as partitioning

    if compiled:
        pretend_mesh(mesh)
    with exit_on_error(usage=partitioning.USAGE):
        options = partitioning.PartitionOptions(
            mesh,
            parse_pairs(splits, "--split", "AXES"),
            parse_pairs(argument_types, "--arg", "TYPE"),
            wrt,
            words,
            compiled,
        )
        checked, path, entry = check_program_file(program, default_float, folders, mesh)
        found = partitioning.report_partition(checked, path, entry, options)
        click.echo(json_text(found.to_json()) if as_json else str(found))
        print_diagnostics(list(found.warnings))
