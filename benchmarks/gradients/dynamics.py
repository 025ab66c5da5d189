"""Flows through time: a learned one, bodies that pull each other, heat, and predators with prey."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cases import Case
from gradients.shared import Loop, draw, loops, program, scans


class Field(NamedTuple):
    """A network that gives the slope of a flow."""

    w1: Any  # [d, h]
    b1: Any  # [h]
    w2: Any  # [h, d]
    b2: Any  # [d]


def neural_ode() -> Case:
    def loss(scan: Callable[..., Any], f: Field, start: jax.Array, seen: jax.Array) -> jax.Array:
        h = 0.1

        def slope(y: jax.Array) -> jax.Array:
            return jnp.tanh(y @ f.w1 + f.b1) @ f.w2 + f.b2

        def step(y: jax.Array, goal: jax.Array) -> tuple[jax.Array, jax.Array]:
            k1 = slope(y)
            k2 = slope(y + 0.5 * h * k1)
            k3 = slope(y + 0.5 * h * k2)
            k4 = slope(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return y, jnp.mean((y - goal) ** 2)

        return jnp.sum(scan(step, start, seen)[1])

    field = Field(draw(4, 32, scale=0.5), draw(32, seed=1), draw(32, 4, scale=0.2, seed=2), draw(4, scale=0.1, seed=3))
    return program("neural_ode", "f", (field, draw(32, 4, seed=4), draw(50, 32, 4, seed=5)), scans(loss))


def n_body() -> Case:
    def weight(apart: jax.Array, mass: jax.Array) -> jax.Array:
        square = jnp.sum(apart**2, axis=2) + 0.01
        return mass / (square * jnp.sqrt(square))

    def by_differences(x: jax.Array, mass: jax.Array) -> jax.Array:
        apart = x[None] - x[:, None]
        return jnp.sum(weight(apart, mass)[..., None] * apart, axis=1)

    def by_product(x: jax.Array, mass: jax.Array) -> jax.Array:
        by = weight(x[None] - x[:, None], mass)
        return by @ x - jnp.sum(by, axis=1)[:, None] * x

    def leapfrog(pull: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        def loss(scan: Callable[..., Any], v0: jax.Array, x0: jax.Array, mass: jax.Array, goal: jax.Array) -> jax.Array:
            h = 0.01

            def step(state: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
                x, v = state
                x = x + h * v
                return (x, v + h * pull(x, mass)), None

            (x, _), _ = scan(step, (x0, v0 + 0.5 * h * pull(x0, mass)), None, length=100)
            return jnp.sum((x - goal) ** 2)

        return loss

    arguments = (draw(24, 3), draw(24, 3, seed=1), np.abs(draw(24, seed=2)), draw(24, 3, seed=3))
    product = {f"{name}, product": twin for name, twin in scans(leapfrog(by_product)).items()}
    return program("n_body", "v0", arguments, scans(leapfrog(by_differences)) | product)


def heat() -> Case:
    def around(u: jax.Array) -> jax.Array:
        return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]

    def updated(u: jax.Array, k: jax.Array) -> jax.Array:
        return u.at[1:-1, 1:-1].add(k * around(u))

    def padded(u: jax.Array, k: jax.Array) -> jax.Array:
        return u + jnp.pad(k * around(u), 1)

    def evolved(after: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        def loss(scan: Callable[..., Any], k: jax.Array, start: jax.Array, seen: jax.Array) -> jax.Array:
            inner = k[1:-1, 1:-1]
            u, _ = scan(lambda u, _: (after(u, inner), None), start, None, length=100)
            return jnp.sum((u - seen) ** 2)

        return loss

    k = np.random.default_rng(0).uniform(0.05, 0.2, (64, 64))
    pads = {f"{name}, padded": twin for name, twin in scans(evolved(padded)).items()}
    return program("heat", "k", (k, draw(64, 64, seed=1), draw(64, 64, seed=2)), scans(evolved(updated)) | pads)


def dormand_prince() -> Case:
    def slope(p: jax.Array, y: jax.Array) -> jax.Array:
        met = y[0] * y[1] / (1 + 0.1 * y[0])
        return jnp.stack([p[0] * y[0] * (1 - 0.1 * y[0]) - p[1] * met, p[2] * met - p[3] * y[1]])

    def loss(loop: Loop, p: jax.Array, start: jax.Array, goal: jax.Array, until: Any, tolerance: Any) -> jax.Array:
        def step(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            t, h, y, k1 = state
            k2 = slope(p, y + h * (1 / 5 * k1))
            k3 = slope(p, y + h * (3 / 40 * k1 + 9 / 40 * k2))
            k4 = slope(p, y + h * (44 / 45 * k1 - 56 / 15 * k2 + 32 / 9 * k3))
            k5 = slope(p, y + h * (19372 / 6561 * k1 - 25360 / 2187 * k2 + 64448 / 6561 * k3 - 212 / 729 * k4))
            k6 = slope(
                p,
                y + h * (9017 / 3168 * k1 - 355 / 33 * k2 + 46732 / 5247 * k3 + 49 / 176 * k4 - 5103 / 18656 * k5),
            )
            after = y + h * (35 / 384 * k1 + 500 / 1113 * k3 + 125 / 192 * k4 - 2187 / 6784 * k5 + 11 / 84 * k6)
            k7 = slope(p, after)
            off = 71 / 57600 * k1 - 71 / 16695 * k3 + 71 / 1920 * k4 - 17253 / 339200 * k5 + 22 / 525 * k6 - k7 / 40
            off, k = jax.lax.stop_gradient((h * off, tolerance * (1 + jnp.maximum(jnp.abs(y), jnp.abs(after)))))
            error = jnp.sqrt(jnp.mean((off / k) ** 2))
            accepted = error < 1
            t, y, k1 = (jnp.where(accepted, new, old) for new, old in ((t + h, t), (after, y), (k7, k1)))
            h = jnp.minimum(h * jnp.clip(0.9 * jnp.maximum(error, 1e-10) ** -0.2, 0.2, 5.0), until - t)
            return t, h, y, k1

        state = (jnp.zeros(()), jnp.full((), 0.01), start, slope(p, start))
        y = loop(lambda state: state[0] < until, step, state)[2]
        return jnp.sum((y - goal) ** 2)

    numbers = ([1.1, 0.4, 0.2, 0.5], [3.0, 2.0], [4.0, 1.0], 20.0, 1e-8)
    return program("dormand_prince", "p", tuple(np.asarray(x) for x in numbers), loops(loss, most=128))
