"""A limit on memory chooses what loops keep: gradients stay the same, bit for bit, or the limit is refused."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.base.errors import DifflangError
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import file_access, run_program
from difflang.execution.engine import Engine
from difflang.ir.graph import Graph
from difflang.ir.json_codec import graph_from_json, graph_to_json
from difflang.ir.text_parser import graph_from_text
from difflang.ir.text_printer import graph_to_text
from difflang.lower.buffer_assignment import BufferAssignment
from difflang.plan.budget_errors import budget_error
from difflang.plan.budget_search import memory_limit, plan_memory
from difflang.plan.knapsack import OptionTable, solve_greedily, solve_knapsack

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
    return function._specialize(function._bind_arguments(arguments, {})[0]).program.made.memory_bytes


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
    assert memory_limit(module[name].grad("w")._elaborate(("f32", "f32[2, 500]", *rest), {}).graph) == 90 * 1024


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
    assert memory_limit(module.both.grad("w")._elaborate(("f32", "f32[2, 500]"), {}).graph) == 90 * 1024
    assert memory_limit(module.second.grad("w")._elaborate(("f32",), {}).graph) == 1024 * 1024


def test_several_loops_share_a_limit() -> None:
    graph = limited("two", "250 KiB")._elaborate(("f32", "f32[800]"), {}).graph
    plan = plan_memory(graph, memory_limit(graph))
    assert plan.account.peak <= 250 * 1024 < plan.unplanned.peak
    assert len(plan.choices) == 2 and not plan.greedy


@pytest.mark.parametrize("how", ["full", "offload", "full, cap = 300", "sqrt", "every, steps = 1"])
def test_what_the_program_says_of_a_loop_is_left_as_it_is(how: str) -> None:
    text = SOURCE.replace("LIMIT", "1 GiB").replace("  for i", f"  @checkpoint({how})\n  for i")
    graph = difflang.loads(text, name="limited").turned.grad("w")._elaborate(("f32", "f32[2, 500]"), {}).graph
    assert not plan_memory(graph, 0).choices
    with pytest.raises(DifflangError, match="DL1012") as refused:
        plan_memory(graph, plan_memory(graph, 0).account.peak - 1)
    assert any("with `@checkpoint(auto)`, the limit decides" in help for help in refused.value.diagnostics[0].helps)


def test_what_cannot_be_kept_is_refused_with_what_can(whole: tuple[Any, int]) -> None:
    with pytest.raises(DifflangError) as refused:
        limited("turned", "20 KiB")(W, V)
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.code == "DL1012"
    assert any("for i in 0..300" in label.span.text for label in diagnostic.labels)
    way, besides = diagnostic.helps
    assert re.fullmatch(r"of this minimum, [0-9.]+ KiB are arguments and results.*", besides)
    smallest = way.removeprefix("the smallest possible limit is ")
    assert limited("turned", smallest)(W, V) == whole[0]


@pytest.mark.nightly
def test_a_recursion_that_needs_too_much_is_told_where_it_is_declared_and_for_what_depth() -> None:
    text = "@memory(100 KiB)\nfn f(x: f64, n: i32) -> f64 = if n == 0 { x } else { sin(x) * f(0.5 * x, n - 1) }\n"
    gradient = difflang.loads(text, name="deep").f.grad("x")
    gradient(0.5, 3)
    with pytest.raises(difflang.LimitError, match="DL1012") as refused:
        gradient(0.5, 5000)
    (diagnostic,) = refused.value.diagnostics
    assert "at least 204 KiB, with capacity for 4,096 nested calls" in diagnostic.message
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


@pytest.mark.nightly
def test_what_the_interpreter_needs_room_for_changes_no_limited_program() -> None:
    text = "@memory(100 KiB)\nfn f(x: f64, n: i32) -> f64 = if n == 0 { x } else { sin(x) * f(0.5 * x, n - 1) }\n"
    gradient = difflang.loads(text, name="deep").f.grad("x")
    gradient.interpret(0.5, 2000)
    assert gradient(x=0.5, n=3) == pytest.approx(gradient.interpret(0.5, 3), rel=1e-12)


@pytest.mark.nightly
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
    assert (
        refused.value.diagnostics[0]
        .helps[0]
        .endswith("KiB, predicted: `difflang memory --compile` measures it with XLA")
    )


def test_a_limit_that_is_missed_by_little_is_told_in_bytes() -> None:
    nothing = Graph((), (), ()), BufferAssignment((), frozenset(), 0)
    said = [budget_error(nothing[0], limit, nothing[1], 100_000).diagnostics[0] for limit in (90_000, 99_999)]
    assert [d.message for d in said] == [
        "this derivative does not fit in 87.9 KiB: it needs at least 97.7 KiB",
        "this derivative does not fit in 99,999 B: it needs at least 100,000 B",
    ]


def test_a_budget_counts_for_programs_with_derivatives(tmp_path: Path) -> None:
    text = SOURCE.replace("@memory(LIMIT)", "") + "print(grad(turned)(0.7, ones(2, 500)))\nprint(1.0 + 1.0)\n"
    checked = check_program(Source("budget.dfl", text), path=tmp_path / "budget.dfl")
    printed: list[str] = []
    with pytest.raises(DifflangError, match="DL1012"):
        run_program(checked, Engine(budget=20_000), file_access(tmp_path / "budget.dfl"), 0, printed.append)
    run_program(checked, Engine(budget=100_000), file_access(tmp_path / "budget.dfl"), 0, printed.append)
    assert len(printed) == 2


def test_a_limit_is_part_of_the_graph() -> None:
    function: Any = difflang.loads(SOURCE.replace("LIMIT", "90 KiB"), name="limited").turned.grad("w")
    graph = function._elaborate(("f32", "f32[2, 500]"), {}).graph
    assert memory_limit(graph) == 90 * 1024
    assert (
        memory_limit(graph_from_text(graph_to_text(graph)))
        == memory_limit(graph_from_json(graph_to_json(graph)))
        == 90 * 1024
    )
    assert memory_limit(graph, 50) == 50
    plan = plan_memory(graph, 90 * 1024)
    assert plan.account.peak <= 90 * 1024 < plan.unplanned.peak and not plan.greedy
    assert all(choice.slots for choice in plan.choices)


TABLES = [
    OptionTable([(2, 0), (4, 0), (8, 0), (0, 0)], [0, 10, 30, 100], [90.0, 40.0, 20.0, 0.0]),
    OptionTable([(2, 0), (4, 0), (0, 0)], [0, 20, 45], [30.0, 25.0, 0.0]),
]


@pytest.mark.parametrize(("room", "time"), [(0, 120), (10, 70), (45, 90), (55, 40), (75, 20), (145, 0), (1000, 0)])
def test_choices_go_together_in_the_least_time(room: float, time: float) -> None:
    picks, greedy = solve_knapsack(TABLES, room)
    assert picks is not None and not greedy
    assert sum(t.times[i] for t, i in zip(TABLES, picks, strict=True)) <= time
    assert sum(t.bytes[i] for t, i in zip(TABLES, picks, strict=True)) <= room
    held = solve_greedily(TABLES, room)
    assert sum(t.bytes[i] for t, i in zip(TABLES, held, strict=True)) <= room


def test_there_may_be_no_choice() -> None:
    assert solve_knapsack(TABLES, -1) == (None, False)
    assert solve_knapsack([], 10) == (None, False)
