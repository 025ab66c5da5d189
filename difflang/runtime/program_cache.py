"""JAX's persistent cache of compiled programs, with entries that prove under which key they were written.

JAX takes whatever stands in a file of the right name: a copied file would run as another program. JAX has no public
place for another store, so its constructor of stores is replaced. If it has another form in some version of JAX, there
is no cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax

from difflang.base.private_cache import read_entry, write_entry
from difflang.base.xla_setup import ENABLED_FOLDERS

SECONDS_OPTION = "jax_persistent_cache_min_compile_time_secs"


class SealedStore:
    """A store of JAX whose entries carry a hash of their key and their data."""

    def __init__(self, folder: Path) -> None:
        self._path = folder  # JAX reads it

    def get(self, key: str) -> bytes | None:
        return read_entry(entry_path(self._path, key), key)

    def put(self, key: str, value: bytes) -> None:
        # After a full disk, for example, the program is compiled again next time.
        with suppress(OSError):
            write_entry(entry_path(self._path, key), key, value)


def install_program_cache() -> None:
    """Give JAX the folder that `enable_compile_cache` chose, if it chose one."""
    if not ENABLED_FOLDERS:
        return
    folder = ENABLED_FOLDERS.pop()
    try:
        from jax._src import compilation_cache

        jax_store: Callable[[str], Any] = compilation_cache.get_file_cache
    except (ImportError, AttributeError):
        return

    def store_of(path: str) -> Any:
        return (SealedStore(folder), path) if path == str(folder) else jax_store(path)

    compilation_cache.get_file_cache = store_of
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if SECONDS_OPTION.upper() not in os.environ:
        jax.config.update(SECONDS_OPTION, 0.0)


def entry_path(folder: Path, key: str) -> Path:
    return folder / f"{key}-cache"
