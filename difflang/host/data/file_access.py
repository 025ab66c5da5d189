"""File access of programs: which folders they may read and write, and atomic output."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, field

from difflang.base.process_group import ProcessGroup
from difflang.base.source import Span
from difflang.base.source_files import os_error_reason, write_atomically
from difflang.types.type_errors import make_error


class FileAccess(Struct, frozen=True):
    """Where a program may read and write: its own folder, and folders that the command line allows.

    In a session, statements of a file that it has loaded have the folder of that file, found by the source's name.
    """

    folder: Path
    allowed: tuple[Path, ...] = ()
    loaded: dict[str, Path] = field(default_factory=dict[str, Path])

    def folder_of(self, span: Span) -> Path:
        """The folder of the program that the span is in."""
        return self.loaded.get(span.source.name, self.folder)

    def resolve(self, name: str, span: Span) -> Path:
        """The existing file with this name, relative to the program's folder. Errors: DL0701, DL0702."""
        path = self.allowed_path(name, span)
        if os.path.isdir(path):
            raise make_error("DL0701", f"cannot read `{name}`: this is a directory", (span, ""))
        if not os.path.isfile(path):
            raise make_error(
                "DL0701", f"cannot read `{name}`: there is no such file", (span, f"looked in {self.folder_of(span)}")
            )
        return path

    def resolve_output(self, name: str, span: Span) -> Path:
        """The path to write a file with this name to. Errors: DL0702, DL0710."""
        path = self.allowed_path(name, span)
        if os.path.isdir(path):
            raise make_error("DL0710", f"cannot write `{name}`: this is a directory", (span, ""))
        # Folders are not created: a typing error in a path should not scatter files.
        if not os.path.isdir(path.parent):
            raise make_error(
                "DL0710", f"cannot write `{name}`: there is no such folder", (span, ""), help="create it first"
            )
        return path

    def allowed_path(self, name: str, span: Span) -> Path:
        """The path with this name. Errors: DL0702 outside the allowed folders, DL0701 for an invalid path."""
        folder = self.folder_of(span)
        try:
            # Links are followed first, so that one cannot lead out of the allowed folders.
            path = (folder / name).resolve()
        except (ValueError, OSError, RuntimeError):
            raise make_error("DL0701", "this is not a file name", (span, "")) from None
        roots = [folder.resolve(), *(a.resolve() for a in self.allowed)]
        if not any(path.is_relative_to(root) for root in roots):
            raise make_error(
                "DL0702",
                f"`{name}` is outside the program's folder",
                (span, ""),
                help="allow its folder on the command line: `--allow DIR`",
            )
        return path


def write_output(access: FileAccess, group: ProcessGroup, data: bytes, name: str, span: Span) -> Path:
    """Write a file atomically, in the first process of the program; its path.

    Errors: DL0702; DL0710, with the old file unchanged.
    """
    return change_output(access, group, lambda path: write_atomically(path, data), name, span)


def change_output(
    access: FileAccess, group: ProcessGroup, change: Callable[[Path], None], name: str, span: Span
) -> Path:
    """Change a file, in the first process of the program; its path. Errors: DL0702, DL0710."""
    path = access.allowed_path(name, span)

    def change_once() -> None:
        try:
            change(access.resolve_output(name, span))
        except OSError as error:
            raise make_error("DL0710", f"cannot write `{name}`: {os_error_reason(error)}", (span, "")) from None

    refused = make_error("DL0710", f"cannot write `{name}`: process 0 could not", (span, ""))
    group.run_once(change_once, refused)
    return path


def append_data(path: Path, data: bytes) -> None:
    """Add lines to the end of a file. Errors: OSError, with the file as it was before."""
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        if end and (file.seek(end - 1), file.read(1))[1] != b"\n":
            data = b"\n" + data
        try:
            file.write(data)
            file.flush()
        except OSError:
            file.truncate(end)
            raise
