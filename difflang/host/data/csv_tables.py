"""CSV tables of numbers: read into a declared element type, and written. `csv_columns` reads columns by their names."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.host.data.cell_values import InvalidCell, parse_numbers
from difflang.host.data.shortest_decimal import shortest_decimal
from difflang.ir.tensor_types import DType
from difflang.numerics.decimal_numbers import is_decimal
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
    rows = [(line, row) for line, row in csv_rows(path, name, span) if any(map(str.strip, row))]
    width = len(rows[0][1]) if rows else 0
    # A header has no numbers; a row with one is data, and its other cells are errors.
    if rows and not any(is_decimal(cell) for cell in rows[0][1]):
        rows = rows[1:]
        width = len(rows[0][1]) if rows else width
    for line, row in rows:
        if len(row) != width:
            raise row_width_error(name, line, row, width, span)
    cells = [cell for _, row in rows for cell in row]
    try:
        table = parse_numbers(cells, dtype).reshape(len(rows), width)
    except InvalidCell as error:
        line, column = rows[error.place // width][0], error.place % width
        message = f"{name}:{line}: column {column + 1}: {error.reason}"
        label = f"declared with items of {dtype}"
        raise make_error("DL0703", message, (span, label), help=separator_hint(cells[error.place])) from None
    return drop_column_axis(table, rank, name, span)


def csv_rows(path: Path, name: str, span: Span) -> Iterator[tuple[int, list[str]]]:
    """The rows of a file, each with the number of its line; empty lines are skipped. Errors: DL0701."""
    line = 1
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            # Strict: else a quote without an end takes the rest of the file for one cell.
            reader = csv.reader(file, strict=True)
            for row in reader:
                if row:
                    yield line, row
                line = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise make_error("DL0701", f"cannot read `{name}`: this is not a csv file", (span, str(error))) from None
    except csv.Error as error:
        why = "a quote is not closed" if "end of data" in str(error) else str(error)
        label = (span, f"line {line}: {why}")
        raise make_error("DL0701", f"cannot read `{name}`: this is not a csv file", label) from None


def row_width_error(name: str, line: int, row: list[str], width: int, span: Span) -> DifflangError:
    message = f"{name}:{line}: this row has {count_of(len(row), 'column')}, but the others have {width}"
    return make_error("DL0703", message, (span, "read here"), help=separator_hint(",".join(row)))


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


def csv_text(rows: Iterable[Sequence[str]]) -> str:
    """Rows of cells as the text of a file."""
    file = io.StringIO()
    writer, quoting = [csv.writer(file, lineterminator="\n", quoting=q) for q in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)]
    for row in rows:
        # Python 3.12 and older put no quotes around a carriage return, which ends a line for readers.
        (quoting if any("\r" in cell for cell in row) else writer).writerow(row)
    return file.getvalue()


def matrix_rows(array: np.ndarray) -> Iterator[list[str]]:
    """A vector as a column, a matrix as rows; the numbers read back exactly."""
    for row in array[:, np.newaxis] if array.ndim == 1 else array:
        yield [cell_text(x) for x in row]


def cell_text(x: Any) -> str:
    """A number as a cell."""
    return str(int(x)) if x.dtype.kind in "biu" else str(shortest_decimal(x))
