"""The user's cache folder: what is kept there is used only if nobody else can have written it.

A compiled program runs, and parser tables decide what a program means, so an entry counts only in a folder that belongs
to us and that others cannot write to, and only under the key that it was written under.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from difflang.base.package_data import cache_folder
from difflang.base.source_files import write_atomically

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class CacheWarning(UserWarning):
    """The cache folder is not used."""


class UnsafeFolderError(OSError):
    """A folder that others could have written to."""


def unsafe_folder_text() -> str:
    """What to warn of if the cache folder cannot be trusted; empty if it can be, or does not exist."""
    try:
        require_private(cache_folder())
    except UnsafeFolderError as error:
        return f"the cache is not used, so every start takes longer: {error}. Make it yours alone, or remove it."
    except OSError:
        pass
    return ""


def private_subfolder(*names: str) -> Path:
    """The cache folder or a folder in it, created for its owner only.

    Errors: OSError if it cannot be created, UnsafeFolderError if others could have written to it.
    """
    return private_folder(cache_folder(), *names)


def private_folder(folder: Path, *names: str) -> Path:
    """A folder and folders in it, each created for its owner only. Errors: OSError, UnsafeFolderError."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for place in (folder, *(folder.joinpath(*names[: count + 1]) for count in range(len(names)))):
        place.mkdir(exist_ok=True, mode=0o700)
        require_private(place)
        if stat.S_IMODE(place.stat().st_mode) != 0o700 and os.name != "nt":
            place.chmod(0o700)
    return folder.joinpath(*names)


def require_private(place: Path) -> None:
    """Errors: UnsafeFolderError if a folder or file is not ours or others can write to it; OSError if it is absent."""
    if os.name == "nt":  # the folders of a user are private there, and modes say nothing
        return
    found = place.stat()
    if found.st_uid != os.geteuid():
        raise UnsafeFolderError(f"`{place}` belongs to another user")
    if found.st_mode & OTHERS_WRITE:
        raise UnsafeFolderError(f"other users can write to `{place}`")


# ---- Entries


def read_entry(path: Path, key: str) -> bytes | None:
    """What `write_entry` wrote under this key; None for a damaged entry, another key's and one that is not ours."""
    try:
        require_private(path)
        seal, _, data = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return data if seal == entry_seal(key, data) else None


def write_entry(path: Path, key: str, data: bytes) -> None:
    """Write an entry that carries a hash of its key and its data. Errors: OSError."""
    write_atomically(path, entry_seal(key, data) + b"\n" + data, durable=False, mode=0o600)


def entry_seal(key: str, data: bytes) -> bytes:
    name = key.encode()
    return hashlib.sha256(b"%d:%b:%b" % (len(name), name, data)).hexdigest().encode()
