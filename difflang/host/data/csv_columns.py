"""CSV files whose first row names the columns: columns are read by these names into declared types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from difflang.base.diagnostics import DifflangError
from difflang.base.gc_pause import pause_gc
from difflang.base.source import Span
from difflang.base.wording import count_of
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
    _, titles = next((row for row in rows if any(map(str.strip, row[1]))), (1, []))
    titles = [title.strip() for title in titles]
    if titles and all(map(is_decimal, titles)):
        way = f"read it as numbers, `f64[n, {len(titles)}]`, or write the names of the columns into its first row"
        raise make_error("DL0706", f"the columns of `{name}` have no names", (span, "read here"), help=way)
    places = [column_place(c, titles, name, span) for c in columns]
    lines: list[int] = []
    cells: list[list[str]] = [[] for _ in columns]
    # Millions of small lists, none of them in a cycle.
    with pause_gc():
        # A line of spaces is empty, but in a single column it is a cell.
        filled = (row for row in rows if len(titles) == 1 or len(row[1]) > 1 or row[1][0].strip())
        while chunk := list(islice(filled, ROWS_AT_A_TIME)):
            for line, row in chunk:
                if len(row) != len(titles):
                    raise row_width_error(name, line, row, len(titles), span)
            lines += [line for line, _ in chunk]
            for held, place in zip(cells, places, strict=True):
                held += [row[place] for _, row in chunk]
        return {c.path: read_column(name, c, held, lines, span) for c, held in zip(columns, cells, strict=True)}


def table_rows(columns: Sequence[Column], stored: Mapping[str, np.ndarray], span: Span) -> Iterator[Sequence[str]]:
    """The rows of cells of a table. Errors: DL0711 for a number that is no date."""
    try:
        return zip(*[c.cells(stored[c.path]) for c in columns], strict=True)
    except ValueError as error:
        raise make_error("DL0711", f"a csv file cannot hold this date: {error}", (span, "")) from None


def check_appended(path: Path, name: str, titles: Sequence[str] | None, width: int, span: Span) -> bool:
    """Whether a file has rows already, of this width and, if rows have titles, under these. Errors: DL0701, DL0710."""
    _, first = next(csv_rows(path, name, span), (1, []))
    if titles is not None and first and [title.strip() for title in first] != list(titles):
        labels = (span, f"these rows have {', '.join(titles)}")
        raise make_error("DL0710", f"`{name}` has other columns: {', '.join(first[:12])}", labels)
    if first and len(first) != width:
        shown = f"these rows have {width}"
        raise make_error("DL0710", f"`{name}` has {count_of(len(first), 'column')}", (span, shown))
    return bool(first)


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
