"""File formats: from bytes to arrays and texts by path, and back. What could run code is neither read nor written."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from difflang.base.source import Span
from difflang.host.data.csv_tables import csv_text
from difflang.host.optional_packages import needed
from difflang.types.type_errors import mistake

Stored = Mapping[str, Any]  # by path, such as `layers.0.w`: a NumPy array or a str; "" is a value by itself

SUFFIXES = {".csv": "csv", ".npy": "npy", ".npz": "npz", ".safetensors": "safetensors", ".json": "json"}
ALONE = "value"  # what archives call a value that has no name
COMPLEX = "complex:"  # in the notes of a safetensors file, before the path of what is stored as pairs of f64,
TEXT = "text:"  # and before that of a text


def loaded(path: Path) -> Any:
    """What NumPy reads. Of bytes that are none of its files it says that they are pickled."""
    with path.open("rb") as file:
        if not file.read(6).startswith((b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")):
            raise ValueError("it is not a file of NumPy")
    return np.load(path, allow_pickle=False)


def npy_read(path: Path, _: Span) -> Stored:
    found = loaded(path)
    if not isinstance(found, np.ndarray):
        raise ValueError("it holds several arrays: read it with `read_npz`")
    return {"": native(found)}


class Archive(Mapping[str, Any]):
    """The arrays and texts of an npz file, each read when it is asked for."""

    def __init__(self, path: Path, _: Span) -> None:
        self.file: Any = loaded(path)
        if isinstance(self.file, np.ndarray):
            raise ValueError("it holds a single array: read it with `read_npy`")

    def __getitem__(self, name: str) -> Any:
        found = self.file[name]
        if not isinstance(found, np.ndarray):
            raise ValueError(f"`{name}` is no array")
        return str(found[()]) if found.dtype.kind == "U" and not found.shape else native(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self.file.files)

    def __len__(self) -> int:
        return len(self.file.files)


def native(array: np.ndarray) -> np.ndarray:
    """The same numbers in this machine's order of bytes; NumPy writes bf16 as two bytes that it has no name for."""
    if array.dtype.kind == "V" and array.dtype.itemsize == 2 and array.dtype.names is None:
        return array.view("bfloat16")
    return array.astype(array.dtype.newbyteorder("="))


def npz_written(stored: Stored, span: Span) -> bytes:
    if any(isinstance(text, str) and text.endswith("\0") for text in stored.values()):
        raise mistake(
            "DL0711", "npz holds no text that ends with \\0", (span, ""), help="save it as safetensors or json"
        )
    file = io.BytesIO()
    arrays: dict[str, Any] = {name or ALONE: np.asarray(value) for name, value in stored.items()}
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def npy_written(stored: Stored, _: Span) -> bytes:
    file = io.BytesIO()
    np.save(file, stored[""], allow_pickle=False)
    return file.getvalue()


def safetensors_read(path: Path, span: Span) -> Stored:
    library: Any = needed("safetensors", span)
    data = path.read_bytes()
    try:
        found = library.deserialize(data)
    except library.SafetensorError as error:
        raise ValueError(str(error)) from None
    notes: dict[str, str] = header(data).get("__metadata__", {})
    stored: dict[str, Any] = {n.removeprefix(TEXT): text for n, text in notes.items() if n.startswith(TEXT)}
    for name, view in found:
        if view["dtype"] not in DTYPES:
            raise ValueError(f"`{name}` is {view['dtype']}, which the language does not have")
        array = np.frombuffer(view["data"], np.dtype(DTYPES[view["dtype"]])).reshape(view["shape"])
        is_complex = COMPLEX + name in notes
        if is_complex and (view["dtype"] != "F64" or array.shape[-1:] != (2,)):
            raise ValueError(f"`{name}` is told to be c128, and is not pairs of f64")
        stored[name] = array.view(np.complex128)[..., 0] if is_complex else array
    return stored


DTYPES = {
    "BOOL": "bool", "BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64", "C64": "complex64",
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)},
}  # fmt: skip


def header(data: bytes) -> dict[str, Any]:
    """The description at the beginning of a safetensors file, which the library has found to be right."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length])


def safetensors_written(stored: Stored, span: Span) -> bytes:
    library: Any = needed("safetensors.numpy", span)
    notes: dict[str, str] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, value in stored.items():
        if isinstance(value, str):
            notes[TEXT + (name or ALONE)] = value
            continue
        if value.dtype == np.complex128:
            notes[COMPLEX + (name or ALONE)] = "c128, as pairs of f64"
            value = np.stack([value.real, value.imag], -1)
        arrays[name or ALONE] = np.array(value, order="C")
    return library.save(arrays, metadata=notes or None)


def csv_written(stored: Stored, _: Span) -> bytes:
    return csv_text(stored[""]).encode()


READ: Mapping[str, Callable[[Path, Span], Stored]] = {"npy": npy_read, "npz": Archive, "safetensors": safetensors_read}
WRITTEN: Mapping[str, Callable[[Stored, Span], bytes]] = {
    "csv": csv_written,
    "npy": npy_written,
    "npz": npz_written,
    "safetensors": safetensors_written,
}
