"""A worker: a process that computes one device of runs which a coordinator hands to it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import difflang.ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  fills the registry
from difflang.base.diagnostics import DifflangError, InternalError
from difflang.dataflow.executor import DeviceExecutor
from difflang.dataflow.nodes import DataflowNode
from difflang.dataflow.partition import dataflow_program
from difflang.dataflow.placement import equations_in_order
from difflang.dataflow.process_loop import HEARTBEAT_SECONDS, Heartbeat, Inbox, RemoteNetwork, run_until_idle
from difflang.dataflow.timeline import encode_firing
from difflang.dataflow.wire_format import Connection, Message, WireError, prove_token
from difflang.ir.json_codec import graph_from_json

COORDINATOR = 0
HANDSHAKE_SECONDS = 10.0
FIRST_SECONDS = 20.0  # a worker that serves once waits so long


def serve(listener: socket.socket, token: str, timeout: float, report: Callable[[str], None], *, once: bool) -> int:
    """Serve coordinators that know the token, one after the other; with `once` only the first. The exit status.

    A coordinator that goes without a word, or is silent for `timeout` seconds, ends its runs here: `report` says so.
    """
    if once:
        listener.settimeout(FIRST_SECONDS)
    while True:
        try:
            sock, (host, port, *_) = listener.accept()
        except TimeoutError:
            report("no coordinator came")
            return 1
        peer = f"the coordinator at {host}:{port}"
        connection = Connection(sock)
        try:
            prove_token(connection, token, first=False, seconds=HANDSHAKE_SECONDS)
        except WireError as error:
            report(f"{peer} was refused: {error}")
            connection.close()
            continue
        fault = serve_coordinator(connection, timeout)
        connection.close()
        if fault:
            report(f"{peer} failed: {fault}")
        if once:
            return 1 if fault else 0


def serve_coordinator(connection: Connection, timeout: float) -> str:
    """Runs for one coordinator, until it says goodbye; or why that did not come."""
    inbox, heartbeat = Inbox(), Heartbeat(connection)
    inbox.listen(COORDINATOR, connection)
    work = Work(connection)
    try:
        while True:
            arrived = inbox.get(0.0 if work.busy else HEARTBEAT_SECONDS)
            # It is heard as long as it lives, whether or not it has work.
            inbox.check_heard(COORDINATOR, timeout)
            if arrived is not None:
                _, message, value = arrived
                if isinstance(message, WireError):
                    raise message
                if message.get("kind") == "goodbye":
                    return ""
                work.take(message, value)
            work.go_on()
    except WireError as error:
        return str(error)
    finally:
        heartbeat.end()


class Work:
    """The run under way on this worker, if any."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.network = RemoteNetwork(lambda device, message, value: connection.send(message, value))
        self.device: DeviceExecutor | None = None
        # The device and its nodes, by graph; None for one that it cannot run.
        self.programs: dict[int, tuple[int, list[DataflowNode]] | None] = {}
        self.received = 0
        self.firings: list[list[Any]] = []  # not yet sent
        self.reported = False  # whether it was said that nothing is left to do

    @property
    def busy(self) -> bool:
        return self.device is not None and not self.device.idle

    def take(self, message: Message, value: Any) -> None:
        """Errors: WireError for a message that is none of a coordinator's."""
        self.reported = False
        match message.get("kind"):
            case "graph":
                self.keep_graph(message)
            case "run":
                self.begin(message)
            case "token":
                self.received += 1
                self.network.arrive(message, value)
            case "stop":
                raise WireError(f"it stopped the run: {message.get('text')}")
            case kind:
                raise WireError(f"it sent {kind!r}")

    def keep_graph(self, message: Message) -> None:
        """Make the nodes of this device for a graph, which runs name by its number, or say why that cannot be."""
        try:
            number = int(message["number"])
            self.programs[number] = None
            graph, placed = graph_from_json(message["graph"]), message["placement"]
            placement = dict(zip(equations_in_order(graph), map(int, placed), strict=True))
            device = int(message["device"])
            program = dataflow_program(graph, placement, int(message["devices"]))
            self.programs[number] = device, program.of_device(device)
        except (DifflangError, InternalError, MemoryError) as error:
            self.connection.send(failure(error))
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"it sent a graph that cannot be read: {error}") from None

    def begin(self, message: Message) -> None:
        """Begin a run, and fire what waits for nothing."""
        self.network = RemoteNetwork(lambda device, message, value: self.connection.send(message, value))
        self.received, self.device, self.firings = 0, None, []
        try:
            program = self.programs[int(message["number"])]
            if program is None:
                return
            number, nodes = program
            self.device = DeviceExecutor(
                number, nodes, (), self.network, parallel_iterations=int(message["parallel_iterations"]),
                swap_above=None if message["swap_above"] is None else int(message["swap_above"]), text_sink=self.say,
                observe=(lambda firing: self.firings.append(encode_firing(firing))) if message["observed"] else None,
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"it sent a run that cannot be read: {error}") from None
        self.device.start(())

    def say(self, site: int, text: str) -> None:
        self.connection.send({"kind": "text", "site": site, "text": text})

    def go_on(self) -> None:
        """Compute for a while; say when nothing is left to do, for now or for good."""
        device = self.device
        if device is None:
            return
        try:
            run_until_idle(device)
            if device.finished:
                device.check_nothing_left()
        except (DifflangError, InternalError, MemoryError) as error:
            self.device = None
            self.connection.send(failure(error))
            return
        if self.firings:
            self.connection.send({"kind": "firings", "firings": self.firings})
            self.firings = []
        if device.idle and not self.reported:
            self.reported = True
            expected = [] if device.finished else [key for key, _ in device.expected.values()][:3]
            self.connection.send({
                "kind": "idle", "finished": device.finished, "received": self.received,
                "expected": expected, "report": device.report(),
            })  # fmt: skip
            if device.finished:
                self.device = None


def failure(error: Exception) -> Message:
    """What the coordinator is told of an error of this side: in a line, and what to do about it, if that is known."""
    if not isinstance(error, DifflangError):
        return {"kind": "failed", "text": str(error)}
    first = error.diagnostics[0]
    way = next(iter(first.helps), "")
    if first.code == "DL1272":
        way = "start it with the module of Python that declares the op: `difflang worker --plugin MODULE`"
    return {"kind": "failed", "text": f"{first.heading}: {first.message}", "help": way}
