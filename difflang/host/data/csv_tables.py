"""CSV tables of numbers: read into a declared element type, and written."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from difflang.base.diagnostics import DifflangError, printable
from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.host.data.shortest_decimal import shortest_decimal
from difflang.ir.tensor_types import DType, numpy_dtype
from difflang.numerics.decimal_numbers import is_decimal, nearest_floats, overflowed, real_part_dtype
from difflang.types.type_errors import make_error


def read_csv(path: Path, name: str, dtype: DType, rank: int, span: Span) -> np.ndarray:
    """A table of numbers; a first row without numbers is a header. Errors: DL0701, DL0703 to DL0705."""
    if rank not in (1, 2):
        raise make_error(
            "DL0704",
            "a csv file is a table",
            (span, f"declared with {count_of(rank, 'axis', 'axes')}"),
            help="declare `f32[n, k]`, or `f32[n]` for one column",
        )
    rows = read_rows(path, name, span)
    width = len(rows[0][1]) if rows else 0
    # A header has no numbers; a row with one is data, and its other cells are errors.
    if rows and not any(is_decimal(cell) for cell in rows[0][1]):
        rows = rows[1:]
        width = len(rows[0][1]) if rows else width
    for line, row in rows:
        if len(row) != width:
            raise make_error(
                "DL0703",
                f"{name}:{line}: this row has {count_of(len(row), 'column')}, but the others have {width}",
                (span, "read here"),
                help=separator_hint(",".join(row)),
            )
    if not all(is_decimal(cell) for _, row in rows for cell in row):
        raise bad_cell_error(name, rows, span)
    table = np.array([row for _, row in rows], dtype=np.float64).reshape(len(rows), width)
    return convert_table(name, rows, drop_column_axis(table, rank, name, span), dtype, span)


def read_rows(path: Path, name: str, span: Span) -> list[tuple[int, list[str]]]:
    """The rows that are not empty, each with the number of its line. Errors: DL0701."""
    rows: list[tuple[int, list[str]]] = []
    start = 1
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            # Strict: else a quote without an end takes the rest of the file for one cell.
            reader = csv.reader(file, strict=True)
            for row in reader:
                if any(cell.strip() for cell in row):
                    rows.append((start, row))
                start = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise make_error("DL0701", f"cannot read `{name}`: this is not a csv file", (span, str(error))) from None
    except csv.Error as error:
        why = "a quote is not closed" if "end of data" in str(error) else str(error)
        raise make_error(
            "DL0701", f"cannot read `{name}`: this is not a csv file", (span, f"line {start}: {why}")
        ) from None
    return rows


def bad_cell_error(name: str, rows: list[tuple[int, list[str]]], span: Span) -> DifflangError:
    for line, row in rows:
        for place, cell in enumerate(row, 1):
            if not is_decimal(cell):
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
            f"{name} has {count_of(table.shape[1], 'column')}",
            (span, "declared with one axis"),
            help=f"declare `f32[n, {table.shape[1]}]`",
        )
    return table.reshape(-1)


def convert_table(
    name: str, rows: list[tuple[int, list[str]]], table: np.ndarray, dtype: DType, span: Span
) -> np.ndarray:
    """The table in its declared element type; integers must be written as such."""
    target = numpy_dtype(dtype)
    if not dtype.is_integer and dtype.kind != "bool":
        return convert_floats(name, rows, table, dtype, span)
    # The table was parsed as f64, which is exact for integers up to 2**53 only.
    if dtype.is_integer and dtype.bits == 64 and (np.abs(table) >= 2.0**53).any():
        return read_wide_integers(name, rows, table.shape, dtype, span)
    if dtype.is_integer:
        # Compare as floats before the conversion, which would wrap.
        info = np.iinfo(target)
        bad = (table != np.floor(table)) | (table < float(info.min)) | (table > float(info.max)) | ~np.isfinite(table)
    else:
        bad = (table != 0) & (table != 1)
    if bad.any():
        raise invalid_cell_error(name, rows, int(np.flatnonzero(bad)[0]), dtype, span)
    return table.astype(target)


def convert_floats(
    name: str, rows: list[tuple[int, list[str]]], table: np.ndarray, dtype: DType, span: Span
) -> np.ndarray:
    """The same for a float type: each cell is rounded once, and a finite one is finite."""
    texts = [cell for _, row in rows for cell in row]
    found = nearest_floats(texts, table.reshape(-1), real_part_dtype(dtype))
    if (k := overflowed(texts, found)) is not None:
        raise invalid_cell_error(name, rows, k, dtype, span)
    return found.reshape(table.shape).astype(numpy_dtype(dtype))


def invalid_cell_error(
    name: str, rows: list[tuple[int, list[str]]], place: int, dtype: DType, span: Span
) -> DifflangError:
    """The error for a cell, counted through all rows: DL0703."""
    (line, row), column = rows[place // len(rows[0][1])], place % len(rows[0][1])
    message = f"{name}:{line}: column {column + 1}: `{printable(row[column].strip())[:40]}` is not a valid {dtype}"
    return make_error("DL0703", message, (span, f"declared with items of {dtype}"))


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
