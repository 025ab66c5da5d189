"""What is a part of something larger, and has no life of its own elsewhere."""

from __future__ import annotations

from typing import Any, Self

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.errors import classify_error


class Unpicklable:
    """Of a loaded file or artifact: a copy is the part itself, as of Python's functions; it is not pickled."""

    __name__: str

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> Any:
        message = f"`{self.__name__}` belongs to a loaded program and cannot be pickled"
        way = "load the file again where you need it, or load the artifact that `export` writes"
        raise classify_error(DifflangError(Diagnostic("DL1207", message, helps=(way,))))
