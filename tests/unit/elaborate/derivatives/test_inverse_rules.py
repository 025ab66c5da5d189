"""`rule step by inverse g`: a loop is run backwards instead of stored, and its derivatives are those without the rule.

The loops turn their states, so that a mistake in one step is as large at the end. What is expected is what the same
program gives without its rules, where reverse mode stores what it needs.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang.ad.expand_derivatives import differentiate
from difflang.base.errors import DifflangError
from difflang.ir.graph import Graph, graphs_postorder
from difflang.ir.interpreter import evaluate
from difflang.ir.json_codec import graph_from_json, graph_to_json
from difflang.ir.op import OPS
from difflang.ir.structural_equality import graphs_equal
from difflang.ir.text_parser import graph_from_text
from difflang.ir.text_printer import graph_to_text
from difflang.lower.graph_to_jax import Lowering
from difflang.ops.loop import loop_execution
from difflang.ops.loop.reversible_loop import invert_step
from difflang.runtime.compile import compile_graph

SOURCE = """
float f64
fn kick(v: f64[n], x: f64[n], w: f64) -> f64[n] = v - 0.05 * w * sin(x)
rule kick(v, x, w) by inverse |v| v + 0.05 * w * sin(x)

fn leap(x: f64[n], v: f64[n], w: f64) -> (f64[n], f64[n]) {
  let h = kick(v, x, w)
  let y = x + 0.1 * h
  (y, kick(h, y, w))
}
rule leap(x, v, w) by inverse |(x, v)| { let (y, u) = leap(x, -v, w)
  (y, -u) }

record Body[n] { x: f64[n], v: f64[n], mass: f64, id: i32 }
fn drift(b: Body[n], w: f64) -> Body[n] {
  let (x, v) = leap(b.x, b.v, w / b.mass)
  b with (x = x, v = v, id = b.id + 3)
}
fn undrift(b: Body[n], w: f64) -> Body[n] = {
  let (x, v) = leap(b.x, -b.v, w / b.mass)
  b with (x = x, v = -v, id = b.id - 3)
}
rule drift by inverse undrift

fn energy(x: f64[n], v: f64[n], w: f64) -> f64 = sum(v * v) + sum(x * x * x) + w * sum(x)

fn open(w: f64, x0: f64[2], k: i32) -> f64 {
  var (x, v) = (x0, 0.0 * x0)
  for _ in 0..k { (x, v) = leap(x, v, w) }
  energy(x, v, w)
}
fn known(w: f64, x0: f64[2], u: f64[23]) -> f64 {
  var (x, v) = (x0, 0.0 * x0)
  let ys = for i in 0..23 {
    (x, v) = leap(x, v, w * u[i])
    yield x[0] * u[i]
  }
  energy(x, v, w) + sum(ys * ys)
}
fn until(w: f64, x0: f64[2]) -> f64 {
  var (x, v, t) = (x0, 0.0 * x0, 0.0)
  while x[0] > -0.2 and t < 9.0 {
    v = kick(v, x, w)
    x += 0.1 * v
    t += 0.1
  }
  energy(x, v, w)
}
fn apart(w: f64, x0: f64[2], k: i32) -> f64 {
  var (x, v) = (x0, w * x0)
  var total = 0.0
  for i in 0..k {
    v = kick(v, x, w)
    x = kick(x, -0.5 * v, w)
    total += x[0] * f64(i)
  }
  energy(x, v, w) + total
}
fn records(w: f64, x0: f64[2], k: i32) -> f64 {
  var b = Body(x = x0, v = w * x0, mass = 1.0 + w, id = i32(7))
  for _ in 0..k { b = drift(b, w) }
  energy(b.x, b.v, w) * f64(b.id) / b.mass
}
fn nested(w: f64, x0: f64[2], k: i32) -> f64 {
  var x = x0
  for i in 0..4 {
    var v = 0.1 * x
    for _ in 0..k + i { (x, v) = leap(x, v, w) }
    x = x + 0.1 * x * v
  }
  sum(x * x * x)
}
fn downwards(w: f64, x0: f64[2], u: f64[9]) -> f64 {
  var (x, v) = (x0, 0.0 * x0)
  for c in reverse(u) { (x, v) = leap(x, v, w * c) }
  energy(x, v, w)
}
fn needed(w: f64, x0: f64[2], k: i32) -> f64 {
  var (x, v, most) = (x0, 0.0 * x0, 0.0)
  for _ in 0..k {
    (x, v) = leap(x, v, w)
    most = max(most, x[0] * x[1])
  }
  energy(x, v, w) + most * most
}
fn read(w: f64, x0: f64[2], k: i32) -> f64 {
  var (x, v) = (x0, 0.0 * x0)
  let path = for _ in 0..k {
    (x, v) = leap(x, v, w)
    yield x[0]
  }
  var s = 0.0
  for y in reverse(path) { s = 0.5 * s + sin(y) }
  s + energy(x, v, w)
}
fn either(w: f64, x0: f64[2], k: i32) -> f64 = if k % 2 == 0 { open(w, x0, k) } else { nested(w, x0, k) }
fn lanes(w: f64, x0: f64[2], ks: i32[m]) -> f64 = sum([for l => open(w * (1.0 + 0.1 * f64(ks[l])), x0, ks[l])])
fn chosen(w: f64, x0: f64[2], k: i32) -> f64 {
  var (x, v) = (x0, 0.0 * x0)
  @checkpoint(revolve, slots = 3)
  for _ in 0..k { (x, v) = leap(x, v, w) }
  energy(x, v, w)
}
"""
W, X, U = 0.7, np.array([0.9, 0.4]), np.linspace(0.5, 1.5, 23)
CALLS: dict[str, tuple[Any, ...]] = {
    "open": (37,), "known": (U,), "until": (), "apart": (20,), "records": (15,), "nested": (5,),
    "downwards": (U[:9],), "needed": (30,), "read": (25,), "either": (6,), "chosen": (30,),
    "lanes": (np.array([0, 1, 5, 30], np.int32),),
}  # fmt: skip
UNDONE = {"open", "known", "apart", "records", "nested", "downwards", "either", "lanes"}
ORDERS = """
fn F_push(w: f64, x0: f64[2]ARGS) -> f64 { let (_, d) = jvp(|w| F(w, x0GIVEN))(w, 1.0)
  d }
fn F_pull(w: f64, x0: f64[2]ARGS) -> f64 = grad(|w| F(w, x0GIVEN))(w)
fn F_push_pull(w: f64, x0: f64[2]ARGS) -> f64 { let (_, d) = jvp(|w| grad(|w| F(w, x0GIVEN))(w))(w, 1.0)
  d }
fn F_pull_push(w: f64, x0: f64[2]ARGS) -> f64[2] = grad(|x| F_push(w, xGIVEN))(x0)
fn F_pull_pull(w: f64, x0: f64[2]ARGS) -> f64[2] = grad(|x| grad(|w| F(w, xGIVEN))(w))(x0)
fn F_third(w: f64, x0: f64[2]ARGS) -> f64 { let (_, d) = jvp(|w| F_push_pull(w, x0GIVEN))(w, 1.0)
  d }
"""
TYPES = {"known": "f64[23]", "downwards": "f64[9]", "lanes": "i32[4]"}


@pytest.fixture(scope="module")
def ruled() -> Any:
    text = SOURCE
    for name in ("open", "records", "nested"):
        text += ORDERS.replace("ARGS", ", u: i32").replace("GIVEN", ", u").replace("F", name)
    return difflang.loads(text, name="turning")


def lowered(of: Any, name: str) -> Graph:
    types = () if name == "until" else (TYPES.get(name, "i32"),)
    return getattr(of, name).grad("w", "x0").lower("f64", "f64[2]", *types).graph


def given(name: str) -> list[np.ndarray]:
    found = [np.asarray(x) for x in (W, X, *CALLS[name])]
    return [x if x.dtype.kind == "f" else x.astype(np.int32) for x in found]


def compiled(graph: Graph, *given: Any) -> list[Any]:
    return compile_graph(graph)(*given)


@pytest.mark.parametrize("name", CALLS)
def test_a_gradient_is_that_of_a_loop_that_stores(name: str, ruled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run backwards are loops whose states inverses give back; one that chooses otherwise, or needs more, stores."""
    taped: list[Any] = []

    class Tape(loop_execution.CheckpointStore):
        def __init__(self, *given: Any) -> None:
            taped.append(given)
            super().__init__(*given)

    monkeypatch.setattr(loop_execution, "CheckpointStore", Tape)
    graph, arrays = lowered(ruled, name), given(name)
    for got, want in zip(compiled(graph, *arrays), evaluate(graph, *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    around = name in ("nested", "either")  # the loop around stores
    assert bool(taped) == (name not in UNDONE or around)


@pytest.mark.parametrize("order", ["pull", "push_pull", "pull_push", "pull_pull", "third"])
@pytest.mark.parametrize("name", ["open", "records", "nested"])
@pytest.mark.nightly_cases(".*-(pull_pull|third)")
def test_so_are_derivatives_of_higher_orders(name: str, order: str, ruled: Any) -> None:
    graph, arrays = getattr(ruled, f"{name}_{order}").lower("f64", "f64[2]", "i32").graph, given(name)
    for got, want in zip(compiled(graph, *arrays), evaluate(graph, *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10)


@pytest.mark.parametrize("name", ["open", "known", "records"])
def test_the_rule_changes_no_derivative(name: str, ruled: Any) -> None:
    lines = [line for line in SOURCE.split("\n") if not line.startswith(("rule", "  (y, -u) }"))]
    plain: Any = difflang.loads("\n".join(lines), name="plain")
    arrays = given(name)
    got, want = (evaluate(lowered(m, name), *arrays) for m in (ruled, plain))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-13)


# ------------------------------------------------------------------------------------------------- memory, steps

LONG = """
float f64
fn leap(x: f64[n], v: f64[n], w: f64) -> (f64[n], f64[n]) {
  let h = v - 0.005 * w * sin(x)
  let y = x + 0.01 * h
  (y, h - 0.005 * w * sin(y))
}
rule leap(x, v, w) by inverse |(x, v)| leap_back(x, v, w)
fn leap_back(x: f64[n], v: f64[n], w: f64) -> (f64[n], f64[n]) {
  let (y, u) = leap(x, -v, w)
  (y, -u)
}
fn far(w: f64, x0: f64[n], steps: dim) -> f64 {
  var (x, v) = (x0, 0.0 * x0)
  for _ in 0..steps { (x, v) = leap(x, v, w) }
  sum(x * x)
}
fn stored(w: f64, x0: f64[n], steps: dim) -> f64 {
  var (x, v) = (x0, 0.0 * x0)
  for _ in 0..steps {
    let h = v - 0.005 * w * sin(x)
    x += 0.01 * h
    v = h - 0.005 * w * sin(x)
  }
  sum(x * x)
}
fn long(w: f64, x0: f64[n], steps: i32) -> f64 {
  var (x, v) = (x0, 0.0 * x0)
  for _ in 0..steps { (x, v) = leap(x, v, w) }
  sum(x * x)
}
"""


@pytest.fixture(scope="module")
def far() -> Any:
    return difflang.loads(LONG, name="far")


def room(of: Any, name: str, steps: int) -> int:
    program: Any = getattr(of, name).grad("w", "x0").lower("f64", "f64[100]", steps).compile()
    return int(program.memory_analysis().temp_size_in_bytes)


def test_memory_does_not_grow_with_the_steps(far: Any) -> None:
    assert room(far, "far", 100) == room(far, "far", 10_000) < 20_000
    assert room(far, "stored", 10_000) > 10_000 * 100 * 8


def test_ten_thousand_steps_of_leapfrog(far: Any) -> None:
    x = np.linspace(0.1, 1.3, 100)
    found, want = far.far.grad("w", "x0")(W, x, 10_000), far.stored.grad("w", "x0")(W, x, 10_000)
    np.testing.assert_allclose(found.w, want.w, rtol=1e-10)
    np.testing.assert_allclose(found.x0, want.x0, rtol=1e-9)


def test_each_step_is_undone_once(far: Any) -> None:
    """N steps forwards, N undone, and N times what a step saves: sines of the step and of its inverse are counted."""
    counts = {"leap": 0, "leap.inverse": 0}

    class Counting(Lowering):
        __slots__ = ()

        def call(self, body: Graph, *arrays: Any) -> list[Any]:
            return self.graph(body, *arrays)

        def graph(self, graph: Graph, *arrays: Any) -> list[Any]:
            sines = sum(e.op.name == "sin" for e in graph.eqns)
            if sines:
                jax.debug.callback(lambda: counts.__setitem__("leap", counts["leap"] + sines))
            return super().graph(graph, *arrays)

    graph = far.long.grad("w", "x0").lower("f64", "f64[2]", "i32").graph
    with jax.enable_x64(True):
        jax.jit(lambda *xs: Counting(jax).graph(graph, *xs))(np.float64(W), X, np.int32(50))
    jax.effects_barrier()
    assert counts["leap"] == 2 * 50 * 3


# ------------------------------------------------------------------------------------------------- wrong inverses

WRONG = {
    "another step": "|(x, v)| { let (y, u) = leap(x, -1.0001 * v, w)\n  (y, -u) }",
    "nothing undone": "|(x, v)| (x, v)",
    "too far": "|(x, v)| { let (y, u) = leap(x, -v, w + 1e-4)\n  (y, -u) }",
}


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("steps", [1, 200])
def test_a_wrong_inverse_makes_a_gradient_nan(how: str, steps: int) -> None:
    head, _, rest = LONG.partition("rule leap(x, v, w) by inverse |(x, v)| leap_back(x, v, w)")
    of: Any = difflang.loads(f"{head}@unchecked rule leap(x, v, w) by inverse {WRONG[how]}\n{rest}", name="wrong")
    slope = of.long.grad("w", "x0")
    for found in (slope(W, X, steps), slope.interpret(W, X, steps)):
        assert np.isnan(found.w) and np.isnan(found.x0).all()
    assert np.isfinite(of.long(W, X, steps)), "the value asks for no inverse"
    assert np.isfinite(of.long.grad("w", "x0")(W, X, 0).w)


@pytest.mark.filterwarnings("ignore::difflang.DifflangWarning")  # on a CPU, of `offload`
@pytest.mark.parametrize("how", ["full", "offload", "full, cap = 3", "sqrt"])
def test_a_loop_that_says_which_states_it_keeps_is_not_undone(how: str) -> None:
    head, _, rest = LONG.partition("rule leap(x, v, w) by inverse |(x, v)| leap_back(x, v, w)")
    rest = rest.replace("steps: i32", "steps: dim").replace("  for ", f"  @checkpoint({how})\n  for ")
    kept: Any = difflang.loads(
        f"{head}@unchecked rule leap(x, v, w) by inverse {WRONG['nothing undone']}\n{rest}", name="kept"
    )
    plain: Any = difflang.loads(head + rest, name="plain")
    expected = plain.long.grad("w", "x0").interpret(W, X, 20)
    found = kept.long.grad("w", "x0")(W, X, 20)
    np.testing.assert_allclose(found.w, expected.w, rtol=1e-12)
    np.testing.assert_allclose(found.x0, expected.x0, rtol=1e-12)


def test_a_loop_that_forgets_where_it_began() -> None:
    """Halved until nothing is left, a number is not had again by doubling."""
    text = """float f64
fn halved(x: f64, k: i32) -> f64 = 0.5 * x * (1.0 + 0.0 * x * x)
rule halved(x, k) by inverse |x| 2.0 * x
fn often(x0: f64, k: i32) -> f64 {
  var x = x0
  for _ in 0..k { x = halved(x, k) }
  x
}
"""
    of: Any = difflang.loads(text, name="halved")
    assert float(of.often.grad()(0.7, 100)) == 0.5**100
    assert float(of.often.grad().interpret(0.7, 100)) == 0.5**100
    assert np.isnan(of.often.grad()(0.7, 1500)) and np.isnan(of.often.grad().interpret(0.7, 1500))


def test_what_begins_at_rest_comes_back_to_rest(far: Any) -> None:
    """Zeros are compared in the size of the numbers on the way."""
    assert np.isfinite(far.long.grad("w")(W, np.array([0.5]), 10_000))
    assert np.isfinite(far.long.grad("w")(np.float64(0.0), np.zeros(1), 10))


def test_what_is_infinite_stays_so() -> None:
    text = """float f64
fn moved(x: f64[3], w: f64) -> f64[3] = x + 0.1 * w
@unchecked rule moved(x, w) by inverse |x| WAY
fn often(x0: f64[3], w: f64, k: i32) -> f64 {
  var x = x0
  var s = 0.0
  for _ in 0..k {
    s += exp(-x[0]) + exp(-x[2])
    x = moved(x, w)
  }
  s
}
"""
    x = np.array([0.3, np.inf, 0.5])
    of: Any = difflang.loads(text.replace("WAY", "x - 0.1 * w"), name="moved")
    want = -sum(0.1 * k * (np.exp(-0.3 - 0.05 * k) + np.exp(-0.5 - 0.05 * k)) for k in range(20))
    np.testing.assert_allclose(of.often.grad("w")(x, 0.5, 20), want, rtol=1e-12)
    of = difflang.loads(text.replace("WAY", "x - 0.101 * w"), name="moved")
    assert np.isnan(of.often.grad("w")(x, 0.5, 20))


def test_a_check_that_fails_in_a_step_is_reported() -> None:
    text = """float f64
fn step(x: f64[n], a: f64[m], i: i32) -> f64[n] = x + a[i]
rule step(x, a, i) by inverse |x| x - a[i]
fn often(x0: f64[n], a: f64[m], k: i32) -> f64 {
  var x = x0
  var s = 0.0
  for i in 0..k {
    s += sum(x * x)
    x = step(x, a, i)
  }
  s
}
"""
    of: Any = difflang.loads(text, name="step")
    given = np.array([1.0, 2.0]), np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(of.often.grad("a")(*given, 3), [13.6, 7.2, 0.0], rtol=1e-12)
    with pytest.raises(DifflangError, match="DL0902"):
        of.often.grad("a")(*given, 4)


def test_a_check_that_fails_in_the_inverse() -> None:
    text = """float f64
fn moved(x: f64[n], i: i32) -> f64[n] = x + 0.01
fn back(x: f64[n], i: i32) -> f64[n] = x - 0.01 * (x[i] / x[i])
@unchecked rule moved by inverse back
fn often(x0: f64[n], k: i32, i: i32) -> f64 {
  var x = x0
  var s = 0.0
  for _ in 0..k {
    s += sum(x * x)
    x = moved(x, i)
  }
  s
}
"""
    of: Any = difflang.loads(text, name="moved")
    np.testing.assert_allclose(of.often.grad()(X, 5, 1), 10 * X + 0.2, rtol=1e-12)
    assert np.isnan(of.often.grad()(X, 5, 2)).all()


# ------------------------------------------------------------------------------------------------- the op


def test_text_and_json_come_back(ruled: Any) -> None:
    graph = lowered(ruled, "records")
    assert "invertible" in graph_to_text(graph) and "reversible = true" in graph_to_text(graph)
    assert graphs_equal(graph_from_text(graph_to_text(graph)), graph, names=False)
    assert graphs_equal(graph_from_json(graph_to_json(graph)), graph, names=False)


def test_without_reverse_mode_it_is_a_call(ruled: Any) -> None:
    for program in (ruled.records, ruled.open_push):
        assert "invertible" not in graph_to_text(program.lower("f64", "f64[2]", "i32").graph)
    assert OPS["invertible"].without_derivative is not None


def test_a_linear_function_may_have_an_inverse() -> None:
    text = """float f64
fn turn(x: f64[2], a: f64) -> f64[2] = [cos(a) * x[0] - sin(a) * x[1], sin(a) * x[0] + cos(a) * x[1]]
rule turn(x, a) by inverse |x| turn(x, -a)
fn around(x: f64[2], a: f64, k: i32) -> f64[2] {
  var y = x
  for _ in 0..k { y = turn(y, a) }
  y
}
fn twice(x: f64[2], a: f64, k: i32) -> f64[2] {
  let l = linear |v: f64[2]| around(v, a, k)
  transpose(l)(l(x))
}
fn size(a: f64, x: f64[2], k: i32) -> f64 = sum(twice(x, a, k)^3)
fn series(a: f64) -> f64[4] = jet(|t| turn([1.0, 2.0], t)[0], order = 3)(a)
"""
    of: Any = difflang.loads(text, name="turn")
    np.testing.assert_allclose(of.twice(X, 0.3, 10), X, rtol=1e-14)
    np.testing.assert_allclose(of.size.grad("a")(0.3, X, 10), 0.0, atol=1e-12)
    c, s = np.cos(0.3), np.sin(0.3)
    np.testing.assert_allclose(of.series(0.3), [c - 2 * s, -s - 2 * c, -(c - 2 * s) / 2, (s + 2 * c) / 6], rtol=1e-14)


def test_a_narrower_value_is_a_call_like_any_other() -> None:
    """Where the function gives more variants than it was given there is nothing to go back to."""
    text = """float f64
enum Side { Left(x: f64), Right(x: f64) }
fn other(s: Side, w: f64) -> Side = match s { Left(x) => Right(w * x), Right(x) => Left(w * x) }
rule other(s, w) by inverse |s| match s { Left(x) => Right(x / w), Right(x) => Left(x / w) }
fn often(w: f64, x: f64, k: i32) -> f64 {
  var s = if x > 0.0 { Left(x) } else { Right(x) }
  for _ in 0..k { s = other(s, w) }
  match s { Left(x) => x, Right(x) => -x }
}
"""
    of: Any = difflang.loads(text, name="sides")
    np.testing.assert_allclose(of.often.grad("w")(1.1, 0.7, 5), -0.7 * 5 * 1.1**4, rtol=1e-13)


def test_what_it_refuses() -> None:
    with pytest.raises(DifflangError) as raised:
        difflang.loads("fn f(x: f64) -> f64 = x\nrule f(y) by inverse |y| y\n")
    assert raised.value.diagnostics[0].code == "DL1104"


def test_a_function_that_a_step_reaches_on_many_ways_is_looked_at_once() -> None:
    """Each of these calls the one before it twice: on 2 ** 60 ways the first is reached."""
    chain = "".join([f"fn f{i + 1}(x: f64) -> f64 = f{i}(x) + f{i}(0.5 * x)\n" for i in range(60)])
    text = f"""fn f0(x: f64) -> f64 = 2.0 * x
{chain}fn often(x0: f64, k: i32) -> f64 {{
  var x = x0
  for _ in 0..k {{ x = sin(f60(x)) }}
  x
}}
"""
    graph = difflang.loads(text, name="ways").often.grad()._elaborate(("f64", "i32"), {}).graph
    assert len(graphs_postorder(differentiate(graph))[0]) < 500


def test_what_a_call_passes_on_is_known_before_it_too() -> None:
    """A step that calls a long function twice, which gives back one of its arguments beside what it changes."""
    long = "\n".join([f"  let a{i + 1} = sin(a{i}) + 0.1 * cos(a{i})" for i in range(30)])
    text = f"""float f64
fn kick(v: f64, x: f64) -> f64 {{
  let a0 = x
{long}
  v + 0.001 * a30
}}
fn unkick(v: f64, x: f64) -> f64 {{
  let a0 = x
{long}
  v - 0.001 * a30
}}
rule kick by inverse unkick
fn both(x: f64, v: f64) -> (f64, f64) = (x, kick(v, x))
fn long(x0: f64, k: i32) -> f64 {{
  var (x, v) = (x0, 0.5)
  for _ in 0..k {{
    (x, v) = both(x, v)
    (v, x) = both(v, x)
  }}
  x * v
}}
"""
    graph = differentiate(difflang.loads(text, name="passed").long.grad()._elaborate(("f64", "i32"), {}).graph)
    (eqn,) = [e for g in graphs_postorder(graph)[0] for e in g.eqns if e.attrs.get("reversible")]
    carry = eqn.attrs["carry"]
    assert invert_step(eqn.regions[0], 1 + eqn.attrs["consts"], carry, range(carry)) is not None
