"""Several processes that run one program on one mesh, by `jax.distributed`: each has a part of the devices."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from hashlib import sha256
from threading import Timer
from typing import Any

import jax
import numpy as np
from jax.experimental.multihost_utils import broadcast_one_to_all, process_allgather
from msgspec import json

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.process_group import ALONE, LOST_CODE, GroupMember, ProcessGroup

HEARTBEAT_SECONDS = 20  # silence after which JAX gives a process up
SHUTDOWN_SECONDS = 120  # how long the last process of a run that succeeded may take for what it still prints


class JoinedProcesses(ProcessGroup):
    """All processes that have called `jax.distributed.initialize`."""

    def __init__(self) -> None:
        self.number, self.count = jax.process_index(), jax.process_count()

    def agree(self, value: float) -> float:
        words = np.frombuffer(np.float64(value).tobytes(), np.uint32)
        return float(np.asarray(broadcast_one_to_all(words)).view(np.float64)[0])

    def run_once(self, action: Callable[[], None], refused: DifflangError) -> None:
        failure = None
        if self.number == 0:
            try:
                action()
            except DifflangError as error:  # once the others know
                failure = error
        if not bool(broadcast_one_to_all(np.bool_(failure is None))):
            raise failure or refused

    def require_same(self, text: str, refused: Callable[[int], DifflangError]) -> None:
        found = np.asarray(process_allgather(np.frombuffer(sha256(text.encode()).digest(), np.uint32)))
        others = [number for number, digest in enumerate(found) if not np.array_equal(digest, found[0])]
        if others:
            raise refused(others[0])


def current_group() -> ProcessGroup:
    """The processes that have joined, or this one alone."""
    return JoinedProcesses() if jax.process_count() > 1 else ALONE


def join(member: GroupMember, give_up: Callable[[], None]) -> JoinedProcesses:
    """Wait for the other members of a run. `give_up` is called, in a thread, if they do not come in time."""
    # JAX itself would abort the process. It gets longer, so that it never does.
    patience = Timer(member.seconds, give_up)
    patience.daemon = True
    patience.start()
    host, port = member.address
    here: dict[str, Any] = {"coordinator_bind_address": f"{host}:{port}"} if host == "127.0.0.1" else {}
    jax.distributed.initialize(
        member.coordinator, member.count, member.number, initialization_timeout=int(4 * member.seconds) + 60,
        heartbeat_timeout_seconds=HEARTBEAT_SECONDS, shutdown_timeout_seconds=SHUTDOWN_SECONDS,
        cluster_detection_method="deactivate", **here,
    )  # fmt: skip
    patience.cancel()
    return JoinedProcesses()


def broadcast_json(value: Any) -> Any:
    """A value of JSON that process 0 has, in every process."""
    text = json.encode(value)
    size = int(broadcast_one_to_all(np.int32(len(text))))
    return json.decode(bytes(np.asarray(broadcast_one_to_all(np.frombuffer(text.ljust(size)[:size], np.uint8)))))


def is_lost(error: BaseException) -> bool:
    """Whether an error of XLA says that another process is gone."""
    words = ("gloo", "nccl", "coordination", "unavailable:", "deadline_exceeded:", "connection closed by peer")
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)


@contextmanager
def lost_process_error(way: str) -> Generator[None]:
    """Convert what XLA raises if another process is gone. Errors: DL1262."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, DifflangError) or not is_lost(error):
            raise
        message = (
            f"process {jax.process_index()} of {jax.process_count()} lost the others: {str(error).splitlines()[0]}"
        )
        raise DifflangError(Diagnostic(LOST_CODE, message, helps=(way,))) from error
