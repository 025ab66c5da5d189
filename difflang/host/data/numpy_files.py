"""NumPy's npy and npz files: headers first, and the data only of what is asked for.

A file of a few kilobytes may announce, or unpack to, more than the machine has, so no array is read before its type and
shape have been compared. Nothing is unpickled.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from msgspec import Struct

from difflang.base.byte_sizes import format_bytes
from difflang.base.source import Span

MAGIC = b"\x93NUMPY"
ALIGNMENT = 64
MAX_HEADER_BYTES = 1 << 16  # NumPy writes 118 bytes; version 2 of the format allows 4 GiB
MAX_TEXT_BYTES = 1 << 20  # the longest text that is read with the headers


class ArrayInFile(Struct, frozen=True, eq=False):
    """An array whose data has not been read yet."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    opened: Callable[[], IO[bytes]]
    stored_dtype: np.dtype  # as in the file: of another byte order, or unnamed
    offset: int  # where its data begins
    fortran_order: bool

    @property
    def is_text(self) -> bool:
        return self.dtype.kind == "U" and not self.shape

    def read(self) -> Any:
        """The array, or a str. Errors: ValueError, OSError, MemoryError, and the errors of `zipfile`."""
        found = self.read_part(tuple([slice(None)] * len(self.shape)))
        return text_of(found) if self.is_text else found

    def read_part(self, index: tuple[slice, ...]) -> np.ndarray:
        """A part of the array, read from where the file has the rows that it is in. Errors: those of `read`."""
        rows = list(index)
        shape, start = list(self.shape), 0
        if rows:
            slowest = -1 if self.fortran_order else 0
            start, stop, _ = rows[slowest].indices(shape[slowest])
            shape[slowest], rows[slowest] = stop - start, slice(None)
            start *= prod(self.shape[:-1] if self.fortran_order else self.shape[1:])
        found = self.read_elements(start, prod(shape))
        found = found.reshape(shape[::-1]).T if self.fortran_order else found.reshape(shape)
        return found if self.is_text else native_byte_order(found[(*rows, ...)])

    def read_elements(self, start: int, count: int) -> np.ndarray:
        """So many elements in the order of the file."""
        size = self.dtype.itemsize * count
        if size > machine_memory():
            raise MemoryError(f"{self.name} takes {format_bytes(size)}, more than this machine has")
        found = aligned_bytes(size)
        with self.opened() as file:
            file.seek(self.offset + self.dtype.itemsize * start)
            read_all(file, found, self.name)
        check_bools(found, self.stored_dtype)
        return found.view(self.stored_dtype)


def check_bools(data: np.ndarray, dtype: np.dtype) -> None:
    """Errors: ValueError for a bool whose byte is neither 0 nor 1: XLA computes with its byte."""
    if dtype == np.bool_ and data.size and data.max() > 1:
        raise ValueError(f"it holds a bool with the byte {data.max()}, which is neither 0 nor 1")


def aligned_bytes(count: int) -> np.ndarray:
    """Room for an array where XLA computes with it in place, on the CPU."""
    room = np.empty(count + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + count]


def read_all(file: IO[bytes], into: np.ndarray, name: str) -> None:
    """Fill an array with bytes of a file. Errors: ValueError if it ends before, OSError."""
    rest = memoryview(into.data)
    while rest:
        count = file.readinto(rest)  # pyright: ignore[reportAttributeAccessIssue]
        if not count:
            raise ValueError(f"{name} is truncated: {len(rest):,} bytes are missing")
        rest = rest[count:]


def machine_memory() -> int:
    """The bytes of main memory; very many where the system does not say it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


def text_of(array: np.ndarray) -> str:
    """A text that is stored as an array without axes. Errors: ValueError if it is no text."""
    codes = np.frombuffer(array.astype(array.dtype.newbyteorder("<")).tobytes(), "<u4")
    if codes.size and codes.max() > 0x10FFFF:
        raise ValueError("it holds a text with a code point that does not exist")
    return str(array[()])


def native_byte_order(array: np.ndarray) -> np.ndarray:
    """The array in this machine's byte order. NumPy stores bf16 as unnamed two-byte items."""
    native = native_dtype(array.dtype)
    return array.view(native) if array.dtype.kind == "V" else array.astype(native, copy=False)


def native_dtype(dtype: np.dtype) -> np.dtype:
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None:
        return np.dtype("bfloat16")
    return dtype.newbyteorder("=")


def read_npy_header(opened: Callable[[], IO[bytes]], size: int, name: str) -> ArrayInFile | str:
    """The array of an npy file with `size` bytes, without its data; a text if it is one that is not long.

    Errors: ValueError for another or a damaged file.
    """
    with opened() as file:
        start = file.read(len(MAGIC) + 6)
        if not start.startswith(MAGIC):
            raise ValueError(f"{name} is not a NumPy array")
        length = int.from_bytes(start[8:10] if start[6:7] == b"\1" else start[8:12], "little")
        if length > MAX_HEADER_BYTES:
            raise ValueError(f"{name} has a header of {length:,} bytes, which is too long")
    with opened() as file:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        if read is None:
            raise ValueError(
                f"{name} uses version {version[0]}.{version[1]} of NumPy's format, which difflang does not support"
            )
        shape, fortran_order, dtype = read(file)
        # Object arrays are pickles, and unpickling can run code.
        if dtype.hasobject:
            raise ValueError(f"{name} holds Python objects, which difflang does not read: loading them could run code")
        check_length(name, file.tell() + dtype.itemsize * prod(shape), size)
        found = ArrayInFile(name, native_dtype(dtype), shape, opened, dtype, file.tell(), fortran_order)
    return str(found.read()) if found.is_text and dtype.itemsize <= MAX_TEXT_BYTES else found


def check_length(what: str, needed: int, there: int) -> None:
    if there < needed:
        raise ValueError(f"{what} is truncated: its header announces {needed:,} bytes, but there are {there:,}")


def is_archive(path: Path) -> bool:
    """Whether a file of NumPy is an archive. Errors: ValueError for another file: NumPy takes it for a pickle."""
    with path.open("rb") as file:
        start = file.read(len(MAGIC))
    if not start.startswith((MAGIC, b"PK\x03\x04", b"PK\x05\x06")):
        raise ValueError("it is not a NumPy array, nor an archive of them")
    return start != MAGIC


def read_npy(path: Path, _: Span) -> Mapping[str, Any]:
    if is_archive(path):
        raise ValueError("it holds several arrays: read it with `read_npz`")
    return {"": read_npy_header(lambda: path.open("rb"), path.stat().st_size, "it")}


class NpzArchive(Mapping[str, Any]):
    """The texts of an npz file, and its arrays as an `ArrayInFile` each."""

    def __init__(self, path: Path, _: Span) -> None:
        if not is_archive(path):
            raise ValueError("it holds a single array: read it with `read_npy`")
        self.archive = zipfile.ZipFile(path)
        self.members = {info.filename.removesuffix(".npy"): info for info in self.archive.infolist()}

    def __getitem__(self, name: str) -> Any:
        info = self.members[name]
        return read_npy_header(lambda: self.archive.open(info), info.file_size, f"`{name}`")

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)
