"""Ending the process, on Ctrl-C or a timeout while XLA runs, or when output is refused; Ctrl-C in a session."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import CodeType, FrameType
from typing import Any, TextIO, TypeVar

GRACE_SECONDS = 0.7  # how long Python may take to end by itself
MAX_TIMEOUT = 1e9  # seconds, thirty years: system timers take little more


class ProcessStopped(BaseException):
    """The process is to end: the message to print, and the exit code."""

    def __init__(self, said: str, code: int) -> None:
        super().__init__(said)
        self.message, self.code = said, code


INTERRUPTED = ProcessStopped("interrupted", 130)
# Files being written now, to be removed if the process ends. The lock is held while such a file is created; the thread
# that ends the process keeps it, so that no file appears after the removal.
PARTIAL_FILES: set[str] = set()
FILE_START_LOCK = threading.Lock()
# The exit of each signal.
SIGNAL_EXITS: dict[int, ProcessStopped] = {signal.SIGINT: INTERRUPTED}


def exit_on_sigint() -> None:
    """From now on Ctrl-C ends the process with 130 within a second, whatever it is doing; see also `exit_after`.

    Python sees a signal only between its own instructions, and a compiled loop may have none for hours. A thread
    therefore waits for the signal's number as well; it does nothing if Python reacts in time. An interrupt that is
    ignored, as in the background of a script, stays ignored. On Windows nothing changes: Ctrl-Break ends a process.
    """
    if os.name == "nt" or threading.current_thread() is not threading.main_thread():
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, raise_on_signal)
    threading.Thread(target=wait_for_signal, args=(reading,), daemon=True).start()
    sys.unraisablehook = signal_safe_unraisablehook


def raise_on_signal(number: int, frame: FrameType | None) -> None:
    """Raise the exit of a signal, but not during an import: C++ code in it would end the process by SIGABRT.

    During an import the thread ends the process instead.
    """
    if not is_importing(frame):
        raise SIGNAL_EXITS[number]


def is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def disarm_signals() -> None:
    """The work is done: an interrupt or a timeout changes nothing any more while Python shuts down."""
    if signal.getsignal(signal.SIGINT) is raise_on_signal:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if len(SIGNAL_EXITS) > 1:  # a limit of time
        signal.setitimer(signal.ITIMER_REAL, 0)
    remove_partial_files()


def remove_partial_files() -> None:
    for path in tuple(PARTIAL_FILES):
        with suppress(OSError):
            os.unlink(path)


def signal_safe_unraisablehook(found: sys.UnraisableHookArgs) -> None:
    """Do not print our exit when a callback of the collector raises it and Python drops it: the thread ends the
    process.
    """
    if not isinstance(found.exc_value, (KeyboardInterrupt, ProcessStopped)):
        sys.__unraisablehook__(found)


def exit_after(seconds: float) -> None:
    """End the process with 124 after so many seconds. Errors: NotImplementedError on Windows."""
    if os.name == "nt":
        raise NotImplementedError("Windows has no such timer")
    SIGNAL_EXITS[signal.SIGALRM] = ProcessStopped(f"stopped after {seconds:g} s, the limit set by --timeout", 124)
    signal.signal(signal.SIGALRM, raise_on_signal)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def restore_default_sigint() -> None:
    """Give Ctrl-C back to a command that handles it, such as an interactive session."""
    if os.name != "nt" and threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)
        if signal.getsignal(signal.SIGINT) is raise_on_signal:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for_signal(reading: int) -> None:
    while (stopped := SIGNAL_EXITS.get(os.read(reading, 1)[0])) is None:
        pass
    time.sleep(GRACE_SECONDS)
    exit_now(stopped.code, f"{stopped.message}\n")


def exit_now(code: int, message: str = "") -> None:
    """End the process from another thread: no half-written file is left, and none is started."""
    try:
        FILE_START_LOCK.acquire(timeout=GRACE_SECONDS / 7)
        remove_partial_files()
        os.write(2, message.encode())
    finally:  # standard error may be closed
        os._exit(code)


# ---- Output that the system refuses


def guard_standard_streams() -> None:
    """From now on a failed write to standard output ends the process with 1; one to standard error is ignored.

    A closed stream is opened so that reading finds nothing and writing fails: Python has no stream for it, drops what
    is printed, and gives its number to the next file that is opened.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The system takes the lowest free number, which is that of the closed stream.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDONLY), mode, encoding="utf-8"))
    guard_stream(sys.stdout, stop_writing)
    guard_stream(sys.stderr, lambda stream, error: discard_output(stream))


def guard_stream(stream: TextIO, failed: Callable[[TextIO, OSError], None]) -> None:
    """Have `failed` called for each write and flush of a stream that the system refuses."""

    def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            try:
                return method(*args)
            except BrokenPipeError:  # whoever reads has seen enough: click ends the process
                raise
            except OSError as error:
                failed(stream, error)

        return call

    for name in ("write", "writelines", "flush"):
        setattr(stream, name, guarded(getattr(stream, name)))


def stop_writing(stream: TextIO, error: OSError) -> None:
    discard_output(stream)
    reason = (error.strerror or "it is closed").lower()
    raise ProcessStopped(f"error: cannot write standard output: {reason}", 1)


def discard_output(stream: TextIO) -> None:
    """What is left in the buffers goes nowhere: Python would fail again when it exits."""
    handle = os.open(os.devnull, os.O_WRONLY)
    os.dup2(handle, stream.fileno())
    os.close(handle)


# ---- Interactive sessions: Ctrl-C interrupts the current evaluation and leaves the session's state whole


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
