"""Array headers of data files: types and shapes without reading the arrays, and a check that the file is complete.

Nothing is unpickled. A csv file has no header.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from difflang.base.source import NO_SPAN
from difflang.host.data.numpy_files import ArrayInFile, NpzArchive, read_npy
from difflang.host.data.safetensors_files import read_entries


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
            return {name: without_data(found) for name, found in read_entries(path).items()}
        case other:
            raise ValueError(
                f"the headers of `{other or 'no suffix'}` do not give types: use .npy, .npz or .safetensors"
            )


def abstract_array(dtype: Any, shape: Sequence[int]) -> Any:
    """An array with this type and shape that takes no memory: a broadcast scalar."""
    return np.broadcast_to(np.empty((), dtype), tuple(shape))


def without_data(stored: ArrayInFile | str) -> Any:
    return stored if isinstance(stored, str) else abstract_array(stored.dtype, stored.shape)
