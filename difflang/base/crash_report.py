"""Crash reports for internal errors: a file with what helps to find the fault, and a message for the user."""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

from difflang.base.private_cache import private_subfolder

REPORTED_PACKAGES = ("difflang", "jax", "jaxlib", "numpy", "lark")


def report_crash(error: BaseException) -> str:
    """Write the crash report; the message to show."""
    place = write_report(crash_report_text(error))
    reason = "".join(traceback.format_exception_only(error)).strip().split("\n")[0]
    kept = f" A report is in {place}: please report it where you got difflang, with the program if you can."
    return (
        f"error: internal error in difflang ({reason[:200]}). Your program may be correct.{kept if place else ''} "
        "`--full-traceback` shows where it happened."
    )


def crash_report_text(error: BaseException) -> str:
    """Versions, the command and the traceback; an internal error itself carries the graph around the equation."""
    from importlib import metadata

    lines = [f"python {platform.python_version()} on {platform.platform()}"]
    for name in REPORTED_PACKAGES:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name} is not installed")
    lines.append("command: " + " ".join(sys.argv))
    return "\n".join([*lines, "", *traceback.format_exception(error)])


def write_report(text: str) -> Path | None:
    """Write the report to the user's cache folder, else to the system's temporary folder; None if neither works.

    Others can write to the temporary folder, so the file is always a new one of a name that nobody can foresee.
    """
    import tempfile

    for folder in (lambda: private_subfolder("crashes"), lambda: Path(tempfile.gettempdir())):
        with suppress(OSError):
            prefix = time.strftime("difflang-crash-%Y%m%d-%H%M%S-")
            handle, name = tempfile.mkstemp(suffix=".txt", prefix=prefix, dir=folder())
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            return Path(name)
    return None
