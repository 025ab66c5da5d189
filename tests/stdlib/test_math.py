"""`math` and the prelude: against JAX, NumPy and mpmath, values and derivatives, in f32 and f64."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

from support.language import answer, codes, ran
from support.library import RTOL, Engine, Like, compared, literal, stdlib
from support.values import compare

IMPORTS = stdlib("math")
Real = Callable[..., Any]
RNG = np.random.default_rng(12)
X, Y, UP = RNG.normal(size=(2, 3)), RNG.normal(size=(2, 3)), np.array([1e-3, 0.4, 1.0, 7.0, 3e4])
ONE = np.float64(0.3)
TABLE = [
    Like("lerp", "lerp", lambda a, b, t: (1 - t) * a + t * b, (X, Y, ONE)),
    Like("logit", "logit", lambda p: jnp.log(p / (1 - p)), (np.array([0.01, 0.3, 0.5, 0.9]),)),
    Like("polynomial", "polynomial", lambda c, x: jnp.polyval(c[::-1], x), (RNG.normal(size=5), X)),
    Like("polynomial of nothing", "|x| polynomial(zeros(0), x)", lambda x: 0 * x, (X,)),
    Like("trapezoid", "trapezoid", jnp.trapezoid, (RNG.normal(size=6), np.cumsum(RNG.uniform(size=6)))),
    Like("trapezoid of one point", "trapezoid", jnp.trapezoid, (X[0, :1], Y[0, :1])),
    Like("log2", "log2", jnp.log2, (UP,)),
    Like("log10", "log10", jnp.log10, (UP,)),
    Like("sinc", "sinc", jnp.sinc, (np.array([-20.3, -1.1, -0.9, 1e-3, 0.25, 0.35, 1.6, 4.25]),)),
    Like("sinc at 0", "|x| [sinc(x), sinc'(x), sinc''(x)]", lambda x: jnp.array([1.0, 0.0, -(jnp.pi**2) / 3]) - x * jnp.array([0.0, jnp.pi**2 / 3, 0.0]), (np.float64(0),)),
]  # fmt: skip
test_it_is_as_elsewhere = compared(TABLE, IMPORTS)


def below(a: Any, x: Any) -> Any:
    return mp.gammainc(a, 0, x, regularized=True)


def above(a: Any, x: Any) -> Any:
    return mp.gammainc(a, x, mp.inf, regularized=True)


def beta(a: Any, b: Any, x: Any) -> Any:
    return mp.betainc(a, b, 0, x, regularized=True)


def beta_above(a: Any, b: Any, x: Any) -> Any:
    return mp.betainc(a, b, x, 1, regularized=True)


# Numbers that f32 has. At a whole a or b a continued fraction ends, and its derivative goes on. The last shape is for P alone:
# Q is 1 - P below a + 1, so what is small there is right beside 1.
SHAPES = [(0.25, 0.0009765625), (0.25, 7.5), (1.0, 2.0), (1.0, 0.5), (2.0, 3.0), (2.5, 1.5), (2.5, 40.0), (5.0, 6.125), (30.0, 20.0), (500.0, 540.0), (0.0009765625, 0.125)]  # fmt: skip
PARTS = [(0.25, 1.5, 0.0009765625), (1.0, 1.0, 0.5), (1.0, 10.0, 0.125), (2.5, 1.5, 0.25), (2.5, 1.5, 0.9990234375), (3.0, 2.0, 0.625), (10.0, 2.0, 0.75), (30.0, 40.0, 0.4375), (300.0, 200.0, 0.625)]  # fmt: skip
# What is called on x, y, z, each number by itself; mpmath's function; and where.
SPECIAL: dict[str, tuple[str, Real, list[tuple[float, ...]]]] = {
    "gammainc": ("[for i => gammainc(x[i], y[i])]", below, SHAPES),
    "gammaincc": ("[for i => gammaincc(x[i], y[i])]", above, SHAPES[:-1]),
    "gammaincc_each": ("gammaincc_each(x, y)", above, SHAPES[:-1]),
    "betainc": ("[for i => betainc(x[i], y[i], z[i])]", beta, PARTS),
    "betainc_each": ("betainc_each(x, y, z)", beta, PARTS),
    "betaincc": ("[for i => betaincc(x[i], y[i], z[i])]", beta_above, PARTS),
    "betaincc_each": ("betaincc_each(x, y, z)", beta_above, PARTS),
    "log_poisson": ("log_poisson(x, y)", lambda k, r: k * mp.log(r) - r - mp.loggamma(k + 1), [(0.0, 2.0), (0.5, 0.125), (3.0, 2.0), (15.75, 20.0), (16.25, 20.0), (100.0, 30.0), (1e4, 10100.0), (2.0, 300.0)]),
    "log_beta": ("log_beta(x, y)", lambda a, b: mp.log(mp.beta(a, b)), [(0.25, 0.5), (2.5, 4.5), (0.0009765625, 30.0), (15.75, 3.0), (3.0, 16.25), (100.0, 200.0), (1e6, 0.5), (2.0, 1e8)]),
    "log_choose": ("[for i => log_choose(x[i], y[i])]", lambda n, k: mp.log(mp.binomial(n, k)), [(5.0, 2.0), (9.0, 3.5), (15.75, 1.0), (16.25, 1.0), (50.0, 20.0), (1e6, 3.0), (40.0, 0.5)]),
}  # fmt: skip


@cache
def found(dtype: str) -> dict[str, list[np.ndarray]]:
    source = ["float f64\n" if dtype == "f64" else "", IMPORTS]
    for i, (call, _, at) in enumerate(SPECIAL.values()):
        names = "xyz"[: len(at[0])]
        given = [f"let {n}{i}: {dtype}[{len(at)}] = {literal(c)}\n" for n, c in zip(names, zip(*at, strict=True), strict=True)]  # fmt: skip
        f = f"|{', '.join(names)}| {call}"
        args = ", ".join(f"{n}{i}" for n in names)
        slopes = f"grad[{', '.join(names)}](|{', '.join(names)}| sum({call}))({args})"
        source += [*given, f"let y_{i} = ({f})({args})\nlet slopes{i} = {slopes}\n"]
    values, _ = ran("".join(source), Engine("interpret"))
    both = [(*(values[f"y_{i}"].leaves or ()), *(values[f"slopes{i}"].leaves or ())) for i in range(len(SPECIAL))]
    return {name: list(map(np.asarray, leaves)) for name, leaves in zip(SPECIAL, both, strict=True)}


@cache
def wanted(f: Real, at: tuple[tuple[float, ...], ...]) -> list[np.ndarray]:
    """The value and the derivative in each number, to some 20 digits."""
    with mp.workdps(25):
        rows = [[f(*p), *(mp.diff(f, p, tuple(int(j == k) for j in range(len(p)))) for k in range(len(p)))] for p in at]
        return list(np.array([[float(x) for x in row] for row in rows]).T)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", SPECIAL)
def test_value_and_derivatives(name: str, dtype: str) -> None:
    """Element by element, in the scale of each: also what is much smaller than 1."""
    _, f, at = SPECIAL[name]
    for got, want in zip(found(dtype)[name], wanted(f, tuple(at)), strict=True):
        assert got.dtype == {"f32": np.float32, "f64": np.float64}[dtype]
        np.testing.assert_allclose(got, want, rtol=RTOL[dtype], atol=0)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_ends(dtype: str) -> None:
    """At the ends of a domain and beyond them, NaN, and what has no numbers."""
    ask = """let y = (gammainc(2.0, [-1.0, 0.0, inf, nan]), gammaincc(2.0, [-1.0, 0.0, inf, nan]), betainc(2.0, 3.0, [-1.0, 0.0, 1.0, 2.0, nan]),
      log_poisson([0.0, 0.0, 2.0], [0.0, 2.0, 0.0]), log_choose(4.0, [-1.0, 0.0, 4.0, 5.0]), log_choose(20.0, [-1.0, 0.0, 20.0, 21.0]),
      gammainc(2.0, zeros(0)), betainc(2.0, 3.0, zeros(0)), logit([0.0, 1.0]), log2([0.0, 8.0]), log10([0.0, 1000.0]), sinc([inf, nan]))"""
    values, _ = ran(f"{'float f64' if dtype == 'f64' else ''}\n{IMPORTS}{ask}\n", Engine("interpret"))
    inf, nan = np.inf, np.nan
    expected = ([nan, 0, 1, nan], [nan, 1, 0, nan], [nan, 0, 1, nan, nan], [0, -2, -inf], [-inf, 0, 0, -inf], [-inf, 0, 0, -inf], [], [], [-inf, inf], [-inf, 3], [-inf, 3], [nan, nan])  # fmt: skip
    for got, want in zip(values["y"].leaves or (), expected, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=RTOL[dtype], atol=RTOL[dtype])


def test_derivatives() -> None:
    ask = """(logit'(0.2), (|x| polynomial([1.0, 2.0, 3.0, 4.0], x))''(2.0), grad[t](lerp)(1.0, 4.0, 0.3),
      grad(trapezoid)([1.0, 4.0, 2.0], [0.0, 0.5, 2.0]), f32(logit(f32(0.25))))"""
    expected = (1 / 0.16, 6 + 24 * 2.0, 3.0, np.array([0.25, 1.0, 0.75]), sp.logit(np.float32(0.25)))
    compare(answer(ask, IMPORTS), expected, 1e-14)


@pytest.mark.parametrize(
    "wrong",
    ["gammainc(0.0, 1.0)", "gammaincc(-1.0, 1.0)", "gammaincc_each([1.0, nan], [1.0, 1.0])", "betainc(0.0, 1.0, 0.5)", "betainc_each([1.0], [-1.0], [0.5])"],
)  # fmt: skip
def test_what_does_not_fit(wrong: str) -> None:
    assert [c for c, _ in codes(f"{IMPORTS}let y = {wrong}\n", Engine("interpret"))] == ["DL0901"]
