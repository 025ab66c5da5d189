"""The Pygments lexer agrees with our own, needs nothing of the compiler, and is found by its entry point."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, String, Token

from difflang.pygments import DifflangLexer
from support.highlight import PROGRAMS, ROOT, classes, differences

CLASSES = {
    Comment.Special: "doc",
    Comment: "comment",
    Keyword.Constant: "literal",
    Keyword.Type: "dtype",
    Keyword: "keyword",
    Name.Builtin: "builtin",
    Name.Decorator: "attribute",
    Name.Function: "declared",
    Number: "number",
    Operator: "operator",
    String.Escape: "escape",
    String.Interpol: "hole",
    String: "string",
    Error: "error",
    Token: "",
}


def coloured(text: str) -> list[str]:
    found: list[str] = []
    for _, token, piece in DifflangLexer().get_tokens_unprocessed(text):
        found += [next(kind for base, kind in CLASSES.items() if token in base)] * len(piece)
    return found


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_it_agrees_with_our_own_parser(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert differences(text, coloured(text), classes(text)) == []


@pytest.mark.parametrize(
    "text", ['"never closed', '"{never closed', '"{a', '{"', "é", '"{x:', "\\", "let x = `1`", '"a {b\n}"']
)
def test_a_broken_text_is_coloured_as_far_as_it_goes(text: str) -> None:
    """Every character comes back once, in order."""
    found = list(DifflangLexer().get_tokens_unprocessed(text))
    assert "".join(piece for _, _, piece in found) == text
    assert [at for at, _, _ in found] == sorted({at for at, _, _ in found})


def test_it_needs_nothing_of_the_compiler() -> None:
    ask = (
        "import sys, difflang.pygments as p; list(p.DifflangLexer().get_tokens('let x = 1'));"
        "print(sorted({'jax', 'lark', 'numpy', 'difflang.syntax'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_the_entry_point_names_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, name = project["entry-points"]["pygments.lexers"]["difflang"].split(":")
    assert getattr(importlib.import_module(module), name) is DifflangLexer


def test_a_wrong_class_is_found() -> None:
    """The comparison does compare: a dtype taken for a name is told with its line."""
    text = "let x: f32 = 1.0\n"
    got = ["" if kind == "dtype" else kind for kind in coloured(text)]
    assert differences(text, got, classes(text)) == ["line 1: 'f32' is plain, not dtype"]
