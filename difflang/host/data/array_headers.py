"""Array headers of data files: types and shapes without reading the arrays, and a check that the file is complete.

Nothing is unpickled. A csv file has no header.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from math import prod
from operator import index
from pathlib import Path
from typing import IO, Any

import numpy as np

from difflang.host.data.array_files import COMPLEX_PREFIX, SAFETENSORS_DTYPES, TEXT_PREFIX
from difflang.ir.tensor_types import DTYPES as TYPES
from difflang.ir.tensor_types import numpy_dtype

MAGIC = b"\x93NUMPY"
MAX_HEADER_BYTES = 100 << 20  # the safetensors library's own limit on a header
MAX_TEXT_BYTES = 1 << 20  # the longest text that is read from an archive


def read_headers(path: Path) -> Mapping[str, Any]:
    """By name, arrays with a type but no data, and texts; "" is the only array of an npy file.

    Errors: ValueError, OSError, and the errors of `zipfile` for damaged bytes.
    """
    match path.suffix:
        case ".npy":
            with path.open("rb") as file:
                return {"": read_npy_header(file, path.stat().st_size, "it")}
        case ".npz":
            return read_npz_headers(path)
        case ".safetensors":
            return read_safetensors_headers(path)
        case other:
            raise ValueError(
                f"the headers of `{other or 'no suffix'}` do not give types: use .npy, .npz or .safetensors"
            )


def read_npy_header(file: IO[bytes], size: int, what: str) -> Any:
    """The array of an npy file with `size` bytes, without its data."""
    if file.read(len(MAGIC)) != MAGIC:
        raise ValueError(f"{what} is not a NumPy array")
    file.seek(0)
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(
            f"{what} uses version {version[0]}.{version[1]} of NumPy's format, which difflang does not support"
        )
    shape, _, dtype = read(file)
    # Object arrays are pickles, and unpickling can run code.
    if dtype.hasobject:
        raise ValueError(f"{what} holds Python objects, which difflang does not read: loading them could run code")
    check_length(what, file.tell() + dtype.itemsize * prod(shape), size)
    if dtype.kind == "U" and not shape and dtype.itemsize <= MAX_TEXT_BYTES:
        return str(np.frombuffer(file.read(dtype.itemsize), dtype)[0]) if dtype.itemsize else ""
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None:
        dtype = numpy_dtype(TYPES["bf16"])  # NumPy stores it as unnamed two-byte items
    return abstract_array(dtype.newbyteorder("="), shape)


def abstract_array(dtype: Any, shape: Sequence[int]) -> Any:
    """An array with this type and shape that takes no memory: a broadcast scalar."""
    return np.broadcast_to(np.empty((), dtype), tuple(shape))


def check_length(what: str, needed: int, there: int) -> None:
    if there < needed:
        raise ValueError(f"{what} is truncated: its header announces {needed:,} bytes, but there are {there:,}")


def read_npz_headers(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            with archive.open(info) as file:
                found[name] = read_npy_header(file, info.file_size, f"`{name}`")
    return found


def read_safetensors_headers(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
        if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise ValueError("it is not a safetensors file: its header is longer than the file")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("it is not a safetensors file: its header is not a table")
    notes = header.pop("__metadata__", None) or {}
    if not isinstance(notes, dict) or not all(isinstance(text, str) for text in notes.values()):
        raise ValueError("it is not a safetensors file: its metadata is not a table of texts")
    found: dict[str, Any] = {
        n.removeprefix(TEXT_PREFIX): text for n, text in notes.items() if n.startswith(TEXT_PREFIX)
    }
    for name, entry in header.items():
        found[name] = safetensors_entry(name, entry, size - 8 - length, f"{COMPLEX_PREFIX}{name}" in notes)
    return found


def safetensors_entry(name: str, entry: Any, data_size: int, is_complex: bool) -> Any:
    """One array of a safetensors file."""
    try:
        dtype, shape = str(entry["dtype"]), [*map(index, entry["shape"])]
        start, end = map(index, entry["data_offsets"])
    except (TypeError, KeyError, ValueError):
        raise ValueError(f"the header does not describe `{name}` as a safetensors array") from None
    if dtype not in SAFETENSORS_DTYPES:
        raise ValueError(f"`{name}` is {dtype}, which the language does not support")
    kind = np.dtype(SAFETENSORS_DTYPES[dtype])
    # The header is untrusted: its offsets must match the shape exactly.
    if min(shape, default=0) < 0 or end - start != kind.itemsize * prod(shape) or start < 0:
        raise ValueError(f"the number of bytes of `{name}` does not match its shape")
    check_length(f"`{name}`", end, data_size)
    if is_complex and (dtype != "F64" or shape[-1:] != [2]):
        raise ValueError(f"`{name}` is marked as c128, but is not stored as pairs of f64")
    return abstract_array(np.complex128, shape[:-1]) if is_complex else abstract_array(kind, shape)
