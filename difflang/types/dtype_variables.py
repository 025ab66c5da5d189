"""Element-type variables of inference: open types of literals (`DTypeVar`) and generic parameters (`DTypeParam`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from difflang.ir.tensor_types import BOOLS, C64, COMPLEX_DTYPE_OF, COMPLEXES, F32, FLOATS, I32, NUMBERS, REALS, DType

DTYPE_BOUNDS: Mapping[str, tuple[DType, ...]] = {"float": FLOATS, "num": NUMBERS, "ord": REALS}
"""The element types that satisfy the bound of a generic, as in `T: float`."""


class DTypeVar(DType):
    """An element type not inferred yet: one of `candidates`, or `default` if nothing constrains it.

    If only floats or complex numbers remain, the default is `default_real`, or complex with such parts.
    """

    __slots__ = ("candidates", "default", "default_real", "solution")
    __setattr__ = object.__setattr__  # it is mutable, unlike other element types

    def __init__(self, candidates: Sequence[DType], default: DType, real: DType = F32) -> None:
        super().__init__("?", "float", 0, "")
        self.candidates: tuple[DType, ...] = tuple(candidates)
        self.default = default
        self.default_real = real
        self.solution: DType | None = None

    def __str__(self) -> str:
        return dtype_text(self)

    @property
    def is_complex(self) -> bool:
        """Whether only complex candidates remain."""
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
    """The solution of a variable so far; other element types are returned as they are."""
    if not isinstance(dtype, DTypeVar):
        return dtype
    found = dtype
    while isinstance(found, DTypeVar) and found.solution is not None:
        found = found.solution
    # Path compression, as in union-find: later lookups take one step.
    while isinstance(dtype, DTypeVar) and dtype.solution is not None:
        dtype.solution, dtype = found, dtype.solution
    return found


def is_known_float(dtype: DType) -> bool:
    """Whether inference has found a float or complex type: its numbers are rounded, whole ones too."""
    dtype = prune_dtype(dtype)
    return dtype.differentiable and not isinstance(dtype, DTypeVar)


def literal_dtype(value: complex, default_float: DType) -> DTypeVar:
    """The element type of a literal: an integer literal may become any number, a float literal no integer."""
    if isinstance(value, int):
        return DTypeVar(NUMBERS, I32, default_float)
    return DTypeVar(FLOATS + COMPLEXES, default_float, default_float)


def empty_dtype(default_float: DType) -> DTypeVar:
    """The element type of a list without items, which may be any."""
    return DTypeVar(BOOLS + NUMBERS, default_float, default_float)


def imaginary_dtype(default_float: DType) -> DTypeVar:
    """The element type of an imaginary literal, by default with parts of the default float type."""
    return DTypeVar(COMPLEXES, COMPLEX_DTYPE_OF.get(default_float, C64), default_float)


def default_dtype(dtype: DType) -> DType:
    """Solve a variable by its default if it is still open."""
    dtype = prune_dtype(dtype)
    if isinstance(dtype, DTypeVar):
        dtype.solution = dtype.default
        return dtype.default
    return dtype


def dtype_text(dtype: DType) -> str:
    """The name of an element type for a message; that of a variable is its default."""
    dtype = prune_dtype(dtype)
    return dtype.default.name if isinstance(dtype, DTypeVar) else dtype.name
