"""Passes on graphs: those of the compiler by name, those of users, and the facts that travel with a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import difflang
from difflang import graph as dg
from difflang.graph.graph_passes import PASSES
from difflang.ir.graph import Graph as IrGraph
from difflang.lower.lowering_pipeline import PIPELINES, graph_after

MODULE = difflang.loads(
    """fn f(x: f64[n], k: i32) -> f64 {
  assert x[0] > 0.0, "positive"
  let a = sin(x) + sin(x)
  var s = sum(a * x)
  for i in 0..n { s += cos(x[i]) * x[k] }
  if s > 1.0 { s^2 } else { s }
}
fn h(x: f64) -> f64 = sin(x) * x
""",
    "m.dfl",
)
F = MODULE.f.graph("f64[3]", "i32")
H = MODULE.h.graph(stage="optimized")
GRADIENT = MODULE.f.grad("x").graph("f64[3]", "i32")
X = np.array([1.0, 2.0, 0.5])


@pytest.fixture(autouse=True)
def forget_passes() -> Iterator[None]:
    known = dict(PASSES)
    yield
    PASSES.clear()
    PASSES.update(known)


def report(call: Any) -> str:
    with pytest.raises(difflang.DifflangError) as caught:
        call()
    assert [d.code for d in caught.value.diagnostics] == ["DL1251"]
    return caught.value.render()


def test_every_pass_of_the_compiler_is_listed() -> None:
    found = {p.name: p for p in dg.passes()}
    assert {"cse", "dce", "inline", "simplify", "differentiate", "contract"} <= set(found)
    assert found["contract"].needs == ("differentiated",) and found["differentiate"].gives == ("differentiated",)
    assert all(p.help and p.changes_graph for p in found.values() if p.of_compiler)
    assert repr(found["cse"]) == "<pass cse: equations that compute the same values are computed once>"


def test_passes_are_applied_in_order() -> None:
    g = F.apply("inline", "cse", "dce")
    assert [e.op for e in g.equations].count("sin") == 1 and g == F.apply("inline").apply("cse").apply("dce")
    assert g.apply("dce") is g and F.apply() is F
    np.testing.assert_allclose(g.run(X, 1)[0], MODULE.f(X, 1))


@pytest.mark.parametrize("name", [p.name for p in dg.passes()])
def test_each_pass_of_the_compiler_keeps_the_value(name: str) -> None:
    before = GRADIENT.apply("inline", "differentiate", "inline", "dce")
    np.testing.assert_allclose(
        before.apply(name).run(X, 1, engine="interpret")[0], MODULE.f.grad("x")(X, 1), rtol=1e-12
    )


def test_facts_travel_until_the_graph_changes() -> None:
    @dg.graph_pass("count", needs=["shapes"], gives=["equations"], changes_graph=False)
    def count(g: dg.Graph) -> int:
        """How many equations there are."""
        return len(list(g.walk()))

    g = H.apply("count")
    assert g.facts == {"equations": 2} and H.facts == {} and g == H
    assert g.apply("dce").facts == {"equations": 2}, "nothing was dropped"
    assert g.rename(name="other").facts == {}
    counted = F.apply("count")
    assert counted.apply("inline").facts == {}
    assert count(H) == 2 and dg.passes()[-1].help == "How many equations there are."
    with pytest.raises(TypeError):
        g.facts["equations"] = 3  # type: ignore[index]


def test_auto_runs_the_passes_that_give_what_is_needed() -> None:
    g = GRADIENT.apply("inline").apply("contract", auto=True)
    assert g.apply("contract") == g and not [e for e in g.walk() if e.op == "vjp"]

    @dg.graph_pass("ops", gives=["ops"], changes_graph=False)
    def ops(g: dg.Graph) -> int:
        return len(g.equations)

    @dg.graph_pass("both", needs=["ops", "differentiated"], gives=["both"], changes_graph=False)
    def both(g: dg.Graph) -> int:
        return g.facts["ops"]

    @dg.graph_pass("last", needs=["both"])
    def last(g: dg.Graph) -> dg.Graph:
        return g

    found = GRADIENT.apply("last", auto=True)
    count = len(found.equations)
    assert found.facts == {"differentiated": True, "ops": count, "both": count}
    assert "apply `both` first" in report(lambda: GRADIENT.apply("last"))


def test_auto_cannot_run_passes_that_need_each_other_or_that_nobody_gives() -> None:
    for name, needs in (("one", "two"), ("two", "three"), ("three", "one")):
        dg.graph_pass(name, needs=[needs], gives=[name])(lambda g: g)
    text = report(lambda: H.apply("one", auto=True))
    assert "no pass can run first: `one` needs `two` needs `three` needs `one`" in text
    for name in ("left", "right"):
        dg.graph_pass(f"{name}_negated", gives=[name])(lambda g: g.replace(g["x"], with_=lambda b, v: -v))
    dg.graph_pass("sides", needs=["left", "right"])(lambda g: g)
    text = report(lambda: H.apply("sides", auto=True))
    assert "needs `left`" in text and "changes the graph, which drops this fact" in text
    dg.graph_pass("lonely", needs=["nothing"])(lambda g: g)
    assert "no pass gives it" in report(lambda: H.apply("lonely", auto=True))
    with dg.build(x="f64[n]") as b:
        b.output(b.x)
    dg.graph_pass("sized", needs=["shapes"])(lambda g: g)
    assert "with_sizes" in report(lambda: b.graph.apply("sized", auto=True))


def test_a_listed_pass_of_the_compiler_is_one_that_runs() -> None:
    ran = {step.of.name for pipeline in PIPELINES for step in pipeline.steps}
    assert {p.name for p in dg.passes() if p.of_compiler} == ran
    assert all(isinstance(graph_after(GRADIENT.ir, name), IrGraph) for name in ran)


def test_several_facts_are_a_dict() -> None:
    @dg.graph_pass("measure", gives=["first", "last"], changes_graph=False)
    def measure(g: dg.Graph) -> dict[str, str]:
        return {"first": g.equations[0].op, "last": g.equations[-1].op}

    assert H.apply("measure").facts == {"first": "sin", "last": "mul"}
    assert measure(H)["first"] == "sin"


def test_a_pass_of_a_user_changes_the_graph() -> None:
    @dg.graph_pass("clipped", gives=["clipped"], help="sines are between 0 and 1")
    def clipped(g: dg.Graph) -> dg.Graph:
        for equation in g.equations:
            if equation.op == "sin":
                g = g.replace(equation.outputs[0], with_=lambda b, v: b.max(v, 0.0))
        return g

    @dg.graph_pass("after", needs="clipped")
    def after(g: dg.Graph) -> dg.Graph:
        return g

    g = H.apply("clipped")
    assert [e.op for e in g.equations] == ["sin", "const", "max", "mul"] and g.facts == {"clipped": True}
    assert float(g.run(-1.0)[0]) == 0.0
    assert g.apply("after").facts == {"clipped": True} and clipped(H) == g and after(H) is H
    assert "apply `clipped` first" in report(lambda: H.apply("after"))


def test_a_missing_fact_names_the_pass_that_gives_it() -> None:
    text = report(lambda: GRADIENT.apply("contract"))
    assert "`contract` needs `differentiated`" in text and "apply `differentiate` first" in text
    with dg.build(x="f64[n]") as b:
        b.output(b.x)
    dg.graph_pass("sized", needs=["shapes"])(lambda g: g)
    assert "with_sizes" in report(lambda: b.graph.apply("sized"))
    assert b.graph.with_sizes(n=3).apply("sized").inputs[0].shape == (3,)
    dg.graph_pass("lost", needs=["nowhere"])(lambda g: g)
    assert "no pass gives it" in report(lambda: H.apply("lost"))


@pytest.mark.parametrize(
    ("function", "options", "parts"),
    [
        (lambda g: None, {}, ["`bad` returned a NoneType instead of a graph"]),
        (lambda g: g.text(), {}, ["`bad` returned a str"]),
        (lambda g: g.with_outputs(g["x"], g["x"]), {}, ["`bad` changed the type", "(f64[]) -> (f64[], f64[])"]),
        (lambda g: g.replace(g["x"], with_=lambda b, v: b.convert(v, dtype="f32")), {}, ["`bad` failed", "m.dfl:8:23"]),
        (lambda g: 3, {"gives": ["a", "b"], "changes_graph": False}, ["a dict of a, b", "an int"]),
        (lambda g: {"a": 1}, {"gives": ["a", "b"], "changes_graph": False}, ["a dict of a, b", "returned a"]),
    ],
)
def test_a_pass_that_breaks_its_promise_is_named(function: Any, options: dict[str, Any], parts: list[str]) -> None:
    dg.graph_pass("bad", **options)(function)
    text = report(lambda: H.apply("bad"))
    assert all(part in text for part in parts), text


def test_a_fault_in_a_pass_is_its_own() -> None:
    dg.graph_pass("faulty")(lambda g: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        H.apply("faulty")


def test_a_pass_that_cannot_be_declared() -> None:
    assert "the compiler has a pass `cse`" in report(lambda: dg.graph_pass("cse"))
    assert "has the fact `shapes` by itself" in report(lambda: dg.graph_pass("sized", gives=["shapes"]))
    assert "gives a fact" in report(lambda: dg.graph_pass("idle", changes_graph=False))
    assert "`one` is a function of a graph, not an int" in report(lambda: dg.graph_pass("one")(3))  # type: ignore[type-var]
    assert "3 is no name of a fact" in report(lambda: dg.graph_pass("one", needs=3))  # type: ignore[arg-type]
    for name in ("", "one,two", 3):
        assert f"{name!r} is no name of a pass" in report(lambda name=name: dg.graph_pass(name))  # type: ignore[misc]


def test_an_unknown_pass_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(difflang.CheckError) as caught:
        H.apply("cze")
    assert [d.code for d in caught.value.diagnostics] == ["DL0201"] and "did you mean `cse`" in caught.value.render()


def test_a_pass_keeps_the_checks_of_the_program() -> None:
    dg.graph_pass("unchecked")(lambda g: dg.parse(g.text()))
    assert "`unchecked` dropped the checks" in report(lambda: F.apply("unchecked"))
    assert H.apply("unchecked") == H


def test_a_pass_through_json_keeps_the_arrays_of_the_program() -> None:
    scaled = difflang.loads("let scale = [2.0, 3.0]\nfn f(x: f32[2]) -> f32[2] = x * scale").f.graph()
    dg.graph_pass("reread")(lambda g: dg.Graph.from_json(g.to_json()))
    np.testing.assert_array_equal(scaled.apply("reread").run(np.ones(2, np.float32))[0], [2.0, 3.0])


def test_what_is_no_name_is_no_pass() -> None:
    with pytest.raises(difflang.CheckError, match=r"no pass `\['dce'\]`"):
        H.apply(["dce"])  # pyright: ignore[reportArgumentType]
