"""`difflang lsp` where it starts no server."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from difflang.cli import main
from difflang.cli.commands.servers import EDITORS

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("editor", EDITORS)
def test_an_editor_is_told_how_the_server_is_started(editor: str) -> None:
    told = CliRunner().invoke(main, ["lsp", "--print-config", editor])
    assert told.exit_code == 0 and "difflang" in told.output


def test_what_is_told_can_be_read() -> None:
    assert tomllib.loads(EDITORS["helix"])["language-server"]["difflang"] == {"command": "difflang", "args": ["lsp"]}
    assert json.loads(EDITORS["vscode"])["difflang.command"] == ["difflang"]
    assert json.loads(EDITORS["sublime"])["clients"]["difflang"]["command"] == ["difflang", "lsp"]
    assert '"difflang", "lsp"' in (ROOT / "editor" / "vim" / "lsp" / "difflang.lua").read_text(encoding="utf-8")


def test_without_its_package_it_says_how_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "difflang.lsp.request_handlers", raising=False)
    for name in ["pygls", *[name for name in sys.modules if name.startswith("pygls.")]]:  # of which some may be there
        monkeypatch.setitem(sys.modules, name, None)
    told = CliRunner().invoke(main, ["lsp"])
    assert told.exit_code == 2 and "pip install 'difflang[lsp]'" in told.output


def test_it_can_be_asked_whether_it_would_start() -> None:
    told = CliRunner().invoke(main, ["lsp", "--check"])
    assert told.exit_code == 0 and "can start" in told.output
