"""Under a limit XLA is asked what a program takes, and plans are made until it keeps to the limit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import difflang
from difflang.ir.graph import Graph
from difflang.lower.capacity import INITIAL_CAPACITY
from difflang.ops.loop.binomial_schedule import plan_residual_segments, plan_segments
from difflang.plan.budget_search import BudgetPlanner, MemoryPlan, SegmentedPlanner, plan_memory
from difflang.plan.checkpoint_segments import CheckpointSegment
from difflang.plan.compile_within_limit import compile_within_limit, with_kernel_order
from difflang.plan.save_policies import SavePolicy, recompute_work
from difflang.runtime.compile import compile_graph
from difflang.runtime.predict_memory import predict_memory
from support.programs import HISTORIES

DEEP = (
    "fn f(w: f32[d, d], x: f32[b, d]) -> f32 {\n  var h = x\n"
    + "  h = tanh(h @ w) + 0.5 * h\n" * 16
    + "  sum(h * h)\n}"
)
TYPES = ("f32[16, 16]", "f32[256, 16]")


@pytest.fixture(scope="module")
def deep() -> Any:
    return difflang.loads(DEEP, name="deep").f.grad("w")._elaborate(TYPES, {}).graph


@pytest.mark.parametrize("part", [0.7, 0.45])
def test_straight_code_is_kept_under_a_limit(part: float, deep: Any) -> None:
    """The plan, what XLA makes of it, and the gradient."""
    _, whole = compile_within_limit(deep, 0, INITIAL_CAPACITY, compile_graph)
    limit = int(part * whole.memory_bytes)
    plan, made = compile_within_limit(deep, limit, INITIAL_CAPACITY, compile_graph)
    assert made.memory_bytes <= limit and plan.choices  # and what was predicted may be more
    assert abs(plan.account.peak / made.memory_bytes - 1) <= 0.1
    rng = np.random.default_rng(0)
    arrays = [0.2 * rng.normal(size=shape).astype(np.float32) for shape in ((16, 16), (256, 16))]
    got, want = [np.asarray(program(*arrays)[0]) for program in (made, whole)]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())


def test_a_tighter_limit_takes_more_time_and_never_more_room(deep: Any) -> None:
    planner = SegmentedPlanner(deep, INITIAL_CAPACITY)
    whole = planner.baseline_plan.account.peak
    plans = [planner.plan(int(part * whole)) for part in (1.0, 0.8, 0.6, 0.45, 0.4)]
    again = [sum(recompute_work(p.eqns, plan_way(plan, p)) for p in planner.segments) for plan in plans if plan]
    assert again[0] == 0 and again == sorted(again)
    assert planner.smallest.account.peak < 0.4 * whole
    assert planner.plan(planner.smallest.account.peak - 1) is None


class Smaller(NamedTuple):
    """Stands for what XLA compiles: to less than was predicted."""

    memory_bytes: int
    orders: bool = True


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.nightly_except("False")
def test_what_xla_leaves_of_a_limit_is_used_if_the_quicker_plan_fits(fits: bool, deep: Any) -> None:
    first, wider = [plan_memory(deep, int(part * plan_memory(deep, 0).account.peak)) for part in (0.5, 0.5 / 0.8)]
    made: list[int] = []

    def make(graph: Graph, *, sparing: bool = False) -> Smaller:
        made.append(int((0.8 if not made or fits else 1.1) * predict_memory(graph).peak))
        return Smaller(made[-1])

    limit = int(0.5 * plan_memory(deep, 0).account.peak)
    plan, program = compile_within_limit(deep, limit, INITIAL_CAPACITY, make)
    assert first.choices != wider.choices and len(made) == 2 and program.memory_bytes <= limit
    assert plan.choices == (wider.choices if fits else first.choices)


def test_what_takes_nothing_keeps_any_limit() -> None:
    f = difflang.loads("@memory(1 KB)\nfn f(w: f32[n]) -> f32 = sum(sin(w))", name="empty").f
    assert f.grad("w")(np.zeros(0, np.float32)).shape == (0,)


def test_pieces_are_cut_again_where_that_alone_fits(deep: Any) -> None:
    """Down to the inputs of a few pieces, and within each of these of a few more."""
    first, *deeper = BudgetPlanner(deep, INITIAL_CAPACITY)
    limit = first.smallest.account.peak - 1
    assert first.plan(limit) is None and any(planner.cutting.deep for planner in deeper)
    plan, made = compile_within_limit(deep, limit, INITIAL_CAPACITY, compile_graph)
    assert plan.account.peak <= limit and made.memory_bytes <= limit
    rng = np.random.default_rng(1)
    arrays = [0.2 * rng.normal(size=shape).astype(np.float32) for shape in ((16, 16), (256, 16))]
    got, want = [np.asarray(p(*arrays)[0]) for p in (made, compile_graph(first.baseline_plan.graph))]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())


RECURRENT = """
fn f(w: f32[16, 16], xs: f32[60, 8, 16]) -> f32 {
  var h = zeros(8, 16)
  for x in xs {
    let z = sigmoid(x @ w + h @ w)
    h = z * h + (1.0 - z) * tanh(x + h)
  }
  sum(h * h)
}
fn steps(w: f32, v: f32[2000]) -> f32 {
  var x = v
  for i in 0..100 { x = x + 0.1 * sin(w * x) * cos(x) }
  sum(x * x)
}
"""


def test_a_loop_that_keeps_little_gathers_nothing_for_products_after_it() -> None:
    """The cotangents of every step would be as much as what it reads."""
    graph = (
        difflang.loads(RECURRENT, name="recurrent").f.grad("w")._elaborate(("f32[16, 16]", "f32[60, 8, 16]"), {}).graph
    )
    read = 60 * 8 * 16 * 4
    _, whole = compile_within_limit(graph, 0, INITIAL_CAPACITY, compile_graph)
    _, made = compile_within_limit(graph, int(1.5 * read), INITIAL_CAPACITY, compile_graph)
    assert made.memory_bytes <= 1.5 * read < whole.memory_bytes


def test_where_plans_take_too_much_in_one_order_of_kernels_the_first_is_asked_for_in_the_other(deep: Any) -> None:
    limit, asked = int(0.9 * plan_memory(deep, 0).account.peak), list[tuple[int, bool]]()

    def make(graph: Graph, *, sparing: bool = False) -> Smaller:
        peak = predict_memory(graph).peak
        asked.append((peak, sparing))
        return Smaller(peak if sparing else peak + limit // 2)

    _, program = compile_within_limit(deep, limit, INITIAL_CAPACITY, make)
    peaks, sparing = zip(*asked, strict=True)
    assert program.memory_bytes <= limit and sparing == (False, False, True) and peaks[1] < peaks[0] == peaks[2]


@pytest.mark.parametrize("orders", [True, False])
@pytest.mark.nightly_except("False")
def test_before_a_limit_is_refused_the_smallest_plan_is_had_in_either_order_once(orders: bool, deep: Any) -> None:
    least, asked = BudgetPlanner(deep, INITIAL_CAPACITY).smallest.account.peak, list[bool]()

    def make(graph: Graph, *, sparing: bool = False) -> Smaller:
        asked.append(sparing)
        return Smaller(int((1.04 if sparing else 1.06) * predict_memory(graph).peak), orders)

    if orders:
        assert compile_within_limit(deep, int(1.05 * least), INITIAL_CAPACITY, make)[1].memory_bytes <= 1.05 * least
        asked.clear()
    with pytest.raises(difflang.DifflangError, match="DL1012"):
        compile_within_limit(deep, int((1.03 if orders else 1.05) * least), INITIAL_CAPACITY, make)
    assert asked == ([False, True] if orders else [False])


CONVOLUTIONS = (
    "fn f(w: f32[3, 3, c, c], h0: f32[b, n, n, c]) -> f32 {\n"
    + "".join([f"  let h{i + 1} = tanh(conv2d(h{i}, w))\n" for i in range(6)])
    + "  sum(h6 * h6)\n}"
)


def test_where_no_plan_is_predicted_to_fit_the_order_of_least_memory_may_and_is_predicted_too() -> None:
    f = difflang.loads(CONVOLUTIONS, name="images").f
    graph = f.grad("w")._elaborate(("f32[3, 3, 8, 8]", "f32[4, 32, 32, 8]"), {}).graph
    limit = int(0.6 * plan_memory(graph, 0).account.peak)
    assert BudgetPlanner(graph, INITIAL_CAPACITY).plan(limit) is None
    plan, made = compile_within_limit(graph, limit, INITIAL_CAPACITY, compile_graph)
    assert made.low_memory and made.memory_bytes <= limit
    assert abs(with_kernel_order(plan, sparing=True).account.peak / made.memory_bytes - 1) < 0.1


@pytest.mark.slow
@pytest.mark.nightly
def test_a_report_says_where_the_order_of_least_memory_was_asked_for() -> None:
    f = difflang.loads(HISTORIES, name="histories").f
    reports = [f.memory("f64[2]", wrt="p", budget=budget, compiled=True) for budget in (None, "100 KiB")]
    assert [report.memory_ordered for report in reports] == [False, True]
    assert all(("in its order of least memory" in str(report)) is report.memory_ordered for report in reports)
    assert reports[1].measured is not None
    assert abs(reports[1].account.peak / reports[1].measured - 1) < 0.1


@pytest.mark.nightly
def test_what_several_loops_read_is_not_copied_early_under_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an option of XLA's, which another version of it may not have: then the limit is kept in another way."""
    f = difflang.loads(HISTORIES, name="histories").f
    graph = f.grad()._elaborate(("f64[2]",), {}).graph
    whole, p = plan_memory(graph, 0), np.asarray([2.0, 0.2])
    plain, sparing = compile_graph(whole.graph), compile_graph(whole.graph, sparing=True)
    assert plain.memory_bytes > 1.2 * sparing.memory_bytes and abs(sparing.memory_bytes / whole.account.peak - 1) < 0.05
    np.testing.assert_array_equal(plain(p)[0], sparing(p)[0])
    monkeypatch.setattr("difflang.runtime.compile.LOW_MEMORY_OPTIONS", {"xla_of_another_version": True})
    assert compile_graph(whole.graph, sparing=True).memory_bytes == plain.memory_bytes
    monkeypatch.setattr("difflang.runtime.compile.LOW_MEMORY_OPTIONS", {"xla_cpu_scheduler_type": "OF_ANOTHER_VERSION"})
    assert compile_graph(whole.graph, sparing=True).memory_bytes == plain.memory_bytes


def test_where_xla_takes_as_much_more_of_any_plan_one_is_found_that_keeps_more_than_the_smallest() -> None:
    graph = difflang.loads(RECURRENT, name="recurrent").steps.grad("w")._elaborate(("f32", "f32[2000]"), {}).graph
    whole, tried = plan_memory(graph, 0).account.peak, list[int]()

    def make(graph: Graph, *, sparing: bool = False) -> Smaller:
        tried.append(int(predict_memory(graph).peak + 0.35 * whole))
        return Smaller(tried[-1])

    plan, program = compile_within_limit(graph, whole // 2, INITIAL_CAPACITY, make)
    assert len(tried) <= 5 and program.memory_bytes <= whole // 2
    assert plan.account.peak > 1.2 * SegmentedPlanner(graph, INITIAL_CAPACITY).smallest.account.peak


SEQUENCES = """
fn f(w: f32[8, 600], u: f32[200, 600], xs: f32[60, 4, 8]) -> f32 {
  let inputs = xs @ w
  var h = zeros(4, 200)
  for x in inputs {
    let s = h @ u
    h = tanh(x[.., 0..200] + s[.., 0..200]) * sigmoid(x[.., 200..400] + s[.., 400..600]) + 0.5 * h
  }
  sum(h * h)
}
"""


def test_what_is_made_for_all_steps_is_made_in_them_where_memory_is_short() -> None:
    """The products of all inputs, and their cotangents, are each as large as three states of every step."""
    graph = difflang.loads(SEQUENCES, name="sequences").f.grad("w", "u")
    graph = graph._elaborate(("f32[8, 600]", "f32[200, 600]", "f32[60, 4, 8]"), {}).graph
    planners = BudgetPlanner(graph, INITIAL_CAPACITY)
    first, *_ = planners
    plan, made = compile_within_limit(graph, int(0.8 * first.smallest.account.peak), INITIAL_CAPACITY, compile_graph)
    assert made.memory_bytes <= 0.8 * first.smallest.account.peak
    assert plan.account.peak < first.smallest.account.peak
    draw = np.random.default_rng(0)
    arrays = [0.05 * draw.normal(size=s).astype(np.float32) for s in ((8, 600), (200, 600), (60, 4, 8))]
    for got, want in zip(made(*arrays), compile_graph(first.baseline_plan.graph)(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize(("part", "most"), [(0.6, 0), (0.3, 80), (0.15, 100)])
def test_no_more_steps_are_taken_again_than_the_limit_asks_for(part: float, most: int) -> None:
    """Of 100: those for which nothing is kept, once; none where a step may keep its state."""
    graph = difflang.loads(RECURRENT, name="steps").steps.grad("w", "v")._elaborate(("f32", "f32[2000]"), {}).graph
    planner = SegmentedPlanner(graph, INITIAL_CAPACITY)
    plan = planner.plan(int(part * planner.baseline_plan.account.peak))
    assert plan is not None
    (choice,) = plan.choices
    assert steps_again(100, choice.policy) <= most


def steps_again(steps: int, way: SavePolicy) -> int:
    """How many steps are taken again on the way back, each with all of what it writes."""
    if not way.slots:
        return 0
    rows = (
        plan_residual_segments(steps, way.slots, way.segment_steps)
        if way.segment_steps
        else plan_segments(steps, way.slots + 1)
    )
    assert rows is not None
    return int(rows[:, 2].sum() + rows[:, 3].sum())


@pytest.mark.parametrize(("part", "kept"), [(0.5, "least"), (0.35, "nothing")])
def test_a_step_makes_again_what_its_own_derivative_reads(part: float, kept: str) -> None:
    """Numbers made for who reads them in the same step are not written down: cheaper than to take steps again."""
    graph = (
        difflang.loads(RECURRENT, name="recurrent").f.grad("w")._elaborate(("f32[16, 16]", "f32[60, 8, 16]"), {}).graph
    )
    planner = SegmentedPlanner(graph, INITIAL_CAPACITY)
    plan = planner.plan(int(part * planner.baseline_plan.account.peak))
    assert plan is not None and [choice.policy.residuals for choice in plan.choices] == [kept]


def plan_way(plan: MemoryPlan, piece: CheckpointSegment) -> Any:
    return next((c.policy.residuals for c in plan.choices if c.span is piece.span and not c.loop), "all")
