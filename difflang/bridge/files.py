"""Saves pytrees of parameters to npz or safetensors files and loads them, bit for bit, by the paths of their leaves.

The format is that of a program's own `save`, so each reads the other's files. No format here can run code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import numpy as np

from difflang.api.option_values import class_with_article
from difflang.base.errors import classify_errors
from difflang.base.source import NO_SPAN
from difflang.base.source_files import read_error, write_or_report
from difflang.bridge.nested import named_leaves
from difflang.host.data.array_files import FORMAT_OF_SUFFIX, FORMAT_READERS, FORMAT_WRITERS, StoredArrays
from difflang.host.data.array_headers import abstract_array
from difflang.host.data.numpy_files import ArrayInFile
from difflang.runtime import pytrees
from difflang.runtime.argument_conversion import is_python_number
from difflang.types.type_errors import make_error

ARCHIVE_FORMATS = ("npz", "safetensors")


def save(path: str | Path, tree: Any) -> None:
    """Write the arrays of a record, a dict or an optimizer's state, each under its path, `layer1.w`. The file is
    replaced atomically. Arrays that are split over several processes are gathered: each process must call this.

    Errors: ArgumentError for a suffix other than `.npz` or `.safetensors`, for a leaf that is no array, and if two
    leaves have the same path; DataError if it cannot be written.
    """
    with classify_errors():
        place, format = Path(path), archive_format(path)
        data = FORMAT_WRITERS[format](flatten_to_arrays(tree), NO_SPAN)
        write_or_report(place, data, str(path))


def load(path: str | Path, like: Any, *, whole: bool = False) -> Any:
    """The structure of `like` with the arrays of a file that was saved from such a structure, as NumPy arrays.

    Python numbers, texts and JAX random keys keep their kind. Other entries of the file are ignored, unless `whole` is
    set.

    Errors: DataError if the file cannot be read, or has other paths, shapes or element types.
    """
    with classify_errors():
        place, format = Path(path), archive_format(path)
        try:
            return restore_tree(str(path), FORMAT_READERS[format](place, NO_SPAN), like, exact=whole)
        except FileNotFoundError:
            raise read_error(str(path), "there is no such file") from None
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise read_error(str(path), str(error)) from None


def flatten_to_arrays(tree: Any) -> dict[str, Any]:
    """The leaves of a structure by path, as NumPy arrays and texts. Errors: DL1207."""
    return {
        name: leaf if isinstance(leaf, str) else leaf_array(name, leaf) for name, leaf in leaves_by_path(tree).items()
    }


def leaves_by_path(tree: Any) -> dict[str, Any]:
    """Errors: DL1207 for two leaves with the same path."""
    found: dict[str, Any] = {}
    for name, leaf in named_leaves(tree):
        if name in found:
            message = f"two leaves have the path `{name}`"
            raise make_error("DL1207", message, help="a name with a dot in it looks like a path: rename it")
        found[name] = leaf
    return found


def leaf_array(name: str, leaf: Any) -> np.ndarray:
    array = pytrees.host_array(pytrees.key_data(leaf))
    if array.dtype.kind not in "biufcV":
        raise make_error(
            "DL1207",
            f"`{name}` is {class_with_article(leaf)}, not an array",
            help="only arrays, numbers and strings can be written",
        )
    return array


def restore_tree(file: str, stored: StoredArrays, like: Any, *, exact: bool) -> Any:
    """The structure of `like` with the stored leaves. Errors: DL0701."""
    expected = leaves_by_path(like)
    others = [name for name in stored if name not in expected]
    # A checkpoint with further entries belongs to another structure.
    if exact and others:
        way = f"expected: {', '.join(expected)}"
        raise read_error(file, f"it also has `{others[0]}`, which is not expected", way)
    leaves = [read_leaf(file, stored, name, leaf) for name, leaf in expected.items()]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), leaves)


def read_leaf(file: str, stored: StoredArrays, name: str, like: Any) -> Any:
    """One leaf. Errors: DL0701 if it differs from what is expected."""
    if name not in stored:
        raise read_error(file, f"it has no `{name}`", f"it has {', '.join(stored) or 'nothing'}")
    found = stored[name]
    if isinstance(found, ArrayInFile):
        # Only what has the expected shape is read.
        fits = found.is_text if isinstance(like, str) else found.shape == np.shape(pytrees.key_data(like))
        found = found.read() if fits else abstract_array(found.dtype, found.shape)
    if isinstance(found, str) or isinstance(like, str):
        if type(found) is not type(like):
            raise read_error(file, f"expected {describe_leaf(like)} for `{name}`, found {describe_leaf(found)}")
        return found
    if is_python_number(like):
        return read_python_number(file, found, name, like)
    expected = pytrees.key_data(like)
    if pytrees.array_type(found) != pytrees.array_type(expected):
        raise read_error(file, f"expected {describe_leaf(expected)} for `{name}`, found {describe_leaf(found)}")
    # A random key is stored as its words: restore its implementation too.
    return found if expected is like else jax.random.wrap_key_data(found, impl=jax.random.key_impl(like))


def read_python_number(file: str, found: np.ndarray, name: str, like: complex) -> Any:
    """A stored Python number: a number again, or an array if JAX had changed its width."""
    expected = np.asarray(like)
    if found.shape or found.dtype.kind != expected.dtype.kind:
        raise read_error(file, f"expected a Python {type(like).__name__} for `{name}`, found {describe_leaf(found)}")
    return found.item() if found.dtype == expected.dtype else found


def describe_leaf(leaf: Any) -> str:
    if isinstance(leaf, str):
        return "a text"
    dtype, shape = pytrees.array_type(leaf) or (None, ())
    return f"{dtype or np.asarray(leaf).dtype}[{', '.join(map(str, shape))}]"


def archive_format(path: str | Path) -> str:
    format = FORMAT_OF_SUFFIX.get(Path(path).suffix)
    if format not in ARCHIVE_FORMATS:
        raise make_error("DL1207", f"`{path}` is not an archive", help="name it `.npz` or `.safetensors`")
    return format
