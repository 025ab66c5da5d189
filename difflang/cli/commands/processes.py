"""`run` in several processes, each with a part of the devices: its options, and a process that is a member of the run.

A member is the same command again, which finds in its environment that it is one. JAX aborts a process whose peers are
gone: so what a person starts is not a member, but the supervisor of those on this machine, in `cli.supervisor`.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import click
from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.process_group import ALONE, LOST_CODE, GroupMember, ProcessGroup
from difflang.base.process_termination import (
    INTERRUPTED,
    ProcessStopped,
    guard_stream,
    remove_partial_files,
    stop_writing,
)
from difflang.cli.options_and_reports import print_diagnostics

CRASHED = 70  # the exit status after an internal error
GRACE_SECONDS = 2.0  # what fails in one process fails in the others within this, or they are ended
LOST = 75  # the exit status of a member that lost the others


class ProcessRequest(Struct, frozen=True):
    """What the options of `run` say about processes; None where they say nothing."""

    processes: int | None = None
    coordinator: str | None = None
    process: str | None = None
    seconds: float = 60.0

    @property
    def given(self) -> bool:
        return self.processes is not None or self.coordinator is not None or self.process is not None


def parse_process(text: str | None) -> tuple[int, int]:
    """The number and the count in `0/2`. Errors: UsageError, BadParameter."""
    if text is None:
        raise click.UsageError("--coordinator needs the number of this process: --process 0/2")
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        raise click.BadParameter(f"{text!r} is not I/N: write 0/2 and 1/2 for two processes", param_hint="--process")
    return int(number), int(count)


def parse_coordinator(text: str | None) -> str:
    """The address. Errors: UsageError, BadParameter."""
    if text is None:
        raise click.UsageError("--process needs the address of process 0: --coordinator HOST:PORT")
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--coordinator")
    return text


@contextmanager
def joined(member: GroupMember | None) -> Generator[ProcessGroup, None, None]:
    """The processes of this run: this one alone, or those that this member joins. A member that fails ends here."""
    if member is None:
        yield ALONE
        return
    from difflang.runtime import joined_processes

    separate_output(member)
    watch_parent(member)

    def give_up() -> None:
        what = f"{member} waited {member.seconds:g} seconds at {member.coordinator}, but not all others came"
        error = lost_error(what, "start all of them; `--start-timeout SECONDS` waits longer")
        print_diagnostics(error.diagnostics)
        leave(1)

    try:
        yield joined_processes.join(member, give_up)
    except SystemExit as error:
        # Where one fails, all do; but the others are lost if process 0 is gone before they say so.
        if error.code and member.number == 0:
            time.sleep(GRACE_SECONDS / 2)
        leave(error.code if isinstance(error.code, int) else 1)
    except (KeyboardInterrupt, ProcessStopped) as error:
        remove_partial_files()
        stopped = error if isinstance(error, ProcessStopped) else INTERRUPTED
        if stopped is not INTERRUPTED:  # the supervisor says that itself
            click.echo(stopped.message, err=True)
        leave(stopped.code)
    except BrokenPipeError:
        leave(1)
    except Exception as error:
        if joined_processes.is_lost(error):
            leave(LOST)
        atexit.register(leave, error.exit_code if isinstance(error, click.ClickException) else CRASHED)
        raise


def lost_error(message: str, *ways: str) -> DifflangError:
    return DifflangError(Diagnostic(LOST_CODE, message, helps=ways))


def leave(status: int) -> NoReturn:
    """End at once: JAX would wait for processes that may never come."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def separate_output(member: GroupMember) -> None:
    """Give standard output and error to Python alone: what C++ libraries print there goes to the log."""
    log = os.open(member.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for name, number in (("stdout", 1), ("stderr", 2)):
        old: Any = getattr(sys, name)
        old.flush()
        new = os.fdopen(os.dup(number), "w", encoding=old.encoding, errors=old.errors, buffering=1)
        os.dup2(log, number)
        setattr(sys, name, new)
    os.close(log)
    guard_stream(sys.stdout, stop_writing)


def watch_parent(member: GroupMember) -> None:
    """End when the supervisor has ended, however that happened."""

    def watch() -> None:
        while os.getppid() == member.parent:
            time.sleep(0.5)
        os._exit(LOST)

    threading.Thread(target=watch, daemon=True).start()
