"""Ctrl-C and a limit of time at any moment: also while XLA compiles or runs, where Python hears no signal."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

GRACE = 0.7  # seconds in which Python may end by itself
LONGEST = 1e9  # seconds: thirty years, and no timer of a system takes many more


class Stopped(BaseException):
    """The process is to end: what is said then, and its exit code."""

    def __init__(self, said: str, code: int) -> None:
        super().__init__(said)
        self.said, self.code = said, code


INTERRUPTED = Stopped("interrupted", 130)
HALF_WRITTEN: set[str] = set()  # files that nobody is left to finish where the process ends
BEGINNING = threading.Lock()  # held while such a file is begun, and for good by who ends the process
WATCHED: dict[int, Stopped] = {signal.SIGINT: INTERRUPTED}  # what each signal means


def end_on_signals() -> None:
    """From now on Ctrl-C ends the process with 130 within a second, whatever it is doing; see also `end_after`.

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
        signal.signal(signal.SIGINT, stop)
    threading.Thread(target=wait_for_signal, args=(reading,), daemon=True).start()
    sys.unraisablehook = without_signals


def stop(number: int, frame: FrameType | None) -> None:
    """Raise what a signal means, but not where a module is imported: C++ code in it would end the process by SIGABRT.

    The thread ends it then.
    """
    if not importing(frame):
        raise WATCHED[number]


def importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def leave() -> None:
    """All is done: an interrupt, or the end of the time, changes nothing any more while Python takes itself down."""
    if signal.getsignal(signal.SIGINT) is stop:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if len(WATCHED) > 1:  # a limit of time
        signal.setitimer(signal.ITIMER_REAL, 0)
    clear_up()


def clear_up() -> None:
    for path in tuple(HALF_WRITTEN):
        with suppress(OSError):
            os.unlink(path)


def without_signals(found: sys.UnraisableHookArgs) -> None:
    """What is raised in a callback of the collector is printed and forgotten: not this, the thread ends us."""
    if not isinstance(found.exc_value, (KeyboardInterrupt, Stopped)):
        sys.__unraisablehook__(found)


def end_after(seconds: float) -> None:
    """From now on the process ends with 124 when so much time is over. Errors: NotImplementedError on Windows."""
    if os.name == "nt":
        raise NotImplementedError("Windows has no such timer")
    WATCHED[signal.SIGALRM] = Stopped(f"stopped: not done after {seconds:g} s, as --timeout says", 124)
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def leave_interrupts() -> None:
    """Ctrl-C is for the command itself again: a session goes on."""
    if os.name != "nt" and threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)
        if signal.getsignal(signal.SIGINT) is stop:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for_signal(reading: int) -> None:
    while (stopped := WATCHED.get(os.read(reading, 1)[0])) is None:
        pass
    time.sleep(GRACE)
    end_at_once(stopped.code, f"{stopped.said}\n")


def end_at_once(code: int, said: str = "") -> None:
    """End the process from beside what it does: nothing half written is left, and nothing is begun any more."""
    try:
        BEGINNING.acquire(timeout=GRACE / 7)
        clear_up()
        os.write(2, said.encode())
    finally:  # nobody may be there to be told
        os._exit(code)
