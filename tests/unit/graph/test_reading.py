"""A graph in the hand: its values, equations and regions, its texts, pictures and JSON."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

import difflang
from difflang import graph as dg
from difflang.base.diagnostics import DifflangError

SOURCE = """fn f(x: f64[n], i: i32) -> f64 {
  assert x[0] > 0.0, "positive {x[0]}"
  var s = 0.0
  for k in 0..n { s += sin(x[k]) }
  if s > 1.0 { s * x[i] } else { s }
}

fn wave(x: f64[3]) -> f64 {
  sum(sin(x) * x)
}
"""
MODULE = difflang.loads(SOURCE, "m.dfl")
G = MODULE.f.graph("f64[3]", "i32")
WAVE = MODULE.wave.graph(stage="optimized")


def codes(error: DifflangError) -> list[str]:
    return [d.code for d in error.diagnostics]


def test_inputs_and_outputs_have_names_types_and_shapes() -> None:
    assert [(v.name, v.type, v.dtype, v.shape) for v in G.inputs] == [
        ("x", "f64[3]", "f64", (3,)),
        ("i", "i32[]", "i32", ()),
    ]
    assert [v.type for v in G.outputs] == ["f64[]"]
    assert G.inputs[0].equation is None and G.inputs[0].span is None and G.inputs[0].source_line is None
    assert G.can_fail and not WAVE.can_fail


def test_equations_know_their_op_operands_and_line() -> None:
    first, second, third = WAVE.equations
    assert [e.op for e in WAVE.equations] == ["sin", "mul", "reduce_sum"]
    assert second.inputs == (first.outputs[0], WAVE.inputs[0])
    assert third.attributes == {"axes": (0,)} and third.regions == ()
    assert str(first.span) == "m.dfl:9:7" and first.source_line == "sum(sin(x) * x)"
    assert first.outputs[0].equation == first and first.outputs[0].span == first.span
    assert "reduce_sum" in str(third) and "{axes = (0,)}" in str(third)


def test_a_walk_goes_through_regions_in_order() -> None:
    every = list(G.walk())
    assert every[0].op == "const" and every[1].op == "call"
    ops = [e.op for e in every]
    assert ops.index("call") < ops.index("loop") < ops.index("sin") < ops.index("cond") < ops.index("dynamic_slice")
    (loop,) = [e for e in every if e.op == "loop"]
    assert [e.op for e in loop.regions[0].equations] == ["sin", "add"]
    assert isinstance(loop.regions[0], dg.Graph)


def test_attributes_are_plain_data() -> None:
    with dg.build(x="f64[n]") as b:
        b.output(b.convert(b.broadcast(b.x, shape=("n", 2), axes=(0,)), dtype="f32"))
    first, second = b.graph.equations
    assert first.attributes == {"shape": ("n", 2), "axes": (0,)} and second.attributes == {"dtype": "f32"}
    assert second.outputs[0].shape == ("n", 2)
    with pytest.raises(TypeError):
        first.attributes["axes"] = ()  # type: ignore[index]


def test_a_value_is_found_by_its_printed_name() -> None:
    assert G["x"] == G["%x"] == G.inputs[0]
    assert WAVE[WAVE.outputs[0].name] == WAVE.outputs[0]
    assert G["s"].type == "f64[]"  # in the one region that has it
    with pytest.raises(KeyError, match="no value `nothing`"):
        _ = G["nothing"]
    with pytest.raises(KeyError, match="regions have a value `9`"):
        _ = G["9"]


def test_reprs_are_short() -> None:
    assert repr(WAVE) == "<graph wave(x: f64[3]) -> f64[]: 3 equations>"
    assert repr(WAVE.inputs[0]) == "<%x: f64[3]>"
    assert repr(WAVE.equations[0]) == "<%0: f64[3] = sin %x>"


def test_graphs_are_equal_by_structure_and_names() -> None:
    again = MODULE.wave.graph(stage="optimized")
    assert again == WAVE and hash(again) == hash(WAVE) and again is not WAVE
    assert WAVE.rename({WAVE["x"]: "y"}) != WAVE and WAVE != "a text" and WAVE != G
    assert WAVE.with_outputs(WAVE["0"]) != WAVE
    assert WAVE["0"] != again["0"], "values of two graphs"


@pytest.mark.parametrize("stage", ["ir", "derived", "optimized"])
def test_every_stage_is_what_the_text_of_that_stage_says(stage: str) -> None:
    assert str(MODULE.wave.graph(stage=stage)) == MODULE.wave.ir(stage)


def test_an_unknown_stage_is_an_error() -> None:
    with pytest.raises(difflang.ArgumentError, match="no stage `optimised`") as caught:
        MODULE.wave.graph(stage="optimised")
    assert "did you mean `optimized`?" in caught.value.render()


# ---- Texts


def test_a_text_is_parsed_to_an_equal_graph() -> None:
    assert dg.parse(WAVE.text()) == WAVE == dg.Graph.parse(str(WAVE))
    assert "m.dfl:9:7" in WAVE.text(spans=True)
    assert dg.parse(G.text()).text() == G.text()
    assert len(dg.parse(G.text()).outputs) == 4, "a text does not tell of checks"


def test_a_graph_is_indexed_by_names_only() -> None:
    with pytest.raises(TypeError, match="takes the name of a value"):
        list(WAVE)  # type: ignore[call-overload]


@pytest.mark.parametrize("text", [None, b"graph", 3])
def test_what_is_no_text_is_an_error(text: object) -> None:
    for read, code in ((dg.parse, "DL1203"), (dg.Graph.from_json, "DL1204")):
        with pytest.raises(difflang.ParseError) as caught:
            read(text)  # type: ignore[arg-type]
        assert codes(caught.value) == [code]


def test_a_wrong_text_is_an_error() -> None:
    with pytest.raises(difflang.ParseError) as caught:
        dg.parse("graph @f(%x: f64[]) { yield %y }")
    assert codes(caught.value) == ["DL1203"]


@pytest.mark.parametrize("source", [True, False])
@pytest.mark.parametrize("graph", [G, WAVE], ids=["checks", "plain"])
def test_json_gives_an_equal_graph(graph: dg.Graph, source: bool) -> None:
    found = dg.Graph.from_json(graph.to_json(source=source))
    assert found == graph and hash(found) == hash(graph) and found.can_fail == graph.can_fail
    line = [e.source_line for e in found.walk() if e.op == "sin"]
    assert line == [e.source_line if source else None for e in graph.walk() if e.op == "sin"]


def test_shared_regions_stay_shared_in_json() -> None:
    module = difflang.loads("fn g(x: f64) -> f64 = sin(x)\nfn f(x: f64) -> f64 = g(x) + g(2.0 * x)")
    graph = module.f.graph("f64")
    calls = [e for e in dg.Graph.from_json(graph.to_json()).walk() if e.op == "call"]
    assert calls[1].regions[0].ir is calls[2].regions[0].ir
    assert dg.Graph.from_json(graph.to_json()) == graph


def test_what_reads_the_ir_reads_this_json_too() -> None:
    from difflang.ir.json_codec import graph_from_json

    assert dg.Graph(graph_from_json(WAVE.to_json())) == WAVE


def damaged(**changes: object) -> str:
    return json.dumps({**json.loads(G.to_json()), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "3", "{}", "[" * 100_000,
        damaged(format="other"), damaged(texts=3), damaged(texts=[]), damaged(sources=3), damaged(texts=[1]),
        damaged(checks=3), damaged(checks=[[0, [None, "", ""]]]), damaged(checks=[[10**9, [None, "", ""]]]),
        damaged(checks=[[1, [[9, 0, 1], "", ""]]]), damaged(graphs=[]),
        damaged(checks=[], graphs=[["f", [["f64[]", "x"]], [], [0]]]),
    ],
)  # fmt: skip
def test_other_json_is_an_error(text: str) -> None:
    with pytest.raises(difflang.ParseError) as caught:
        dg.Graph.from_json(text)
    assert codes(caught.value) == ["DL1204"]


# ---- Pictures


@pytest.mark.parametrize(
    ("form", "begins"), [("dot", "digraph"), ("mermaid", "flowchart"), ("json", '{"title": "wave"')]
)
def test_a_picture(form: str, begins: str) -> None:
    shown = WAVE.show(form)
    assert shown.startswith(begins) and "reduce_sum" in shown


def test_a_page_and_a_notebook_show_svg() -> None:
    page = WAVE.show("html")
    assert "<svg" in page and "fn wave(x: f64[3])" in page and "m.dfl:wave" in page
    assert WAVE._repr_html_().startswith("<svg")
    with dg.build(x="f64") as b:
        b.output(b.x)
    assert "<pre>" not in b.graph.show("html")


def test_without_graphviz_a_notebook_shows_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert WAVE._repr_html_().startswith("<pre>graph @wave")
    with pytest.raises(difflang.DataError) as caught:
        WAVE.show("svg")
    assert codes(caught.value) == ["DL0709"]


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(difflang.ArgumentError, match="no format `pdf`"):
        WAVE.show("pdf")
    with pytest.raises(difflang.ArgumentError, match="no format `3`"):
        WAVE.show(3)  # pyright: ignore[reportArgumentType]


def test_a_large_graph_is_folded() -> None:
    with dg.build(x="f64") as b:
        y = b.x
        for _ in range(400):
            y = b.sin(y)
        b.output(y)
    assert len(b.graph.show("mermaid")) < len(b.graph.show("mermaid", everything=True))
    assert np.isfinite(b.graph.run(1.0)[0])


@pytest.mark.parametrize(
    "equation", ["f64[3] = sin %x, %x", "f64[3] = sub %x", "f64[3] = clamp %x, %x", "bool[3] = lt %x"]
)
def test_an_op_with_too_many_or_too_few_operands_is_an_error(equation: str) -> None:
    with pytest.raises(difflang.ParseError, match=r"takes \d operands?, not \d"):
        dg.parse(f"graph @f(%x: f64[3]) {{ %0: {equation} yield %0 }}")


def test_a_copy_is_the_graph_itself_and_nothing_is_pickled() -> None:
    for part in (WAVE, WAVE.outputs[0], WAVE.equations[0]):
        assert copy.copy(part) is part and copy.deepcopy(part) is part
        with pytest.raises(TypeError, match="to_json"):
            pickle.dumps(part)


@pytest.mark.parametrize("value", ["{type = f64[]}", '{type = f64[], value = "x"}', "{type = f64[], value = none}"])
def test_a_constant_without_a_number_is_an_error(value: str) -> None:
    with pytest.raises(difflang.ParseError, match="const refuses"):
        dg.parse(f"graph @f() {{ %0: f64[] = const {value} yield %0 }}")


def test_the_cost_of_an_equation() -> None:
    with dg.build(x="f64[n, 3]", w="f64[3]") as b:
        y = b.dot_general(b.x, b.w, contract=((1,), (0,)), batch=((), ()))
        b.output(b.loop(5, lambda b, i, s: b.sin(s) * s, b.sum(y)))
    assert [(e.op, e.cost) for e in b.graph.equations] == [
        ("dot_general", "6*n"), ("reduce_sum", "n"), ("const", 0), ("loop", 10),
    ]  # fmt: skip
    assert [e.cost for e in b.graph.with_sizes(n=4).equations] == [24, 4, 0, 10]
