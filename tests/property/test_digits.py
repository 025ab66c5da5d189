"""First derivatives in double precision within four units in the last place of 50-digit values, at a thousand points.

By day the points are 250.

Every function of one number in the registry, on both engines, both ways round; then functions of two numbers and of
arrays as the user writes them. What falls short is listed here and in `docs/conventions.md`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import difflang
from difflang.gradcheck.op_calls import OpCall
from difflang.gradcheck.op_derivatives import jvp_graph, vjp_graph
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS, Op
from difflang.ir.tensor_types import F64
from difflang.lower.lowering_pipeline import finalize_graph
from difflang.runtime.compile import compile_graph
from support.digits import COUNT, Known, Reference
from support.known import UNARY, psi

pytestmark = pytest.mark.as_users

ALLOWED = 4
# Where the value itself is off by more; `tanh` is XLA's, beyond 9.
VALUES = {"gelu": 6, "gelu_slope": 5, "erfc": 6, "tanh": 7}
# Slopes of other functions, which only a second derivative differentiates.
SLOPES = {"gelu": 5, "erfinv_slope": 16, "gelu_slope": 256, "sech2": 8}
NOT_OF_REALS = {"real", "imag", "conj", "complex", "convert"}


def of_one_number(op: Op) -> bool:
    rules = op.operand_rules.of_operands
    return op.elementwise and not op.inactive and len(rules) == 1 and F64 in op.accepts and op.name not in NOT_OF_REALS


def test_every_function_of_one_number_is_known() -> None:
    assert {op.name for op in OPS.values() if of_one_number(op)} == {name.split()[0] for name in UNARY}


@lru_cache(maxsize=1)
def graphs(name: str) -> tuple[np.ndarray[Any, Any], dict[str, Graph]]:
    x = UNARY[name].points()
    graph = OpCall(OPS[name.split()[0]], (x,), UNARY[name].attrs).graph()
    derived = {"the value": graph, "jvp": jvp_graph(graph, (True,)), "vjp": vjp_graph(graph, (True,))}
    return x, {way: finalize_graph(g) for way, g in derived.items()}


def check(what: str, x: np.ndarray[Any, Any], got: Any, want: Reference, allowed: Any) -> None:
    """`allowed`: a number, or one for each point."""
    off = want.ulps(np.asarray(got))
    worst = np.argsort(off - allowed)[::-1][:3]
    assert (off <= allowed).all(), f"{what}: " + ", ".join(f"{off[i]:.3g} ulp at {x[i]!r}" for i in worst)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.nightly_cases("digamma|polygamma [123]|erfinv_slope|erfinv")
def test_values(name: str) -> None:
    x, ways = graphs(name)
    want = Reference.of(UNARY[name].value, x)
    check(f"interpreted {name}", x, evaluate(ways["the value"], x)[0], want, VALUES.get(name, 4))
    check(f"compiled {name}", x, compile_graph(ways["the value"])(x)[0], want, VALUES.get(name, 4))


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.nightly_cases("l?gamma|polygamma [123]|erfinv_slope|erfinv|digamma")
def test_slopes(name: str) -> None:
    x, ways = graphs(name)
    assert len(x) >= COUNT
    want, ones, allowed = Reference.of(UNARY[name].slope, x), np.ones_like(x), SLOPES.get(name, ALLOWED)
    for way in ("jvp", "vjp"):
        check(f"interpreted {way} of {name}", x, evaluate(ways[way], x, ones)[0], want, allowed)
        check(f"compiled {way} of {name}", x, compile_graph(ways[way])(x, ones)[0], want, allowed)


def test_a_slope_that_is_off_is_noticed() -> None:
    x = UNARY["tanh"].points()
    want = Reference.of(UNARY["tanh"].slope, x)
    with pytest.raises(AssertionError, match="ulp at"):
        check("1 - tanh^2", x, 1.0 - np.tanh(x) ** 2, want, ALLOWED)
    with pytest.raises(AssertionError, match="ulp at"):
        check("five units off", x, want.high + 5 * np.spacing(want.high), want, ALLOWED)


# ------------------------------------------------------------------- functions as the user writes them


NAMED: dict[str, Known] = {
    "log2": Known(lambda x: mp.log(x, 2), lambda x: mp.inf if x == 0 else 1 / (x * mp.log(2)), low=0.0, near=(1.0,)),
    "log10": Known(lambda x: mp.log(x, 10), lambda x: mp.inf if x == 0 else 1 / (x * mp.log(10)), low=0.0, near=(1.0,)),
    "gelu": UNARY["gelu"],
}


def slope_of_hypot(x: Any, y: Any) -> Any:
    return x / mp.sqrt(x * x + y * y)


def slope_of_logsumexp(x: Any, y: Any) -> Any:
    return 1 / (1 + mp.exp(y - x))


# An expression of x[i] and y[i], and its two partial derivatives.
PAIRS: dict[str, tuple[str, Any, Any]] = {
    "hypot": ("hypot(x[i], y[i])", slope_of_hypot, lambda x, y: slope_of_hypot(y, x)),
    "norm": ("norm([x[i], y[i]])", slope_of_hypot, lambda x, y: slope_of_hypot(y, x)),
    "atan2": ("atan2(x[i], y[i])", lambda x, y: y / (x * x + y * y), lambda x, y: -x / (x * x + y * y)),
    "logsumexp": ("logsumexp([x[i], y[i]])", slope_of_logsumexp, lambda x, y: slope_of_logsumexp(y, x)),
    "logaddexp": ("logaddexp(x[i], y[i])", slope_of_logsumexp, lambda x, y: slope_of_logsumexp(y, x)),
    "quotient": ("x[i] / y[i]", lambda x, y: 1 / y, lambda x, y: -x / y**2),
    "power": ("x[i] ^ y[i]", lambda x, y: y * x ** (y - 1), lambda x, y: x**y * mp.log(x)),
    "xlogy": ("xlogy(y[i], x[i])", lambda x, y: y / x, lambda x, y: mp.log(x)),
}


def pair_points(name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Numbers of every size, the two alike or far apart; for powers and exponentials where the answer is finite."""
    rng = np.random.default_rng(300)
    sign = rng.choice([-1.0, 1.0], COUNT)
    if name in ("logsumexp", "logaddexp"):
        return rng.uniform(-700, 700, COUNT), np.where(
            rng.random(COUNT) < 0.5, rng.uniform(-700, 700, COUNT), 0.1 * sign
        )
    if name in ("power", "xlogy"):
        x = np.concatenate([rng.uniform(0.01, 10, COUNT // 2), np.exp(rng.uniform(-600, 600, COUNT // 2))])
        return x, np.concatenate([rng.uniform(-100, 100, COUNT // 2), rng.uniform(-1.1, 1.1, COUNT // 2)])
    x = sign * 10.0 ** rng.uniform(-300, 300, COUNT)
    y = x * np.where(rng.random(COUNT) < 0.5, rng.normal(size=COUNT), 10.0 ** rng.uniform(-5, 5, COUNT))
    x[:6], y[:6] = [3e300, 3e-300, 1e300, 1e-300, 1.0, 1e300], [4e300, 4e-300, 1e300, 1e-300, 1e-300, 1.0]
    return x, y


@lru_cache(maxsize=1)
def module() -> Any:
    lines: list[str] = []
    for name, (expression, _, _) in PAIRS.items():
        lines.append(f"fn {name}_(x: f64[n], y: f64[n]) -> f64[n] = [for i in 0..n => {expression}]")
        for w in "xy":
            lines.append(f"fn {name}_r{w}(x: f64[n], y: f64[n]) -> f64[n] = grad[{w}](|x, y| sum({name}_(x, y)))(x, y)")
            lines.append(f"fn {name}_j{w}(x: f64[n], y: f64[n]) -> f64[n] {{")
            lines.append(f"  let (_, d) = jvp[{w}]({name}_)(x, y, ones(n))\n  d\n}}")
    for name in NAMED:
        lines.append(f"fn {name}_r(x: f64[n]) -> f64[n] = grad(|x| sum({name}(x)))(x)")
        lines.append(f"fn {name}_j(x: f64[n]) -> f64[n] {{\n  let (_, d) = jvp(|x| {name}(x))(x, ones(n))\n  d\n}}")
    return difflang.loads("\n".join(lines))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.nightly_except("quotient|atan2|hypot")
def test_partial_derivatives(name: str) -> None:
    """Compiled, as the user calls them. Where a difference was rounded, its exponential is off by as much."""
    x, y = pair_points(name)
    allowed = ALLOWED + (np.spacing(abs(x - y)) * 2.0**52 if name in ("logsumexp", "logaddexp") else 0)
    for w, slope in zip("xy", PAIRS[name][1:], strict=True):
        want = Reference.of(slope, x, y)
        for way in "rj":
            got = getattr(module(), f"{name}_{way}{w}")(x, y)
            check(f"{name} in {w}", np.stack([x, y], -1), got, want, allowed)


@pytest.mark.parametrize("name", NAMED)
def test_functions_of_the_standard_library(name: str) -> None:
    x = NAMED[name].points()
    want = Reference.of(NAMED[name].slope, x)
    for way in "rj":
        check(name, x, getattr(module(), f"{name}_{way}")(x), want, ALLOWED)


# ----------------------------------------------------------------- the gamma function left of 0


def left_of_zero() -> np.ndarray[Any, Any]:
    """Between the poles: a thousand points of every size up to 1e12, and those nearest to zeros of digamma."""
    rng = np.random.default_rng(7)
    x = -np.concatenate([10.0 ** rng.uniform(-10, 12, COUNT // 2), rng.uniform(0, 20, COUNT // 2)])
    roots = np.array([root_of_digamma(n) for n in (*range(20), 10**2, 10**4, 10**8)])
    beside = [roots * (1 + sign * 2.0**-k) for k in range(10, 54) for sign in (1, -1)]
    return np.concatenate([x[x != np.round(x)], roots, *beside])


def root_of_digamma(n: int) -> float:
    """The zero between `-n - 1` and `-n`."""
    with mp.workdps(40):
        if n == 0:
            return float(mp.findroot(mp.digamma, -0.5))
        x = -n - mp.mpf(1) / 3
        for _ in range(30):
            x = -n - mp.acot(psi(0, 1 - x) / mp.pi) / mp.pi
        return float(x)


@lru_cache(maxsize=1)
def left_reference() -> tuple[np.ndarray[Any, Any], Reference, Reference]:
    x = left_of_zero()
    return x, Reference.of(lambda x: psi(0, x), x), Reference.of(lambda x: psi(1, x), x)


@pytest.mark.parametrize(("name", "allowed"), [("lgamma", 1), ("digamma", 5)])
@pytest.mark.parametrize("way", [jvp_graph, vjp_graph])
@pytest.mark.nightly_except("vjp_graph-digamma-5")
def test_slopes_left_of_zero(name: str, allowed: int, way: Any) -> None:
    """`psi(1 - x) - pi cot(pi x)` vanishes between any two poles: both terms are had to twice the digits."""
    x, *slopes = left_reference()
    graph = finalize_graph(way(OpCall(OPS[name], (x,), {}).graph(), (True,)))
    want = slopes[name == "digamma"]
    check(f"interpreted {name}", x, evaluate(graph, x, np.ones_like(x))[0], want, allowed)
    check(f"compiled {name}", x, compile_graph(graph)(x, np.ones_like(x))[0], want, allowed)


@pytest.mark.parametrize("way", [jvp_graph, vjp_graph])
@pytest.mark.nightly
def test_gamma_and_its_slope_left_of_zero(way: Any) -> None:
    x = left_of_zero()
    x = x[(x > -165.0) & (x < -1e-10)]
    graph = finalize_graph(way(OpCall(OPS["gamma"], (x,), {}).graph(), (True,)))
    value, slope = Reference.of(mp.gamma, x), Reference.of(lambda x: mp.gamma(x) * psi(0, x), x)
    for engine, run in (("interpreted", evaluate), ("compiled", lambda g, *xs: compile_graph(g)(*xs))):
        got = run(graph, x, np.ones_like(x))
        check(f"{engine} slope", x, got[0], slope, 8)
        check(f"{engine} value", x, run(finalize_graph(OpCall(OPS["gamma"], (x,), {}).graph()), x)[0], value, 4)


@pytest.mark.nightly
def test_digamma_left_of_zero_in_single_precision() -> None:
    x = np.unique(left_of_zero().astype(np.float32))
    x = x[x != np.round(x)]
    graph = finalize_graph(OpCall(OPS["digamma"], (x,), {}).graph())
    want = np.array([float(psi(0, mp.mpf(float(p)))) for p in x])
    for got in (evaluate(graph, x)[0], np.asarray(compile_graph(graph)(x)[0])):
        assert got.dtype == np.float32
        np.testing.assert_array_less(np.abs(got - want), 0.51 * np.spacing(np.abs(want.astype(np.float32))))


# ------------------------------------------------------------------------- what falls short, and how far


def slope_of_sinc(x: Any) -> Any:
    with mp.workdps(120):
        return (mp.cospi(x) - mp.sincpi(x)) / x


def test_the_slope_of_sinc_is_right_to_the_size_of_its_terms() -> None:
    x = np.concatenate([around * np.linspace(0.3, 33.0, COUNT // 2) for around in (1.0, -1.0)])
    got = np.asarray(difflang.loads("fn f(x: f64[n]) -> f64[n] = grad(|x| sum(sinc(x)))(x)").f(x))
    want = Reference.of(slope_of_sinc, x)
    terms = (np.abs(np.cos(np.pi * x)) + np.abs(np.sinc(x))) / np.abs(x)
    assert (np.abs(got - want.high) <= ALLOWED * np.spacing(terms)).all()


def test_high_powers_lose_digits_just_above_the_least_number() -> None:
    x = np.geomspace(1e-3, 1e3, COUNT)
    graph = finalize_graph(jvp_graph(OpCall(OPS["integer_pow"], (x,), {"n": 101}).graph(), (True,)))
    want = Reference.of(lambda x: 101 * x**100, x)
    off = want.ulps(np.asarray(compile_graph(graph)(x, np.ones_like(x))[0]))
    assert off[want.high > 1e-290].max() <= ALLOWED
    assert off.max() <= 32
