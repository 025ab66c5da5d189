"""The coordinator's end of a worker: starts or finds it, connects to it, and says why it failed and what to do then."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Any, NoReturn

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.dataflow.process_loop import Heartbeat
from difflang.dataflow.wire_format import Connection, Message, TokenError, WireError, error_reason, prove_token
from difflang.ir.op import OPS

TOKEN_VARIABLE = "DIFFLANG_WORKER_TOKEN"
START_SECONDS = 30.0  # a worker imports the package first
END_SECONDS = 0.5  # a process that has closed its connection ends within this
PACKAGE_FOLDER = str(Path(__file__).resolve().parents[2])
LOCALHOST = "127.0.0.1"
FAILURE_CODE = "DL1261"


class WorkerHandle:
    """One worker, for one device; `others` says whether the run has more of them."""

    def __init__(
        self, device: int, address: tuple[str, int], process: subprocess.Popen[str] | None, *, others: bool = False
    ) -> None:
        self.device, self.address, self.process, self.others = device, address, process, others
        self.connection: Connection | None = None
        self.heartbeat: Heartbeat | None = None
        self.status: Message = {}  # what it said last when it had nothing to do
        self.forwarded = 0  # tokens sent to it

    def __str__(self) -> str:
        process = f"process {self.process.pid} at " if self.process is not None else ""
        return f"the worker of device {self.device} ({process}{self.listens_at})"

    @property
    def listens_at(self) -> str:
        host, port = self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def connect(self, token: str) -> Connection:
        """The connection, over which this side says from now on that it lives.

        Errors: DL1261 if nobody is there in time, or someone who does not know the token.
        """
        wait_for_address(self)
        try:
            connection = Connection(socket.create_connection(self.address, timeout=START_SECONDS))
        except socket.gaierror as error:
            self.refuse(error_reason(error), f"`{self.address[0]}` is no machine that this one knows")
        except OSError as error:
            self.refuse(error_reason(error), f"start it on that machine: `difflang worker --listen {self.listens_at}`")
        try:
            prove_token(connection, token, first=True, seconds=START_SECONDS)
        except TokenError as error:
            connection.close()
            self.refuse(str(error), f"set {TOKEN_VARIABLE} to the same text on both sides")
        except WireError as error:
            connection.close()
            one = "it serves one coordinator at a time"
            self.refuse(str(error), f"a free `difflang worker` must listen at {self.listens_at}: {one}")
        self.connection, self.heartbeat = connection, Heartbeat(connection)
        return connection

    def send(self, message: Message, value: Any = None) -> None:
        """Errors: DL1261 if it is gone."""
        assert self.connection is not None
        try:
            self.connection.send(message, value)
        except WireError as error:
            self.fail(str(error))

    def refuse(self, why: str, way: str) -> NoReturn:
        """Errors: DL1261, always: why there is no connection, and a way out for a worker that somebody else starts."""
        self.fail(why, way if self.process is None else None)

    def fail(self, why: str, way: str | None = None) -> NoReturn:
        """Errors: DL1261, always: why it failed, and a way out; without one, that for a worker that is gone."""
        status = None
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                status = self.process.wait(timeout=END_SECONDS)
        ended = f"; its exit status is {status}" if status is not None else ""
        if way is None:
            again = f"what it printed says more; start it again: `difflang worker --listen {self.listens_at}`"
            way = again if self.process is None else "without `--processes` all devices are in one process"
        others = "the other workers of the run were stopped" if self.others else ""
        helps = tuple(filter(None, [way, others]))
        raise DifflangError(Diagnostic(FAILURE_CODE, f"{self} failed: {why}{ended}", helps=helps))

    def say_goodbye(self, message: Message) -> None:
        """Its last message."""
        if self.heartbeat is not None:
            self.heartbeat.end()
        if self.connection is not None:
            with suppress(WireError):  # it may be gone already
                self.connection.send(message)

    def close(self, seconds: float) -> None:
        """Wait so long for a process that was started here, and end it then."""
        if self.process is not None:
            try:
                self.process.wait(timeout=seconds if self.connection is not None else 0.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
        if self.connection is not None:
            self.connection.close()


def spawn_worker(device: int, token: str, *, others: bool = False) -> WorkerHandle:
    """A worker in a new process of this machine, which says where it listens once it has started."""
    # Ops that modules of Python declare are declared by them in that process too.
    modules = sorted({op.module for op in OPS.values()} & sys.modules.keys() - {"__main__"})
    plugins = [f"--plugin={module}" for module in modules]
    command = [sys.executable, "-m", "difflang", "worker", "--listen", f"{LOCALHOST}:0", "--once", *plugins]
    # What lies in the current folder must not stand in for a module; an interrupt is for this process, which ends them.
    found = os.pathsep.join([PACKAGE_FOLDER, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, TOKEN_VARIABLE: token, "PYTHONSAFEPATH": "1", "PYTHONPATH": found}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    return WorkerHandle(device, (LOCALHOST, 0), process, others=others)


def wait_for_address(worker: WorkerHandle) -> None:
    """Errors: DL1261 if a process of this machine does not say in time where it listens."""
    process = worker.process
    if process is None:
        return
    assert process.stdout is not None
    ready, _, _ = select([process.stdout], [], [], START_SECONDS)
    said = process.stdout.readline() if ready else ""
    host, colon, port = said.strip().rpartition(" ")[2].rpartition(":")
    if not colon or not port.isdecimal():
        worker.fail("it did not start" if ready else f"it did not start in {START_SECONDS:g} seconds")
    worker.address = (host, int(port))
