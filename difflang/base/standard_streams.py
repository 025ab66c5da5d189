"""Standard output that cannot be written ends the process with a message, not as if all had been printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from difflang.base.process_termination import ProcessStopped


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
