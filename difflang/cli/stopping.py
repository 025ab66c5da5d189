"""Ctrl-C and a limit of time at any moment: also while XLA compiles or runs, where Python hears no signal."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

GRACE = 0.7  # seconds in which Python may end by itself


class Stopped(BaseException):
    """The process is to end: what is said then, and its exit code."""

    def __init__(self, said: str, code: int) -> None:
        super().__init__(said)
        self.said, self.code = said, code


INTERRUPTED = Stopped("interrupted", 130)
WATCHED: dict[int, Stopped] = {signal.SIGINT: INTERRUPTED}  # what each signal means


def end_on_signals() -> None:
    """From now on Ctrl-C ends the process with 130 within a second, whatever it is doing; see also `end_after`.

    Python raises KeyboardInterrupt only between its own instructions, and a compiled loop may have none for hours. A
    thread waits for the signal's number beside it. It does nothing while Python is in time, so files are cleared up.
    An interrupt that is ignored, as in the background of a script, stays so. On Windows nothing changes: a console ends
    a process by Ctrl-Break there.
    """
    if os.name == "nt" or threading.current_thread() is not threading.main_thread():
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=wait_for_signal, args=(reading,), daemon=True).start()
    sys.unraisablehook = without_signals


def without_signals(found: sys.UnraisableHookArgs) -> None:
    """What is raised in a callback of the collector is printed and forgotten: not this, the thread ends us."""
    if not isinstance(found.exc_value, (KeyboardInterrupt, Stopped)):
        sys.__unraisablehook__(found)


def end_after(seconds: float) -> None:
    """From now on the process ends with 124 when so much time is over. Errors: NotImplementedError on Windows."""
    if os.name == "nt":
        raise NotImplementedError("Windows has no such timer")
    stopped = WATCHED[signal.SIGALRM] = Stopped(f"stopped: not done after {seconds:g} s, as --timeout says", 124)

    def out_of_time(*_: object) -> None:
        raise stopped

    signal.signal(signal.SIGALRM, out_of_time)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def leave_interrupts() -> None:
    """Ctrl-C is for the command itself again: a session goes on."""
    if os.name != "nt" and threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)


def wait_for_signal(reading: int) -> None:
    while (stopped := WATCHED.get(os.read(reading, 1)[0])) is None:
        pass
    time.sleep(GRACE)
    os.write(2, f"{stopped.said}\n".encode())
    os._exit(stopped.code)
