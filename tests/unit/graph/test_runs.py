"""Runs of a graph: inputs by position and name, both engines, symbolic sizes, checks that fail, wrong inputs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang import graph as dg

MODULE = difflang.loads(
    """
let scale: f64[3] = [2.0, 1.0, 0.5]
fn f(x: f64[n], i: i32) -> f64 {
  assert x[0] > 0.0, "positive {x[0]}"
  var s = 0.0
  for k in 0..n { s += sin(x[k]) }
  if s > 1.0 { s * x[i] } else { s }
}
fn scaled(x: f64[3]) -> f64[3] = x * scale
fn noisy(x: f64[3]) -> f64[3] = x + normal(3)
fn depth(x: f64) -> f64 = if x < 1.0 { x } else { depth(x / 2.0) + 1.0 }
fn shown(x: f64) -> f64 { print("x is {x}")
  x }
""",
    "m.dfl",
)
G = MODULE.f.graph("f64[3]", "i32")
ENGINES = ["xla", "interpret", "dataflow"]
X = np.array([1.0, 2.0, 0.5])


def failure(call: Any) -> tuple[type, str]:
    with pytest.raises(difflang.DifflangError) as caught:
        call()
    return type(caught.value), caught.value.render()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("stage", ["ir", "derived", "optimized"])
def test_a_run_is_a_call(stage: str, engine: str) -> None:
    graph = MODULE.f.graph("f64[3]", "i32", stage=stage)
    (found,) = graph.run(X, 1, engine=engine)
    np.testing.assert_allclose(found, MODULE.f(X, 1), rtol=1e-15)
    assert graph.run(i=1, x=X, engine=engine) == (found,) == graph.run(X, i=1, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("x", "i"), [(-X, 1), (X, 7)])
def test_a_failed_check_is_the_error_of_the_call(x: np.ndarray, i: int, engine: str) -> None:
    expected = failure(lambda: MODULE.f(x, i))
    assert failure(lambda: G.run(x, i, engine=engine)) == expected
    read = dg.Graph.from_json(G.to_json())
    assert failure(lambda: read.run(x, i, engine=engine)) == expected


def test_without_texts_a_failed_check_still_says_what_failed() -> None:
    read = dg.Graph.from_json(G.to_json(source=False))
    kind, text = failure(lambda: read.run(-X, 1))
    assert kind is difflang.AssertionFailure and "positive -1.0" in text
    assert failure(lambda: read.run(X, 7))[0] is difflang.IndexFailure


def test_a_failed_check_stays_after_an_edit() -> None:
    edited = G.with_outputs(G["x"])
    assert failure(lambda: edited.run(-X, 1)) == failure(lambda: MODULE.f(-X, 1))
    np.testing.assert_array_equal(edited.run(X, 1)[0], X)


def test_an_array_of_the_file_is_an_input_with_a_value() -> None:
    graph = MODULE.scaled.graph()
    assert [v.name for v in graph.inputs] == ["x", "scale"]
    np.testing.assert_array_equal(graph.run(X)[0], [2.0, 2.0, 0.25])
    np.testing.assert_array_equal(graph.run(X, np.ones(3))[0], X)
    with pytest.raises(difflang.ArgumentError, match="missing `scale`"):
        dg.Graph.from_json(graph.to_json()).run(X)


def test_a_random_key_is_an_input() -> None:
    graph = MODULE.noisy.graph()
    np.testing.assert_array_equal(graph.run(X, key=3)[0], MODULE.noisy(X, key=3))
    np.testing.assert_array_equal(graph.run(X, jax.random.key_data(jax.random.key(3)))[0], MODULE.noisy(X, key=3))
    with pytest.raises(difflang.ArgumentError, match="missing `key`"):
        graph.run(X)


def test_recursion_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert float(MODULE.depth.graph("f64").run(5.0)[0]) == float(MODULE.depth(5.0))
    assert float(MODULE.shown.graph("f64").run(2.0)[0]) == 2.0
    assert capsys.readouterr().out == "x is 2.0\n"


@pytest.mark.parametrize("engine", ENGINES)
def test_sizes_follow_from_the_inputs(engine: str) -> None:
    with dg.build(x="f64[n]", y="f64[2*n]") as b:
        b.output(b.concat(b.x, b.y, axis=0))
    for n in (1, 3, 0):
        assert b.graph.run(np.ones(n), np.zeros(2 * n), engine=engine)[0].shape == (3 * n,)


def test_a_graph_runs_inside_jax() -> None:
    graph = MODULE.scaled.graph()
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.jit(lambda x: graph.run(x)[0])(X), graph.run(X)[0])
        assert np.isnan(jax.jit(lambda x: G.run(x, np.int32(1))[0])(-X)), "a failed check"


with dg.build("named", x="f64[n]", y="f64[n]") as SIZED:
    SIZED.output(SIZED.x + SIZED.y)
with dg.build(x="f64[2*n]") as OPEN:
    OPEN.output(OPEN.x)
HISTORY = dg.parse("graph @g(%x: history[f64[]]) { yield %x }")


@pytest.mark.parametrize(
    ("call", "code", "part"),
    [
        (lambda: G.run(X), "DL1207", "the graph `f` is missing `i`"),
        (lambda: G.run(X, 1, 2), "DL1202", "takes 2 arrays, not 3"),
        (lambda: G.run(X, k=1), "DL1207", "has no input `k`"),
        (lambda: G.run(X, 1, x=X), "DL1207", "got `x` twice"),
        (lambda: G.run(np.ones(4), 1), "DL1202", "axis 0 is 4, not 3"),
        (lambda: G.run(np.ones(4), 1, engine="interpret"), "DL1202", "axis 0 is 4, not 3"),
        (lambda: G.run(np.ones(3, np.float32), 1), "DL1201", "an array of f32"),
        (lambda: G.run(X, 1.5), "DL1201", "i32"),
        (lambda: G.run(X, 1 << 40), "DL1205", "out of its range"),
        (lambda: G.run("abc", 1), "DL1206", "a str was given"),
        (lambda: G.run([1.0, 2.0, 3.0], 1), "DL1206", "a Python list"),
        (lambda: G.run(X, 1, engine="xls"), "DL1207", "no engine `xls`"),
        (lambda: SIZED.graph.run(X, np.ones(4)), "DL1202", "`n` is 3 and 4 here"),
        (lambda: SIZED.graph.run(X, np.ones((3, 1))), "DL1202", "its shape is [3, 1]"),
        (lambda: G.run(X, 1, engine=None), "DL1207", "no engine `None`"),
        (lambda: SIZED.graph.run([[1.0], [1.0, 2.0]], X), "DL1206", "differ in length"),
        (lambda: SIZED.graph.run(X, None), "DL1202", "its shape is []"),
        (lambda: OPEN.graph.run(X), "DL1202", "no input says that size by itself"),
        (lambda: HISTORY.run([1.0]), "DL1206", "no caller can pass one"),
    ],
)
def test_a_wrong_input_is_an_error(call: Any, code: str, part: str) -> None:
    with pytest.raises(difflang.DifflangError) as caught:
        call()
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert part in caught.value.render()


def test_an_input_may_be_called_self() -> None:
    g = dg.parse("graph @f(%self: f64[]) { yield %self }")
    assert float(g.run(self=2.0)[0]) == 2.0
