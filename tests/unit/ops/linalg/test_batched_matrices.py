"""Matrix ops against 50 digits: values, gradients, and Hessians by every composition of the two modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import mpmath as mp
import numpy as np
import pytest

from derivatives import total
from difflang.gradcheck.op_calls import OpCall
from difflang.gradcheck.op_derivatives import jvp_graph, vjp_graph
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, Tensor
from support.op_calls import lowered

Array = np.ndarray[Any, Any]
Exact = Callable[[Any], list[Any]]  # a matrix of many digits -> the op's results

RNG = np.random.default_rng(7)
ROUGH = RNG.normal(size=(3, 3))
GRADED = RNG.uniform(-0.4, 0.4, (3, 3)) + np.diag([1.0, 2.0, 3.0])
TALL = RNG.normal(size=(4, 2))
WIDE = RNG.normal(size=(2, 3))
RIGHT = RNG.normal(size=(3, 2))
TRIANGLE: dict[str, Any] = {"lower": True, "transposed": False, "unit": False}


def symmetric(a: Any) -> Any:
    return (a + a.T) / 2


def lower_part(a: Any) -> Any:
    return mp.matrix([[a[i, j] if j <= i else 0 for j in range(a.cols)] for i in range(a.rows)])


def eliminated(a: Any) -> tuple[Any, Any]:
    """L and U by elimination in the order of the rows."""
    low, up = mp.eye(a.rows), a.copy()
    for j in range(a.rows):
        for i in range(j + 1, a.rows):
            low[i, j] = up[i, j] / up[j, j]
            for k in range(j, a.rows):
                up[i, k] -= low[i, j] * up[j, k]
    return low, up


def lu(a: Any) -> list[Any]:
    """In the order of rows that the op chose."""
    p = np.asarray(OPS["lu"].reference(floats(a))[0])
    low, up = eliminated(mp.matrix(p.T.tolist()) * a)
    return [mp.matrix(p.tolist()), low, up]


def qr(a: Any) -> list[Any]:
    """By Gram and Schmidt, with the signs that the op chose."""
    signs = np.sign(np.diagonal(OPS["qr"].reference(floats(a))[1]))
    q = a.copy()
    for j in range(a.cols):
        for k in range(j):
            q[:, j] -= (q[:, k].T * a[:, j])[0] * q[:, k]
        q[:, j] *= int(signs[j]) / mp.norm(q[:, j])
    return [q, q.T * a]


def eigh(a: Any) -> list[Any]:
    values, vectors = mp.eigsy(symmetric(a))
    return [values, aligned(vectors, OPS["eigh"].reference(floats(a))[1])]


def svd(a: Any) -> list[Any]:
    u, s, _ = mp.svd_r(a)
    fixed = aligned(u, OPS["svd"].reference(floats(a))[0])
    return [fixed, s, mp.diag([1 / x for x in s]) * fixed.T * a]


def aligned(vectors: Any, like: Array) -> Any:
    """Columns with the signs of those of another matrix."""
    agree = np.sign(np.sum(floats(vectors) * like, axis=0))
    return vectors * mp.diag([int(sign) for sign in agree])


def floats(a: Any) -> Array:
    return np.array(a.tolist(), float)


def numbers(x: Any) -> list[Any]:
    return list(x) if isinstance(x, mp.matrix) else [x]


# Name, the matrix, other operands, attributes, the function of the matrix in many digits.
CASES: list[tuple[str, Array, tuple[Array, ...], dict[str, Any], Exact]] = [
    ("solve", ROUGH, (RIGHT,), {"transposed": False}, lambda a: [mp.inverse(a) * mp.matrix(RIGHT.tolist())]),
    ("solve", ROUGH, (RIGHT,), {"transposed": True}, lambda a: [mp.inverse(a.T) * mp.matrix(RIGHT.tolist())]),
    ("solve_triangular", GRADED, (RIGHT,), TRIANGLE, lambda a: [mp.inverse(lower_part(a)) * mp.matrix(RIGHT.tolist())]),
    ("det", ROUGH, (), {}, lambda a: [mp.det(a)]),
    ("cofactors", ROUGH, (), {}, lambda a: [mp.det(a) * mp.inverse(a).T]),
    ("slogdet", ROUGH, (), {}, lambda a: [mp.sign(mp.det(a)), mp.log(abs(mp.det(a)))]),
    ("cholesky", GRADED, (), {}, lambda a: [mp.cholesky(symmetric(a))]),
    ("lu", ROUGH, (), {}, lu),
    ("qr", ROUGH, (), {}, qr),
    ("qr", TALL, (), {}, qr),
    ("eigh", ROUGH, (), {}, eigh),
    ("svd", GRADED, (), {}, svd),
    ("svd", TALL, (), {}, svd),
    ("svd", WIDE, (), {}, svd),
    ("expm", 8 * ROUGH, (), {}, lambda a: [mp.expm(a, method="taylor")]),
]  # fmt: skip


def weighted(call: OpCall, weights: list[Array]) -> Graph:
    """(operands, weights) -> the sum of all results, each number by its weight."""
    count = len(call.arrays)

    def body(*values: Value) -> list[Value]:
        ys = call.op(*values[:count], **call.attrs)
        terms = [total(y * w) for y, w in zip(ys, values[count:], strict=True)]
        return [sum(terms[1:], terms[0])]

    return build_region([Tensor(F64, x.shape) for x in (*call.arrays, *weights)], body)


def differences(f: Callable[[Any], Any], a: Array, step: Any, along: Array | None = None) -> Array:
    """The gradient of a function of a matrix of many digits; with `along`, how that changes in this direction."""
    at = mp.matrix(a.tolist())
    direction = None if along is None else mp.matrix(along.tolist())
    found = np.zeros(a.shape)
    for i, j in np.ndindex(*a.shape):
        unit = mp.zeros(*a.shape)
        unit[i, j] = step
        if direction is None:
            found[i, j] = (f(at + unit) - f(at - unit)) / (2 * step)
        else:
            ahead, behind = at + step * direction, at - step * direction
            found[i, j] = (f(ahead + unit) - f(ahead - unit) - f(behind + unit) + f(behind - unit)) / (4 * step**2)
    return found


@pytest.mark.parametrize(("name", "a", "others", "attrs", "exact"), CASES, ids=[f"{c[0]}-{c[1].shape}" for c in CASES])
@pytest.mark.nightly_except("(cholesky|qr|eigh|solve_triangular|slogdet)-.3, 3.")
def test_values_gradients_and_hessians(
    name: str, a: Array, others: tuple[Array, ...], attrs: dict[str, Any], exact: Exact
) -> None:
    call = OpCall(OPS[name], (a, *others), attrs)
    rng = np.random.default_rng(11)
    weights = [rng.normal(size=y.shape) for y in call.references()]
    along, one = rng.normal(size=a.shape), np.array(1.0)
    f, xs = weighted(call, weights), [a, *others, *weights]
    wrt = (True, *[False] * (len(xs) - 1))
    gradient, push, more = vjp_graph(f, wrt), jvp_graph(f, wrt), (*wrt, False)
    jobs = {
        "f": (f, xs),
        "V": (gradient, [*xs, one]),
        "JV": (jvp_graph(gradient, more), [*xs, one, along]),
        "VJ": (vjp_graph(push, more), [*xs, along, one]),
        "VV": (vjp_graph(gradient, more), [*xs, one, along]),
    }

    def function(at: Any) -> Any:
        pairs = zip(weights, exact(at), strict=True)
        return sum(mp.mpf(w) * y for ws, ys in pairs for w, y in zip(ws.flat, numbers(ys), strict=True))

    with mp.workdps(50):
        hessian = differences(function, a, mp.mpf(10) ** -12, along)
        slope = differences(function, a, mp.mpf(10) ** -20)
        want = {"f": np.array(float(function(mp.matrix(a.tolist())))), "V": slope}
    with jax.enable_x64(True):
        machine = jax.jit(lambda given: {k: lowered(g)(*given[k])[0] for k, (g, _) in jobs.items()})(
            {k: x for k, (_, x) in jobs.items()}
        )
    for order, (g, x) in jobs.items():
        expected = want.get(order, hessian)
        for engine, got in (("interpreted", evaluate(g, *x)[0]), ("compiled", np.asarray(machine[order]))):
            off = np.abs(got - expected).max() / np.abs(expected).max()  # a factorization rounds all elements alike
            assert off < 2e-14, f"{order} of {call}, {engine}"
