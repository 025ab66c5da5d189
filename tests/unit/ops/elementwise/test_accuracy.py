"""Elementary and special functions and two derivatives of them against many digits, near edges and far out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import mpmath as mp
import numpy as np
import pytest

import difflang
from difflang.gradcheck.op_calls import OpCall
from difflang.gradcheck.op_derivatives import jvp_graph
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from support.op_calls import lowered

pytestmark = pytest.mark.as_users

Exact = Callable[[Any], Any]

WHOLE = (-30.0, -3.0, -0.5, -1e-3, -1e-9, 1e-12, 1e-6, 0.1, 1.0, 4.0, 20.0)
POSITIVE = (1e-30, 1e-6, 0.3, 0.999, 1.001, 2.0, 50.0, 1e10)
OPEN = (-0.999999, -0.9, -1e-8, 1e-10, 0.3, 0.99, 0.9999999)

# Name, exact function, points, and how many units in the last place the value and its derivatives may be off.
FUNCTIONS: list[tuple[str, Exact, tuple[float, ...], float]] = [
    ("exp", mp.exp, WHOLE, 4),
    ("exp2", lambda x: mp.mpf(2) ** x, WHOLE, 8),
    ("expm1", mp.expm1, WHOLE, 4),
    ("log", mp.log, POSITIVE, 4),
    ("log1p", mp.log1p, (-0.999999, -0.5, -1e-9, 1e-15, 1e-5, 0.7, 10.0, 1e12), 4),
    ("sqrt", mp.sqrt, POSITIVE, 4),
    ("rsqrt", lambda x: 1 / mp.sqrt(x), POSITIVE, 6),
    ("cbrt", mp.cbrt, POSITIVE, 8),
    ("sin", mp.sin, (*WHOLE, 100.0, 1e4), 4),
    ("cos", mp.cos, (*WHOLE, 100.0, 1e4), 4),
    ("tan", mp.tan, (-1.5, -0.3, 1e-9, 0.7, 1.57, 4.0), 12),
    ("asin", mp.asin, OPEN, 8),
    ("acos", mp.acos, OPEN, 8),
    ("atan", mp.atan, (*WHOLE, 1e6), 8),
    ("sinh", mp.sinh, WHOLE, 16),
    ("cosh", mp.cosh, WHOLE, 16),
    ("tanh", mp.tanh, WHOLE, 8),
    ("sech2", lambda x: 1 / mp.cosh(x) ** 2, WHOLE, 12),
    ("asinh", mp.asinh, (*WHOLE, 1e10), 8),
    ("acosh", mp.acosh, (1.000001, 1.01, 1.5, 10.0, 1e8), 8),
    ("atanh", mp.atanh, OPEN, 8),
    ("sigmoid", lambda x: 1 / (1 + mp.exp(-x)), WHOLE, 8),
    ("softplus", lambda x: mp.log1p(mp.exp(x)), (*WHOLE, 100.0, -700.0), 8),
    ("erf", mp.erf, (-2.0, -1e-9, 1e-12, 0.3, 1.0, 2.5), 24),
    ("erfc", mp.erfc, (-2.0, -1e-9, 1e-12, 0.3, 1.0, 2.5, 5.0), 60),
    ("erfinv", mp.erfinv, (-0.9, -1e-9, 1e-10, 0.3, 0.9, 0.99), 32),
    ("gamma", mp.gamma, (-2.3, -0.7, 1e-6, 0.3, 1.3, 2.5, 10.0, 100.5), 64),
    ("lgamma", lambda x: mp.log(abs(mp.gamma(x))), (-2.3, -0.7, 1e-6, 0.3, 1.3, 2.5, 10.0, 1e4), 64),
    ("digamma", mp.digamma, (-2.3, -0.4, 1e-6, 0.3, 1.3, 2.5, 10.0, 1e4), 64),
    ("positive", lambda x: x, POSITIVE, 0),
]


# The same of complex numbers; far out, near the axes, on both sides of the cuts.
PLANE = tuple(
    complex(a, b) for a in (-30.0, -0.7, -1e-9, 1e-6, 0.3, 2.5, 20.0) for b in (-3.0, -1e-7, 1e-12, 0.7, 20.0)
)
HALVES = (*PLANE, 1e100 + 1e100j, 1e-100 - 1e-100j, -2.0 + 1e-30j, -2.0 - 1e-30j, 1.0 + 1e-9j)
STRIP = (*PLANE, 300.0 + 1j, -300.0 + 1e-3j)
COMPLEX_FUNCTIONS: list[tuple[str, Exact, tuple[complex, ...], float]] = [
    ("exp", mp.exp, PLANE, 4),
    ("log", mp.log, HALVES, 4),
    ("sqrt", mp.sqrt, HALVES, 4),
    ("sin", mp.sin, PLANE, 4),
    ("cos", mp.cos, PLANE, 4),
    ("tan", mp.tan, tuple(complex(z.imag, z.real) for z in STRIP), 12),
    ("sinh", mp.sinh, PLANE, 4),
    ("cosh", mp.cosh, PLANE, 4),
    ("tanh", mp.tanh, STRIP, 12),
    ("sech2", lambda z: 1 / mp.cosh(z) ** 2, STRIP, 12),
]


def exact(function: Exact, x: complex, order: int) -> complex:
    """By differences, with digits enough for `softplus(100)`, whose second derivative is 1e-44."""
    with mp.workdps(160):
        at = mp.mpmathify(x)
        step = abs(at) * mp.mpf(10) ** -30
        found = mp.diff(function, at, order, h=step) if order else function(at)
        return complex(found) if isinstance(x, complex) else float(found)


def close(got: Any, want: Any, ulps: float) -> np.ndarray:
    tiny = np.finfo(np.float64).tiny
    return np.abs(got - want) <= ulps * np.finfo(np.float64).eps * np.abs(want) + tiny


@pytest.mark.parametrize(
    ("name", "function", "points", "ulps"), FUNCTIONS + COMPLEX_FUNCTIONS, ids=lambda v: v if isinstance(v, str) else ""
)
@pytest.mark.nightly_cases("(l?gamma|digamma|erfinv)---", "(tan|sech2|tanh|sinh|cosh|sin|cos|sqrt|log)---1")
def test_values_and_derivatives(name: str, function: Exact, points: tuple[complex, ...], ulps: float) -> None:
    """Interpreted and compiled, in double precision, element by element."""
    x = np.array(points)
    one = np.ones_like(x)
    graph = OpCall(OPS[name], (x,), {}).graph()
    first = jvp_graph(graph, (True,))
    second = jvp_graph(first, (True, False))
    jobs = [(graph, (x,)), (first, (x, one)), (second, (x, one, one))]
    with jax.enable_x64(True):
        compiled = jax.jit(lambda given: [lowered(g)(*xs)[0] for (g, _), xs in zip(jobs, given, strict=True)])(
            [xs for _, xs in jobs]
        )
    for order, ((g, xs), machine) in enumerate(zip(jobs, compiled, strict=True)):
        want = np.array([exact(function, p, order) for p in points])
        for engine, got in (("interpreted", evaluate(g, *xs)[0]), ("compiled", np.asarray(machine))):
            good = close(got, want, ulps)
            off = np.abs(got - want) / (np.abs(want) * np.finfo(np.float64).eps)
            assert good.all(), f"{engine} {name}, derivative {order}, at {x[~good]}: {off[~good]} ulp"


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.nightly_except("1")
def test_polygamma(n: int) -> None:
    x = np.array([1e-3, 0.3, 1.0, 2.5, 10.0, 1e3])
    call = OpCall(OPS["polygamma"], (x,), {"n": n})
    with jax.enable_x64(True):
        machine = np.asarray(jax.jit(lambda x: OPS["polygamma"].lower(jax, x, n=n))(x))
    want = np.array([float(mp.polygamma(n, mp.mpf(p))) for p in x])
    assert close(call.reference(), want, 32).all()
    assert close(machine, want, 32).all()


def test_the_slope_of_tanh_does_not_cancel() -> None:
    """Where 1 - y*y is 0 the slope is not."""
    x = np.array([20.0, 100.0])
    (dy,) = evaluate(jvp_graph(OpCall(OPS["tanh"], (x,), {}).graph(), (True,)), x, np.ones(2))
    assert close(dy, np.array([float(1 / mp.cosh(20) ** 2), float(1 / mp.cosh(100) ** 2)]), 8).all()


def test_powers_next_to_zero() -> None:
    """x^1.5 is differentiable at 0, once."""
    call = OpCall(OPS["pow"], (np.array(0.0), np.array(1.5)), {})
    assert evaluate(jvp_graph(call.graph(), (True, False)), *call.arrays, np.array(1.0))[0] == 0.0


def test_a_complex_function_on_its_cut_is_that_of_the_side_its_zero_says() -> None:
    """As in C and NumPy; XLA's square root does not look at the sign of a zero."""
    above, below = complex(-4.0, 0.0), complex(-4.0, -0.0)
    for name, want in (("sqrt", 2j), ("log", np.log(4) + np.pi * 1j)):
        with jax.enable_x64(True):
            machine = np.asarray(jax.jit(lambda z, name=name: OPS[name].lower(jax, z))(np.array([above, below])))
        for found in (OPS[name].reference(np.array([above, below])), machine):
            assert close(found, np.array([want, np.conj(want)]), 4).all()


def test_powers_of_a_complex_zero() -> None:
    """XLA gives NaN for all that are not real."""
    x, y = np.zeros(4, complex), np.array([0, 2, 0.5 + 1j, 3 - 2j])
    with jax.enable_x64(True):
        machine = np.asarray(jax.jit(lambda x, y: OPS["pow"].lower(jax, x, y))(x, y))
    assert machine.tolist() == OPS["pow"].reference(x, y).tolist() == [1, 0, 0, 0]


def test_a_complex_number_has_exactly_the_parts_it_is_made_of() -> None:
    """Signs of zeros, and infinite ones beside finite ones."""
    re, im = np.array([-4.0, 1.0, -0.0, np.inf]), np.array([-0.0, np.inf, -0.0, 2.0])
    with jax.enable_x64(True):
        machine = np.asarray(jax.jit(lambda x, y: OPS["complex"].lower(jax, x, y))(re, im))
    for found in (OPS["complex"].reference(re, im), machine):
        for part, want in ((found.real, re), (found.imag, im)):
            assert part.tobytes() == want.tobytes()


@pytest.mark.parametrize(("dtype", "x", "y"), [
    ("f16", 0.0, 1e-5), ("f16", 1e-4, 2e-4), ("f16", 1000.0, 1000.0), ("f32", 1e-30, 1e-25), ("f32", 1e-22, 1e-22),
    ("f32", 3e38, 1e38),
])  # fmt: skip
@pytest.mark.parametrize("change", [0.5, 64.0])
@pytest.mark.nightly_except("0.5-.*")
def test_the_slope_of_a_quotient_overflows_only_by_itself(dtype: str, x: float, y: float, change: float) -> None:
    """On no way round is there a step that overflows or vanishes where the derivative does not."""
    f: Any = difflang.loads(f"fn f(x: {dtype}, y: {dtype}) -> {dtype} = x / y", name="quotient").f
    number = {"f16": np.float16, "f32": np.float32}[dtype]
    slope = -float(number(x)) / float(number(y)) ** 2
    with np.errstate(over="ignore"):
        want = number(slope * change)
    forward, backward = f.jvp("y"), f.vjp("y")
    for found in (forward(x, y, change)[1], forward.interpret(x, y, change)[1], backward(x, y)[1](change)):
        np.testing.assert_allclose(np.asarray(found, number), want, rtol=4 * np.finfo(number).eps)
