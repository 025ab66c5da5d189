"""The examples in the doc comments of the standard library: what stands after `>` gives what stands below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from difflang.base.source import Source
from difflang.syntax import tree
from difflang.syntax.parse import parse
from support.documents import ROOT, run_program, same_text

FILES = sorted((ROOT / "stdlib").glob("*.dfl"))


def functions(path: Path) -> list[tree.Fn]:
    items = parse(Source(path.name, path.read_text(encoding="utf-8"))).module.items
    return [item for item in items if isinstance(item, tree.Fn)]


def examples(doc: str) -> list[tuple[str, str]]:
    """Each expression after `>`, and the lines below it up to the next."""
    found: list[tuple[str, str]] = []
    for line in doc.split("\n"):
        if line.startswith("> "):
            found.append((line.removeprefix("> "), ""))
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]}\n{line}".strip())
    return found


def imported(path: Path) -> str:
    """The line that makes what is public in a file known; of the prelude everything is."""
    names = ", ".join(f.name for f in functions(path) if f.pub)
    return f"import {path.stem} ({names})\n" if path.stem != "prelude" else ""


ALL = [(imported(path), f.name, *e) for path in FILES for f in functions(path) for e in examples(f.doc or "")]


@pytest.mark.parametrize(("above", "name", "expression", "expected"), ALL, ids=[e[2] for e in ALL])
@pytest.mark.parametrize("engine", ["xla", "interpret"])
def test_an_example(above: str, name: str, expression: str, expected: str, engine: str) -> None:
    assert name in expression
    shown = run_program(f"{above}print({expression})\n", engine=engine).rstrip("\n")
    assert same_text(expected, shown), shown


def test_every_public_function_has_an_example() -> None:
    for path in FILES:
        for f in functions(path):
            assert not f.pub or examples(f.doc or ""), f"{f.name} in {path.name} has no example"


def test_a_wrong_example_is_caught() -> None:
    ((expression, expected),) = examples("Adds.\n> log2(8.0)\n3.1")
    assert not same_text(expected, run_program(f"print({expression})\n").rstrip("\n"))
