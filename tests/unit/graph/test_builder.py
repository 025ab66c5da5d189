"""Graphs that are built from nothing: ops by name, arithmetic, constants, branches and loops."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang import graph as dg

X = np.array([1.0, 2.0, 0.5])
ENGINES = ["xla", "interpret"]


@pytest.mark.parametrize("engine", ENGINES)
def test_ops_by_name_and_arithmetic(engine: str) -> None:
    with dg.build("mixed", x="f64[n]", y="f64[n]") as b:
        z = 2.0 - b.x * b.y / (1.0 + b.sin(b.x)) - 3.0
        b.output(b.sum(-z + abs(z) ** 3 + z**2.5), b.select(b.x < b.y, b.x, b.y), 1.0 / b.y)
    g = b.graph
    y = np.array([2.0, -1.0, 3.0])
    z = 2.0 - X * y / (1 + np.sin(X)) - 3.0
    with np.errstate(invalid="ignore"):
        expected = np.sum(-z + np.abs(z) ** 3 + z**2.5), np.minimum(X, y), 1 / y
    for found, wanted in zip(g.run(X, y, engine=engine), expected, strict=True):
        np.testing.assert_allclose(found, wanted)
    assert g.name == "mixed" and repr(g).startswith("<graph mixed(x: f64[n], y: f64[n]) -> f64[], f64[n], f64[n]")


def test_comparisons() -> None:
    with dg.build(x="f64") as b:
        b.output(b.x < 1, b.x <= 1, b.x > 1, b.x >= 1, b.eq(b.x, 1), b.ne(b.x, 1))
    assert [bool(v) for v in b.graph.run(1.0)] == [False, True, False, True, True, False]
    with pytest.raises(TypeError, match="no truth value"):
        bool(b.x)


def test_inputs_are_described_in_several_ways() -> None:
    with dg.build(a="f32", b_="i32[2, 3]", c=np.zeros((4,), bool), d=jax.ShapeDtypeStruct((2,), np.float32)) as b:
        b.output(b.a)
    assert [v.type for v in b.graph.inputs] == ["f32[]", "i32[2, 3]", "bool[4]", "f32[2]"]


def test_an_input_may_have_the_name_of_an_op() -> None:
    with dg.build(gamma="f64") as b:
        b.output(b.gamma * 2.0)
    assert b.graph.inputs[0].name == "gamma"


def test_constants() -> None:
    with dg.build(x="f32[3]") as b:
        numbers = [
            b.const(1, "i32"),
            b.const(2.5, b.x),
            b.const(True, "bool"),
            b.const(np.arange(3.0)),
            b.const(1, "c64"),
        ]
        b.output(*numbers, b.const(np.float32(7)))
    assert [v.type for v in b.graph.outputs] == ["i32[]", "f32[3]", "bool[]", "f64[3]", "c64[]", "f32[]"]
    np.testing.assert_array_equal(b.graph.run(np.zeros(3, np.float32))[3], [0.0, 1.0, 2.0])


def test_several_results_are_a_tuple() -> None:
    with dg.build(a="f64[2, 2]") as b:
        q, r = b.qr(b.a)
        b.output(b.dot_general(q, r, contract=((1,), (0,)), batch=((), ())))
    a = np.array([[1.0, 2.0], [3.0, 5.0]])
    np.testing.assert_allclose(b.graph.run(a)[0], a)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_branch(engine: str) -> None:
    with dg.build(x="f64", y="f64") as b:
        b.output(*b.cond(b.x > b.y, lambda b, x: (x * 2.0, b.sin(x)), lambda b, x: (x + b.y, x), b.x))
    found = b.graph.run(3.0, 1.0, engine=engine), b.graph.run(1.0, 3.0, engine=engine)
    np.testing.assert_allclose(found, [[6.0, np.sin(3.0)], [4.0, 1.0]])
    (cond,) = [e for e in b.graph.equations if e.op == "cond"]
    assert [[e.op for e in r.equations] for r in cond.regions] == [["const", "mul", "sin"], ["add"]]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_counted_loop_with_carries(engine: str) -> None:
    with dg.build(x="f64", n="i32") as b:
        total, power = b.loop(4, lambda b, i, s, p: (s + p * b.convert(i, dtype="f64"), p * 2.0), b.x, b.x)
        times = b.loop(b.n, lambda b, _, s: b.loop(2, lambda b, _, t: t + total, s), power)
        b.output(total, power, times)
    x = 1.5
    total, power = x, x
    for i in range(4):
        total, power = total + power * i, power * 2
    np.testing.assert_allclose(b.graph.run(x, 3, engine=engine), [total, power, power + 6 * total])
    np.testing.assert_allclose(b.graph.run(x, 0, engine=engine)[2], power)


def test_loops_and_branches_of_a_built_graph_have_derivatives() -> None:
    with dg.build(x="f64") as b:
        b.output(b.loop(3, lambda b, i, s: b.cond(s > 1.0, lambda b: s * 0.5, lambda b: s * s), b.x))
    region = b.graph
    with dg.build(x="f64") as b:
        b.output(b.vjp(b.x, b.const(1.0, "f64"), regions=[region], wrt=(True,))[1])
    np.testing.assert_allclose(b.graph.run(3.0)[0], 0.25 * 2 * 0.75)


def test_a_value_gets_a_name() -> None:
    with dg.build(x="f64") as b:
        b.output(b.named("y", b.sin(b.x)))
    assert b.graph["y"].equation == b.graph.equations[0]
    with dg.build(x="f64") as b:
        with pytest.raises(difflang.ArgumentError, match="not computed here"):
            b.named("y", b.x)
        b.output(b.x)


def test_an_unknown_op_is_an_attribute_error_with_the_nearest_name() -> None:
    with dg.build(x="f64") as b:
        with pytest.raises(AttributeError, match="did you mean `tanh`"):
            b.tanhh(b.x)
        assert "tanh" in dir(b) and not hasattr(b, "nothing_like_it")
        b.output(b.x)


with dg.build(x="f64[3]", n="i32") as OUT:
    OUT.output(OUT.x)


def built(body: Any) -> Any:
    def run() -> None:
        with dg.build(x="f64[3]", n="i32") as b:
            body(b)

    return run


@pytest.mark.parametrize(
    ("call", "code", "part"),
    [
        (built(lambda b: None), "DL1250", "no output"),
        (built(lambda b: [b.output(b.x), b.output(b.x)]), "DL1250", "has its outputs already"),
        (built(lambda b: b.output(1.0)), "DL1250", "an output is a value"),
        (built(lambda b: b.output(OUT.graph["x"])), "DL1250", "belongs to another graph"),
        (built(lambda b: b.sin()), "DL1250", "`sin` does not take no operands"),
        (built(lambda b: b.sin(b.x, b.x)), "DL1250", "`sin` does not take f64[3], f64[3]: takes 1 operand, not 2"),
        (built(lambda b: b.sub(b.x)), "DL1250", "takes 2 operands, not 1"),
        (built(lambda b: b.lt(b.x)), "DL1250", "takes 2 operands, not 1"),
        (built(lambda b: b.sin(b.n)), "DL1250", "not i32"),
        (built(lambda b: b.sin(1.0)), "DL1250", "no operand of `sin` is a value"),
        (built(lambda b: b.add(b.x, "a")), "DL1250", "a str is no operand of `add`"),
        (built(lambda b: b.add(b.x, b.n)), "DL1250", "not broadcast"),
        (built(lambda b: b.convert(b.x, dtype="f12")), "DL1250", "'f12' is not a value for `dtype`"),
        (built(lambda b: b.convert(b.x)), "DL1250", "its attributes are `dtype`"),
        (built(lambda b: b.n + 0.5), "DL1205", "0.5 is not an i32"),
        (built(lambda b: b.n + (1 << 40)), "DL1205", "out of the range of i32"),
        (built(lambda b: b.const(1.0, "history[f64[]]")), "DL1205", "no number is a history[f64[]]"),
        (built(lambda b: b.const(1.0)), "DL1210", "has no type"),
        (built(lambda b: b.const([1.0, 2.0])), "DL1205", "np.array([1.0, 2.0])"),
        (built(lambda b: b.const(np.ones(2), "f64[2]")), "DL1205", "ndarray is not a number"),
        (built(lambda b: b.const(1e300, "f32")), "DL1205", "1e+300 is out of the range of f32"),
        (built(lambda b: b.const(1 << 2000, "f64")), "DL1205", "out of the range of f64"),
        (built(lambda b: b.convert(b.x, dtype=3)), "DL1250", "3 is not a value for `dtype`"),
        (built(lambda b: b.broadcast(b.n, shape=(-2,), axes=())), "DL1250", "its result would be an i32[-2]"),
        (built(lambda b: b.sum(3.0)), "DL1250", "what is summed is a value"),
        (built(lambda b: b.sum(b.x, axes=0)), "DL1250", "`reduce_sum` does not take f64[3]"),
        (built(lambda b: b.named(3, b.sin(b.x))), "DL1250", "3 is no name"),
        (built(lambda b: b.cond(b.x == 0.0, lambda b: b.x, lambda b: b.x)), "DL1250", "`b.eq(x, y)` compares"),
        (built(lambda b: b.cond(b.n > 0, b.x, b.x)), "DL1250", "a region is a function"),
        (built(lambda b: b.loop(1 << 40, lambda b, i, s: s, b.x)), "DL1205", "out of the range of i32"),
        (built(lambda b: b.const(np.array(["a"]))), "DL1210", "no constant"),
        (built(lambda b: b.cond(True, lambda b: 1, lambda b: 2)), "DL1250", "the condition is a value"),
        (built(lambda b: b.cond(b.n > 0, lambda b: 1.0, lambda b: 2.0)), "DL1250", "the result of a region"),
        (
            built(lambda b: b.cond(b.n > 0, lambda b: b.x, lambda b: b.n)),
            "DL1250",
            "different types: f64[3] and i32[]",
        ),
        (built(lambda b: b.cond(b.n, lambda b: b.x, lambda b: b.x)), "DL1250", "`cond` does not take i32[]"),
        (built(lambda b: b.loop(-1, lambda b, i, s: s, b.x)), "DL1250", "0 or more steps, not -1"),
        (built(lambda b: b.loop(2.0, lambda b, i, s: s, b.x)), "DL1250", "not 2.0"),
        (built(lambda b: b.loop(b.x, lambda b, i, s: s, b.x)), "DL1250", "loop"),
        (
            built(lambda b: b.loop(2, lambda b, i, s: (s, s), b.x)),
            "DL1250",
            "f64[3] and f64[3], f64[3]",
        ),
        (built(lambda b: b.loop(2, lambda b, i, s: b.sum(s), b.x)), "DL1250", "takes and gives different types"),
        (built(lambda b: b.loop(2, lambda b, i, s: s, 1.0)), "DL1250", "the carry of a loop is a value"),
        (lambda: dg.build(x="f77"), "DL1210", "`f77` is not a type"),
        (lambda: dg.build(x="f64[-3]"), "DL1210", "`f64[-3]` is not a type"),
        (lambda: dg.build(x=3), "DL1210", "an int does not say a type"),
        (lambda: dg.build(x=np.array(["a"])), "DL1210", "does not say a type"),
        (lambda: dg.build(const="f64"), "DL1207", "cannot be called `const`"),
        (lambda: dg.build(x="f64").graph, "DL1250", "not finished"),
        (lambda: OUT.sin(OUT.x), "DL1250", "finished"),
    ],
)
def test_a_wrong_equation_is_an_error(call: Any, code: str, part: str) -> None:
    with pytest.raises(difflang.DifflangError) as caught:
        call()
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert part in caught.value.render(), caught.value.render()


def test_an_element_type_is_a_text_or_one_of_numpy() -> None:
    with dg.build(x="f64") as b:
        b.output(b.convert(b.x, dtype="f32"), b.convert(b.x, dtype=np.float32), b.const(np.inf, "f32"))
    assert [v.type for v in b.graph.outputs] == ["f32[]"] * 3


def test_an_error_inside_the_block_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), dg.build(x="f64"):
        _ = 1 // 0
