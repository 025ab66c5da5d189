"""`write_csv`, `write_npy`, … and `save`: values to files, each written as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from difflang.host.builtins import UNIT_VALUE, Given, hosted
from difflang.host.data import json_values
from difflang.host.data.array_files import SUFFIXES, WRITTEN, Stored
from difflang.host.data.csv_tables import csv_text
from difflang.host.data.file_access import write
from difflang.host.data.read_values import format_of
from difflang.host.data.state_dict import NotHeld, known, parts, stored
from difflang.host.optional_packages import needs
from difflang.host.values import HostValue
from difflang.ir.tensor_types import Tensor
from difflang.types.language_types import UNIT, LangType, TextType, TupleType, show_type
from difflang.types.type_errors import mistake

if TYPE_CHECKING:
    from difflang.host.bindings import Bindings
    from difflang.host.run_statements import Runner

NAMED = ("npz", "safetensors")  # archives of arrays with names: `write_npz("a.npz", x = x, y = y)`


def checks(format: str | None) -> Callable[[Bindings, Given], LangType]:
    """What can be written in a format, or in that which the suffix of the file says. Errors: DL0319, DL0708, DL0711."""

    def check(host: Bindings, given: Given) -> LangType:
        options = tuple(given.named) if format in NAMED else ("header",) if format == "csv" else ()
        given.takes(1, 2, options)
        name = given.text(0)
        used = format or (format_of(name, given) if name is not None else None)
        if used == "safetensors":
            needs(host.module, "safetensors", given.span)
        values = list(given.named.values()) if format in NAMED else []
        if (len(given.items) == 2) == bool(values):
            raise given.misused()
        for value, span in [*given.items[1:], *values]:
            try:
                kinds = [leaf for _, leaf in parts(value.type)]
            except NotHeld as error:
                raise mistake("DL0711", f"a file cannot hold this: {error}", (span, ""), help=error.way) from None
            if used in ("csv", "npy") and (not isinstance(value.type, Tensor) or len(kinds) != 1):
                raise mistake("DL0711", f"{used} holds one array", (span, f"this is {show_type(value.type)}"))
            if used == "csv" and not table(value.type):
                message = "csv holds real numbers with one axis or two"
                raise mistake("DL0711", message, (span, f"this is {show_type(value.type)}"))
        if name is not None and format is not None and SUFFIXES.get(Path(name).suffix) != format:
            way = f"end it with `.{format}`"
            raise mistake("DL0708", "the name of a file ends with its format", (given.items[0][1], ""), help=way)
        return UNIT

    return check


def table(type: LangType) -> bool:
    return isinstance(type, Tensor) and len(type.shape) in (1, 2) and type.dtype.kind != "complex"


def writer(format: str | None) -> Callable[[Runner, Given], HostValue]:
    """Writes a format, or that which the suffix of the file says."""

    def written(host: Runner, given: Given) -> HostValue:
        name = given.text(0) or ""
        path = host.access.place(name, given.span)
        used = format or format_of(name, given)
        write(path, encoded(used, given), name, given.span)
        return UNIT_VALUE

    return written


def encoded(format: str, given: Given) -> bytes:
    """The bytes of a file. Errors: DL0709."""
    if format == "json":
        value, _ = given.items[1]
        return json_values.text(known(value).type, stored(value)).encode()
    if format == "csv" and "header" in given.named:
        value, _ = given.items[1]
        return csv_text(stored(value)[""], header_of(given, value)).encode()
    return WRITTEN[format](holdings(given), given.span)


def holdings(given: Given) -> Stored:
    """The parts of what is written: of one value, or of several under their names."""
    if len(given.items) == 2:
        return stored(given.items[1][0])
    return {path: x for name, (value, _) in given.named.items() for path, x in stored(value, name).items()}


def header_of(given: Given, value: HostValue) -> tuple[str, ...]:
    """The words above the columns. Errors: DL0319."""
    type, span = given.named["header"][0].type, given.named["header"][1]
    words = type.items if isinstance(type, TupleType) else (type,)
    texts = tuple(w.value or "" for w in words if isinstance(w, TextType))
    columns = width(value)
    if len(texts) != len(words) or len(texts) != columns:
        raise given.misused(span, f"a text for each of {columns} columns")
    return texts


def width(value: HostValue) -> int:
    shape = value.array.shape
    return shape[1] if len(shape) == 2 else 1


def usage(name: str, format: str | None) -> str:
    more = f', or `{name}("file.{format}", x = x, y = y)`' if format in NAMED else ""
    return f'`{name}("file.{format or "npz"}", value)`{more}'


for _name, _format in [("save", None), *[(f"write_{f}", f) for f in (*WRITTEN, "json")]]:
    hosted(_name, usage(_name, _format), checks(_format))(writer(_format))
