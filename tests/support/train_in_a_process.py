"""One process of a training that may be killed. Arguments: an address, its number, how many, a checkpoint.

Process 0 says each row of the history. `fit` with one process is what all others must equal.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import difflang
from difflang.bridge import train

STEPS = 40
SIZE = 8


def put(array: np.ndarray, *spec: str) -> Any:
    """The array split over all devices of all processes."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
    with jax.enable_x64(True):
        return jax.make_array_from_callback(
            array.shape, NamedSharding(mesh, PartitionSpec(*spec)), lambda index: array[index]
        )


def fit(checkpoint: Path | None, pause: float, report: Any) -> train.FitResult:
    """Fit weights that are split to rows that are drawn for each step, with noise that the loss draws."""
    loss = difflang.loads("""float f64
fn loss(w: f64[d], x: f64[n, d], y: f64[n]) -> f64 = mean((x @ w + 0.1 * normal(n) - y)^2)
""").loss

    def batch(step: int) -> tuple[Any, ...]:
        time.sleep(pause)
        x = np.random.default_rng(step).normal(size=(16, SIZE))
        return put(x), put(x @ np.arange(SIZE, dtype=float))

    start = put(np.zeros(SIZE), "data")
    found = train.fit(
        loss, start, batch, optax.adam(0.1), steps=STEPS, key=7, every=5, report=report, checkpoint=checkpoint
    )
    assert found.params.sharding.is_equivalent_to(start.sharding, 1)
    return found


def main(address: str, number: int, count: int, checkpoint: Path) -> None:
    if count > 1:
        jax.distributed.initialize(address, count, number, heartbeat_timeout_seconds=5)
    say = (lambda row: print(int(row["step"]), repr(row["loss"]), flush=True)) if number == 0 else None
    fit(checkpoint, 0.05, say)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
