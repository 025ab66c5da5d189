"""Programs that make XLA on the CPU crawl or die when they reach it whole: run these whenever jaxlib moves.

Every compile is in a process of its own, so that a crash is a failed test. Limits are several times what an idle
machine takes, in CPU time; what they guard against is thousands of times slower, or never ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
PROGRAMS = Path(__file__).with_name("programs.py")


def ran(name: str, size: int, elements: int, *more: str, seconds: float = 300) -> dict[str, Any]:
    command = [sys.executable, str(PROGRAMS), name, str(size), str(elements), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"the process died ({done.returncode}): {done.stderr[-2000:]}"
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("name", "size", "elements"),
    [
        ("gradient_of_line", 5000, 64),
        ("gradient_of_line", 5000, 0),
        ("gradient_of_line", 1000, 100_000),
        ("nested", 5000, 64),
        ("tanh_cos", 5000, 64),
        ("reductions", 5000, 64),
        ("wide", 5000, 64),
        ("long_sum", 5000, 64),
        ("small_calls", 5000, 64),
        ("matrices", 5000, 64),
        ("doubling", 80, 64),
    ],
)
@pytest.mark.nightly_except("doubling-80-64")
def test_long_programs_compile_and_run(name: str, size: int, elements: int) -> None:
    found = ran(name, size, elements)
    assert found["right"]
    assert found["compile"] < 40
    assert found["run"] < 25 + elements * size / 1e5


@pytest.mark.parametrize("elements", [0, 64])
@pytest.mark.parametrize("name", ["gradient_of_line", "nested", "matrices"])
@pytest.mark.nightly
def test_twenty_thousand_equations_compile_and_run(name: str, elements: int) -> None:
    found = ran(name, 20_000, elements)
    assert found["right"]
    assert found["run"] < 50


def test_beyond_the_limit_is_one_clean_refusal() -> None:
    assert ran("long_sum", 60_000, 64) == {"refused": "DL1010"}
    assert ran("doubling", 400, 64) == {"refused": "DL1010"}


@pytest.mark.parametrize(("name", "size"), [("tanh_cos", 650), ("matrices", 4000)])
@pytest.mark.nightly
def test_the_cuts_are_still_needed(name: str, size: int) -> None:
    """When this fails, XLA has learned to compile such programs by itself: measure, and cut less."""
    cut, whole = ran(name, size, 64), ran(name, size, 64, "uncut")
    assert cut["right"]
    assert whole["right"]
    assert whole["compile"] > 3 * cut["compile"]
