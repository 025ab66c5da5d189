"""The supervisor of a run in several processes: starts those of this machine, and says which of them failed."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, NoReturn

import click
from msgspec import Struct, json

from difflang.base.diagnostics import DifflangError
from difflang.base.process_group import MEMBER_VARIABLE, GroupMember
from difflang.cli.commands.processes import (
    GRACE_SECONDS,
    LOST,
    ProcessRequest,
    lost_error,
    parse_coordinator,
    parse_process,
)
from difflang.cli.options_and_reports import STDIN, refuse_too_many

LOCALHOST = "127.0.0.1"
PACKAGE_FOLDER = str(Path(__file__).resolve().parents[2])
POLL_SECONDS = 0.02
END_SECONDS = 1.0  # how long a process may take to end that is told to
ABORTED = "the JAX distributed service detected fatal errors"  # what JAX says before it ends a process that did


class MemberProcess(Struct, eq=False):
    """A member that was started here, with the file of its standard error if nobody sees that."""

    member: GroupMember
    process: subprocess.Popen[bytes]
    hidden: IO[bytes] | None
    status: int | None = None  # its exit status, if it ended by itself

    @property
    def lost(self) -> bool:
        """Whether it ended since another one was gone."""
        if self.status == LOST:
            return True
        log = Path(self.member.log)
        return self.status == -signal.SIGABRT and log.exists() and ABORTED in log.read_text(errors="replace")

    def report(self) -> str:
        """What it printed on a standard error that nobody saw."""
        if self.hidden is None:
            return ""
        self.hidden.seek(0)
        return self.hidden.read().decode(errors="replace")

    def fate(self) -> str:
        """How it ended."""
        name = f"{self.member} (process id {self.process.pid})"
        if self.lost:
            return f"{name} lost the others"
        if self.status is not None and self.status < 0:
            return f"{name} was ended by {signal.Signals(-self.status).name}"
        return f"{name} failed: its exit status is {self.status}"


def supervise(request: ProcessRequest, devices: int, words: Sequence[str], program: str) -> NoReturn:
    """Run the members of this machine with the words of this command, and exit as they do.

    Errors: UsageError; DL1262 if the coordinator cannot be reached, or a process dies.
    """
    with ExitStack() as stack:
        room = stack.enter_context(tempfile.TemporaryDirectory(prefix="difflang-"))
        members = members_here(request, devices, room)
        check_address(members[0])
        standard_input = os.path.join(room, "input")
        Path(standard_input).write_bytes(sys.stdin.buffer.read() if program.startswith(("-", STDIN)) else b"")
        started: list[MemberProcess] = []
        stack.callback(end_all, started)
        for member in members:
            environment = member_environment(member, devices // member.count, forced=request.processes is not None)
            hidden = stack.enter_context(tempfile.TemporaryFile()) if len(members) > 1 and member.number else None
            started.append(start_member(member, words, environment, standard_input, hidden))
        status = wait_for_all(started)
        if status is None:
            raise explain_end(started)
    sys.exit(status)


def members_here(request: ProcessRequest, devices: int, room: str) -> list[GroupMember]:
    """The processes to start here, for a mesh of so many devices, with logs in `room`. Errors: UsageError."""
    if not devices:
        raise click.UsageError("several processes run a mesh: --mesh data=4")
    if request.processes is not None and (request.coordinator or request.process):
        raise click.UsageError(
            "either --processes N, all here, or --coordinator HOST:PORT --process I/N for one of them"
        )
    if request.processes is not None:
        refuse_too_many(devices)
        numbers, count, coordinator = range(request.processes), request.processes, f"{LOCALHOST}:{free_port()}"
    else:
        number, count = parse_process(request.process)
        numbers, coordinator = [number], parse_coordinator(request.coordinator)
    if devices % count:
        raise click.UsageError(f"{count} processes cannot share a mesh of {devices} devices: not a multiple")
    return [
        GroupMember(coordinator, i, count, request.seconds, os.path.join(room, str(i)), os.getpid()) for i in numbers
    ]


def free_port() -> int:
    with socket.socket() as found:
        found.bind((LOCALHOST, 0))
        return found.getsockname()[1]


def check_address(member: GroupMember) -> None:
    """Errors: DL1262 if process 0 cannot listen at its address, or does not within the time limit."""
    if member.number == 0:
        try:
            socket.create_server(("", member.address[1])).close()
        except OSError as error:
            way = "another program listens there: choose another port, or wait for it to end"
            raise lost_error(
                f"{member} cannot listen at {member.coordinator}: {os.strerror(error.errno or 0)}", way
            ) from None
        return
    end, why = time.monotonic() + member.seconds, ""
    while (left := end - time.monotonic()) > 0:
        try:
            socket.create_connection(member.address, timeout=left).close()
        except OSError as error:
            why = error.strerror or str(error)
            time.sleep(min(0.1, left))
        else:
            return
    what = f"{member} cannot reach process 0 at {member.coordinator} within {member.seconds:g} seconds: {why}"
    zero = f"start that one on its machine: `--coordinator {member.coordinator} --process 0/{member.count}`"
    raise lost_error(what, zero, "`--start-timeout SECONDS` waits longer")


def member_environment(member: GroupMember, devices: int, *, forced: bool) -> dict[str, str]:
    """The environment of a member with so many devices; those of the processor, if they are forced."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}".strip()
    found = os.pathsep.join([PACKAGE_FOLDER, *filter(None, [os.environ.get("PYTHONPATH")])])
    platform = {"JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")} if forced else {}
    # What lies in the current folder must not stand in for a module; all members must make the same programs.
    python = {"PYTHONSAFEPATH": "1", "PYTHONPATH": found, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
    return {**os.environ, **platform, **python, "XLA_FLAGS": flags, MEMBER_VARIABLE: json.encode(member).decode()}


def start_member(
    member: GroupMember,
    words: Sequence[str],
    environment: Mapping[str, str],
    standard_input: str,
    hidden: IO[bytes] | None,
) -> MemberProcess:
    """Start a process of this machine; of one that is `hidden` nobody sees what it prints."""
    stdout = None if hidden is None else subprocess.DEVNULL
    with open(standard_input, "rb") as program:
        process = subprocess.Popen(  # in a session of its own: an interrupt is for this process, which ends them
            [sys.executable, "-m", "difflang", "run", *words], env=environment, stdin=program, stdout=stdout,
            stderr=hidden, start_new_session=True,
        )  # fmt: skip
    return MemberProcess(member, process, hidden)


def wait_for_all(started: Sequence[MemberProcess]) -> int | None:
    """The exit status of the run; None if a process died, or failed where process 0 did not."""
    end = math.inf
    while None in (found := [p.process.poll() for p in started]) and time.monotonic() < end:
        if end == math.inf and any(found):
            end = time.monotonic() + GRACE_SECONDS
        time.sleep(POLL_SECONDS)
    for each, status in zip(started, found, strict=True):
        each.status = status
    first = started[0].status
    if all(p.status == 0 for p in started):
        return 0
    reported = first is not None and first > 0 and first != LOST
    return first if reported else None


def explain_end(started: Sequence[MemberProcess]) -> DifflangError:
    """The error of a run in which process 0 has not said what went wrong."""
    failed = [p for p in started if p.status]
    # One that was killed, or has an error of its own, is the cause; the others lost it.
    cause = min(failed, key=lambda p: (p.lost, p.member.number))
    if text := cause.report():
        click.echo(text, err=True, nl=False)
    ways = ["the other processes of the run were ended"] if len(started) > 1 else []
    if cause.lost:
        ways = ["what the others printed says more", *ways]
    if cause.status == -signal.SIGKILL:
        ways = ["the system does so too where memory runs out", *ways]
    return lost_error(cause.fate(), *ways)


def end_all(started: Sequence[MemberProcess]) -> None:
    """End what still runs: by an interrupt, upon which no half-written file is left, or else at once."""
    for each in started:
        with suppress(ProcessLookupError):
            each.process.send_signal(signal.SIGINT)
    end = time.monotonic() + END_SECONDS
    for each in started:
        try:
            each.process.wait(max(end - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            each.process.kill()
            each.process.wait()
