"""CSV files whose first row names the columns: columns are read by these names into declared types."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from difflang.base.diagnostics import DifflangError
from difflang.base.gc_pause import pause_gc
from difflang.base.source import Span
from difflang.host.data.cell_values import InvalidCell
from difflang.host.data.csv_tables import csv_rows, row_width_error, separator_hint
from difflang.host.data.table_columns import Column, column_place
from difflang.numerics.decimal_numbers import is_decimal
from difflang.types.language_types import show_type
from difflang.types.type_errors import make_error

ROWS_AT_A_TIME = 4096


def read_csv_columns(path: Path, name: str, columns: Sequence[Column], span: Span) -> dict[str, np.ndarray]:
    """The declared columns by the paths of their fields; others are skipped. Errors: DL0701, DL0703, DL0706."""
    rows = csv_rows(path, name, span)
    _, titles = next(rows, (1, []))
    titles = [title.strip() for title in titles]
    if titles and all(map(is_decimal, titles)):
        way = f"read it as numbers, `f64[n, {len(titles)}]`, or write the names of the columns into its first row"
        raise make_error("DL0706", f"the columns of `{name}` have no names", (span, "read here"), help=way)
    places = [column_place(c, titles, name, span) for c in columns]
    lines: list[int] = []
    cells: list[list[str]] = [[] for _ in columns]
    # Millions of small lists, none of them in a cycle.
    with pause_gc():
        while chunk := list(islice(rows, ROWS_AT_A_TIME)):
            for line, row in chunk:
                if len(row) != len(titles):
                    raise row_width_error(name, line, row, len(titles), span)
            lines += [line for line, _ in chunk]
            for held, place in zip(cells, places, strict=True):
                held += [row[place] for _, row in chunk]
        return {c.path: read_column(name, c, held, lines, span) for c, held in zip(columns, cells, strict=True)}


def read_column(name: str, column: Column, cells: list[str], lines: list[int], span: Span) -> np.ndarray:
    try:
        return column.values(cells)
    except InvalidCell as error:
        raise cell_error(name, column, cells[error.place], lines[error.place], error.reason, span) from None


def cell_error(name: str, column: Column, cell: str, line: int, reason: str, span: Span) -> DifflangError:
    way = separator_hint(cell)
    if not cell.strip():
        way = f'if cells of this column may be empty, write `missing = "{column.path}"`'
    return make_error(
        "DL0703",
        f"{name}:{line}: column `{column.name}`: {reason}",
        (span, "read here"),
        (column.span, f"declared {show_type(column.type)}"),
        help=way,
    )
