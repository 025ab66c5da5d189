"""A loop in two, one after the other, is the loop; reverse mode may keep the steps of each in another way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ir.graph import Eqn, Graph, graphs_postorder
from difflang.ir.interpreter import evaluate
from difflang.ir.verify import verify_if_enabled
from difflang.lower.capacity import INITIAL_CAPACITY
from difflang.plan.budget_search import SegmentedPlanner, plan_memory
from difflang.plan.checkpoint_segments import inline_calls
from difflang.plan.save_policies import SAVE_ALL, SavePolicy
from difflang.plan.split_loop_tail import is_splittable, split_loop
from difflang.runtime.compile import compile_graph, lower_for_platform

SOURCE = """float f64
fn walk(w: f64[n], xs: f64[12, n]) -> (f64[12, n], f64[n], f64) {
  var y = w
  var t = 0.0
  let seen = for x in xs {
    y = 0.9 * y + sin(x * y)
    t += f64(steps)
    yield y * x
  }
  (seen, y, t)
}
fn learned(w: f64[4, 32], v: f64[32, 4], seen: f64[40, 16, 4]) -> f64 {
  var y = seen[0]
  var total = 0.0
  for goal in seen {
    y = y + 0.1 * tanh(y @ w) @ v
    total += mean((y - goal)^2)
  }
  total
}
fn nested(w: f64[n]) -> f64 {
  var x = w
  for i in 0..9 { for j in 0..10 { x = x + 0.05 * tanh(x * f64(i + j)) } }
  sum(x * x)
}
fn others(w: f64[n], m: i32) -> f64 {
  var x = w
  for i in 0..m { x = 0.5 * x }
  for i in 0..4 { x = x * w }
  while sum(x) > 1.0 { x = 0.5 * x }
  sum(x)
}
"""
MODULE = difflang.loads(SOURCE.replace("for x in xs {", "for (steps, x) in enumerate(xs) {"), name="two")
RNG = np.random.default_rng(0)
LEARNED = tuple([0.5 * RNG.normal(size=shape) for shape in ((4, 32), (32, 4), (40, 16, 4))])


def graph_of(f: Any, *arguments: object) -> Graph:
    graph: Graph = f._elaborate(arguments, {}).graph
    return graph


def loops(graph: Graph) -> list[Eqn]:
    return [e for g in graphs_postorder(graph)[0] for e in g.eqns if e.op.name == "loop"]


@pytest.mark.parametrize("last", [1, 5, 11])
def test_both_together_are_the_loop(last: int) -> None:
    """Its carries, what it gives, its index and how many steps it takes."""
    given = RNG.normal(size=3), RNG.normal(size=(12, 3))
    whole = inline_calls(graph_of(MODULE.walk, *given), 1000)
    (loop,) = loops(whole)
    assert is_splittable(loop)
    eqns = [e for eqn in whole.eqns for e in (split_loop(loop, loop, last) if eqn is loop else [eqn])]
    both = verify_if_enabled(whole.with_eqns(eqns), after="in_two")
    assert [e.attrs["length"] for e in loops(both)] == [12 - last, last]
    for got, want in zip(evaluate(both, *given), evaluate(whole, *given), strict=True):
        np.testing.assert_array_equal(got, want)


def test_others_stay_one() -> None:
    """Those of which only the run knows the length, short ones, and those that go back."""
    back = SegmentedPlanner(graph_of(MODULE.learned.grad("w"), *LEARNED), INITIAL_CAPACITY).baseline[0]
    found = loops(graph_of(MODULE.others, "f64[3]", "i32")), [e for e in loops(back) if e.attrs["reverse"]]
    assert len(found[0]) == 3 and len(found[1]) == 1 and not any(map(is_splittable, [*found[0], *found[1]]))


@pytest.mark.parametrize("kept", ["least", "nothing"])
def test_of_the_last_steps_all_is_kept(kept: Any) -> None:
    planner = SegmentedPlanner(graph_of(MODULE.learned.grad("w", "v"), *LEARNED), INITIAL_CAPACITY)
    (loop,) = planner.loops
    ways = [SavePolicy(residuals=kept), *[SavePolicy(residuals=kept, last=n) for n in (10, 20, 30)], SAVE_ALL]
    made = [planner.finalize({loop: way}) for way in ways]
    peaks = [account.peak for _, account in made]
    assert peaks == sorted(peaks) and peaks[0] < 0.7 * peaks[-1]
    want = compile_graph(made[-1][0])(*LEARNED)
    for graph, account in made:
        program = compile_graph(graph)
        assert abs(account.peak / program.memory_bytes - 1) < 0.1
        for got, expected in zip(program(*LEARNED), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)


def test_a_limit_between_two_ways_has_a_plan_between() -> None:
    graph = graph_of(MODULE.learned.grad("w", "v"), *LEARNED)
    whole = plan_memory(graph, 0).account.peak
    plan = plan_memory(graph, int(0.8 * whole))
    (choice,) = plan.choices
    assert 0 < choice.policy.last < 40 and f", and the residuals of the last {choice.policy.last}" in str(choice)
    assert 0.7 * whole < plan.account.peak <= 0.8 * whole


def test_a_loop_in_a_loop() -> None:
    planner = SegmentedPlanner(graph_of(MODULE.nested.grad("w"), "f64[50]"), INITIAL_CAPACITY)
    outer, inner = sorted(planner.loops, key=lambda e: len(e.regions[0].eqns), reverse=True)
    w = RNG.normal(size=50)
    want = compile_graph(planner.finalize({})[0])(w)
    for ways in (
        {inner: SavePolicy(residuals="nothing", last=4)},
        {outer: SavePolicy(residuals="nothing", last=3), inner: SAVE_ALL},
    ):
        np.testing.assert_allclose(compile_graph(planner.finalize(ways)[0])(w)[0], want[0], rtol=1e-13)


def test_what_a_step_computes_again_is_fused_with_what_reads_it() -> None:
    """A step of another loop knows nothing already, so nothing has to be kept apart there."""
    planner = SegmentedPlanner(graph_of(MODULE.learned.grad("w", "v"), *LEARNED), INITIAL_CAPACITY)
    graph, _ = planner.finalize({planner.loops[0]: SavePolicy(residuals="least")})
    assert "inlineable" not in lower_for_platform(graph, "cpu")
