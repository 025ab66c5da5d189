"""Solvers that loop until their data are satisfied: gradients and Hessian-vector products against closed forms."""

# ruff: noqa: E501 - the coefficients of a method stand in a row

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import difflang

SOURCE = """
float f64
fn newton(a: f64) -> f64 {
  var x = a
  while abs(x * x - a) > 1e-13 { x = 0.5 * (x + a / x) }
  x
}
fn cg(a: f64[n, n], b: f64[n]) -> f64[n] {
  var x = zeros(n)
  var r = b
  var p = b
  while dot(r, r) > 1e-28 {
    let ap = a @ p
    let alpha = dot(r, r) / dot(p, ap)
    let r2 = r - alpha * ap
    x += alpha * p
    p = r2 + dot(r2, r2) / dot(r, r) * p
    r = r2
  }
  x
}
fn energy(b: f64[n], a: f64[n, n]) -> f64 = dot(b, cg(a, b))
fn bisect(c: f64) -> f64 {
  var lo = 0.0
  var hi = 2.0
  while hi - lo > 1e-3 {
    let mid = 0.5 * (lo + hi)
    if mid^3 + mid > c { hi = mid } else { lo = mid }
  }
  var x = 0.5 * (lo + hi)
  while abs(x^3 + x - c) > 1e-14 { x -= (x^3 + x - c) / (3.0 * x^2 + 1.0) }
  x
}
fn polished(c: f64) -> f64 {
  let x = bisect(c)
  x - (x^3 + x - c) / (3.0 * x^2 + 1.0)
}
fn fixed(a: f64) -> f64 {
  var x = 1.0
  var old = 0.0
  while abs(x - old) > 1e-15 { old = x
    x = cos(a * x) }
  x
}
fn ode(k: f64, t1: f64) -> f64 {
  var t = 0.0
  var y = 1.0
  var h = 0.1
  while t < t1 - 1e-12 {
    h = min(h, t1 - t)
    let k1 = -k * y
    let k2 = -k * (y + h * k1 / 5.0)
    let k3 = -k * (y + h * (3.0 / 40.0 * k1 + 9.0 / 40.0 * k2))
    let k4 = -k * (y + h * (44.0 / 45.0 * k1 - 56.0 / 15.0 * k2 + 32.0 / 9.0 * k3))
    let k5 = -k * (y + h * (19372.0 / 6561.0 * k1 - 25360.0 / 2187.0 * k2 + 64448.0 / 6561.0 * k3 - 212.0 / 729.0 * k4))
    let k6 = -k * (y + h * (9017.0 / 3168.0 * k1 - 355.0 / 33.0 * k2 + 46732.0 / 5247.0 * k3 + 49.0 / 176.0 * k4 - 5103.0 / 18656.0 * k5))
    let y5 = y + h * (35.0 / 384.0 * k1 + 500.0 / 1113.0 * k3 + 125.0 / 192.0 * k4 - 2187.0 / 6784.0 * k5 + 11.0 / 84.0 * k6)
    let k7 = -k * y5
    let e = h * (71.0 / 57600.0 * k1 - 71.0 / 16695.0 * k3 + 71.0 / 1920.0 * k4 - 17253.0 / 339200.0 * k5 + 22.0 / 525.0 * k6 - k7 / 40.0)
    let err = abs(stop(e)) / 1e-13
    if err <= 1.0 { t += h
      y = y5 }
    h = h * clamp(0.9 * (err + 1e-10)^-0.2, 0.2, 5.0)
  }
  y
}
fn reject(s: f64) -> f64 {
  var u = 0.37
  var n = 0
  while u > 0.2 {
    u = (u * 997.0 + 0.1234) % 1.0
    n += 1
  }
  s^2 * u + f64(n) * s
}
"""
MODULE: Any = difflang.loads(SOURCE, name="solvers")


def fixed_point(a: Any) -> Any:
    return mp.findroot(lambda t: t - mp.cos(a * t), 0.7)


def of_cube(order: int) -> float:
    """The derivatives of the root of x³ + x = 3.7."""
    x = float(mp.findroot(lambda t: t**3 + t - mp.mpf("3.7"), 1.3))
    slope = 1 / (3 * x * x + 1)
    return slope if order == 1 else -6 * x * slope**3


def iterates(c: Any) -> Any:
    """What `bisect` computes at 3.7: halvings, in which c has no part, and two steps of Newton's iteration."""
    low, high = mp.mpf(0), mp.mpf(2)
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if middle**3 + middle > 3.7 else (middle, high)
    x = (low + high) / 2
    for _ in range(2):
        x -= (x**3 + x - c) / (3 * x**2 + 1)
    return x


def drawn() -> tuple[float, int]:
    """Where the rejection loop ends, and after how many steps."""
    u, n = 0.37, 0
    while u > 0.2:
        u, n = (u * 997 + 0.1234) % 1.0, n + 1
    return u, n


SCALARS: dict[str, tuple[tuple[float, ...], Callable[[int], Any]]] = {
    "newton": ((2.3,), lambda order: 0.5 * 2.3**-0.5 if order == 1 else -0.25 * 2.3**-1.5),
    "bisect": ((3.7,), lambda order: mp.diff(iterates, mp.mpf("3.7"), order)),
    "polished": ((3.7,), of_cube),
    "fixed": ((0.8,), lambda order: mp.diff(fixed_point, 0.8, order)),
    "ode": ((1.3, 2.0), lambda order: (-2) ** order * float(np.exp(-2.6))),
    "reject": ((1.7,), lambda order: 2 * 1.7 * drawn()[0] + drawn()[1] if order == 1 else 2 * drawn()[0]),
}


@pytest.mark.parametrize("name", SCALARS)
def test_a_number_in_a_number(name: str) -> None:
    point, expected = SCALARS[name]
    f = getattr(MODULE, name)
    with mp.workdps(40):
        first, second = float(expected(1)), float(expected(2))
    assert float(f.grad()(*point)) == pytest.approx(first, rel=1e-10)
    assert float(f.hvp()(*point, 1.0)) == pytest.approx(second, rel=1e-9)


def test_second_derivatives_of_newtons_iterates_are_a_step_behind_the_root() -> None:
    """Where they are stopped, with a root right to 7e-16, their own second derivative is off by 1.3e-7."""
    with mp.workdps(40):
        value, second = iterates(mp.mpf("3.7")), float(mp.diff(iterates, mp.mpf("3.7"), 2))
        assert abs(value - mp.findroot(lambda t: t**3 + t - mp.mpf("3.7"), 1.3)) < 1e-15
    assert abs(second / of_cube(2) - 1) == pytest.approx(1.254e-7, rel=1e-3)
    assert float(MODULE.bisect.hvp()(3.7, 1.0)) == pytest.approx(second, rel=1e-13)


def test_conjugate_gradients() -> None:
    rng = np.random.default_rng(0)
    half, b, v = rng.normal(size=(12, 12)), rng.normal(size=12), rng.normal(size=12)
    a = half @ half.T + 12 * np.eye(12)
    energy = MODULE.energy
    np.testing.assert_allclose(np.asarray(energy.grad("b")(b, a)), 2 * np.linalg.solve(a, b), rtol=1e-9)
    np.testing.assert_allclose(np.asarray(energy.hvp("b")(b, a, v)), 2 * np.linalg.solve(a, v), rtol=1e-9)
    x = np.linalg.solve(a, b)
    slope = np.asarray(energy.grad("a")(b, a))  # the method is one for symmetric matrices: so are the directions
    np.testing.assert_allclose(0.5 * (slope + slope.T), -np.outer(x, x), rtol=1e-8, atol=1e-12)
