"""Builtins that read data files, `read_csv`, `read_npy`, … and `load`: values validated against a declared type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.base.source import Span
from difflang.elaborate.mesh_axes import Layout, declared_layouts, refuse_undivided
from difflang.host.bindings import HostBindings
from difflang.host.builtins import BuiltinCall, RunningProgram, host_builtin
from difflang.host.data import json_values
from difflang.host.data.array_files import FORMAT_OF_SUFFIX, FORMAT_READERS, UNNAMED, StoredArrays
from difflang.host.data.arrow_tables import read_arrow_columns, read_parquet_columns
from difflang.host.data.csv_columns import read_csv_columns
from difflang.host.data.csv_tables import read_csv
from difflang.host.data.mapped_files import map_array
from difflang.host.data.numpy_files import ArrayInFile
from difflang.host.data.opened_tables import open_columns
from difflang.host.data.read_errors import report_read_errors
from difflang.host.data.state_dict import StateDictLoader, UnstorableValue, leaf_paths
from difflang.host.data.table_columns import TABLE_OPTIONS, Column, declared_columns, is_table
from difflang.host.optional_packages import require_package
from difflang.host.values import HostValue
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver, size_names
from difflang.types.language_types import (
    KeyType,
    LangType,
    RecordType,
    SumType,
    TextType,
    VariantType,
    leaf_types,
    show_type,
)
from difflang.types.module_scope import ModuleScope
from difflang.types.suggested_fixes import add_helps
from difflang.types.type_errors import make_error, undetermined_generic_error

Records = Callable[[str], tree.Record | tree.Enum | None]

ARRAY_READ_BUILTINS = ("read_npy", "read_npz", "read_safetensors", "load")
OPEN_BUILTINS = ("open_npy", "open_parquet", "open_arrow")  # the values stay in their files
READ_BUILTINS = (*ARRAY_READ_BUILTINS, "read_csv", "read_json", "read_parquet", "read_arrow", *OPEN_BUILTINS)
TABLE_READERS = {"csv": read_csv_columns, "parquet": read_parquet_columns, "arrow": read_arrow_columns}
# The packages that formats need.
PACKAGES = {"safetensors": "safetensors", "parquet": "pyarrow", "arrow": "pyarrow"}


START_OR_LOAD = (
    "a `host fn` gives what a file holds, or a value to start with: "
    "`host fn start(k: dim) -> Net[k] = if resume { load(…) } else { … }`"
)


class FileRead(Struct, frozen=True, eq=False):
    """A call in the program that reads a file: its module, its function, and the sizes known there."""

    given: BuiltinCall
    module: ModuleScope
    decl: tree.Fn | None
    known: Mapping[str, Any]


def declared_read_type(host: HostBindings, given: BuiltinCall) -> LangType:
    """The declared type of the value read. Errors: DL0319, DL0704, DL0707."""
    function = given.function.name
    named = function in ("read_npz", "read_safetensors", "load")
    format = BUILTIN_FORMATS[function]
    given.check_arity(1, 2 if named else 1, TABLE_OPTIONS if format in TABLE_READERS else ())
    for place in range(len(given.items)):
        given.text(place)
    if given.expected_type is None:
        way = f"`let x: f32[n, 4] = {given.span.text}`"
        error = make_error("DL0707", "a value read from a file needs a declared type", (given.span, ""), help=way)
        raise add_helps(error, [START_OR_LOAD] if function == "load" else [])
    type = host.type_of(given.expected_type)
    declared = given.expected_type.annotation.span
    name = given.text(0)
    if format is None and name is not None:
        format = FORMAT_OF_SUFFIX.get(Path(name).suffix)
    if format in PACKAGES:
        require_package(host.module, PACKAGES[format], given.span)
    if format in TABLE_READERS and (isinstance(type, RecordType) or format != "csv"):
        check_table(given, type, declared)
        return type
    if given.named:
        raise given.usage_error(given.span, f"options are for arrays of records, but this is {show_type(type)}")
    arrays = function in ("read_csv", "read_npy", "open_npy")
    if arrays and (not isinstance(type, Tensor) or (not type.shape and function == "read_csv")):
        label = "declare its type: `f32[n, 4]`" if isinstance(type, Tensor) else f"not {show_type(type)}"
        raise make_error("DL0704", "only an array can be read from such a file", (declared, label))
    try:
        list(leaf_paths(type))
    except UnstorableValue as error:
        raise make_error("DL0704", f"a file cannot hold this value: {error}", (declared, ""), help=error.way) from None
    return type


def check_table(given: BuiltinCall, type: LangType, span: Span) -> list[Column]:
    """The columns of a table that has this type. Errors: DL0319, DL0704."""
    if not isinstance(type, RecordType) or not is_table(type):
        one = isinstance(type, RecordType) and not type.axes
        way = f"declare `{span.text}[n]`" if one else ""
        label = (span, "this is one record" if one else f"not {show_type(type)}")
        raise make_error("DL0704", "a table is an array of records with one axis", label, help=way)
    return declared_columns(given, type, span)


def make_reader(format: str | None) -> Callable[[RunningProgram, BuiltinCall], HostValue]:
    """A reader for a format, or for the format of the file's suffix."""

    def read(host: RunningProgram, given: BuiltinCall) -> HostValue:
        assert given.expected_type is not None
        type = host.type_of(given.expected_type)
        name, member = given.text(0) or "", given.text(1)
        path = host.access.resolve(name, given.span)
        with report_read_errors(name, given.span):
            holds = read_contents(path, name, format or file_format(name, given), type, given)
            found = ValueReader(given, name, type).value(host, holds, member)
            opened = given.function.name in OPEN_BUILTINS
            whole = partial(map_array, path=path, span=given.span) if opened else ArrayInFile.read
            return read_leaves(host, found, given.expected_type.annotation, whole)

    return read


def file_format(name: str, given: BuiltinCall) -> str:
    """The format of a file by its suffix. Errors: DL0708."""
    suffix = Path(name).suffix
    if suffix not in FORMAT_OF_SUFFIX:
        known = ", ".join(FORMAT_OF_SUFFIX)
        label = f"the suffix is `{suffix}`" if suffix else "it has no suffix"
        raise make_error(
            "DL0708",
            "the suffix of a file name gives its format",
            (given.items[0][1], label),
            help=f"the formats are {known}",
        )
    return FORMAT_OF_SUFFIX[suffix]


def read_contents(path: Path, name: str, format: str, type: LangType, given: BuiltinCall) -> StoredArrays:
    """The contents of a file. Errors: DL0703, DL0704, DL0709, and those that `report_read_errors` converts."""
    if format in TABLE_READERS and (isinstance(type, RecordType) or format != "csv"):
        assert given.expected_type is not None
        declared = given.expected_type.annotation.span
        columns = check_table(given, type, declared)
        if given.function.name in OPEN_BUILTINS:
            return open_columns(format, path, name, columns, given.span, declared)
        return TABLE_READERS[format](path, name, columns, given.span)
    if format == "csv":
        if not isinstance(type, Tensor):
            raise make_error("DL0704", "a csv file is a table", (given.span, f"not {show_type(type)}"))
        return {"": read_csv(path, name, type.dtype, len(type.shape), given.span)}
    return (
        json_values.read_json(path.read_bytes(), type) if format == "json" else FORMAT_READERS[format](path, given.span)
    )


def read_leaves(
    host: RunningProgram, found: HostValue, written: tree.TypeExpr, whole: Callable[[ArrayInFile], np.ndarray]
) -> HostValue:
    """A value with its arrays read: `whole`, or only the parts that a type puts on devices of this process.

    Errors: DL0603, and those that `report_read_errors` converts.
    """
    mesh = dict(host.engine.mesh)

    def read(array: np.ndarray | ArrayInFile, type: Tensor, layout: Layout | None) -> Any:
        if layout is not None and any(name in mesh for along in layout[0] for name in along):
            refuse_undivided(mesh, type, *layout)
            part = array.read_part if isinstance(array, ArrayInFile) else array.__getitem__
            return host.engine.put_parts(layout[0], array.shape, part)
        return whole(array) if isinstance(array, ArrayInFile) else array

    layouts = declared_layouts(host.module, written, found.type)
    leaves = zip(found.leaves or (), leaf_types(found.type), layouts, strict=True)
    return HostValue(found.type, tuple([read(*leaf) for leaf in leaves]))


class ValueReader:
    """Finds one value of a declared type in the contents of a file; its arrays are read later."""

    def __init__(self, given: BuiltinCall, name: str, type: LangType, usage: str = "") -> None:
        assert given.expected_type is not None
        self.usage = usage  # how to name an array of the file, `{}`
        self.given, self.name, self.type, self.expected = given, name, type, given.expected_type

    def value(self, host: RunningProgram, holds: StoredArrays, member: str | None) -> HostValue:
        """Errors: DL0704 to DL0706."""
        names = self.expected.names or host.current_context().annotations
        return self.value_in(names, host.module.records.get, holds, member)

    def value_in(
        self, names: AnnotationResolver, records: Records, holds: StoredArrays, member: str | None
    ) -> HostValue:
        """The same, with explicit bindings of sizes and element types."""
        alone = isinstance(self.type, (Tensor, TextType, KeyType))
        # An archive has names: select one, or take the only one.
        if member is not None or (alone and "" not in holds):
            holds = {"": self.member(holds, member)} if alone else self.select_prefix(holds, member or "")
        # An enum stored alone in an archive has the name for single values.
        elif isinstance(self.type, (SumType, VariantType)) and "" not in holds:
            holds = {"" if n == UNNAMED else n: holds[n] for n in holds}
        spans = self.expected.annotation.span, self.given.span
        found = StateDictLoader(self.name, holds, *spans, root=member or "").value(self.type, records)
        if not names.match(self.expected.annotation, found.type):
            raise make_error(
                "DL0705",
                f"`{self.name}` does not have the declared shape",
                (self.given.span, f"the file contains {show_type(found.type)}"),
                (self.expected.annotation.span, f"declared {self.expected.annotation.span.text}"),
            )
        for size in size_names(self.expected.annotation, names):
            if size not in names.bound:
                raise undetermined_generic_error(size, self.given.span, self.expected.annotation.span)
        return found

    def member(self, holds: StoredArrays, member: str | None) -> Any:
        """An array of an archive: the one with this name, or the only one."""
        names = list(holds)
        if member is None and (len(names) == 1 or UNNAMED in names):
            member = UNNAMED if UNNAMED in names else names[0]
        if member is None or member not in holds:
            call = self.usage or f'{self.given.function.name}("{self.name}", "{{}}")'
            raise make_error(
                "DL0706",
                f"`{self.name}` has no array `{member}`" if member else f"`{self.name}` contains several arrays",
                (self.given.span, ""),
                help=f"it has {', '.join(names)}: write `{call.replace('{}', names[0])}`" if names else "",
            )
        return holds[member]

    def select_prefix(self, holds: StoredArrays, prefix: str) -> StoredArrays:
        """The parts of a record or an enum stored under a name in an archive."""
        found = {n.removeprefix(f"{prefix}."): x for n, x in holds.items() if n.startswith(f"{prefix}.")}
        if isinstance(self.type, (SumType, VariantType)) and prefix in holds:
            found[""] = holds[prefix]
        return found or holds


BUILTIN_FORMATS = {name: None if name == "load" else name.partition("_")[2] for name in READ_BUILTINS}
for _name, _format in BUILTIN_FORMATS.items():
    host_builtin(_name, f'`{_name}("file")`', declared_read_type)(make_reader(_format))
