"""Gradients of graphs: any ys and xs, seeds, unreachable values, sums of cotangents, recomputation, backward marks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from difflang import graph as dg

MODULE = difflang.loads(
    """fn f(x: f64[3], w: f64[3], k: i32) -> f64 {
  let z = tanh(x * w)
  let u = z * z + sin(z)
  var s = 0.0
  let q = stop(floor(x))
  for i in 0..3 { s = s * s + u[i] }
  s + u[k] + sum(q)
}
fn chain(x: f64[3], w: f64[3]) -> f64 {
  let z = tanh(x * w)
  sum(exp(z) * sin(z) + z)
}
""",
    "m.dfl",
)
F = MODULE.f.graph(stage="ir").apply("inline")
CHAIN = MODULE.chain.graph(stage="optimized")
Z = next(e for e in F.equations if e.op == "tanh").outputs[0]
X, W = np.array([0.3, 0.2, 0.5]), np.array([1.0, 2.0, -1.0])
LOSS = F.outputs[0]


def value_of(g: dg.Graph, op: str) -> dg.Value:
    return next(e for e in g.equations if e.op == op).outputs[0]


def report(call: Any, code: str) -> str:
    with pytest.raises(difflang.DifflangError) as caught:
        call()
    assert [d.code for d in caught.value.diagnostics] == [code]
    return caught.value.render()


# ---- Values


@pytest.mark.parametrize("engine", ["xla", "interpret"])
def test_the_gradient_towards_inputs_is_that_of_the_function(engine: Any) -> None:
    d = dg.gradient(F, ys=[LOSS], xs=[F["x"], F["w"]])
    want = [MODULE.f.grad(name)(X, W, 1) for name in "xw"]
    np.testing.assert_allclose(d.run(X, W, 1, engine=engine), want, rtol=1e-14)
    assert d.inputs == F.inputs and d.can_fail
    with pytest.raises(difflang.DifflangError, match="index"):
        d.run(X, W, 3, engine=engine)


def test_the_gradient_towards_an_intermediate_value_is_its_cotangent_in_a_trace() -> None:
    trace = MODULE.f.trace(X, W, 1).to_json()
    (row,) = [r for r in trace["rows"] if r["formula"].startswith("tanh")]
    np.testing.assert_allclose(dg.gradient(F, LOSS, Z).run(X, W, 1)[0], row["adjoint"], rtol=1e-14)


def test_values_of_the_graph_are_values_of_its_gradient() -> None:
    d = dg.gradient(F, LOSS, F["w"])
    both = d.with_outputs(LOSS, Z, *d.outputs)
    np.testing.assert_allclose(both.run(X, W, 1)[0], MODULE.f(X, W, 1))
    assert {v for e in F.equations for v in e.outputs} <= {v for e in d.equations for v in e.outputs}
    assert MODULE.f.graph(stage="ir").apply("inline") == F, "the graph itself is as it was"


def test_an_x_that_is_read_by_another_x_and_one_that_is_listed_twice() -> None:
    w, z, again = dg.gradient(F, LOSS, [F["w"], Z, Z]).run(X, W, 1)
    np.testing.assert_array_equal(z, again)
    np.testing.assert_allclose(w, np.asarray(z) * X * (1 - np.tanh(X * W) ** 2), rtol=1e-14)


def test_a_y_that_is_an_x_has_its_seed_as_gradient() -> None:
    got = dg.gradient(F, [Z, LOSS], [Z, F["x"]], [2.0, None])
    want = dg.gradient(F, LOSS, [Z, F["x"]]).run(X, W, 1)
    np.testing.assert_allclose(got.run(X, W, 1)[0], np.asarray(want[0]) + 2.0, rtol=1e-14)
    np.testing.assert_array_equal(dg.gradient(F, F["x"], F["x"], [X]).run(X, W, 1)[0], X)


def test_seeds_are_numbers_arrays_values_or_inputs() -> None:
    slope = X * (1 - np.tanh(X * W) ** 2)
    for seed, weight in ((2.0, 2.0), (2, 2.0), (X, X), (F["x"], X), (np.float64(3.0) * np.ones(3), 3.0)):
        np.testing.assert_allclose(dg.gradient(F, Z, F["w"], [seed]).run(X, W, 1)[0], weight * slope, rtol=1e-14)
    d = dg.gradient(F, [Z, LOSS], F["w"], ["ct", "weight"])
    assert [v.name for v in d.inputs] == ["x", "w", "k", "ct", "weight"]
    np.testing.assert_allclose(d.run(X, W, 1, ct=X, weight=0.0)[0], X * slope, rtol=1e-14)


def test_the_input_of_a_seed_stands_before_the_arrays_of_the_file() -> None:
    module = difflang.loads("let table: f64[3] = [1.0, 2.0, 3.0]\nfn f(x: f64[3]) -> f64[3] = sin(x) * table\n")
    g = module.f.graph().apply("inline")
    d = dg.gradient(g, g.outputs[0], g.inputs[0], ["ct"])
    np.testing.assert_allclose(d.run(X, np.ones(3))[0], np.cos(X) * [1, 2, 3], rtol=1e-14)


def test_graphs_that_are_built_with_symbolic_sizes() -> None:
    with dg.build("g", x="f64[n]", y="f64[n]") as b:
        s = b.sum(b.sin(b.x) * b.y)
        b.output(b.cond(s > 0.0, lambda b: s * s, lambda b: b.exp(s)))
    d = dg.gradient(b.graph, b.graph.outputs[0], [b.graph["x"], s])
    x, y = np.array([0.1, 0.2]), np.array([1.0, -3.0])
    total = np.sum(np.sin(x) * y)
    np.testing.assert_allclose(d.run(x, y)[0], np.exp(total) * np.cos(x) * y, rtol=1e-14)
    np.testing.assert_allclose(d.run(x, -y)[1], -2 * total, rtol=1e-14)


def test_second_derivatives_and_graphs_with_derivative_operators() -> None:
    g = MODULE.chain.graph(stage="ir").apply("inline")
    first = dg.gradient(g, g.outputs[0], g["w"])
    operators = MODULE.chain.grad("w").graph(stage="ir")
    want = dg.gradient(operators, operators.outputs[0], operators["w"], [1.0]).run(X, W)
    np.testing.assert_allclose(dg.gradient(first, first.outputs[0], g["w"], [1.0]).run(X, W), want, rtol=1e-13)
    h = 1e-6
    ahead, back = [np.asarray(MODULE.chain.grad("w")(X, W + s * h)) for s in (1, -1)]
    np.testing.assert_allclose(want[0], (ahead - back) / (2 * h), rtol=1e-7)


def test_what_a_loop_stored_for_its_gradient_is_an_x_but_no_output_of_a_run() -> None:
    with dg.build(x="f64", n="i32") as b:
        b.output(b.loop(b.n, lambda b, i, s: b.sin(s * s), b.x))
    first = dg.gradient(b.graph, b.graph.outputs[0], b.graph["x"])
    stored = next(v for e in first.equations for v in e.outputs if v.type.startswith("history"))
    second = dg.gradient(first, first.outputs[0], stored)
    for engine in ("xla", "interpret", "dataflow"):
        text = report(lambda engine=engine: second.run(0.5, 3, engine=engine), "DL1250")  # type: ignore[misc]
        assert f"the output `%{second.outputs[0].name}` is a history" in text and "with_outputs" in text


def test_a_root_that_is_an_x_has_the_cotangent_of_its_readers() -> None:
    with dg.build(x="f64[3]") as b:
        r = b.sqrt(b.sum(b.x * b.x))
        other = b.sqrt(b.sum(b.x * b.x))
        b.output(r * r, other)
    g = b.graph
    d = dg.gradient(g, g.outputs[0], [r, g["x"]])
    np.testing.assert_allclose(d.run(X)[0], 2 * np.linalg.norm(X), rtol=1e-14)
    np.testing.assert_allclose(d.run(X)[1], 2 * X, rtol=1e-14)
    assert float(d.with_outputs(other).run(X)[0]) == float(g.run(X)[1])
    np.testing.assert_array_equal(dg.gradient(g, g.outputs[0], g["x"]).run(np.zeros(3))[0], np.zeros(3))


def test_prints_and_random_keys() -> None:
    module = difflang.loads('fn f(x: f64) -> f64 {\n  print("x {x}")\n  x * x * uniform()\n}\n')
    g = module.f.graph("f64").apply("inline")
    d = dg.gradient(g, g.outputs[0], g["x"], ["ct"])
    assert [e.op for e in d.walk()].count("print") == 1
    value = float(g.run(3.0, 7)[0])
    assert float(d.run(3.0, 1.0, 7)[0]) == pytest.approx(value / 9.0 * 6.0)


# ---- What has no derivative


def test_a_value_that_no_y_depends_on_is_named_with_the_line_where_its_path_ends() -> None:
    q = value_of(F, "floor")
    text = report(lambda: dg.gradient(F, q, F["x"], [1.0]), "DL0409")
    assert "because of `floor`" in text and "let q = stop(floor(x))" in text and 'unreachable="zero"' in text
    text = report(lambda: dg.gradient(F, Z, q, [1.0]), "DL0409")
    assert f"`%{Z.name}` does not depend on `%{q.name}`" in text and "a path from it ends here" in text
    text = report(lambda: dg.gradient(F, [F["x"], F["w"]], LOSS, [1.0, 1.0]), "DL0409")
    assert f"none of `ys` depends on `%{LOSS.name}`" in text
    np.testing.assert_array_equal(dg.gradient(F, q, F["x"], [1.0], unreachable="zero").run(X, W, 1)[0], np.zeros(3))
    mixed = dg.gradient(F, [Z], [F["w"], q, q], [1.0], unreachable="zero")
    assert [np.shape(x) for x in mixed.run(X, W, 1)] == [(3,)] * 3


def test_known_zeros_make_no_equations() -> None:
    q = value_of(F, "floor")
    backward = [e.op for e in dg.gradient(F, Z, [F["w"], q], [1.0], unreachable="zero").walk() if e.is_backward]
    assert sorted(backward) == ["const", "const", "mul", "mul"], "one seed, one zero, two factors"
    assert not [e for e in F.walk() if e.is_backward]


def test_a_python_function_without_a_rule_is_named_with_its_line() -> None:
    module = difflang.loads(
        "extern fn half(x: f64) -> f64\nfn f(x: f64, y: f64) -> f64 {\n  let h = half(x)\n  h * y\n}\n",
        "e.dfl",
        externs={"half": lambda x: x / 2},
    )
    g = module.f.graph().apply("inline")
    text = report(lambda: dg.gradient(g, g.outputs[0], g["x"]), "DL0413")
    assert "e.dfl:3" in text
    np.testing.assert_allclose(dg.gradient(g, g.outputs[0], g["y"]).run(3.0, 2.0)[0], 1.5)


def test_recursion_grows_and_a_stage_that_limits_nothing_is_refused() -> None:
    module = difflang.loads("fn f(x: f64, n: i32) -> f64 = if n == 0 { x } else { sin(f(x * 0.99, n - 1)) + x }\n")
    g = module.f.graph("f64", "i32")
    got = dg.gradient(g, g.outputs[0], g["x"]).run(0.5, 100)[0]
    np.testing.assert_allclose(got, module.f.grad("x")(0.5, 100), rtol=1e-12)
    late = module.f.graph("f64", "i32", stage="optimized")
    assert 'stage="ir"' in report(lambda: dg.gradient(late, late.outputs[0], late["x"]), "DL1250")


def test_rules_of_functions_are_used_or_missed() -> None:
    module = difflang.loads(
        "fn g(x: f64) -> f64 = x * x\n@unchecked\nrule g(x) { (g(x), linear |dx| 3.0 * x * dx) }\n"
        "fn f(x: f64) -> f64 = sin(g(x))\n"
    )
    g = module.f.graph().apply("inline")
    np.testing.assert_allclose(dg.gradient(g, g.outputs[0], g["x"]).run(1.3)[0], np.cos(1.69) * 3.9)
    for late in (module.f.graph(stage="derived"), module.f.graph(stage="optimized"), g.apply("differentiate", "dce")):
        read = dg.Graph.from_json(late.to_json())
        for each in (late, late.rename(name="h"), read):
            assert each.dropped_rules == ("g",)
            text = report(lambda each=each: dg.gradient(each, each.outputs[0], each["x"]), "DL1250")  # type: ignore[misc]
            assert "`g` had a derivative rule in the program" in text


def test_wrong_values_and_seeds() -> None:
    inner = next(e for e in F.walk() if e.op == "loop").regions[0].equations[0].outputs[0]
    assert "is a value of a region" in report(lambda: dg.gradient(F, LOSS, inner), "DL1250")
    assert "belongs to another graph" in report(lambda: dg.gradient(F, LOSS, CHAIN["x"]), "DL1250")
    assert "`xs` is empty" in report(lambda: dg.gradient(F, LOSS, []), "DL1250")
    assert "3 is not a value" in report(lambda: dg.gradient(F, 3, F["x"]), "DL1250")  # type: ignore[arg-type]
    assert "not an int" in report(lambda: dg.gradient(3, LOSS, F["x"]), "DL1250")  # type: ignore[type-var]
    assert "an integer has no derivative" in report(lambda: dg.gradient(F, LOSS, F["k"]), "DL0401")
    assert "an integer has no derivative" in report(lambda: dg.gradient(F, F["k"], F["x"]), "DL0401")
    assert "not one real number" in report(lambda: dg.gradient(F, Z, F["x"]), "DL0402")
    assert "is an f64[4]" in report(lambda: dg.gradient(F, Z, F["x"], [np.ones(4)]), "DL0404")
    assert "is an f32[3]" in report(lambda: dg.gradient(F, Z, F["x"], [np.ones(3, np.float32)]), "DL0404")
    assert "is an i32[]" in report(lambda: dg.gradient(F, Z, F["x"], [F["k"]]), "DL0404")
    assert "a bool is no seed" in report(lambda: dg.gradient(F, Z, F["x"], [True]), "DL0404")
    assert "is 2 seeds" in report(lambda: dg.gradient(F, Z, F["x"], [1.0, 1.0]), "DL0404")
    assert "is an int" in report(lambda: dg.gradient(F, Z, F["x"], 1), "DL0404")  # type: ignore[arg-type]
    assert "has an input `x`" in report(lambda: dg.gradient(F, Z, F["x"], ["x"]), "DL0404")
    assert "1j is not an f64" in report(lambda: dg.gradient(F, Z, F["x"], [1j]), "DL1205")
    assert "`unreachable`" in report(lambda: dg.gradient(F, Z, F["x"], [1.0], unreachable="none"), "DL1207")  # type: ignore[arg-type]


# ---- Sums and recomputation


def test_aggregate_sums_the_cotangents_of_a_value() -> None:
    counts: list[int] = []

    def compressed(b: dg.GraphBuilder, cotangents: list[dg.Value]) -> dg.Value:
        counts.append(len(cotangents))
        parts = [b.convert(ct, dtype="f32") for ct in cotangents]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return b.convert(total, dtype="f64")

    exact = dg.gradient(CHAIN, CHAIN.outputs[0], CHAIN["w"]).run(X, W)[0]
    rough = dg.gradient(CHAIN, CHAIN.outputs[0], CHAIN["w"], aggregate=compressed).run(X, W)[0]
    assert max(counts) == 3, "z is read three times"
    assert 0.0 < float(np.max(np.abs(exact - rough))) < 1e-6
    added = dg.gradient(CHAIN, CHAIN.outputs[0], CHAIN["w"], aggregate=lambda b, cts: b.add(cts[0], b.add(*cts[1:])))
    np.testing.assert_allclose(added.run(X, W)[0], exact, rtol=1e-15)


def test_aggregate_gets_slices_as_whole_cotangents() -> None:
    with dg.build(x="f64[4]") as b:
        low, same = [b.slice(b.x, starts=(0,), stops=(3,), steps=(1,)) for _ in range(2)]
        high = b.slice(b.x, starts=(2,), stops=(4,), steps=(1,))
        b.output(b.sum(low) + b.sum(same * same) + b.sum(high) + b.sum(b.x))
    g, seen = b.graph, list[tuple[Any, ...]]()

    def largest(b: dg.GraphBuilder, cotangents: list[dg.Value]) -> dg.Value:
        seen.extend(ct.shape for ct in cotangents)
        first, *rest = cotangents
        for ct in rest:
            first = b.max(first, ct)
        return first

    x = np.array([2.0, 0.1, 0.2, 0.3])
    np.testing.assert_allclose(dg.gradient(g, g.outputs[0], g["x"]).run(x)[0], [6.0, 2.2, 3.4, 2.0])
    got = dg.gradient(g, g.outputs[0], g["x"], aggregate=largest).run(x)[0]
    assert seen.count((4,)) == 4 and seen.count((3,)) == 2, "of x, and of `same`"
    np.testing.assert_allclose(got, [2.0, 1.0, 1.0, 1.0])


def test_aggregate_sums_in_blocks_that_recompute_too() -> None:
    counts: list[int] = []

    def counted(b: dg.GraphBuilder, cotangents: list[dg.Value]) -> dg.Value:
        counts.append(len(cotangents))
        first, *rest = cotangents
        for ct in rest:
            first = first + ct * 2.0
        return first

    y, w = CHAIN.outputs[0], CHAIN["w"]
    want = dg.gradient(CHAIN, y, w, aggregate=counted).run(X, W)[0]
    plain = sorted(counts)
    counts.clear()
    d = dg.gradient(CHAIN, y, w, aggregate=counted, recompute=lambda e: e.op == "tanh")
    assert sorted(counts) == plain == [3]
    np.testing.assert_allclose(d.run(X, W)[0], want, rtol=1e-14)


def test_what_is_not_selected_stays_zero_in_sums_and_blocks() -> None:
    module = difflang.loads("fn f(x: f64[3]) -> f64 { let l = log(x)\n sum(where(x > 0.0, l * l + l, x * x)) }\n")
    g = module.f.graph().apply("inline")
    for recompute in (lambda e: False, lambda e: True):
        d = dg.gradient(g, g.outputs[0], g["x"], aggregate=lambda b, cts: sum(cts[1:], cts[0]), recompute=recompute)
        np.testing.assert_allclose(d.run(np.array([0.0, 1.0, -1.0]))[0], [0.0, 1.0, -2.0])


def test_a_wrong_aggregate_or_recompute_is_reported() -> None:
    y, x = CHAIN.outputs[0], CHAIN["w"]
    text = report(lambda: dg.gradient(CHAIN, y, x, aggregate=lambda b, cts: b.sum(cts[0])), "DL1250")
    assert "`aggregate` gives an f64[] as the sum of 3 values of type f64[3]" in text
    kept: list[Any] = []
    dg.gradient(CHAIN, y, x, aggregate=lambda b, cts: kept.append((b, cts)) or sum(cts[1:], cts[0]))
    assert "this graph is finished" in report(lambda: kept[0][0].sin(kept[0][1][0]), "DL1250")
    assert "gives an int" in report(lambda: dg.gradient(CHAIN, y, x, aggregate=lambda b, cts: 1), "DL1250")  # type: ignore[arg-type,return-value]
    assert "is a function" in report(lambda: dg.gradient(CHAIN, y, x, aggregate=3), "DL1250")  # type: ignore[arg-type]
    assert "is a function" in report(lambda: dg.gradient(CHAIN, y, x, recompute=True), "DL1250")  # type: ignore[arg-type]
    assert "True or False" in report(lambda: dg.gradient(CHAIN, y, x, recompute=lambda e: e.op), "DL1250")  # type: ignore[arg-type,return-value]


LAYERS = difflang.loads(
    """fn f(x: f64[n, d], ws: f64[4, d, d]) -> f64 {
  let a = tanh(sin(x @ ws[0]))
  let b = tanh(sin(a @ ws[1]))
  let c = tanh(sin(b @ ws[2]))
  sum(tanh(sin(c @ ws[3])))
}
"""
)


def test_recomputed_values_take_less_memory_as_predicted() -> None:
    g = LAYERS.f.graph("f64[1000, 64]", "f64[4, 64, 64]").apply("inline", "simplify", "dce")
    kept = dg.gradient(g, g.outputs[0], g["ws"])
    lean = dg.gradient(g, g.outputs[0], g["ws"], recompute=lambda e: e.op in ("tanh", "sin"))
    array = 1000 * 64 * 8
    before, after = kept.memory(compiled=True), lean.memory(compiled=True)
    assert before.account.peak - after.account.peak >= 3.5 * array
    for found in (before, after):
        assert found.account.peak == pytest.approx(found.measured, rel=0.05)
    blocks = [e for e in lean.equations if e.op == "checkpoint"]
    assert len(blocks) == 8, "for the slopes of each layer, and for the product behind it"


@pytest.mark.parametrize("ops", [("tanh",), ("sin", "mul"), ("loop",), ("const",), None])
def test_recomputation_keeps_the_values(ops: tuple[str, ...] | None) -> None:
    want = dg.gradient(F, LOSS, [F["x"], Z]).run(X, W, 1)
    d = dg.gradient(F, LOSS, [F["x"], Z], recompute=lambda e: ops is None or e.op in ops)
    for engine in ("xla", "interpret"):
        np.testing.assert_allclose(d.run(X, W, 1, engine=engine), want, rtol=1e-14)
    inside = [e for e in d.walk() if e.op == "checkpoint"]
    assert all(i.is_backward for e in inside for r in e.regions for i in r.equations)
    assert bool(inside) == (ops != ("const",))


# ---- Marks


def test_backward_equations_keep_their_mark_through_passes_and_json() -> None:
    d = dg.gradient(F, LOSS, F["x"])
    assert {e.op for e in d.walk() if e.is_backward} >= {"loop", "mul", "dynamic_update"}
    own = {v for e in F.equations for v in e.outputs}
    assert not any(e.is_backward for e in d.equations if own.issuperset(e.outputs))
    loop = [e for e in d.equations if e.op == "loop"][-1]
    assert loop.is_backward and all(e.is_backward for e in loop.regions[0].equations)
    assert loop.source_line == "for i in 0..3 { s = s * s + u[i] }"
    smaller = d.apply("simplify", "cse", "dce")
    assert 0 < sum(e.is_backward for e in smaller.walk()) < len(list(smaller.walk()))
    read = dg.Graph.from_json(d.to_json())
    assert [e.is_backward for e in read.walk()] == [e.is_backward for e in d.walk()]


def test_sums_of_seeds_have_marks_too() -> None:
    own = {v for e in F.equations for v in e.outputs}
    with dg.build(x="f64") as b:
        b.output(*b.loop(3, lambda b, i, s, t: (b.sin(s * t),) * 2, b.x, b.x))
    twice = b.graph
    for d in (
        dg.gradient(F, [Z, Z, LOSS, LOSS], [Z, F["x"]], [1.0, 2.0, 3.0, 4.0]),
        dg.gradient(F, [Z, Z], Z, [1.0, 2.0], aggregate=lambda b, cts: sum(cts[1:], cts[0])),
    ):
        sums = [e for e in d.equations if e.op == "add" and not own.issuperset(e.outputs)]
        assert sums and all(e.is_backward for e in sums)
    loop = dg.gradient(twice, twice.outputs, twice["x"], [1.0, 1.0]).equations[-2]
    assert loop.op == "loop" and all(e.is_backward for e in loop.regions[0].equations)


def test_built_graphs_have_marks_too() -> None:
    with dg.build(x="f64[]") as b:
        b.output(b.sin(b.x))
    d = dg.gradient(b.graph, b.graph.outputs[0], b.graph["x"])
    assert [(e.op, e.is_backward) for e in d.equations] == [
        ("sin", False), ("cos", False), ("const", True), ("mul", True),
    ]  # fmt: skip
    read = dg.Graph.from_json(d.to_json(source=False))
    assert [e.is_backward for e in read.equations] == [e.is_backward for e in d.equations]
