"""The programs of the language's description: those whose constructs exist run and are right, the others say what is missing."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import math

import numpy as np
import pytest

from support.language import answer, codes, ran
from support.programs import programs

TEXTS = programs()


def value(name: str, statements: str, without: tuple[str, ...] = ()) -> list[np.ndarray]:
    """The leaves of `answer` after a program (lines that begin with `without` left out) and more statements."""
    lines = [line for line in TEXTS[name].splitlines() if not line.strip().startswith(without or ("\0",))]
    values, _ = ran("float f64\n" + "\n".join(lines) + "\n" + statements)
    return [np.asarray(leaf) for leaf in values["answer"].leaves or ()]


def test_a_model_is_fitted() -> None:
    data = "let x: f32[4, 2] = [[1, 0], [0, 1], [1, 1], [0, 0]]\nlet y: f32[4] = [1, 0, 1, 0]\n"
    start = 'let m = Model(w = [f32(0), 0], b = f32(0), name = "n")\n'
    before, after = value(
        "chapter1/model.dfl", f"{data}{start}let answer = (nll(m, x, y), nll(fit(m, x, y, 0.5, 50), x, y))\n"
    )
    assert before == pytest.approx(math.log(2))
    assert after < 0.3


X, W = np.array([0.1, 0.35, 0.8, 1.7, -0.3]), np.array([1.0, 2.0, 3.0, 4.0, 5.0])


def histogram(x: np.ndarray, w: np.ndarray, k: int) -> np.ndarray:
    h = np.zeros(k + 1)
    for u, weight in zip(np.clip(x, 0, 1) * k, w, strict=True):
        j, f = int(np.floor(u)), u - np.floor(u)
        h[j] += weight * (1 - f)
        h[min(j + 1, k)] += weight * f
    return h


def test_histograms() -> None:
    data = f"let x = {X.tolist()}\nlet w = {W.tolist()}\n"
    (found,) = value("chapter7/histogram.dfl", f"{data}let answer = soft_hist(x, w, 0.0, 1.0, 4)\n")
    np.testing.assert_allclose(found, histogram(X, W, 4))
    (slope,) = value(
        "chapter7/histogram.dfl",
        f"{data}let answer = grad[x](|x| sum(soft_hist(x, w, 0.0, 1.0, 4)^2))(x)\n".replace("grad[x](|x|", "grad(|x|"),
    )
    for i in range(len(X)):
        moved = [np.sum(histogram(X + h * np.eye(5)[i], W, 4) ** 2) for h in (1e-6, -1e-6)]
        assert slope[i] == pytest.approx((moved[0] - moved[1]) / 2e-6, abs=1e-6)
    (worst,) = value("chapter7/histogram.dfl", f"{data}let answer = worst(x, [0, 1, 0, 1, 2], 3)\n")
    np.testing.assert_array_equal(worst, [0.8, 1.7, -0.3])
    (slope,) = value(
        "chapter7/histogram.dfl",
        f"{data}let answer = grad(|x| sum(worst(x, [0, 1, 0, 1, 2], 3) * [1.0, 10.0, 100.0]))(x)\n",
    )
    np.testing.assert_array_equal(slope, [0, 0, 1, 10, 100])


def test_bodies_in_gravity() -> None:
    """The gradient through 3 steps, against differences; the attribute chooses memory only."""
    start = """let q = Bodies(x = [[0.0, 0.0, 0.0], [1.0, 0.2, 0.0]], v = [[0.0, 0.1, 0.0], [0.0, 0.9, 0.1]], mass = [1.0, 0.5], id = [0, 1])
let goal = [1.0, 1.0, 1.0]
fn far(v: f64[3]) -> f64 = miss(v, q, goal, 0.1, 3)
"""
    v = np.array([0.3, -0.2, 0.4])
    (slope,) = value("chapter7/n_body.dfl", f"{start}let answer = grad(far)({v.tolist()})\n")
    for i in range(3):
        up, down = (
            value("chapter7/n_body.dfl", f"{start}let answer = far({(v + h * np.eye(3)[i]).tolist()})\n")[0]
            for h in (1e-5, -1e-5)
        )
        assert slope[i] == pytest.approx(float((up - down) / 2e-5), rel=1e-7)


def test_newtons_iteration_through_the_loop() -> None:
    """a - e sin a = 1: da/de = sin a / (1 - e cos a), and its derivative."""
    statements = "let answer = (unrolled(0.3), grad(unrolled)(0.3), grad(grad(unrolled))(0.3))\n"
    a, first, second = map(float, value("chapter7/newton.dfl", statements, ("rule", "print", "let implicit")))
    s, c = math.sin(a), math.cos(a)
    assert a - 0.3 * s == pytest.approx(1)
    slope = s / (1 - 0.3 * c)
    assert first == pytest.approx(slope, rel=1e-12)
    d = 1 - 0.3 * c
    assert second == pytest.approx((c * slope * d - s * (-c + 0.3 * s * slope)) / d**2, rel=1e-9)


RUN = (
    "chapter1/model.dfl",
    "chapter7/conjugate_gradients.dfl",
    "chapter7/histogram.dfl",
    "chapter7/n_body.dfl",
    "chapter7/neural_ode.dfl",
    "chapter7/newton.dfl",
    "chapter7/quadrature.dfl",
)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_every_program_runs_or_says_what_is_not_there_yet(name: str) -> None:
    wanted = {"DL1104"} if name == "chapter4/rules.dfl" else set() if name in RUN else {"DL0801"}
    assert {c for c, _ in codes(TEXTS[name])} == wanted


def test_the_rules_beside_their_functions() -> None:
    """The reference shows them alone."""
    functions = """fn logsumexp(x: f64[n]) -> f64 = stop(log(sum(exp(x))))
fn root(f: (f64, f64) -> f64, p: f64, x0: f64) -> f64 = stop(sqrt(p))
fn cg(A: f64[n] -o f64[n], b: f64[n], tol: f64) -> f64[n] = stop(b / 2)
"""
    ask = "(grad(logsumexp)([0, 0]), grad[p](root)(|x, p| x^2 - p, 4, 1), jvp[b](cg)(linear |v| 2 * v, [2, 4], 0, [1, 3]))"
    shares, slope, value, change = answer(ask, functions + TEXTS["chapter4/rules.dfl"])
    assert shares.tolist() == [0.5, 0.5] and float(slope) == 0.25
    assert value.tolist() == [1, 2] and change.tolist() == [0.5, 1.5]


def test_newton_through_the_loop_and_by_the_implicit_function_theorem() -> None:
    _, lines = ran("float f64\n" + TEXTS["chapter7/newton.dfl"])
    for line in lines:
        unrolled, implicit = map(float, line.split())
        assert implicit == pytest.approx(unrolled, rel=1e-10)
    assert len(lines) == 2
