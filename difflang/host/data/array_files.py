"""Binary array files (npy, npz, safetensors): bytes to arrays and texts by path, and back.

Formats that could run code, such as pickle, are neither read nor written.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.base.source import Span
from difflang.host.data.numpy_files import NpzArchive, read_npy
from difflang.host.data.safetensors_files import COMPLEX_PREFIX, TEXT_PREFIX, read_safetensors
from difflang.host.optional_packages import import_optional
from difflang.types.type_errors import make_error

# By path such as `layers.0.w`, a NumPy array, an array that is not read yet, a str or an array of objects or codes of
# texts; the path of a single value is "".
StoredArrays = Mapping[str, Any]

FORMAT_OF_SUFFIX = {
    ".csv": "csv",
    ".npy": "npy",
    ".npz": "npz",
    ".safetensors": "safetensors",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
UNNAMED = "value"  # the name of a single value in an archive


class CodedTexts(Struct, frozen=True, eq=False):
    """An array of texts, as places among some texts."""

    texts: list[str]
    places: np.ndarray
    dtype = np.dtype(object)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.places.shape


def npz_bytes(stored: StoredArrays, span: Span) -> bytes:
    if any(text.endswith("\0") for part in stored.values() if is_text(part) for text in texts_in(part)):
        raise make_error(
            "DL0711", "npz cannot hold a text that ends with \\0", (span, ""), help="save it as safetensors or json"
        )
    file = io.BytesIO()
    arrays: dict[str, Any] = {
        name or UNNAMED: np.asarray(part, np.str_ if is_text(part) else None) for name, part in stored.items()
    }
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def is_text(part: Any) -> bool:
    """Whether a part of a value is a text or an array of texts."""
    return isinstance(part, str) or part.dtype == object


def texts_in(part: Any) -> list[str]:
    return [part] if isinstance(part, str) else part.ravel().tolist()


def npy_bytes(stored: StoredArrays, _: Span) -> bytes:
    file = io.BytesIO()
    np.save(file, stored[""], allow_pickle=False)
    return file.getvalue()


def safetensors_bytes(stored: StoredArrays, span: Span) -> bytes:
    library: Any = import_optional("safetensors.numpy", span)
    notes: dict[str, str] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, value in stored.items():
        if isinstance(value, str):
            notes[TEXT_PREFIX + (name or UNNAMED)] = value
            continue
        if value.dtype == np.complex128:
            notes[COMPLEX_PREFIX + (name or UNNAMED)] = "c128, as pairs of f64"
            value = np.stack([value.real, value.imag], -1)
        arrays[name or UNNAMED] = np.array(value, order="C")
    return library.save(arrays, metadata=notes or None)


FORMAT_READERS: Mapping[str, Callable[[Path, Span], StoredArrays]] = {
    "npy": read_npy,
    "npz": NpzArchive,
    "safetensors": read_safetensors,
}
FORMAT_WRITERS: Mapping[str, Callable[[StoredArrays, Span], bytes]] = {
    "npy": npy_bytes,
    "npz": npz_bytes,
    "safetensors": safetensors_bytes,
}
