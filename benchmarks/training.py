"""What a step of training costs: `python benchmarks/training.py [--rounds N]`.

Each row is an example that trains, a step of Adam on its loss, beside the same step of its twin by hand in JAX. Both
are measured in turns, on parameters that are those of the example's beginning; the target is a ratio of 1.1.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import jax
import numpy as np

from support.twins import training
from timing import interleaved, ratio
from twins.training import NAMES, batches, begun, like, step

TARGET = 1.1


def row(name: str, rounds: int) -> str:
    """Milliseconds of a step, and how many times those of the twin."""
    ours, theirs = training(name), jax.jit(step(name))
    m = ours.start()
    seen = ours.first(m)
    twin = like(import_module(f"twins.{name}").arguments(np.float32)[0], m)
    moments = begun(twin)
    (batch,) = batches(name, 1)
    runs = {
        "difflang": lambda: jax.block_until_ready(ours.trained(m, seen, *batch)),
        "twin": lambda: jax.block_until_ready(theirs(twin, moments, *batch)),
        "copy": lambda: jax.block_until_ready(theirs(twin, moments, *batch)),
    }
    for run in runs.values():
        run()
    seconds = interleaved(runs, rounds, at_least=0.05)
    found, noise = ratio(seconds["difflang"], seconds["twin"]), ratio(seconds["copy"], seconds["twin"])
    step_of = 1000 * float(np.median(seconds["difflang"]))
    met = "met" if found.surely_from <= TARGET else "missed"
    return f"| {name} | {step_of:.2f} ms | {found} | {noise} | {met} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    print("| example | a step | over the twin | the twin over itself | 1.1 |\n| --- | --- | --- | --- | --- |")
    for name in NAMES:
        print(row(name, rounds))
