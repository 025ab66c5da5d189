"""What each rewrite that only makes programs faster gains: `python benchmarks/rewrites.py [--rounds N] [NAME ...]`.

A row is a rewrite of `difflang/passes/measured_rewrites.py` and a program whose gradient it changes: the run time
without it over that with it, in processor time, and the same for the first call. Last comes the geometric mean over all
programs, where those that it leaves alone count as 1. Pin it to one core (`taskset -c 1`).
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import jax

import difflang
from cases import CASES, Case
from difflang.lower.lowering_pipeline import finalize_graph
from difflang.passes.measured_rewrites import REWRITES, leave_out
from difflang.runtime.compile import compile_lowered, lower_graph, options_of
from gradients import GRADIENTS
from notation import NOTATION

jax.config.update("jax_enable_x64", True)
PROGRAMS = CASES | GRADIENTS | {name: make for name, make in NOTATION.items() if not name.startswith("mat")}
SECONDS = 0.02  # of a block of calls


class Build(NamedTuple):
    """A compiled program: its StableHLO, how it is called, and the seconds that it took."""

    text: str
    call: Callable[[], Any]
    seconds: float


def built(graph: Any, arrays: Sequence[Any], left_out: Sequence[str] = ()) -> Build:
    start = time.process_time()
    with leave_out(*left_out):
        final = finalize_graph(graph)
        lowered = lower_graph(final, "cpu")
    program = compile_lowered(lowered, final, options_of(final))
    return Build(lowered.as_text(), lambda: jax.block_until_ready(program(*arrays)), time.process_time() - start)


def block(call: Callable[[], Any], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - start) / count


def without_over_with(without: Build, whole: Build, rounds: int) -> float:
    """The ratio of run times, in turns A B B A."""
    whole.call(), without.call()
    count = max(1, int(SECONDS / max(block(whole.call, 2), 1e-6)))
    pairs = [(without, whole) if i % 2 else (whole, without) for i in range(rounds)]
    seconds = [{id(b): block(b.call, count) for b in pair} for pair in pairs]
    return statistics.median([s[id(without)] / s[id(whole)] for s in seconds])


def gradient(case: Case) -> tuple[Any, Sequence[Any]]:
    """The elaborated graph of a case's gradient, and its arguments as flat arrays."""
    function: Any = getattr(difflang.loads(case.source, name=case.name), case.loss or case.entry)
    entry = (function.grad(case.wrt) if case.wrt else function)._elaborate(case.arguments, {})
    return entry.graph, [jax.device_put(x) for x in jax.tree.leaves(case.arguments)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(PROGRAMS), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=16)
    options = parser.parse_args()
    gains: dict[str, list[float]] = {r.name: [] for r in REWRITES}
    for name in options.names:
        graph, arrays = gradient(PROGRAMS[name]())
        built(graph, arrays)  # what a process does once
        whole = built(graph, arrays)
        for rewrite in gains:
            without = built(graph, arrays, [rewrite])
            changed = without.text != whole.text
            gains[rewrite].append(without_over_with(without, whole, options.rounds) if changed else 1.0)
            if changed:
                print(
                    f"{rewrite:28}{name:22}{gains[rewrite][-1]:.2f}  first call {without.seconds / whole.seconds:.2f}"
                )
    for rewrite, found in gains.items():
        print(f"{rewrite:28}{'all ' + str(len(found)):22}{math.exp(statistics.mean(map(math.log, found))):.3f}")


if __name__ == "__main__":
    main()
