"""Objects that belong to a loaded module or artifact: copied by identity, and not picklable."""

from __future__ import annotations

from typing import Any, Self

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.errors import classify_error


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
