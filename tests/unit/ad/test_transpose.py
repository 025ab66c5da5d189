"""What a linear graph gives turned round, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from derivatives import FLOAT, literal, mapped, op, scan, total, wide
from difflang.ad.derivative_cache import DerivativeCache
from difflang.base.diagnostics import InternalError
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import Op, OperandRules
from difflang.ir.tensor_types import F64, Tensor
from difflang.ops.ad_interface import Mask, TransposedGraph, classify_cotangents

VECTOR = Tensor(F64, (3,))


def transposed(graph: Graph, linear: Mask, present: Mask | None = None) -> TransposedGraph:
    return DerivativeCache().transpose(graph, linear, classify_cotangents(present or (True,) * len(graph.results)))


def test_what_is_not_linear_is_computed_forwards() -> None:
    graph = build_region([FLOAT, FLOAT], lambda x, d: [op("exp", x) * d + d])
    back = transposed(graph, (False, True))
    assert back.active == (False, True)
    np.testing.assert_allclose(evaluate(back.graph, np.float64(0.0), np.float64(5.0)), [10.0])


def test_an_absent_cotangent_stays_absent() -> None:
    graph = build_region([FLOAT, FLOAT], lambda a, b: [a + a, b])
    back = transposed(graph, (True, True), (True, False))
    assert back.active == (True, False)
    assert len(back.graph.params) == 1
    assert all(e.op.name != "const" for e in back.graph.eqns)


def test_a_param_that_is_a_result_twice_gets_both_cotangents() -> None:
    back = transposed(build_region([FLOAT], lambda a: [a, a]), (True,))
    assert evaluate(back.graph, np.float64(2.0), np.float64(3.0)) == [5.0]


def test_a_wanted_cotangent_is_zero_if_need_be() -> None:
    graph = build_region([FLOAT, VECTOR], lambda a, b: [a])
    back = DerivativeCache().transpose(
        graph, (True, True), classify_cotangents((True,)), classify_cotangents((False, True))
    )
    assert back.active == (True, True)
    np.testing.assert_array_equal(evaluate(back.graph, np.float64(2.0))[1], np.zeros(3))


@pytest.mark.parametrize(
    "body", [lambda a: [a * a], lambda a: [op("sin", a)], lambda a: [literal(a, 1.0) / a]], ids=["mul", "sin", "div"]
)
def test_what_is_not_linear_cannot_be_turned_round(body: object) -> None:
    with pytest.raises(InternalError, match="is not linear"):
        transposed(build_region([FLOAT], body), (True,))  # type: ignore[arg-type]


def test_a_rule_that_gives_another_type_is_our_fault() -> None:
    rules = OperandRules(transpose=(lambda ct, x: wide(ct, 3),))
    bad = Op("bad", lambda same, x: x, lambda x: x, lambda jax, x: x, "", rules)
    with pytest.raises(InternalError, match=r"the transpose of bad has type f64\[3\], not f64\[\]"):
        transposed(build_region([FLOAT], lambda x: bad(x)), (True,))


def test_a_loop_sums_the_cotangents_of_what_it_reads_in_its_carry() -> None:
    """Memory does not grow with the number of steps: nothing is given step by step."""
    graph = build_region([VECTOR, FLOAT], lambda w, s: scan(100, lambda i, w, s: [s + total(w)], [w], [s]))
    back = transposed(graph, (True, True))
    (loop,) = [e for e in back.graph.eqns if e.op.name == "loop"]
    assert loop.attrs["reverse"] and loop.attrs["exact"] and loop.attrs["carry"] == len(loop.regions[0].results) == 2
    ct_w, ct_s = evaluate(back.graph, np.float64(2.0))
    np.testing.assert_array_equal(ct_w, [200.0] * 3)
    assert ct_s == 2.0


def test_a_loop_pulls_back_only_through_what_has_a_cotangent() -> None:
    def step(i: Value, a: Value, b: Value, x: Value) -> list[Value]:
        return [a + x, b + b, x]

    graph = build_region([FLOAT, FLOAT, VECTOR], lambda a, b, xs: scan(3, step, [], [a, b], [xs]))
    back = transposed(graph, (True, True, True), (True, False, False))
    assert back.active == (True, False, True)
    (loop,) = [e for e in back.graph.eqns if e.op.name == "loop"]
    assert loop.attrs["carry"] == 1


def test_a_map_sums_over_lanes_what_they_share() -> None:
    graph = build_region([FLOAT, VECTOR], lambda w, xs: mapped(3, lambda w, x: [w + x], [w], [xs]))
    back = transposed(graph, (True, True))
    ct_w, ct_xs = evaluate(back.graph, np.array([1.0, 2.0, 3.0]))
    assert ct_w == 6.0
    np.testing.assert_array_equal(ct_xs, [1.0, 2.0, 3.0])
