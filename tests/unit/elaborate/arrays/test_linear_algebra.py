"""Linear algebra as programs write it: against NumPy and closed forms, on both engines, and its derivatives."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import difflang
from difflang.execution.engine import Engine
from support.language import INTERPRETER, answer

SOURCE = """
float f64
fn line(a: f64[n, n], b: f64[n]) -> f64[n] = solve(a, b)
fn lines(a: f64[n, n], b: f64[n, m]) -> f64[n, m] = solve(a, b)
fn one_for_all(a: f64[n, n], b: f64[k, n, m]) -> f64[k, n, m] = solve(a, b)
fn all_for_one(a: f64[k, n, n], b: f64[n]) -> f64[k, n] = solve(a, b)
fn lanes(a: f64[n, n], b: f64[k, n]) -> f64[k, n] = vmap(|v| solve(a, v))(b)
fn below(a: f64[n, n], b: f64[n]) -> f64[n] = solve_triangular(a, b, lower = true)
fn above(a: f64[n, n], b: f64[n]) -> f64[n] = solve_triangular(a, b, lower = false, unit = true)
fn turned(a: f64[n, n], b: f64[n]) -> f64[n] = solve_triangular(a, b, lower = true, transposed = true)
fn inverse[T: float](a: T[..s]) -> T[..s] = inv(a)
fn determinant(a: f64[n, n]) -> f64 = det(a)
fn determinants(a: f64[k, n, n]) -> f64[k] = det(a)
fn volume(a: f64[n, n]) -> (f64, f64) = slogdet(a)
fn sum_of_diagonal(a: f64[n, m]) -> f64 = trace(a)
fn exponential(a: f64[n, n]) -> f64[n, n] = expm(a)
fn root(a: f64[n, n]) -> f64[n, n] = cholesky(a)
fn spectrum(a: f64[n, n]) -> f64[n] {
  let (w, _) = eigh(a)
  w
}
fn rebuilt_lu(a: f64[n, n]) -> f64[n, n] {
  let (p, l, u) = lu(a)
  p @ l @ u
}
fn rebuilt_qr(a: f64[n, m]) -> f64[n, m] {
  let (q, r) = qr(a)
  q @ r
}
fn rebuilt_svd(a: f64[n, m]) -> f64[n, m] {
  let (u, s, vt) = svd(a)
  u * s @ vt
}
fn rebuilt_eigh(a: f64[n, n]) -> f64[n, n] {
  let (w, v) = eigh(a)
  v * w @ transpose(v)
}
fn orthogonal(a: f64[n, m]) -> f64 {
  let (q, r) = qr(a)
  sum(q^3) + sum(r^3)
}
fn surprise(a: f64[n, n], x: f64[n]) -> f64 {
  let l = cholesky(a)
  0.5 * sum(solve_triangular(l, x, lower = true)^2) + sum(log([for i in 0..n => l[i, i]]))
}
fn spectra(a: f64[k, n, n]) -> f64[k, n] = vmap(spectrum)(a)
fn skewed(a: f64[k, n, n]) -> f64 = sum(for i in 0..k => sum(cholesky(a[i] @ transpose(a[i]))^3))
fn slope_of_skewed(a: f64[k, n, n]) -> f64[k, n, n] = grad(skewed)(a)
fn generic[T: float](a: T[n, n], b: T[n, m]) -> T[n, m] = inv(a) @ b - solve(a, b)
fn difference(a: f64[n, n], b: f64[n, m]) -> f64[n, m] = generic(a, b)
fn newton(a: f64, b: f64) -> f64[2] {
  var x = [1.0, 1.0]
  for _ in 0..9 {
    x -= solve([[2.0 * x[0], 1.0], [1.0, -2.0 * x[1]]], [x[0]^2 + x[1] - a, x[0] - x[1]^2 - b])
  }
  x
}
fn slope_of_det(a: f64[n, n]) -> f64[n, n] = grad(determinant)(a)
fn curvature_of_det(a: f64[n, n]) -> f64[n, n, n, n] = hessian(determinant)(a)
fn slope_of_surprise(a: f64[n, n], x: f64[n]) -> f64[n, n] = grad(surprise)(a, x)
fn jacobian_of_inv(a: f64[n, n]) -> f64[n, n, n, n] = jacobian(|a| inv(a))(a)
fn jacobian_of_rebuilt(a: f64[n, m]) -> f64[n, m, n, m] = jacobian(rebuilt_qr)(a)
fn slope_of_orthogonal(a: f64[n, m]) -> f64[n, m] = grad(orthogonal)(a)
fn newton_in_a(a: f64, b: f64) -> f64[2] = jacobian(newton)(a, b)
fn newton_twice(a: f64, b: f64) -> f64[2] = jacfwd(|t| jacfwd(|s| newton(s, b))(t))(a)
"""
MODULE: Any = difflang.loads(SOURCE, name="matrices")
RNG = np.random.default_rng(1)
A = RNG.normal(size=(3, 3)) + 3 * np.eye(3)
S = A @ A.T
B, C = RNG.normal(size=3), RNG.normal(size=(3, 2))
STACK, RIGHTS = RNG.normal(size=(4, 3, 3)) + 3 * np.eye(3), RNG.normal(size=(4, 3, 2))
SQUARES = STACK @ STACK.swapaxes(1, 2)
WIDE, TALL = RNG.normal(size=(2, 4)), RNG.normal(size=(4, 2))
FIVE = RNG.normal(size=(5, 5))
SINGULAR = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
I3, INV = np.eye(3), np.linalg.inv(A)
UPPER = np.triu(A, 1) + I3


def cofactors(a: np.ndarray) -> np.ndarray:
    minors = [[np.delete(np.delete(a, i, 0), j, 1) for j in range(len(a))] for i in range(len(a))]
    return np.array([[(-1) ** (i + j) * np.linalg.det(m) for j, m in enumerate(row)] for i, row in enumerate(minors)])


def permutation_form(a: np.ndarray) -> np.ndarray:
    """The second derivative of the determinant of three rows: a sign, times the element that is left."""
    sign = np.zeros((3, 3, 3))
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        sign[i, j, k], sign[i, k, j] = 1, -1
    return np.einsum("ace,bdf,ef->abcd", sign, sign, a)


def surprise_slope(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    inverse = np.linalg.inv(a)
    return 0.5 * (inverse - np.outer(inverse @ x, inverse @ x))


def differences(f: Any, x: np.ndarray) -> np.ndarray:
    found = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        unit = np.zeros(x.shape)
        unit[place] = 1e-3
        ahead = [f(x + k * unit) - f(x - k * unit) for k in (1, 2, 3)]
        found[place] = (45 * ahead[0] - 9 * ahead[1] + ahead[2]) / 60e-3
    return found


def orthogonal(a: np.ndarray) -> float:
    q, r = np.linalg.qr(a)
    return np.sum(q**3) + np.sum(r**3)


def skewed(a: np.ndarray) -> float:
    return np.sum(np.linalg.cholesky(a @ a.swapaxes(1, 2)) ** 3)


CASES: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "a vector": ("line", (A, B), np.linalg.solve(A, B)),
    "columns": ("lines", (A, C), np.linalg.solve(A, C)),
    "a stack of columns": ("one_for_all", (A, RIGHTS), np.linalg.solve(A, RIGHTS)),
    "a stack of matrices": ("all_for_one", (STACK, B), np.linalg.solve(STACK, B[:, None])[..., 0]),
    "lanes": ("lanes", (A, RIGHTS[..., 0]), np.linalg.solve(A, RIGHTS[..., 0].T).T),
    "the lower triangle": ("below", (A, B), np.linalg.solve(np.tril(A), B)),
    "the upper triangle": ("above", (A, B), np.linalg.solve(UPPER, B)),
    "transposed": ("turned", (A, B), np.linalg.solve(np.tril(A).T, B)),
    "inv": ("inverse", (A,), INV),
    "inv of a stack": ("inverse", (STACK,), np.linalg.inv(STACK)),
    "inv of nothing": ("inverse", (np.zeros((0, 0)),), np.zeros((0, 0))),
    "det 0": ("determinant", (np.zeros((0, 0)),), 1.0),
    "det 1": ("determinant", (np.array([[-2.5]]),), -2.5),
    "det 2": ("determinant", (A[:2, :2],), np.linalg.det(A[:2, :2])),
    "det 3": ("determinant", (A,), np.linalg.det(A)),
    "det 4": ("determinant", (FIVE[:4, :4],), np.linalg.det(FIVE[:4, :4])),
    "det 5": ("determinant", (FIVE,), np.linalg.det(FIVE)),
    "det of a stack": ("determinants", (STACK,), np.linalg.det(STACK)),
    "slogdet": ("volume", (-A,), np.linalg.slogdet(-A)),
    "trace": ("sum_of_diagonal", (WIDE,), np.trace(WIDE)),
    "cholesky": ("root", (S,), np.linalg.cholesky(S)),
    "eigh": ("spectrum", (S,), np.linalg.eigvalsh(S)),
    "eigh in lanes": ("spectra", (SQUARES,), np.linalg.eigvalsh(SQUARES)),
    "grad of lanes": ("slope_of_skewed", (STACK,), differences(skewed, STACK)),
    "any float": ("difference", (A, C), np.zeros((3, 2))),
    "lu": ("rebuilt_lu", (FIVE,), FIVE),
    "qr": ("rebuilt_qr", (TALL,), TALL),
    "qr of more columns": ("rebuilt_qr", (WIDE,), WIDE),
    "svd": ("rebuilt_svd", (WIDE,), WIDE),
    "V w Vᵀ": ("rebuilt_eigh", (S,), S),
    "grad of det": ("slope_of_det", (A,), cofactors(A)),
    "grad of det, singular": ("slope_of_det", (SINGULAR,), [[-3.0, 6.0, -3.0], [6.0, -12.0, 6.0], [-3.0, 6.0, -3.0]]),
    "grad of det 4": ("slope_of_det", (FIVE[:4, :4],), cofactors(FIVE[:4, :4])),
    "grad of det 5": ("slope_of_det", (FIVE,), cofactors(FIVE)),
    "grad of det 0": ("slope_of_det", (np.zeros((0, 0)),), np.zeros((0, 0))),
    "hessian of det": ("curvature_of_det", (SINGULAR,), permutation_form(SINGULAR)),
    "a Gaussian": ("slope_of_surprise", (S, B), surprise_slope(S, B)),
    "jacobian of inv": ("jacobian_of_inv", (A,), -np.einsum("ac,db->abcd", INV, INV)),
    "jacobian of q @ r": ("jacobian_of_rebuilt", (WIDE,), np.eye(8).reshape(2, 4, 2, 4)),
    "grad through qr": ("slope_of_orthogonal", (TALL,), differences(orthogonal, TALL)),
    "grad through a wide qr": ("slope_of_orthogonal", (WIDE,), differences(orthogonal, WIDE)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", ["compiled", "interpreted"])
def test_closed_forms(case: str, engine: str) -> None:
    name, arguments, expected = CASES[case]
    f = getattr(MODULE, name)
    found = f(*arguments) if engine == "compiled" else f.interpret(*arguments)
    for got, want in zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]:
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


def test_small_determinants_of_whole_numbers_are_exact() -> None:
    """As are all their derivatives: they are products and sums."""
    for got, want in (
        (MODULE.determinant(SINGULAR), 0.0),
        (MODULE.slope_of_det(SINGULAR), cofactors(SINGULAR).round()),
        (MODULE.curvature_of_det(SINGULAR), permutation_form(SINGULAR)),
    ):
        np.testing.assert_array_equal(got, want)


def test_a_factor_of_cholesky_is_known_to_be_lower() -> None:
    k, y = "[[4.0, 2.0], [2.0, 5.0]]", "[2.0, 5.0]"
    for declared in ("c", "c: f64[2, 2]", "c: f64[n, n]"):
        whitened = f"fn f(k: f64[2, 2]) -> f64[2] {{\n  let {declared} = cholesky(k)\n  solve_triangular(c, {y})\n}}"
        assert answer(f"f({k})", whitened).tolist() == [1.0, 2.0]
    assert answer(f"solve_triangular(cholesky({k}), {y}, transposed = true)").tolist() == [-0.25, 2.5]
    assert answer(f"solve_triangular(cholesky({k}), {y}, lower = false)").tolist() == [1.0, 2.5]


def test_a_newton_iteration_with_a_linear_solve_in_a_loop() -> None:
    """x² + y = a, x - y² = b: the derivatives by the implicit function theorem."""
    a, b = 2.5, 0.2
    x, y = np.asarray(MODULE.newton(a, b))
    matrix = np.array([[2 * x, 1.0], [1.0, -2 * y]])
    first = np.linalg.solve(matrix, [1.0, 0.0])
    second = np.linalg.solve(matrix, [-2 * first[0] ** 2, 2 * first[1] ** 2])
    np.testing.assert_allclose(MODULE.newton_in_a(a, b), first, rtol=1e-12)
    np.testing.assert_allclose(MODULE.newton_twice(a, b), second, rtol=1e-10)


SLOPE = """
fn f(a: T[2, 2]) -> T = det(inv(a)) + trace(expm(a))
fn g(a: T[2, 2]) -> T[2, 2] = grad(f)(a)
"""
NARROW = {"f32": (np.float32, 1e-5), "f16": (np.float16, 5e-3), "bf16": (ml_dtypes.bfloat16, 5e-2)}


@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_floats(dtype: str) -> None:
    a = np.array([[2.0, 0.5], [0.25, 1.0]])
    want: Any = difflang.loads(SLOPE.replace("T", "f64"), name="wide")
    got: Any = difflang.loads(SLOPE.replace("T", dtype), name="narrow")
    kind, tolerance = NARROW[dtype]
    np.testing.assert_allclose(np.asarray(got.g(a.astype(kind)), float), want.g(a), rtol=tolerance)


REFUSED = [
    ("fn f(a: f32[n, m]) -> f32 = det(a)", "DL0312", "the size of a square matrix differs: n and m"),
    ("fn f(a: f32[n]) -> f32 = trace(a)", "DL0313", "`trace` takes a matrix, or a stack of matrices"),
    ("fn f(a: f32[n, n], b: f32[m]) -> f32[n] = solve(a, b)", "DL0312", "the number of rows differs: n and m"),
    ("fn f(a: f32[n, n], b: f64[n]) -> f32[n] = solve(a, b)", "DL0311", "element types differ: f32 and f64"),
    ("fn f(a: f32[n, n], b: f32) -> f32 = solve(a, b)", "DL0312", "as many axes"),
    ("fn f(a: i32[n, n]) -> i32[n, n] = inv(a)", "DL0311", "`inv` takes"),
    ("fn f(a: i32[2, 2]) -> i32 = det(a)", "DL0311", "`det` takes"),
    ("fn f(a: f32[n, n]) -> f32[n, n] = solve_triangular(a, a)", "DL0319", "`solve_triangular` is missing `lower`"),
    ("fn f(a: f32[n, n]) -> f32[n, n] = solve_triangular(a, a, upper = true)", "DL0319", "has no parameter `upper`"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "code", "message"), REFUSED)
def test_what_does_not_fit_is_said(source: str, code: str, message: str) -> None:
    with pytest.raises(difflang.DifflangError) as caught:
        difflang.loads(source, name="wrong")
    first = caught.value.diagnostics[0]
    assert first.code == code
    assert message in first.message


@pytest.mark.parametrize("engine", [INTERPRETER, Engine()], ids=["interpreted", "compiled"])
@pytest.mark.parametrize("wrong", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_eigenvalues_of_what_is_not_finite_are_nan(wrong: str, dtype: str, engine: Engine) -> None:
    """Wherever it stands, and only in its own matrix of a stack."""
    rows = f"[[[{wrong}, 1], [1, 2]], [[1, 2], [2, 4]], [[0, 1], [{wrong}, 0]], [[0, 1], [1, {wrong}]]]"
    values, vectors = answer(f"eigh({dtype}({rows}))", engine=engine)
    values, vectors = values.astype(float), vectors.astype(float)
    for place in (0, 2, 3):
        assert np.isnan(values[place]).all() and np.isnan(vectors[place]).all()
    np.testing.assert_allclose(values[1], [0, 5], atol=1e-2 if dtype == "bf16" else 1e-6)
    assert np.isfinite(vectors[1]).all()
