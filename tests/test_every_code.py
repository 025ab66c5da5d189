"""Every code of a diagnostic is registered and has a page, whose wrong example yields it and whose right one does not.

On a page, a block marked `wrong` gives exactly its code and one marked `right` gives nothing: ```` ```dfl ```` is
checked, with `run` run too (its options follow), with `test` tested, with `check-grad` audited, with `derive` derived,
with `without` as if a package were not installed, ```` ```python ```` is executed, with `devices` where JAX has four. A
```` ```csv ```` block is a file, and so is ```` ```dfl name.dfl ````.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import CODE_FAMILIES, CODE_TITLES
from difflang.base.package_data import error_page
from difflang.cli import main
from difflang.host import optional_packages
from support.declared_ops import restored_ops
from support.devices import python_on_devices

ROOT = Path(__file__).resolve().parents[1]
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "errors").glob("*.md"))}
SLOW = {"DL1004", "DL1010", "DL1011", "DL1013"}


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    words: tuple[str, ...]
    text: str


def blocks(page: str) -> list[Block]:
    found = re.findall(r"^```(\w+) ?(.*)\n((?:.*\n)*?)```$", page, flags=re.MULTILINE)
    return [Block(language, tuple(words.split()), text) for language, words, text in found]


def used() -> set[str]:
    """Every code that the package mentions."""
    texts = [
        path.read_text(encoding="utf-8") for path in (ROOT / "difflang").rglob("*.py") if path.name != "error_codes.py"
    ]
    return {code for text in texts for code in re.findall(r"\bDL\d{4}\b", text)}


def test_every_code_is_registered_used_and_explained() -> None:
    assert used() == set(CODE_TITLES)
    assert set(PAGES) == set(CODE_TITLES)


@pytest.mark.parametrize("code", CODE_TITLES)
def test_a_code_has_a_family_a_title_and_a_page(code: str) -> None:
    assert code[2:4] in CODE_FAMILIES
    first, _, rest = error_page(code).partition("\n")
    assert first == f"# {code}: {CODE_TITLES[code]}"
    assert len(rest.split("\n```")[0].strip()) > 20, "a page begins with the cause"
    assert len(rest.splitlines()) <= 40


def prepare(folder: Path, page: list[Block]) -> None:
    """The files that a page speaks of."""
    for block in page:
        if block.words and block.words[0].endswith((".csv", ".dfl")):
            (folder / block.words[0]).write_text(block.text, encoding="utf-8")
    np.savez(folder / "data.npz", images=np.zeros(3, np.float32), labels=np.zeros(2, np.float32))


@contextmanager
def without(package: str) -> Iterator[None]:
    """As where a package is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        if package:
            patch.setattr(optional_packages, "find_spec", lambda name: None if name == package else find_spec(name))
        yield


def outcome(folder: Path, block: Block) -> tuple[set[str], str]:
    """The codes that a block yields, and everything that was said."""
    if "devices" in block.words:
        said = python_on_devices("-c", block.text).stderr
        return set(re.findall(r"error\[(DL\d{4})\]", said)), said
    if block.language == "python":
        try:
            with restored_ops():
                exec(compile(block.text, "page", "exec"), {})  # noqa: S102 - a test of our own pages
        except DifflangError as error:
            return {d.code for d in error.diagnostics}, str(error)
        return set(), ""
    program = folder / "program.dfl"
    program.write_text(block.text, encoding="utf-8")
    options = [word for word in block.words if word.startswith("--")]
    engine = [] if options else ["--engine=interpret"]
    commands = ("run", "test", "check-grad", "derive", "partition")
    command = next((word for word in commands if word in block.words), "check")
    with without(block.words[block.words.index("without") + 1] if "without" in block.words else ""):
        result = CliRunner().invoke(
            main, [command, *(engine if command in commands[:3] else []), *options, str(program)]
        )
    assert result.exit_code in (0, 1, 2, 3), result.output
    return set(re.findall(r"^(?:error|warning)\[(DL\d{4})\]", result.output, flags=re.MULTILINE)), result.output


def cases() -> list[object]:
    return [pytest.param(code, marks=pytest.mark.slow if code in SLOW else ()) for code in CODE_TITLES]


@pytest.mark.parametrize("code", cases())
def test_examples_of_a_page(code: str, tmp_path: Path) -> None:
    page = blocks(PAGES[code])
    prepare(tmp_path, page)
    wrong = [block for block in page if "wrong" in block.words]
    right = [block for block in page if "right" in block.words]
    assert wrong and right
    for block in wrong:
        found, said = outcome(tmp_path, block)
        assert found == {code} or (code == "DL1001" and code in found), said
    for block in right:
        found, said = outcome(tmp_path, block)
        assert not found, said


@pytest.mark.parametrize("asked", ["DL0310", "dl0310", "310", "0310"])
def test_explain_prints_a_page(asked: str) -> None:
    result = CliRunner().invoke(main, ["explain", asked])
    assert result.exit_code == 0
    assert result.output == error_page("DL0310")


def test_explain_knows_no_other_codes() -> None:
    result = CliRunner().invoke(main, ["explain", "DL0391"])
    assert result.exit_code == 2
    assert "Did you mean" in result.output


def test_explain_lists_every_code_below_its_chapter() -> None:
    result = CliRunner().invoke(main, ["explain"])
    assert result.exit_code == 0
    for number, family in CODE_FAMILIES.items():
        (chapter,) = [part for part in result.output.split("\n\n") if part.startswith(f"DL{number}  {family}\n")]
        listed = dict(line.strip().split("  ", 1) for line in chapter.splitlines()[1:])
        assert listed == {code: title for code, title in CODE_TITLES.items() if code[2:4] == number}


@pytest.mark.parametrize("asked", ["DL0310x", "DL031", "DLO310", "nothing"])
def test_an_unknown_code_gets_the_nearest_or_the_list(asked: str) -> None:
    result = CliRunner().invoke(main, ["explain", asked])
    assert result.exit_code == 2
    assert "Did you mean 'DL" in result.output or "`difflang explain` lists them" in result.output
