"""Tables that stay in their Parquet or Arrow file: a column is read when it is used, or in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.base.source import Span
from difflang.host.data.arrow_tables import check_column_type, named_columns, read_column
from difflang.host.data.read_errors import report_read_errors
from difflang.host.data.state_dict import StateDictLoader
from difflang.host.data.stored_columns import ColumnInFile
from difflang.host.data.table_columns import Column
from difflang.host.optional_packages import import_optional
from difflang.ir.tensor_types import I32, Tensor, numpy_dtype
from difflang.types.language_types import add_axes


class RowBlocks(Struct, frozen=True, eq=False):
    """The blocks of rows in a file: row groups of a Parquet file, record batches of an Arrow file."""

    types: Mapping[str, Any]  # of the columns, by their names in the file
    titles: Sequence[str]
    lengths: Sequence[int]
    read: Callable[[int, str], Any]  # a column of a block, as an array of Arrow


def parquet_blocks(path: Path, span: Span) -> RowBlocks:
    """Errors: DL0709, and those of pyarrow."""
    parquet: Any = import_optional("pyarrow.parquet", span)
    file, lock = parquet.ParquetFile(path), Lock()

    def read(block: int, title: str) -> Any:
        with lock:
            return file.read_row_group(block, columns=[title]).column(0).combine_chunks()

    lengths = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    schema = file.schema_arrow
    return RowBlocks(dict(zip(schema.names, schema.types, strict=True)), schema.names, lengths, read)


def arrow_blocks(path: Path, span: Span) -> RowBlocks:
    """The same of an Arrow file, also called Feather. Errors: DL0709, and those of pyarrow."""
    arrow: Any = import_optional("pyarrow", span)
    file = arrow.ipc.open_file(arrow.memory_map(str(path)))
    lengths = [file.get_batch(i).num_rows for i in range(file.num_record_batches)]
    schema = file.schema
    types = dict(zip(schema.names, schema.types, strict=True))
    return RowBlocks(types, schema.names, lengths, lambda block, title: file.get_batch(block).column(title))


ROW_BLOCKS = {"parquet": parquet_blocks, "arrow": arrow_blocks}


def open_columns(
    format: str, path: Path, name: str, columns: Sequence[Column], span: Span, declared: Span
) -> dict[str, ColumnInFile]:
    """The declared columns by the paths of their fields. What is read from them later may raise DL0701, DL0703, DL0704.

    Errors: DL0704, DL0706, DL0709, and those of pyarrow.
    """
    arrow: Any = import_optional("pyarrow", span)
    file = ROW_BLOCKS[format](path, span)
    titles = named_columns(file.titles, name, columns, span)
    starts = tuple(accumulate(file.lengths, initial=0))

    def read_block(column: Column, block: int) -> np.ndarray:
        with report_read_errors(name, span):
            stored = read_column(file.read(block, column.name), name, column, span, starts[block])
            loader = StateDictLoader(name, {column.path: stored}, declared, span)
            return loader.array(column.path, add_axes(column.type, stored.shape))  # type: ignore[arg-type]

    for column, title in zip(columns, titles, strict=True):
        check_column_type(arrow, file.types[title], name, column, span)
    return {c.path: ColumnInFile(column_dtype(c), starts, partial(read_block, c)) for c in columns}


def column_dtype(column: Column) -> np.dtype:
    """The element type of a column in memory: texts and variants are numbers."""
    return numpy_dtype(column.type.dtype if isinstance(column.type, Tensor) else I32)
