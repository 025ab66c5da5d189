"""Data files: csv, npy and npz to arrays of a declared type, verified at the read. What could run code is not read."""

from __future__ import annotations

import csv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.check.reports import mistake
from difflang.ir.evaluate import numpy_dtype
from difflang.ir.types import DType, Tensor

READERS = ("read_csv", "read_npy", "read_npz")


@dataclass(frozen=True, slots=True)
class Access:
    """Where a program may read: its own folder, and what the command line allows."""

    folder: Path
    allowed: tuple[Path, ...] = ()

    def resolve(self, name: str, span: Span) -> Path:
        """The file of that name, relative to the program's folder. Errors: DL0701, DL0702."""
        path = (self.folder / name).resolve()
        roots = [self.folder.resolve(), *(a.resolve() for a in self.allowed)]
        if not any(path.is_relative_to(root) for root in roots):
            raise mistake(
                "DL0702",
                f"`{name}` lies outside the program's folder",
                (span, ""),
                help="allow its folder on the command line: `--allow DIR`",
            )
        if path.is_dir():
            raise mistake("DL0701", f"cannot read `{name}`: this is a directory", (span, ""))
        if not path.is_file():
            raise mistake("DL0701", f"cannot read `{name}`: there is no such file", (span, f"looked in {self.folder}"))
        return path


def read(kind: str, path: Path, name: str, member: str | None, dtype: DType, rank: int, span: Span) -> np.ndarray:
    """The array in a file, of the declared element type and number of axes. Errors: DL0701, DL0703 to DL0706."""
    try:
        if kind == "read_csv":
            return read_csv(path, name, dtype, rank, span)
        found = np.load(path, allow_pickle=False)
        if kind == "read_npz":
            found = member_of(found, name, member, span)
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, KeyError) as error:
        raise mistake(
            "DL0701",
            f"cannot read `{name}`: {str(error).splitlines()[0] if str(error) else 'it is damaged'}",
            (span, ""),
        ) from None
    if not isinstance(found, np.ndarray):
        raise mistake(
            "DL0701", f"`{name}` holds several arrays", (span, ""), help='name one: `read_npz("file", "name")`'
        )
    if found.dtype != numpy_dtype(dtype):
        raise mistake(
            "DL0704",
            f"`{name}` holds {found.dtype.name}, not {dtype}",
            (span, f"declared {dtype}"),
            help="declare what the file holds, and convert afterwards",
        )
    return found


def member_of(archive: Any, name: str, member: str | None, span: Span) -> np.ndarray:
    if isinstance(archive, np.ndarray):
        raise mistake("DL0701", f"`{name}` holds a single array", (span, ""), help="read it with `read_npy`")
    names = list(archive.files)
    if member is None and len(names) == 1:
        member = names[0]
    if member not in names:
        raise mistake(
            "DL0706",
            f"`{name}` has no array `{member}`" if member else f"`{name}` holds several arrays",
            (span, ""),
            help=f'it has {", ".join(names)}: `read_npz("{name}", "{names[0]}")`' if names else "",
        )
    return archive[member]


def read_csv(path: Path, name: str, dtype: DType, rank: int, span: Span) -> np.ndarray:
    """A table of numbers; a first row of words is a header."""
    if rank not in (1, 2):
        raise mistake(
            "DL0704",
            "a csv file is a table",
            (span, f"declared with {rank} axes"),
            help="declare `f32[n, k]`, or `f32[n]` for one column",
        )
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [(i, row) for i, row in enumerate(csv.reader(file), 1) if row and any(c.strip() for c in row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise mistake("DL0701", f"cannot read `{name}`: this is not a csv file", (span, str(error))) from None
    if rows and not any(is_number(cell) for cell in rows[0][1]):
        rows = rows[1:]
    width = len(rows[0][1]) if rows else 0
    for line, row in rows:
        if len(row) != width:
            raise mistake(
                "DL0703", f"{name}:{line}: this row has {len(row)} columns, the others {width}", (span, "read here")
            )
    try:
        table = np.array([row for _, row in rows], dtype=np.float64).reshape(len(rows), width)
    except ValueError:
        raise bad_cell(name, rows, span) from None
    return narrowed(name, rows, column(table, rank, name, span), dtype, span)


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def bad_cell(name: str, rows: list[tuple[int, list[str]]], span: Span) -> DifflangError:
    for line, row in rows:
        for place, cell in enumerate(row, 1):
            if not is_number(cell):
                shown = cell.strip()[:40]
                what = f"`{shown}` is not a number" if shown else "this cell is empty"
                return mistake("DL0703", f"{name}:{line}: column {place}: {what}", (span, "read here"))
    return mistake("DL0703", f"{name} is not a table of numbers", (span, "read here"))


def column(table: np.ndarray, rank: int, name: str, span: Span) -> np.ndarray:
    if rank == 2:
        return table
    if table.shape[1] != 1 and table.size:
        raise mistake(
            "DL0705",
            f"{name} has {table.shape[1]} columns",
            (span, "declared with one axis"),
            help=f"declare `f32[n, {table.shape[1]}]`",
        )
    return table.reshape(-1)


def narrowed(name: str, rows: list[tuple[int, list[str]]], table: np.ndarray, dtype: DType, span: Span) -> np.ndarray:
    """The table in its declared element type; integers must be written as such."""
    target = numpy_dtype(dtype)
    if dtype.is_integer:
        info = np.iinfo(target)
        bad = (table != np.floor(table)) | (table < float(info.min)) | (table > float(info.max)) | ~np.isfinite(table)
    elif dtype.kind == "bool":
        bad = (table != 0) & (table != 1)
    else:
        bad = np.zeros(table.shape, bool)
    if bad.any():
        where = np.argwhere(bad)[0]
        line, row = rows[where[0]]
        cell = row[where[1] if len(where) > 1 else 0].strip()
        raise mistake(
            "DL0703",
            f"{name}:{line}: column {(where[1] if len(where) > 1 else 0) + 1}: `{cell}` is no {dtype}",
            (span, f"declared {Tensor(dtype)}"),
        )
    return table.astype(target)
