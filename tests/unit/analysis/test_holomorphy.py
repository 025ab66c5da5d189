"""Where the complex derivative of a graph is lost: through every kind of region, and only on the way to the result."""

from __future__ import annotations

import pytest

import difflang.ops  # noqa: F401  fills the registry
from derivatives import called, choose, literal, mapped, op, repeat
from difflang.analysis.holomorphy import find_nonholomorphic_steps
from difflang.base.source import Source, Span
from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, C128, Tensor

Z, ROW, TRUTH = Tensor(C128), Tensor(C128, (3,)), Tensor(BOOL)
BOTH = build_region([Z, Z], lambda z, w: [z * z * w, op("conj", z) * w])
SQUARE = build_region([Z, Z], lambda z, a: [z * z * op("conj", a)])


def conj(z: Value) -> Value:
    return op("conj", z)


def swapped(index: Value, k: Value, s: Value, t: Value, u: Value) -> list[Value]:
    """What is carried moves on by one place a step: the conjugate of the const reaches the last after two."""
    return [conj(k) * s, s * k, t * k]


def derivative(name: str, function: Graph, *operands: Value) -> list[Value]:
    return list(OPS[name](*operands, regions=(function,), wrt=(True, False)))


def quotient(k: Value, b: Value, *, turn: bool) -> list[Value]:
    """The x with `k x = b`, or with `conj(k) x = b`."""
    times, over = build_region([Z, Z], lambda k, x: [k * x]), build_region([Z, Z], lambda k, b: [b / k])
    turned = build_region([Z, Z], lambda k, x: [conj(k) * x]), build_region([Z, Z], lambda k, b: [b / conj(k)])
    regions = (turned[1], over, turned[0]) if turn else (over, turned[1], times)
    return list(OPS["custom_linear_solve"](k, b, regions=regions, consts=1))


GRAPHS = {
    "a product": (build_region([Z, Z], lambda z, w: [z * w, conj(z), z * conj(w)]), (True, False), (0, 1, 0)),
    "what no tangent goes through": (
        build_region([Z], lambda z: [op("stop", conj(z)) * z, op("eq", conj(z), z)]), (True,), (0, 0),
    ),
    "a real number, and back": (build_region([Z], lambda z: [op("convert", op("real", z), dtype=C128)]), (True,), (1,)),
    "a branch": (
        build_region([TRUTH, Z], lambda p, z: choose(p, lambda z: [z, z, z], lambda z: [z * z, conj(z), literal(z, 1j)], z)),  # noqa: E501
        (False, True), (0, 1, 0),
    ),
    "a call": (build_region([Z, Z], lambda z, w: called(BOTH, w, z)), (True, False), (0, 0)),
    "a call, otherwise": (
        build_region([Z], lambda z: [*called(BOTH, z, z), *called(BOTH, literal(z, 1), z)]), (True,), (0, 1, 0, 0),
    ),
    "a map": (build_region([ROW], lambda x: mapped(3, lambda z: [z * z, conj(z)], [], [x])), (True,), (0, 1)),
    "a loop": (build_region([Z], lambda z: repeat(9, swapped, [z], [z, z, z], length=9)[1:]), (True,), (1, 1, 1)),
    "a loop over something else": (
        build_region([Z, Z], lambda z, k: repeat(9, swapped, [k], [z, z, z], length=9)[1:]), (True, False), (0, 0, 0),
    ),
    "a jvp": (build_region([Z, Z, Z], lambda z, a, d: derivative("jvp", SQUARE, z, a, d)), (True, False, True), (0, 0)),
    "a jvp along what is lost": (
        build_region([Z, Z, Z], lambda z, a, d: derivative("jvp", SQUARE, z, a, conj(d))), (False, False, True), (1, 1),
    ),
    "a jet": (
        build_region([Z, Z, Z], lambda z, a, d: list(OPS["jet"](z, a, d, regions=(SQUARE,), wrt=(True, False), order=2))),  # noqa: E501
        (True, False, True), (0, 0, 0),
    ),
    "a solution": (build_region([Z, Z], lambda k, b: quotient(k, b, turn=False)), (True, True), (0,)),
    "a solution of a conjugate": (build_region([Z, Z], lambda k, b: quotient(k, b, turn=True)), (True, True), (1,)),
    "a solution of what is fixed": (build_region([Z, Z], lambda k, b: quotient(k, b, turn=True)), (False, True), (0,)),
    "a pullback": (build_region([Z, Z, Z], lambda z, a, c: derivative("vjp", SQUARE, z, a, c)), (True, False, False), (1, 1)),  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_a_step_that_conjugates_is_found_where_it_matters(name: str) -> None:
    graph, inside, lost = GRAPHS[name]
    assert tuple(at is not None for at in find_nonholomorphic_steps(graph, inside)) == tuple(map(bool, lost))
    assert find_nonholomorphic_steps(graph, [False] * len(inside)) == [None] * len(lost)


def test_the_first_step_is_told() -> None:
    source = Source("test", "abc")
    first, second = Span(source, 0, 1), Span(source, 1, 2)
    builder = Builder()
    z = builder.param(Z)
    builder.span = first
    w = conj(z)
    builder.span = second
    found = find_nonholomorphic_steps(builder.finish([w, conj(w), conj(z)]), [True])
    assert [step and step.path[-1].span for step in found] == [first, first, second]


def test_a_long_chain_of_loops_and_calls_is_looked_at_once() -> None:
    graph = SQUARE
    for _ in range(60):  # each calls the one before twice
        inner = graph
        graph = build_region([Z, Z], lambda z, a, inner=inner: called(inner, *called(inner, z, a), a))
    assert find_nonholomorphic_steps(graph, (True, False)) == [None]
    assert find_nonholomorphic_steps(graph, (False, True)) != [None]
