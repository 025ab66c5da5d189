"""The classes of errors in Python: by what went wrong, and also what Python itself would call it.

A room raises `DifflangError` with diagnostics; the doors turn it into the class that its code stands for.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from difflang.base.diagnostics import Diagnostic, DifflangError


class _Rendered(DifflangError):
    """Shown in Python as on the command line: with the lines it is about, and the way out."""

    def __str__(self) -> str:
        return self.render()


class _SourceError(_Rendered, SyntaxError):
    """A mistake in a text: Python shows the line."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__(*diagnostics)
        self.msg = self.args[0]
        place = next((d.span for d in diagnostics if d.span is not None and d.severity == "error"), None)
        if place is not None:
            self.filename = place.source.name
            self.lineno, self.offset = place.position
            self.text = place.source.line(self.lineno)


class ParseError(_SourceError):
    """A text that is no program."""


class CheckError(_SourceError):
    """A program that is wrong: names, types, shapes, what may be differentiated."""


class ShapeError(CheckError):
    """Sizes that do not fit."""


class DTypeError(CheckError):
    """Element types that do not fit."""


class DifferentiationError(CheckError):
    """A derivative that is not there."""


class ArgumentError(_Rendered, TypeError):
    """An argument that the function does not take."""


class IndexFailure(_Rendered, IndexError):
    """An index was out of range while the program ran."""


class AssertionFailure(_Rendered, AssertionError):
    """An assertion did not hold while the program ran."""


class NonFiniteError(_Rendered, FloatingPointError):
    """A number that is not finite."""


class GradientMismatch(_Rendered, AssertionError):
    """A derivative that an audit finds wrong. `report` is what was found."""

    report: object = None


class ArtifactError(_Rendered, ValueError):
    """A function that cannot be exported, or a file that is no artifact, is damaged, or of a newer format."""


class DataError(_Rendered, OSError):
    """A file that cannot be read, or holds something else."""


class LimitError(_Rendered, RuntimeError):
    """More than can be done here: too deep, too many steps, too much memory, or a device that is not here."""


class DifflangWarning(UserWarning):
    """Something in a program that is probably a mistake."""


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
    "DL06": LimitError,
    "DL07": DataError,
    "DL0707": CheckError,
    "DL08": CheckError,
    "DL0901": AssertionFailure,
    "DL0902": IndexFailure,
    "DL0907": AssertionFailure,
    "DL0908": NonFiniteError,
    "DL0909": LimitError,
    "DL10": LimitError,
    "DL11": CheckError,
    "DL12": ArgumentError,
    "DL1203": ParseError,
    "DL1204": ParseError,
    "DL1240": ArtifactError,
    "DL1241": ArtifactError,
    "DL1242": ArtifactError,
}


def classify_error(error: DifflangError) -> DifflangError:
    """The same report as an error of the class that its first diagnostic stands for."""
    if type(error) is not DifflangError or not error.diagnostics:
        return error
    first = next((d for d in error.diagnostics if d.severity == "error"), error.diagnostics[0])
    kind = CLASS_OF_CODE.get(first.code) or CLASS_OF_CODE.get(first.code[:4], _Rendered)
    found = kind(*error.diagnostics)
    found.__cause__ = error.__cause__
    return found


def nested_too_deep() -> Diagnostic:
    """What is said of a program that cannot be followed to its innermost function, loop or branch."""
    way = "functions that call each other count, and so do the loops and branches around the calls"
    return Diagnostic("DL1003", "this is nested too deep to compile", helps=(way,))


@contextmanager
def classify_errors() -> Generator[None]:
    """Errors leave as the class that their code stands for."""
    try:
        yield
    except DifflangError as error:
        raise classify_error(error) from error.__cause__
    except RecursionError as error:
        raise LimitError(nested_too_deep()) from error
