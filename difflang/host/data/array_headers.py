"""Array headers of data files: types and shapes without reading the arrays, and a check that the file is complete.

Nothing is unpickled. A csv file has no header.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from math import prod
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from difflang.base.source import NO_SPAN
from difflang.host.data.array_files import COMPLEX_PREFIX, SAFETENSORS_DTYPES, TEXT_PREFIX
from difflang.host.data.numpy_files import ArrayInFile, NpzArchive, check_length, read_npy

MAX_HEADER_BYTES = 100 << 20  # the safetensors library's own limit on a header


def read_headers(path: Path) -> Mapping[str, Any]:
    """By name, arrays with a type but no data, and texts; "" is the only array of an npy file.

    Errors: ValueError, OSError, and the errors of `zipfile` for damaged bytes.
    """
    match path.suffix:
        case ".npy":
            return {name: without_data(found) for name, found in read_npy(path, NO_SPAN).items()}
        case ".npz":
            return {name: without_data(found) for name, found in NpzArchive(path, NO_SPAN).items()}
        case ".safetensors":
            return read_safetensors_headers(path)
        case other:
            raise ValueError(
                f"the headers of `{other or 'no suffix'}` do not give types: use .npy, .npz or .safetensors"
            )


def abstract_array(dtype: Any, shape: Sequence[int]) -> Any:
    """An array with this type and shape that takes no memory: a broadcast scalar."""
    return np.broadcast_to(np.empty((), dtype), tuple(shape))


def without_data(stored: ArrayInFile | str) -> Any:
    return stored if isinstance(stored, str) else abstract_array(stored.dtype, stored.shape)


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
