"""A process that was forked after XLA had started: XLA's threads are not there, and a program would wait for them."""

from __future__ import annotations

import os
from typing import Any, NoReturn, Protocol
from weakref import WeakSet

from difflang.base.diagnostics import Diagnostic, DifflangError


class UsesThreads(Protocol):
    """Something that calls compiled programs."""

    def stop_after_fork(self) -> None:
        """Call none of those compiled before."""
        ...


IN_USE: WeakSet[Any] = WeakSet()
FORKED: list[bool] = []


def uses_threads(caller: UsesThreads) -> None:
    """Have it told if this process is forked."""
    IN_USE.add(caller)


def stop_in_child() -> None:
    if IN_USE:
        FORKED.append(True)
    for caller in tuple(IN_USE):
        caller.stop_after_fork()


def refuse_after_fork() -> None:
    """Errors: DL1011 in a process that was forked after a program had been compiled."""
    if FORKED:
        refuse_to_run()


def refuse_to_run(*_: Any) -> NoReturn:
    """Errors: DL1011."""
    message = "this process was forked after XLA had started, so it cannot run compiled programs"
    ways = ('start processes by `multiprocessing.get_context("spawn")`, or fork before the first call',)
    raise DifflangError(Diagnostic("DL1011", message, helps=ways))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=stop_in_child)
