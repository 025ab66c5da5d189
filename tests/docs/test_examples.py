"""The examples check without a word, and run to what they promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from difflang.base.diagnostics import render
from difflang.base.source import Source
from difflang.driver import program
from difflang.driver.bench import Benchmarks
from difflang.driver.engine import Engine
from difflang.driver.testing import Options, opened
from support.documents import ROOT

EXAMPLES = sorted((ROOT / "examples").rglob("*.dfl"))
# The last number that these print, by the words before it, and what it stays below.
MOST = {
    "kalman": (r"  filtered with the fit +(\S+)", 2.3),
    "heat_inverse": (r"    8 .* ± (\S+)", 0.006),
    "orbit": (r"last place, fitted .* (\S+)", 0.01),
    "bayes": (r"    3 .* (\S+)", 1.01),
    "molecules": (r"the total changes by (\S+)", 0.2),
    "lens": (r"     14 ° .* (\S+) μm", 10.0),
    "particles": (r"surprise .* (\S+)", 768.0),
    "bundle": (r"fitted .* (\S+)", 0.003),
}
LEAST = {"digits": 0.96, "digits_conv": 0.96, "logistic": 0.95}


def test_there_are_examples() -> None:
    assert {e.stem for e in EXAMPLES} >= {*LEAST, *MOST, "fit_curve", "pendulum"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_checks(path: Path) -> None:
    checked = program.check(Source(path.name, path.read_text(encoding="utf-8")), path=path, examples=True)
    assert not checked.diagnostics, render(checked.diagnostics)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_passes_its_own_tests(path: Path) -> None:
    suite = opened(str(path), Options(Engine("interpret")))
    found = [suite.run(n) for n in range(len(suite.cases))]
    assert all(outcome.result == "passed" for outcome in found), "\n".join(o.report for o in found)


def test_examples_show_tests_and_benchmarks() -> None:
    kinds = {case.kind for path in EXAMPLES for case in opened(str(path), Options()).cases}
    assert kinds >= {"test", "example"}
    assert any(Benchmarks(str(path), Options()).found for path in EXAMPLES)


@pytest.mark.slow
def test_the_examples_run_to_the_end() -> None:
    last: dict[str, str] = {}
    for path in EXAMPLES:
        checked = program.check(Source(path.name, path.read_text(encoding="utf-8")), path=path)
        printed: list[str] = []
        program.run(checked, Engine("xla"), program.access_to(path), 0, printed.append)
        last[path.stem] = printed[-1] if printed else ""
    for name, least in LEAST.items():
        found = re.fullmatch(r"test accuracy (\d\.\d+)", last[name])
        assert found and float(found[1]) >= least, last[name]
    for name, (words, most) in MOST.items():
        found = re.fullmatch(words, last[name])
        assert found and 0 < float(found[1]) <= most, last[name]
    sum_of_squares = re.fullmatch(r"sum of squares (\S+), certified 5642\.7082397", last["fit_curve"])
    assert sum_of_squares and abs(float(sum_of_squares[1]) - 5642.7082397) < 1e-6, last["fit_curve"]
    assert re.match(r"length 1\.2[45]\d m, friction 0\.(19|20)\d /s;", last["pendulum"]), last["pendulum"]
