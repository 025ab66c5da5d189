"""Ctrl-C and a limit of time at any moment: also while XLA compiles or runs, where Python hears no signal."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

GRACE_SECONDS = 0.7  # seconds in which Python may end by itself
MAX_TIMEOUT = 1e9  # seconds: thirty years, and no timer of a system takes many more


class ProcessStopped(BaseException):
    """The process is to end: what is said then, and its exit code."""

    def __init__(self, said: str, code: int) -> None:
        super().__init__(said)
        self.message, self.code = said, code


INTERRUPTED = ProcessStopped("interrupted", 130)
PARTIAL_FILES: set[str] = set()  # files that nobody is left to finish where the process ends
FILE_START_LOCK = threading.Lock()  # held while such a file is begun, and for good by who ends the process
SIGNAL_EXITS: dict[int, ProcessStopped] = {signal.SIGINT: INTERRUPTED}  # what each signal means


def exit_on_sigint() -> None:
    """From now on Ctrl-C ends the process with 130 within a second, whatever it is doing; see also `exit_after`.

    Python hears a signal only between its own instructions, and a compiled loop may have none for hours. A thread waits
    for the signal's number beside it. It does nothing while Python is in time. An interrupt that is ignored, as in the
    background of a script, stays so. On Windows nothing changes: a console ends a process by Ctrl-Break there.
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
    """Raise what a signal means, but not where a module is imported: C++ code in it would end the process by SIGABRT.

    The thread ends it then.
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
    """All is done: an interrupt, or the end of the time, changes nothing any more while Python takes itself down."""
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
    """What is raised in a callback of the collector is printed and forgotten: not this, the thread ends us."""
    if not isinstance(found.exc_value, (KeyboardInterrupt, ProcessStopped)):
        sys.__unraisablehook__(found)


def exit_after(seconds: float) -> None:
    """From now on the process ends with 124 when so much time is over. Errors: NotImplementedError on Windows."""
    if os.name == "nt":
        raise NotImplementedError("Windows has no such timer")
    SIGNAL_EXITS[signal.SIGALRM] = ProcessStopped(f"stopped after {seconds:g} s, the limit set by --timeout", 124)
    signal.signal(signal.SIGALRM, raise_on_signal)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def restore_default_sigint() -> None:
    """Ctrl-C is for the command itself again: a session goes on."""
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
    """End the process from beside what it does: nothing half written is left, and nothing is begun any more."""
    try:
        FILE_START_LOCK.acquire(timeout=GRACE_SECONDS / 7)
        remove_partial_files()
        os.write(2, message.encode())
    finally:  # nobody may be there to be told
        os._exit(code)
