"""The examples check without a word, and run to what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from difflang.base.diagnostics import render
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import file_access, run_program
from difflang.execution.engine import Engine
from difflang.tools.testing.bench import Benchmarks
from difflang.tools.testing.suite import Suite, SuiteOptions, open_suite
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
# These run for longer than they compile, so that their machine code is worth its time.
LONG = {"char_transformer", "digits_conv", "heat_inverse", "molecules", "particles", "resnet"}
SHORT = {
    "cart_pole": ("--rounds", "1"),
    "digits_parallel": ("--epochs", "2"),
    "transformer_parallel": ("--steps", "2"),
    "char_transformer": ("--steps", "2"),
    "learned_rate": ("--rounds", "1"),
    "neural_ode": ("--steps", "5"),
    "recurrent": ("--epochs", "1"),
    "resnet": ("--epochs", "1"),
    "vae_digits": ("--epochs", "1"),
}
LEAST = {
    "digits": 0.96, "digits_conv": 0.96, "digits_parallel": 0.96, "logistic": 0.95, "recurrent": 0.96, "resnet": 0.93
}  # fmt: skip


def test_there_are_examples() -> None:
    learning = {"recurrent", "vae_digits", "char_transformer", "neural_ode", "learned_rate", "cart_pole"}
    assert {e.stem for e in EXAMPLES} >= {*LEAST, *MOST, *learning, "fit_curve", "pendulum"}


def test_an_example_is_read_on_two_pages() -> None:
    lines = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in EXAMPLES}
    assert not {name: n for name, n in lines.items() if n >= 100}


@cache
def suite(path: Path) -> Suite:
    """Read and checked once, the examples in its comments too."""
    return open_suite(str(path), SuiteOptions(Engine("interpret")))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_checks(path: Path) -> None:
    diagnostics = (*suite(path).errors, *suite(path).checked.diagnostics)
    assert not diagnostics, render(diagnostics)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
@pytest.mark.nightly_cases("particles")
def test_an_example_passes_its_own_tests(path: Path) -> None:
    found = [suite(path).run(n) for n in range(len(suite(path).cases))]
    assert all(outcome.result == "passed" for outcome in found), "\n".join(o.report for o in found)


def test_examples_show_tests_and_benchmarks() -> None:
    kinds = {case.kind for path in EXAMPLES for case in suite(path).cases}
    assert kinds >= {"test", "example"}
    assert any(Benchmarks(str(path), SuiteOptions()).bench_items for path in EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=[pytest.mark.as_users] if p.stem in LONG else []) for p in EXAMPLES]
)
@pytest.mark.nightly_cases(
    "char_transformer|heat_inverse|digits_conv|vae_digits|particles|neural_ode|orbit|recurrent|cart_pole|molecules|pendulum"
    "|transformer_parallel|resnet"
)
def test_an_example_runs_to_the_end(path: Path) -> None:
    checked = check_program(Source(path.name, path.read_text(encoding="utf-8")), path=path)
    printed: list[str] = []
    run_program(checked, Engine("xla"), file_access(path), 0, printed.append)
    name, said = path.stem, "\n".join(printed)
    if name in LEAST:
        assert numbers(r"test accuracy (\d\.\d+)$", said)[0] >= LEAST[name]
    if name in MOST:
        words, most = MOST[name]
        assert 0 < numbers(f"{words}$", said)[0] <= most
    if name in PROMISED:
        assert PROMISED[name](said), said


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
@pytest.mark.nightly_except("fit_curve|letters")
def test_an_example_runs_from_the_command_line_and_makes_no_nan(path: Path) -> None:
    settings = ["--", *SHORT[path.stem]] if path.stem in SHORT else []
    command = [sys.executable, "-m", "difflang", "run", "--check-nans", str(path), *settings]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stderr
    assert "error[" not in done.stderr


def numbers(pattern: str, text: str) -> list[float]:
    """The numbers that a pattern finds in what was printed."""
    found = re.search(pattern, text)
    assert found, text
    return [float(number) for number in found.groups()]


def rates_fall(said: str) -> bool:
    losses = [float(found) for found in re.findall(r": loss (\S+)", said)]
    return len(losses) == 6 and losses[-1] < min(losses[:-1])


PROMISED: dict[str, Callable[[str], bool]] = {
    "fit_curve": lambda said: (
        abs(numbers(r"sum of squares (\S+), certified 5642\.7082397", said)[0] - 5642.7082397) < 1e-6
    ),
    "pendulum": lambda said: bool(re.search(r"length 1\.2[45]\d m, friction 0\.(19|20)\d /s;.*$", said)),
    "springs": lambda said: numbers(r"step 600: off by (\S+)", said)[0] < 0.001,
    "char_transformer": lambda said: numbers(r"step  499: (\S+) bits", said)[0] < 1.8,
    "heat_parallel": lambda said: abs(numbers(r"3, 1 +1\.200 +(\S+)", said)[0] - 1.2) < 0.01,
    "transformer_parallel": lambda said: numbers(r"step   99: (\S+) bits", said)[0] < 3.0,
    "vae_digits": lambda said: sum(numbers(r"   80 +(\S+) +(\S+)", said)) < 25,
    "neural_ode": lambda said: numbers(r"step  999: error (\S+)", said)[0] < 0.03,
    "learned_rate": rates_fall,
    "mixed_effects": lambda said: abs(numbers(r"compost +(\S+)", said)[0] - 4.0) < 0.4,
    "cart_pole": lambda said: all(
        abs(x) < y for x, y in zip(numbers(r" 0\.4 +(\S+) +(\S+)", said), (0.01, 0.5), strict=True)
    ),
}
