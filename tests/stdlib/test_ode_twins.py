"""`ode`: against the same steps in JAX and closed forms, with derivatives in all that a solution depends on, in f32 and f64."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from support.library import Like, compared, stdlib


def fixed(step: Any) -> Any:
    """Five equal steps of y' = -k y² cos(t)."""

    def twin(k: Any, y: Any, t0: Any, t1: Any) -> Any:
        h = (t1 - t0) / 5
        for i in range(5):
            y = step(lambda t, y: -k * y * y * jnp.cos(t), t0 + i * h, y, h)
        return y

    return twin


def euler(f: Any, t: Any, y: Any, h: Any) -> Any:
    return y + h * f(t, y)


def midpoint(f: Any, t: Any, y: Any, h: Any) -> Any:
    return y + h * f(t + h / 2, y + h / 2 * f(t, y))


def rk4(f: Any, t: Any, y: Any, h: Any) -> Any:
    a = f(t, y)
    b = f(t + h / 2, y + h * a / 2)
    c = f(t + h / 2, y + h * b / 2)
    return y + h * (a + 2 * b + 2 * c + f(t + h, y + h * c)) / 6


def implicit(f: Any, t: Any, y: Any, h: Any) -> Any:
    """The end of a step by Newton's method, until nothing changes."""
    z = y
    for _ in range(8):
        z -= jnp.linalg.solve(jnp.eye(y.size) - h * jax.jacfwd(f, 1)(t + h, z), z - y - h * f(t + h, z))
    return z


def rosenbrock(k: Any, y: Any, t0: Any, t1: Any) -> Any:
    """Where any error will do, steps begin with 1e-4 and are five times as long as those before them."""

    def f(t: Any, y: Any) -> Any:
        return jnp.stack([k * y[1] + jnp.sin(t), -y[0] * y[1] - k * t])

    t, d = t0, 1 / (2 + math.sqrt(2))
    for h in (1e-4, 5e-4, 25e-4, 125e-4, 625e-4, t1 - t0 - 781e-4):
        drift, w = jax.jacfwd(f)(t, y), jnp.eye(2) - h * d * jax.jacfwd(f, 1)(t, y)
        a = jnp.linalg.solve(w, f(t, y) + h * d * drift)
        y = y + h * (a + jnp.linalg.solve(w, f(t + h / 2, y + h / 2 * a) - a))
        t = t + h
    return y


def leaps(k: Any, x: Any, v: Any, dt: Any) -> Any:
    for _ in range(5):
        v = v - dt / 2 * k * jnp.sin(x)
        x = x + dt * v
        v = v - dt / 2 * k * jnp.sin(x)
    return jnp.concatenate([x, v])


def bent(k: Any, y: Any, t0: Any, t1: Any) -> Any:
    """The solution of y' = -k y² cos(t)."""
    return y / (1 + k * y * (jnp.sin(t1) - jnp.sin(t0)))


def fallen(g: Any, x: Any, v: Any) -> Any:
    t = (v + jnp.sqrt(v * v + 2 * g * x)) / g
    return jnp.stack([t, 0 * t, v - g * t])


F = "|t, y| -k * y^2 * cos(t)"
K, T0, T1 = (np.float64(x) for x in (0.7, 0.2, 0.5))
START = np.array([1.5, -0.4])
ALL = (K, START, T0, np.float64(1))
TABLE = [
    Like("euler", f"|k, y, a, b| euler({F}, y, a, b, steps = 5)", fixed(euler), ALL),
    Like("midpoint", f"|k, y, a, b| midpoint({F}, y, a, b, steps = 5)", fixed(midpoint), ALL),
    Like("rk4", f"|k, y, a, b| rk4({F}, y, a, b, steps = 5)", fixed(rk4), ALL),
    Like("implicit_euler", f"|k, y, a, b| implicit_euler({F}, y, a, b, steps = 5)", fixed(implicit), ALL),
    Like("rosenbrock23", "|k, y, a, b| rosenbrock23(|t, y| [k * y[1] + sin(t), -y[0] * y[1] - k * t], y, a, b, atol = 1e6)", rosenbrock, (K, START, T0, T1)),
    Like("leapfrog", "|k, x, v, h| { let (x, v) = leapfrog(|x| -k * sin(x), x, v, h, 5)\n  concat(x, v) }", leaps, (K, START, START[::-1].copy(), T0)),
    Like("rk4_adjoint", f"|k, y, a, b| rk4_adjoint({F}, y, a, b, steps = 100)", bent, (K, START, T0, T1)),
    Like("dopri5", f"|k, y, a, b| dopri5({F}, y, a, b, rtol = TOL, atol = TOL)", bent, ALL),
    Like("dopri5_adjoint", f"|k, y, a, b| dopri5_adjoint({F}, y, a, b, rtol = TOL, atol = TOL)", bent, (K, START, T0, T1)),
    Like("dopri5_at", f"|k, y, a, b, at| dopri5_at({F}, y, a, b, at, rtol = TOL, atol = TOL)", lambda k, y, a, b, at: bent(k, y[None], a, at[:, None]), (*ALL, np.array([0.4, 0.7, 0.95])), loose=40),  # the derivative in a time is that of a polynomial of order 4
    Like("dopri5_until", "|g, x, v| { let end = dopri5_until(|t, y| [y[1], -g], |t, y| y[0], [x, v], g - g, g / g * 99, rtol = TOL)\n  concat([end.t], end.y) }", fallen, (K, T1, T0)),
]  # fmt: skip
IMPORTS = stdlib("ode")
test_it_is_as_elsewhere = compared(TABLE, IMPORTS, long=True)
