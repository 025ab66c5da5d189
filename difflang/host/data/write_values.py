"""Builtins that write data files, `write_csv`, `write_npy`, … and `save`, each file atomically."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from difflang.base.source import Span
from difflang.base.source_files import write_atomically
from difflang.host.bindings import HostBindings
from difflang.host.builtins import UNIT_VALUE, BuiltinCall, RunningProgram, host_builtin
from difflang.host.data import json_values
from difflang.host.data.array_files import FORMAT_OF_SUFFIX, FORMAT_WRITERS, StoredArrays
from difflang.host.data.arrow_tables import arrow_bytes, refuse_arrow_types
from difflang.host.data.csv_columns import check_appended, table_rows
from difflang.host.data.csv_tables import csv_text, matrix_rows
from difflang.host.data.file_access import append_data, change_output, write_output
from difflang.host.data.read_values import PACKAGES, file_format
from difflang.host.data.state_dict import UnstorableValue, leaf_paths, resolve_variants, to_state_dict
from difflang.host.data.table_columns import TABLE_OPTIONS, declared_columns, is_table
from difflang.host.optional_packages import require_package
from difflang.host.values import HostValue
from difflang.ir.tensor_types import Tensor
from difflang.types.language_types import UNIT, LangType, RecordType, SumType, TextType, array_axes, show_type
from difflang.types.type_errors import make_error

# Archives of named arrays: `write_npz("a.npz", x = x, y = y)`.
NAMED = ("npz", "safetensors")
TABLE_FORMATS = ("csv", "parquet", "arrow")
OPTIONS = {"csv": (*TABLE_OPTIONS, "append"), "parquet": TABLE_OPTIONS, "arrow": TABLE_OPTIONS}


def write_check(format: str | None) -> Callable[[HostBindings, BuiltinCall], LangType]:
    """Check that values can be written in a format, or in that of the suffix. Errors: DL0319, DL0708, DL0711."""

    def check(host: HostBindings, given: BuiltinCall) -> LangType:
        options = tuple(given.named) if format in NAMED else OPTIONS.get(format or "", ())
        given.check_arity(1 if format in NAMED else 2, 2, options)
        name = given.text(0)
        used = format or (file_format(name, given) if name is not None else None)
        if used in PACKAGES:
            require_package(host.module, PACKAGES[used], given.span)
        values = list(given.named.values()) if format in NAMED else []
        # Either one value by position, or several by name.
        if (len(given.items) == 2) == bool(values):
            raise given.usage_error()
        for value, span in [*given.items[1:], *values]:
            check_storable(given, value.type, used, span)
        if name is not None and format is not None and FORMAT_OF_SUFFIX.get(Path(name).suffix) != format:
            way = f"the name must end with `.{format}`"
            raise make_error("DL0708", "the suffix of a file name gives its format", (given.items[0][1], ""), help=way)
        return UNIT

    return check


def check_storable(given: BuiltinCall, type: LangType, format: str | None, span: Span) -> None:
    """Check that a format can hold values of a type. Errors: DL0319, DL0704, DL0711."""
    if format in TABLE_FORMATS and isinstance(type, RecordType) and is_table(type):
        columns = declared_columns(given, type, span)
        if format != "csv":
            refuse_arrow_types(columns, span)
        given.flag("append")
        return
    if format in ("parquet", "arrow"):
        raise make_error("DL0711", f"{format} holds an array of records", (span, f"this is {show_type(type)}"))
    try:
        kinds = [leaf for _, leaf in leaf_paths(type)]
    except UnstorableValue as error:
        raise make_error("DL0711", f"a file cannot hold this value: {error}", (span, ""), help=error.way) from None
    if format == "npy" and not isinstance(type, Tensor):
        raise make_error("DL0711", "npy holds one array of numbers", (span, f"this is {show_type(type)}"))
    if format == "csv" and not is_csv_table(type):
        message = "csv holds real numbers with one or two axes, or an array of records"
        raise make_error("DL0711", message, (span, f"this is {show_type(type)}"))
    if format == "csv" and (wrong := [n for n in given.named if n in ("dates", "missing")]):
        raise given.usage_error(given.named[wrong[0]][1], f"`{wrong[0]}` names columns of an array of records")
    if format == "csv":
        given.flag("append")
    if format == "safetensors" and any(isinstance(leaf, (TextType, SumType)) and array_axes(leaf) for leaf in kinds):
        message = "safetensors cannot hold an array of texts or enums"
        raise make_error("DL0711", message, (span, f"this is {show_type(type)}"), help="save it as npz or json")


def is_csv_table(type: LangType) -> bool:
    return isinstance(type, Tensor) and len(type.shape) in (1, 2) and type.dtype.kind != "complex"


def make_writer(format: str | None) -> Callable[[RunningProgram, BuiltinCall], HostValue]:
    """A writer for a format, or for the format of the file's suffix."""

    def write_file(host: RunningProgram, given: BuiltinCall) -> HostValue:
        name = given.text(0) or ""
        used = format or file_format(name, given)
        if used == "csv":
            write_csv(host, name, given)
        else:
            write_output(host.access, host.engine.group, encode_value(used, given), name, given.span)
        return UNIT_VALUE

    return write_file


def write_csv(host: RunningProgram, name: str, given: BuiltinCall) -> None:
    """Write a matrix or a table, or append its rows. Errors: DL0319, DL0710, DL0711."""
    value, span = given.items[1]
    stored = to_state_dict(value)
    if isinstance(value.type, RecordType):
        columns = declared_columns(given, value.type, span)
        titles, width = tuple([c.name for c in columns]), len(columns)
        rows = table_rows(columns, stored, given.span)
    else:
        titles, width = csv_header(given, value) if "header" in given.named else None, column_count(value)
        rows = matrix_rows(stored[""])
    head, body = csv_text([titles] if titles is not None else []), csv_text(rows)

    def change(path: Path) -> None:
        if given.flag("append") and path.exists() and check_appended(path, name, titles, width, given.span):
            append_data(path, body.encode())
        else:
            write_atomically(path, (head + body).encode())

    change_output(host.access, host.engine.group, change, name, given.span)


def encode_value(format: str, given: BuiltinCall) -> bytes:
    """The bytes of a file. Errors: DL0709."""
    if format == "json":
        value, _ = given.items[1]
        return json_values.json_text(resolve_variants(value).type, to_state_dict(value)).encode()
    if format in ("parquet", "arrow"):
        value, span = given.items[1]
        assert isinstance(value.type, RecordType)
        return arrow_bytes(format, declared_columns(given, value.type, span), to_state_dict(value), given.span)
    return FORMAT_WRITERS[format](stored_parts(given), given.span)


def stored_parts(given: BuiltinCall) -> StoredArrays:
    """The parts to write: of one value, or of several under their names."""
    if len(given.items) == 2:
        return to_state_dict(given.items[1][0])
    return {path: x for name, (value, _) in given.named.items() for path, x in to_state_dict(value, name).items()}


def csv_header(given: BuiltinCall, value: HostValue) -> tuple[str, ...]:
    """The column titles of a matrix. Errors: DL0319."""
    texts = tuple([text or "" for text in given.texts("header") or ()])
    if len(texts) != (columns := column_count(value)):
        way = f"write one text for each of {columns} columns" if columns != 1 else "write one text"
        raise given.usage_error(given.named["header"][1], way)
    return texts


def column_count(value: HostValue) -> int:
    shape = value.array.shape
    return shape[1] if len(shape) == 2 else 1


def usage_text(name: str, format: str | None) -> str:
    more = f', or `{name}("file.{format}", x = x, y = y)`' if format in NAMED else ""
    return f'`{name}("file.{format or "npz"}", value)`{more}'


for _name, _format in [("save", None), *[(f"write_{f}", f) for f in (*FORMAT_WRITERS, *TABLE_FORMATS, "json")]]:
    host_builtin(_name, usage_text(_name, _format), write_check(_format))(make_writer(_format))
