"""The standard library's own tests, run by both engines, and its rules and examples, interpreted.

By day those of a few files are compiled, at night all; rules at night.

What its functions give when compiled is compared with other libraries in `tests/stdlib`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from difflang.base.source import Source
from difflang.driver.doc_examples import find_examples
from difflang.execution.engine import Engine
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.tools.testing.suite import Suite, SuiteCase, SuiteOptions, open_suite
from support.documents import ROOT

FILES = sorted((ROOT / "stdlib").glob("*.dfl"))
UNDRAWN = {"eliminated", "cg", "gmres", "bicgstab", "minimizer", "leap"} | {
    "bisect", "chandrupatla", "newton", "secant", "newton_system", "fixed_point",
    "polar",  # its derivative without the rule is that of singular vectors, which rounding decides
}  # fmt: skip  # take functions: a test beside, and tests/stdlib, compare derivatives


@cache
def suite(path: Path, engine: str) -> Suite:
    return open_suite(str(path), SuiteOptions(Engine(engine)), f"stdlib/{path.name}")  # type: ignore[arg-type]


def titles(path: Path) -> list[tuple[str, str]]:
    """The kind and the title of each case, as its suite has them: a suite checks its file, which takes seconds."""
    source = Source(path.name, path.read_text(encoding="utf-8"))
    items = parse(source).module.items
    found = [("test", t.name, t.span) for t in items if isinstance(t, tree.Test)]
    found += [("example", e.name, e.span) for e in find_examples(source, items)]
    found += [("rule", r.name, r.span) for r in items if isinstance(r, tree.Rule) and not r.unchecked]
    found.sort(key=lambda each: each[2].position[0])
    return [(kind, SuiteCase(path.name, 0, kind, name).title) for kind, name, _ in found]


SHORT = {"data", "image", "losses", "matrices", "optim", "quad", "sequence", "spatial"}  # compiled by day too


def runs() -> Iterator[Any]:
    """Rules at night: `tests/stdlib/test_rules.py` verifies them by day. Their bodies are interpreted by any engine."""
    for path in FILES:
        for number, (kind, title) in enumerate(titles(path)):
            for engine in ("interpret", "xla") if kind == "test" else ("interpret",):
                night = kind == "rule" or (engine == "xla" and path.stem not in SHORT)
                marks = [pytest.mark.nightly] if night else []
                yield pytest.param(path, number, title, engine, id=f"{title}-{engine}", marks=marks)


@pytest.mark.parametrize(("path", "number", "title", "engine"), runs())
def test_it_is_as_it_says(path: Path, number: int, title: str, engine: str) -> None:
    outcome = suite(path, engine).run(number)
    assert outcome.case.title == title
    wanted = "skipped" if outcome.case.kind == "rule" and outcome.case.name in UNDRAWN else "passed"
    assert outcome.result == wanted, outcome.report


@pytest.mark.daily
def test_every_public_function_has_an_example_of_itself() -> None:
    for path in FILES:
        source = Source(path.name, path.read_text(encoding="utf-8"))
        items = parse(source).module.items
        found = {comment.name: comment for comment in find_examples(source, items)}
        for f in [item for item in items if isinstance(item, tree.Fn) and item.pub]:
            assert f.name in found, f"{f.name} in {path.name} has no example"
            lines = found[f.name].lines  # of several, those that bind a name show nothing
            assert any(f.name in line.span.text for line in lines) and lines[-1].expected
            assert all(line.expected or line.span.text.startswith(("let ", "var ")) for line in lines)
