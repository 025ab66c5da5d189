"""Derivative equations expanded: what they give at the edges, classics of nesting, and what it costs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from derivatives import (
    FLOAT,
    FOREVER,
    INT,
    TRUTH,
    called,
    choose,
    composed,
    jvp,
    literal,
    mapped,
    nested,
    op,
    repeat,
    scan,
    total,
    unexpanded,
    vjp,
    wide,
)
from difflang.ad.expand_derivatives import differentiate
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS, TypeMismatch
from difflang.ir.tensor_types import F64, History, Tensor, Type
from support.work import work

VECTOR = Tensor(F64, (3,))
NAN, INF = float("nan"), float("inf")


def f64(*numbers: float) -> list[np.ndarray]:
    return [np.asarray(x, np.float64) for x in numbers]


def every_type(graph: Graph) -> set[Type]:
    found = {v.type for v in (*graph.params, *(r for e in graph.eqns for r in e.results))}
    return found.union(*[every_type(r) for e in graph.eqns for r in e.regions])


def size(graph: Graph, seen: set[int] | None = None) -> int:
    """Equations, those of a region that several equations share counted once."""
    seen = set() if seen is None else seen
    if id(graph) in seen:
        return 0
    seen.add(id(graph))
    return len(graph.eqns) + sum(size(r, seen) for e in graph.eqns for r in e.regions)


# ---------------------------------------------------------------------------------------------------- the edges


def test_a_graph_without_derivatives_is_given_back() -> None:
    graph = build_region([FLOAT], lambda x: scan(3, lambda i, x: [op("sin", x)], [], [x]))
    assert differentiate(graph) is graph


def test_a_param_that_the_result_ignores_gets_zeros() -> None:
    ys = evaluate(vjp(build_region([FLOAT, VECTOR], lambda x, v: [x * x])), *f64(3.0), np.ones(3), *f64(1.0))
    assert ys[:2] == [9.0, 6.0]
    np.testing.assert_array_equal(ys[2], np.zeros(3))


def test_a_result_that_ignores_its_params_has_zero_tangent() -> None:
    ys = evaluate(jvp(build_region([FLOAT], lambda x: [literal(x, 2.0), x])), *f64(3.0, 1.0))
    assert ys == [2.0, 3.0, 0.0, 1.0]


def test_integer_and_boolean_results_take_no_cotangent() -> None:
    graph = build_region([FLOAT, INT], lambda x, n: [n + n, x * x, op("gt", x, literal(x, 0.0))])
    backward, forward = vjp(graph), jvp(graph)
    assert [r.type for r in backward.results] == [INT, FLOAT, TRUTH, FLOAT]
    assert evaluate(backward, *f64(3.0), np.int32(4), *f64(1.0)) == [8, 9.0, True, 6.0]
    assert evaluate(forward, *f64(3.0), np.int32(4), *f64(1.0)) == [8, 9.0, True, 6.0]


def test_only_the_params_asked_for_are_differentiated() -> None:
    graph = build_region([FLOAT, FLOAT], lambda x, y: [op("exp", x) * y])
    backward = vjp(graph, (False, True))
    assert evaluate(backward, *f64(0.0, 3.0, 1.0)) == [3.0, 1.0]
    assert sum(e.op.name == "exp" for e in backward.eqns) == 1


def test_nothing_asked_for_is_just_the_function() -> None:
    graph = build_region([FLOAT], lambda x: [op("sin", x)])
    assert evaluate(vjp(graph, (False,)), *f64(0.5, 1.0)) == [np.sin(0.5)]


def test_an_integer_cannot_be_asked_for() -> None:
    graph = build_region([INT], lambda n: [n])
    with pytest.raises(TypeMismatch, match="an integer or boolean has no derivative"):
        unexpanded("vjp", graph, (True,))
    with pytest.raises(TypeMismatch, match="`wrt` has 2 entries for 1 params"):
        build_region([INT], lambda n: OPS["vjp"](n, regions=(graph,), wrt=(False, False)))


def test_a_param_given_back_twice() -> None:
    assert evaluate(vjp(build_region([FLOAT], lambda x: [x, x])), *f64(1.0, 2.0, 3.0)) == [1.0, 1.0, 5.0]


def test_empty_arrays() -> None:
    graph = build_region([Tensor(F64, (0, 3))], lambda x: [total(op("sin", x)), x * x])
    y, _, ct = evaluate(vjp(graph), np.zeros((0, 3)), *f64(1.0), np.zeros((0, 3)))
    assert y == 0.0
    assert ct.shape == (0, 3)


def test_derivatives_inside_regions_expand_too() -> None:
    square = build_region([FLOAT], lambda x: [x * x * x])

    def gradient(x: Value) -> Value:
        return OPS["vjp"](x, literal(x, 1.0), regions=(square,), wrt=(True,))[1]

    graph = differentiate(build_region([FLOAT], lambda x: scan(2, lambda i, x: [gradient(x)], [], [x])))
    assert evaluate(graph, *f64(0.5)) == [3 * (3 * 0.25) ** 2]


# ------------------------------------------------------------------------------------------------ nested derivatives


def derivative(f: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """d/dx as a `jvp` equation where it is called; `f` may use values of its surroundings only as constants."""

    def df(x: Value) -> Value:
        return OPS["jvp"](x, literal(x, 1.0), regions=(build_region([x.type], lambda x: [f(x)]),), wrt=(True,))[1]

    return df


def test_perturbation_confusion() -> None:
    """d/dx (x d/dy (x + y)) at 1 is 1, not 2."""
    inner = build_region([FLOAT, FLOAT], lambda x, y: [x + y])

    def f(x: Value) -> Value:
        return x * OPS["jvp"](x, literal(x, 2.0), literal(x, 1.0), regions=(inner,), wrt=(False, True))[1]

    assert evaluate(differentiate(build_region([FLOAT], lambda x: [derivative(f)(x)])), *f64(1.0)) == [1.0]


def test_perturbation_confusion_with_products() -> None:
    """d/dx (x d/dy (x y)) at 3 is 2 x, with the inner derivative in either mode."""
    inner = build_region([FLOAT, FLOAT], lambda x, y: [x * y])
    for name in ("jvp", "vjp"):

        def f(x: Value, name: str = name) -> Value:
            return x * OPS[name](x, literal(x, 2.0), literal(x, 1.0), regions=(inner,), wrt=(False, True))[1]

        for outer in (jvp, vjp):
            assert evaluate(outer(build_region([FLOAT], lambda x, f=f: [f(x)])), *f64(3.0, 1.0))[1] == 6.0


def test_derivatives_of_a_power_to_sixth_order() -> None:
    """Forward mode in itself, all equations nested, down to the constant and then 0."""
    f: Callable[[Value], Value] = lambda x: x * x * x * x * x
    want = [32.0, 80.0, 160.0, 240.0, 240.0, 120.0, 0.0]
    for expected in want:
        graph = differentiate(build_region([FLOAT], lambda x, f=f: [f(x)]))
        assert evaluate(graph, *f64(2.0)) == [expected]
        f = derivative(f)


def test_reverse_in_reverse_in_reverse() -> None:
    graph = build_region([FLOAT], lambda x: [op("exp", x)])
    third = nested("VVV", graph)
    for ct in evaluate(third, *f64(0.0), *f64(*[1.0] * (len(third.params) - 1))):
        assert ct in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
    np.testing.assert_array_equal(
        evaluate(composed("VVV", graph), *f64(0.1), *f64(*range(1, len(third.params)))),
        evaluate(third, *f64(0.1), *f64(*range(1, len(third.params)))),
    )


# ------------------------------------------------------------------------------------- branches that are not taken


@pytest.mark.parametrize("order", ["J", "V", "JV", "VV", "JJ"])
@pytest.mark.parametrize("x", [0.0, -1.0])
def test_a_branch_not_taken_does_not_poison(order: str, x: float) -> None:
    """sqrt and log at and below 0 have infinite or no derivatives; nobody is told."""

    def some(x: Value) -> list[Value]:
        return [op("sqrt", x) * op("log", x) / x]

    def none(x: Value) -> list[Value]:
        return [x * 2.0]

    graph = build_region([FLOAT], lambda x: choose(op("gt", x, literal(x, 0.0)), some, none, x))
    derived = composed(order, graph)
    values = evaluate(derived, *f64(x), *f64(*[1.0] * (len(derived.params) - 1)))
    assert np.all(np.isfinite(values))


def test_a_structural_zero_is_zero_beside_infinity() -> None:
    """d/dy of sqrt(x) + y at x = 0: the infinite derivative in x says nothing about y."""
    graph = build_region([FLOAT, FLOAT], lambda x, y: [op("sqrt", x) + y])
    assert evaluate(jvp(graph, (False, True)), *f64(0.0, 1.0, 1.0)) == [1.0, 1.0]
    assert evaluate(vjp(graph), *f64(0.0, 1.0, 1.0)) == [1.0, INF, 1.0]


def test_a_numeric_zero_times_infinity_is_nan() -> None:
    (y, dy) = evaluate(jvp(build_region([FLOAT], lambda x: [op("sqrt", x)])), *f64(0.0, 0.0))
    assert y == 0.0
    assert np.isnan(dy)


# ------------------------------------------------------------------------------------------------------ loops


def test_forward_mode_of_a_while_saves_nothing() -> None:
    """One loop carries values and tangents, to any order: no history occurs."""
    step: Callable[..., list[Value]] = lambda i, a, x: [0.5 * (x + a / x)]
    go: Callable[..., Value] = lambda i, a, x: op("gt", x * x - a, literal(a, 1e-9))
    graph = build_region([FLOAT, FLOAT], lambda a, x: [repeat(FOREVER, step, [a], [x], go=go)[1]])
    for order in ("J", "JJ", "JJJ"):
        derived = composed(order, graph)
        assert [e.op.name for e in derived.eqns if e.regions] == ["loop"]
        assert not any(isinstance(t, History) for t in every_type(derived))
    assert any(isinstance(t, History) for t in every_type(vjp(graph)))


def test_forward_mode_of_a_counted_loop_saves_nothing() -> None:
    graph = build_region([VECTOR], lambda v: scan(50, lambda i, v: [op("sin", v) * v], [], [v]))
    assert not any(isinstance(t, Tensor) and 50 in t.shape for t in every_type(composed("JJ", graph)))


def test_a_loop_of_known_length_needs_no_history() -> None:
    def body(xs: Value, s: Value) -> list[Value]:
        go: Callable[..., Value] = lambda i, s: op("lt", s, literal(s, 2.0))
        return repeat(3, lambda i, s, x: [s + op("sin", x * s)], [], [s], [xs], go=go, length=3)[1:]

    for order in ("V", "VV", "JV", "VVV"):
        derived = composed(order, build_region([VECTOR, FLOAT], body))
        assert not any(isinstance(t, History) for t in every_type(derived))


def test_cotangents_beyond_the_last_step_are_ignored() -> None:
    """What a loop gives beyond its count is a constant 0, whatever a reader does with it."""

    def body(s: Value) -> list[Value]:
        go: Callable[..., Value] = lambda i, s: op("lt", s, literal(s, 3.0))
        return [repeat(5, lambda i, s: [s * 2.0, s * s], [], [s], go=go, length=5)[2]]

    ys, ct = evaluate(vjp(build_region([FLOAT], body)), *f64(1.0), np.ones(5))
    np.testing.assert_array_equal(ys, [1.0, 4.0, 0.0, 0.0, 0.0])
    assert ct == 2.0 + 8.0


def test_a_map_over_no_lanes() -> None:
    graph = build_region(
        [FLOAT, Tensor(F64, (0,))], lambda w, xs: mapped(0, lambda w, x: [w * op("sin", x)], [w], [xs])
    )
    ys, ct_w, ct_xs = evaluate(vjp(graph), *f64(2.0), np.zeros(0), np.zeros(0))
    assert ct_w == 0.0
    assert ys.shape == ct_xs.shape == (0,)


def test_histories_shared_by_lanes_are_summed_lane_by_lane() -> None:
    """The residuals of a while inside a map, under a second reverse: histories of lanes, and lanes of histories."""

    def body(w: Value, a: Value) -> list[Value]:
        go: Callable[..., Value] = lambda i, w, y: op("gt", y, literal(y, 0.4))
        return [repeat(FOREVER, lambda i, w, y: [op("sin", w * y)], [w], [a], go=go)[1]]

    graph = build_region([FLOAT, VECTOR], lambda w, xs: [total(mapped(3, body, [w], [xs])[0])])
    xs = [*f64(0.9), np.array([0.3, 1.0, 2.0])]
    hessian, again = composed("JV", graph), composed("VV", graph)
    v = [*f64(0.0), *f64(0.7), np.array([0.1, -0.2, 0.3])]
    forward = evaluate(hessian, *xs, *f64(1.0), v[1], v[2], v[0])
    backward = evaluate(again, *xs, *f64(1.0), *f64(0.0), v[1], v[2])
    np.testing.assert_allclose(forward[4], backward[3], rtol=1e-12)
    np.testing.assert_allclose(forward[5], backward[4], rtol=1e-12)


# ------------------------------------------------------------------------------------------------------- cost


def test_a_function_called_often_is_differentiated_once() -> None:
    f = build_region([FLOAT, FLOAT], lambda x, y: [op("sin", x * y) + op("exp", x), y * y])

    def chain(calls: int) -> Graph:
        def body(x: Value, y: Value) -> list[Value]:
            for _ in range(calls):
                x, y = called(f, x, y)
            return [x]

        return build_region([FLOAT, FLOAT], body)

    for order in ("V", "J", "JV", "VV"):
        few, many = (size(composed(order, chain(n))) for n in (20, 40))
        per_call = (many - few) / 20
        assert per_call <= 2 ** len(order) * 6, order  # calls, sums and zeros; not the equations of f
        regions = {id(r) for e in composed(order, chain(40)).eqns for r in e.regions}
        assert len(regions) <= 4 ** len(order)


def test_derivatives_of_nested_loops_grow_linearly_with_depth() -> None:
    """Each loop is linearized once for each activity, however deep it lies."""

    def nest(depth: int) -> Graph:
        def step(i: Value, w: Value, s: Value, level: int) -> list[Value]:
            inner = op("sin", w * s)
            return scan(2, lambda i, w, s: step(i, w, s, level - 1), [w], [inner]) if level else [inner]

        return build_region([FLOAT, FLOAT], lambda w, s: scan(2, lambda i, w, s: step(i, w, s, depth), [w], [s]))

    sizes = [size(vjp(nest(depth))) for depth in (4, 8, 16)]
    assert sizes[2] - sizes[1] <= 2.2 * (sizes[1] - sizes[0])


def straight(n: int) -> Graph:
    def body(x: Value, y: Value) -> list[Value]:
        for _ in range(n // 4):
            x = op("sin", x * y) + op("tanh", x)
        return [x]

    return build_region([FLOAT, FLOAT], body)


@pytest.mark.nightly
def test_a_straight_line_of_any_length_takes_linear_time() -> None:
    """No recursion, and four times the equations are four times the work."""
    graphs = [straight(n) for n in (5_000, 10_000, 20_000)]
    derived: list[Graph] = []
    works = [work(lambda graph=graph: derived.append(vjp(graph))) for graph in graphs]
    for graph, found in zip(graphs, derived, strict=True):
        assert size(found) <= 3.2 * len(graph.eqns)
    assert works[2] < 4.2 * works[0], works


@pytest.mark.nightly
def test_a_sum_of_a_hundred_thousand_terms() -> None:
    def body(x: Value) -> list[Value]:
        y = x
        for _ in range(100_000):
            y = y + x
        return [y]

    assert evaluate(vjp(build_region([FLOAT], body)), *f64(1.0, 1.0)) == [100_001.0, 100_001.0]


def test_the_index_and_arrays_under_a_second_derivative() -> None:
    """A Hessian of a loop that reads rows and its index is symmetric."""

    def step(i: Value, s: Value, x: Value) -> list[Value]:
        return [op("sin", s * total(x) + op("convert", i, dtype=F64)) + total(x * x * x)]

    def body(x: Value) -> list[Value]:
        return [scan(2, step, [], [literal(total(x), 0.5)], [op("reshape", x, shape=(2, 2))])[0]]

    graph = build_region([Tensor(F64, (4,))], body)
    hvp = composed("JV", graph)
    x = np.array([0.3, -0.2, 0.7, 0.1])
    rows = [evaluate(hvp, x, *f64(1.0), e, *f64(0.0))[3] for e in np.eye(4)]
    np.testing.assert_allclose(rows, np.transpose(rows), rtol=1e-13)
    assert np.all(np.asarray(rows) != 0)


def test_wide_is_the_transpose_of_total() -> None:
    y, ct = evaluate(vjp(build_region([FLOAT], lambda x: [total(wide(x, 3))])), *f64(2.0, 1.0))
    assert (y, ct) == (6.0, 3.0)
