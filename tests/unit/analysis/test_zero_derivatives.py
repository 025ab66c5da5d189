"""What reaches a graph's results with a tangent, and the first steps that lose one, against what is differentiated."""

from __future__ import annotations

import pytest

from derivatives import FLOAT, INT, TRUTH, called, choose, jvp, literal, mapped, op, repeat
from difflang.ad.derivative_cache import DerivativeCache
from difflang.analysis.zero_derivatives import find_dropped_derivatives, reaching_params
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, Tensor
from support.graphs import random_graph

ROW = Tensor(F64, (3,))
BOTH = build_region([FLOAT, FLOAT], lambda x, y: [x * y, op("floor", x) + y])


def rotated(index: Value, s: Value, t: Value, u: Value) -> list[Value]:
    return [op("floor", u), s, t]


GRAPHS = {
    "a product": (build_region([FLOAT, FLOAT], lambda x, y: [x * y, op("floor", x), x * op("sign", y)]), (3, 0, 1)),
    "a call": (build_region([FLOAT, FLOAT], lambda x, y: called(BOTH, y, x)), (3, 1)),
    "a branch": (
        build_region([TRUTH, FLOAT], lambda p, x: choose(p, lambda x: [x, x], lambda x: [op("floor", x), op("round", x)], x)),  # noqa: E501
        (2, 2),
    ),
    "a map": (build_region([ROW, FLOAT], lambda x, y: mapped(3, lambda y, x: [x * op("floor", y)], [y], [x])), (1,)),
    "what a loop carries": (build_region([FLOAT] * 3, lambda s, t, u: repeat(2, rotated, [], [s, t, u])[1:]), (1, 3, 7)),  # noqa: E501
    "how often": (build_region([INT, FLOAT], lambda n, x: repeat(n, lambda _, x: [x * x], [], [x])[1:]), (2,)),
    "a derivative": (build_region([FLOAT] * 4, lambda *xs: OPS["jvp"](*xs, regions=(BOTH,), wrt=(True, True))), (15,) * 4),  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_what_reaches_a_result(name: str) -> None:
    graph, masks = GRAPHS[name]
    assert reaching_params(graph) == masks


def active(graph: Graph) -> tuple[int, ...]:
    """For each result, the params in which linearization finds a tangent."""
    found = [0] * len(graph.results)
    for i, param in enumerate(graph.params):
        if param.type.tangent is not None:
            mask = tuple([j == i for j in range(len(graph.params))])
            for place, is_active in enumerate(DerivativeCache().linearize(graph, mask).active):
                found[place] |= is_active << i
    return tuple(found)


@pytest.mark.parametrize("seed", range(60))
def test_it_is_what_linearization_finds(seed: int) -> None:
    graph = random_graph(seed)
    assert reaching_params(graph) == active(graph)


def steps(graph: Graph, points: int) -> list[list[tuple[str, int]]]:
    """The ops of the first steps that lose a derivative, and in which params."""
    return [
        [(step.path[-1].op.name, of) for step, of in found.items()] for found in find_dropped_derivatives(graph, points)
    ]


def test_the_first_steps_that_lose_it_are_told_of_each_param() -> None:
    graph = build_region([FLOAT, FLOAT], lambda x, y: [op("round", op("floor", x) * op("sign", x * y)), x * y])
    assert steps(graph, 3) == [[("floor", 1), ("sign", 3)], []]
    assert steps(graph, 2) == [[("sign", 2)], []]


def test_steps_inside_are_told_with_what_is_around_them() -> None:
    graph = build_region([FLOAT, FLOAT], lambda x, y: called(BOTH, x * y, literal(x, 2.0)))
    first, second = find_dropped_derivatives(graph, 1)
    assert not first
    ((step, _),) = second.items()
    assert [eqn.op.name for eqn in step.path] == ["mul", "call", "floor"]


def test_a_condition_is_a_step_of_all_that_it_decides() -> None:
    graph = build_region(
        [FLOAT, FLOAT],
        lambda x, y: choose(op("gt", x, literal(x, 0.0)), lambda y: [y * y, y], lambda y: [y, y], y),
    )
    assert steps(graph, 3) == [[("gt", 1)], [("gt", 1)]]
    graph = build_region(
        [FLOAT, FLOAT],
        lambda x, s: repeat(9, lambda _, x, s: [s + s], [x], [s], go=lambda _, x, s: op("lt", op("floor", x), s))[1:],
    )
    assert steps(graph, 1) == [[("floor", 1)]]


def test_without_zeros_only_what_has_no_tangent_is_a_loss() -> None:
    graph = build_region([FLOAT], lambda x: [op("truncate", op("floor", x), dtype=INT.dtype)])
    (found,) = find_dropped_derivatives(graph, 1, include_zero=False)
    ((step, _),) = found.items()
    assert [eqn.op.name for eqn in step.path] == ["floor", "truncate"]


def test_a_long_chain_of_calls_is_looked_at_once() -> None:
    graph = BOTH
    for _ in range(150):  # each calls the one before twice
        inner = graph
        graph = build_region([FLOAT, FLOAT], lambda x, y, inner=inner: called(inner, *called(inner, y, x)))
    assert reaching_params(graph) == (3, 3)
    assert any(find_dropped_derivatives(graph, 3))


def test_many_lost_ways_are_counted_up_to_a_limit() -> None:
    def many(x: Value) -> list[Value]:
        total = op("floor", x)
        for _ in range(500):
            total = total + op("floor", x)
        return [total]

    (found,) = find_dropped_derivatives(build_region([FLOAT], many), 1)
    assert len(found) == 16


def test_each_param_keeps_a_lost_way() -> None:
    def many(*xs: Value) -> list[Value]:
        total = op("floor", xs[0])
        for x in xs[1:]:
            total = total + op("floor", x)
        return [total]

    (found,) = find_dropped_derivatives(build_region([FLOAT] * 40, many), (1 << 40) - 1)
    assert sorted(found.values()) == [1 << i for i in range(40)]


def test_a_derivative_that_is_lost_is_zero() -> None:
    graph = jvp(build_region([FLOAT], lambda x: [op("floor", x)]))
    assert reaching_params(graph)[-1] == 0
