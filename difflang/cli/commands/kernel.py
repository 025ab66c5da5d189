"""`difflang kernel`: runs the Jupyter kernel, or registers it with Jupyter."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

KERNEL_NAME = "difflang"


@click.group(invoke_without_command=True)
@click.option("-f", "--connection-file", type=click.Path(dir_okay=False), help="Connection file from Jupyter.")
@click.pass_context
def kernel(ctx: click.Context, connection_file: str | None) -> None:
    """Run a kernel for Jupyter. `difflang kernel install` registers it, so that Jupyter starts it by itself.

    Needs the extra `kernel`.
    """
    # A clear message instead of an import error in the middle of a front end's start.
    if find_spec("ipykernel") is None:
        click.echo("the kernel needs ipykernel, which is not installed: `pip install 'difflang[kernel]'`", err=True)
        sys.exit(2)
    if ctx.invoked_subcommand is not None:
        return
    if connection_file is None:
        raise click.UsageError(
            "Jupyter starts the kernel with -f FILE; run `difflang kernel install` to register it", ctx
        )
    if not os.path.isfile(connection_file):
        raise click.BadParameter(f"there is no file '{connection_file}'", ctx, param_hint="-f")
    from difflang.cli.jupyter_kernel import run_kernel

    run_kernel(connection_file)


@kernel.command()
@click.option(
    "--prefix", type=click.Path(file_okay=False), help="Install below this folder.  [default: the prefix of Python]"
)
@click.option("--user", is_flag=True, help="Install for the current user only.")
def install(prefix: str | None, user: bool) -> None:
    """Register the kernel with Jupyter: for this Python, unless --user or --prefix says otherwise."""
    import json
    import tempfile

    from jupyter_client.kernelspec import KernelSpecManager

    if prefix is not None and user:
        raise click.UsageError("--user and --prefix exclude each other")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernel.json").write_text(json.dumps(kernel_spec(), indent=1) + "\n", encoding="utf-8")
        try:
            place = KernelSpecManager().install_kernel_spec(
                folder, KERNEL_NAME, user=user, prefix=None if user else prefix or sys.prefix
            )
        except OSError as error:
            raise click.UsageError(f"cannot install the kernel: {error.strerror or error}; try --user") from None
    click.echo(place)


def kernel_spec() -> dict[str, object]:
    """How Jupyter starts the kernel: with the current Python."""
    argv = [sys.executable, "-m", "difflang", "kernel", "-f", "{connection_file}"]
    return {"argv": argv, "display_name": "difflang", "language": "difflang", "interrupt_mode": "signal"}
