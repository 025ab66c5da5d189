"""Parameters in files: any structure of arrays as npz or safetensors, bit for bit, under the paths of its leaves.

What is written is what a program's own `save` writes, so each reads the other's. No format here can run code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import numpy as np

from difflang.api.loaded import doorway
from difflang.base.files import replace, unreadable, unwritable
from difflang.base.source import NOWHERE
from difflang.bridge.nested import named
from difflang.check.reports import mistake
from difflang.driver.formats import READ, SUFFIXES, WRITTEN, Stored
from difflang.runtime import trees

NAMED = ("npz", "safetensors")


def save(path: str | Path, tree: Any) -> None:
    """Write the arrays of a record, a dict, an optimizer's state: each under its path, `layer1.w`. The file is replaced
    as a whole.

    Errors: ArgumentError for another suffix than `.npz` or `.safetensors`; DataError where it cannot be written.
    """
    with doorway():
        place, format = Path(path), format_of(path)
        stored = {name: leaf if isinstance(leaf, str) else np.asarray(leaf) for name, leaf in named(tree)}
        data = WRITTEN[format](stored, NOWHERE)
        try:
            replace(place, data)
        except OSError as error:
            raise unwritable(str(path), error) from None


def load(path: str | Path, like: Any) -> Any:
    """The structure of `like` with the arrays of a file that was saved from such a one, as NumPy arrays.

    Errors: DataError where the file cannot be read, or has other paths, shapes or element types.
    """
    with doorway():
        place, format = Path(path), format_of(path)
        try:
            stored = READ[format](place, NOWHERE)
            leaves = [read(str(path), stored, name, leaf) for name, leaf in named(like)]
        except FileNotFoundError:
            raise unreadable(str(path), "there is no such file") from None
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise unreadable(str(path), str(error)) from None
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), leaves)


def read(file: str, stored: Stored, name: str, like: Any) -> Any:
    """One leaf. Errors: DL0701 where it is not what is expected."""
    if name not in stored:
        raise unreadable(file, f"it has no `{name}`", f"it has {', '.join(stored) or 'nothing'}")
    found = stored[name]
    if isinstance(found, str) or isinstance(like, str):
        return found
    wanted = trees.array_type(like)
    have = trees.array_type(found)
    if wanted is not None and wanted != have:
        raise unreadable(file, f"`{name}` is {described(have)}, and {described(wanted)} is expected")
    return found


def described(type: Any) -> str:
    return f"{type[0]}[{', '.join(map(str, type[1]))}]"


def format_of(path: str | Path) -> str:
    format = SUFFIXES.get(Path(path).suffix)
    if format not in NAMED:
        raise mistake("DL1207", f"`{path}` is no archive", help="call it `.npz` or `.safetensors`")
    return format
