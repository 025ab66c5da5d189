"""Training checkpoints with orbax: a folder with the last few states, each written atomically.

orbax is imported when a folder is opened. Stored states have the paths and element types of `files`, bit for bit. Of an
array that is split over devices each process writes and reads its parts; how it was split when it was written does not
matter. All processes of a run must call the same methods.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import numpy as np

from difflang.base.errors import classify_errors
from difflang.base.source_files import read_error, write_error
from difflang.bridge.files import leaf_array, leaves_by_path, restore_tree
from difflang.host.optional_packages import missing_package_error
from difflang.runtime import pytrees
from difflang.types.type_errors import make_error


class Checkpoints:
    """A folder of states by step, which keeps the last `keep`.

    Errors: DataError if orbax is not installed, or the folder cannot be created.
    """

    def __init__(self, folder: str | Path, *, keep: int = 3) -> None:
        with classify_errors():
            if keep < 1:
                raise make_error("DL1207", f"`keep` is {keep}, but at least one state must be kept")
            self.folder, self.library = Path(folder).absolute(), import_orbax()
            # Synchronous: `save` promises that the state is stored when it returns.
            options = self.library.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                handlers = {
                    "arrays": self.library.StandardCheckpointHandler(), "notes": self.library.JsonCheckpointHandler()
                }  # fmt: skip
                self.manager = self.library.CheckpointManager(self.folder, options=options, item_handlers=handlers)
            except OSError as error:
                raise write_error(str(folder), error) from None

    @property
    def steps(self) -> list[int]:
        """The steps with a stored state."""
        return sorted(self.manager.all_steps())

    def save(self, step: int, state: Any) -> None:
        """Write a state, synchronously. A state of the same step is replaced."""
        with classify_errors():
            arrays, notes = split_orbax_state(stored_leaves(state))
            save = self.library.args
            # orbax refuses to overwrite a step.
            if step in self.steps:
                self.manager.delete(step)
            try:
                both = save.Composite(arrays=save.StandardSave(arrays), notes=save.JsonSave(notes))
                self.manager.save(step, args=both, force=True)
            except OSError as error:
                raise write_error(str(self.folder), error) from None

    def load(self, like: Any, step: int | None = None) -> Any:
        """The last state, or the state of a step, in the structure of `like`, and split over devices as that.

        Errors: DataError if it has another structure.
        """
        with classify_errors():
            steps = self.steps
            chosen = step if step is not None else steps[-1] if steps else 0
            if chosen not in steps:
                has = f"there are {', '.join(map(str, steps))}" if steps else "there is none"
                raise read_error(str(self.folder), f"it has no state for step {chosen}", has)
            return restore_tree(str(self.folder), self.read_step(chosen, like), like, exact=True)

    def read_step(self, step: int, like: Any) -> dict[str, Any]:
        """The stored entries of a step, split as the entries of `like`. Errors: DL0701."""
        read, leaves = self.library.args, leaves_by_path(like)
        try:
            stored = self.manager.item_metadata(step).arrays.tree
            wanted = {name: place_of_entry(found, leaves.get(name)) for name, found in stored.items()}
            with jax.enable_x64(True):
                both = self.manager.restore(
                    step, args=read.Composite(arrays=read.StandardRestore(wanted), notes=read.JsonRestore())
                )
            empty = {name: np.zeros(shape, dtype) for name, (dtype, shape) in both.notes["empty"].items()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = str(error).splitlines() or [type(error).__name__]
            raise read_error(str(self.folder), f"the state of step {step}: {why[0]}") from None
        return {**both.arrays, **both.notes["texts"], **empty}

    def close(self) -> None:
        self.manager.close()


def import_orbax() -> Any:
    try:
        return import_module("orbax.checkpoint")
    except ImportError:
        raise missing_package_error("orbax.checkpoint") from None


def stored_leaves(state: Any) -> dict[str, Any]:
    """The leaves by path: texts, arrays that are split over devices, and others in NumPy. Errors: DL1207."""
    leaves = leaves_by_path(state)
    return {n: x if isinstance(x, str) or is_split(x) else leaf_array(n, x) for n, x in leaves.items()}


def is_split(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and pytrees.is_numpy_dtype(leaf.dtype) and not leaf.is_fully_replicated


def place_of_entry(stored: Any, like: Any) -> Any:
    """How orbax is to read an entry: split over devices like a leaf that it fits, or into NumPy."""
    if is_split(like) and (like.shape, like.dtype) == (stored.shape, stored.dtype):
        return jax.ShapeDtypeStruct(like.shape, like.dtype, sharding=like.sharding)
    return np.empty(stored.shape, stored.dtype)


def split_orbax_state(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays, and notes for what orbax does not store: texts, and arrays without elements."""
    texts = {name: leaf for name, leaf in state.items() if isinstance(leaf, str)}
    empty = {name: a for name, a in state.items() if name not in texts and not a.size}
    arrays = {name: a for name, a in state.items() if name not in texts and name not in empty}
    return arrays, {"texts": texts, "empty": {n: (a.dtype.name, a.shape) for n, a in empty.items()}}
