"""Cells of a text table as numbers, booleans and dates of a declared element type."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date

import numpy as np

from difflang.base.diagnostics import printable
from difflang.ir.tensor_types import DType, numpy_dtype
from difflang.numerics.decimal_numbers import is_decimal, nearest_floats, overflowed, real_part_dtype

BOOL_WORDS = {"true": True, "false": False, "1": True, "0": False}
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
FIRST_DAY = date(1970, 1, 1).toordinal()
EMPTY = "this cell is empty"


class InvalidCell(Exception):
    """A cell that does not fit the declared type: its place, and what is wrong with it."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place, self.reason = place, reason


def quoted_cell(cell: str) -> str:
    """A cell as messages show it."""
    return f"`{printable(cell.strip())[:40]}`"


def parse_numbers(cells: Sequence[str], dtype: DType) -> np.ndarray:
    """The cells as numbers of an element type, each rounded once; a bool is 0 or 1. Errors: InvalidCell."""
    parsed = parse_floats(cells)
    if not dtype.is_integer and dtype.kind != "bool":
        found = nearest_floats(cells, parsed, real_part_dtype(dtype))
        if (place := overflowed(cells, found)) is not None:
            raise invalid_number(cells, place, dtype)
        return found.astype(numpy_dtype(dtype))
    # The f64 is exact for integers up to 2**53 only.
    if dtype.is_integer and dtype.bits == 64 and (np.abs(parsed) >= 2.0**53).any():
        return parse_wide_integers(cells, dtype)
    if dtype.is_integer:
        # Compare as floats before the conversion, which would wrap.
        info = np.iinfo(numpy_dtype(dtype))
        bad = (parsed != np.floor(parsed)) | (parsed < float(info.min)) | (parsed > float(info.max))
        bad |= ~np.isfinite(parsed)
    else:
        bad = (parsed != 0) & (parsed != 1)
    if bad.any():
        raise invalid_number(cells, int(np.argmax(bad)), dtype)
    return parsed.astype(numpy_dtype(dtype))


def parse_floats(cells: Sequence[str]) -> np.ndarray:
    """The nearest f64 of each cell. Errors: InvalidCell."""
    joined = "".join(cells)
    # `float` also takes `1_000` and the digits of other scripts.
    if joined.isascii() and "_" not in joined:
        try:
            return np.fromiter(map(float, cells), np.float64, len(cells))
        except ValueError:
            pass
    place = next(i for i, cell in enumerate(cells) if not is_decimal(cell))
    raise InvalidCell(place, f"{quoted_cell(cells[place])} is not a number" if cells[place].strip() else EMPTY)


def parse_wide_integers(cells: Sequence[str], dtype: DType) -> np.ndarray:
    """Integers beyond 2**53, each parsed from its text. Errors: InvalidCell."""
    info = np.iinfo(numpy_dtype(dtype))
    numbers: list[int] = []
    for place, cell in enumerate(cells):
        text = cell.strip()
        digits = text.lstrip("+-")
        number = int(text) if digits.isdecimal() and digits.isascii() and len(digits) < 30 else None
        if number is None or not info.min <= number <= info.max:
            raise invalid_number(cells, place, dtype)
        numbers.append(number)
    return np.array(numbers, numpy_dtype(dtype))


def invalid_number(cells: Sequence[str], place: int, dtype: DType) -> InvalidCell:
    return InvalidCell(place, f"{quoted_cell(cells[place])} is not a valid {dtype}")


def parse_bools(cells: Sequence[str]) -> np.ndarray:
    """Cells `true` and `false`, in any case, or 1 and 0. Errors: InvalidCell."""
    return parse_each(cells, lambda cell: BOOL_WORDS.get(cell.lower()), "is not true or false").astype(np.bool_)


def parse_dates(cells: Sequence[str]) -> np.ndarray:
    """Dates `2024-03-01` as days since 1970-01-01. Errors: InvalidCell."""
    return parse_each(cells, day_number, "is not a date such as 2024-03-01")


def day_number(cell: str) -> int | None:
    try:
        return date.fromisoformat(cell).toordinal() - FIRST_DAY if ISO_DATE.fullmatch(cell) else None
    except ValueError:  # no such day
        return None


def iso_date(day: int) -> str:
    """The date of a day since 1970-01-01. Errors: ValueError before year 1 and after year 9999."""
    try:
        return date.fromordinal(FIRST_DAY + day).isoformat()
    except (OverflowError, ValueError):
        raise ValueError(f"{day} days since 1970-01-01 is no date of the years 1 to 9999") from None


def parse_each(cells: Sequence[str], parse: Callable[[str], int | None], reason: str) -> np.ndarray:
    """Integers parsed from cells of which many are equal. Errors: InvalidCell where `parse` gives None."""
    found = {cell: parse(cell.strip()) for cell in set(cells)}
    if None in found.values():
        place = next(i for i, cell in enumerate(cells) if found[cell] is None)
        raise InvalidCell(place, f"{quoted_cell(cells[place])} {reason}" if cells[place].strip() else EMPTY)
    return np.fromiter(map(found.__getitem__, cells), np.int64, len(cells))  # type: ignore[arg-type]
