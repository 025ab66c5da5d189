"""The ops behind rules: their text and JSON, what is left of them after differentiation, wrong types, wrong rules."""

from __future__ import annotations

import numpy as np
import pytest

import difflang
from derivatives import FLOAT, op
from difflang.ad.expand_derivatives import differentiate
from difflang.analysis.linearity import NotLinear, prove_linear
from difflang.base.diagnostics import InternalError
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.json_codec import graph_from_json, graph_to_json
from difflang.ir.op import OPS
from difflang.ir.structural_equality import graphs_equal
from difflang.ir.text_parser import graph_from_text
from difflang.ir.text_printer import graph_to_text
from difflang.ir.verify import verify


def cubed(rule: str = "3 again / x") -> Graph:
    """x^3 of a function whose rule is written with itself."""
    primal = build_region([FLOAT], lambda x: [op("stop", x * x * x)])

    def body(x: Value, dx: Value) -> list[Value]:
        (y,) = OPS["self_call"](x, name="cubed", results=(FLOAT,))
        return [y, 3.0 * y / x * dx if rule == "3 again / x" else y * dx]

    pushed = build_region([FLOAT, FLOAT], body)
    return build_region(
        [FLOAT], lambda x: OPS["custom_derivative"](x, regions=(primal, pushed), name="cubed", wrt=(True,))
    )


def slope(f: Graph, kind: str) -> Graph:
    """The derivative of a graph of one number, as an equation."""

    def body(x: Value) -> list[Value]:
        found = OPS[kind](x, x.home.const(1.0, FLOAT), regions=(f,), wrt=(True,))
        return [found[1]]

    return build_region([FLOAT], body)


@pytest.mark.parametrize("graph", [cubed(), slope(cubed(), "vjp"), slope(slope(cubed(), "jvp"), "vjp")])
def test_text_and_json_come_back(graph: Graph) -> None:
    verify(graph)
    assert graphs_equal(graph_from_text(graph_to_text(graph)), graph, names=False)
    assert graphs_equal(graph_from_json(graph_to_json(graph)), graph, names=False)


@pytest.mark.parametrize("kinds", ["jvp", "vjp", "jvp jvp", "jvp vjp", "vjp jvp", "vjp vjp", "vjp vjp jvp"])
def test_every_order_comes_from_the_rule(kinds: str) -> None:
    graph = cubed()
    for kind in kinds.split():
        graph = slope(graph, kind)
    ready = verify(differentiate(graph))
    assert "self_call" not in graph_to_text(ready) and "custom_derivative" not in graph_to_text(ready)
    want = {1: 3 * 1.7**2, 2: 6 * 1.7, 3: 6.0}[len(kinds.split())]
    np.testing.assert_allclose(evaluate(ready, np.float64(1.7))[0], want, rtol=1e-14)


def test_what_is_not_differentiated_is_a_call() -> None:
    ready = differentiate(cubed())
    assert [e.op.name for e in ready.eqns] == ["call"]
    assert evaluate(ready, np.float64(2.0))[0] == 8


def test_a_rule_of_other_types_is_refused() -> None:
    primal = build_region([FLOAT], lambda x: [x * x])
    with pytest.raises(InternalError, match="rule"):
        graph = build_region([FLOAT, FLOAT], lambda x, dx: [x])
        verify(build_region([FLOAT], lambda x: wrong(x, primal, graph)))


def wrong(x: Value, primal: Graph, pushed: Graph) -> tuple[Value, ...]:
    return x.home.append(OPS["custom_derivative"], (x,), (FLOAT,), (primal, pushed), name="f", wrt=(True,))


def test_a_function_with_a_rule_is_not_taken_for_linear() -> None:
    with pytest.raises(NotLinear):
        prove_linear(cubed(), (True,))


def test_solutions_are_linear_in_the_right_hand_side_alone() -> None:
    """a x = b by a solver that gives b / a: derivatives are solutions, and the solver stays as it is."""
    solve = build_region([FLOAT, FLOAT], lambda a, b: [op("stop", b / a)])
    apply = build_region([FLOAT, FLOAT], lambda a, x: [a * x])
    graph = build_region(
        [FLOAT, FLOAT], lambda a, b: OPS["custom_linear_solve"](a, b, regions=(solve, solve, apply), consts=1)
    )
    prove_linear(graph, (False, True))
    with pytest.raises(NotLinear):
        prove_linear(graph, (True, False))

    def both(a: Value, b: Value) -> list[Value]:
        found = OPS["vjp"](a, b, a.home.const(1.0, FLOAT), regions=(graph,), wrt=(True, True))
        return list(found[1:])

    pulled = build_region([FLOAT, FLOAT], both)
    assert graphs_equal(graph_from_text(graph_to_text(pulled)), pulled, names=False)
    da, db = evaluate(verify(differentiate(pulled)), np.float64(4.0), np.float64(3.0))
    np.testing.assert_allclose((da, db), (-3 / 16, 1 / 4), rtol=1e-15)


def test_a_program_with_rules_is_text_and_comes_back() -> None:
    source = "fn f(x: f64) -> f64 = x^3\nrule f(x) { (f(x), linear |dx| 3 * x^2 * dx) }\n"
    source += "fn g(x: f64[n]) -> f64 = sum([for i => f(x[i])])\n"
    module = difflang.loads(source)
    graph = graph_from_text(module.g.ir("ir", "f64[3]"))
    assert graph_to_text(graph_from_text(graph_to_text(graph))) == graph_to_text(graph)
