"""CSV tables of numbers: read into a declared element type, and written."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from difflang.base.diagnostics import DifflangError, printable
from difflang.base.source import Span
from difflang.host.data.shortest_decimal import shortest_decimal
from difflang.ir.tensor_types import DType, numpy_dtype
from difflang.types.type_errors import make_error


def read_csv(path: Path, name: str, dtype: DType, rank: int, span: Span) -> np.ndarray:
    """A table of numbers; a first row without numbers is a header. Errors: DL0701, DL0703 to DL0705."""
    if rank not in (1, 2):
        raise make_error(
            "DL0704",
            "a csv file is a table",
            (span, f"declared with {rank} axes"),
            help="declare `f32[n, k]`, or `f32[n]` for one column",
        )
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [(i, row) for i, row in enumerate(csv.reader(file), 1) if row and any(c.strip() for c in row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise make_error("DL0701", f"cannot read `{name}`: this is not a csv file", (span, str(error))) from None
    width = len(rows[0][1]) if rows else 0
    # A header has no numbers; a row with one is data, and its other cells are errors.
    if rows and not any(is_number(cell) for cell in rows[0][1]):
        rows = rows[1:]
        width = len(rows[0][1]) if rows else width
    for line, row in rows:
        if len(row) != width:
            raise make_error(
                "DL0703",
                f"{name}:{line}: this row has {len(row)} columns, but the others have {width}",
                (span, "read here"),
                help=separator_hint(",".join(row)),
            )
    try:
        table = np.array([row for _, row in rows], dtype=np.float64).reshape(len(rows), width)
    except ValueError:
        raise bad_cell_error(name, rows, span) from None
    return convert_table(name, rows, drop_column_axis(table, rank, name, span), dtype, span)


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def bad_cell_error(name: str, rows: list[tuple[int, list[str]]], span: Span) -> DifflangError:
    for line, row in rows:
        for place, cell in enumerate(row, 1):
            if not is_number(cell):
                shown = cell.strip()[:40]
                what = f"`{shown}` is not a number" if shown else "this cell is empty"
                return make_error(
                    "DL0703", f"{name}:{line}: column {place}: {what}", (span, "read here"), help=separator_hint(cell)
                )
    return make_error("DL0703", f"{name} is not a table of numbers", (span, "read here"))


def separator_hint(cell: str) -> str:
    """The help for a cell that holds several values."""
    for mark, called in ((";", "semicolons"), ("\t", "tabs")):
        if mark in cell:
            decimal = ", and decimal commas as points" if mark == ";" else ""
            return f"this table separates its columns by {called}: use commas{decimal}"
    return ""


def drop_column_axis(table: np.ndarray, rank: int, name: str, span: Span) -> np.ndarray:
    if rank == 2:
        return table
    if table.shape[1] != 1 and table.size:
        raise make_error(
            "DL0705",
            f"{name} has {table.shape[1]} columns",
            (span, "declared with one axis"),
            help=f"declare `f32[n, {table.shape[1]}]`",
        )
    return table.reshape(-1)


def convert_table(
    name: str, rows: list[tuple[int, list[str]]], table: np.ndarray, dtype: DType, span: Span
) -> np.ndarray:
    """The table in its declared element type; integers must be written as such."""
    target = numpy_dtype(dtype)
    # The table was parsed as f64, which is exact for integers up to 2**53 only.
    if dtype.is_integer and dtype.bits == 64 and (np.abs(table) >= 2.0**53).any():
        return read_wide_integers(name, rows, table.shape, dtype, span)
    if dtype.is_integer:
        # Compare as floats before the conversion, which would wrap.
        info = np.iinfo(target)
        bad = (table != np.floor(table)) | (table < float(info.min)) | (table > float(info.max)) | ~np.isfinite(table)
    elif dtype.kind == "bool":
        bad = (table != 0) & (table != 1)
    else:
        bad = np.zeros(table.shape, bool)
    if bad.any():
        where = np.argwhere(bad)[0]
        line, row = rows[where[0]]
        cell = row[where[1] if len(where) > 1 else 0].strip()
        raise make_error(
            "DL0703",
            f"{name}:{line}: column {(where[1] if len(where) > 1 else 0) + 1}: `{cell}` is not a valid {dtype}",
            (span, f"declared with items of {dtype}"),
        )
    return table.astype(target)


def read_wide_integers(
    name: str, rows: list[tuple[int, list[str]]], shape: tuple[int, ...], dtype: DType, span: Span
) -> np.ndarray:
    """Integers beyond 2**53, each parsed from its text."""
    info = np.iinfo(numpy_dtype(dtype))
    numbers: list[int] = []
    for line, row in rows:
        for place, written in enumerate(row, 1):
            text = written.strip()
            digits = text.lstrip("+-")
            number = int(text) if digits.isdecimal() and digits.isascii() and len(digits) < 30 else None
            if number is None or not info.min <= number <= info.max:
                message = f"{name}:{line}: column {place}: `{printable(text)[:40]}` is not a valid {dtype}"
                raise make_error("DL0703", message, (span, f"declared with items of {dtype}"))
            numbers.append(number)
    return np.array(numbers, numpy_dtype(dtype)).reshape(shape)


def csv_text(array: np.ndarray, header: tuple[str, ...] = ()) -> str:
    """A vector as a column, a matrix as rows; the numbers read back exactly."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if header:
        writer.writerow(header)
    for row in array[:, np.newaxis] if array.ndim == 1 else array:
        writer.writerow([cell_text(x) for x in row])
    return file.getvalue()


def cell_text(x: Any) -> str:
    return str(int(x)) if x.dtype.kind in "biu" else str(shortest_decimal(x))
