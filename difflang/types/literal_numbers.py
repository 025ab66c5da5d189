"""The numbers that literals stand for: rounded once, from the text to the element type that inference finds."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np

from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import DType
from difflang.numerics.decimal_numbers import nearest_floats, real_part_dtype, round_f64
from difflang.types.dtype_variables import DTypeParam, DTypeVar, prune_dtype

# A number with more significant bits is never in the middle between two numbers of a narrower float type.
MAX_TIE_BITS = 25


class DecimalLiteral(float):
    """The f64 nearest to a literal that lies in the middle between two f32, f16 or bf16 numbers, but not as written."""

    text: str

    def __neg__(self) -> DecimalLiteral:
        return with_text(-float(self), self.text[1:] if self.text.startswith("-") else f"-{self.text}")


class ImaginaryLiteral(complex):
    """The same for an imaginary literal."""

    part: DecimalLiteral

    def __neg__(self) -> ImaginaryLiteral:
        return with_part(-complex(self), -self.part)


def with_part(value: complex, part: DecimalLiteral) -> ImaginaryLiteral:
    found = ImaginaryLiteral(value)
    found.part = part
    return found


def with_text(value: float, text: str) -> DecimalLiteral:
    found = DecimalLiteral(value)
    found.text = text
    return found


def float_literal(value: float, text: str) -> float:
    """The number of a float literal, of which `value` is the nearest f64; with its text if rounding that goes wrong."""
    if not value:
        return value  # 0 in all types; the text may have more digits in its exponent than `Decimal` takes
    mantissa, _ = value.as_integer_ratio()
    significant = mantissa.bit_length() - ((mantissa & -mantissa).bit_length() - 1)
    return with_text(value, text) if significant <= MAX_TIE_BITS and Decimal(text) != Decimal(value) else value


def imaginary_literal(value: float, text: str) -> complex:
    """The number of an imaginary literal without its `j`; with its text if rounding the nearest f64 goes wrong."""
    part = float_literal(value, text)
    return with_part(complex(0.0, value), part) if isinstance(part, DecimalLiteral) else complex(0.0, value)


def round_literal(value: Any, dtype: DType) -> Any:
    """The same number as a plain float; one that would be rounded twice is rounded to the element type."""
    if isinstance(value, ImaginaryLiteral):
        return complex(value.real, round_literal(value.part, dtype))
    if not isinstance(value, DecimalLiteral):
        return value
    part = np.dtype(np.float64) if dtype.is_integer else real_part_dtype(dtype)
    return float(nearest_floats([value.text], np.array([float(value)]), part)[0])


def number_as_typed(value: Any, dtype: DType) -> Any:
    """What a constant of an element type holds: a number rounded to that type, once it is known to be a float
    or complex."""
    dtype = prune_dtype(dtype)
    if isinstance(dtype, (DTypeVar, DTypeParam)) or not dtype.differentiable or isinstance(value, (Poly, complex)):
        return value
    return float(round_f64(np.asarray(round_literal(value, dtype), np.float64), real_part_dtype(dtype)))
