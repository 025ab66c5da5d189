"""IR -> text -> IR and IR -> JSON -> IR are identities; damaged input gives a diagnostic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from difflang.base.diagnostics import DifflangError, InternalError
from difflang.base.source import Source, Span
from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.json_codec import RENAMED_ATTRS, RENAMED_OPS, graph_from_json, graph_to_json
from difflang.ir.op import OPS, Inactive, Op
from difflang.ir.structural_equality import graphs_equal
from difflang.ir.symbolic_dims import FloorDiv, Poly, atom_dim, dim_name
from difflang.ir.tensor_types import C64, F32, I32, History, Tensor
from difflang.ir.text_parser import dim_from_text, graph_from_text
from difflang.ir.text_printer import graph_to_text
from difflang.ir.verify import verify
from support.graphs import arguments, bits, random_graph
from support.work import work

F = Tensor(F32)
SEEDS = st.integers(0, 10**6)
BOUND = atom_dim(FloorDiv(dim_name("n") * 3 + 1, 2)) * dim_name("m") - 4
ATTRIBUTES = (
    None, True, False, 0, 1, -3, 10**30, 0.0, -0.0, 1.5, -2e-300, 1e300, 5e-324, float("nan"), -float("nan"),
    float("inf"), -float("inf"), complex(-0.0, float("inf")), complex(1.0, 2.0),
    "", 'a "b"\n\\ é \u2028 %x ; no', "none",
    F32, F, Tensor(C64, (2, dim_name("n") + 1)), History(History(F)), dim_name("n"), dim_name("f32"), BOUND, -BOUND, (), (1,),  # noqa: E501
    (1, 1.0, True), ((), (0.0, (-0.0, "x"))), ("dim", (F32, F, None)),
    (0.0,) * 20, (-0.0,) * 20, (0,) * 20, (False,) * 20, (0.0,) * 19 + (0,), (0.0,) * 19 + (float("nan"),),
)  # fmt: skip


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Op:
    """An op that takes any attribute."""
    op = Op("probe", lambda same, *_, value: F, lambda **_: 0, lambda jax, **_: 0, "A test's own.", Inactive())
    monkeypatch.setitem(OPS, "probe", op)
    return op


def reloaded(graph: Graph) -> list[Graph]:
    return [graph_from_text(graph_to_text(graph)), graph_from_json(graph_to_json(graph))]


@given(seed=SEEDS)
def test_text_and_json_load_back_equal(seed: int) -> None:
    graph = random_graph(seed)
    verify(graph)
    again_text, again_json = reloaded(graph)
    assert graphs_equal(graph, again_text)
    assert graphs_equal(graph, again_json, spans=True)
    assert graph_to_text(again_text) == graph_to_text(again_json) == graph_to_text(graph)
    assert graph_to_json(again_json) == graph_to_json(graph)
    xs = arguments(graph, seed)
    assert bits(evaluate(graph, *xs)) == bits(evaluate(again_text, *xs))


@pytest.mark.parametrize(("old", "new"), RENAMED_OPS.items())
def test_older_names_of_ops_load(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OPS[new] and old not in OPS
    op = Op(new, lambda same, x: x, lambda x: x, lambda jax, x: x, "A test's own.", Inactive())
    monkeypatch.setitem(OPS, new, op)
    graph = build_region([F], lambda x: op(x))
    text = graph_to_json(graph)
    assert f'"{new}"' in text and graphs_equal(graph, graph_from_json(text.replace(f'"{new}"', f'"{old}"')))


@pytest.mark.parametrize(
    ("op", "old", "new"), [(op, *names) for op, of in RENAMED_ATTRS.items() for names in of.items()]
)
def test_older_names_of_attributes_load(op: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = Op(op, lambda same, x, **_: x, lambda x, **_: x, lambda jax, x, **_: x, "A test's own.", Inactive())
    monkeypatch.setitem(OPS, op, stand_in)
    graph = build_region([F], lambda x: stand_in(x, **{new: 1}))
    text = graph_to_json(graph)
    assert f'"{new}"' in text and graphs_equal(graph, graph_from_json(text.replace(f'"{new}"', f'"{old}"')))


@pytest.mark.parametrize("value", ATTRIBUTES, ids=repr)
def test_attributes_keep_kind_and_bits(probe: Op, value: object) -> None:
    builder = Builder()
    graph = builder.finish(builder.emit(probe, (), value=value))
    for again in reloaded(graph):
        assert graphs_equal(graph, again)
        assert graph_to_text(again) == graph_to_text(graph)


def test_attributes_that_differ_are_not_the_same(probe: Op) -> None:
    def holding(value: object) -> Graph:
        builder = Builder()
        return builder.finish(builder.emit(probe, (), value=value))

    graphs = [holding(v) for v in ATTRIBUTES]
    for i, a in enumerate(graphs):
        for j, b in enumerate(graphs):
            assert graphs_equal(a, b) == (i == j), (ATTRIBUTES[i], ATTRIBUTES[j])


def test_shared_graphs_are_printed_once_and_stay_shared() -> None:
    def twice(inner: Graph) -> Graph:
        return build_region(
            [F], lambda x: OPS["call"](*OPS["call"](x, regions=(inner,), name="f"), regions=(inner,), name="f")
        )

    graph = build_region([F], lambda x: [x * x], name="f")
    for _ in range(30):
        graph = twice(graph)
    text = graph_to_text(graph)
    assert len(text) < 8_000
    for again in reloaded(graph):
        assert graphs_equal(graph, again)
        first, second = again.eqns
        assert first.regions[0] is second.regions[0]


def test_names_come_from_hints_and_read_back() -> None:
    builder = Builder()
    hints = ["x", "x", "", "m.w", "a b", "a b", "0", 'q"', "é", ""]
    graph = builder.finish([builder.param(F, h) for h in hints])
    assert graph_to_text(graph).splitlines()[1] == '  yield %x, %x#1, %0, %m.w, %"a b", %"a b"#1, %"0", %"q\\"", %é, %1'
    for again in reloaded(graph):
        assert [p.hint for p in again.params] == hints


def test_a_span_of_the_first_character_is_kept() -> None:
    builder = Builder(span=Span(Source("f.dfl", "e"), 0, 1))
    graph = builder.finish([builder.const(2.0, Tensor(F32))])
    (eqn,) = graph_from_json(graph_to_json(graph)).eqns
    assert (type(eqn.span), eqn.span.start, eqn.span.end) == (Span, 0, 1)


def test_spans_are_kept_by_json_and_printed_on_demand() -> None:
    source = Source("f.dfl", "let y = x + x\n")
    builder = Builder(span=Span(source, 8, 13))
    x = builder.param(F, "x")
    graph = builder.finish([x + x])
    assert "%0: f32[] = add %x, %x  ; f.dfl:1:9\n" in graph_to_text(graph, spans=True)
    (eqn,) = graph_from_json(graph_to_json(graph)).eqns
    assert (eqn.span.source.name, eqn.span.start, eqn.span.end) == ("f.dfl", 8, 13)
    assert graphs_equal(graph_from_text(graph_to_text(graph, spans=True)), graph)


GOOD = graph_to_text(random_graph(5))


@given(
    at=st.integers(0, len(GOOD) - 1),
    length=st.integers(0, 20),
    put=st.sampled_from(["", "(", "}", "%", '"', "9" * 5000, "@f", "-", "[", "nan", "\x00", "//"]),
)
def test_damaged_text_gives_a_diagnostic_with_a_place(at: int, length: int, put: str) -> None:
    try:
        verify(graph_from_text(GOOD[:at] + put + GOOD[at + length :]))
    except DifflangError as error:
        (diagnostic,) = error.diagnostics
        assert diagnostic.code == "DL1203" and diagnostic.span is not None


GOOD_JSON = graph_to_json(random_graph(5))


@given(
    at=st.integers(0, len(GOOD_JSON) - 1),
    length=st.integers(0, 9),
    put=st.sampled_from(["", "[", "{}", "null", "1e999", "-1", "true", '"x"', "[]", "NaN"]),
)
def test_damaged_json_gives_a_diagnostic(at: int, length: int, put: str) -> None:
    try:
        verify(graph_from_json(GOOD_JSON[:at] + put + GOOD_JSON[at + length :]))
    except DifflangError as error:
        assert error.diagnostics[0].code in ("DL1204", "DL1272")  # the latter of an op by another name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "null",
        "{}",
        '{"format":"difflang-ir","version":3}',
        "[" * 100_000,
        '{"format":"difflang-ir","version":1,"sources":[],"graphs":[]}',
    ],
)
def test_json_that_is_something_else(text: str) -> None:
    with pytest.raises(DifflangError):
        graph_from_json(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "graph",
        "graph @f(%x: f32[]) { yield %y }",
        "graph @f(%x: f3[]) { yield %x }",
        "graph @f(%x: f32[n // 0]) { yield %x }",
        "graph @f(%x: f32[" + "(" * 10_000,
        "graph @f() { %x: f32[] = sin yield %x }",
        "graph @f() { %x: i32[] = const {type = f32[], value = 1} yield %x }",
        "graph @f(%x: f32[], %x: f32[]) { yield }",
        "graph @f() { yield } graph @f() { yield }",
        "graph @f(%x: f32[]) { %y: f32[] = reshape %x {shape = 3} yield %y }",
    ],
)
def test_text_that_is_wrong(text: str) -> None:
    with pytest.raises(DifflangError) as error:
        graph_from_text(text)
    assert error.value.diagnostics[0].span is not None


def test_the_verifier_names_pass_op_and_equation() -> None:
    builder = Builder()
    x = builder.param(F, "x")
    y = x + x
    graph = builder.finish([y])
    (eqn,) = graph.eqns
    wrong = Value(Tensor(I32), builder, "y")
    stranger = Value(F, builder, "z")
    z = Value(Tensor(I32), builder, "z")
    cases = {
        "gives": Graph((x,), (Eqn(eqn.op, eqn.operands, (wrong,), {}),), (wrong,)),
        "not defined above": Graph((x,), (Eqn(eqn.op, (stranger, x), (y,), {}),), (y,)),
        "defined twice": Graph((x,), (eqn, eqn), (y,)),
        "does not define": Graph((x,), (eqn,), (stranger,)),
        "refuses": Graph((x, z), (Eqn(eqn.op, (x, z), (y,), {}),), (y,)),
        "cannot be": Graph((x,), (Eqn(eqn.op, (x, x), (y,), {"k": [1]}),), (y,)),
    }
    for message, broken in cases.items():
        with pytest.raises(InternalError, match=message) as error:
            verify(broken, after="a pass")
        assert "after a pass" in str(error.value)
        if message != "does not define":
            assert "in: %y: " in str(error.value) or "in: %0: f32[] = add %" in str(error.value)


def chain(length: int) -> Graph:
    builder = Builder()
    x = y = builder.param(F, "x")
    for i in range(length):
        y = y * x if i % 2 else y + 1.0
    return builder.finish([y])


def test_printing_and_reading_are_linear() -> None:
    def both(length: int) -> int:
        graph = chain(length)
        return work(lambda: (graph_from_text(graph_to_text(graph)), graph_from_json(graph_to_json(graph))))

    assert both(8_000) < 4.2 * both(2_000)


N, M = dim_name("n"), dim_name("m")


@pytest.mark.parametrize(
    "size", [N // 2, N // 2 + 1, N - N // 2, (N - 1) // 2, N * 9 // 10, N % 3, (N // 2) * (M // 4), N // M - 2 * M]
)
def test_a_size_is_read_as_it_is_written(size: Poly) -> None:
    assert dim_from_text(str(size)) == size
