"""Runs files of tests in processes that have several devices, and `in_two_processes.py` in two that have two."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.devices import python_on_devices

TESTS = Path(__file__).parent / "on_four_devices.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count"), [("on_four_devices.py", 4), ("mesh_on_four_devices.py", 4), ("parts_on_eight_devices.py", 8)]
)
def test_on_several_devices(name: str, count: int) -> None:
    done = python_on_devices("-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS.with_name(name)), count=count)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_in_two_processes(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    def run(number: int) -> None:
        done = python_on_devices(
            str(TESTS.with_name("in_two_processes.py")), address, str(number), str(tmp_path), count=2
        )
        assert done.returncode == 0, done.stdout + done.stderr

    with ThreadPoolExecutor(2) as both:
        list(both.map(run, range(2)))
