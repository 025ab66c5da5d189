"""Arrays that stay in their file: its pages are read where they are used, and memory holds few of them at a time."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.host.data.numpy_files import ALIGNMENT, ArrayInFile, check_bools
from difflang.types.type_errors import make_error


class FileMapping(mmap.mmap):
    """The bytes of a file that is open as long as an array of it lives."""

    path: Path
    needed: int  # the bytes that its array takes up to its end
    span: Span | None  # where it was opened
    descriptor: int

    def __new__(cls, path: Path, needed: int, span: Span | None = None) -> FileMapping:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            found = super().__new__(cls, descriptor, 0, access=mmap.ACCESS_READ)
        except BaseException:
            os.close(descriptor)
            raise
        finalize(found, os.close, descriptor)
        found.path, found.needed, found.span, found.descriptor = path, needed, span, descriptor
        return found


def map_array(found: ArrayInFile, path: Path, span: Span | None = None) -> np.ndarray:
    """The array of an npy file, in the file. Errors: ValueError if its bytes are not those of an array in memory."""
    if not found.stored_dtype.isnative or found.fortran_order or found.offset % ALIGNMENT:
        what = "another byte order" if not found.stored_dtype.isnative else "an order that cannot be used in place"
        raise ValueError(f"its numbers are stored in {what}: read it with `read_npy`")
    size = found.dtype.itemsize * prod(found.shape)
    if not size:
        return np.empty(found.shape, found.dtype)
    data = np.frombuffer(FileMapping(path, found.offset + size, span), np.uint8, size, found.offset)
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
        raise shrunk_file_error(mapping, span)


def shrunk_file_error(mapping: FileMapping, span: Span | None) -> DifflangError:
    message = f"`{mapping.path.name}` has shrunk to {mapping.size():,} bytes while it was in use"
    places = ((span, "it is used here"), (mapping.span, "it was opened here"))
    labels = [(place, text) for place, text in places if place is not None]
    way = f"its array ends at byte {mapping.needed:,}: write new data to another file, and rename that"
    return make_error("DL0701", message, *labels, help=way)


def read_mapped_rows(array: np.ndarray, mapping: FileMapping, start: int, into: np.ndarray, span: Span | None) -> None:
    """Read rows from the file of a mapped array, as many as `into` has: pages of a mapping count as memory in use.

    Errors: DL0701 if the file has shrunk.
    """
    if not hasattr(os, "preadv") or not array.flags.c_contiguous:
        check_mapping(mapping, span)
        into[...] = array[start : start + len(into)]
        return
    at = array.ctypes.data - np.frombuffer(mapping, np.uint8, 1).ctypes.data + start * array.strides[0]
    rest = memoryview(into.reshape(-1).view(np.uint8).data)
    while rest:
        count = os.preadv(mapping.descriptor, [rest], at)
        if not count:
            raise shrunk_file_error(mapping, span)
        rest, at = rest[count:], at + count


def release_pages(mapping: FileMapping) -> None:
    """Give the pages that were read back; they are read again where they are needed."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)
