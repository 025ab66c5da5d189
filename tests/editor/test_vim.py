"""Vim agrees with our own parser on colours, with the formatter on indentation, and `:make` finds places of reports."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from support.highlight import PROGRAMS, classes, differences

HERE = Path(__file__).parent
PLUGIN = HERE.parents[1] / "editor" / "vim"
GROUPS = {
    "difflangAttribute": "attribute",
    "difflangBoolean": "literal",
    "": "",
    "difflangBrace": "hole",
    "difflangBraces": "",
    "difflangHole": "",
    "difflangComment": "comment",
    "difflangConstant": "builtin",
    "difflangDoc": "doc",
    "difflangEscape": "escape",
    "difflangFunction": "builtin",
    "difflangKeyword": "keyword",
    "difflangName": "declared",
    "difflangNumber": "number",
    "difflangOperator": "operator",
    "difflangString": "string",
    "difflangType": "dtype",
}
QUICK = ("corpus", "logistic", "prelude")  # asked column by column it is slow: the others are marked so
EVERY = [pytest.param(path, marks=() if path.stem in QUICK else pytest.mark.slow, id=path.stem) for path in PROGRAMS]
pytestmark = pytest.mark.skipif(
    shutil.which("vim") is None
    or "+syntax" not in subprocess.run(["vim", "--version"], capture_output=True, text=True).stdout,
    reason="no vim with +syntax on this machine: `apt-get install vim-nox`",
)


def vim(*commands: str) -> None:
    """Carries out commands in a Vim without a terminal and without the user's settings."""
    options = [part for command in commands for part in ("--cmd" if command.startswith("let ") else "-c", command)]
    subprocess.run(
        ["vim", "-u", "NONE", "-i", "NONE", "-n", "-es", *options],
        capture_output=True, stdin=subprocess.DEVNULL, timeout=120, check=False,
    )  # fmt: skip


def groups(program: Path, out: Path) -> list[str]:
    """The lines that groups.vim writes for a program."""
    corpus = json.dumps([[str(program), str(out)]])
    vim(f"let g:plugin = {json.dumps(str(PLUGIN))}", f"let g:corpus = {corpus}", f"source {HERE / 'groups.vim'}")
    return out.read_text(encoding="utf-8").splitlines()


def coloured(text: str, lines: list[str]) -> list[str]:
    """The class of each character from the groups of the bytes of each line."""
    found: list[str] = []
    for line, written in zip(text.removesuffix("\n").split("\n"), lines, strict=True):
        names = written.split(";")
        at = 0
        for char in line:
            found.append(GROUPS[names[at]])
            at += len(char.encode())
        found.append("")
    return found


@pytest.mark.parametrize("path", EVERY)
@pytest.mark.nightly_except("corpus|digits|math|kalman")
def test_it_agrees_with_our_own_parser(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    head, *lines = groups(path, tmp_path / "groups")
    assert head == "filetype difflang"
    assert differences(text, coloured(text, lines), classes(text)) == []


def test_it_indents_as_the_formatter_does(tmp_path: Path) -> None:
    """Every line of the standard library that no bracket or operator of another line moves."""
    text = (HERE.parents[1] / "stdlib" / "prelude.dfl").read_text(encoding="utf-8")
    file = tmp_path / "program.dfl"
    file.write_text("\n".join(line.strip() for line in text.split("\n")), encoding="utf-8")
    vim(f"set runtimepath^={PLUGIN}", "filetype plugin indent on", f"edit {file}", "normal! gg=G", "write", "quitall!")
    assert file.read_text(encoding="utf-8") == text


def test_make_finds_the_place_of_a_report(tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    report.write_text(
        "error[DL0310]: sizes n and m are incompatible\n  --> wrong.dfl:3:46\n   |\n 3 | let x = y\n"
        "   = help: trailing axes must be equal\n\nwarning[DL0409]: always zero\n  --> wrong.dfl:7:2\n",
        encoding="utf-8",
    )
    out = tmp_path / "found.json"
    ask = "map(getqflist(), '[bufname(v:val.bufnr), v:val.lnum, v:val.col, v:val.type, v:val.text]')"
    vim(
        f"set runtimepath^={PLUGIN}", "compiler difflang", f"cd {tmp_path}", f"cgetfile {report}",
        f"call writefile([json_encode({ask})], '{out}')", "quitall!",
    )  # fmt: skip
    found = [entry for entry in json.loads(out.read_text(encoding="utf-8")) if entry[1]]
    assert found == [
        ["wrong.dfl", 3, 46, "E", "DL0310]: sizes n and m are incompatible"],
        ["wrong.dfl", 7, 2, "W", "DL0409]: always zero"],
    ]
