"""Ctrl-C where a session goes on: it ends what is being done, and what there was stays whole."""

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
RETRY_SECONDS = 0.05  # seconds after which an interrupt comes again that nothing could be done about
current_block: object | None = None  # what can be interrupted now


@contextmanager
def _empty_block() -> Generator[None]:
    yield


# What runs whole: to enter and to leave a block, which is short and must match, and what is declared so.
ATOMIC_CODE: set[CodeType] = {way.__code__ for way in (type(_empty_block()).__enter__, type(_empty_block()).__exit__)}


def atomic(function: Function) -> Function:
    """Decorator: an interrupt waits until the function is over, with all that it calls. It is to be short."""
    ATOMIC_CODE.add(function.__code__)
    return function


def allow_interrupts() -> AbstractContextManager[None]:
    """Ctrl-C raises KeyboardInterrupt inside, as without this, but not where that would leave things half done.

    That is in the middle of a module that is imported (half of jaxlib's would end the process), of a block that is
    entered or left, and of what is `atomic`: it is raised a moment later, and dropped if all is done by then. What is
    raised where Python forgets it, as in a callback of the collector of garbage, is raised again.
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
    """Interrupt once more in a moment, if that still goes on by then which was to be interrupted."""
    meant, main = current_block, threading.main_thread()

    def send() -> None:
        if meant is None or current_block is not meant:
            return
        if sys.platform == "win32":
            signal.raise_signal(signal.SIGINT)
        else:  # what waits for the system is woken by it
            signal.pthread_kill(main.ident or 0, signal.SIGINT)

    waiting = threading.Timer(RETRY_SECONDS, send)
    waiting.daemon = True
    waiting.start()
