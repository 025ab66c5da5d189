"""The TextMate grammar, read by the engine of VS Code, agrees with our own parser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.highlight import PROGRAMS, classes, differences
from support.node import modules, node

HERE = Path(__file__).parent
GRAMMAR = HERE.parents[1] / "editor" / "vscode" / "syntaxes" / "difflang.tmLanguage.json"
SCOPES = {
    "comment.line.documentation": "doc",
    "comment": "comment",
    "constant.character.escape": "escape",
    "constant.language": "literal",
    "constant.numeric": "number",
    "entity.name.decorator": "attribute",
    "entity.name.function": "declared",
    "keyword.operator": "operator",
    "keyword": "keyword",
    "punctuation.section.embedded": "hole",
    "punctuation": "",
    "string": "string",
    "support.type": "dtype",
    "support": "builtin",
    "variable": "",
    "meta": "",
    "source": "",
}


@pytest.fixture(scope="module")
def tokens() -> dict[str, list[list[tuple[list[str], int, int]]]]:
    programs = [[path.as_posix(), path.read_text(encoding="utf-8")] for path in PROGRAMS]
    return json.loads(
        node(HERE / "textmate" / "tokens.js", modules(HERE / "textmate"), GRAMMAR, input=json.dumps(programs))
    )


def coloured(text: str, lines: list[list[tuple[list[str], int, int]]]) -> list[str]:
    """The class of each character, by the innermost scope that has one."""
    found: list[str] = []
    for line, tokens in zip(text.split("\n"), lines, strict=True):
        kinds = [""] * (len(line) + 1)
        for scopes, start, end in tokens:
            kinds[start:end] = [next(kind for scope, kind in SCOPES.items() if scopes[-1].startswith(scope))] * (
                end - start
            )
        found += kinds[: len(line) + 1]
    return found[: len(text)]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_it_agrees_with_our_own_parser(path: Path, tokens: dict[str, list[list[tuple[list[str], int, int]]]]) -> None:
    text = path.read_text(encoding="utf-8")
    assert differences(text, coloured(text, tokens[path.as_posix()]), classes(text)) == []
