"""`@checkpoint` chooses what reverse mode keeps of a loop, and never a result: gradients are the same, bit for bit.

The loops turn their states, so that a mistake in one step is as large at the end.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang.base.errors import DifflangError, DifflangWarning
from difflang.ir.json_codec import graph_from_json, graph_to_json
from difflang.ir.tensor_types import F64, History, Tensor
from difflang.ir.text_parser import graph_from_text
from difflang.ir.text_printer import graph_to_text
from difflang.ops.loop.checkpoint_store import StoreRequest, StoreSize, plan_checkpoints

TURN = "[0.6 * x[0] - 0.8 * x[1], 0.8 * x[0] + 0.6 * x[1]]"
SOURCE = f"""
float f64
@STRATEGY
fn counted(w: f64, v: f64[2], u: f64[23]) -> f64 {{
  var x = v
  let ys = for i in 0..23 {{
    x = {TURN} + 0.01 * sin(w * x * u[i])
    yield x[0] * u[i]
  }}
  sum(x * x * x) + sum(ys * ys)
}}

fn open(w: f64, v: f64[2], k: i32) -> f64 {{
  var x = v
  @STRATEGY
  for _ in 0..k {{ x = {TURN} + 0.01 * sin(w * x) }}
  sum(x * x * x)
}}

fn nested(w: f64, v: f64[2], k: i32) -> f64 {{
  var x = v
  @STRATEGY
  for i in 0..9 {{
    var j = 0
    @STRATEGY
    while j < k + i {{
      x = {TURN} + 0.01 * sin(w * x)
      j += 1
    }}
    x = x + 0.001 * x * x
  }}
  sum(x * x * x)
}}

fn lanes(w: f64, v: f64[2], ks: i32[m]) -> f64 = sum([for l => open(w, v, ks[l])])

fn noisy(w: f64, v: f64[2], k: i32) -> f64 {{
  var x = v
  @STRATEGY
  for _ in 0..k {{ x = {TURN} + 0.01 * sin(w * x) * normal() }}
  sum(x * x * x)
}}

fn checked(w: f64, v: f64[2], k: i32, last: i32) -> f64 {{
  var x = v
  @STRATEGY
  for i in 0..k {{ x = {TURN} + 0.01 * sin(w * v[i % last]) * x }}
  sum(x * x * x)
}}
"""
V, U, W = np.array([0.3, 0.4]), np.linspace(-1.0, 1.0, 23), 0.7
STRATEGIES = ("full, cap = 5", "revolve, slots = 1", "revolve, slots = 3", "every, steps = 6", "sqrt")
CALLS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "counted": ("wvu", (W, V, U)),
    "open": ("wv", (W, V, 37)),
    "nested": ("wv", (W, V, 2)),
    "lanes": ("wv", (W, V, np.array([0, 1, 5, 30], np.int32))),
}


def module(strategy: str) -> Any:
    text = SOURCE.replace("@STRATEGY", f"@checkpoint({strategy})" if strategy else "")
    return difflang.loads(text, name="turning")


def gradient(of: Any, name: str) -> list[np.ndarray]:
    wrt, arguments = CALLS[name]
    return [np.asarray(x) for x in jax.tree.leaves(getattr(of, name).grad(*wrt)(*arguments))]


@pytest.fixture(scope="module")
def plain() -> dict[str, list[np.ndarray]]:
    of = module("")
    return {name: gradient(of, name) for name in CALLS}


@pytest.mark.as_users
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.nightly_except("revolve, slots = 1")
def test_a_strategy_changes_no_bit_of_a_gradient(strategy: str, plain: dict[str, list[np.ndarray]]) -> None:
    of = module(strategy)
    for name, expected in plain.items():
        for got, want in zip(gradient(of, name), expected, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=name)


@pytest.mark.as_users
def test_square_root_of_a_known_length(plain: dict[str, list[np.ndarray]]) -> None:
    text = SOURCE.replace("@STRATEGY\nfn", "@checkpoint(sqrt)\nfn").replace("@STRATEGY", "")
    of = difflang.loads(text, name="turning")
    for got, want in zip(gradient(of, "counted"), plain["counted"], strict=True):
        np.testing.assert_array_equal(got, want)


SECOND = """
fn forward_over_reverse(w: f64, v: f64[2], k: i32) -> f64 {
  let (_, d) = jvp(|w| grad(|w| open(w, v, k))(w))(w, 1.0)
  d
}
fn reverse_over_reverse(w: f64, v: f64[2], k: i32) -> f64 = grad(|w| grad(|w| open(w, v, k))(w))(w)
fn of_counted(w: f64, v: f64[2], u: f64[23]) -> f64[23] = grad(|u| grad(|w| counted(w, v, u))(w))(u)
"""


@pytest.mark.nightly
def test_second_derivatives() -> None:
    """Of both kinds, against each other and against those with every state kept."""
    found: list[list[np.ndarray]] = []
    for strategy in ("", "revolve, slots = 3"):
        text = SOURCE.replace("@STRATEGY", f"@checkpoint({strategy})" if strategy else "") + SECOND
        of: Any = difflang.loads(text, name="turning")
        found.append([of.forward_over_reverse(W, V, 37), of.reverse_over_reverse(W, V, 37), of.of_counted(W, V, U)])
    for got, want in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)
    np.testing.assert_allclose(found[0][0], found[0][1], rtol=1e-10)


def test_draws_are_the_same_when_a_step_is_taken_again() -> None:
    slopes = [module(s).noisy.grad("w")(W, V, 37, key=7) for s in ("", "revolve, slots = 2")]
    np.testing.assert_array_equal(slopes[1], slopes[0])


def test_a_failure_in_a_step_that_is_taken_again_is_reported_once() -> None:
    of = module("revolve, slots = 2")
    assert np.isfinite(float(of.checked.grad("w")(W, V, 37, 2)))
    with pytest.raises(DifflangError) as caught:
        of.checked.grad("w")(W, V, 37, 3)
    assert str(caught.value).count("error[DL0902]") == 1


def test_what_is_kept_stands_in_the_graph() -> None:
    of = module("revolve, slots = 3")
    for name, types in {"counted": ("f64", "f64[2]", "f64[23]"), "open": ("f64", "f64[2]", "i32")}.items():
        graph = getattr(of, name).grad("w").lower(*types).graph
        loops = [e for e in graph.eqns if e.op.name == "loop"]
        assert loops and all(e.attrs["keep"] == (3, 0) for e in loops)
        assert any(e.attrs.get("history_outputs") for e in loops) == (name == "counted")
        assert graph_to_text(graph_from_text(graph_to_text(graph))) == graph_to_text(graph)
        assert graph_to_text(graph_from_json(graph_to_json(graph))) == graph_to_text(graph)


def test_a_loop_that_yields_runs_once_before_the_reverse_pass() -> None:
    graph = module("revolve, slots = 3").counted.grad("w").lower("f64", "f64[2]", "f64[23]").graph
    forwards = [e for e in graph.eqns if e.op.name == "loop" and not e.attrs["reverse"]]
    assert len(forwards) == 1
    assert forwards[0].attrs["history_outputs"] > 0
    assert any(not isinstance(r.type, History) and r.type.shape == (23,) for r in forwards[0].results)


@pytest.mark.parametrize(
    ("steps", "asked"), [(100, StoreRequest(5, 1, 100)), (90, StoreRequest(4, 8, 90)), (6, StoreRequest(5, 1, 6))]
)
def test_of_a_known_length_it_is_planned_what_is_kept(steps: int, asked: StoreRequest) -> None:
    size = StoreSize.of([], 1, asked)
    if steps <= size.store_all_up_to:
        assert not size.planned
    else:
        assert size.planned == plan_checkpoints(steps, asked.slots + asked.steps)


def test_products_stay_in_a_loop_whose_states_are_had_again() -> None:
    """There they have no arrays over all steps to be taken of."""
    source = """float f64
    fn f(w: f64[4, 4], xs: f64[9, 3, 4]) -> f64 {
      var h = zeros(3, 4)
      STRATEGY
      for x in xs {
        let z = sigmoid(x @ w + h @ w)
        h = z * h + (1.0 - z) * tanh(x + h)
      }
      sum(h * h)
    }"""
    w, xs = np.random.default_rng(3).normal(size=(4, 4)), np.random.default_rng(4).normal(size=(9, 3, 4))
    few, all_ = (
        difflang.loads(source.replace("STRATEGY", s), name="products").f.grad("w")(w, xs)
        for s in ("@checkpoint(revolve, slots = 3)", "")
    )
    assert np.allclose(few, all_, rtol=1e-13)


def test_there_are_no_more_slots_than_states() -> None:
    state = (Tensor(F64, (1000,)),)
    sizes = [
        StoreSize.of(state, 1, StoreRequest(slots=slots, length=200)).capacity
        for slots in (150, 200, 10_000, 1_000_000)
    ]
    assert sizes == [151, 201, 201, 201]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("revolve(5)", "(revolve, slots = 5)"),
        ("every = 5", "(every, steps = 5)"),
        ("sqrt(5)", "the strategies are full"),
    ],
)
def test_numbers_of_strategies_are_told_where_they_stand(written: str, meant: str) -> None:
    with pytest.raises(DifflangError) as refused:
        difflang.loads(f"fn f(x: f64) -> f64 {{\n  @checkpoint({written})\n  for i in 0..3 {{ }}\n  x\n}}", name="m")
    assert meant in refused.value.diagnostics[0].helps[0]


def test_a_strategy_that_keeps_nothing_is_told() -> None:
    with pytest.warns(DifflangWarning, match="`f` contains no loop"):
        difflang.loads("@checkpoint(sqrt)\nfn f(x: f64) -> f64 = x * x", name="m")
    with pytest.warns(DifflangWarning, match="this loop runs on the host and is not compiled"):
        difflang.loads("var t = 0.0\n@checkpoint(sqrt)\nfor i in 0..3 { t += 1.0 }", name="m")
    inner = "let h = |y| {\n    var z = y\n    for i in 0..3 { z *= 2.0 }\n    z\n  }"
    with warnings.catch_warnings(action="error"):
        difflang.loads(f"@checkpoint(sqrt)\nfn f(x: f64) -> f64 {{\n  {inner}\n  h(x)\n}}", name="m")
