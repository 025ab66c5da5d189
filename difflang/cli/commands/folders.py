"""Which files are meant: those named, and of folders every `*.dfl` in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path


def find_programs(paths: Iterable[str]) -> list[str]:
    """The files that paths stand for, each once; folders in the order of their names, hidden ones left out."""
    found: dict[str, None] = {}
    for path in paths:
        found.update(dict.fromkeys(programs_in_folder(Path(path)) if Path(path).is_dir() else (path,)))
    return list(found)


def programs_in_folder(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.dfl")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield str(path)
