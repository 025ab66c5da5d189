"""The dataflow machine on the command line: the options of `run --engine dataflow`, and `difflang worker`."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from difflang.base.byte_sizes import format_bytes
from difflang.base.source_files import write_or_report
from difflang.base.wording import aligned_rows, count_of
from difflang.cli.options_and_reports import Seconds
from difflang.cli.plugin_modules import plugin_option

if TYPE_CHECKING:
    from difflang.dataflow.executor import Firing
    from difflang.dataflow.machine import Machine


class MachineRequest(Struct, frozen=True):
    """What the options of `run` say about the dataflow machine; None where they say nothing."""

    devices: int | None = None
    place: str | None = None
    parallel_iterations: int | None = None
    swap_above: int | None = None
    processes: int | None = None
    hosts: str | None = None
    timeline: Path | None = None


def placed_machine(devices: int | None, place: str | None) -> Machine:
    """The machine of a command that runs nothing, or all in this process. Errors: UsageError, DL1260."""
    from difflang.dataflow.machine import Machine, placement_by_name

    if place is not None and (devices or 1) == 1:
        raise click.UsageError("--place needs several devices: --devices N")
    return Machine(devices or 1, placement_by_name(place, devices or 1))


@contextmanager
def open_machine(request: MachineRequest, *, profile: bool) -> Generator[Machine, None, None]:
    """The machine for one run of a program, with its processes; afterwards its profile and its timeline.

    Errors: UsageError for options that contradict each other; DL1260, DL1261.
    """
    from difflang.dataflow.coordinator import Cluster
    from difflang.dataflow.machine import Machine, placement_by_name
    from difflang.dataflow.timeline import chrome_trace, without_values
    from difflang.dataflow.worker_handle import TOKEN_VARIABLE

    devices, hosts = request.devices or request.processes or 1, parse_hosts(request.hosts)
    if request.processes not in (None, devices):
        raise click.UsageError(f"each device has a process of its own: --processes {devices}, without --devices")
    if hosts and request.processes:
        raise click.UsageError("either --processes, on this machine, or --hosts, where workers are started already")
    if hosts and len(hosts) != devices - 1:
        raise click.UsageError(
            f"--hosts names {count_of(len(hosts), 'worker')} for {count_of(devices - 1, 'device')} besides this one"
        )
    if hosts and not os.environ.get(TOKEN_VARIABLE):
        raise click.UsageError(f"set {TOKEN_VARIABLE} to the token of the workers")
    if devices == 1 and request.place is not None:
        raise click.UsageError("--place needs several devices: --devices N")
    place = placement_by_name(request.place, devices)
    with Cluster(devices, hosts) if hosts or request.processes else nullcontext() as cluster:
        firings: list[Firing] = []
        machine = Machine(
            devices,
            place,
            request.parallel_iterations or 32,
            swap_above=request.swap_above,
            cluster=cluster,
            observe=None if request.timeline is None else lambda firing: firings.append(without_values(firing)),
        )
        try:
            yield machine
        finally:  # what happened matters most where the program fails
            if profile:
                click.echo(f"\n{machine_report(machine)}", err=True)
            if firings and request.timeline is not None:
                write_or_report(request.timeline, chrome_trace(firings).encode())
            elif request.timeline is not None:
                click.echo(f"nothing ran on the dataflow machine: {request.timeline} is not written", err=True)


def parse_hosts(text: str | None) -> list[tuple[str, int]]:
    """The addresses in `host:7000,other:7000`. Errors: BadParameter."""
    found: list[tuple[str, int]] = []
    for part in text.split(",") if text is not None else ():
        host, _, port = part.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise click.BadParameter(f"{part.strip()!r} is not HOST:PORT", param_hint="--hosts")
        address = host.strip("[]").lower(), int(port)
        if address in found:
            raise click.BadParameter(
                f"{part.strip()!r} is named twice: each device needs a worker of its own", param_hint="--hosts"
            )
        found.append(address)
    return found


def machine_report(machine: Machine) -> str:
    """What happened in the runs of a program: how often nodes fired, work, span, and the lines that did most work."""
    totals = machine.totals
    if not totals.runs:
        return "nothing ran on the dataflow machine"
    average = totals.work / max(totals.span, 1)
    lines = [
        f"{count_of(totals.runs, 'run')} on {count_of(machine.devices, 'device')}",
        f"work {totals.work:,} equations, span {totals.span:,}: {average:.1f} side by side on average, "
        f"{totals.widest} at most",
        f"at most {count_of(totals.most_iterations, 'iteration')} of a loop under way",
    ]
    if machine.swap_above is not None:
        moved = f"swapped out to files of {format_bytes(totals.swapped_bytes)}, {totals.swapped_in:,} read back"
        lines.append(f"{count_of(totals.swapped_out, 'value')} of stacks {moved}")
    lines.append("")
    by_kind = [
        ("node", "fired", "dead"),
        *[(k, f"{n:,}", f"{totals.dead[k]:,}") for k, n in totals.fired.most_common()],
    ]
    most = [(line, f"{count:,}") for line, count in totals.lines.most_common(10)]
    return "\n".join([*lines, *aligned_rows(by_kind, {0}), "", *aligned_rows([("", "equations"), *most], {0})])


@click.command()
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:0", help="Address; port 0 is a free one.")
@click.option("--once", is_flag=True, help="End after the first coordinator.")
@click.option(
    "--peer-timeout", type=Seconds(), default=10.0, show_default=True, metavar="SECONDS",
    help="Give a coordinator up that is silent for so long.",
)  # fmt: skip
@plugin_option
def worker(listen: str, once: bool, peer_timeout: float) -> None:
    """Compute a device of the dataflow machine for `difflang run --engine dataflow --hosts` on another machine.

    Both sides need the same DIFFLANG_WORKER_TOKEN; without it the worker makes one and prints it. Graphs and numbers
    come over the wire, never code.
    """
    import secrets
    import socket

    from difflang.dataflow.worker import serve
    from difflang.dataflow.worker_handle import TOKEN_VARIABLE

    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{listen!r} is not HOST:PORT", param_hint="--listen")
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        token = secrets.token_hex(16)
        click.echo(f"{TOKEN_VARIABLE}={token}", err=True)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host.strip("[]"), int(port)), family=family)
    except OSError as error:
        raise click.BadParameter(f"cannot listen there: {error.strerror or error}", param_hint="--listen") from None
    address = listener.getsockname()
    click.echo(f"listening on {address[0]}:{address[1]}")
    sys.stdout.flush()

    def report(text: str) -> None:
        click.echo(f"difflang worker: {text}", err=True)

    with listener:
        sys.exit(serve(listener, token, peer_timeout, report, once=once))
