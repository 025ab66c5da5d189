"""Values and gradients of ops, functions and random programs on split arguments: see `random_splits.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.devices import python_on_devices

RUNNER = Path(__file__).with_name("random_splits.py")


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "count"), [(0, 10), *[(seed, 40) for seed in range(1, 51)]])
@pytest.mark.nightly_cases(r"\d+-40")
def test_split_arguments_give_what_unsplit_ones_give(seed: int, count: int) -> None:
    done = python_on_devices(str(RUNNER), str(seed), str(count))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.nightly
def test_most_exchanges_are_predicted() -> None:
    """Those of windows along a split axis, and of lanes with loops of their own, XLA chooses."""
    done = python_on_devices(str(RUNNER.with_name("random_exchanges.py")), "1", "60")
    found = re.findall(r"^(\d+) (value.*|gradient.*)$", done.stdout, re.MULTILINE)
    figures = {what: int(count) for count, what in found}
    assert figures["value alike"] >= 0.85 * figures["value"], done.stdout + done.stderr
    assert figures["gradient alike"] >= 0.6 * figures["gradient"], done.stdout
