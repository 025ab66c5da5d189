"""`difflang partition`: a function on a mesh of devices."""

from __future__ import annotations

from math import prod
from pathlib import Path

import click

from difflang.cli.diagnostic_formats import json_text
from difflang.cli.options_and_reports import (
    argument_types_option,
    check_program_file,
    checking_options,
    exit_on_error,
    parse_pairs,
    program_with_arguments,
)

MAX_DEVICES = 512  # that this process pretends to have


@click.command()
@program_with_arguments
@click.option("--mesh", required=True, metavar="NAME=SIZE,…", help="The mesh of devices: `data=4,model=2`.")
@click.option(
    "--split",
    "splits",
    multiple=True,
    metavar="NAME=AXES",
    help="How an argument is split: `x=data,_` splits its rows along `data`, `w=_,data+model` its columns along both.",
)
@click.option("--wrt", help="Partition the gradient with respect to this parameter: `w`, `m.w` or `w,v`.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as data.")
@argument_types_option
@checking_options
def partition(
    program: str, words: tuple[str, ...], mesh: str, splits: tuple[str, ...], wrt: str | None, as_json: bool,
    argument_types: tuple[str, ...], default_float: str | None, folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Show what devices of a mesh exchange when they compute ENTRY together, line by line, and what each one holds.

    The program is compiled for devices that this process pretends to have, and not run. Example:
    `difflang partition net.dfl:loss --wrt w --mesh data=4 --arg n=64 --arg d=16 --split x=data`
    """
    axes = parse_mesh(mesh)
    from difflang.runtime import collectives
    from difflang.tools import partition as partitioning

    collectives.pretend_devices(prod(axes.values()))
    with exit_on_error(usage=partitioning.USAGE):
        options = partitioning.PartitionOptions(
            axes, parse_pairs(splits, "--split", "AXES"), parse_pairs(argument_types, "--arg", "TYPE"), wrt, words
        )
        checked, path, entry = check_program_file(program, default_float, folders)
        found = partitioning.report_partition(checked, path, entry, options)
        click.echo(json_text(found.to_json()) if as_json else str(found))


def parse_mesh(text: str) -> dict[str, int]:
    """The axes of a mesh, `data=4,model=2`. Errors: BadParameter."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = [word.strip() for word in part.partition("=")]
        if not name.isidentifier() or not size.isdecimal() or int(size) < 1 or name in found:
            raise click.BadParameter(f"{part.strip()!r} is not NAME=SIZE, once each", param_hint="--mesh")
        found[name] = int(size)
    if prod(found.values()) > MAX_DEVICES:
        raise click.BadParameter(f"at most {MAX_DEVICES} devices can be tried here", param_hint="--mesh")
    return found
