"""How benchmarks are timed, with a clock that the tests wind; and what of a block is timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from difflang.base.source import Source
from difflang.execution.engine import Engine
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.tools.testing import bench
from difflang.tools.testing.bench import Benchmarks, Timing, measure_runs, slowdown, split_setup, wait_for_arrays
from difflang.tools.testing.suite import SuiteOptions


class Clock:
    """Runs take as long as they are told."""

    def __init__(self, *times: float) -> None:
        self.now, self.times, self.runs = 0.0, times, 0

    def __call__(self) -> float:
        return self.now

    def run(self) -> None:
        self.now += self.times[min(self.runs, len(self.times) - 1)]
        self.runs += 1


def timed(*times: float, seconds: float = 1.0) -> tuple[Timing, Clock]:
    clock = Clock(*times)
    return measure_runs(clock.run, seconds, clock), clock


def test_the_first_run_stands_alone() -> None:
    timing, clock = timed(5.0, 0.01)
    assert (timing.first, timing.median, timing.fastest) == pytest.approx((5.0, 0.01, 0.01))
    assert timing.spread == pytest.approx(0.0, abs=1e-9)
    assert (timing.samples, timing.loops) == (bench.MIN_SAMPLES, 1)
    assert clock.runs == 2 + bench.MIN_SAMPLES


def test_the_warm_up_is_not_counted() -> None:
    timing, _ = timed(5.0, 3.0, 0.01)
    assert timing.high == pytest.approx(0.01)


def test_short_runs_are_timed_many_at_a_time() -> None:
    timing, _ = timed(1.0, 1e-5)
    assert timing.loops == pytest.approx(bench.MIN_SAMPLE_SECONDS / 1e-5)
    assert timing.median == pytest.approx(1e-5)


def test_more_samples_where_times_vary_until_the_time_is_over() -> None:
    steady, _ = timed(1.0, *[0.01, 0.0101] * 2000)
    restless, clock = timed(1.0, *[0.01, 0.02] * 2000)
    assert steady.samples == bench.MIN_SAMPLES < restless.samples
    assert clock.now == pytest.approx(2.0, abs=0.1)
    assert restless.spread == pytest.approx(1 / 3, rel=0.01)


def test_a_slow_run_is_timed_three_times_at_least() -> None:
    timing, _ = timed(9.0, 5.0, seconds=0.1)
    assert (timing.samples, timing.loops) == (3, 1)


def took(median: float, half: float = 0.0) -> Timing:
    return Timing(1.0, median, median - half, median + half, median - half, 10, 1)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (took(1.0), took(1.04), None),
        (took(1.0), took(1.5), 1.5),
        (took(1.0), took(0.5), 0.5),
        (took(1.0, 0.2), took(1.5, 0.4), None),
        (took(1.0, 0.2), took(1.7, 0.4), 1.7),
    ],
)
def test_a_difference_within_the_noise_is_none(before: Timing, now: Timing, expected: float | None) -> None:
    assert slowdown(now, before) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("body", "count"),
    [("f(x)", 0), ("let a = f(x)", 0), ("let a = 1\nvar b = 2\nf(a)\nf(b)", 2), ("let a = 1\nlet b = f(a)", 1),
     ("f(x)\nlet a = 1\nf(a)", 0), ("", 0)],
)  # fmt: skip
def test_lets_at_the_head_prepare(body: str, count: int) -> None:
    (item,) = parse(Source("b.dfl", f'bench "b" {{\n{body}\n}}')).module.items
    assert isinstance(item, tree.Bench)
    before, rest = split_setup(item.body)
    assert len(before) == count and (*before, *rest) == item.body.stmts


def test_what_is_computed_is_waited_for() -> None:
    class Promise:
        kept = False

        def block_until_ready(self) -> None:
            self.kept = True

    promise = Promise()
    wait_for_arrays([1.0, promise])
    assert promise.kept


@pytest.mark.parametrize("engine", ["xla", "interpret"])
def test_a_benchmark_runs_apart_from_its_file(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "b.dfl"
    path.write_text('print("no")\nlet x = ones(9)\nbench "sum" {\n  var s = 0.0\n  s += sum(x)\n  print("no")\n}\n')
    found = Benchmarks(str(path), SuiteOptions(Engine(engine))).measure(0, 0.01)  # type: ignore[arg-type]
    assert (found.name, found.line) == ("sum", 3)
    assert 0 < found.timing.fastest <= found.timing.low <= found.timing.median <= found.timing.high
    assert found.to_json()["median"] == found.timing.median
