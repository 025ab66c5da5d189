"""Python exception classes for diagnostics: by what went wrong, and also the builtin class Python would raise.

The packages raise `DifflangError` with diagnostics; public entry points convert it to the class of its code.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Self

from difflang.base.diagnostics import Diagnostic, DifflangError


class _Rendered(DifflangError):
    """Its text is the full report, as on the command line: source lines and helps."""

    def __str__(self) -> str:
        return self.render()


class _SourceError(_Rendered, SyntaxError):
    """A mistake in a source text: Python shows the line."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__(*diagnostics)
        self.msg = self.args[0]
        # Python reads these attributes when it prints a SyntaxError.
        place = next((d.span for d in diagnostics if d.span is not None and d.severity == "error"), None)
        if place is not None:
            self.filename = place.source.name
            self.lineno, self.offset = place.position
            self.text = place.source.line(self.lineno)


class ParseError(_SourceError):
    """A text that does not parse."""


class CheckError(_SourceError):
    """A program with an error in names, types, shapes or differentiability."""


class ShapeError(CheckError):
    """Sizes that do not agree."""


class DTypeError(CheckError):
    """Element types that do not agree."""


class DifferentiationError(CheckError):
    """A derivative that does not exist."""


class ArgumentError(_Rendered, TypeError):
    """An argument that the function does not accept."""


class IndexFailure(_Rendered, IndexError):
    """An index was out of range, or a text was no category, while the program ran."""


class AssertionFailure(_Rendered, AssertionError):
    """An assertion did not hold while the program ran."""


class NonFiniteError(_Rendered, FloatingPointError):
    """A value that is infinite or NaN."""


class GradientMismatch(_Rendered, AssertionError):
    """A derivative that a gradient check finds wrong. `report` holds the findings."""

    report: object = None


class OpLawError(_Rendered, AssertionError):
    """An op that breaks a law. `report` says of each law what it found."""

    report: object = None


class ArtifactError(_Rendered, ValueError):
    """A function that cannot be exported, or a file that is no artifact, is damaged, or of a newer format."""


class DataError(_Rendered, OSError):
    """A file that cannot be read, or has unexpected content."""


class LimitError(_Rendered, RuntimeError):
    """A limit exceeded: nesting, steps, memory, or a device or a process that is not available."""


class DifflangWarning(UserWarning):
    """Something in a program that is probably a mistake."""


# By code, else by the family's prefix.
CLASS_OF_CODE: dict[str, type[DifflangError]] = {
    "DL01": ParseError,
    "DL02": CheckError,
    "DL0310": ShapeError,
    "DL0311": DTypeError,
    "DL0312": ShapeError,
    "DL0315": ShapeError,
    "DL03": CheckError,
    "DL0406": GradientMismatch,
    "DL04": DifferentiationError,
    "DL05": CheckError,
    "DL0603": ShapeError,
    "DL0604": CheckError,
    "DL0605": CheckError,
    "DL0606": CheckError,
    "DL0609": ArgumentError,
    "DL0610": CheckError,
    "DL06": LimitError,
    "DL07": DataError,
    "DL0707": CheckError,
    "DL08": CheckError,
    "DL0901": AssertionFailure,
    "DL0902": IndexFailure,
    "DL0907": AssertionFailure,
    "DL0908": NonFiniteError,
    "DL0909": LimitError,
    "DL0910": IndexFailure,
    "DL10": LimitError,
    "DL11": CheckError,
    "DL12": ArgumentError,
    "DL1203": ParseError,
    "DL1204": ParseError,
    "DL1262": LimitError,
    "DL1274": OpLawError,
    "DL1240": ArtifactError,
    "DL1241": ArtifactError,
    "DL1242": ArtifactError,
}


def classify_error(error: DifflangError) -> DifflangError:
    """The same report as an error of the class that its first error diagnostic maps to."""
    if type(error) is not DifflangError or not error.diagnostics:
        return error
    first = next((d for d in error.diagnostics if d.severity == "error"), error.diagnostics[0])
    kind = CLASS_OF_CODE.get(first.code) or CLASS_OF_CODE.get(first.code[:4], _Rendered)
    found = kind(*error.diagnostics)
    found.__cause__ = error.__cause__
    return found


def nested_too_deep() -> Diagnostic:
    """The report on a program whose functions, loops and branches nest too deep to follow."""
    way = "functions that call each other count, and so do the loops and branches around the calls"
    return Diagnostic("DL1003", "this is nested too deep to compile", helps=(way,))


@contextmanager
def classify_errors() -> Generator[None]:
    """Convert errors that leave the block to the class of their code."""
    try:
        yield
    except DifflangError as error:
        raise classify_error(error) from error.__cause__
    except RecursionError as error:
        raise LimitError(nested_too_deep()) from error


class Unpicklable:
    """A part of a loaded file or artifact. A copy is the part itself, as for Python functions; pickling is an error."""

    __name__: str

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> Any:
        message = f"`{self.__name__}` belongs to a loaded program and cannot be pickled"
        way = "load the file again where you need it, or load the artifact that `export` writes"
        raise classify_error(DifflangError(Diagnostic("DL1207", message, helps=(way,))))
