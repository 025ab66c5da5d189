"""A training in two processes, of which one is killed at a random moment, goes on as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

from difflang.cli.supervisor import free_port
from support import train_in_a_process
from support.nightly import by_day

TESTS = Path(__file__).parents[2]
MOMENTS = by_day(1, 20)
SECONDS = 3.0  # that a training takes from its first checkpoint to its end


@cache
def undisturbed() -> dict[int, float]:
    """The loss by step, on one device of this process."""
    found = train_in_a_process.fit(None, 0.0, None)
    return {int(row["step"]): row["loss"] for row in found.history}


class Training:
    """The processes of a training, with what they have said."""

    def __init__(self, checkpoint: Path, count: int, devices: int) -> None:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        words, address = [sys.executable, "-m", "support.train_in_a_process"], f"127.0.0.1:{free_port()}"
        self.outputs = [checkpoint.with_name(f"{time.monotonic_ns()}.{i}.txt") for i in range(count)]
        self.processes: list[subprocess.Popen[bytes]] = []
        for i, output in enumerate(self.outputs):
            with output.open("wb") as file:
                self.processes.append(subprocess.Popen(
                    [*words, address, str(i), str(count), str(checkpoint)], stdout=file, stderr=file,
                    stdin=subprocess.DEVNULL, env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": paths},
                ))  # fmt: skip

    def wait_until_under_way(self) -> None:
        end = time.monotonic() + 100
        while not self.losses():
            assert time.monotonic() < end, self.outputs[0].read_text()
            time.sleep(0.05)

    def wait(self) -> list[int]:
        """The exit statuses."""
        return [process.wait(timeout=100) for process in self.processes]

    def losses(self) -> dict[int, float]:
        """The loss by step, as process 0 has said it."""
        rows = [line.split() for line in self.outputs[0].read_text().splitlines()]
        return {int(row[0]): float(row[1]) for row in rows if len(row) == 2 and row[0].isdecimal()}


@pytest.mark.slow
@pytest.mark.daily
@pytest.mark.parametrize("seed", range(MOMENTS))
def test_a_killed_training_goes_on(tmp_path: Path, seed: int) -> None:
    """With both kinds of checkpoint, and on another number of processes and devices."""
    draw = random.Random(seed)
    checkpoint = tmp_path / ("state.npz", "states")[seed % 2]
    killed, victim = Training(checkpoint, 2, 2), draw.randrange(2)
    killed.wait_until_under_way()
    time.sleep(draw.uniform(0, SECONDS))
    killed.processes[victim].send_signal(signal.SIGKILL)
    killed.wait()  # the other one finds out
    count, devices = draw.choice([(2, 2), (2, 1), (1, 4), (1, 1)])
    resumed = Training(checkpoint, count, devices)
    assert resumed.wait() == [0] * count, [output.read_text() for output in resumed.outputs]
    before, after = killed.losses(), resumed.losses()
    print(f"{checkpoint.name}: {victim} killed after {sorted(before)}, with {count} x {devices} {sorted(after)}")
    for found in (before, after):
        assert found == pytest.approx({step: undisturbed()[step] for step in found}, rel=1e-10)
    # It went on after the last state that was written, and not from the beginning.
    assert {*before, *after} == {*undisturbed()} and len(before.keys() & after.keys()) <= 1
