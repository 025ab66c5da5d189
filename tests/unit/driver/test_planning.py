"""A limit on memory chooses what loops keep: gradients stay the same, bit for bit, or the limit is refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import difflang
from difflang.base.errors import DifflangError
from difflang.base.source import Source
from difflang.driver.engine import Engine
from difflang.driver.knapsack import Table, greedily, solved
from difflang.driver.planning import Plan, Planner, Planners, fitted, limit_of, planned
from difflang.driver.program import access_to, check, run
from difflang.driver.refusals import refusal
from difflang.driver.room import LITTLE
from difflang.driver.ways import Way, work_again
from difflang.ir.graph import Graph
from difflang.ir.json import from_json, to_json
from difflang.ir.parse import from_text
from difflang.ir.text import to_text
from difflang.lower.buffers import Account
from difflang.ops.schedule import legs, taped_legs
from difflang.passes.pieces import Piece
from difflang.runtime.compile import compile
from difflang.runtime.memory import predicted

SOURCE = """
@memory(LIMIT)
fn turned(w: f32, v: f32[2, 500]) -> f32 {
  var x = v
  for i in 0..300 {
    let s = 0.01 * sin(w * x)
    x = concat(0.6 * x[0..1] - 0.8 * x[1..2], 0.8 * x[0..1] + 0.6 * x[1..2]) + s
  }
  sum(x * x * x)
}
@memory(LIMIT)
fn two(w: f32, v: f32[800]) -> f32 {
  var x = v
  for i in 0..200 { x = x + 0.01 * sin(w * x) }
  for j in 0..100 { x = 0.99 * x + 0.02 * cos(w * x) }
  sum(x * x)
}
"""
W = np.float32(0.7)
V = np.random.default_rng(0).normal(size=(2, 500)).astype(np.float32)


def limited(name: str, limit: str) -> Any:
    """The gradient of a function in its first parameter, under a limit."""
    return difflang.loads(SOURCE.replace("LIMIT", limit), name="limited")[name].grad("w")


def taken(function: Any, *arguments: Any) -> int:
    """How many bytes the program takes that runs on such arguments."""
    return function._found(function._given(arguments, {})[0]).program.made.bytes


@pytest.fixture(scope="module")
def whole() -> tuple[Any, int]:
    """The gradient of `turned` where nothing is limited, and what it takes."""
    function = limited("turned", "1 GiB")
    return function(W, V), taken(function, W, V)


@pytest.mark.parametrize("limit", [300, 90])
def test_a_gradient_under_a_limit_is_the_same(limit: int, whole: tuple[Any, int]) -> None:
    function = limited("turned", f"{limit} KiB")
    assert function(W, V) == whole[0]
    assert taken(function, W, V) <= limit * 1024 < whole[1]


CALLERS = """
fn called(w: f32, v: f32[2, 500]) -> f32 = 3.0 * turned(w, v)
fn by_a_lambda(w: f32, v: f32[2, 500]) -> f32 = (|u| 3.0 * turned(u, v))(w)
fn again(w: f32, v: f32[2, 500], n: i32) -> f32 = if n == 0 { turned(w, v) } else { 3.0 * again(w, v, n - 1) }
fn pushed(w: f32, v: f32[2, 500]) -> f32 = grad(called)(w, v)
"""


@pytest.mark.parametrize(("name", "rest"), [("called", ()), ("by_a_lambda", ()), ("again", ("i32",)), ("pushed", ())])
def test_a_limit_holds_for_what_calls_the_function(name: str, rest: tuple[str, ...]) -> None:
    module = difflang.loads((SOURCE + CALLERS).replace("LIMIT", "90 KiB"), name="limited")
    assert limit_of(module[name].grad("w")._entry(("f32", "f32[2, 500]", *rest), {}).graph) == 90 * 1024


def test_what_the_library_and_rules_take_of_it_is_no_concern_of_a_limit() -> None:
    text = """float f64
import roots
@memory(1 MiB)
fn residual(x: f64) -> f64 = x * x - 2.0
fn model(a: f64) -> f64 = roots.newton(|x| residual(x) - a, 1.0)
fn root(a: f64) -> f64 = sqrt(a + 2.0)
rule root(a) by implicit |x| residual(x) - a
"""
    module = difflang.loads(text, name="limited")
    for name in ("model", "root"):
        assert module[name](2.0) == pytest.approx(2.0)
        assert module[name].grad()(2.0) == pytest.approx(0.25)


def test_the_least_limit_of_several_functions_holds() -> None:
    text = SOURCE.replace("LIMIT", "90 KiB", 1).replace("LIMIT", "1 MiB", 1)
    text += "fn both(w: f32, v: f32[2, 500]) -> f32 = turned(w, v) + two(w, ones(800))"
    module = difflang.loads(text + "\nfn second(w: f32) -> f32 = two(w, ones(800))", name="limited")
    assert limit_of(module.both.grad("w")._entry(("f32", "f32[2, 500]"), {}).graph) == 90 * 1024
    assert limit_of(module.second.grad("w")._entry(("f32",), {}).graph) == 1024 * 1024


def test_several_loops_share_a_limit() -> None:
    graph = limited("two", "250 KiB")._entry(("f32", "f32[800]"), {}).graph
    plan = planned(graph, limit_of(graph))
    assert plan.account.peak <= 250 * 1024 < plan.before.peak
    assert len(plan.choices) == 2 and not plan.greedy


@pytest.mark.parametrize("how", ["full", "offload", "full, cap = 300", "sqrt", "every, steps = 1"])
def test_what_the_program_says_of_a_loop_is_left_as_it_is(how: str) -> None:
    text = SOURCE.replace("LIMIT", "1 GiB").replace("  for i", f"  @checkpoint({how})\n  for i")
    graph = difflang.loads(text, name="limited").turned.grad("w")._entry(("f32", "f32[2, 500]"), {}).graph
    assert not planned(graph, 0).choices
    with pytest.raises(DifflangError, match="DL1012") as refused:
        planned(graph, planned(graph, 0).account.peak - 1)
    assert any("with `@checkpoint(auto)` the limit decides" in help for help in refused.value.diagnostics[0].helps)


def test_what_cannot_be_kept_is_refused_with_what_can(whole: tuple[Any, int]) -> None:
    with pytest.raises(DifflangError) as refused:
        limited("turned", "20 KiB")(W, V)
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.code == "DL1012"
    assert any("for i in 0..300" in label.span.text for label in diagnostic.labels)
    (way,) = diagnostic.helps
    smallest = way.removeprefix("the smallest limit that can be kept is ")
    assert limited("turned", smallest)(W, V) == whole[0]


def test_a_recursion_that_needs_too_much_is_told_where_it_is_declared_and_for_what_depth() -> None:
    text = "@memory(100 KiB)\nfn f(x: f64, n: i32) -> f64 = if n == 0 { x } else { sin(x) * f(0.5 * x, n - 1) }\n"
    gradient = difflang.loads(text, name="deep").f.grad("x")
    gradient(0.5, 3)
    with pytest.raises(difflang.LimitError, match="DL1012") as refused:
        gradient(0.5, 5000)
    (diagnostic,) = refused.value.diagnostics
    assert "at least, with room for 4,096 calls within one another" in diagnostic.message
    assert [label.span.text[:4] for label in diagnostic.labels] == ["fn f"]


def test_small_states_are_kept_in_as_many_slots_as_take_least() -> None:
    """Of a loop of unknown length two slots are not the least: the tables that say which to keep are longer then."""
    text = """@memory(8 KiB)
fn g(x: f64, n: i32) -> f64 {
  var y = x
  var k = 0
  while k < n {
    y = y + 0.1 * sin(y)
    k += 1
  }
  y
}
"""
    narrow, whole = (difflang.loads(t, name="steps").g.grad("x") for t in (text, text.replace("@memory(8 KiB)", "")))
    for n in (0, 1, 10, 300):
        assert narrow(0.5, n) == whole(0.5, n)
    assert taken(narrow, 0.5, 10) <= 8192 < taken(whole, 0.5, 10)


def test_the_interpreter_looks_at_no_limit() -> None:
    narrow, whole = (
        limited("turned", "20 KiB"),
        difflang.loads(SOURCE.replace("@memory(LIMIT)", ""), name="free").turned,
    )
    want = whole.grad("w").interpret(W, V)
    assert narrow.interpret(W, V) == want
    narrow.trace(W, V)
    with pytest.raises(difflang.LimitError, match="DL1012"):
        narrow(W, V)
    assert narrow.interpret(W, V) == want


def test_what_the_interpreter_needs_room_for_changes_no_limited_program() -> None:
    text = "@memory(100 KiB)\nfn f(x: f64, n: i32) -> f64 = if n == 0 { x } else { sin(x) * f(0.5 * x, n - 1) }\n"
    gradient = difflang.loads(text, name="deep").f.grad("x")
    gradient.interpret(0.5, 2000)
    assert gradient(x=0.5, n=3) == pytest.approx(gradient.interpret(0.5, 3), rel=1e-12)


def test_a_deep_call_leaves_a_limited_program_of_other_sizes_as_it_was() -> None:
    text = """@memory(200 KiB)
fn f[n](x: f64[n], k: i32) -> f64 = if k == 0 { sum(sin(x)) } else { 0.01 * sum(sin(x)) * f(0.999 * x, k - 1) }
"""
    gradient, many = difflang.loads(text, name="deep").f.grad("x"), np.ones(2000)
    before = gradient(x=many, k=3)
    gradient(np.ones(2), 300)
    np.testing.assert_array_equal(gradient(x=many, k=3), before)


def test_functions_that_are_given_back_have_the_room_of_what_gave_them() -> None:
    text = """@memory(8 MiB)
fn f(x: f64) -> f64 {
  var y = x
  for i in 0..10 { y = sin(y) }
  y
}
fn r(x: f64, n: i32) -> f64 = if n < 2 { sin(x) } else { r(0.9 * x, n - 1) + r(0.5 * x, n - 2) }
fn slope(x: f64, n: i32) {
  let d = grad(f)(x)
  let (y, a) = linearize(|z: f64| d * r(z, n))(x)
  a
}
"""
    slope = difflang.loads(text, name="slope").slope
    want = [slope.interpret(0.5, n)(2.0) for n in (3, 12, 3)]
    found = [slope(0.5, n)(2.0) for n in (3, 12, 3)]
    np.testing.assert_allclose([slope.interpret(0.5, n)(2.0) for n in (3, 12, 3)], want)
    np.testing.assert_allclose(found, want, rtol=1e-12)


def test_functions_of_one_file_are_first_called_by_several_threads() -> None:
    """One of them under a limit, which takes longer."""
    module = difflang.loads(SOURCE.replace("@memory(LIMIT)", "@memory(90 KiB)", 1).replace("@memory(LIMIT)", ""))
    calls = [(module.turned.grad("w"), (W, V)), (module.two.grad("w"), (W, V[0].repeat(2)[:800]))] * 2
    threads = [threading.Thread(target=f, args=args, daemon=True) for f, args in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)


def test_a_predicted_limit_is_told_as_such() -> None:
    function: Any = difflang.loads(SOURCE.replace("LIMIT", "20 KiB"), name="limited").turned.grad("w")
    with pytest.raises(difflang.LimitError) as refused:
        function.memory(W, V)
    assert refused.value.diagnostics[0].helps[0].endswith("KiB, as predicted: `difflang memory --compile` asks XLA")


def test_a_limit_that_is_missed_by_little_is_told_in_bytes() -> None:
    nothing = Graph((), (), ()), Account((), frozenset(), 0)
    said = [refusal(nothing[0], limit, nothing[1], 100_000).diagnostics[0] for limit in (90_000, 99_999)]
    assert [d.message for d in said] == [
        "this derivative does not fit in 87.9 KiB: it takes 97.7 KiB at least",
        "this derivative does not fit in 99,999 B: it takes 100,000 B at least",
    ]


def test_a_budget_counts_for_programs_with_derivatives(tmp_path: Path) -> None:
    text = SOURCE.replace("@memory(LIMIT)", "") + "print(grad(turned)(0.7, ones(2, 500)))\nprint(1.0 + 1.0)\n"
    checked = check(Source("budget.dfl", text), path=tmp_path / "budget.dfl")
    printed: list[str] = []
    with pytest.raises(DifflangError, match="DL1012"):
        run(checked, Engine(budget=20_000), access_to(tmp_path / "budget.dfl"), 0, printed.append)
    run(checked, Engine(budget=100_000), access_to(tmp_path / "budget.dfl"), 0, printed.append)
    assert len(printed) == 2


def test_a_limit_is_part_of_the_graph() -> None:
    function: Any = difflang.loads(SOURCE.replace("LIMIT", "90 KiB"), name="limited").turned.grad("w")
    graph = function._entry(("f32", "f32[2, 500]"), {}).graph
    assert limit_of(graph) == 90 * 1024
    assert limit_of(from_text(to_text(graph))) == limit_of(from_json(to_json(graph))) == 90 * 1024
    assert limit_of(graph, 50) == 50
    plan = planned(graph, 90 * 1024)
    assert plan.account.peak <= 90 * 1024 < plan.before.peak and not plan.greedy
    assert all(choice.slots for choice in plan.choices)


TABLES = [
    Table([(2, 0), (4, 0), (8, 0), (0, 0)], [0, 10, 30, 100], [90.0, 40.0, 20.0, 0.0]),
    Table([(2, 0), (4, 0), (0, 0)], [0, 20, 45], [30.0, 25.0, 0.0]),
]


@pytest.mark.parametrize(("room", "time"), [(0, 120), (10, 70), (45, 90), (55, 40), (75, 20), (145, 0), (1000, 0)])
def test_choices_go_together_in_the_least_time(room: float, time: float) -> None:
    picks, greedy = solved(TABLES, room)
    assert picks is not None and not greedy
    assert sum(t.times[i] for t, i in zip(TABLES, picks, strict=True)) <= time
    assert sum(t.bytes[i] for t, i in zip(TABLES, picks, strict=True)) <= room
    held = greedily(TABLES, room)
    assert sum(t.bytes[i] for t, i in zip(TABLES, held, strict=True)) <= room


def test_there_may_be_no_choice() -> None:
    assert solved(TABLES, -1) == (None, False)
    assert solved([], 10) == (None, False)


# ------------------------------------------------------------------------------------------------- straight code

DEEP = (
    "fn f(w: f32[d, d], x: f32[b, d]) -> f32 {\n  var h = x\n"
    + "  h = tanh(h @ w) + 0.5 * h\n" * 16
    + "  sum(h * h)\n}"
)
TYPES = ("f32[16, 16]", "f32[256, 16]")


@pytest.fixture(scope="module")
def deep() -> Any:
    return difflang.loads(DEEP, name="deep").f.grad("w")._entry(TYPES, {}).graph


@pytest.mark.parametrize("part", [0.7, 0.45])
def test_straight_code_is_kept_under_a_limit(part: float, deep: Any) -> None:
    """The plan, what XLA makes of it, and the gradient."""
    _, whole = fitted(deep, 0, LITTLE, compile)
    limit = int(part * whole.bytes)
    plan, made = fitted(deep, limit, LITTLE, compile)
    assert made.bytes <= limit and plan.choices  # and what was predicted may be more
    assert abs(plan.account.peak / made.bytes - 1) <= 0.1
    rng = np.random.default_rng(0)
    arrays = [0.2 * rng.normal(size=shape).astype(np.float32) for shape in ((16, 16), (256, 16))]
    got, want = [np.asarray(program(*arrays)[0]) for program in (made, whole)]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())


def test_a_tighter_limit_takes_more_time_and_never_more_room(deep: Any) -> None:
    planner = Planner(deep, LITTLE)
    whole = planner.usual.account.peak
    plans = [planner.plan(int(part * whole)) for part in (1.0, 0.8, 0.6, 0.45, 0.4)]
    again = [sum(work_again(p.eqns, plan_way(plan, p)) for p in planner.pieces) for plan in plans if plan]
    assert again[0] == 0 and again == sorted(again)
    assert planner.smallest.account.peak < 0.4 * whole
    assert planner.plan(planner.smallest.account.peak - 1) is None


class Smaller(NamedTuple):
    """Stands for what XLA compiles: to less than was predicted."""

    bytes: int


@pytest.mark.parametrize("fits", [True, False])
def test_what_xla_leaves_of_a_limit_is_used_if_the_quicker_plan_fits(fits: bool, deep: Any) -> None:
    first, wider = [planned(deep, int(part * planned(deep, 0).account.peak)) for part in (0.5, 0.5 / 0.8)]
    made: list[int] = []

    def make(graph: Graph) -> Smaller:
        made.append(int((0.8 if not made or fits else 1.1) * predicted(graph).peak))
        return Smaller(made[-1])

    limit = int(0.5 * planned(deep, 0).account.peak)
    plan, program = fitted(deep, limit, LITTLE, make)
    assert first.choices != wider.choices and len(made) == 2 and program.bytes <= limit
    assert plan.choices == (wider.choices if fits else first.choices)


def test_what_takes_nothing_keeps_any_limit() -> None:
    f = difflang.loads("@memory(1 KB)\nfn f(w: f32[n]) -> f32 = sum(sin(w))", name="empty").f
    assert f.grad("w")(np.zeros(0, np.float32)).shape == (0,)


def test_pieces_are_cut_again_where_that_alone_fits(deep: Any) -> None:
    """Down to the inputs of a few pieces, and within each of these of a few more."""
    first, *deeper = Planners(deep, LITTLE)
    limit = first.smallest.account.peak - 1
    assert first.plan(limit) is None and any(planner.cutting.deep for planner in deeper)
    plan, made = fitted(deep, limit, LITTLE, compile)
    assert plan.account.peak <= limit and made.bytes <= limit
    rng = np.random.default_rng(1)
    arrays = [0.2 * rng.normal(size=shape).astype(np.float32) for shape in ((16, 16), (256, 16))]
    got, want = [np.asarray(p(*arrays)[0]) for p in (made, compile(first.usual.graph))]
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
    graph = difflang.loads(RECURRENT, name="recurrent").f.grad("w")._entry(("f32[16, 16]", "f32[60, 8, 16]"), {}).graph
    read = 60 * 8 * 16 * 4
    _, whole = fitted(graph, 0, LITTLE, compile)
    _, made = fitted(graph, int(1.5 * read), LITTLE, compile)
    assert made.bytes <= 1.5 * read < whole.bytes


def test_where_xla_takes_as_much_more_of_any_plan_one_is_found_that_keeps_more_than_the_smallest() -> None:
    graph = difflang.loads(RECURRENT, name="recurrent").steps.grad("w")._entry(("f32", "f32[2000]"), {}).graph
    whole, tried = planned(graph, 0).account.peak, list[int]()

    def make(graph: Graph) -> Smaller:
        tried.append(int(predicted(graph).peak + 0.35 * whole))
        return Smaller(tried[-1])

    plan, program = fitted(graph, whole // 2, LITTLE, make)
    assert len(tried) <= 5 and program.bytes <= whole // 2
    assert plan.account.peak > 1.2 * Planner(graph, LITTLE).smallest.account.peak


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
    graph = graph._entry(("f32[8, 600]", "f32[200, 600]", "f32[60, 4, 8]"), {}).graph
    planners = Planners(graph, LITTLE)
    first, *_ = planners
    plan, made = fitted(graph, int(0.8 * first.smallest.account.peak), LITTLE, compile)
    assert made.bytes <= 0.8 * first.smallest.account.peak
    assert plan.account.peak < first.smallest.account.peak
    draw = np.random.default_rng(0)
    arrays = [0.05 * draw.normal(size=s).astype(np.float32) for s in ((8, 600), (200, 600), (60, 4, 8))]
    for got, want in zip(made(*arrays), compile(first.usual.graph)(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize(("part", "most"), [(0.6, 0), (0.3, 80), (0.15, 100)])
def test_no_more_steps_are_taken_again_than_the_limit_asks_for(part: float, most: int) -> None:
    """Of 100: those for which nothing is kept, once; none where a step may keep its state."""
    graph = difflang.loads(RECURRENT, name="steps").steps.grad("w", "v")._entry(("f32", "f32[2000]"), {}).graph
    planner = Planner(graph, LITTLE)
    plan = planner.plan(int(part * planner.usual.account.peak))
    assert plan is not None
    (choice,) = plan.choices
    assert steps_again(100, choice.way) <= most


def steps_again(steps: int, way: Way) -> int:
    """How many steps are taken again on the way back, each with all of what it writes."""
    if not way.slots:
        return 0
    rows = taped_legs(steps, way.slots, way.taped) if way.taped else legs(steps, way.slots + 1)
    assert rows is not None
    return int(rows[:, 2].sum() + rows[:, 3].sum())


@pytest.mark.parametrize(("part", "kept"), [(0.5, "least"), (0.35, "nothing")])
def test_a_step_makes_again_what_its_own_derivative_reads(part: float, kept: str) -> None:
    """Numbers made for who reads them in the same step are not written down: cheaper than to take steps again."""
    graph = difflang.loads(RECURRENT, name="recurrent").f.grad("w")._entry(("f32[16, 16]", "f32[60, 8, 16]"), {}).graph
    planner = Planner(graph, LITTLE)
    plan = planner.plan(int(part * planner.usual.account.peak))
    assert plan is not None and [choice.way.kept for choice in plan.choices] == [kept]


def plan_way(plan: Plan, piece: Piece) -> Any:
    return next((c.way.kept for c in plan.choices if c.span is piece.span and not c.loop), "all")
