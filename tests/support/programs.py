"""The programs under `tests/programs`: those of the language's description, by chapter."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "programs"


def programs() -> dict[str, str]:
    """Each program's text, by its path below the folder."""
    return {
        path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in sorted(FOLDER.rglob("*.dfl"))
    }
