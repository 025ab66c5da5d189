"""Several updates to one place: the loop that says what they mean, where no derivative exists, and zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from difflang.gradcheck.op_calls import OpCall
from difflang.gradcheck.op_derivatives import check_jvp, jvp_graph, vjp_graph
from difflang.ir.builder import build_region
from difflang.ir.graph import Eqn
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, I32, Tensor
from support.op_calls import compiled

NAN, INF = float("nan"), float("inf")
INDICES = np.array([0, 2, 2, 1, 0, 2], np.int32)

# what is there, what is written, what stays, and where the cotangents go: to what was there, and to what was written
EXTREMES: list[tuple[str, list[float], list[float], list[float], list[float], list[float]]] = [
    ("scatter_max", [0, 0, 0], [1, 5, 5, -1, 1, 5], [1, 0, 5], [0, 1, 0], [1, 1, 0, 0, 0, 0]),
    ("scatter_max", [1, 1, 5], [1, 5, 5, 1, 0, 4], [1, 1, 5], [1, 1, 1], [0] * 6),
    ("scatter_max", [0, NAN, 0], [NAN, 3, NAN, 9, 2, 4], [2, NAN, 4], [0, 1, 0], [0, 0, 0, 0, 1, 1]),
    ("scatter_max", [-INF] * 3, [-INF, 1, 2, NAN, -INF, 2], [-INF, -INF, 2], [1, 1, 0], [0, 0, 1, 0, 0, 0]),
    ("scatter_min", [0, 0, 0], [1, 5, -5, -1, -1, -5], [-1, -1, -5], [0, 0, 0], [0, 0, 1, 1, 1, 0]),
    ("scatter_min", [0, NAN, 3], [NAN, 3, NAN, -9, 2, 2], [0, NAN, 2], [1, 1, 0], [0, 0, 0, 0, 0, 1]),
]


def cotangents(name: str, x: Any, updates: Any, ct: Any, indices: Any = INDICES) -> list[list[Any]]:
    """Pulled back on both engines."""
    call = OpCall(OPS[name], (x, updates, indices), {"axes": (0,)})
    back = vjp_graph(call.graph(), call.wrt)
    found = evaluate(back, x, updates, indices, ct)
    return [np.asarray(y).tolist() for y in found]


@pytest.mark.parametrize(("name", "x", "u", "y", "to_x", "to_u"), EXTREMES, ids=str)
def test_an_assignment_that_happens_when_it_is_better(
    name: str, x: list[float], u: list[float], y: list[float], to_x: list[float], to_u: list[float]
) -> None:
    xs, us = np.array(x, float), np.array(u, float)
    call = OpCall(OPS[name], (xs, us, INDICES), {"axes": (0,)})
    np.testing.assert_array_equal(call.reference(), y)
    np.testing.assert_array_equal(compiled(OPS[name], xs, us, INDICES, axes=(0,)), y)
    weights = np.array([2.0, 3.0, 5.0])
    found = cotangents(name, xs, us, weights)
    assert found == [(weights * to_x).tolist(), (weights[INDICES] * to_u).tolist()]


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64"])
@pytest.mark.parametrize("name", ["scatter_max", "scatter_min", "scatter_mul"])
def test_of_integers(name: str, dtype: str) -> None:
    x, u = np.array([1, 2, 3], dtype), np.array([3, 1, 7, 0, 100, 5], dtype)
    want = OpCall(OPS[name], (x, u, INDICES), {"axes": (0,)}).reference()
    found = compiled(OPS[name], x, u, INDICES, axes=(0,))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, want)


PRODUCTS = [[2.0, 3, 5, 7, 11, 13], [2.0, 0, 5, 7, 11, 13], [2.0, 0, 5, 0, 11, 0], [0.0] * 6, [0.0, 3, 0, 0, 0, -0.0]]


@pytest.mark.parametrize("u", PRODUCTS, ids=str)
@pytest.mark.parametrize("start", [1.0, 0.0, 3.0])
def test_products_are_exact_where_there_are_zeros(u: list[float], start: float) -> None:
    """First and second derivatives are products of the others, to the bit."""
    x, us, ones = np.full(4, start), np.array(u), np.ones(4)
    to_x, to_u = cotangents("scatter_mul", x, us, ones)
    others = [[j for j in range(6) if INDICES[j] == INDICES[i] and j != i] for i in range(6)]
    assert to_u == [start * np.prod(us[js]) for js in others]
    assert to_x == [*[np.prod(us[k == INDICES]) for k in range(3)], 1.0]
    call = OpCall(OPS["scatter_mul"], (x, us, INDICES), {"axes": (0,)})
    back = vjp_graph(call.graph(), call.wrt)
    hessian = np.zeros((6, 6))
    for j in range(6):
        (_, row) = evaluate(jvp_graph(back, (False, True, False, False)), x, us, INDICES, ones, np.eye(6)[j])
        hessian[:, j] = row
    want = np.zeros((6, 6))
    for i, js in enumerate(others):
        for j in js:
            want[i, j] = start * np.prod(us[[m for m in js if m != j]])
    np.testing.assert_array_equal(hessian, want)


def test_a_place_next_to_one_that_overflows() -> None:
    """An Inf or NaN in one bin stays there: in the derivative too."""
    u = np.array([2.0, INF, NAN, 1.0, 4.0, 0.0])
    _, to_u = cotangents("scatter_mul", np.ones(3), u, np.ones(3))
    assert (to_u[0], to_u[3], to_u[4]) == (4.0, 1.0, 2.0)


@pytest.mark.parametrize("name", ["scatter_max", "scatter_min", "scatter_mul"])
def test_out_of_range_nothing_is_written(name: str) -> None:
    x, u, at = np.array([1.0, 2.0]), np.array([9.0, -9.0, 0.5]), np.array([2, -1, 1], np.int32)
    call = OpCall(OPS[name], (x, u, at), {"axes": (0,)})
    np.testing.assert_array_equal(compiled(OPS[name], x, u, at, axes=(0,)), call.reference())
    to_x, to_u = cotangents(name, x, u, np.ones(2), at)
    assert to_u[:2] == [0.0, 0.0]
    assert to_x[0] == 1.0


@pytest.mark.parametrize("name", ["scatter_max", "scatter_min", "scatter_mul"])
def test_random_updates(name: str) -> None:
    """Many to few places along one of two axes, against the reference and differences."""
    rng = np.random.default_rng(11)
    spaced = rng.permutation(172) / 40 - 2  # no two so near that a difference would step over a tie
    x, u = spaced[:12].reshape(4, 3), spaced[12:].reshape(40, 4)
    at = rng.integers(0, 3, 40).astype(np.int32)
    call = OpCall(OPS[name], (x, u, at), {"axes": (1,)})
    np.testing.assert_allclose(compiled(OPS[name], x, u, at, axes=(1,)), call.reference(), rtol=1e-13)
    check_jvp(call.graph(), call.arrays, call.wrt, rng, call)


def test_a_wrong_winner_is_noticed() -> None:
    """The last of equals instead of the first."""
    first = OPS["first_claims"]
    wrong = replace(
        first, reference=lambda claims, *at, **attrs: first.reference(claims[::-1], at[0][::-1], **attrs)[::-1]
    )
    types = [Tensor(F64, (3,)), Tensor(F64, (6,)), Tensor(I32, (6,))]
    x, u = np.zeros(3), np.array([1.0, 5.0, 5.0, -1.0, 1.0, 5.0])
    back = vjp_graph(build_region(types, lambda *xs: OPS["scatter_max"](*xs, axes=(0,))), (True, True, False))
    broken = back.with_eqns([Eqn(wrong, e.operands, e.results, e.attrs) if e.op is first else e for e in back.eqns])
    right, off = (evaluate(g, x, u, INDICES, np.ones(3))[1].tolist() for g in (back, broken))
    assert right != off
