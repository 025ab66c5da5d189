"""Every block of the documentation does what the document says: programs, Python, commands.

`just accept` rewrites what stands below the programs; read the diff.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from difflang.tools.testing.suite import same_output
from support.documents import (
    KNOWN,
    ROOT,
    Block,
    accepted,
    blocks,
    documents,
    fenced,
    run_chain,
    run_dfl,
    run_sh,
    write_files,
)


def of(path: Path) -> list[Block]:
    return blocks(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))


if os.environ.get("DIFFLANG_ACCEPT"):
    for changed in documents():
        changed.write_text(accepted(changed), encoding="utf-8")
ALL = [block for path in documents() for block in of(path)]


def named(*languages: str) -> list[Block]:
    return [b for b in ALL if b.language in languages]


def folder_of(block: Block, folder: Path) -> Path:
    """A folder with the examples, and the files that the document has shown above the block."""
    (folder / "examples").symlink_to(ROOT / "examples")
    return write_files([b for b in ALL if b.document == block.document and b.line < block.line], folder)


def compare(block: Block, shown: str) -> None:
    assert same_output(block.expected, shown), f"{block.name} shows\n{shown}\nand not\n{block.expected}"


@pytest.mark.parametrize("block", named("dfl"), ids=lambda b: b.name)
def test_a_program(block: Block, tmp_path: Path) -> None:
    compare(block, run_dfl(block, folder_of(block, tmp_path)))


@pytest.mark.parametrize("block", named("python"), ids=lambda b: b.name)
def test_a_python_block(block: Block, tmp_path: Path) -> None:
    first = block.before + block.text
    same = [b for b in named("python") if b.document == block.document]
    last = max((b for b in same if (b.before + b.text).startswith(first)), key=lambda b: len(b.before))
    chain = [b for b in same if (last.before + last.text).startswith(b.before + b.text)]
    if last not in SHOWN:
        SHOWN[last] = run_chain([b.text for b in chain], folder_of(last, tmp_path))
    compare(block, SHOWN[last][chain.index(block)])


SHOWN: dict[Block, list[str]] = {}  # what the blocks of a chain print, by the last of them


@pytest.mark.parametrize("block", [b for b in named("sh") if "difflang " in b.text], ids=lambda b: b.name)
def test_commands(block: Block, tmp_path: Path) -> None:
    """The commands that begin with `difflang`, but for those that train: these are the examples' tests."""
    lines = [line for line in block.text.splitlines(keepends=True) if not line.startswith("difflang run examples/")]
    short = Block(block.document, block.line, "sh", (), "".join(lines), block.expected, "", block.below)
    compare(block, run_sh(short, folder_of(block, tmp_path)))


def test_every_example_that_a_command_names_is_there() -> None:
    for block in named("sh"):
        for file in re.findall(r"\bexamples/\w+\.dfl", block.text):
            assert (ROOT / file).is_file(), block.name


def test_every_block_of_the_readme_says_what_it_is() -> None:
    for path in [ROOT / "README.md", ROOT / "docs" / "language.md", ROOT / "docs" / "embedding.md"]:
        if path.exists():
            for block in fenced(path.read_text(encoding="utf-8"), path.name):
                assert block.language in KNOWN, block.name


def test_a_difference_is_between_programs() -> None:
    """Each line with a minus is one of a program field by field, each with a plus one of the example."""
    before, after = (ROOT / "benchmarks/residual/by_fields.dfl"), (ROOT / "examples/resnet.dfl")
    lines = {sign: path.read_text(encoding="utf-8").splitlines() for sign, path in (("-", before), ("+", after))}
    page = fenced((ROOT / "docs/language.md").read_text(encoding="utf-8"), "language.md")
    shown = [line for block in page if block.language == "diff" for line in block.text.splitlines()]
    assert shown and not [line for line in shown if line[1:] not in lines[line[0]]]


def test_the_readme_has_the_two_commands() -> None:
    """One installs and trains, one installs what tests need and runs them all; each alone in its block."""
    commands = [b.text.strip() for b in of(ROOT / "README.md") if b.language == "sh"]
    first = "python -m venv .venv && .venv/bin/python -m pip install . && .venv/bin/difflang run examples/digits.dfl"
    second = "python -m venv .venv && .venv/bin/python -m pip install -e '.[test]' && .venv/bin/python -m pytest"
    assert commands[:2] == [first, second]
    assert sum("-m pytest" in line for text in commands for line in text.splitlines()) == 1


# ---- A block that is wrong fails


def shows(markdown: str) -> tuple[str, str]:
    block = blocks(markdown, "test.md")[-1]
    return block.expected, run_dfl(block)


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("print(1.5)", "1.6"),
        ("print(1.5)", "1.5\n1.5"),
        ("print(1)", ""),
        ("print(1)", "2"),
        ("let x: f32[2] = [1.0]", ""),
        ("assert 1 == 2", ""),
        ("print(missing)", "1"),
    ],
)
def test_a_block_that_does_not_say_what_it_shows_is_caught(program: str, text: str) -> None:
    assert not same_output(*shows(f"```dfl\n{program}\n```\n\n```text\n{text}\n```\n"))


def test_blocks_that_continue() -> None:
    first = "```dfl\nlet x = 2\nprint(x)\n```\n```text\n2\n```\n"
    wrong = "```dfl continue\nprint(y)\n```\n```text\nerror[DL0201]\n```\n"
    assert same_output(*shows(first + wrong + "```dfl continue\nprint(x + 1)\n```\n```text\n3\n```\n"))
    with pytest.raises(ValueError, match="no block to continue"):
        blocks("```dfl continue\nprint(1)\n```\n", "test.md")
    with pytest.raises(ValueError, match="never ends"):
        blocks("```dfl\nprint(1)\n", "test.md")


def test_long_numbers_agree_to_a_unit_in_their_last_digit() -> None:
    assert same_output("x = 0.333333, n = 3", "x = 0.333334, n = 3")
    assert same_output("[1.0, 2.55555e-07]", "[1.0, 2.55556e-07]")
    assert not same_output("x = 0.333333", "x = 0.333335")
    assert not same_output("x = 0.3333", "x = 0.3334")
    assert not same_output("n = 333333", "n = 333334")
    assert not same_output("f32[3]", "f32[4]")
    assert not same_output("1.0", "-1.0")
    assert not same_output("1.0 nan", "1.0 inf")
