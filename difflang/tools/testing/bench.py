"""Timing of `bench` blocks: the first run, which compiles, and the steady state.

The `let`s and `var`s at the head of a block are setup. The rest is timed until its results are ready.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from difflang.base.diagnostics import DifflangError
from difflang.base.source_files import read_source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import file_access
from difflang.host.run_statements import HostRunner
from difflang.syntax import tree
from difflang.tools.testing.isolated_blocks import IsolatedBlocks, run_statement
from difflang.tools.testing.suite import SuiteOptions

Clock = Callable[[], float]
MIN_SAMPLE_SECONDS = 2e-3  # long enough that the clock's resolution does not matter
MIN_SAMPLES, MAX_SAMPLES = 10, 1000
TARGET_UNCERTAINTY = 0.01  # of the median, relative to it
# The relative difference of two runs of one program, whatever the spread within each.
NOISE = 0.05


class Timing(Struct, frozen=True):
    """Seconds: the first run; of later runs the median, the quartiles and the fastest."""

    first: float
    median: float
    low: float
    high: float
    fastest: float
    samples: int
    loops: int  # runs in a sample

    @property
    def spread(self) -> float:
        """Half the interquartile range, relative to the median."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


class BenchResult(Struct, frozen=True):
    """A benchmark and its times."""

    file: str
    line: int
    name: str
    timing: Timing

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "line": self.line, "name": self.name, **asdict(self.timing)}


class Benchmarks:
    """The benchmarks of a file. Errors: DifflangError for a file with errors."""

    def __init__(self, file: str, options: SuiteOptions) -> None:
        path = Path(file)
        self.file = file
        self.checked = check_program(read_source(path, file), options.default_float, path, options.paths)
        if self.checked.errors:
            raise DifflangError(*self.checked.errors)
        self.apart = IsolatedBlocks(self.checked, options.engine, file_access(path, options.allow), options.seed)
        self.bench_items = [(i, item) for i, item in enumerate(self.checked.items) if isinstance(item, tree.Bench)]

    def measure(self, number: int, seconds: float) -> BenchResult:
        """Time one benchmark for about so many seconds. Errors: DifflangError if it fails."""
        i, item = self.bench_items[number]
        # Setup runs once, outside the timing.
        before, timed = split_setup(item.body)
        with self.apart.open_block(self.checked.items[:i], item.body, lambda _: None) as runner:
            for stmt in before:
                run_statement(runner, stmt, last=False)
            wait_for_variables(runner)
            timing = measure_runs(lambda: run_timed_block(runner, timed), seconds)
        return BenchResult(self.file, item.span.position[0], item.name, timing)


def split_setup(body: tree.Block) -> tuple[Sequence[tree.Node], Sequence[tree.Node]]:
    """The setup and the timed statements, at least the last one."""
    first = next((i for i, s in enumerate(body.stmts) if not isinstance(s, (tree.Let, tree.Var))), len(body.stmts))
    first = min(first, max(len(body.stmts) - 1, 0))
    return body.stmts[:first], body.stmts[first:]


def run_timed_block(runner: HostRunner, stmts: Sequence[tree.Node]) -> None:
    """Run statements and wait until their results are ready."""
    with runner.scope(stmts[0].span.to(stmts[-1].span)):
        values = [run_statement(runner, stmt, last=stmt is stmts[-1]) for stmt in stmts]
        wait_for_variables(runner)
        for value in values:
            wait_for_arrays(value.leaves or ())


def wait_for_variables(runner: HostRunner) -> None:
    for value in runner.values.values():
        wait_for_arrays(value.leaves or ())


def wait_for_arrays(leaves: Sequence[Any]) -> None:
    """Wait for JAX arrays, which are asynchronous; NumPy arrays are ready."""
    for leaf in leaves:
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()


def measure_runs(run: Callable[[], None], seconds: float, clock: Clock = time.perf_counter) -> Timing:
    """Time the first run alone, warm up, then sample until the median is known well or the time is over."""
    first = elapsed_seconds(run, 1, clock)
    began = clock()
    once_warm = elapsed_seconds(run, 1, clock)
    # Several runs per sample, so that a sample is long enough for the clock.
    loops = max(1, round(MIN_SAMPLE_SECONDS / once_warm)) if once_warm > 0 else 1000
    if loops > 1:  # a single short run is too noisy to choose the loop count
        once_warm = elapsed_seconds(run, loops, clock) / loops
        loops = max(1, round(MIN_SAMPLE_SECONDS / once_warm)) if once_warm > 0 else loops
    times: list[float] = []
    while len(times) < MAX_SAMPLES and (len(times) < 3 or clock() - began < seconds):
        times.append(elapsed_seconds(run, loops, clock) / loops)
        if len(times) >= MIN_SAMPLES and median_uncertainty(times) < TARGET_UNCERTAINTY:
            break
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    return Timing(first, median, low, high, min(times), len(times), loops)


def elapsed_seconds(run: Callable[[], None], loops: int, clock: Clock) -> float:
    start = clock()
    for _ in range(loops):
        run()
    return clock() - start


def median_uncertainty(times: Sequence[float]) -> float:
    """The relative uncertainty of the median. Source: McGill, Tukey, Larsen 1978, Variations of box plots."""
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    return 1.57 * (high - low) / len(times) ** 0.5 / median if median else 0.0


def slowdown(now: Timing, before: Timing) -> float | None:
    """The ratio of the times now and before; None if the difference is within the noise."""
    noise = max(NOISE * min(now.median, before.median), (now.high - now.low + before.high - before.low) / 2)
    # Neither a small change nor one within the spreads counts.
    if abs(now.median - before.median) <= noise or not before.median:
        return None
    return now.median / before.median
