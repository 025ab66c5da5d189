"""What we tell people about their programs: a code, a sentence, carets, a way out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from difflang.base.source import Span

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Label:
    """A caret under a place, with what is to be said of it. The first label of a diagnostic is the primary one."""

    span: Span
    text: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One report. `code` is stable, `DLnnnn`; `helps` are ways out."""

    code: str
    message: str
    labels: tuple[Label, ...] = ()
    helps: tuple[str, ...] = ()
    severity: Severity = "error"

    @property
    def span(self) -> Span | None:
        return self.labels[0].span if self.labels else None


class DifflangError(Exception):
    """Something is wrong with a program, its data or its use; carries one diagnostic or more."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("\n".join(f"{d.severity}[{d.code}]: {d.message}" for d in diagnostics))
        self.diagnostics = diagnostics


class InternalError(Exception):
    """A fault of ours. Carries the pass and the graph around the equation where it was noticed."""
