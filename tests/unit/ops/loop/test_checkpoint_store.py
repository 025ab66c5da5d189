"""Tapes: what is had again from few states is what it was, whatever the number of steps and the order."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import difflang
from derivative_programs import Program, programs
from derivatives import composed
from difflang.ir.interpreter import evaluate
from difflang.ir.tensor_types import F64, Tensor
from difflang.lower.graph_to_jax import Lowering
from difflang.ops.loop import binomial_schedule, checkpoint_store, treeverse
from difflang.ops.loop.checkpoint_store import StoreRequest, StoreSize, insert_checkpoint
from difflang.runtime.compile import compile_graph

PROGRAMS = {p.name: p for p in programs()}
LONG = ("rotation-while-50", "rotation-exact-50", "while-in-while-7", "branchy-50", "early-50", "lanes-4", "calls-7")
SHORT = ("newton-0", "rotation-while-0", "rotation-while-1", "while-in-while-1", "branchy-1")


def small(monkeypatch: pytest.MonkeyPatch, slots: int, steps: int) -> None:
    """Tapes so small that 50 steps fill them many times."""
    for name, number in {
        "MAX_STORE_ALL": slots,
        "MAX_STORE_ALL_NESTED": slots,
        "MAX_SLOTS": slots,
        "MIN_SLOTS": slots,
        "MAX_INTERVAL": steps,
    }.items():
        monkeypatch.setattr(checkpoint_store, name, number)
    monkeypatch.setattr(checkpoint_store, "MIN_INTERVAL", steps)


def agrees(program: Program, order: str) -> None:
    graph = composed(order, program.graph)
    rng = np.random.default_rng(0)
    xs = [np.asarray(x, np.float64) for x in program.arguments]
    xs += [rng.normal(size=p.type.shape) for p in graph.params[len(xs) :]]
    found = compile_graph(graph)(*xs)
    for got, want in zip(found, evaluate(graph, *xs), strict=True):
        scale = max(1e-9, float(np.max(np.abs(want), initial=0.0)))
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize("order", ["V", "JV", "VV"])
@pytest.mark.parametrize(("name", "slots", "steps"), [*((n, 2, 1) for n in LONG + SHORT), *((n, 4, 3) for n in LONG)])
@pytest.mark.nightly_cases(".*-VV")
def test_small_tapes_give_the_same(
    name: str, slots: int, steps: int, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch, slots, steps)
    if (len(name) + slots) % 2:  # only what is kept is written
        monkeypatch.setattr(checkpoint_store, "LARGE_STATE_BYTES", 0)
    agrees(PROGRAMS[name], order)


@pytest.mark.parametrize("how", ["full, cap = 20", "every, steps = 1", "revolve, slots = 20"])
def test_beyond_its_room_a_tape_of_each_state_is_gone_back_through_leg_by_leg(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step by step, each state would be had again from the last one kept before it."""
    made: list[treeverse.OnlineSegments] = []

    class Noted(treeverse.OnlineSegments):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(treeverse, "OnlineSegments", Noted)
    step = "while i < k {\n y = sin(y)\n i += 1\n }"
    text = f"fn f(x: f64, k: i32) -> f64 {{\n var y = x\n var i = 0\n HOW\n {step}\n y\n}}"
    f, plain = (difflang.loads(text.replace("HOW", s), name="long").f for s in (f"@checkpoint({how})", ""))
    for k in (0, 19, 20, 21, 22, 43, 700):
        np.testing.assert_allclose(f.grad("x")(0.7, k), plain.grad("x")(0.7, k), rtol=1e-14)
    assert made


@pytest.mark.parametrize("name", ["rotation-while-50", "while-in-while-7", "lanes-4"])
def test_large_states_that_are_not_kept_are_not_written(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And none is lost by that, whether all, some or planned ones are kept."""
    monkeypatch.setattr(checkpoint_store, "LARGE_STATE_BYTES", 0)
    agrees(PROGRAMS[name], "V")
    small(monkeypatch, 3, 2)
    agrees(PROGRAMS[name], "V")


def test_other_platforms_write_every_state(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "fn f(x: f64[600], k: i32) -> f64 {\n  var y = x\n  for i in 0..k { y = sin(y) }\n  sum(y)\n}"
    x, k, shown = np.ones(600), np.int32(3), list[tuple[str, str]]()
    for large in (0, 1 << 30):
        monkeypatch.setattr(checkpoint_store, "LARGE_STATE_BYTES", large)
        gradient = difflang.loads(text, name="states").f.grad("x")
        shown.append((gradient.lower(x, k, platform="cpu").as_text(), gradient.lower(x, k, platform="cuda").as_text()))
    assert shown[0][0] != shown[1][0] and shown[0][1] == shown[1][1]


@pytest.mark.parametrize("order", ["VJV", "JVV", pytest.param("VVV", marks=pytest.mark.slow)])
@pytest.mark.nightly_except("JVV")
def test_third_order(order: str) -> None:
    agrees(PROGRAMS["rotation-while-7"], order)


def test_a_program_grows_with_the_loops_that_are_read_not_with_the_ways_to_them() -> None:
    """Each reverse mode doubles the loops; had every reader a copy of every way, this would be twenty times as long."""

    def length(order: str) -> int:
        graph = composed(order, PROGRAMS["newton-7"].graph)
        with jax.enable_x64(True):
            specs = [jax.ShapeDtypeStruct(p.type.shape, np.float64) for p in graph.params]
            return jax.jit(lambda *xs: Lowering(jax).graph(graph, *xs)).lower(*specs).as_text().count("\n")

    assert length("VVV") < 8 * length("VV")


@pytest.mark.slow
def test_reverse_mode_four_deep() -> None:
    """Of x^5, multiplied together until a counter says so: 120 x."""
    source = "float f64\nfn f(x: f64) -> f64 {\n var s = x\n var k = 0\n while k < 4 {\n s *= x\n k += 1\n }\n s\n}"
    module: Any = difflang.loads(f"{source}\nfn g(x: f64) -> f64 = grad(grad(grad(grad(f))))(x)\n", name="power")
    assert float(module.g.interpret(0.7)) == pytest.approx(120 * 0.7, rel=1e-13)


@pytest.mark.parametrize(
    "size",
    [
        StoreSize(2, 2, 1),
        StoreSize(5, 5, 1),
        StoreSize(8, 8, 2),
        StoreSize(4, 6, 4),
        StoreSize(0, 3, 4),
        StoreSize(64, 8, 16),
    ],
)
def test_what_is_kept_is_what_the_schedule_says_each_in_a_slot_of_its_own(size: StoreSize) -> None:
    order = size.order
    held = {int(slot): int(step) for step, slot in zip(*order, strict=True) if step < binomial_schedule.INT32_MAX}
    kept = sorted(held.values())
    taken, place = jax.jit(lambda order, place, step: insert_checkpoint(jax, size, order, place, step)), np.int32(1)
    for step in range(size.store_all_up_to, 400):
        if step % size.steps:
            continue
        order, place, _, slot = taken(order, place, np.int32(step))
        order = tuple(map(np.asarray, order))
        more = np.asarray([*kept, step], np.int32) // size.steps
        kept.append(step)
        if len(kept) > size.slots:
            del kept[int(binomial_schedule.choose_dropped(np, more, more[-1] + 1, binomial_schedule.suffix_sums))]
        held[int(slot)] = step
        found = {int(slot): int(step) for step, slot in zip(*order, strict=True) if step < binomial_schedule.INT32_MAX}
        assert found == held and sorted(held.values()) == kept


def test_large_states_get_few_slots_and_small_ones_many() -> None:
    assert StoreSize.of([Tensor(F64)], 1, StoreRequest()) == StoreSize(16384, 256, 512)
    assert StoreSize.of([Tensor(F64)], 1, StoreRequest(), inside=True) == StoreSize(4096, 256, 512)
    assert StoreSize.of([Tensor(F64, (1000,))], 1, StoreRequest()) == StoreSize(256, 256, 64)
    assert StoreSize.of([Tensor(F64, (10**7,))], 1, StoreRequest()) == StoreSize(16, 16, 4)
    assert StoreSize.of([Tensor(F64)], 1000, StoreRequest()) == StoreSize(16, 16, 4)
    assert StoreSize.of([], 1, StoreRequest()) == StoreSize(16384, 256, 512)
    full = StoreSize.of([Tensor(F64)], 1, StoreRequest(1000, 1))
    assert full == StoreSize(1001, 1001, 1)  # while there is room nothing is decided
    assert StoreSize.of([Tensor(F64)], 1, StoreRequest(1000, 0)).store_all_up_to == 0
    assert StoreSize.of([Tensor(F64)], 1, StoreRequest(7, 6)).store_all_up_to == 0
    assert StoreSize.of([Tensor(F64)], 1, StoreRequest(1000, 1, 500)).planned == tuple(range(500))


SOURCE = """
float f64
fn decay(r: f64, x0: f64, k: i32) -> f64 {
  var x = x0
  var i = 0
  while i < k {
    x = x + r * x * (1.0 - x)
    i += 1
  }
  x
}
"""


def recurrence(r: float, x: float, k: int) -> tuple[float, float]:
    """Its result and the derivative in r, carried along."""
    dx = 0.0
    for _ in range(k):
        x, dx = x + r * x * (1 - x), dx + x * (1 - x) + r * dx * (1 - 2 * x)
    return x, dx


@pytest.mark.parametrize("k", [0, 1, 10, 1000, 100_000])
def test_any_number_of_steps(k: int) -> None:
    module: Any = difflang.loads(SOURCE, name="decay")
    value, gradient = module.decay.value_and_grad("r")(1e-5, 0.25, k)
    expected = recurrence(1e-5, 0.25, k)
    assert (float(value), float(gradient)) == pytest.approx(expected, rel=1e-11)


def test_memory_does_not_grow_with_the_steps() -> None:
    """One executable for every number of steps: less than a state a step for 100,000 of them."""
    module: Any = difflang.loads(SOURCE, name="decay")
    program = module.decay.grad("r").lower("f64", "f64", "i32").compile()
    assert program.memory_analysis().temp_size_in_bytes < 8 * 100_000 / 5
