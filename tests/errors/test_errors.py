"""Wrong programs and what is said of them: `<name>.dfl` beside `<name>.txt`, which `just accept` rewrites."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from difflang.base.diagnostics import render
from difflang.base.source import Source
from difflang.syntax.parse import parse

FOLDER = Path(__file__).parent
PROGRAMS = sorted((FOLDER / "syntax").glob("*.dfl"))


def check(text: str, name: str, expected: Path) -> None:
    """What is said of a program is what the file says."""
    said = render(parse(Source(name, text)).diagnostics) + "\n"
    if os.environ.get("DIFFLANG_ACCEPT"):
        expected.write_text(said, encoding="utf-8")
    assert said == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_what_is_said_of_a_wrong_program(path: Path) -> None:
    check(path.read_text(encoding="utf-8"), path.name, path.with_suffix(".txt"))
