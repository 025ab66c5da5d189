"""How many steps a gradient really takes, counted while it runs: as many as the schedule says, to the last one."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate
from difflang.lower.graph_to_jax import Lowering
from difflang.ops.loop import checkpoint_store
from difflang.ops.loop.binomial_schedule import (
    choose_dropped,
    min_forward_steps,
    reach_table,
    remaining_forward_steps,
    suffix_sums,
)
from difflang.ops.loop.checkpoint_store import StoreSize

SOURCE = """
float f64
fn swing(w: f64, v: f64[2], k: i32) -> f64 {
  var x = v
  var i = 0
  while i < k {
    x = [0.6 * x[0] - 0.8 * x[1], 0.8 * x[0] + 0.6 * x[1]] + 0.01 * sin(w * x)
    i += 1
  }
  sum(x)
}
"""


class Counting(Lowering):
    """Counts how often a step is taken. What a step saved, computed from its state, has cosines and no sine."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        super().__init__(jax)
        self.taken = 0

    def graph(self, graph: Graph, *arrays: Any) -> list[Any]:
        if any(eqn.op.name == "sin" for eqn in graph.eqns):
            jax.debug.callback(self.count)
        return super().graph(graph, *arrays)

    def count(self) -> None:
        self.taken += 1


@pytest.fixture(scope="module")
def gradient() -> Graph:
    module: Any = difflang.loads(SOURCE, name="swing")
    return module.swing.grad("w", "v").lower("f64", "f64[2]", "i32").graph


def online(slots: int, units: int) -> np.ndarray:
    kept = np.arange(min(slots, units), dtype=np.int32)
    for end in range(slots, units):
        more = np.append(kept, np.int32(end))
        kept = np.delete(more, int(choose_dropped(np, more, np.int32(end + 1), suffix_sums)))
    return kept


def expected(size: StoreSize, steps: int) -> int:
    """Forwards, then what the schedule says, then each unit once more but for its last step."""
    if steps <= size.store_all_up_to:
        return steps
    units = -(-steps // size.steps)
    kept = online(size.slots, units)
    return 2 * steps - units + size.steps * taken_back(kept, units, size.slots)


def taken_back(kept: np.ndarray, units: int, slots: int) -> int:
    row = reach_table(slots)
    if len(kept) == slots:
        return int(remaining_forward_steps(np, kept, np.int32(units)))
    ends = np.append(kept[1:], units)
    return sum(
        int(min_forward_steps(np, np.int32(e - k), row[slots - i]))
        for i, (k, e) in enumerate(zip(kept, ends, strict=True))
    )


@pytest.mark.parametrize(
    "size",
    [StoreSize(6, 6, 1), StoreSize(0, 6, 1), StoreSize(8, 5, 4), StoreSize(32, 4, 16), StoreSize(0, 5, 4)],
    ids=str,
)
def test_the_steps_taken_are_those_of_the_schedule(
    gradient: Graph, size: StoreSize, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the gradient is that of the interpreter, which keeps everything."""
    monkeypatch.setattr(StoreSize, "of", lambda *_, **__: size)
    monkeypatch.setattr(
        checkpoint_store, "LARGE_STATE_BYTES", 0 if size.store_all_up_to else checkpoint_store.LARGE_STATE_BYTES
    )  # at 0 what is not kept is not written
    lowering = Counting()
    with jax.enable_x64(True):
        program = jax.jit(lambda *xs: lowering.graph(gradient, *xs))
        for steps in (0, 1, 2, 7, 16, 17, 100, 333):
            arguments = np.float64(0.7), np.asarray([0.3, -0.4]), np.int32(steps)
            lowering.taken = 0
            found = program(*arguments)
            jax.effects_barrier()
            if size.store_all_up_to or size.steps == 1:
                assert lowering.taken == expected(size, steps)
            else:  # slots that are free by then have room for more steps than those of a unit
                assert 0.8 * expected(size, steps) <= lowering.taken <= expected(size, steps)
            for got, want in zip(found, evaluate(gradient, *arguments), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-12)
