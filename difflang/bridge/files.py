"""Parameters in files: any structure of arrays as npz or safetensors, bit for bit, under the paths of its leaves.

What is written is what a program's own `save` writes, so each reads the other's. No format here can run code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import numpy as np

from difflang.api.loaded_program import doorway
from difflang.api.option_values import article
from difflang.base.source import NOWHERE
from difflang.base.source_files import replace, unreadable, unwritable
from difflang.bridge.nested import named
from difflang.host.data.array_files import READ, SUFFIXES, WRITTEN, Stored
from difflang.runtime import pytrees
from difflang.runtime.argument_conversion import is_python_number
from difflang.types.type_errors import mistake

NAMED = ("npz", "safetensors")


def save(path: str | Path, tree: Any) -> None:
    """Write the arrays of a record, a dict, an optimizer's state: each under its path, `layer1.w`. The file is replaced
    as a whole.

    Errors: ArgumentError for another suffix than `.npz` or `.safetensors`, for what is no array, and where two leaves
    have one path; DataError where it cannot be written.
    """
    with doorway():
        place, format = Path(path), format_of(path)
        data = WRITTEN[format](stored(tree), NOWHERE)
        try:
            replace(place, data)
        except OSError as error:
            raise unwritable(str(path), error) from None


def load(path: str | Path, like: Any, *, whole: bool = False) -> Any:
    """The structure of `like` with the arrays of a file that was saved from such a one, as NumPy arrays.

    Numbers of Python, texts and JAX's random keys come back as such. What else the file has is left there, unless the
    `whole` of it is asked for.

    Errors: DataError where the file cannot be read, or has other paths, shapes or element types.
    """
    with doorway():
        place, format = Path(path), format_of(path)
        try:
            return restored(str(path), READ[format](place, NOWHERE), like, whole=whole)
        except FileNotFoundError:
            raise unreadable(str(path), "there is no such file") from None
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise unreadable(str(path), str(error)) from None


def stored(tree: Any) -> dict[str, Any]:
    """The leaves of a structure by their paths, as NumPy arrays and texts. Errors: DL1207."""
    found: dict[str, Any] = {}
    for name, leaf in named(tree):
        if name in found:
            message = f"two leaves have the path `{name}`"
            raise mistake("DL1207", message, help="a name with a point in it reads like a path: give it another one")
        found[name] = leaf if isinstance(leaf, str) else array_of(name, leaf)
    return found


def array_of(name: str, leaf: Any) -> np.ndarray:
    array = np.asarray(pytrees.key_data(leaf))
    if array.dtype.kind not in "biufcV":
        raise mistake(
            "DL1207", f"`{name}` is no array but {article(leaf)}", help="arrays, numbers and texts are written"
        )
    return array


def restored(file: str, kept: Stored, like: Any, *, whole: bool) -> Any:
    """The structure of `like` with what was stored. Errors: DL0701."""
    wanted = stored(like)
    others = [name for name in kept if name not in wanted]
    if whole and others:
        raise unreadable(file, f"it has `{others[0]}` too, which is not expected", other_than(wanted))
    leaves = [read(file, kept, name, leaf) for name, leaf in named(like)]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), leaves)


def other_than(wanted: Stored) -> str:
    return f"expected are {', '.join(wanted)}"


def read(file: str, kept: Stored, name: str, like: Any) -> Any:
    """One leaf. Errors: DL0701 where it is not what is expected."""
    if name not in kept:
        raise unreadable(file, f"it has no `{name}`", f"it has {', '.join(kept) or 'nothing'}")
    found = kept[name]
    if isinstance(found, str) or isinstance(like, str):
        if type(found) is not type(like):
            raise unreadable(file, f"`{name}` is {described(found)}, and {described(like)} is expected")
        return found
    if is_python_number(like):
        return number(file, found, name, like)
    wanted = pytrees.key_data(like)
    if pytrees.array_type(found) != pytrees.array_type(wanted):
        raise unreadable(file, f"`{name}` is {described(found)}, and {described(wanted)} is expected")
    return found if wanted is like else jax.random.wrap_key_data(found, impl=jax.random.key_impl(like))


def number(file: str, found: np.ndarray, name: str, like: complex) -> Any:
    """What stands for a number of Python: one again, or an array of another width that it had become in JAX."""
    wanted = np.asarray(like)
    if found.shape or found.dtype.kind != wanted.dtype.kind:
        raise unreadable(file, f"`{name}` is {described(found)}, and a Python {type(like).__name__} is expected")
    return found.item() if found.dtype == wanted.dtype else found


def described(leaf: Any) -> str:
    if isinstance(leaf, str):
        return "a text"
    dtype, shape = pytrees.array_type(leaf) or (None, ())
    return f"{dtype or np.asarray(leaf).dtype}[{', '.join(map(str, shape))}]"


def format_of(path: str | Path) -> str:
    format = SUFFIXES.get(Path(path).suffix)
    if format not in NAMED:
        raise mistake("DL1207", f"`{path}` is no archive", help="call it `.npz` or `.safetensors`")
    return format
