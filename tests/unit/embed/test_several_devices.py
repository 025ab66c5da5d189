"""Runs the tests of `on_four_devices.py` in a process that has four devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.devices import python_on_devices

TESTS = Path(__file__).parent / "on_four_devices.py"


@pytest.mark.slow
def test_on_four_devices() -> None:
    done = python_on_devices("-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS))
    assert done.returncode == 0, done.stdout + done.stderr
