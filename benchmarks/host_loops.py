"""What a step of a host loop on numbers costs beside the same loop in plain Python: `python benchmarks/host_loops.py`.

Each row is a loop as a script of difflang and as a function of Python: the time of a step of both, and their ratio,
which should be below 3. The Python loops compute in `float`, whatever the type of the script. Both are measured in
turns; the results are compared where the types are the same.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import file_access, run_program
from difflang.execution.engine import Engine
from timing import Spread, interleaved, ratio


class HostLoop(NamedTuple):
    """A loop in both languages, with its number of steps; both leave their result in `found`."""

    name: str
    steps: int
    source: str
    python: Callable[[], float]
    same: bool = True  # both have the same types


def count() -> float:
    k = 0
    while k < 1_000_000:
        k += 1
    return k


def total() -> float:
    found = 0.0
    for i in range(1_000_000):
        found += i * 2.0
        if found > 1e6:
            found = 0.0
    return found


def newton(tolerance: float) -> float:
    found = 0.0
    for i in range(1, 100_001):
        a = float(i)
        x = a
        while abs(x * x - a) > tolerance * a:
            x = 0.5 * (x + a / x)
        found += x
    return found


def collatz() -> float:
    longest = 0
    for n in range(1, 10_000):
        m = n
        steps = 0
        while m != 1:
            m = m // 2 if m % 2 == 0 else 3 * m + 1
            steps += 1
        if steps > longest:
            longest = steps
    return longest


def nested() -> float:
    hits = 0
    for i in range(1_000):
        for j in range(1_000):
            if (i * i + j * j) % 7 == 3:
                hits += 1
    return hits


def matched() -> float:
    low, middle, high = 0, 0, 0
    for i in range(1_000_000):
        match i % 3:
            case 0:
                low += 1
            case 1:
                middle += i % 5
            case _:
                high -= 1
    return low + middle + high


def logistic() -> float:
    found = 0.5
    for _ in range(1_000_000):
        found = 3.7 * found * (1.0 - found)
    return found


def congruential() -> float:
    x, inside = 1, 0
    for _ in range(500_000):
        x = (1103515245 * x + 12345) % 2147483648
        u = x / 2147483648
        x = (1103515245 * x + 12345) % 2147483648
        v = x / 2147483648
        if u * u + v * v < 1.0:
            inside += 1
    return inside


def waves() -> float:
    found = 0.0
    for i in range(300_000):
        found += math.sin(0.001 * i) * math.exp(-0.00001 * i)
    return found


def sieve() -> float:
    found = 0
    for _ in range(300):
        is_open = [True] * 4000
        for i in range(2, 4000):
            if is_open[i]:
                found += 1
                j = i * i
                while j < 4000:
                    is_open[j] = False
                    j += i
    return found


def smoothed() -> float:
    x = [0.25 * i for i in range(1000)]
    for _ in range(1_000):
        for i in range(1, 999):
            x[i] = 0.5 * x[i] + 0.25 * (x[i - 1] + x[i + 1])
    return x[500]


LOOPS = (
    HostLoop("count", 1_000_000, "var found = 0\nwhile found < 1_000_000 { found += 1 }", count),
    HostLoop(
        "total",
        1_000_000,
        """float f64
var found = 0.0
for i in 0..1000000 {
  found += f64(i) * 2.0
  if found > 1e6 { found = 0.0 }
}""",
        total,
    ),
    HostLoop(
        "total, f32",
        1_000_000,
        """var found = 0.0
for i in 0..1000000 {
  found += f32(i) * 2.0
  if found > 1e6 { found = 0.0 }
}""",
        total,
        same=False,
    ),
    HostLoop(
        "newton",
        100_000,
        """float f64
var found = 0.0
for i in 1..100001 {
  let a = f64(i)
  var x = a
  while abs(x * x - a) > 1e-9 * a { x = 0.5 * (x + a / x) }
  found += x
}""",
        partial(newton, 1e-9),
    ),
    HostLoop(
        "newton, f32",
        100_000,
        """var found = 0.0
for i in 1..100001 {
  let a = f32(i)
  var x = a
  while abs(x * x - a) > 1e-6 * a { x = 0.5 * (x + a / x) }
  found += x
}""",
        partial(newton, 1e-6),
        same=False,
    ),
    HostLoop(
        "collatz",
        10_000,
        """var found = 0
for n in 1..10000 {
  var m: i64 = i64(n)
  var steps = 0
  while m != 1 {
    m = if m % 2 == 0 { m // 2 } else { 3 * m + 1 }
    steps += 1
  }
  if steps > found { found = steps }
}""",
        collatz,
    ),
    HostLoop(
        "nested",
        1_000_000,
        """var found = 0
for i in 0..1000 {
  for j in 0..1000 {
    if (i * i + j * j) % 7 == 3 { found += 1 }
  }
}""",
        nested,
    ),
    HostLoop(
        "match",
        1_000_000,
        """var (low, middle, high) = (0, 0, 0)
for i in 0..1000000 {
  match i % 3 { 0 => { low += 1 }, 1 => { middle += i % 5 }, _ => { high -= 1 } }
}
let found = low + middle + high""",
        matched,
    ),
    HostLoop(
        "logistic",
        1_000_000,
        """float f64
var found = 0.5
for _ in 0..1000000 { found = 3.7 * found * (1.0 - found) }""",
        logistic,
    ),
    HostLoop(
        "congruential",
        500_000,
        """var x: i64 = 1
var found = 0
for _ in 0..500000 {
  x = (1103515245 * x + 12345) % 2147483648
  let u = f64(x) / 2147483648.0
  x = (1103515245 * x + 12345) % 2147483648
  let v = f64(x) / 2147483648.0
  if u * u + v * v < 1.0 { found += 1 }
}""",
        congruential,
    ),
    HostLoop(
        "waves",
        300_000,
        """float f64
var found = 0.0
for i in 0..300000 { found += sin(0.001 * f64(i)) * exp(-0.00001 * f64(i)) }""",
        waves,
    ),
    HostLoop(
        "sieve",
        3_900_000,
        """let fresh = [for i in 0..4000 => true]
var found = 0
for _ in 0..300 {
  var is_open = fresh
  for i in 2..4000 {
    if is_open[i] {
      found += 1
      var j = i * i
      while j < 4000 {
        is_open[j] = false
        j += i
      }
    }
  }
}""",
        sieve,
    ),
    HostLoop(
        "smoothed",
        998_000,
        """float f64
var x = [for i in 0..1000 => 0.25 * f64(i)]
for _ in 0..1000 {
  for i in 1..999 { x[i] = 0.5 * x[i] + 0.25 * (x[i - 1] + x[i + 1]) }
}
let found = x[500]""",
        smoothed,
    ),
)


def script(loop: HostLoop) -> Callable[[], float]:
    """Check and run the script; its result."""

    def run() -> float:
        runner = run_program(check_program(Source(loop.name, loop.source)), Engine(), file_access(None), 0, print)
        return runner.values["found"].number

    return run


def row(loop: HostLoop, rounds: int) -> str:
    ways: dict[str, Callable[[], Any]] = {"difflang": script(loop), "python": loop.python}
    ours, theirs = ways["difflang"](), ways["python"]()
    # Sine and exponential of NumPy and of the C library differ in the last place.
    assert not loop.same or math.isclose(ours, theirs, rel_tol=1e-12), (loop.name, ours, theirs)
    seconds = interleaved(ways, rounds, clock=time.process_time)
    cells = [f"{1e9 * Spread.of(seconds[way]).median / loop.steps:>10.0f}" for way in ways]
    return f"{loop.name:<14} {loop.steps:>9,} {' '.join(cells)}   {ratio(seconds['difflang'], seconds['python'])}"


def main() -> int:
    print(f"{'loop':<14} {'steps':>9} {'ns a step':>10} {'Python':>10}   ratio")
    for loop in LOOPS:
        print(row(loop, 5), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
