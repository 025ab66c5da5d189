"""The standard library's own tests, run by both engines, and its rules and examples, interpreted.

By day those of a few files are compiled, at night all.

What its functions give when compiled is compared with other libraries in `tests/stdlib`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from difflang.base.source import Source
from difflang.driver.doc_examples import find_examples
from difflang.execution.engine import Engine
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.tools.testing.suite import Suite, SuiteOptions, open_suite
from support.documents import ROOT

FILES = sorted((ROOT / "stdlib").glob("*.dfl"))
UNDRAWN = {"eliminated", "cg", "gmres", "bicgstab", "minimizer", "leap"} | {
    "bisect", "chandrupatla", "newton", "secant", "newton_system", "fixed_point",
    "polar",  # its derivative without the rule is that of singular vectors, which rounding decides
}  # fmt: skip  # take functions: a test beside, and tests/stdlib, compare derivatives


@cache
def suite(path: Path, engine: str) -> Suite:
    return open_suite(str(path), SuiteOptions(Engine(engine)), f"stdlib/{path.name}")  # type: ignore[arg-type]


ALL = [(path, n, case) for path in FILES for n, case in enumerate(suite(path, "interpret").cases)]
# A rule is compared with its body by the interpreter, whatever the engine of its suite.
SHORT = {"data", "image", "losses", "matrices", "optim", "quad", "sequence", "spatial"}  # compiled by day too
RUNS = [pytest.param(p, n, e, id=f"{c.title}-{e}",
                     marks=[pytest.mark.nightly] if e == "xla" and p.stem not in SHORT else [])
        for p, n, c in ALL for e in ("interpret", "xla") if e == "interpret" or c.kind == "test"]  # fmt: skip


@pytest.mark.parametrize(("path", "number", "engine"), RUNS)
@pytest.mark.nightly_cases("rule (dopri5_adjoint|logm|rk4_adjoint)-interpret")
def test_it_is_as_it_says(path: Path, number: int, engine: str) -> None:
    outcome = suite(path, engine).run(number)
    wanted = "skipped" if outcome.case.kind == "rule" and outcome.case.name in UNDRAWN else "passed"
    assert outcome.result == wanted, outcome.report


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
