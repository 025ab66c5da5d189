"""`minimize`: problems of Moré, Garbow and Hillstrom with their published minima, NIST's, and SciPy's answers."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.language import answer, ran
from support.library import Engine, Like, compared, literal, stdlib

IMPORTS = stdlib("minimize") + "record Model { w: f64[2], name: str, b: f64 }\n"
BARD = [0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.10, 4.39]
KOWALIK = ([0.1957, 0.1947, 0.1735, 0.16, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246], [4.0, 2.0, 1.0, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625])  # fmt: skip
MISRA = ([10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02, 44.82, 50.76, 55.05, 61.01, 66.40, 75.47, 81.78], [77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8, 378.4, 434.8, 477.3, 536.8, 593.1, 689.1, 760.0])  # fmt: skip
DATA = f"""let bard: f64[15] = {BARD}
let ky: f64[11] = {KOWALIK[0]}
let ku: f64[11] = {KOWALIK[1]}
let my: f64[14] = {MISRA[0]}
let mx: f64[14] = {MISRA[1]}
"""
# Title: residuals, first guess, a minimizer, twice the least |r|² / 2 (numbers of the problems as in the paper of 1981).
PROBLEMS: dict[str, tuple[str, list[float], list[float], float]] = {
    "1 Rosenbrock": ("|x| [10 * (x[1] - x[0]^2), 1 - x[0]]", [-1.2, 1], [1, 1], 0),
    "2 Freudenstein and Roth": ("|x| [x[0] - 13 + ((5 - x[1]) * x[1] - 2) * x[1], x[0] - 29 + ((x[1] + 1) * x[1] - 14) * x[1]]", [0.5, -2], [11.4128, -0.896805], 48.98425),
    "3 Powell, badly scaled": ("|x| [1e4 * x[0] * x[1] - 1, exp(-x[0]) + exp(-x[1]) - 1.0001]", [0, 1], [1.098159e-5, 9.106147], 0),
    "4 Brown, badly scaled": ("|x| [x[0] - 1e6, x[1] - 2e-6, x[0] * x[1] - 2]", [1, 1], [1e6, 2e-6], 0),
    "5 Beale": ("|x| [1.5 - x[0] * (1 - x[1]), 2.25 - x[0] * (1 - x[1]^2), 2.625 - x[0] * (1 - x[1]^3)]", [1, 1], [3, 0.5], 0),
    "7 helical valley": ("|x| { let t = where(x[0] > 0, 0.0, 0.5) + atan(x[1] / x[0]) / (2 * pi)\n  [10 * (x[2] - 10 * t), 10 * (hypot(x[0], x[1]) - 1), x[2]] }", [-1, 0, 0], [1, 0, 0], 0),
    "8 Bard": ("|x| [for i in 0..15 => { let u = f64(i + 1)\n  let v = 16 - u\n  bard[i] - (x[0] + u / (v * x[1] + min(u, v) * x[2])) }]", [1, 1, 1], [0.08241056, 1.133036, 2.343695], 8.21487730657e-3),
    "11 Gulf, first terms": ("|x| [for i in 0..10 => { let t = f64(i + 1) / 100\n  let y = 25 + (-50 * log(t))^(2.0 / 3.0)\n  exp(-abs(y - x[1])^x[2] / x[0]) - t }]", [5, 2.5, 0.15], [50, 25, 1.5], 0),
    "12 Box": ("|x| [for i in 0..10 => { let t = f64(i + 1) / 10\n  exp(-t * x[0]) - exp(-t * x[1]) - x[2] * (exp(-t) - exp(-10 * t)) }]", [0, 10, 20], [1, 10, 1], 0),
    "14 Wood": ("|x| [10 * (x[1] - x[0]^2), 1 - x[0], sqrt(90.0) * (x[3] - x[2]^2), 1 - x[2], sqrt(10.0) * (x[1] + x[3] - 2), (x[1] - x[3]) / sqrt(10.0)]", [-3, -1, -3, -1], [1, 1, 1, 1], 0),
    "15 Kowalik and Osborne": ("|x| ky - x[0] * (ku^2 + ku * x[1]) / (ku^2 + ku * x[2] + x[3])", [0.25, 0.39, 0.415, 0.39], [0.192806, 0.191282, 0.123056, 0.136062], 3.07505603849e-4),
    "NIST Misra1a": ("|x| my - x[0] * (1 - exp(-x[1] * mx))", [500, 1e-4], [238.94212918, 5.5015643181e-4], 0.12455138894),
    "NIST Misra1b": ("|x| my - x[0] * (1 - (1 + x[1] * mx / 2)^-2)", [500, 1e-4], [337.99746163, 3.9039091287e-4], 7.5464681533e-2),
    "NIST Misra1c": ("|x| my - x[0] * (1 - (1 + 2 * x[1] * mx)^-0.5)", [500, 1e-4], [636.42725809, 2.0813627256e-4], 4.0966836971e-2),
    "NIST Misra1d": ("|x| my - x[0] * x[1] * mx / (1 + x[1] * mx)", [500, 1e-4], [437.36970754, 3.0227324449e-4], 5.6419295283e-2),
}  # fmt: skip
CERTIFIED = 1e-9  # the certified digits of NIST are eleven; those of the paper are six


@cache
def solved() -> dict[str, tuple[np.ndarray, float, bool]]:
    source = ["float f64\n", IMPORTS, DATA]
    for i, (r, start, _, _) in enumerate(PROBLEMS.values()):
        source.append(f"let m{i} = levenberg_marquardt({r}, {literal(np.array(start, float))}, tol = 1e-14)\n")
    values, _ = ran("".join(source), Engine("interpret"))
    leaves = [values[f"m{i}"].leaves or () for i in range(len(PROBLEMS))]
    return {t: (np.asarray(x), float(v), bool(ok)) for t, (x, v, _, _, ok) in zip(PROBLEMS, leaves, strict=True)}


@pytest.mark.parametrize("title", PROBLEMS)
def test_least_squares_to_the_published_digits(title: str) -> None:
    x, value, converged = solved()[title]
    _, _, best, square = PROBLEMS[title]
    assert converged
    if square:
        assert 2 * value == pytest.approx(square, rel=1e-6 if title[0] != "N" else CERTIFIED)
        np.testing.assert_allclose(x, best, rtol=1e-4 if title[0] != "N" else CERTIFIED)
    else:
        assert 2 * value < 1e-16
        if title[:2] not in ("11", "12"):  # they have more than one minimizer
            np.testing.assert_allclose(x, best, rtol=1e-5, atol=1e-6)


SOLVERS = f"""let start: f64[2] = [-1.2, 1.0]
fn valley(x: f64[n]) -> f64 = sum(100.0 * (x[1..] - x[..n - 1]^2)^2 + (1.0 - x[..n - 1])^2)
fn of_model(m: Model) -> f64 = valley(concat(m.w, [m.b]))
let long = lbfgs(valley, {[-1.2, 1.0] * 10}, tol = 1e-8)
let newton = newton_cg(valley, {[-1.2, 1.0] * 10}, tol = 1e-8)
let moved = lbfgs(of_model, Model(w = [-1.2, 1.0], name = "m", b = 0.5), tol = 1e-8)
let flat = lbfgs(valley, [-1.2, 1.0, 0.5], tol = 1e-8)
let single = lbfgs(|x| sum((x[1..] - x[..1]^2)^2 + (1 - x[..1])^2), [f32(-1.2), 1.0], tol = 1e-4)
let inner = |a| sum(minimizer(|x| sum(exp(x) - a * x) + (x[0] - x[1])^2, [0.0, 0.0], tol = 1e-10))
let first = inner'(2.0)
let second = inner''(2.0)
let step = wolfe(|x| cos(x[0]) + 0.1 * x[0], [0.5], [1.0], flat = 0.1)
let nan = lbfgs(|x| x[0] * 0.0 / 0.0, [1.0])
let there = lbfgs(|x| sum(x^2), [0.0, 0.0])
let nothing = lbfgs(|x| sum(x^2), zeros(0))
"""


@cache
def solvers() -> dict[str, tuple[np.ndarray, ...]]:
    values, _ = ran("float f64\n" + IMPORTS + SOLVERS, Engine("interpret"))
    return {k: tuple(map(np.asarray, v.leaves or ())) for k, v in values.items() if v.leaves}


@pytest.mark.nightly
def test_long_valleys() -> None:
    """Twenty numbers, by two methods."""
    for name in ("long", "newton"):
        x, value, slope, steps, converged = solvers()[name]
        assert converged and slope <= 1e-8 and value < 1e-14 and steps < 200
        np.testing.assert_allclose(x, 1, rtol=1e-7)


LAWS = """import minimize (lbfgs, newton_cg, gauss_newton)
enum Law { Line(a: f64, b: f64), Power(k: f64), Flat }
fn at(l: Law, x: f64) -> f64 = match l { Line(a, b) => a * x + b, Power(k) => k * x^2, Flat => 1.0 }
fn misses(laws: Law[m]) -> f64[m, 2] = [for l in laws => [at(l, 1.0) - 2.0, at(l, 2.0) - 3.0]]
fn loss(laws: Law[m]) -> f64 = sum(misses(laws)^2) / 2
let start = [Line(0.0, 0.0), Power(0.5), Flat]
fn numbers(laws: Law[3]) -> f64[3] {
  let (a, b) = match laws[0] { Line(a, b) => (a, b), _ => (nan, nan) }
  [a, b, match laws[1] { Power(k) => k, _ => nan }]
}
"""


@pytest.mark.parametrize(
    "solver", ["lbfgs(loss, start, tol = 1e-7)", "newton_cg(loss, start)", "gauss_newton(misses, start)"]
)
def test_the_items_of_an_array_of_enums_keep_their_variants(solver: str) -> None:
    np.testing.assert_allclose(answer(f"numbers({solver}.x)", LAWS), [1, 1, 14 / 17], rtol=1e-6)


def test_a_record_moves_as_an_array_does() -> None:
    w, b, *record = solvers()["moved"]
    x, *flat = solvers()["flat"]
    np.testing.assert_allclose([*w, b], x, rtol=1e-10)
    assert record[2] == flat[2] and record[3]


def test_single_precision() -> None:
    x, *_, converged = solvers()["single"]
    assert x.dtype == np.float32 and converged
    np.testing.assert_allclose(x, 1, rtol=1e-3)


def test_the_derivative_of_a_minimum() -> None:
    """At x = (log a, log a): of their sum 2 / a and -2 / a²."""
    assert float(solvers()["first"][0]) == pytest.approx(1.0, rel=1e-8)
    assert float(solvers()["second"][0]) == pytest.approx(-0.5, rel=1e-7)


def test_the_strong_wolfe_conditions() -> None:
    length, value, slope, ok = (x.item() for x in solvers()["step"])
    value0, slope0 = np.cos(0.5) + 0.05, -np.sin(0.5) + 0.1
    assert ok and value == pytest.approx(np.cos(0.5 + length) + 0.1 * (0.5 + length), rel=1e-14)
    assert value <= value0 + 1e-4 * length * slope0 and abs(slope) <= 0.1 * abs(slope0)


def test_broken_and_empty_problems() -> None:
    assert not solvers()["nan"][-1] and solvers()["there"][-1] and int(solvers()["there"][3]) == 0
    assert solvers()["nothing"][-1] and solvers()["nothing"][0].shape == (0,)


def test_a_number_on_which_nothing_depends_but_by_rounding_stays() -> None:
    """Its column of the Jacobian is some 1e-17: it must neither run away nor be taken for a slope."""
    residuals = "|p| { let q = sin(p[1])^2 + cos(p[1])^2\n  [p[0] - 2.0 * q, p[0]^2 - 5.0 * q] }"
    ask = f"levenberg_marquardt({residuals}, [f64(1.0), 0.7])"
    (x, _, slope, _, converged) = answer(ask, IMPORTS, Engine("interpret"))
    root = np.roots([2, 0, -9, -2]).max()  # of the slope of ((x - 2)^2 + (x^2 - 5)^2) / 2
    assert converged and slope < 1e-7
    np.testing.assert_allclose(x, [root, 0.7], rtol=1e-7)


def test_an_orbit_is_found_from_near_by() -> None:
    """Positions at forty times, a residual for each coordinate; a first step of no restraint led to another orbit."""
    source = """fn seen(s0: f64[4]) -> f64[40, 2] {
  var s = s0
  var all = zeros(40, 2)
  let rate = |s| { let r = norm(s[..2])
    concat(s[2..], -s[..2] / r^3) }
  for i in 0..40 {
    all[i] = s[..2]
    for _ in 0..8 {
      let h = 0.025
      let k = rate(s + h / 2 * rate(s))
      s += h * k
    }
  }
  all
}
let measured = seen([1, 0, 0, 1.2]) + with_key(key(1)) { 0.01 * normal(40, 2) }
"""
    ask = "levenberg_marquardt(|s| seen(s) - measured, [f64(0.9), 0.1, 0.1, 1.1])"
    x, value, _, steps, converged = answer(ask, IMPORTS + source, Engine("xla"))
    assert converged and steps < 20 and value < 0.01
    np.testing.assert_allclose(x, [1, 0, 0, 1.2], atol=0.02)


@pytest.mark.parametrize("title", ["1 Rosenbrock", "5 Beale", "8 Bard", "12 Box", "15 Kowalik and Osborne"])
def test_gauss_and_newton_to_the_published_digits(title: str) -> None:
    """From near by: it has nothing to hold a step back."""
    residuals, _, minimizer, twice = PROBLEMS[title]
    near = [1.02 * x + 0.01 for x in minimizer]
    x, value, *_, converged = answer(
        f"gauss_newton({residuals}, {near}, tol = 1e-9)", DATA + IMPORTS, Engine("interpret")
    )
    assert converged
    np.testing.assert_allclose(2 * value, twice, rtol=1e-6, atol=1e-15)
    np.testing.assert_allclose(x, minimizer, rtol=1e-5)


# ---- The same steps in JAX, and closed forms: values and derivatives, in f32 and f64


def bowl(a: Any, b: Any, x: Any) -> Any:
    return a @ jnp.cosh(x - b)


def stepped(a: Any, x: Any, d: Any) -> Any:
    """The first length that is tried does."""
    return jnp.concatenate([jnp.stack([jnp.ones(()), a @ (x + d) ** 2 / 2]), a * (x + d)])


def lowest(a: Any, x: Any, d: Any) -> Any:
    """The bottom of the parabola along a direction."""
    length = -(a * x) @ d / ((a * d) @ d)
    end = x + length * d
    return jnp.concatenate([jnp.stack([length, a @ end**2 / 2]), a * end])


def remembered(a: Any, b: Any, x: Any) -> Any:
    """Three steps by the recursion over pairs of moves and turns, each as long as it comes (Nocedal 1980)."""
    slope = jax.grad(bowl, 2)
    pairs: list[tuple[Any, Any]] = []
    for _ in range(3):
        g = q = slope(a, b, x)
        back = []
        for s, y in reversed(pairs):
            back.append(s @ q / (s @ y))
            q = q - back[-1] * y
        q = q * (pairs[-1][0] @ pairs[-1][1] / (pairs[-1][1] @ pairs[-1][1]) if pairs else 1 / jnp.linalg.norm(g))
        for (s, y), part in zip(pairs, reversed(back), strict=True):
            q = q + (part - y @ q / (s @ y)) * s
        x = x - q
        pairs.append((-q, slope(a, b, x) - g))
    return jnp.concatenate([x, jnp.stack([bowl(a, b, x), jnp.linalg.norm(slope(a, b, x))])])


def logarithms(a: Any) -> Any:
    """The minimum of the sum of exp(x) - a x, and where it is."""
    return jnp.concatenate([jnp.log(a), jnp.sum(a - a * jnp.log(a))[None]])


RNG = np.random.default_rng(12)
A, B, X = np.array([2.0, 1.0, 0.6]), np.array([0.3, -0.4, 0.1]), np.array([0.9, 0.5, -0.8])
TALL, C = RNG.normal(size=(5, 3)), RNG.normal(size=5)
SUMS = "|x| sum(exp(x) - a * x), zeros_like(a), tol = TOL"
ENDS = "let m = {}\n  concat(m.x, [m.value])"
STEP = "|a, x, d| {{ let s = wolfe(|x| dot(a, x^2) / 2, x, d{})\n  concat([s.length, s.value], s.gradient) }}"
CURVED = "|x| [exp(x[0]) - a[0], x[0] * x[1] - a[1], 0 * x[0]]"
TABLE = [
    Like("wolfe of a length that will do", STEP.format(""), stepped, (A, X, B - X)),
    Like("wolfe of one that is too long", STEP.format(", first = 2.5, flat = 0.1"), lowest, (A, X, B - X)),
    Like("lbfgs, three steps", "|a, b, x| { let m = lbfgs(|x| dot(a, cosh(x - b)), x, most = 3)\n  concat(m.x, [m.value, m.slope]) }", remembered, (A, B, X)),
    Like("lbfgs", f"|a| {{ {ENDS.format(f'lbfgs({SUMS})')} }}", logarithms, (A,), exact=True),  # the derivative is that of the steps, which come to it later
    Like("newton_cg", f"|a| {{ {ENDS.format(f'newton_cg({SUMS})')} }}", logarithms, (A,)),
    Like("gauss_newton of lines", "|a, b| gauss_newton(|x| a @ x - b, zeros(3), tol = TOL).x", lambda a, b: jnp.linalg.solve(a.T @ a, a.T @ b), (TALL, C)),
    Like("gauss_newton", f"|a| gauss_newton({CURVED}, [a[0] / a[0], a[1] / a[1]], tol = TOL).x", lambda a: jnp.stack([jnp.log(a[0]), a[1] / jnp.log(a[0])]), (A[:2],)),
    Like("levenberg_marquardt of lines", "|a, b| { let m = levenberg_marquardt(|x| a @ x - b, zeros(3), tol = TOL)\n  concat(m.x, [m.value]) }", lambda a, b: jnp.append(jnp.linalg.solve(a.T @ a, a.T @ b), (b @ b - b @ a @ jnp.linalg.solve(a.T @ a, a.T @ b)) / 2), (TALL, C)),
    Like("levenberg_marquardt", f"|a| levenberg_marquardt({CURVED}, [a[0] / a[0], a[1] / a[1]], tol = TOL).x", lambda a: jnp.stack([jnp.log(a[0]), a[1] / jnp.log(a[0])]), (A[:2],)),
    Like("minimizer", f"|a| minimizer({SUMS})", jnp.log, (A,)),
    Like("minimizer of a parabola", "|a, b, x| minimizer(|x| dot(x, a @ x) / 2 - dot(b, x), x, tol = TOL)", lambda a, b, x: jnp.linalg.solve(a + a.T, 2 * b), (TALL.T @ TALL, B, X)),
]  # fmt: skip
test_it_is_as_elsewhere = compared(TABLE, IMPORTS, long=True)
