"""What the tangent graph captures, what stays absent, and what a rule may not do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from derivatives import FLOAT, INT, called, choose, literal, mapped, matvec, op, repeat, scan, total, wide
from difflang.ad.derivative_cache import DerivativeCache
from difflang.base.diagnostics import InternalError
from difflang.base.source import Source, Span
from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS, JvpRule, Op, OperandRules
from difflang.ir.tensor_types import F64, Tensor
from difflang.ops.ad_interface import LinearizedGraph

VECTOR, MATRIX = Tensor(F64, (3,)), Tensor(F64, (3, 3))


def linearized(graph: Graph, *active: bool) -> LinearizedGraph:
    return DerivativeCache().linearize(graph, active)


def only(graph: Graph, name: str) -> Eqn:
    (eqn,) = [e for e in graph.eqns if e.op.name == name]
    return eqn


def test_the_residuals_are_the_values_that_the_tangent_reads() -> None:
    lin = linearized(build_region([FLOAT], lambda x: [op("sin", x) * x]), True)
    x = np.float64(0.3)
    y, *made = evaluate(lin.primal, x)
    assert y == np.sin(0.3) * 0.3
    assert sorted(map(float, made)) == sorted([np.sin(0.3), np.cos(0.3)])
    assert len(lin.residuals) == 3  # and x, which is a param: the primal does not give it again
    assert lin.primal.params[0] in lin.residuals


def test_a_tangent_that_no_result_reads_leaves_no_residual() -> None:
    lin = linearized(build_region([FLOAT], lambda x: [x + x, op("stop", op("sin", op("exp", x)))]), True)
    assert lin.residuals == ()
    assert lin.active == (True, False)


def test_a_constant_is_no_residual() -> None:
    lin = linearized(build_region([FLOAT], lambda x: [literal(x, 3.0) * x]), True)
    assert lin.residuals == ()
    assert evaluate(lin.tangent, np.float64(2.0)) == [6.0]


def test_a_result_that_does_not_depend_has_no_tangent() -> None:
    graph = build_region([FLOAT, FLOAT, INT], lambda x, y, n: [y * y, n + n, x])
    assert linearized(graph, True, False, False).active == (False, False, True)


def test_an_integer_has_no_tangent() -> None:
    with pytest.raises(InternalError, match="has no tangent"):
        linearized(build_region([INT], lambda n: [n]), True)


def test_a_conversion_to_integers_ends_a_tangent() -> None:
    graph = build_region([FLOAT], lambda x: [op("convert", op("truncate", x, dtype=INT.dtype), dtype=F64) * x])
    lin = linearized(graph, True)
    assert evaluate(lin.tangent, np.float64(2.0), np.float64(1.0)) == [2.0]


def test_a_jointly_linear_op_gets_zeros_for_absent_tangents() -> None:
    graph = build_region([VECTOR, VECTOR], lambda x, y: [op("concat", x, y, axis=0)])
    lin = linearized(graph, False, True)
    (dy,) = evaluate(lin.tangent, np.ones(3))
    np.testing.assert_array_equal(dy, [0, 0, 0, 1, 1, 1])


def test_derivative_equations_stand_where_the_primal_stands() -> None:
    source = Source("m.dfl", "sin(x) * x")
    builder = Builder()
    x = builder.param(FLOAT)
    builder.span = here = Span(source, 0, 6)
    s = op("sin", x)
    builder.span = there = Span(source, 0, 10)
    lin = linearized(builder.finish([s * x]), True)
    spans = [(e.op.name, e.span) for e in (*lin.primal.eqns, *lin.tangent.eqns)]
    assert spans == [
        *[("sin", here), ("cos", here), ("mul", there)],
        *[("mul", here), ("mul", there), ("mul", there), ("add", there)],
    ]


def broken(jvp: Sequence[JvpRule | None]) -> Op:
    """An op that is in no registry, on one array."""
    return Op("broken", lambda same, x: x, lambda x: x, lambda jax, x: x, "", OperandRules(jvp=jvp))


def test_an_op_without_a_rule_for_an_active_operand_is_our_fault() -> None:
    with pytest.raises(InternalError, match="broken has no derivative in operand 0"):
        linearized(build_region([FLOAT], lambda x: broken(jvp=(None,))(x)), True)


def test_a_rule_that_gives_another_type_is_our_fault() -> None:
    bad = broken(jvp=(lambda d, y, x: wide(d, 3),))
    with pytest.raises(InternalError, match=r"the derivative of broken has type f64\[3\], not f64\[\]"):
        linearized(build_region([FLOAT], lambda x: bad(x)), True)


def test_a_rule_may_say_that_there_is_no_tangent() -> None:
    assert linearized(build_region([FLOAT], lambda x: broken(jvp=(lambda d, y, x: None,))(x)), True).active == (False,)


# --------------------------------------------------------------------------------------- residuals of regions


def outputs(eqn: Eqn) -> list[object]:
    """What the steps of a loop give besides the carry."""
    carry = eqn.attrs["carry"]
    return [r.type for r in eqn.regions[0].results[carry:]]


def test_a_loop_saves_only_what_changes() -> None:
    """A matrix it reads, an array it reads in items, the index and what comes from consts alone are not saved."""

    def step(i: Value, w: Value, v: Value, x: Value) -> list[Value]:
        index = op("convert", i, dtype=F64)
        return [matvec(w * w, v) * x + wide(op("exp", total(w)), 3) * v + wide(index, 3) * v]

    graph = build_region([MATRIX, VECTOR, Tensor(F64, (5, 3))], lambda w, v, xs: scan(5, step, [w], [v], [xs]))
    lin = linearized(graph, False, True, False)
    assert outputs(only(lin.primal, "loop")) == []  # the index as a float, spread, is made again of the index
    tangent = only(lin.tangent, "loop")
    assert tangent.operands[-1] in lin.residual_params  # xs as they are; nothing was saved, and dx is absent
    assert lin.primal.params[2] in lin.residuals


def test_a_linear_loop_saves_nothing() -> None:
    graph = build_region([MATRIX, VECTOR], lambda w, v: scan(9, lambda i, w, v: [matvec(op("sin", w), v)], [w], [v]))
    lin = linearized(graph, False, True)
    assert outputs(only(lin.primal, "loop")) == []
    assert [r.type for r in lin.residuals] == [MATRIX]


def test_invariants_are_not_computed_early_where_they_could_run_forever() -> None:
    """A loop inside the step that reads only consts stays there: it need not end where the outer takes no step."""

    def forever(w: Value) -> Value:
        return repeat(2**31 - 1, lambda i, w: [w * 1.0], [], [w], go=lambda i, w: op("gt", w, literal(w, 0.0)))[1]

    graph = build_region([FLOAT, FLOAT], lambda w, s: scan(0, lambda i, w, s: [s * forever(w)], [w], [s]))
    lin = linearized(graph, False, True)
    (y, *residuals) = evaluate(lin.primal, np.float64(1.0), np.float64(2.0))
    assert y == 2.0
    assert all(e.op.name != "loop" or e.attrs["exact"] for e in lin.primal.eqns)
    assert len(residuals) == 1


def test_branches_share_residual_slots() -> None:
    graph = build_region(
        [FLOAT, VECTOR],
        lambda x, v: choose(
            op("gt", x, literal(x, 0.0)),
            lambda x, v: [op("sin", v), op("exp", x)],
            lambda x, v: [op("tanh", v), op("sin", op("sin", x))],
            x,
            v,
        ),
    )
    lin = linearized(graph, True, True)
    residuals = only(lin.primal, "cond").results[2:]
    assert sorted(str(r.type) for r in residuals) == ["f64[3]", "f64[]", "f64[]"]


def test_a_branch_result_without_any_tangent_has_none() -> None:
    pick = lambda x, y: choose(op("gt", x, y), lambda x, y: [x * x, y], lambda x, y: [y, y], x, y)
    assert linearized(build_region([FLOAT, FLOAT], pick), True, False).active == (True, False)


def test_which_carries_have_a_tangent_is_found_in_as_many_rounds_as_it_takes() -> None:
    def step(i: Value, a: Value, b: Value, c: Value, d: Value) -> list[Value]:
        return [a, b + a, c + b, d]

    graph = build_region([FLOAT] * 4, lambda *xs: scan(4, step, [], list(xs)))
    assert linearized(graph, True, False, False, False).active == (True, True, True, False)
    assert linearized(graph, False, False, True, False).active == (False, False, True, False)


def test_a_carry_that_the_step_forgets_keeps_its_tangent() -> None:
    """There may be no step."""
    graph = build_region([FLOAT, FLOAT], lambda w, s: scan(0, lambda i, w, s: [w], [w], [s]))
    lin = linearized(graph, False, True)
    assert evaluate(lin.tangent, np.float64(3.0)) == [3.0]


def test_a_map_keeps_what_lanes_share_once() -> None:
    def body(w: Value, x: Value) -> list[Value]:
        return [op("sin", w) * op("sin", x)]

    graph = build_region([FLOAT, Tensor(F64, (4,))], lambda w, xs: mapped(4, body, [w], [xs]))
    lin = linearized(graph, False, True)
    assert [r.type for r in only(lin.primal, "map").regions[0].results] == [FLOAT, FLOAT]  # the result and cos x
    assert sorted(str(r.type) for r in lin.residuals) == ["f64[4]", "f64[]"]


def test_a_function_is_linearized_once_however_often_it_is_called() -> None:
    f = build_region([FLOAT], lambda x: [op("sin", x) * x])

    def body(x: Value) -> list[Value]:
        for _ in range(10):
            (x,) = called(f, x)
        return [x]

    lin = linearized(build_region([FLOAT], body), True)
    for graph in (lin.primal, lin.tangent):
        assert len({id(e.regions[0]) for e in graph.eqns if e.op is OPS["call"]}) == 1
