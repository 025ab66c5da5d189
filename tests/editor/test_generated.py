"""The lists of words in every editor's files are those of the language."""

from __future__ import annotations

import importlib.util
import json
import plistlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("editor_generate", ROOT / "editor" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module  # its dataclass asks for it
    spec.loader.exec_module(module)
    return module


def test_nothing_is_stale(generate: ModuleType) -> None:
    """`python editor/generate.py` writes what differs."""
    assert [str(path.relative_to(ROOT)) for path in generate.stale()] == []


@pytest.mark.parametrize("name", ["keyword", "dtype", "function", "operator"])
def test_a_new_word_reaches_every_editor(generate: ModuleType, name: str) -> None:
    """What is generated does follow the lists: a word more changes each file."""
    from dataclasses import replace

    found = generate.words()
    more = replace(found, **{f"{name}s": (*getattr(found, f"{name}s"), "brandnew")})
    for path, render in generate.FILES.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        assert "brandnew" not in text
        assert "brandnew" in render(text, more), path


def test_sublime_text_reads_the_grammar_of_vs_code() -> None:
    """As a property list, so what holds of the one holds of the other."""
    written = ROOT / "editor" / "sublime" / "difflang.tmLanguage"
    grammar = ROOT / "editor" / "vscode" / "syntaxes" / "difflang.tmLanguage.json"
    assert plistlib.loads(written.read_bytes()) == json.loads(grammar.read_text(encoding="utf-8"))
    comments = plistlib.loads((written.parent / "Comments.tmPreferences").read_bytes())
    assert comments["scope"] == "source.difflang"
    assert comments["settings"]["shellVariables"] == [{"name": "TM_COMMENT_START", "value": "# "}]


def test_a_contextual_word_nobody_speaks_of_is_refused(generate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(generate.FOLLOWED, "_BY")
    with pytest.raises(ValueError, match="_BY"):
        generate.words()
