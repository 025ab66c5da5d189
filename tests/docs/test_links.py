"""Links between documents lead somewhere, and the modules that documents name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.documents import ROOT

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"^```.*?^```$|^````.*?^````$", re.MULTILINE | re.DOTALL)
SNIPPET = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
MODULE = re.compile(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)`")
# One page is the table of old names, the others make the files that they name.
NAMES_OTHERS = {"0059-names-and-rooms.md"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_to_files(path: Path) -> None:
    text = SNIPPET.sub("", CODE.sub("", path.read_text(encoding="utf-8")))
    targets = [t for t in LINK.findall(text) if not t.startswith(("http:", "https:", "mailto:"))]
    assert not [t for t in targets if not (path.parent / t).exists()]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_modules_that_are_named_exist(path: Path) -> None:
    if path.name in NAMES_OTHERS or path.parent.name == "contributing":
        return
    found = MODULE.findall(CODE.sub("", path.read_text(encoding="utf-8")))
    assert not [m for m in found if not any((folder / m).exists() for folder in (ROOT, ROOT / "difflang"))]


def test_every_decision_is_in_the_list() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(
        r"^- (\d+)\. \[(.*)\]\((.*)\)$", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    pages = {p.name: p.read_text(encoding="utf-8").splitlines()[0] for p in folder.glob("0*.md")}
    assert {file: f"# {number}. {title}" for number, title, file in listed} == pages
