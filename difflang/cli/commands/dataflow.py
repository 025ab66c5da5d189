"""The dataflow machine on the command line: the options of `run --engine dataflow`, and `difflang worker`."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from difflang.base.byte_sizes import format_bytes
from difflang.base.source_files import write_or_report
from difflang.base.wording import aligned_rows, count_of
from difflang.cli.plugin_modules import plugin_option

if TYPE_CHECKING:
    from difflang.dataflow.machine import Machine


class MachineRequest(Struct, frozen=True):
    """What the options of `run` say about the dataflow machine; None where they say nothing."""

    devices: int | None = None
    place: str | None = None
    parallel_iterations: int | None = None
    swap_above: int | None = None
    processes: bool = False
    hosts: str | None = None
    timeline: Path | None = None


def placed_machine(devices: int | None, place: str | None) -> Machine:
    """The machine of a command that runs nothing, or all in this process. Errors: UsageError, DL1260."""
    from difflang.dataflow.machine import Machine, placement_by_name

    if place is not None and (devices or 1) == 1:
        raise click.UsageError("--place needs several devices: --devices N")
    return Machine(devices or 1, placement_by_name(place, devices or 1), record=True)


@contextmanager
def open_machine(request: MachineRequest, *, profile: bool) -> Generator[Machine, None, None]:
    """The machine for one run of a program, with its processes; afterwards its profile and its timeline.

    Errors: UsageError for options that contradict each other; DL1260, DL1261.
    """
    from difflang.dataflow.coordinator import TOKEN_VARIABLE, Cluster
    from difflang.dataflow.machine import Machine, placement_by_name
    from difflang.dataflow.timeline import chrome_trace

    devices, hosts = request.devices or 1, parse_hosts(request.hosts)
    if hosts and len(hosts) != devices - 1:
        raise click.UsageError(
            f"--hosts names {count_of(len(hosts), 'worker')} for {count_of(devices - 1, 'device')} besides this one"
        )
    if hosts and not os.environ.get(TOKEN_VARIABLE):
        raise click.UsageError(f"set {TOKEN_VARIABLE} to the token of the workers")
    if devices == 1 and (request.processes or request.place is not None):
        raise click.UsageError("--processes and --place need several devices: --devices N")
    place = placement_by_name(request.place, devices)
    with Cluster(devices, hosts) if hosts or request.processes else nullcontext() as cluster:
        record = profile or request.timeline is not None
        machine = Machine(
            devices,
            place,
            request.parallel_iterations or 32,
            swap_above=request.swap_above,
            cluster=cluster,
            record=record,
        )
        try:
            yield machine
        finally:  # what happened matters most where the program fails
            if profile:
                click.echo(f"\n{machine_report(machine)}", err=True)
            if request.timeline is not None:
                write_or_report(request.timeline, chrome_trace(machine.firings).encode())


def parse_hosts(text: str | None) -> list[tuple[str, int]]:
    """The addresses in `host:7000,other:7000`. Errors: BadParameter."""
    found: list[tuple[str, int]] = []
    for part in text.split(",") if text is not None else ():
        host, _, port = part.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise click.BadParameter(f"{part.strip()!r} is not HOST:PORT", param_hint="--hosts")
        found.append((host.strip("[]"), int(port)))
    return found


def machine_report(machine: Machine) -> str:
    """What happened in the runs of a program: how often nodes fired, work, span, and the lines that did most work."""
    if not machine.runs:
        return "nothing ran on the dataflow machine"
    fired, dead, by_line = Counter[str](), Counter[str](), Counter[str]()
    for run in machine.runs:
        fired += run.fired
        dead += run.dead
        by_line += run.lines
    work, span = sum(r.work for r in machine.runs), sum(r.span for r in machine.runs)
    widest = max(max(r.widths, default=0) for r in machine.runs)
    lines = [
        f"{count_of(len(machine.runs), 'run')} on {count_of(machine.devices, 'device')}",
        f"work {work:,} equations, span {span:,}: {work / max(span, 1):.1f} side by side on average, {widest} at most",
        f"at most {count_of(max(r.most_iterations for r in machine.runs), 'iteration')} of a loop under way",
    ]
    if machine.swap_above is not None:
        out, back = sum(r.swapped_out for r in machine.runs), sum(r.swapped_in for r in machine.runs)
        used = format_bytes(max(r.swapped_bytes for r in machine.runs))
        lines.append(f"{count_of(out, 'value')} of stacks swapped out to files of {used}, {back:,} read back")
    lines.append("")
    by_kind = [("node", "fired", "dead"), *[(k, f"{n:,}", f"{dead[k]:,}") for k, n in fired.most_common()]]
    most = [(line, f"{count:,}") for line, count in by_line.most_common(10)]
    return "\n".join([*lines, *aligned_rows(by_kind, {0}), "", *aligned_rows([("", "equations"), *most], {0})])


@click.command()
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:0", help="Address; port 0 is a free one.")
@click.option("--once", is_flag=True, help="End after the first coordinator.")
@click.option(
    "--peer-timeout", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True, metavar="SECONDS",
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

    from difflang.dataflow.coordinator import TOKEN_VARIABLE
    from difflang.dataflow.worker import serve

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
