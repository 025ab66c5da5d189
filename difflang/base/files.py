"""A program's text from where it stands, and back to there, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source import Source

MOST_BYTES = 64 * 2**20


def read(path: Path, name: str) -> Source:
    """The text of a program. Errors: DL0701 where it cannot be read, DL0102 where it is no text."""
    try:
        if path.is_dir():
            raise unreadable(name, "this is a directory", "name a file in it")
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(name, (error.strerror or "it cannot be read").lower()) from None
    return decoded(data, name)


def decoded(data: bytes, name: str) -> Source:
    """A program's text from its bytes. Errors: DL0102 where it is no text, DL1004 where it is too much."""
    if len(data) > MOST_BYTES:
        raise DifflangError(
            Diagnostic(
                "DL1004",
                f"{name}: a program of {len(data) >> 20} MiB is too large",
                (),
                (f"at most {MOST_BYTES >> 20} MiB are read",),
            )
        )
    try:
        return Source(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DifflangError(
            Diagnostic(
                "DL0102", f"{name}: this is not a text file", (), (f"byte {error.start} (line {line}) is not UTF-8",)
            )
        ) from None


def unreadable(name: str, why: str, help: str = "") -> DifflangError:
    return DifflangError(Diagnostic("DL0701", f"cannot read {name}: {why}", (), (help,) if help else ()))


def replace(path: Path, text: str) -> None:
    """Put a text in the place of a file's, with the same rights; a reader finds the one or the other.

    Errors: OSError where that is not possible; the file is then as it was.
    """
    path = path.resolve()  # a link goes on leading to its file
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(temporary, path.stat().st_mode & 0o7777)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
