"""`roots`: against mpmath and closed forms, with derivatives by the implicit function theorem."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from support.language import answer, codes, ran
from support.library import Engine, Like, compared, stdlib
from support.values import compare

IMPORTS = stdlib("roots")
# The root x of x + c e^x = 2 at c = 0.7, by each method; of a system, and of a fixed point, that are the same.
METHODS = {
    "bisect": "bisect(|x| x + c * exp(x) - 2, 0, 2)",
    "chandrupatla": "chandrupatla(|x| x + c * exp(x) - 2, 0, 2, tol = TOL)",
    "newton": "newton(|x| x + c * exp(x) - 2, 0, tol = TOL)",
    "secant": "secant(|x| x + c * exp(x) - 2, 0, 1, tol = TOL)",
    "newton_system": "newton_system(|x| [x[0] + x[1] - 2, c * exp(x[0]) - x[1]], [0, 1], tol = TOL)[0]",
    "fixed_point": "fixed_point(|x| x - (x + c * exp(x) - 2) / 3, c - c, tol = TOL)",
}


@cache
def roots(dtype: str) -> dict[str, list[np.ndarray]]:
    source = ["float f64\n" if dtype == "f64" else "", IMPORTS]
    for name, body in METHODS.items():
        body = body.replace("TOL", "1e-13" if dtype == "f64" else "1e-6")
        source.append(f"fn by_{name}(c: {dtype}) -> {dtype} = {body}\n")
        source += [f"let {name}_{k} = by_{name}{chr(39) * k}(0.7)\n" for k in range(3)]
    values, _ = ran("".join(source), Engine("interpret"))
    return {name: [np.asarray((values[f"{name}_{k}"].leaves or ())[0]) for k in range(3)] for name in METHODS}


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", METHODS)
def test_the_root_and_two_derivatives(name: str, dtype: str) -> None:
    def root(c: mp.mpf) -> mp.mpf:
        return mp.findroot(lambda x: x + c * mp.exp(x) - 2, 0.5)

    with mp.workdps(40):
        expected = [float(mp.diff(root, mp.mpf("0.7"), k)) for k in range(3)]
    for got, want in zip(roots(dtype)[name], expected, strict=True):
        assert got.dtype == {"f32": np.float32, "f64": np.float64}[dtype]
        assert float(got) == pytest.approx(want, rel=1e-11 if dtype == "f64" else 3e-5)


RNG = np.random.default_rng(6)
LINEAR, RIGHT = RNG.normal(size=(3, 3)) + 3 * np.eye(3), RNG.normal(size=3)
C, LOW, HIGH, ONE = (np.float64(x) for x in (3.2, 0.3, 4, 1))
TABLE = [
    Like("bisect", "|c, a, b| bisect(|x| x^3 - c, a, b)", lambda c, a, b: jnp.cbrt(c), (C, LOW, HIGH)),
    Like("chandrupatla", "|c, a, b| chandrupatla(|x| x^3 - c, a, b, tol = TOL)", lambda c, a, b: jnp.cbrt(c), (C, LOW, HIGH)),
    Like("known_zero", "|c| known_zero(|x| x^3 - c, stop(sign(c) * abs(c)^(1 / 3)))", jnp.cbrt, (C,)),
    Like("newton", "|c, a| newton(|x| x^3 - c, a, tol = TOL)", lambda c, a: jnp.cbrt(c), (C, ONE)),
    Like("secant", "|c, a, b| secant(|x| x^3 - c, a, b, tol = TOL)", lambda c, a, b: jnp.cbrt(c), (C, ONE, HIGH)),
    Like("newton_system", "|m, b, x| newton_system(|y| m @ y^3 - b, x, tol = TOL)", lambda m, b, x: jnp.cbrt(jnp.linalg.solve(m, b)), (LINEAR, RIGHT, np.sign(np.linalg.solve(LINEAR, RIGHT)))),
    Like("fixed_point", "|m, b, x| fixed_point(|y| m @ y / 9 + b, x, tol = TOL)", lambda m, b, x: jnp.linalg.solve(jnp.eye(3) - m / 9, b), (LINEAR, RIGHT, RIGHT)),
]  # fmt: skip
test_it_is_the_root = compared(TABLE, IMPORTS)


@pytest.mark.parametrize("ends", ["f64(0), 4.0", "4.0, f64(0)"])
def test_bisection_finds_the_place_and_its_derivatives(ends: str) -> None:
    """x³ + x = c, to the last place; the derivatives are those of the root, not of the halvings."""
    root = f"fn root(c: f64) -> f64 = bisect(|x| x^3 + x - c, {ends})\n"
    ask = "(root(10.0), root'(10.0), root''(10.0))"
    if ends.startswith("4"):
        root = root.replace("4.0, f64(0)", "0.0, f64(4)").replace("x^3 + x - c", "c - x^3 - x")
    compare(answer(ask, IMPORTS + root), (2.0, 1 / 13, -6 * 2 / 13**3), 1e-14)


@pytest.mark.parametrize(
    "wrong",
    [
        "bisect(|x| x^2 + 1.0, 0.0, 4.0)",
        "bisect(|x| log(x), -1.0, 4.0)",
        "chandrupatla(|x| x^2 + 1.0, 0.0, 4.0)",
        "chandrupatla(|x| log(x), -1.0, 4.0)",
        "newton(|x| x^2 + 1.0, 3.0)",
        "newton(|x| x^2 + 1.0, 0.0)",
        "newton(|x| sqrt(x), -1.0)",
        "secant(|x| x^2 + 1.0, 0.1, 1.0)",
        "secant(|x| 1.0 + 0.0 * x, 0.1, 1.0)",
        "newton_system(|x| [x[0] + x[1], x[0] + x[1] - 1.0], [1.0, 2.0])",
        "newton_system(|x| [x[0]^2 + 1.0], [1.0])",
        "fixed_point(|x| 2.0 * x + 1.0, 1.0)",
        "fixed_point(|x| sqrt(x), -1.0)",
    ],
)
def test_what_does_not_converge_is_an_error(wrong: str) -> None:
    assert [c for c, _ in codes(f"{IMPORTS}let y = {wrong}\n", Engine("interpret"))] == ["DL0901"]


def test_nothing_to_solve() -> None:
    ask = "(newton_system(|x| 2.0 * x, zeros(0)), newton(|x| x, f64(0)), secant(|x| x, f64(0), 1.0), chandrupatla(|x| x, f64(0), 1.0))"
    none, *at_the_end = answer(ask, IMPORTS, Engine("interpret"))
    assert none.shape == (0,) and at_the_end == [0, 0, 0]
