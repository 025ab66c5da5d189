"""The columns of a table: an array of records is read and written column by column, by the names of its fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.fixes import did_you_mean
from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.host.builtins import BuiltinCall
from difflang.host.data.cell_values import (
    EMPTY,
    InvalidCell,
    iso_date,
    parse_bools,
    parse_dates,
    parse_numbers,
    quoted_cell,
)
from difflang.host.data.csv_tables import cell_text, separator_hint
from difflang.host.data.state_dict import StoredLeaf, UnstorableValue, leaf_paths
from difflang.ir.tensor_types import F32, F64, I32, I64, Tensor, numpy_dtype
from difflang.types.language_types import LangType, RecordType, SumType, TextType, array_axes, drop_axes, show_type
from difflang.types.type_errors import make_error

TABLE_OPTIONS = ("header", "dates", "missing")
# What stands for no number, beside an empty cell: R writes it.
NO_NUMBER = ("", "NA")
DATE_DTYPES = (I32, I64, F32, F64)


class Column(Struct, frozen=True):
    """A column: the path of its field, its name in the file, the type of an item, and where the field is declared."""

    path: str
    name: str
    type: StoredLeaf
    span: Span
    is_date: bool = False
    may_miss: bool = False

    def values(self, cells: Sequence[str]) -> np.ndarray:
        """The cells as values of the declared type; a missing number is NaN. Errors: InvalidCell."""
        if not isinstance(self.type, Tensor):
            return self.texts(cells)
        if not self.may_miss:
            return self.numbers(cells, self.type)
        places = [i for i, cell in enumerate(cells) if cell.strip() not in NO_NUMBER]
        found = np.full(len(cells), np.nan, numpy_dtype(self.type.dtype))
        try:
            found[places] = self.numbers([cells[i] for i in places], self.type)
        except InvalidCell as error:
            raise InvalidCell(places[error.place], error.reason) from None
        return found

    def numbers(self, cells: Sequence[str], type: Tensor) -> np.ndarray:
        if self.is_date:
            return parse_dates(cells).astype(numpy_dtype(type.dtype))
        return parse_bools(cells) if type.dtype.kind == "bool" else parse_numbers(cells, type.dtype)

    def cells(self, values: np.ndarray) -> list[str]:
        """The values as cells, which read back as the same values. Errors: ValueError for a day that is no date."""
        if not isinstance(self.type, Tensor):
            return values.tolist()
        if self.type.dtype.kind == "bool":
            return ["true" if value else "false" for value in values.tolist()]
        write = date_cells if self.is_date else number_cells
        if not self.may_miss:
            return write(values)
        missing = np.isnan(values)
        found = write(np.where(missing, 0, values))
        return ["" if miss else cell for miss, cell in zip(missing.tolist(), found, strict=True)]

    def texts(self, cells: Sequence[str]) -> np.ndarray:
        """Texts, or names of variants."""
        variants = [v.name for v in self.type.variants] if isinstance(self.type, SumType) else None
        for place, cell in enumerate(cells):
            if not cell and not self.may_miss:
                raise InvalidCell(place, EMPTY)
            if variants is not None and cell not in variants:
                raise InvalidCell(
                    place, f"{quoted_cell(cell)} is no variant of {show_type(self.type)}: {', '.join(variants)}"
                )
        return np.array(cells, object)


def date_cells(days: np.ndarray) -> list[str]:
    """Days since 1970-01-01 as dates. Errors: ValueError for a number that is no day of the years 1 to 9999."""
    numbers: list[Any] = days.tolist()
    cells = {day: iso_date(whole_day(day)) for day in set(numbers)}
    return [cells[day] for day in numbers]


def whole_day(value: float) -> int:
    """Errors: ValueError for a number that is not whole."""
    if not np.isfinite(value) or value != int(value):
        raise ValueError(f"{value} is not a whole number of days since 1970-01-01")
    return int(value)


def number_cells(values: np.ndarray) -> list[str]:
    """Numbers as cells that read back exactly."""
    # Python writes an f64 with the shortest digits too, and many at a time.
    exact = values.dtype.kind in "iu" or values.dtype == np.float64
    return list(map(repr, values.tolist())) if exact else list(map(cell_text, values))


def is_table(type: LangType) -> bool:
    """Whether it is the type of an array of records with one axis."""
    return isinstance(type, RecordType) and len(type.axes) == 1 and not type.tangent


def table_columns(type: RecordType, span: Span) -> list[Column]:
    """The columns of an array of records. Errors: DL0704 at `span` for a field that is no column."""
    fields = {field.name: field.span for field in type.decl.fields}
    try:
        leaves = [(path, drop_axes(leaf, len(type.axes))) for path, leaf in leaf_paths(type)]
    except UnstorableValue as error:
        raise make_error("DL0704", f"a table cannot hold this value: {error}", (span, ""), help=error.way) from None
    columns: list[Column] = []
    for path, leaf in leaves:
        place = fields[path.partition(".")[0]]
        is_complex = isinstance(leaf, Tensor) and leaf.dtype.is_complex
        if is_complex or not isinstance(leaf, (TextType, Tensor, SumType)) or array_axes(leaf):
            message = "a column has one real number, text or variant in each row"
            raise make_error("DL0704", message, (place, f"`{path}` is {show_type(leaf)}"), (span, "a table"))
        columns.append(Column(path, path, leaf, place))
    return columns


def declared_columns(given: BuiltinCall, type: RecordType, span: Span) -> list[Column]:
    """The columns that a call names. Errors: DL0319, DL0704."""
    columns = table_columns(type, span)
    if (header := given.texts("header")) is not None:
        if len(header) != len(columns):
            way = f"write one text for each of {count_of(len(columns), 'column')}"
            raise given.usage_error(given.named["header"][1], way)
        columns = [replace(c, name=c.path if name is None else name) for c, name in zip(columns, header, strict=True)]
    dates = chosen_columns(given, "dates", columns)
    missing = chosen_columns(given, "missing", columns)
    columns = [replace(c, is_date=c.path in dates, may_miss=c.path in missing) for c in columns]
    for column in columns:
        check_options(given, column)
    return columns


def check_options(given: BuiltinCall, column: Column) -> None:
    """Errors: DL0319 for a type that holds no date, or no missing value."""
    shown = f"`{column.path}` is {show_type(column.type)}"
    dtype = column.type.dtype if isinstance(column.type, Tensor) else None
    if column.is_date and dtype not in DATE_DTYPES:
        raise make_error(
            "DL0319",
            f"a date is a number of days since 1970-01-01, but {shown}",
            (given.named["dates"][1], ""),
            (column.span, "declared here"),
            help=f"declare `{column.path}: i32`",
        )
    empty = "the empty text" if dtype is None else "NaN"
    if column.may_miss and not isinstance(column.type, TextType) and not (dtype is not None and dtype.is_float):
        raise make_error(
            "DL0319",
            f"{shown}, which has no value for a missing cell",
            (given.named["missing"][1], ""),
            (column.span, "declared here"),
            help=f"declare `{column.path}: {'str' if dtype is None else 'f64'}`: a missing cell is then {empty}",
        )


def chosen_columns(given: BuiltinCall, option: str, columns: Sequence[Column]) -> list[str]:
    """The fields that an option names. Errors: DL0319 for an unknown one."""
    names = [name for name in given.texts(option) or () if name is not None]
    known = [c.path for c in columns]
    for name in names:
        if name not in known:
            span = given.named[option][1]
            way, fixes = did_you_mean(name, known, span)
            message = f"`{option}` names `{name}`, which is no field"
            raise make_error("DL0319", message, (span, ""), help=way or f"it has {', '.join(known)}", fixes=fixes)
    return names


def column_place(column: Column, titles: Sequence[str], file: str, span: Span) -> int:
    """The place of a column among the titles of a file. Errors: DL0706."""
    count = titles.count(column.name)
    if count != 1:
        raise missing_column_error(column, titles, file, span, twice=count > 1)
    return titles.index(column.name)


def missing_column_error(
    column: Column, titles: Sequence[str], file: str, span: Span, *, twice: bool = False
) -> DifflangError:
    what = f"several columns `{column.name}`" if twice else f"no column `{column.name}`"
    near = "" if twice else did_you_mean(column.name, titles, span)[0]
    way = f"it has {', '.join(titles[:12]) or 'none'}{', …' if len(titles) > 12 else ''}"
    helps = separator_hint(titles[0]) if len(titles) == 1 else ""
    helps = helps or (f"{near} {way}" if near else way)
    return make_error("DL0706", f"`{file}` has {what}", (span, "read here"), (column.span, "declared here"), help=helps)
