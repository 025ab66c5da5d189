"""Reading source files as UTF-8 text, and writing files atomically."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.process_termination import FILE_START_LOCK, PARTIAL_FILES
from difflang.base.source import Source

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

MAX_SOURCE_BYTES = 64 * 2**20


def read_source(path: Path, name: str) -> Source:
    """The text of a program file. Errors: DL0701 if it cannot be read, DL0102 if it is not text."""
    try:
        if os.path.isdir(path):
            raise read_error(name, "this is a directory", "name a file in it")
        data = path.read_bytes()
    except OSError as error:
        file, colon, entry = name.rpartition(":")
        whole = colon and entry.isidentifier() and os.path.isfile(file)
        way = f"this command takes whole files: write `{file}`" if whole else ""
        raise read_error(name, (error.strerror or "it cannot be read").lower(), way) from None
    return decode_source(data, name)


def decode_source(data: bytes, name: str) -> Source:
    """A program's text from its bytes. Errors: DL0102 if it is not UTF-8, DL1004 if it is too large."""
    if len(data) > MAX_SOURCE_BYTES:
        raise DifflangError(
            Diagnostic(
                "DL1004",
                f"{name}: a program of {len(data) >> 20} MiB is too large",
                (),
                (f"difflang reads files of at most {MAX_SOURCE_BYTES >> 20} MiB",),
            )
        )
    try:
        # `utf-8-sig` drops a byte order mark, which some editors write.
        return Source(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DifflangError(
            Diagnostic(
                "DL0102", f"{name}: this is not a text file", (), (f"byte {error.start} (line {line}) is not UTF-8",)
            )
        ) from None


def read_error(name: str, why: str, help: str = "") -> DifflangError:
    return DifflangError(Diagnostic("DL0701", f"cannot read {name}: {why}", (), (help,) if help else ()))


def write_error(name: str, error: OSError) -> DifflangError:
    """The error for a file that cannot be written: DL0710."""
    return DifflangError(Diagnostic("DL0710", f"cannot write `{name}`: {os_error_reason(error)}"))


def write_or_report(path: Path, data: bytes, name: str = "") -> None:
    """Write a whole file atomically; reports call it `name`. Errors: DL0710, with an old file unchanged."""
    try:
        write_atomically(path, data)
    except OSError as error:
        raise write_error(name or str(path), error) from None


def os_error_reason(error: OSError) -> str:
    return (error.strerror or "it cannot be written").lower()


def resolve_links(path: Path) -> Path:
    """The file that a path leads to. Errors: OSError for a cycle of links, a folder, or an invalid path."""
    try:
        found = path.resolve()
    except RuntimeError:  # how Python before 3.13 reports a cycle of links
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    if found.is_symlink():  # and from 3.13 on the path is left at a link of the circle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    if found.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return found


def write_atomically(path: Path, data: bytes, *, durable: bool = True, mode: int = 0o666) -> None:
    """Write a whole file beside the old one, then rename it into place with the old permissions.

    `durable`: the file and its name are on the disk before this returns. `mode`: the permissions of a new file, less
    the umask.
    Errors: OSError if that fails; an old file is then unchanged, and no new one exists.
    """
    # Replace the file that a link leads to, not the link.
    path = resolve_links(path)
    remove_abandoned_files(path.parent)
    beside, begun = begin_partial_file(path.parent, mode)
    try:
        with begun as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            # Keep the old file's permissions; a temporary file has its own.
            if path.exists():
                shutil.copymode(path, beside)
            if fcntl is None:
                file.close()  # Windows renames no open file; elsewhere it stays locked until it has its name
            beside.replace(path)
        if durable:
            sync_folder(path.parent)
    finally:
        beside.unlink(missing_ok=True)
        PARTIAL_FILES.discard(str(beside))


# ---- Files being written. Their names do not grow with the name of the file that they become, which may be the longest
# that the system allows. Each is locked by its process as long as that lives.


PARTIAL_FILE_PATTERN = ".difflang-*.tmp"
SWEPT_FOLDERS: set[Path] = set()


def begin_partial_file(folder: Path, mode: int) -> tuple[Path, IO[bytes]]:
    """A new file to be renamed when it is complete; it is removed if the process ends before that."""
    while True:
        beside = folder / PARTIAL_FILE_PATTERN.replace("*", os.urandom(8).hex())
        with FILE_START_LOCK:
            file = os.fdopen(
                os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode), "wb"
            )
            PARTIAL_FILES.add(str(beside))
        # Another process may have taken it for an abandoned one, and holds the lock until it has removed it.
        lock_file(file, waits=True)
        if beside.exists():
            return beside, file
        file.close()


def remove_abandoned_files(folder: Path) -> None:
    """Remove what killed processes left half written, once in each folder, so that many saves cost linear time."""
    if folder in SWEPT_FOLDERS:
        return
    SWEPT_FOLDERS.add(folder)
    for path in folder.glob(PARTIAL_FILE_PATTERN):
        with suppress(OSError), path.open("r+b") as file:
            if lock_file(file):
                path.unlink()


def lock_file(file: IO[bytes], *, waits: bool = False) -> bool:
    """Lock a file until it is closed, also by the death of this process; False if another has it or no lock exists."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk. Some file systems, and Windows, have no such operation."""
    with suppress(PermissionError):  # the folder may be written but not read; Windows opens no folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(handle)
