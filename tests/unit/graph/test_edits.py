"""Edits of a graph: each gives a new, verified graph; one that is not allowed is an error at its equation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from difflang import graph as dg

MODULE = difflang.loads(
    """fn f(x: f64[n]) -> f64 {
  let a = sin(x)
  sum(a * x)
}
fn looped(x: f64) -> f64 {
  var s = x
  for _ in 0..3 { s = sin(s) }
  s
}
fn talks(x: f64) -> f64 {
  print("first {x}")
  let y = 2.0 * x
  print("then {y}")
  y
}
""",
    "m.dfl",
)
F = MODULE.f.graph("f64[3]", stage="optimized")
SIN, MUL, SUM = F.equations
A, P = SIN.outputs[0], MUL.outputs[0]
X = np.array([1.0, 2.0, 0.5])
with dg.build(x="f64[3]") as OTHER:
    OTHER.output(OTHER.x)


def test_all_readers_read_the_new_value() -> None:
    before = F.text()
    g = F.replace(A, with_=lambda b, v: b.tanh(v) * 2.0 - v)
    np.testing.assert_allclose(g.run(X)[0], np.sum((2 * np.tanh(np.sin(X)) - np.sin(X)) * X))
    assert [e.op for e in g.equations] == ["sin", "tanh", "const", "mul", "sub", "mul", "reduce_sum"]
    assert F.text() == before and g != F
    assert [e.source_line for e in g.equations[1:5]] == ["let a = sin(x)"] * 4, "new equations keep the line"


def test_an_input_and_an_output_can_be_replaced() -> None:
    g = F.replace(F["x"], with_=lambda b, v: -v)
    np.testing.assert_allclose(g.run(X)[0], F.run(-X)[0])
    g = F.replace(F.outputs[0], with_=lambda b, v: b.exp(v))
    np.testing.assert_allclose(g.run(X)[0], np.exp(F.run(X)[0]))


def test_another_value_of_the_graph_may_be_used() -> None:
    g = F.replace(A, with_=lambda b, v: F["x"])
    np.testing.assert_allclose(g.run(X)[0], np.sum(X * X))
    g = F.replace(A, with_=lambda b, v: v + b.cos(F["x"]))
    np.testing.assert_allclose(g.run(X)[0], np.sum((np.sin(X) + np.cos(X)) * X))
    assert F.replace(A, with_=lambda b, v: v) == F


def test_a_value_that_is_defined_later_moves_the_readers() -> None:
    with dg.build(x="f64") as b:
        first, second = b.sin(b.x), b.cos(b.x)
        b.output(b.exp(first))
    g = b.graph
    sin, cos = [e.outputs[0] for e in g.equations[:2]]
    h = g.replace(sin, with_=lambda b, v: v + cos)
    np.testing.assert_allclose(h.run(1.0)[0], np.exp(np.sin(1.0) + np.cos(1.0)))
    assert second is not None


def test_untouched_values_are_values_of_the_new_graph() -> None:
    g = F.replace(A, with_=lambda b, v: b.tanh(v)).replace(P, with_=lambda b, v: b.abs(v))
    np.testing.assert_allclose(g.run(X)[0], np.sum(np.abs(np.tanh(np.sin(X)) * X)))


def test_a_value_of_a_region_is_replaced_in_the_region() -> None:
    g = MODULE.looped.graph("f64")
    (sin,) = [e for e in g.walk() if e.op == "sin"]
    h = g.replace(sin.outputs[0], with_=lambda b, v: b.cos(v))
    expected = 0.7
    for _ in range(3):
        expected = np.cos(np.sin(expected))
    for engine in ("xla", "interpret"):
        np.testing.assert_allclose(h.run(0.7, engine=engine)[0], expected)


def test_a_shared_region_is_replaced_wherever_it_is() -> None:
    module = difflang.loads("fn g(x: f64) -> f64 = sin(x)\nfn f(x: f64) -> f64 = g(x) + g(2.0 * x)")
    graph = module.f.graph("f64")
    sin = next(e for e in graph.walk() if e.op == "sin").outputs[0]
    h = graph.replace(sin, with_=lambda b, v: v * 10.0)
    np.testing.assert_allclose(h.run(0.3)[0], 10 * (np.sin(0.3) + np.sin(0.6)))


def test_a_branch_inside_a_replacement() -> None:
    g = F.replace(F.outputs[0], with_=lambda b, v: b.cond(v > 0.0, lambda b: v * 2.0, lambda b: -v))
    for x in (X, -4 * X, 4 * X):
        value = float(F.run(x)[0])
        np.testing.assert_allclose(g.run(x)[0], 2 * value if value > 0 else -value)
    assert [len(r.equations) for r in g.equations[-1].regions] == [2, 1]


def test_prints_stay_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    g = MODULE.talks.graph("f64").apply("inline")
    h = g.replace(g["x"], with_=lambda b, v: v + 1.0)
    assert float(h.run(1.0)[0]) == 4.0
    assert capsys.readouterr().out == "first 2.0\nthen 4.0\n"


def test_other_outputs() -> None:
    g = F.with_outputs(P, F["x"])
    np.testing.assert_allclose(g.run(X)[0], np.sin(X) * X)
    assert [v.type for v in g.outputs] == ["f64[3]", "f64[3]"] and len(g.apply("dce").equations) == 2


def test_other_names() -> None:
    g = F.rename({A: "a", F["x"]: "points"}, name="renamed")
    assert [v.name for v in g.inputs] == ["points"] and g["a"].equation == g.equations[0] and g.name == "renamed"
    np.testing.assert_allclose(g.run(points=X)[0], F.run(X)[0])
    looped = MODULE.looped.graph("f64")
    (sin,) = [e for e in looped.walk() if e.op == "sin"]
    both = looped.rename({sin.outputs[0]: "inner", looped["x"]: "outer"})
    assert both["inner"].equation is not None and both.inputs[0].name == "outer"
    assert F.rename() == F and dg.parse(F.rename({A: "two words"}).text()) == F.rename({A: "two words"})


def test_sizes_become_numbers() -> None:
    with dg.build(x="f64[n, 2*m]") as b:
        b.output(b.sum(b.x))
    g = b.graph.with_sizes(n=3)
    assert g.inputs[0].shape == (3, "2*m") and g.with_sizes(m=4).inputs[0].shape == (3, 8)


# ---- What is not allowed


@pytest.mark.parametrize(
    ("edit", "parts"),
    [
        (lambda: F.replace(A, with_=lambda b, v: b.convert(v, dtype="f32")), ["m.dfl:3:7", "mul", "f32[3] and f64[3]"]),
        (lambda: F.replace(A, with_=lambda b, v: v + P), ["cycle", "m.dfl:2:11"]),
        (lambda: F.replace(A, with_=lambda b, v: b.sin(OTHER.graph["x"])), ["belongs to another graph"]),
        (lambda: F.replace(OTHER.graph["x"], with_=lambda b, v: v), ["another graph", 'g["x"]']),
        (lambda: F.replace(A, with_=lambda b, v: 1.0), ["not a float"]),
        (lambda: F.replace(A, with_=lambda b, v: None), ["not a NoneType"]),
        (lambda: F.replace("x", with_=lambda b, v: v), ["'x' is not a value"]),
        (lambda: F.replace(A, with_=lambda b, v: v + b.const(1.0, "f64")), ["shapes differ: f64[3] and f64[]"]),
        (lambda: F.replace(A, with_=lambda b, v: b.reduce_sum(v)), ["its attributes are `axes`"]),
        (lambda: F.replace(A, with_=lambda b, v: b.reduce_sum(v, axes=(7,))), ["reduce_sum"]),
        (lambda: F.with_outputs(OTHER.graph["x"]), ["belongs to another graph"]),
        (lambda: F.replace(A, with_=P), ["what replaces a value is a function", "lambda b, v"]),
        (lambda: F.rename(3), ["which value gets which name"]),
        (lambda: F.rename(name=3), ["3 is no name for a graph"]),
        (lambda: F.rename({A: 3}), ["3 is no name"]),
        (lambda: F.with_outputs("x"), ["is not a value"]),
        (lambda: F.rename({A: ""}), ["'' is no name"]),
        (lambda: F.rename({OTHER.graph["x"]: "y"}), ["belongs to another graph"]),
        (lambda: F.rename({"x": "y"}), ["'x' is not a value"]),
        (lambda: F.with_sizes(n=3), ["no size `n`"]),
        (lambda: OTHER.graph["x"] + 1.0, ["finished"]),
        (lambda: A * P, ["`mul` adds an equation"]),
    ],
)
def test_an_edit_that_is_not_allowed(edit: Any, parts: list[str]) -> None:
    with pytest.raises(difflang.ArgumentError) as caught:
        edit()
    assert [d.code for d in caught.value.diagnostics] == ["DL1250"]
    text = caught.value.render()
    assert all(part in text for part in parts), text


def test_a_value_of_a_region_is_no_output() -> None:
    g = MODULE.looped.graph("f64")
    (sin,) = [e for e in g.walk() if e.op == "sin"]
    with pytest.raises(difflang.ArgumentError, match="value of a region"):
        g.with_outputs(sin.outputs[0])


def test_a_builder_is_closed_after_its_edit() -> None:
    kept: list[Any] = []
    F.replace(A, with_=lambda b, v: kept.append((b, v)) or v)
    ((b, v),) = kept
    with pytest.raises(difflang.ArgumentError, match="finished"):
        b.sin(v)


def test_inside_an_edit_the_equation_is_that_of_the_graph_as_it_is() -> None:
    g = difflang.loads("fn f(x: f64) -> f64 = tanh(tanh(x))").f.graph(stage="optimized")
    for e in g.equations:
        g = g.replace(e.outputs[0], with_=lambda b, v: b.erf(v.equation.inputs[0]))
    assert [e.op for e in g.apply("dce").equations] == ["erf", "erf"]


def test_of_regions_that_share_values_the_one_is_edited_where_the_value_was_found() -> None:
    source = """import ode (leapfrog)
fn f(x: f64[2]) -> f64[2] {
  let (y, v) = leapfrog(|x| -x, x, x, 0.1, 3)
  y + v
}"""
    g = difflang.loads(source).f.graph()
    there = next(e for e in g.walk() if e.op == "invertible").regions[0]
    back = next(e.regions[0] for e in g.walk() if e.op == "call" and e.regions[0].name == there.name)
    assert there.ir is not back.ir
    for region in (there, back):
        value = next(v for e in region.equations if e.op == "mul" for v in e.outputs)
        h = g.replace(value, with_=lambda b, v: b.sin(v))
        new = next(e for e in h.walk() if e.op == "invertible").regions[0]
        assert ("sin" in [e.op for e in new.equations]) == (region is there)
        with pytest.raises(difflang.ArgumentError, match="a value of 2 regions"):
            h.replace(value, with_=lambda b, v: b.sin(v))


def test_values_of_several_regions_are_renamed_together() -> None:
    g = MODULE.looped.graph("f64")
    names = {v: f"v{i}" for i, v in enumerate(o for e in g.walk() for o in e.outputs)}
    assert [v.name for e in g.rename(names).walk() for v in e.outputs] == list(names.values())
    source = "import ode (leapfrog)\nfn f(x: f64) -> f64 {\n let (y, v) = leapfrog(|x| -x, x, x, 0.1, 3)\n y + v\n}"
    shared = difflang.loads(source).f.graph()
    there = next(e for e in shared.walk() if e.op == "invertible").regions[0]
    names = {v: f"v{i}" for i, v in enumerate(o for e in there.equations for o in e.outputs)}
    renamed = next(e for e in shared.rename(names).walk() if e.op == "invertible").regions[0]
    assert [v.name for e in renamed.equations for v in e.outputs] == list(names.values())
