"""`linalg`: maps against the matrices that they are."""

# ruff: noqa: E501 - a program is a line

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jl
import numpy as np
import pytest
import scipy.linalg as sl

import difflang
from difflang.execution.engine import Engine
from support.language import answer, codes, ran
from support.library import Like, compared, literal, stdlib
from support.values import compare

RNG = np.random.default_rng(3)
HALF = RNG.normal(size=(5, 5))
A = HALF @ HALF.T + 2 * np.eye(5)
WIDE = RNG.normal(size=(7, 3))
B, C = RNG.normal(size=5), RNG.normal(size=7)
GIVEN = f"""import linalg (cg, least_squares, power_iteration)
let a: f64[5, 5] = {A.tolist()}
let wide: f64[7, 3] = {WIDE.tolist()}
let b: f64[5] = {B.tolist()}
let c: f64[7] = {C.tolist()}
"""


def test_conjugate_gradients() -> None:
    """The solution, its derivatives in the map and in the right-hand side, and the tolerance, relative to |b|."""
    f = "fn x(a: f64[5, 5], b: f64[5]) -> f64[5] = cg(linear |v| a @ v, b, tol = 1e-13)\n"
    ask = "(x(a, b), grad[a, b](|a, b| dot(c[..5], x(a, b)))(a, b) |> |g| (g.a, g.b), cg(linear |v| a @ v, 1e6 * b, tol = 1e-3))"
    value, da, db, rough = answer(ask, GIVEN + f)
    solution, adjoint = np.linalg.solve(A, B), np.linalg.solve(A, C[:5])
    compare(value, solution, 1e-11)
    compare(db, adjoint, 1e-11)
    compare(da, -np.outer(adjoint, solution), 1e-10)
    assert np.linalg.norm(A @ rough - 1e6 * B) < 1e-3 * np.linalg.norm(1e6 * B)


def test_single_precision_is_as_good_as_it_gets() -> None:
    found = answer("cg(linear |v| f32(a) @ v, f32(b))", GIVEN, Engine("xla"))
    assert np.asarray(found).dtype == np.float32
    np.testing.assert_allclose(found, np.linalg.solve(A, B), rtol=1e-4)


@pytest.mark.parametrize("map", ["v - 2.0 * v", "[v[0] + 2.0 * v[1], 2.0 * v[0] + v[1]]"])
def test_a_map_that_is_not_positive_ends(map: str) -> None:
    found = codes(f"{GIVEN}print(cg(linear |v| {map}, [1.0, -2.0], tol = 1e-300, most = 50))\n")
    assert [code for code, _ in found] in ([], ["DL0901"])


def test_least_squares_between_two_spaces() -> None:
    """From three numbers, as a tuple, to seven."""
    f = """fn act(a: f64[7, 3], v: (f64, f64[2])) -> f64[7] { let (x, y) = v
  a @ concat([x], y) }
fn fit(a: f64[7, 3], c: f64[7]) -> f64[3] { let (x, y) = least_squares(linear |v: (f64, f64[2])| act(a, v), c, tol = 1e-13)
  concat([x], y) }
"""
    pinv = np.linalg.pinv(WIDE)
    got = answer("(fit(wide, c), jacobian[c](fit)(wide, c))", GIVEN + f)
    compare(got, (pinv @ C, pinv), 1e-9)


def test_power_iteration() -> None:
    """The eigenvalue's derivative is v v', that of its vector follows the other eigenvectors."""
    f = "fn top(a: f64[5, 5]) -> f64 { let (l, v) = power_iteration(linear |v| a @ v, ones(5), steps = 400)\n l }\n"
    values, vectors = np.linalg.eigh(A)
    value, slope = answer("value_and_grad(top)(a)", GIVEN + f)
    assert value == pytest.approx(values[-1], rel=1e-13)
    compare(slope, np.outer(vectors[:, -1], vectors[:, -1]), 1e-9)


# ---- Matrices and GMRES, against SciPy and JAX


def root_by_newton(a: Any) -> Any:
    """The square root, by coupled steps that JAX can differentiate."""
    x, y = a, jnp.eye(a.shape[0])
    for _ in range(12):
        x, y = (x + jnp.linalg.inv(y)) / 2, (y + jnp.linalg.inv(x)) / 2
    return x


def log_by_roots(a: Any) -> Any:
    """The logarithm: six times the square root, and 2 artanh of (r - 1) (r + 1)^-1 by its series."""
    for _ in range(6):
        a = root_by_newton(a)
    unit = jnp.eye(a.shape[0])
    z = jnp.linalg.solve(a + unit, a - unit)
    return 128 * sum(jnp.linalg.matrix_power(z, k) / k for k in range(1, 12, 2))


def cut(k: int) -> Callable[[Any], Any]:
    """The inverse of the k greatest singular values, by (AᵀA)⁺ Aᵀ, where JAX has derivatives between distinct ones."""

    def inverse(a: Any) -> Any:
        values, v = jnp.linalg.eigh(a.T @ a)
        return (v[:, -k:] / values[-k:]) @ v[:, -k:].T @ a.T

    return inverse


def stretched(a: Any) -> Any:
    """The greatest eigenvalue, and its vector with a sum above 0."""
    values, vectors = jnp.linalg.eigh((a + a.T) / 2)
    return jnp.concatenate([values[-1:], vectors[:, -1] * jnp.sign(vectors[:, -1].sum())])


SQUARE = RNG.normal(size=(4, 4)) + 4 * np.eye(4)
TURN, TWIST = np.linalg.qr(WIDE)[0][:4], np.linalg.qr(SQUARE[:3, :3])[0]
CUT = (
    np.linalg.qr(TURN)[0] @ np.diag([2.0, 1.0, 0.3]) @ TWIST
)  # two singular values above 0.4 of the first, and one below
BANDS = (RNG.normal(size=4), 5 + RNG.normal(size=5), RNG.normal(size=4), RNG.normal(size=5))
NEAREST = """fn nearest[T: float](a: T[m, n], b: T[m], tol: f64) -> T[n] {
  let A: T[n] -o T[m] = linear |v| a @ v
  least_squares(A, b, tol)
}
"""
IMPORTS = stdlib("linalg") + NEAREST
TABLE = [
    Like("cg", "|a, b| cg(linear |v| a @ v, b, tol = TOL)", jnp.linalg.solve, (A, B)),
    Like("least_squares", "|a, b| nearest(a, b, TOL)", lambda a, b: jnp.linalg.solve(a.T @ a, a.T @ b), (WIDE, C)),
    Like("power_iteration", "|a| { let (l, v) = power_iteration(linear |v| (a @ v + v @ a) / 2, ones(5), steps = 400)\n  concat([l], v * sign(sum(v))) }", stretched, (A,)),
    Like("bicgstab", "|a, b| bicgstab(linear |v| a @ v, b, tol = TOL)", jnp.linalg.solve, (SQUARE, B[:4])),
    Like("gmres", "|a, b| gmres(linear |v| a @ v, b, tol = 1e-6, restart = 4)", jnp.linalg.solve, (SQUARE, RNG.normal(size=4)), loose=20),
    Like("lstsq", "lstsq", lambda a, b: jnp.linalg.solve(a.T @ a, a.T @ b), (WIDE, C)),
    Like("cholesky_solve", "|a, b| cholesky_solve(cholesky(a), b)", lambda a, b: jnp.linalg.solve((a + a.T) / 2, b), (A, B), loose=5),
    Like("solve_tridiagonal", "solve_tridiagonal", lambda low, d, u, b: jnp.linalg.solve(jnp.diag(low, -1) + jnp.diag(d) + jnp.diag(u, 1), b), BANDS),
    Like("pinv of a tall matrix", "|a| pinv(a)", lambda a: jnp.linalg.inv(a.T @ a) @ a.T, (WIDE,), loose=3),
    Like("pinv of a wide matrix", "|a| pinv(a)", lambda a: a.T @ jnp.linalg.inv(a @ a.T), (WIDE.T,), loose=3),
    Like("pinv that leaves a value out", "|a| pinv(a, 0.4)", cut(2), (CUT,), loose=3),
    Like("pinv that leaves values out, of a wide matrix", "|a| transpose(pinv(a, 0.4))", lambda a: cut(2)(a.T), (CUT.T,), loose=3),
    Like(
        "pinv that leaves values out, its second derivative",
        "|a| grad(|a| sum(pinv(a, 0.4)^2))(a)",
        jax.grad(lambda a: jnp.sum(cut(2)(a) ** 2)),
        (CUT,),
        loose=10,
    ),
    Like("pinv that leaves values out, along a direction, twice", "|a| { let (_, d) = jvp[a](|a| pinv(a, 0.4))(a, sin(3.0 * a))\n  d }", lambda a: jax.jvp(cut(2), (a,), (jnp.sin(3 * a),))[1], (CUT,), loose=10),
    Like("rank", "|a| rank(a)", lambda a: jnp.int32(2), (np.array([[1.0, 2, 3], [2, 4, 6], [0, 1, 1]]),), exact=True),
    Like("cond", "cond", jnp.linalg.cond, (WIDE,), loose=5),
    Like("nuclear_norm", "nuclear_norm", lambda a: jnp.linalg.norm(a, "nuc"), (WIDE,)),
    Like("spectral_norm", "spectral_norm", lambda a: jnp.linalg.norm(a, 2), (WIDE,)),
    Like("p_norm", "|x| p_norm(x, 3.0)", lambda x: jnp.sum(jnp.abs(x) ** 3) ** (1 / 3), (B,)),
    Like("matrix_power", "|a| matrix_power(a, 5)", lambda a: jnp.linalg.matrix_power(a, 5), (SQUARE / 4,), loose=3),
    Like("sqrtm", "sqrtm", lambda a: sl.sqrtm(np.asarray(a)).real, (A,), exact=True, loose=5),
    Like("sqrtm, its derivative", "sqrtm", lambda a: root_by_newton(a), (A,), loose=20),
    Like("logm", "logm", lambda a: sl.logm(np.asarray(a)).real, (SQUARE,), exact=True, loose=20),
    Like("logm, its derivative", "logm", log_by_roots, (SQUARE,), loose=20),
    Like("kron", "kron", jnp.kron, (WIDE[:2], SQUARE[:, :3])),
    Like("block_diag", "block_diag", jl.block_diag, (WIDE, SQUARE)),
    Like("toeplitz", "toeplitz", jl.toeplitz, (B, C)),
    Like("vander", "|x| vander(x, 4)", lambda x: jnp.vander(x, 4), (B,)),
    Like("vander, increasing", "|x| vander(x, 4, increasing = true)", lambda x: jnp.vander(x, 4, increasing=True), (B,)),
]  # fmt: skip
test_it_is_as_elsewhere = compared(TABLE, IMPORTS, long=True)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("engine", ["interpret", "xla"])
def test_an_inverse_between_values_that_are_equal(engine: str, dtype: str) -> None:
    """Twice 2 is kept and twice 0.5 is not: the derivative along E has parts of both, on both sides, in any scale.

    Between a value s that is kept, at i, and a value t that is not, at j, it is (E[i, j] + (t / s) E[j, i]) / (s² - t²).
    """
    values = np.array([2.0, 2.0, 0.5, 0.5])
    e = np.round(np.random.default_rng(5).normal(size=(5, 4)), 3)
    want = np.zeros((5, 4))
    for i, j in np.ndindex(5, 4):
        s, t = (values[i] if i < 4 else 0.0), values[j]
        if i < 2 and j < 2:
            want[i, j] = -e[j, i] / (s * t)
        elif i < 2 or j < 2:
            other = e[j, i] if i < 4 else 0.0
            want[i, j] = (e[i, j] + min(s, t) / max(s, t) * other) / abs(s**2 - t**2)
    ct = np.round(np.random.default_rng(6).normal(size=(4, 5)), 3)
    source = f"""float {dtype}
import linalg (pinv)
let a = [for i in 0..5, j in 0..4 => if i != j {{ 0.0 }} else if i < 2 {{ 2.0 }} else {{ 0.5 }}]
let (e, ct) = ({literal(e)}, {literal(ct)})
fn pushed[T: float](a: T[m, n], e: T[m, n]) -> T[n, m] where m > 0 and n > 0 {{
  let (_, d) = jvp[a](|a| pinv(a, 0.5))(a, e)
  d
}}
fn pulled[T: float](a: T[m, n], ct: T[n, m]) -> T[m, n] where m > 0 and n > 0 {{
  grad(|a| sum(ct * pinv(a, 0.5)))(a)
}}
let lanes = [a, zeros(5, 4), 4.0 * a]
let answer = (
  pushed(a, e), sum(pulled(a, ct) * e), 1e-24 * pushed(1e-12 * a, e), 1e24 * sum(pulled(1e12 * a, ct) * e),
  [for i => pushed(lanes[i], e)], grad(|a| sum(e * pulled(a, ct)))(a), grad(|t| sum(pinv(a, t)))(0.5),
)
"""
    values_found, _ = ran(source, Engine(engine))
    found = [np.asarray(x, dtype=np.float64) for x in values_found["answer"].leaves or ()]
    pushed, pulled, small, large, lanes, second, still = found
    rtol = {"f64": 1e-13, "f32": 5e-6}[dtype]
    for got in (pushed, small, lanes[0], 16 * lanes[2]):
        np.testing.assert_allclose(got, want.T, rtol=rtol, atol=rtol)
    assert not lanes[1].any() and still == 0
    for got in (pulled, large):
        assert got == pytest.approx(np.sum(want.T * ct), rel=rtol)

    def moved(a: Any) -> Any:
        u, s, vt = np.linalg.svd(a, full_matrices=False)
        return (vt[:2].T / s[:2]) @ u[:, :2].T

    a, f, h = np.eye(5, 4) * values, np.random.default_rng(7).normal(size=(5, 4)), 1e-4
    four = sum(i * j * moved(a + h * (i * e + j * f)) for i in (1, -1) for j in (1, -1)) / (4 * h**2)
    assert np.sum(second * f) == pytest.approx(np.sum(ct * four), rel=1e-5)


def test_the_derivative_of_a_logarithm() -> None:
    """That along a direction stands in the corner of the logarithm of a matrix of blocks; the pullback is its adjoint."""
    a, along, ct = SQUARE[:2, :2] + 2 * np.eye(2), HALF[:2, :2], WIDE[:2, :2]
    ask = f"(jvp(logm)({a.tolist()}, {along.tolist()}) |> |(_, d)| d, grad(|a| sum({ct.tolist()} * logm(a)))({a.tolist()}))"
    pushed, pulled = answer(ask, IMPORTS, Engine("interpret"))
    blocks = sl.logm(np.block([[a, along], [np.zeros((2, 2)), a]])).real
    np.testing.assert_allclose(pushed, blocks[:2, 2:], rtol=1e-10, atol=1e-11)
    assert np.sum(pulled * along) == pytest.approx(np.sum(ct * pushed), rel=1e-11)


def test_stabilized_biconjugate_gradients() -> None:
    """Of a map without symmetry: the solution and both derivatives, in f32 too; and no step where there is nothing to do."""
    f = f"let m: f64[4, 4] = {SQUARE.tolist()}\nfn x(a: f64[4, 4], b: f64[4]) -> f64[4] = bicgstab(linear |v| a @ v, b, tol = 1e-13)\n"
    ask = "(x(m, b[..4]), grad[a, b](|a, b| dot(c[..4], x(a, b)))(m, b[..4]) |> |g| (g.a, g.b), bicgstab(linear |v| f32(m) @ v, f32(b[..4])), bicgstab(linear |v| m @ v, zeros(4)))"
    value, da, db, single, none = answer(ask, GIVEN.replace("cg, ", "cg, bicgstab, ") + f)
    solution, adjoint = np.linalg.solve(SQUARE, B[:4]), np.linalg.solve(SQUARE.T, C[:4])
    compare(value, solution, 1e-11)
    compare(db, adjoint, 1e-10)
    compare(da, -np.outer(adjoint, solution), 1e-10)
    assert np.asarray(single).dtype == np.float32 and not none.any()
    np.testing.assert_allclose(single, solution, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("solver", ["cg", "bicgstab"])
@pytest.mark.nightly_except("cg-f64")
def test_a_singular_system_has_no_finite_solution(solver: str, dtype: str) -> None:
    """Of a part of b that the map does not reach rounding makes no solution: NaN, or an assertion fails."""
    tol = {"f64": "1e-13", "f32": "1e-6"}[dtype]
    x = difflang.loads(
        f"import linalg ({solver})\nfn x(a: {dtype}[5, 5], b: {dtype}[5]) -> {dtype}[5] = {solver}(linear |v| a @ v, b, tol = {tol}, most = 100)\n",
        name="singular",
    ).x
    for _ in range(6):
        half = RNG.integers(-5, 6, size=(5, 4))
        given = [
            np.asarray(given, {"f64": np.float64, "f32": np.float32}[dtype])
            for given in (half @ half.T, RNG.normal(size=5))
        ]
        try:
            found = np.asarray(x(*given))
        except difflang.DifflangError as error:
            assert error.diagnostics[0].code == "DL0901"
        else:
            assert np.isnan(found).all()


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_fewer_equations_than_unknowns_have_no_derivative(dtype: str) -> None:
    """The solution nearest to 0; numbers of 1e20 came out for its derivatives, by rounding."""
    source = "fn x(a: f64[2, 3], b: f64[2]) -> f64[3] = least_squares(linear |v: f64[3]| a @ v, b, tol = 1e-13, most = 100)\nfn g(a: f64[2, 3], b: f64[2]) = grad[a, b](|a, b| dot([1.0, 2.0, 3.0], x(a, b)))(a, b)\n"
    single = {"f64": source, "f32": source.replace("1e-13", "1e-6").replace("f64", "f32")}[dtype]
    module = difflang.loads(f"import linalg (least_squares)\n{single}", name="wide")
    for _ in range(10):
        a, b = (RNG.normal(size=size).astype({"f64": np.float64, "f32": np.float32}[dtype]) for size in [(2, 3), 2])
        np.testing.assert_allclose(module.x(a, b), np.linalg.pinv(a) @ b, rtol={"f64": 1e-9, "f32": 1e-2}[dtype])
        try:
            found = module.g(a, b)
        except difflang.DifflangError as error:
            assert error.diagnostics[0].code == "DL0901"
        else:
            assert np.isnan(found.a).all() and np.isnan(found.b).all()


def test_empty_and_single() -> None:
    ask = "(p_norm(zeros(0), 2.0), kron(zeros(0, 2), ones(2, 2)), sqrtm([[4.0]]), solve_tridiagonal(zeros(0), [2.0], zeros(0), [3.0]), lstsq([[2.0]], [3.0]), matrix_power(eye(2), 0))"
    none, empty, root, one, least, unit = answer(ask, IMPORTS)
    assert none == 0 and empty.shape == (0, 4) and root == 2 and one == least == 1.5 and (unit == np.eye(2)).all()


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("p_norm([1.0], 0.0)", "DL0901"),
        ("sqrtm([[-1.0, 0.0], [0.0, -4.0]])", "DL0901"),
        ("gmres(linear |v| [v[0] + v[1], v[0] + v[1]], [1.0, -1.0], restart = 2, most = 2)", "DL0901"),
        ("logm([[-1.0, 0.0], [0.0, -4.0]])", "DL0901"),
        ("logm([[nan]])", "DL0901"),
        ("bicgstab(linear |v| [v[0] + v[1], v[0] + v[1]], [1.0, -1.0], most = 9)", "DL0901"),
        ("lstsq([[1.0, 2.0]], [1.0])", "DL0315"),
    ],
)
def test_what_does_not_fit(wrong: str, code: str) -> None:
    assert [c for c, _ in codes(f"{IMPORTS}let y = {wrong}\n", Engine("interpret"))] == [code]
