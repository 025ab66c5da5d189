"""Pipelines: which steps run, and what a pass needs of a graph."""

from __future__ import annotations

import pytest

import difflang
from difflang.base.diagnostics import InternalError
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph
from difflang.ir.tensor_types import F64, Tensor
from difflang.ir.text_printer import graph_to_text
from difflang.lower.lowering_pipeline import COMPILE, DIFFERENTIATE, PIPELINES, finalize_graph, graph_after
from difflang.passes.pipelines import CONTRACT, OPTIMIZE, Pass, Pipeline, Step, is_differentiated

LOOP = """fn f(x: f64[n]) -> f64 {
  var s = 0.0
  for i in 0..n { s += sin(s) * x[i] }
  s
}
fn g(x: f64[n]) -> f64[n] = grad(f)(x)
"""


def gradient() -> Graph:
    return difflang.loads(LOOP).g._elaborate(("f64[50]",), {}).graph


def test_every_pass_has_a_name_of_its_own_and_help() -> None:
    passes = {step.of for pipeline in PIPELINES for step in pipeline.steps}
    assert len({p.name for p in passes}) == len(passes)
    assert all(p.help and not p.help.endswith(".") for p in passes)


def test_a_pass_that_needs_derivatives_to_be_gone_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("difflang.ir.verify.ENABLED", True)
    graph = gradient()
    assert not is_differentiated(graph)
    with pytest.raises(InternalError, match="the graph is not differentiated before the pass contract"):
        CONTRACT(graph)
    CONTRACT(DIFFERENTIATE(graph))


def test_a_pass_that_does_not_give_what_it_says_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("difflang.ir.verify.ENABLED", True)
    idle = Pass(lambda graph: graph, "nothing", gives=("differentiated",))
    with pytest.raises(InternalError, match="is not differentiated after the pass"):
        idle(gradient())


def test_steps_that_can_change_nothing_do_not_run() -> None:
    graph = build_region([Tensor(F64)], lambda x: [x])
    assert [p for p, _, _ in OPTIMIZE.trace(graph)] == list(dict.fromkeys(step.of for step in OPTIMIZE.steps))


def test_a_step_runs_only_after_a_change_if_it_says_so() -> None:
    ran: list[str] = []

    def noted(graph: Graph) -> Graph:
        ran.append("noted")
        return graph

    def renamed(graph: Graph) -> Graph:
        return Graph(graph.params, graph.eqns, graph.results, "renamed")

    def kept(graph: Graph) -> Graph:
        return graph

    graph = build_region([Tensor(F64)], lambda x: [x * x])
    after = Step(Pass(noted, "notes that it ran"), if_changed=True)
    Pipeline("a", "", (Step(Pass(kept, "nothing")), after))(graph)
    assert ran == []
    Pipeline("b", "", (Step(Pass(renamed, "another graph")), after))(graph)
    assert ran == ["noted"]


def test_the_graph_after_a_pass() -> None:
    graph = gradient()
    assert is_differentiated(graph_after(graph, "differentiate"))
    assert not is_differentiated(graph_after(graph, "hoist_from_nonempty_loops"))
    names = {step.of.name for step in COMPILE.steps}
    assert all(isinstance(graph_after(graph, name), Graph) for name in names)


@pytest.mark.parametrize(("source", "types"), [
    ("fn g(x: f64, n: i32) -> f64 = if n == 0 { 1.0 } else { x * g(x, n - 1) }", ("f64", "i32")),
    ("fn f(x: f64, n: i32) -> f64 { var y = x\n for _ in 0..n { y = sin(y) * x }\n y }\n"
     "fn g(x: f64, n: i32) -> f64 = grad[x](f)(x, n)", ("f64", "i32")),
])  # fmt: skip
def test_the_last_pass_gives_the_graph_that_is_lowered(source: str, types: tuple[str, ...]) -> None:
    graph = difflang.loads(source).g._elaborate(types, {}).graph
    last = COMPILE.steps[-1].of.name
    assert graph_to_text(graph_after(graph, last)) == graph_to_text(finalize_graph(graph))
