"""Warnings of the language as warnings of Python, at the line of the program that called us."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence

from difflang.base.diagnostics import Diagnostic, render
from difflang.base.errors import DifflangWarning


def issue_warning(diagnostics: Sequence[Diagnostic]) -> None:
    """A DifflangWarning with the reports, as the command line shows them; nothing if there are none."""
    if diagnostics:
        warnings.warn(render(diagnostics), DifflangWarning, stacklevel=caller_stacklevel())


def caller_stacklevel() -> int:
    """How far up the caller of the package is, from the frame that asks."""
    frame, level = inspect.currentframe(), -1  # Python 3.11 cannot skip a package by itself
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "difflang":
        frame, level = frame.f_back, level + 1
    return level + 1
