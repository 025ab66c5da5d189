"""Arrays that stay in their file: its pages are read where they are used, and memory holds few of them at a time."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from difflang.base.source import Span
from difflang.host.data.numpy_files import ALIGNMENT, ArrayInFile, check_bools
from difflang.types.type_errors import make_error


class FileMapping(mmap.mmap):
    """The bytes of a file that is open as long as an array of it lives."""

    path: Path
    needed: int  # the bytes that its array takes up to its end

    def __new__(cls, path: Path, needed: int) -> FileMapping:
        with path.open("rb") as file:
            found = super().__new__(cls, file.fileno(), 0, access=mmap.ACCESS_READ)
        found.path, found.needed = path, needed
        return found


def map_array(found: ArrayInFile, path: Path) -> np.ndarray:
    """The array of an npy file, in the file. Errors: ValueError if its bytes are not those of an array in memory."""
    if not found.stored_dtype.isnative or found.fortran_order or found.offset % ALIGNMENT:
        what = "another byte order" if not found.stored_dtype.isnative else "an order that cannot be used in place"
        raise ValueError(f"its numbers are stored in {what}: read it with `read_npy`")
    size = found.dtype.itemsize * prod(found.shape)
    if not size:
        return np.empty(found.shape, found.dtype)
    data = np.frombuffer(FileMapping(path, found.offset + size), np.uint8, size, found.offset)
    check_bools(data, found.dtype)
    return data.view(found.dtype).reshape(found.shape)


def mapping_of(array: Any) -> FileMapping | None:
    """The mapping that an array lies in."""
    while isinstance(array, np.ndarray):
        array = array.base
    found = array.obj if isinstance(array, memoryview) else None
    return found if isinstance(found, FileMapping) else None


def check_files(arrays: Iterable[Any], span: Span | None = None) -> set[FileMapping]:
    """The mappings that some arrays lie in, before they are used at `span`.

    Errors: DL0701 if the file has shrunk: a computation that reads beyond its end kills the process.
    """
    found = {mapping for array in arrays if (mapping := mapping_of(array)) is not None}
    for mapping in found:
        check_mapping(mapping, span)
    return found


def check_mapping(mapping: FileMapping, span: Span | None) -> None:
    if mapping.size() < mapping.needed:
        message = f"`{mapping.path.name}` has shrunk to {mapping.size():,} bytes while it was in use"
        labels = ((span, "it is used here"),) if span is not None else ()
        raise make_error("DL0701", message, *labels, help=f"its array ends at byte {mapping.needed:,}")


def release_pages(mapping: FileMapping) -> None:
    """Give the pages that were read back; they are read again where they are needed."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)
