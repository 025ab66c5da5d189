"""Files of safetensors: headers first, and the data only of what is asked for, as of NumPy's files.

Safetensors has no c128 and no texts. Complex arrays are stored as pairs of f64, texts in the metadata; prefixes mark
their paths there.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import partial
from math import prod
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from difflang.base.source import Span
from difflang.host.data.numpy_files import ArrayInFile, check_length
from difflang.host.optional_packages import import_optional

MAX_HEADER_BYTES = 100 << 20  # the library's own limit on a header
COMPLEX_PREFIX = "complex:"
TEXT_PREFIX = "text:"
SAFETENSORS_DTYPES = {
    "BOOL": "bool", "BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64", "C64": "complex64",
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)},
}  # fmt: skip


def read_safetensors(path: Path, span: Span) -> Mapping[str, ArrayInFile | str]:
    """Errors: DL0709; ValueError for a file that the library refuses, OSError."""
    library: Any = import_optional("safetensors", span)
    try:
        with library.safe_open(path, framework="numpy"):
            return read_entries(path)
    except library.SafetensorError as error:
        raise ValueError(str(error)) from None


def read_entries(path: Path) -> dict[str, ArrayInFile | str]:
    """The texts of a file, and its arrays, which are not read yet. Errors: ValueError, OSError."""
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
    found: dict[str, ArrayInFile | str] = {
        n.removeprefix(TEXT_PREFIX): text for n, text in notes.items() if n.startswith(TEXT_PREFIX)
    }
    for name, entry in header.items():
        dtype, shape, start = read_entry(name, entry, size - 8 - length, f"{COMPLEX_PREFIX}{name}" in notes)
        opened = partial(path.open, "rb")
        found[name] = ArrayInFile(f"`{name}`", dtype, shape, opened, dtype, 8 + length + start, fortran_order=False)
    return found


def read_entry(name: str, entry: Any, data_size: int, is_complex: bool) -> tuple[np.dtype, tuple[int, ...], int]:
    """Element type, shape and beginning of an array."""
    try:
        dtype, shape = str(entry["dtype"]), tuple(map(index, entry["shape"]))
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
    if is_complex and (dtype != "F64" or shape[-1:] != (2,)):
        raise ValueError(f"`{name}` is marked as c128, but is not stored as pairs of f64")
    return (np.dtype(np.complex128), shape[:-1], start) if is_complex else (kind, shape, start)
