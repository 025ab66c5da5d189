"""Issues the language's warnings as Python warnings, at the line of the user's code that called the package."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence

from difflang.base.diagnostics import Diagnostic, render
from difflang.base.errors import DifflangWarning


def issue_warning(diagnostics: Sequence[Diagnostic]) -> None:
    """Issue a DifflangWarning with the reports as the command line shows them; nothing if there are none."""
    if diagnostics:
        warnings.warn(render(diagnostics), DifflangWarning, stacklevel=caller_stacklevel())


def caller_stacklevel() -> int:
    """The stack level of the package's caller, counted from the calling frame."""
    # Python 3.11 lacks `skip_file_prefixes`.
    frame, level = inspect.currentframe(), -1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "difflang":
        frame, level = frame.f_back, level + 1
    return level + 1
