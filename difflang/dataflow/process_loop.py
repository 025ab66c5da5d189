"""One process of a run on several: its device, and the connections over which its tokens come and go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

import numpy as np

from difflang.dataflow.executor import DataflowToken, DeviceExecutor, Tag
from difflang.dataflow.run_dataflow import LocalNetwork
from difflang.dataflow.wire_format import Connection, Message, WireError

HEARTBEAT_SECONDS = 1.0
Arrival = tuple[int, Message, Any] | tuple[int, WireError, None]


class Inbox:
    """Messages of all connections, in the order in which they come. Each connection has a number: that of its peer."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Arrival] = SimpleQueue()
        self.connections: dict[int, Connection] = {}

    def listen(self, peer: int, connection: Connection) -> None:
        """Read the messages of a peer from now on, in a thread of its own."""
        self.connections[peer] = connection

        def read() -> None:
            while True:
                try:
                    message, value = connection.receive()
                except WireError as error:
                    self.queue.put((peer, error, None))
                    return
                if message.get("kind") != "alive":
                    self.queue.put((peer, message, value))

        threading.Thread(target=read, daemon=True).start()

    def check_heard(self, peer: int, timeout: float) -> None:
        """Errors: WireError if the peer was not heard for so many seconds."""
        if monotonic() - self.connections[peer].heard > timeout:
            raise WireError(f"it was silent for {timeout:g} seconds")

    def get(self, timeout: float) -> Arrival | None:
        """The next message; None if none comes in time."""
        try:
            return self.queue.get(timeout=timeout) if timeout else self.queue.get_nowait()
        except Empty:
            return None


class Heartbeat:
    """Says over a connection that this process lives, while it may compute something long."""

    def __init__(self, connection: Connection) -> None:
        self.ended = threading.Event()

        def beat() -> None:
            while not self.ended.wait(HEARTBEAT_SECONDS):
                with suppress(WireError):  # whoever reads from it finds out why
                    connection.send({"kind": "alive"})

        threading.Thread(target=beat, daemon=True).start()

    def end(self) -> None:
        self.ended.set()


class RemoteNetwork(LocalNetwork):
    """Sends tokens by `post`; what arrives is handed to the Recvs of this process."""

    def __init__(self, post: Callable[[int, Message, Any], None]) -> None:
        super().__init__()
        self.post = post

    def send(self, key: str, tag: Tag, device: int, token: DataflowToken) -> None:
        message = {"kind": "token", "to": device, "key": key, "tag": tag, "dead": token.dead, "depth": token.depth}
        self.post(device, message, token.value)

    def arrive(self, message: Message, value: Any) -> None:
        """Errors: WireError for what is no token."""
        try:
            key, tag = str(message["key"]), tuple(map(int, message["tag"]))
            token = DataflowToken(value, bool(message["dead"]), int(message["depth"]))
        except (KeyError, TypeError, ValueError):
            raise WireError("it sent no token") from None
        LocalNetwork.send(self, key, tag, 0, token)


def run_until_idle(device: DeviceExecutor, most: int = 1000) -> None:
    """Let tokens arrive, until there are none, or enough that messages should be looked at."""
    with np.errstate(all="ignore"):
        while not device.idle and most:
            device.step()
            most -= 1
