"""Every cell of docs/notebook.md shows, in one shell of IPython, what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cells import Shell
from support.documents import ROOT, fenced

PAGE = ROOT / "docs" / "notebook.md"


def test_the_cells_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = fenced(PAGE.read_text(encoding="utf-8"), "docs/notebook.md")
    cells = [i for i, b in enumerate(blocks) if b.language == "ipython"]
    assert len(cells) >= 5 and {b.language for b in blocks} == {"ipython", "text"}
    shell = Shell(tmp_path / "ipython")
    try:
        for i in cells:
            below = blocks[i + 1] if i + 1 < len(blocks) else None
            wanted = below.text if below is not None and below.language == "text" else ""
            found = shell.run(blocks[i].text)
            assert found.plain.rstrip("\n") == wanted.rstrip("\n"), blocks[i].name
            assert (found.error is None) == ("error[" not in wanted), blocks[i].name
    finally:
        shell.close()
