"""Expected files: compared, or rewritten where `DIFFLANG_ACCEPT=1` is set. Their diff is read like code."""

from __future__ import annotations

import os
from pathlib import Path


def accept(path: Path, text: str) -> None:
    """The file holds this text; with the switch on, it does from now on."""
    if os.environ.get("DIFFLANG_ACCEPT") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path} is missing: set DIFFLANG_ACCEPT=1 to write it"
    assert text == path.read_text()
