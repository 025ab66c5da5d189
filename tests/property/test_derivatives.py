"""Every composition of jvp and vjp to third order, over loops, branches, maps and calls, on the interpreter.

The oracles: JAX's AD of the same program in plain Python, differences of the level below, and the dot-product test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from derivative_programs import Program, programs
from derivatives import DERIVATIVE, composed, nested
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate
from difflang.ir.verify import verify

PROGRAMS = list(programs())
FIRST = ["J", "V"]
SECOND = ["JV", "VJ", "VV", "JJ"]
THIRD = ["VVV", "JVV", "VJV", "VVJ"]
AT_AN_EDGE = [p for p in PROGRAMS if p.name in ("newton-0", "newton-1")]  # a difference changes the number of steps
LONG = [p for p in PROGRAMS if p.name.endswith("-50")]
Python = Callable[..., Any]
Arrays = Sequence[Any]


def pulled(f: Python, n: int) -> Python:
    def g(*args: Any) -> Any:
        y, pull = jax.vjp(f, *args[:n])
        return (*y, *pull(tuple(args[n:])))

    return g


def pushed(f: Python, n: int) -> Python:
    def g(*args: Any) -> Any:
        y, dy = jax.jvp(f, args[:n], args[n:])
        return (*y, *dy)

    return g


ORACLE = {"V": pulled, "J": pushed}


def assert_equal(got: Arrays, want: Arrays, bound: float) -> None:
    """Element by element, relative to itself; what has cancelled is compared with the largest value that occurs."""
    want = [np.asarray(w) for w in want]
    assert len(got) == len(want)
    scale = max((float(np.max(np.abs(w), initial=0.0)) for w in want), default=0.0)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        floor = max(1e-3 * float(np.max(np.abs(b), initial=0.0)), 1e-9 * scale)
        np.testing.assert_array_less(np.abs(a - b), bound * np.maximum(np.abs(b), floor) + 1e-300)


@pytest.fixture(autouse=True, scope="module")
def x64() -> Any:
    with jax.enable_x64(True):
        yield


def arguments(program: Program) -> list[Any]:
    return [np.asarray(x, float) for x in program.arguments]


def directions(graph: Graph, n: int) -> list[Any]:
    rng = np.random.default_rng(n)
    return [rng.normal(size=p.type.shape) for p in graph.params[n:]]


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_graph_and_python_are_the_same_function(program: Program) -> None:
    xs = arguments(program)
    assert_equal(evaluate(program.graph, *xs), program.python(np)(*xs), 1e-13)


def against_jax(program: Program, order: str) -> None:
    graph, python, xs = program.graph, program.python(jnp), arguments(program)
    for letter in reversed(order):
        n = len(xs)
        graph, python = DERIVATIVE[letter](graph), ORACLE[letter](python, n)
        xs = [*xs, *directions(graph, n)]
    assert_equal(evaluate(graph, *xs), python(*map(jnp.asarray, xs)), 1e-8)


@pytest.mark.parametrize("order", FIRST + SECOND)
@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in LONG], ids=str)
def test_derivatives_agree_with_jax(program: Program, order: str) -> None:
    against_jax(program, order)


@pytest.mark.slow
@pytest.mark.parametrize("order", FIRST + SECOND + THIRD)
@pytest.mark.parametrize("program", LONG, ids=str)
@pytest.mark.nightly_except(".*-50-(J|V|JV|VJ|JJ)")
def test_derivatives_of_long_loops_agree_with_jax(program: Program, order: str) -> None:
    against_jax(program, order)


@pytest.mark.slow
@pytest.mark.parametrize("order", THIRD)
@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in LONG], ids=str)
@pytest.mark.nightly_except("(calls|lanes|early|rotation-bounded|newton)-[147]-.*")
def test_third_derivatives_agree_with_jax(program: Program, order: str) -> None:
    against_jax(program, order)


@pytest.mark.parametrize("order", ["J", "V", "JV", "VJ"])
@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in AT_AN_EDGE], ids=str)
def test_derivatives_agree_with_differences(program: Program, order: str) -> None:
    """A difference of the level below, in one direction."""
    lower, xs = composed(order[1:], program.graph), arguments(program)
    xs = [*xs, *directions(lower, len(xs))]
    top = DERIVATIVE[order[0]](lower)
    rng = np.random.default_rng(7)
    ways = [rng.normal(size=np.shape(x)) * max(1.0, float(np.max(np.abs(x), initial=0.0))) for x in xs]
    slopes = difference(lambda h: evaluate(lower, *[x + h * v for x, v in zip(xs, ways, strict=True)]))
    if order[0] == "J":
        got = evaluate(top, *xs, *ways)[len(slopes) :]
        assert_equal(got, slopes, 1e-5)
        return
    cts = directions(top, len(xs))
    back = evaluate(top, *xs, *cts)[len(slopes) :]
    left = sum(float(np.sum(c * s)) for c, s in zip(cts, slopes, strict=True))
    right = [np.sum(b * v) for b, v in zip(back, ways, strict=True)]
    assert abs(left - sum(right)) <= 1e-6 * (sum(map(abs, right)) + 1e-9)


def difference(f: Callable[[float], Arrays], h: float = 2e-6) -> list[Any]:
    """The slope at 0, by central differences of fourth order."""
    far, near, ahead, beyond = f(-2 * h), f(-h), f(h), f(2 * h)
    return [(a - d + 8 * (c - b)) / (12 * h) for a, b, c, d in zip(far, near, ahead, beyond, strict=True)]


@pytest.mark.parametrize("order", ["", "V", "J"])
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_reverse_mode_is_the_adjoint_of_forward_mode(program: Program, order: str) -> None:
    """<ct, J dx> = <Jᵀ ct, dx>, and both give the value of the function itself."""
    graph = composed(order, program.graph)
    xs = arguments(program)
    xs = [*xs, *directions(graph, len(xs))]
    forward, backward = composed("J", graph), composed("V", graph)
    dxs, cts = directions(forward, len(xs)), directions(backward, len(xs))
    ys = evaluate(graph, *xs)
    outs, back = evaluate(forward, *xs, *dxs), evaluate(backward, *xs, *cts)
    assert_equal(outs[: len(ys)], ys, 1e-12)
    assert_equal(back[: len(ys)], ys, 1e-12)
    left = [c * d for c, d in zip(cts, outs[len(ys) :], strict=True)]
    right = [c * d for c, d in zip(back[len(ys) :], dxs, strict=True)]
    size = sum(float(np.sum(np.abs(t))) for t in (*left, *right))
    assert abs(sum(map(np.sum, left)) - sum(map(np.sum, right))) <= 1e-11 * size + 1e-300


@pytest.mark.parametrize("order", ["JV", "VV", "VVJ"])
@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.name.endswith(("-1", "-7"))], ids=str)
def test_nested_derivative_equations_expand_to_the_same(program: Program, order: str) -> None:
    """Expanding all levels at once is expanding one after the other."""
    together, one_by_one = verify(nested(order, program.graph)), verify(composed(order, program.graph))
    xs = arguments(program)
    xs = [*xs, *directions(together, len(xs))]
    for a, b in zip(evaluate(together, *xs), evaluate(one_by_one, *xs), strict=True):
        np.testing.assert_array_equal(a, b)
