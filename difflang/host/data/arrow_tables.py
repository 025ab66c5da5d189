"""Parquet and Arrow files, by pyarrow: columns are read and written by their names, in their declared types.

`opened_tables` has tables that stay in their file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.host.data.array_files import CodedTexts
from difflang.host.data.table_columns import DATE_DTYPES, Column, column_place
from difflang.host.optional_packages import import_optional
from difflang.ir.tensor_types import BF16, Tensor, numpy_dtype
from difflang.types.language_types import show_type
from difflang.types.type_errors import make_error

Stored = np.ndarray | CodedTexts


def read_parquet_columns(path: Path, name: str, columns: Sequence[Column], span: Span) -> dict[str, Stored]:
    """The declared columns by the paths of their fields. Errors: DL0703, DL0704, DL0706, DL0709."""
    parquet: Any = import_optional("pyarrow.parquet", span)
    with parquet.ParquetFile(path) as file:
        names = named_columns(file.schema_arrow.names, name, columns, span)
        return read_columns(file.read(columns=names), name, columns, span)


def read_arrow_columns(path: Path, name: str, columns: Sequence[Column], span: Span) -> dict[str, Stored]:
    """The same of an Arrow file, also called Feather. Errors: DL0703, DL0704, DL0706, DL0709."""
    arrow: Any = import_optional("pyarrow", span)
    with arrow.memory_map(str(path)) as file:
        table = arrow.ipc.open_file(file).read_all()
        return read_columns(table.select(named_columns(table.column_names, name, columns, span)), name, columns, span)


def named_columns(titles: Sequence[str], name: str, columns: Sequence[Column], span: Span) -> list[str]:
    """The names of the declared columns, all of which are there. Errors: DL0706."""
    return [titles[column_place(column, titles, name, span)] for column in columns]


def read_columns(table: Any, name: str, columns: Sequence[Column], span: Span) -> dict[str, Stored]:
    return {c.path: read_column(table.column(c.name).combine_chunks(), name, c, span) for c in columns}


def read_column(array: Any, name: str, column: Column, span: Span, first: int = 0) -> Stored:
    """The values of a column from row `first` on, which must have its declared type. Errors: DL0703, DL0704."""
    arrow: Any = import_optional("pyarrow", span)
    if array.null_count and not column.may_miss:
        row = first + int(np.argmax(array.is_null().to_numpy(zero_copy_only=False))) + 1
        message = f"{name}: row {row}: column `{column.name}`: there is no value"
        way = f'if values of this column may be missing, write `missing = "{column.path}"`'
        raise make_error("DL0703", message, (span, "read here"), (column.span, "declared here"), help=way)
    check_column_type(arrow, array.type, name, column, span)
    if not isinstance(column.type, Tensor):
        # Each distinct text becomes a Python object once.
        coded = array if arrow.types.is_dictionary(array.type) else array.dictionary_encode()
        texts: list[str] = [*coded.dictionary.to_pylist(), ""]
        return CodedTexts(texts, coded.indices.fill_null(len(texts) - 1).to_numpy())
    if arrow.types.is_date32(array.type):
        array = array.cast(arrow.int32())
    return array.to_numpy(zero_copy_only=False).astype(numpy_dtype(column.type.dtype))


def check_column_type(arrow: Any, stored: Any, name: str, column: Column, span: Span) -> None:
    """Errors: DL0704 if a column is declared with another type than it has in the file."""
    kind = stored.value_type if arrow.types.is_dictionary(stored) else stored
    if not isinstance(column.type, Tensor):
        fits = is_text(arrow, kind)
    elif arrow.types.is_date32(kind):
        fits = column.type.dtype in DATE_DTYPES
    else:
        fits = not column.is_date and kind == arrow_type(arrow, column)
    if not fits:
        raise column_type_error(stored, name, column, span)


def is_text(arrow: Any, kind: Any) -> bool:
    return any(test(kind) for test in (arrow.types.is_string, arrow.types.is_large_string, arrow.types.is_string_view))


def arrow_type(arrow: Any, column: Column) -> Any:
    """The type of a column in Arrow; None if it has none."""
    if not isinstance(column.type, Tensor):
        return arrow.string()
    dtype = column.type.dtype
    return None if dtype is BF16 else arrow.from_numpy_dtype(numpy_dtype(dtype))


def column_type_error(stored: Any, name: str, column: Column, span: Span) -> DifflangError:
    message = f"`{name}` contains {stored} for `{column.name}`, not {show_type(column.type)}"
    way = "declare the type that the file contains, and convert afterwards"
    return make_error(
        "DL0704", message, (span, "read here"), (column.span, f"declared {show_type(column.type)}"), help=way
    )


# ---- Writing


def refuse_arrow_types(columns: Sequence[Column], span: Span) -> None:
    """Errors: DL0711 for a column whose type Arrow does not have."""
    for column in columns:
        if isinstance(column.type, Tensor) and column.type.dtype is BF16:
            message = f"Arrow has no {column.type.dtype}"
            raise make_error("DL0711", message, (span, f"`{column.path}` is {show_type(column.type)}"))


def arrow_bytes(format: str, columns: Sequence[Column], stored: Mapping[str, np.ndarray], span: Span) -> bytes:
    """A table as the bytes of a Parquet or an Arrow file. Errors: DL0709."""
    arrow: Any = import_optional("pyarrow", span)
    table = arrow.table({c.name: arrow_column(arrow, c, stored[c.path]) for c in columns})
    sink = arrow.BufferOutputStream()
    if format == "parquet":
        parquet: Any = import_optional("pyarrow.parquet", span)
        parquet.write_table(table, sink)
    else:
        with arrow.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue().to_pybytes()


def arrow_column(arrow: Any, column: Column, values: np.ndarray) -> Any:
    """The values of a column; NaN and empty texts of one with missing values are no values."""
    if not isinstance(column.type, Tensor):
        texts: list[str] = values.tolist()
        return arrow.array([text or None for text in texts] if column.may_miss else texts, arrow.string())
    found = arrow.array(values, from_pandas=column.may_miss)
    return found.cast(arrow.int32()).cast(arrow.date32()) if column.is_date else found
