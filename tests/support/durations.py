"""Which cases fit into the twelve minutes of continuous integration, by how long tests took: `tests/durations.tsv`.

The table has a row for each test function whose cases take more than a second together or four seconds each. Of these
a run of folders takes by day as many cases as fit in a second, at least one, and none of a function whose single case
takes longer than four; the rest is nightly. Which ones is chosen by their ids, so it is always the same ones and a
further case moves few. What costs little is not thinned, nor what is marked `daily`. On an AMD EPYC (Zen, two cores)
this leaves 72 % of the cases in 29 % of the time. `just durations` writes the table.
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

TABLE = Path(__file__).parents[1] / "durations.tsv"
SECONDS_OF_A_FUNCTION = 1.0  # 2,400 functions, most of them far below it, take 1,000 s: half of that on two cores
SECONDS_OF_A_CASE = 4.0
RECORDING = bool(os.environ.get("DIFFLANG_DURATIONS"))
CHEAP = 0.05  # seconds of a case: 14,000 of 21,000 take less, and 5 % of the time


def read() -> dict[str, float]:
    """Seconds of one case of each function in the table."""
    rows = (line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines())
    return {test: float(seconds) for seconds, test in rows}


def thin(items: Iterable[pytest.Item]) -> None:
    """Adds `nightly` to the cases that do not fit; where times are recorded, all do."""
    table = {} if RECORDING else read()
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        test = item.nodeid.partition("[")[0]
        if test in table and item.get_closest_marker("daily") is None and item.get_closest_marker("nightly") is None:
            cases[test].append(item)
    for test, of_test in cases.items():
        of_test.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        for item in of_test[fitting(table[test]) :]:
            item.add_marker("nightly")


def fitting(seconds: float) -> int:
    """How many cases are tested by day where each takes this long."""
    return 0 if seconds > SECONDS_OF_A_CASE else max(1, int(SECONDS_OF_A_FUNCTION / seconds))


class Recorder:
    """Writes the table when a run of all tests ends."""

    def __init__(self) -> None:
        self.cases: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and teardown."""
        self.cases[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        """What takes little has no row."""
        times: dict[str, list[float]] = defaultdict(list)
        for case, seconds in self.cases.items():
            times[case.partition("[")[0]].append(seconds)
        means = {test: sum(each) / len(each) for test, each in sorted(times.items())}
        rows = [f"{mean:.2f}\t{test}\n" for test, mean in means.items() if needs_row(mean, len(times[test]))]
        TABLE.write_text("".join(rows), encoding="utf-8")


def needs_row(seconds: float, cases: int) -> bool:
    """Whether some cases are left out by day, where each takes this long."""
    return seconds > SECONDS_OF_A_CASE or (seconds > CHEAP and fitting(seconds) < cases)


def begin(config: pytest.Config) -> None:
    """Records where `DIFFLANG_DURATIONS` asks for it, in the process that hears of all tests."""
    if RECORDING and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Recorder())
