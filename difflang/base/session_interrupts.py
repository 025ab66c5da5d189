"""Ctrl-C in an interactive session: it interrupts the current evaluation and leaves the session's state whole."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import CodeType, FrameType
from typing import Any, TypeVar

from difflang.base.process_termination import is_importing

Function = TypeVar("Function", bound=Callable[..., Any])
RETRY_SECONDS = 0.05  # delay before a deferred interrupt is sent again
current_block: object | None = None  # identifies the block that can be interrupted now


@contextmanager
def _empty_block() -> Generator[None]:
    yield


# Code that an interrupt must not split: entering and leaving a context manager, and functions marked `atomic`.
ATOMIC_CODE: set[CodeType] = {end.__code__ for end in (type(_empty_block()).__enter__, type(_empty_block()).__exit__)}


def atomic(function: Function) -> Function:
    """Decorator: an interrupt waits until the function returns, with all that it calls. The function must be short."""
    ATOMIC_CODE.add(function.__code__)
    return function


def allow_interrupts() -> AbstractContextManager[None]:
    """Inside, Ctrl-C raises KeyboardInterrupt as usual, but not where that would leave things half done.

    Three cases defer it: an import (half of jaxlib's would end the process), entering or leaving a context manager, and
    `atomic` code. The interrupt is then raised a moment later, and dropped if the block has ended by then. One that
    Python drops, because a callback of the garbage collector raised it, is raised again.
    """
    usual = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        return nullcontext()
    return defer_in_atomic()


@contextmanager
def defer_in_atomic() -> Generator[None]:
    global current_block
    outer, current_block = sys.unraisablehook, object()

    def retry_dropped(found: sys.UnraisableHookArgs) -> None:
        if isinstance(found.exc_value, KeyboardInterrupt):
            retry_interrupt()
        else:
            outer(found)

    sys.unraisablehook = retry_dropped
    usual = signal.signal(signal.SIGINT, handle_sigint)
    try:
        yield
    finally:
        current_block, sys.unraisablehook = None, outer
        signal.signal(signal.SIGINT, usual)


def handle_sigint(number: int, frame: FrameType | None) -> None:
    if is_importing(frame) or is_in_atomic(frame):
        retry_interrupt()
    else:
        raise KeyboardInterrupt


def is_in_atomic(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in ATOMIC_CODE:
            return True
        frame = frame.f_back
    return False


def retry_interrupt() -> None:
    """Send the interrupt again in a moment, if the interrupted block is still running by then."""
    meant, main = current_block, threading.main_thread()

    def send() -> None:
        if meant is None or current_block is not meant:
            return
        if sys.platform == "win32":
            signal.raise_signal(signal.SIGINT)
        else:  # a signal to the thread also wakes a blocking system call
            signal.pthread_kill(main.ident or 0, signal.SIGINT)

    waiting = threading.Timer(RETRY_SECONDS, send)
    waiting.daemon = True
    waiting.start()
