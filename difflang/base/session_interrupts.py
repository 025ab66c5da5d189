"""Ctrl-C where a session goes on: it ends what is being done, and what there was stays whole."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import CodeType, FrameType
from typing import Any, TypeVar

from difflang.base.process_termination import importing

Function = TypeVar("Function", bound=Callable[..., Any])
AGAIN = 0.05  # seconds after which an interrupt comes again that nothing could be done about
under_way: object | None = None  # what can be interrupted now


@contextmanager
def nothing() -> Generator[None]:
    yield


# What runs whole: to enter and to leave a block, which is short and must match, and what is declared so.
ATOMIC: set[CodeType] = {way.__code__ for way in (type(nothing()).__enter__, type(nothing()).__exit__)}


def atomic(function: Function) -> Function:
    """Decorator: an interrupt waits until the function is over, with all that it calls. It is to be short."""
    ATOMIC.add(function.__code__)
    return function


def interruptible() -> AbstractContextManager[None]:
    """Ctrl-C raises KeyboardInterrupt inside, as without this, but not where that would leave things half done.

    That is in the middle of a module that is imported (half of jaxlib's would end the process), of a block that is
    entered or left, and of what is `atomic`: it is raised a moment later, and dropped if all is done by then. What is
    raised where Python forgets it, as in a callback of the collector of garbage, is raised again.
    """
    usual = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        return nullcontext()
    return interrupted_when_whole()


@contextmanager
def interrupted_when_whole() -> Generator[None]:
    global under_way
    outer, under_way = sys.unraisablehook, object()

    def once_more(found: sys.UnraisableHookArgs) -> None:
        if isinstance(found.exc_value, KeyboardInterrupt):
            again()
        else:
            outer(found)

    sys.unraisablehook = once_more
    usual = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        under_way, sys.unraisablehook = None, outer
        signal.signal(signal.SIGINT, usual)


def interrupt(number: int, frame: FrameType | None) -> None:
    if importing(frame) or in_atomic(frame):
        again()
    else:
        raise KeyboardInterrupt


def in_atomic(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in ATOMIC:
            return True
        frame = frame.f_back
    return False


def again() -> None:
    """Interrupt once more in a moment, if that still goes on by then which was to be interrupted."""
    meant, main = under_way, threading.main_thread()

    def send() -> None:
        if meant is None or under_way is not meant:
            return
        if sys.platform == "win32":
            signal.raise_signal(signal.SIGINT)
        else:  # what waits for the system is woken by it
            signal.pthread_kill(main.ident or 0, signal.SIGINT)

    waiting = threading.Timer(AGAIN, send)
    waiting.daemon = True
    waiting.start()
