"""Which cases fit into the twelve minutes of continuous integration, by how long tests took: `tests/durations.tsv`.

The table has a row for each case that takes longer than 0.8 seconds, and for each test function whose other cases take
more than 0.4 seconds together. The former are nightly. Of the latter a run of folders takes by day as many cases as
fit in 0.4 seconds, at least one, and of n cases √n / 2; the rest is nightly. Which ones is chosen by their ids: it is
always the same ones, and a further case moves few. What costs little is not thinned, nor what is marked `daily`. On two
cores of an AMD EPYC (Zen without AVX512) this leaves 70 % of the cases, in a fifth of the time. `just durations` writes
the table.
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import isqrt
from pathlib import Path

import pytest

TABLE = Path(__file__).parents[1] / "durations.tsv"
# So that 2,400 functions, most of them far below these, take 550 s: a bit more than half of that on two cores.
SECONDS_OF_A_FUNCTION = 0.4
SECONDS_OF_A_CASE = 0.8
RECORDING = bool(os.environ.get("DIFFLANG_DURATIONS"))
CHEAP = 0.05  # seconds of a case: 14,000 of 21,000 take less, and 5 % of the time


def read() -> dict[str, float]:
    """Seconds of each case in the table, and of one case of each function in it."""
    rows = (line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines())
    return {test: float(seconds) for seconds, test in rows}


def thin(items: Iterable[pytest.Item]) -> None:
    """Adds `nightly` to the cases that do not fit; where times are recorded, all do."""
    table = {} if RECORDING else read()
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        test = item.nodeid.partition("[")[0]
        if item.get_closest_marker("daily") is not None or item.get_closest_marker("nightly") is not None:
            continue
        if table.get(item.nodeid, 0.0) > SECONDS_OF_A_CASE:
            item.add_marker("nightly")
        elif test in table:
            cases[test].append(item)
    for test, of_test in cases.items():
        of_test.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        for item in of_test[cases_by_day(table[test], len(of_test)) :]:
            item.add_marker("nightly")


def cases_by_day(seconds: float, cases: int) -> int:
    """How many of so many cases are tested by day where each takes this long."""
    return max(1, int(SECONDS_OF_A_FUNCTION / seconds), isqrt(cases) // 2)


class Recorder:
    """Writes the table when a run of all tests ends."""

    def __init__(self) -> None:
        self.cases: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and teardown."""
        self.cases[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Replaces the table."""
        TABLE.write_text("".join(f"{seconds:.2f}\t{test}\n" for test, seconds in rows_of(self.cases)), encoding="utf-8")


def rows_of(cases: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """The rows for cases that take so many seconds. What takes little has no row."""
    others: dict[str, list[float]] = defaultdict(list)
    for case, seconds in sorted(cases.items()):
        if seconds > SECONDS_OF_A_CASE:
            yield case, seconds
        else:
            others[case.partition("[")[0]].append(seconds)
    for test, each in others.items():
        mean = sum(each) / len(each)
        if mean > CHEAP and cases_by_day(mean, len(each)) < len(each):
            yield test, mean


def begin(config: pytest.Config) -> None:
    """Records where `DIFFLANG_DURATIONS` asks for it, in the process that hears of all tests."""
    if RECORDING and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Recorder())
