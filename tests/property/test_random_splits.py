"""Values and gradients of ops, functions and random programs on split arguments: see `random_splits.py`; and what
devices exchange for them: see `random_exchanges.py`.
"""

from __future__ import annotations

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
@pytest.mark.parametrize(("seed", "count"), [(0, 10), *[(seed, 40) for seed in range(1, 6)]])
@pytest.mark.nightly_cases(r"\d+-40")
def test_exchanges_are_predicted(seed: int, count: int) -> None:
    done = python_on_devices(str(RUNNER.with_name("random_exchanges.py")), str(seed), str(count))
    assert done.returncode == 0, done.stdout + done.stderr
