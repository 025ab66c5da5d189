"""The standard library's own tests, examples and rules, run by both engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from difflang.base.source import Source
from difflang.driver.engine import Engine
from difflang.driver.examples import examples_in
from difflang.driver.testing import Options, Suite, opened
from difflang.syntax import tree
from difflang.syntax.parse import parse
from support.documents import ROOT

FILES = sorted((ROOT / "stdlib").glob("*.dfl"))
UNDRAWN = {"eliminated", "cg", "bisect"}  # take functions: a test beside, and tests/stdlib, compare derivatives


def suite(path: Path, engine: str) -> Suite:
    return opened(str(path), Options(Engine(engine)), f"stdlib/{path.name}")  # type: ignore[arg-type]


ALL = [(path, n, case) for path in FILES for n, case in enumerate(suite(path, "interpret").cases)]


@pytest.mark.parametrize(("path", "number"), [(p, n) for p, n, _ in ALL], ids=[c.title for _, _, c in ALL])
@pytest.mark.parametrize("engine", ["xla", "interpret"])
def test_it_is_as_it_says(path: Path, number: int, engine: str) -> None:
    outcome = suite(path, engine).run(number)
    wanted = "skipped" if outcome.case.kind == "rule" and outcome.case.name in UNDRAWN else "passed"
    assert outcome.result == wanted, outcome.report


def test_every_public_function_has_an_example_of_itself() -> None:
    for path in FILES:
        source = Source(path.name, path.read_text(encoding="utf-8"))
        items = parse(source).module.items
        found = {comment.name: comment for comment in examples_in(source, items)}
        for f in [item for item in items if isinstance(item, tree.Fn) and item.pub]:
            assert f.name in found, f"{f.name} in {path.name} has no example"
            assert all(f.name in line.span.text and line.expected for line in found[f.name].lines)
