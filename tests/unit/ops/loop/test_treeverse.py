"""The way back through a loop of known length, leg by leg: each step once, from its own state, none too often."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from difflang.lower.capacity import INITIAL_CAPACITY
from difflang.ops.loop import checkpoint_store
from difflang.ops.loop.binomial_schedule import (
    MAX_REPEATS,
    MAX_SEGMENTS,
    TreeverseSegment,
    min_forward_steps,
    plan_checkpoints,
    plan_residual_segments,
    plan_segments,
    reach_table,
)
from difflang.ops.loop.checkpoint_store import StoreRequest, StoreSize
from difflang.plan.budget_search import SegmentedPlanner
from difflang.plan.save_policies import SavePolicy, last_forward_checkpoint, loop_policies
from difflang.runtime.compile import compile_graph


def followed(rows: np.ndarray, kept: list[int], slots: int, *, taped: int = 0) -> tuple[list[int], int]:
    """Which steps the legs go back through, in order, and how many they take. A state is told by its number."""
    held = [*kept, *[-1] * (slots + 1 - len(kept))]
    room: list[int] = []
    back, count = list[int](), 0
    for number, row in enumerate(rows.tolist()):
        leg = TreeverseSegment(*row)
        at = held[leg.slot] if not taped or number else leg.first
        assert at == leg.first
        if leg.skipped:
            at = held[leg.slot + 1] = at + leg.skipped
        if taped:
            room = [at + i for i in range(leg.stored if number else leg.back)]
            assert len(room) <= taped
        else:
            room = [at, *[at + 1 + i for i in range(leg.stored)]] if leg.stored else held[leg.slot :]
            held[leg.slot + 1 : leg.slot + 1 + leg.stored] = room[1 : 1 + leg.stored] if leg.stored else []
            assert len(held) == slots + 1
        count += leg.skipped + leg.stored
        back += reversed(room[: leg.back])
    return back, count


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 9, 40])
@pytest.mark.parametrize("steps", [1, 2, 3, 7, 30, 100])
def test_each_step_is_gone_back_through_once(steps: int, slots: int) -> None:
    kept = plan_checkpoints(steps, slots)
    rows = plan_segments(steps, slots)
    assert rows is not None
    back, count = followed(rows, list(kept), slots)
    assert back == list(reversed(range(steps)))
    assert count + kept[-1] <= int(
        min_forward_steps(np, np.int32(steps), reach_table(slots)[slots])
    )  # the spare slot helps


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
@pytest.mark.parametrize(("steps", "each"), [(7, 7), (7, 3), (9, 3), (30, 1), (30, 4), (100, 13), (2, 1)])
def test_so_it_is_where_what_is_read_back_is_kept_of_a_few_steps(steps: int, each: int, slots: int) -> None:
    size = StoreSize.of([], 1, StoreRequest(slots, each, steps, residuals=True))
    rows = plan_residual_segments(steps, slots, each)
    assert rows is not None and size.residual_steps == each and size.head == steps - each
    back, count = followed(rows, list(size.planned), slots, taped=each)
    assert back == list(reversed(range(steps)))
    if slots * each >= steps - each:  # each unit has its own state
        assert count == steps - each


def test_one_slot_is_enough_for_more_steps_than_the_table_reaches() -> None:
    steps = MAX_REPEATS + 100
    rows = plan_segments(steps, 1)
    assert rows is not None
    assert followed(rows, [0], 1)[0] == list(reversed(range(steps)))


def test_a_plan_that_is_too_long_is_none() -> None:
    assert plan_segments(100_000, 2) is None and plan_residual_segments(100_000, 2, 1) is None
    short = plan_segments(100_000, 500)
    assert short is not None and len(short) <= MAX_SEGMENTS


def test_the_last_state_kept_is_counted_as_it_is_placed() -> None:
    for steps in (1, 2, 3, 10, 99, 400):
        assert all(
            last_forward_checkpoint(steps, slots) == plan_checkpoints(steps, slots)[-1]
            for slots in (1, 2, 3, 7, 20, 60)
        )


def test_what_is_estimated_of_a_way_is_what_its_legs_take() -> None:
    for way, again in loop_policies(60, is_static=True)[::29]:
        rows = (
            plan_residual_segments(60, way.slots, way.segment_steps)
            if way.segment_steps
            else plan_segments(60, way.slots + 1)
        )
        assert rows is not None
        took = int(rows[:, 2].sum() + rows[:, 3].sum())
        assert (
            took <= again <= took + max(2 * way.segment_steps, 12)
        )  # the spare slot, and a last unit that is not whole


SOURCE = """float f64
fn plain(w: f64, v: f64[3]) -> f64 {
  var x = v
  for i in 0..23 { x = 0.9 * x + 0.1 * sin(w * x) * f64(i + 1) }
  sum(x * x)
}
fn reads(w: f64, v: f64[3]) -> f64 {
  let xs = [for i in 0..23 => sin(w * f64(i))]
  var x = v
  var seen = 0.0
  for y in xs {
    x = 0.9 * x + 0.1 * sin(w * x) * y
    seen += x[0] * x[1]
  }
  sum(x * x) + seen
}
fn yields(w: f64, v: f64[3]) -> f64 {
  var x = v
  let all = for i in 0..23 { x = 0.9 * x + 0.1 * sin(w * x)
    yield x * x }
  sum(all) + sum(x)
}
fn pushed(w: f64, v: f64[3]) -> f64 {
  let (value, slope) = jvp(|a| plain(a, v))(w, 1.0)
  value * slope
}
fn slope(w: f64, v: f64[3]) -> f64 = grad(|a| plain(a, v))(w)
fn lanes(w: f64, v: f64[3]) -> f64 = sum([for k in 0..4 => plain(w + 0.1 * f64(k), v)])
fn inner(w: f64, v: f64[3]) -> f64 {
  var x = v
  for i in 0..5 {
    for j in 0..7 { x = 0.9 * x + 0.1 * sin(w * x) }
    x = x + 0.01 * x * x
  }
  sum(x * x)
}
"""
WAYS = [
    SavePolicy(1, segment_steps=1),
    SavePolicy(1, segment_steps=20),
    SavePolicy(2, segment_steps=3),
    SavePolicy(4, segment_steps=5),
    SavePolicy(3),
    SavePolicy(12),
]


@pytest.mark.parametrize("large", [0, checkpoint_store.LARGE_STATE_BYTES])  # at 0 what is not kept is not written
@pytest.mark.parametrize("name", ["plain", "reads", "yields", "lanes", "inner", "pushed", "slope"])
@pytest.mark.nightly_cases("slope-.*", ".*-4096")
def test_gradients_are_those_that_keep_all(name: str, large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_store, "LARGE_STATE_BYTES", large)
    function: Any = difflang.loads(SOURCE, name="ways")[name].grad("w", "v")
    graph = function._elaborate(("f64", "f64[3]"), {}).graph
    planner = SegmentedPlanner(graph, INITIAL_CAPACITY)
    given = np.float64(0.7), np.asarray([0.3, -0.4, 1.1])
    wanted = compile_graph(planner.baseline[0])(*given)
    assert planner.loops
    for way in WAYS:
        done, _ = planner.finalize({e: way for e in planner.loops if way.slots + way.segment_steps < e.attrs["length"]})
        for got, want in zip(compile_graph(done)(*given), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-13)
