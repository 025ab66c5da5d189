"""Types of the IR: element types (dtypes), tensors, and histories of loops. Records and tuples are flattened before."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, Literal

import ml_dtypes  # noqa: F401  # pyright: ignore[reportUnusedImport]  teaches NumPy the name bfloat16
import numpy as np
from msgspec import Struct

from difflang.ir.symbolic_dims import Dim


@dataclass(frozen=True, eq=False, slots=True)
class DType:
    """An element type. There is one object of each, compared by identity."""

    name: str
    kind: Literal["bool", "int", "uint", "float", "complex"]
    bits: int
    numpy: str  # its NumPy name; `bfloat16` comes from ml_dtypes

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def differentiable(self) -> bool:
        return self.kind in ("float", "complex")


@cache
def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of an element type."""
    return np.dtype(dtype.numpy)


BOOL = DType("bool", "bool", 8, "bool")
I8, I16, I32, I64 = (DType(f"i{b}", "int", b, f"int{b}") for b in (8, 16, 32, 64))
U8, U16, U32, U64 = (DType(f"u{b}", "uint", b, f"uint{b}") for b in (8, 16, 32, 64))
BF16 = DType("bf16", "float", 16, "bfloat16")
F16, F32, F64 = (DType(f"f{b}", "float", b, f"float{b}") for b in (16, 32, 64))
C64, C128 = (DType(f"c{b}", "complex", b, f"complex{b}") for b in (64, 128))

BOOLS = (BOOL,)
SIGNED = (I8, I16, I32, I64)
UNSIGNED = (U8, U16, U32, U64)
INTEGERS = SIGNED + UNSIGNED
FLOATS = (BF16, F16, F32, F64)
COMPLEXES = (C64, C128)
REALS = INTEGERS + FLOATS
NUMBERS = REALS + COMPLEXES
DTYPES = {d.name: d for d in BOOLS + NUMBERS}
# The element type of a complex number's real and imaginary parts.
REAL_DTYPE_OF = {C64: F32, C128: F64}
COMPLEX_DTYPE_OF = {part: whole for whole, part in REAL_DTYPE_OF.items()}


class Tensor(Struct, frozen=True):
    """An array type; a scalar has shape `()`."""

    dtype: DType
    shape: tuple[Dim, ...] = ()

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def bytes(self) -> int:
        """The size of an array in bytes. A symbolic size counts as 1."""
        return self.dtype.bits // 8 * prod([n for n in self.shape if isinstance(n, int)])

    @property
    def tangent(self) -> Tensor | None:
        return self if self.dtype.differentiable else None

    def reshaped(self, *shape: Dim) -> Tensor:
        return Tensor(self.dtype, shape)

    def resized(self, axis: int, size: Dim) -> Tensor:
        return Tensor(self.dtype, (*self.shape[:axis], size, *self.shape[axis + 1 :]))

    def drop_axes(self, *axes: int) -> Tensor:
        return Tensor(self.dtype, tuple(d for i, d in enumerate(self.shape) if i not in axes))


class History(Struct, frozen=True):
    """The values that a loop of run-time length saves: one item per step. Beyond its end it reads as zero."""

    item: Type

    def __str__(self) -> str:
        return f"history[{self.item}]"

    @property
    def tangent(self) -> History | None:
        inner = self.item.tangent
        return None if inner is None else History(inner)


Type = Tensor | History


def stacked_type(item: Type, length: Dim | None) -> Type:
    """The type of a loop's stacked output: an array where the length is known, else a history."""
    if length is None or isinstance(item, History):
        return History(item)
    return Tensor(item.dtype, (length, *item.shape))


def sequence_item_type(sequence: Type) -> Type:
    """The type of the item that a loop reads from a sequence at one step."""
    return sequence.item if isinstance(sequence, History) else Tensor(sequence.dtype, sequence.shape[1:])


def is_scalar_integer(type: object) -> bool:
    """Whether values of a type are single integers."""
    return isinstance(type, Tensor) and not type.shape and type.dtype.is_integer
