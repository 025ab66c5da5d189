"""Matrix ops where matrices are singular, empty, indefinite, or have equal eigenvalues; and what they must not read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from derivatives import total
from difflang.gradcheck.op_derivatives import jvp_graph, vjp_graph
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, Tensor
from support.op_calls import lowered

Array = np.ndarray[Any, Any]
INF, NAN = math.inf, math.nan
TURN, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))
TWINS = TURN @ np.diag([1.0, 1.0, 3.0]) @ TURN.T  # two equal eigenvalues, to rounding
LOWER: dict[str, Any] = {"lower": True, "transposed": False, "unit": False}


def both(graph: Graph, *xs: Any) -> Iterator[list[Array]]:
    """The results on both engines."""
    arrays = [np.asarray(x, float) for x in xs]
    yield evaluate(graph, *arrays)
    with jax.enable_x64(True):
        compiled = [np.asarray(y) for y in jax.jit(lowered(graph))(*arrays)]
    yield compiled  # out of the setting, which two of these side by side would leave in the wrong order


def of(f: Any, *shapes: tuple[int, ...]) -> Graph:
    """A function of arrays as a graph with one result."""
    return build_region([Tensor(F64, s) for s in shapes], lambda *xs: [f(*xs)])


def single(name: str, *shapes: tuple[int, ...], **attrs: Any) -> Graph:
    return build_region([Tensor(F64, s) for s in shapes], lambda *xs: OPS[name](*xs, **attrs))


# --------------------------------------------------------------------------------------------- determinants


def terms(a: Array, *xs: Array) -> list[float]:
    """What adds up to the derivative of the determinant in some directions: Leibniz' formula and the product rule."""
    n, found = len(a), list[float]()
    for order in permutations(range(n)):
        sign = round(np.linalg.det(np.eye(n)[list(order)]))
        for rows in permutations(range(n), len(xs)):
            chosen = dict(zip(rows, xs, strict=True))
            found.append(sign * math.prod(chosen.get(i, a)[i, order[i]] for i in range(n)))
    return found


def mixed(a: Array, *xs: Array) -> float:
    return sum(terms(a, *xs))


SINGULAR = {
    "rank 3": [[1, 2, 3, 4], [2, 4, 6, 8], [0, 1, 1, 0], [1, 0, 0, 1]],
    "rank 2": [[1, 2, 3, 4], [2, 4, 6, 8], [0, 1, 1, 0], [1, 3, 4, 4]],
    "rank 1": np.outer([1, 2, -1, 1], [1, 0, 2, 1]),
    "zero": np.zeros((4, 4)),
    "regular": [[2, 1, 0, 0], [1, 3, 1, 0], [0, 1, 4, 1], [0, 0, 1, 5]],
    "diagonal": np.diag([1e-9, 1.0, 2.0, 0.0]),
}


@pytest.mark.parametrize("case", SINGULAR)
def test_derivatives_of_a_determinant_up_to_the_fourth(case: str) -> None:
    """Where the gradient of a matrix of rank n - 2 vanishes and its second derivatives do not."""
    a = np.array(SINGULAR[case], float)
    rng = np.random.default_rng(5)
    xs = [rng.integers(-3, 4, (4, 4)).astype(float) for _ in range(4)]
    graph, wrt, given = single("det", (4, 4)), (True,), [a]
    graphs = [graph]
    for x in xs:
        graphs.append(jvp_graph(graphs[-1], wrt))
        given, wrt = [*given, x], (*wrt, False)
    for order, graph in enumerate(graphs):
        parts = terms(a, *xs[:order])
        (got,) = evaluate(graph, *given[: 1 + order])
        assert abs(got - sum(parts)) <= 1e-14 * sum(map(abs, parts)) + 1e-14, f"derivative {order}"


def test_the_third_derivative_of_a_determinant_compiled() -> None:
    a = np.array(SINGULAR["rank 1"], float)
    x = np.arange(16.0).reshape(4, 4) % 5
    graph, wrt = single("det", (4, 4)), (True,)
    for _ in range(3):
        graph, wrt = jvp_graph(graph, wrt), (*wrt, False)
    for (got,) in both(graph, a, x, x, x):
        assert got == pytest.approx(mixed(a, x, x, x), rel=1e-13)


@pytest.mark.parametrize("case", SINGULAR)
def test_the_gradient_of_a_determinant_is_its_cofactors(case: str) -> None:
    a = np.array(SINGULAR[case], float)
    want = [[mixed(a, np.outer(row, column)) for column in np.eye(4)] for row in np.eye(4)]
    for (got,) in both(vjp_graph(single("det", (4, 4)), (True,)), a, 1.0):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


def test_reverse_over_reverse_of_a_singular_determinant() -> None:
    a = np.array(SINGULAR["rank 2"], float)
    x = np.arange(16.0).reshape(4, 4)
    graph = vjp_graph(vjp_graph(single("det", (4, 4)), (True,)), (True, False))
    want = [[mixed(a, x, np.outer(row, column)) for column in np.eye(4)] for row in np.eye(4)]
    for (got,) in both(graph, a, 1.0, x):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_cofactors_of_a_graded_diagonal_are_accurate_one_by_one() -> None:
    d = np.array([1e-12, 1.0, 1e5, 1e-3])
    want = np.diag([math.prod(np.delete(d, i)) for i in range(4)])
    for (got,) in both(single("cofactors", (4, 4)), np.diag(d)):
        np.testing.assert_allclose(got, want, rtol=1e-14)


def normed(seed: int, condition: float, size: float = 1.0) -> Any:
    """A matrix of six rows whose singular values fall evenly by `condition`."""
    u, _, vt = np.linalg.svd(np.random.default_rng(seed).normal(size=(6, 6)))
    return size * (u * np.geomspace(1.0, 1.0 / condition, 6)) @ vt


COFACTORS_OF: dict[str, Any] = {
    "well conditioned": [normed(0, 10.0)],
    "just beyond": [normed(1, 3e3), normed(2, 3e4)],
    "hardly conditioned": [normed(3, 1e14)],
    "one of them singular": [normed(4, 10.0), normed(5, 10.0) * [1, 1, 0, 1, 1, 1], np.zeros((6, 6))],
    "a determinant below the least number": [normed(6, 2.0, 1e-54)],
    "a determinant beyond the greatest": [normed(7, 2.0, 1e55)],
}


@pytest.mark.parametrize("case", COFACTORS_OF)
@pytest.mark.nightly_cases("just beyond", "one of them singular", "well conditioned")
def test_cofactors_whatever_the_condition(case: str) -> None:
    """As near as rounding the matrix leaves them. A stack goes one way; lanes go both and choose."""
    a = np.array(COFACTORS_OF[case])
    with mp.workdps(60):
        want = np.array([[[float(mixed_minor(x, i, j)) for j in range(6)] for i in range(6)] for x in a])
    with jax.enable_x64(True):
        lanes = np.asarray(jax.vmap(lambda x: OPS["cofactors"].lower(jax, x))(a))
    for found in (*[got for (got,) in both(single("cofactors", a.shape), a)], lanes):
        for x, got, exact in zip(a, found, want, strict=True):
            s = np.linalg.svd(x)[1]
            sensitive = s[0] / s[-2] if s[-2] else 0.0
            np.testing.assert_allclose(got, exact, rtol=0, atol=16 * 2**-52 * sensitive * np.abs(exact).max())


def mixed_minor(a: Any, i: int, j: int) -> Any:
    rows = np.delete(np.delete(a, i, 0), j, 1)
    return (-1) ** (i + j) * mp.det(mp.matrix(rows.tolist()))


def test_a_logarithm_of_a_determinant_that_overflows() -> None:
    a = np.eye(400) * 1e3 + np.arange(160_000.0).reshape(400, 400) % 7
    for sign, logarithm in both(single("slogdet", (400, 400)), a):
        np.testing.assert_allclose((sign, logarithm), np.linalg.slogdet(a), rtol=1e-13)


@pytest.mark.parametrize("a", [[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]], ids=["rank 1", "zero"])
def test_the_logarithm_of_a_singular_determinant(a: Any) -> None:
    for sign, logarithm in both(single("slogdet", (2, 2)), a):
        assert (abs(sign), logarithm) == (0.0, -INF)
    back = vjp_graph(of(lambda a: OPS["slogdet"](a)[1], (2, 2)), (True,))
    for (got,) in both(back, a, 1.0):
        assert not np.isfinite(got).any()


# ---------------------------------------------------------------------------------------------- systems


@pytest.mark.parametrize("name", ["solve", "solve_triangular"])
def test_a_singular_system_divides_by_zero(name: str) -> None:
    """As JAX does; NumPy raises."""
    a, b = [[2.0, 0.0], [1.0, 0.0]], [[2.0], [3.0]]
    attrs = LOWER if name == "solve_triangular" else {"transposed": False}
    graph = single(name, (2, 2), (2, 1), **attrs)
    for (x,) in both(graph, a, b):
        assert np.isinf(x[1]).all()
    for got in both(vjp_graph(graph, (True, True)), a, b, [[1.0], [1.0]]):
        assert not any(np.isfinite(x).all() for x in got)


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_nothing_but_the_triangle_is_read(lower: bool, unit: bool) -> None:
    rng = np.random.default_rng(2)
    full, b = rng.normal(size=(3, 3)) + 3 * np.eye(3), rng.normal(size=(3, 2))
    read = (np.tril if lower else np.triu)(np.ones((3, 3)), (-1 if lower else 1) if unit else 0) > 0
    a = np.where(read, full, NAN)
    whole = np.where(read, full, np.eye(3) * unit)
    graph = single("solve_triangular", (3, 3), (3, 2), lower=lower, transposed=False, unit=unit)
    ct = rng.normal(size=(3, 2))
    for (x,) in both(graph, a, b):
        np.testing.assert_allclose(x, np.linalg.solve(whole, b), rtol=1e-13)
    for da, db in both(vjp_graph(graph, (True, True)), a, b, ct):
        back = np.linalg.solve(whole.T, ct)
        np.testing.assert_allclose(db, back, rtol=1e-13)
        np.testing.assert_allclose(da, np.where(read, -back @ np.linalg.solve(whole, b).T, 0.0), rtol=1e-12)


def test_cholesky_of_what_is_not_positive_definite_is_nan() -> None:
    for a in ([[1.0, 2.0], [2.0, 1.0]], [[-1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [NAN, 1.0]]):
        for (y,) in both(single("cholesky", (2, 2)), a):
            assert y[0, 1] == 0.0 and np.isnan(y[1, 1])
        for graph in (jvp_graph(single("cholesky", (2, 2)), (True,)), vjp_graph(single("cholesky", (2, 2)), (True,))):
            for (got,) in both(graph, a, np.eye(2)):
                assert np.isnan(got).any()


@pytest.mark.parametrize("name", ["cholesky", "eigh"])
def test_the_input_is_taken_as_symmetric(name: str) -> None:
    """Only the symmetric part counts, and the gradient is symmetric."""
    a = np.array([[2.0, 0.9, 0.1], [0.3, 5.0, -0.4], [-0.3, 0.2, 9.0]])
    graph = single(name, (3, 3))
    rng = np.random.default_rng(4)
    cts = [rng.normal(size=y.shape) for y in evaluate(graph, a)]
    for lopsided, even in zip(both(graph, a), both(graph, (a + a.T) / 2), strict=True):
        for x, y in zip(lopsided, even, strict=True):
            np.testing.assert_array_equal(x, y)
    for (got,) in both(vjp_graph(graph, (True,)), a, *cts):
        np.testing.assert_array_equal(got, got.T)
    odd = np.array([[0.0, 1.0, 2.0], [-1.0, 0.0, 3.0], [-2.0, -3.0, 0.0]])
    for changes in both(jvp_graph(graph, (True,)), a, odd):
        assert all(not change.any() for change in changes)


# ------------------------------------------------------------------------------------- equal eigenvalues


def eigenvalues(f: Any, n: int = 3) -> Graph:
    """The sum of a function of the eigenvalues."""
    return of(lambda a: total(f(OPS["eigh"](a)[0])), (n, n))


FUNCTIONS = {
    "sum": (lambda w: w * 1.0, np.ones_like),
    "squares": (lambda w: w * w, lambda w: 2 * w),
    "exp": (lambda w: OPS["exp"].one(w), np.exp),
    "log": (lambda w: OPS["log"].one(w), lambda w: 1 / w),
}


@pytest.mark.parametrize(
    "a", [np.eye(3), 2.5 * np.eye(3), np.diag([1.0, 1.0, 3.0]), TWINS], ids=["1", "2.5", "diagonal", "turned"]
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_symmetric_function_of_equal_eigenvalues(name: str, a: Array) -> None:
    """The gradient of the trace of f(A) is f'(A), both ways round."""
    f, slope = FUNCTIONS[name]
    values, vectors = np.linalg.eigh(a)
    want = vectors @ np.diag(slope(values)) @ vectors.T
    x = np.arange(9.0).reshape(3, 3)
    for (got,) in both(vjp_graph(eigenvalues(f), (True,)), a, 1.0):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-14)
    for (got,) in both(jvp_graph(eigenvalues(f), (True,)), a, x):
        np.testing.assert_allclose(got, np.sum(want * x), rtol=1e-13)


@pytest.mark.parametrize("a", [np.eye(3), TWINS], ids=["identity", "turned"])
def test_vectors_of_equal_eigenvalues_have_no_derivative(a: Array) -> None:
    """Nor has what is made of them: all that a rule sees of V diag(f(w)) Vᵀ is the same for f = log and f = 2 log."""
    swap, matmul = (lambda x: OPS["transpose"].one(x, perm=(1, 0))), OPS["dot_general"]

    def logarithm(a: Value) -> Value:
        w, v = OPS["eigh"](a)
        logs = OPS["broadcast"].one(OPS["log"].one(w), shape=(3, 3), axes=(1,))
        return matmul.one(v * logs, swap(v), contract=((1,), (0,)), batch=((), ()))

    x = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    for graph in (vjp_graph(of(logarithm, (3, 3)), (True,)), jvp_graph(of(logarithm, (3, 3)), (True,))):
        for (got,) in both(graph, a, x):
            assert np.isnan(got).any()


def test_the_vector_of_a_single_eigenvalue_moves_although_others_are_equal() -> None:
    """Forwards; in reverse the numeric zeros that reach the others' vectors meet a rate that is not a number."""
    _, vectors = np.linalg.eigh(TWINS)
    x = np.arange(9.0).reshape(3, 3)
    even = (x + x.T) / 2
    top = vectors[:, 2]
    want = np.linalg.pinv(3 * np.eye(3) - TWINS, rcond=1e-10) @ even @ top
    for _, dv in both(jvp_graph(single("eigh", (3, 3)), (True,)), TWINS, x):
        np.testing.assert_allclose(dv[:, 2], want, rtol=1e-12)
        assert np.isnan(dv[:, :2]).all()


def test_second_derivatives_at_equal_eigenvalues_are_never_wrong_numbers() -> None:
    """The Hessian of the sum of squares is 2; a rule that left equal ones out would give 0 off the diagonal."""
    f, _ = FUNCTIONS["squares"]
    gradient = vjp_graph(eigenvalues(f), (True,))
    x = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    for (got,) in both(jvp_graph(gradient, (True, False)), np.eye(3), 1.0, x):
        assert np.isnan(got).all()


@pytest.mark.parametrize("number", [INF, -INF, NAN])
def test_singular_values_of_what_is_not_finite_come_to_an_end(number: float) -> None:
    """LAPACK's search for those of this one never ends where a number is Inf. The other of a stack has its own."""
    a = np.array([[1.5, 0.8, 0.3], [-0.8, 0.4, 0.04], [number, 0.4, -0.14], [0.2, 0.2, 0.4]])
    stack = np.stack([a, np.eye(4, 3)])
    for found in both(single("svd", (2, 4, 3)), stack):
        assert all(np.isnan(x[0]).all() for x in found)
        np.testing.assert_allclose(found[1][1], 1)
    for (slope,) in both(vjp_graph(single("det", (3, 3)), (True,)), a[:3], 1.0):
        assert np.isnan(slope).all()


def singular_values(shape: tuple[int, int]) -> Graph:
    return of(lambda a: total(OPS["svd"](a)[1]), shape)


@pytest.mark.parametrize("a", [np.eye(3), TURN, 2 * TURN[:, :2], TURN[:2]], ids=["1", "orthogonal", "tall", "wide"])
def test_the_nuclear_norm_where_singular_values_are_equal(a: Array) -> None:
    """Its gradient is U Vᵀ, which does not depend on the basis."""
    want = a / np.linalg.norm(a, 2)
    for (got,) in both(vjp_graph(singular_values(a.shape), (True,)), a, 1.0):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-15)


def test_a_singular_value_of_zero_has_derivative_zero() -> None:
    for a, want in ((np.diag([2.0, 0.0]), np.diag([1.0, 0.0])), (np.zeros((2, 3)), np.zeros((2, 3)))):
        for (got,) in both(vjp_graph(singular_values(a.shape), (True,)), a, 1.0):
            np.testing.assert_array_equal(got, want)


def test_dependent_columns_have_no_qr_derivative() -> None:
    back = vjp_graph(of(lambda a: OPS["qr"](a)[0], (3, 2)), (True,))
    for (got,) in both(back, [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]], np.ones((3, 2))):
        assert not np.isfinite(got).all()


# ------------------------------------------------------------------------------------ empty, single, stacks

ONE_MATRIX = ["det", "cofactors", "slogdet", "cholesky", "lu", "qr", "eigh", "svd", "expm"]


@pytest.mark.parametrize("name", ONE_MATRIX)
@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 2, 2)])
def test_nothing_in_nothing_out(name: str, shape: tuple[int, ...]) -> None:
    graph = single(name, shape)
    a = np.zeros(shape)
    want = [1.0, 0.0] if name == "slogdet" else [1.0] * 3
    for ys in both(graph, a):
        assert all((y == w).all() for y, w in zip(ys, want, strict=False))
    cts = [np.ones_like(y) for y in evaluate(graph, a)]
    for (back,) in both(vjp_graph(graph, (True,)), a, *cts):
        assert back.shape == shape


@pytest.mark.parametrize("x", [2.0, -2.0])
def test_one_by_one(x: float) -> None:
    a = np.array([[x]])
    sign = math.copysign(1, x)
    slopes = {
        "det": [1.0],
        "slogdet": [1 / x],  # the sign has none
        "expm": [math.exp(x)],
        "eigh": [1.0, 0.0],
        "svd": [0.0, sign, 0.0],
    }
    for name, want in slopes.items():
        for got in both(jvp_graph(single(name, (1, 1)), (True,)), a, [[1.0]]):
            found = [y.item() for y in got]
            np.testing.assert_allclose(found[-len(want) :], want, rtol=1e-14)
            assert not any(found[: -len(want)])


@pytest.mark.parametrize("name", [*ONE_MATRIX, "solve", "solve_triangular"])
def test_a_stack_is_one_matrix_after_the_other(name: str) -> None:
    rng = np.random.default_rng(6)
    a = rng.uniform(-0.3, 0.3, (2, 2, 3, 3)) + np.diag([1.0, 2.0, 3.0])
    attrs = LOWER if name == "solve_triangular" else {"transposed": False} if name == "solve" else {}
    given = [a, rng.normal(size=(2, 2, 3, 2))] if attrs else [a]
    wrt = (True,) * len(given)
    stacked, alone = (single(name, *[x.shape[k:] for x in given], **attrs) for k in (0, 2))
    cts = [rng.normal(size=y.shape) for y in evaluate(stacked, *given)]
    for whole in both(vjp_graph(stacked, wrt), *given, *cts):
        for place in np.ndindex(2, 2):
            part = evaluate(vjp_graph(alone, wrt), *[x[place] for x in given], *[ct[place] for ct in cts])
            for x, y in zip(whole, part, strict=True):
                np.testing.assert_allclose(x[place], y, rtol=1e-11, atol=1e-13)


# ----------------------------------------------------------------------------------------- exponentials


def test_an_exponential_that_needs_much_squaring() -> None:
    """A turn of 1e4 radians has as many digits as its angle; e^(-1e6) is 0, and not a number that failed."""
    angle = 1e4
    for (got,) in both(single("expm", (2, 2)), [[0.0, angle], [-angle, 0.0]]):
        want = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        np.testing.assert_allclose(got, want, atol=1e-11)
    for (got,) in both(single("expm", (2, 2)), [[-1e6, 0.0], [0.0, -2e6]]):
        np.testing.assert_array_equal(got, np.zeros((2, 2)))


@pytest.mark.parametrize("size", [1e-200, 1e-8, 1.0, 1e8, 1e200])
def test_the_length_of_a_direction_does_not_matter(size: float) -> None:
    """[[0, 1], [0, 0]] is moved by e^(1 - 0) - 1 over 1 - 0."""
    for (got,) in both(single("expm", (2, 2), (2, 2)), [[1.0, 0.0], [0.0, 0.0]], [[0.0, size], [0.0, 0.0]]):
        np.testing.assert_allclose(got, [[0.0, size * math.expm1(1.0)], [0.0, 0.0]], rtol=1e-14)


def test_the_trace_of_an_exponential_with_equal_eigenvalues() -> None:
    graph = of(lambda a: total(OPS["expm"].one(a) * a.home.const(1.0, a.type)), (3, 3))
    for (got,) in both(jvp_graph(vjp_graph(graph, (True,)), (True, False)), np.zeros((3, 3)), 1.0, np.eye(3)):
        np.testing.assert_allclose(got, np.ones((3, 3)), rtol=1e-14)


# -------------------------------------------------------------------------------------- JAX as an oracle

ORACLES = {
    "det": lambda a: [jnp.linalg.det(a)],
    "slogdet": lambda a: list(jnp.linalg.slogdet(a)),
    "cholesky": lambda a: [jnp.linalg.cholesky((a + a.mT) / 2)],
    "qr": lambda a: list(jnp.linalg.qr(a)),
    "eigh": lambda a: list(jnp.linalg.eigh((a + a.mT) / 2)),
    "svd": lambda a: list(jnp.linalg.svd(a, full_matrices=False)),
    "lu": lambda a: list(jax.vmap(jax.scipy.linalg.lu)(a)),
}


@pytest.mark.parametrize("name", ORACLES)
def test_jax_agrees(name: str) -> None:
    """Gradients and products with the Hessian, of stacks of five rows."""
    rng = np.random.default_rng(8)
    a, along = (rng.uniform(-0.2, 0.2, (2, 5, 5)) + k * np.diag(np.arange(1.0, 6.0)) for k in (1, 0))
    graph = single(name, a.shape)
    cts = [rng.normal(size=y.shape) for y in evaluate(graph, a)]
    back = vjp_graph(graph, (True,))
    twice = jvp_graph(back, (True, *[False] * len(cts)))

    def scalar(a: Any) -> Any:
        return sum(jnp.sum(ct * y) for ct, y in zip(cts, ORACLES[name](a), strict=True))

    with jax.enable_x64(True):
        want = jax.jvp(jax.grad(scalar), (a,), (along,))
        got = [*jax.jit(lowered(back))(a, *cts), *jax.jit(lowered(twice))(a, *cts, along)]
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
