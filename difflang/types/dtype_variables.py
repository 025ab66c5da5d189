"""Element types still open: of a literal that nothing has asked for yet, of a generic `T`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from difflang.ir.tensor_types import C64, COMPLEX_DTYPE_OF, COMPLEXES, F32, FLOATS, I32, NUMBERS, REALS, DType

DTYPE_BOUNDS: Mapping[str, tuple[DType, ...]] = {"float": FLOATS, "num": NUMBERS, "ord": REALS}
"""What a generic `T: float` may stand for, by the name of its bound."""


class DTypeVar(DType):
    """An element type not yet known: one of `candidates`, `default` if nothing ever says which.

    Where only floats or complex numbers are left it is by default `real`, or complex with such parts.
    """

    __slots__ = ("candidates", "default", "default_real", "solution")
    __setattr__ = object.__setattr__  # unlike the element types it stands for, it changes

    def __init__(self, candidates: Sequence[DType], default: DType, real: DType = F32) -> None:
        super().__init__("?", "float", 0, "")
        self.candidates: tuple[DType, ...] = tuple(candidates)
        self.default = default
        self.default_real = real
        self.solution: DType | None = None

    @property
    def is_complex(self) -> bool:
        """Whether only complex numbers are left, whatever else is still open."""
        if self.solution is not None:
            return prune_dtype(self).is_complex
        return all(c.is_complex for c in self.candidates)


class DTypeParam(DType):
    """A generic element type `T: float` inside the definition that declares it: any one of `candidates`."""

    __slots__ = ("candidates",)
    __setattr__ = object.__setattr__

    def __init__(self, name: str, candidates: Sequence[DType]) -> None:
        kind = "float" if all(c.is_float for c in candidates) else "int"
        super().__init__(name, kind, 0, "")
        self.candidates: tuple[DType, ...] = tuple(candidates)

    @property
    def is_complex(self) -> bool:
        return all(c.is_complex for c in self.candidates)


def prune_dtype(dtype: DType) -> DType:
    """What a variable stands for by now; anything else is itself."""
    if not isinstance(dtype, DTypeVar):
        return dtype
    found = dtype
    while isinstance(found, DTypeVar) and found.solution is not None:
        found = found.solution
    while isinstance(dtype, DTypeVar) and dtype.solution is not None:  # the next question is answered in one step
        dtype.solution, dtype = found, dtype.solution
    return found


def literal_dtype(value: complex, default_float: DType) -> DTypeVar:
    """The element type of a number as written: an integer literal may become any number, a float literal no integer."""
    if isinstance(value, int):
        return DTypeVar(NUMBERS, I32, default_float)
    return DTypeVar(FLOATS + COMPLEXES, default_float, default_float)


def imaginary_dtype(default_float: DType) -> DTypeVar:
    """The element type of an imaginary number as written, whose parts are floats of the default type if they can be."""
    return DTypeVar(COMPLEXES, COMPLEX_DTYPE_OF.get(default_float, C64), default_float)


def default_dtype(dtype: DType) -> DType:
    """A variable's answer, taking its default where nothing asked for more."""
    dtype = prune_dtype(dtype)
    if isinstance(dtype, DTypeVar):
        dtype.solution = dtype.default
        return dtype.default
    return dtype


def dtype_text(dtype: DType) -> str:
    dtype = prune_dtype(dtype)
    if not isinstance(dtype, DTypeVar):
        return dtype.name
    return "number" if I32 in dtype.candidates else "complex" if dtype.is_complex else "float"
