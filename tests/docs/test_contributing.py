"""The pages of `docs/contributing/` are followed, step by step, in a copy of the repository.

A line before a block says which file it goes into, and where; a `sh` block is run there. A step that no longer fits the
code fails here, and its page is what has to change.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.documents import ROOT

PAGES = sorted((ROOT / "docs" / "contributing").glob("adding-*.md"))
COPIED = ("difflang", "grammar", "stdlib", "docs", "editor", "tests", "pyproject.toml")
IGNORED = shutil.ignore_patterns("node_modules", "pictures", ".hypothesis")  # not __pycache__: it saves seconds

STEP = re.compile(
    r"^(?:.*\. )?(?:New file `(?P<new>[^`]+)`"
    r"|In `(?P<file>[^`]+)`, (?P<where>at the end|below|above|in place of)(?: `(?P<line>[^`]+)`)?):$"
)
DELETE = re.compile(r"^In `(?P<file>[^`]+)`, delete the line that begins with `(?P<line>[^`]+)`\.$", re.MULTILINE)
FENCE = re.compile(r"^(?P<mark>`{3,})(?P<language>\w+)\n(?P<text>.*?)^(?P=mark)\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Step:
    """A block of a page, or a line to delete: the file, where in it (`sh` for commands), and the text."""

    where: str
    file: str
    line: str
    text: str


def steps(page: str) -> Iterator[Step]:
    """What a page tells one to do, in its order. Errors: AssertionError for a block that belongs nowhere."""
    found: list[tuple[int, Step]] = []
    for match in FENCE.finditer(page):
        before = page[: match.start()].rstrip().splitlines()
        step = STEP.match(before[-1]) if before else None
        if match["language"] == "sh":
            found.append((match.start(), Step("sh", "", "", match["text"])))
            continue
        assert step, f"no line says where this block goes:\n{match['text']}"
        where = "new" if step["new"] else step["where"]
        found.append((match.start(), Step(where, step["new"] or step["file"], step["line"] or "", match["text"])))
    found += [(m.start(), Step("delete", m["file"], m["line"], "")) for m in DELETE.finditer(page)]
    yield from (step for _, step in sorted(found, key=lambda pair: pair[0]))


def edited(text: str, step: Step) -> str:
    """A file's text after a step."""
    lines = text.splitlines(keepends=True)
    if step.where == "at the end":
        return f"{text}\n\n{step.text}" if step.file.endswith(".py") else f"{text}\n{step.text}"
    at = [i for i, line in enumerate(lines) if line.strip().startswith(step.line)]
    assert len(at) == 1, f"{len(at)} lines of {step.file} begin with {step.line!r}"
    (i,) = at
    match step.where:
        case "below":
            lines.insert(i + 1, step.text)
        case "above":
            lines.insert(i, step.text)
        case _:
            lines[i] = step.text
    return "".join(lines)


def run(command: str, folder: Path) -> None:
    words = shlex.split(command)
    words[:1] = {"python": [sys.executable], "difflang": [sys.executable, "-m", "difflang"]}[words[0]]
    environment = os.environ | {"PYTHONPATH": str(folder), "JAX_PLATFORMS": "cpu"}
    environment.pop("DIFFLANG_ACCEPT", None)
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"


@pytest.mark.slow
@pytest.mark.nightly_cases("adding-a-(pass|statement|library-function)")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_steps_of_a_page_work(page: Path, tmp_path: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=IGNORED)
        else:
            shutil.copy(source, tmp_path / name)
    for step in steps(page.read_text(encoding="utf-8")):
        file = tmp_path / step.file
        if step.where == "sh":
            for command in step.text.splitlines():
                run(command, tmp_path)
        elif step.where == "new":
            assert not file.exists(), f"{step.file} is no new file"
            file.write_text(step.text, encoding="utf-8")
        else:
            file.write_text(edited(file.read_text(encoding="utf-8"), step), encoding="utf-8")


def test_every_page_has_steps_and_is_linked() -> None:
    overview = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(PAGES) >= 5
    for page in PAGES:
        assert any(step.where == "sh" for step in steps(page.read_text(encoding="utf-8"))), page.name
        assert f"docs/contributing/{page.name}" in overview


def test_paths_that_the_pages_name_exist() -> None:
    for page in [ROOT / "CONTRIBUTING.md", *PAGES]:
        text = page.read_text(encoding="utf-8")
        own = {step.file for step in steps(text) if step.where == "new"} if page in PAGES else set()
        for path in re.findall(r"`((?:difflang|stdlib|tests|grammar|docs|editor)/[\w./-]*)`", text):
            assert path in own or (ROOT / path).exists() or "DL0513" in path, f"{page.name}: {path}"


def test_every_recipe_of_the_justfile_is_listed() -> None:
    recipes = re.findall(r"^([a-z]\w*)\b.*:$", (ROOT / "justfile").read_text(encoding="utf-8"), re.MULTILINE)
    overview = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert recipes and set(recipes) == set(re.findall(r"^\| `just (\w+)", overview, re.MULTILINE))


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```python\nx = 1\n```\n", "no line says where"),
        ("In `a.py`, below `missing`:\n\n```python\nx = 1\n```\n", "0 lines of a.py begin with"),
    ],
)
def test_a_wrong_step_is_seen(page: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        for step in steps(page):
            edited("def f(): ...\n", step)
