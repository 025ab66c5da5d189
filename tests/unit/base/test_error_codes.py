"""Codes are registered once, in order and in a family; suggestions find what was meant."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.error_codes import CODE_FAMILIES, CODE_TITLES, nearest_word
from difflang.base.errors import classify_error

PACKAGE = Path(__file__).parents[3] / "difflang"
VERBS = ["run", "check", "test", "bench", "fmt", "repl", "derive", "trace", "check-grad", "explain", "emit", "memory"]


def test_codes_have_their_form_and_family() -> None:
    for code, meaning in CODE_TITLES.items():
        assert re.fullmatch(r"DL\d{4}", code)
        assert code[2:4] in CODE_FAMILIES
        assert meaning and not meaning.endswith(".")


def test_every_code_is_an_error_that_python_can_name() -> None:
    import difflang

    kinds = {code: type(classify_error(DifflangError(Diagnostic(code, "")))) for code in CODE_TITLES}
    assert {code: kind for code, kind in kinds.items() if getattr(difflang, kind.__name__, None) is not kind} == {}
    assert kinds["DL1012"] is difflang.LimitError and issubclass(difflang.LimitError, RuntimeError)


def test_every_code_of_the_syntax_is_registered_and_used() -> None:
    files = [*(PACKAGE / "syntax").rglob("*.py")]
    used = {code for file in files for code in re.findall(r"\bDL\d{4}\b", file.read_text(encoding="utf-8"))}
    assert used <= set(CODE_TITLES)
    assert {code for code in CODE_TITLES if code.startswith("DL01")} <= used


@pytest.mark.parametrize("verb", VERBS)
def test_every_slip_of_one_letter_finds_the_verb(verb: str) -> None:
    slips = {verb[:i] + verb[i + 1 :] for i in range(len(verb))}
    slips |= {verb[:i] + char + verb[i:] for i in range(len(verb) + 1) for char in string.ascii_lowercase}
    slips |= {verb[:i] + verb[i + 1] + verb[i] + verb[i + 2 :] for i in range(len(verb) - 1)}
    assert {nearest_word(slip, [verb]) for slip in slips if slip != verb} == {verb}


def test_nothing_near_gives_nothing() -> None:
    assert nearest_word("xyzzy", VERBS) is None
    assert nearest_word("a", []) is None
    assert nearest_word("FMT", VERBS) == "fmt"
    assert nearest_word("sinn", ["sinc", "sin", "sink"]) == "sin"
